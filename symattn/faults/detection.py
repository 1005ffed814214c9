"""Compare which rules detect a fault: tolerances at an everyday input, and the probes and bound of ``verify``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from symattn.arrays.precision import Precision
from symattn.bounds.case_result import Case
from symattn.document.codec import record
from symattn.document.model import Block, Code, Document, Note, Paragraph, Table, Text, headers
from symattn.faults.corpus import (
    DOMAIN,
    EVERYDAY,
    Array,
    CorpusFault,
    PublicReport,
    Sample,
    convention,
    sample,
)
from symattn.programs.calls import Target
from symattn.verification.definitions import attention_output
from symattn.verification.engine import SEED, Session
from symattn.verification.report_document import typeset
from symattn.verification.tolerances import weighing

# Seeds of the samples to which each rule is applied.
SEEDS = range(5)
# Limits on the inputs, on the random ones among them, and on seconds.
_CASES, _EXAMPLES, _BUDGET = 600, 50, 120.0
Rule = Callable[[Sample, Array], bool]


def torchs(drawn: Sample, got: Array) -> bool:
    """Return whether ``torch.testing.assert_close`` with its defaults for float32 accepts an output."""
    return weighing.picked("float32")[0].accepts(got, drawn.exact)


def twice(drawn: Sample, got: Array) -> bool:
    """Return whether its largest error is at most twice that of a plain program, as in FlashAttention's tests."""
    error = np.abs(got - drawn.exact).max()
    error_of_plain = np.abs(drawn.right - drawn.exact).max()
    return bool(error <= 2 * error_of_plain)


# Rules of everyday tests: whether they accept an output.
RULES: dict[str, Rule] = {"torch's defaults": torchs, "twice a baseline": twice}


@dataclass(frozen=True)
class Detection:
    """The rules that detect a fault at an everyday input, for at least one of five seeds, and after how many inputs
    the probes of ``verify`` do (None: they do not)."""

    fault: CorpusFault
    rules: dict[str, bool]
    after: int | None


def detect(fault: CorpusFault) -> Detection:
    """Apply every rule to a fault."""
    samples = [sample(fault, seed, EVERYDAY) for seed in SEEDS]
    rules = {name: any(not rule(s, s.wrong) for s in samples) for name, rule in RULES.items()}
    return Detection(fault, rules, probed(fault))


def probed(fault: CorpusFault, right: bool = False) -> int | None:
    """Return after how many inputs of ``verify`` the mistake, or the ``right`` program, exceeds the bound, or None."""

    def program(**inputs: Array) -> Array:
        return (
            np.asarray(fault.spec(**inputs), dtype=inputs["q"].dtype)
            if right
            else fault.wrong(inputs)
        )

    target = Target(program, convention(fault.spec))
    subject = attention_output.subject(fault.spec)
    session = Session(
        target, subject, Precision.of("float32"), DOMAIN, SEED, examples=_EXAMPLES, budget=_BUDGET
    )
    for count, case in enumerate(islice(_yield_verification_cases(session), _CASES), 1):
        if session.admits(case) and session.run_case(case).finding is not None:
            return count
    return None


def _yield_verification_cases(session: Session) -> Iterator[Case]:
    """Yield cases in the order of ``verify``: probes, those that take longer, and random inputs."""
    rng, subject = np.random.default_rng(session.seed), session.subject
    for group in chain(subject.source.first().values(), subject.source.later().values()):
        yield from group(session, rng)
    yield from subject.source.drawn(session, session.examples)


# -- the corpus for readers: a list, one fault, and the table of which rule finds what ---------------------------------
def listed(faults: Iterable[CorpusFault]) -> Document:
    """Return a table with a row for each fault."""
    results = tuple(faults)
    columns = headers("fault", "step", "specification", "what is wrong", "reported")
    rows = tuple(
        (
            (Code(f.name),),
            (f.mistake.step,),
            (_write_fields_of_fault(f),),
            typeset(f.words),
            (", ".join(map(short, f.reports)),),
        )
        for f in results
    )
    result = sum(bool(f.reports) for f in results)
    blocks = (
        Paragraph((f"{len(results)} faults; {result} resemble public reports.",)),
        Table(columns, rows),
    )
    return Document(
        "listing", "faults", ("Faults of attention code",), blocks, command="symattn faults list",
        record=record({"faults": results}),
    )  # fmt: skip


def in_sample(fault: CorpusFault) -> Iterator[Block]:
    """Yield the name of a fault in the corpus, and the size of its error in a sample."""
    drawn = sample(fault, 0)
    # NaN, which alone differs from itself, would hide the other errors.
    errors = (float(x) for x in (drawn.wrong - drawn.exact).flat if x == x)
    off = max(map(abs, errors))
    roundings = (drawn.right - drawn.exact).flat
    right = max(abs(float(x)) for x in roundings)
    fields = _write_fields_of_fault(fault)
    words = (
        f"Specification: {fields}. In the sample of seed 0 it is off by {off:.2g}, a correct one by"
    )
    yield Paragraph(("In the corpus: ", Code(fault.name), f". {words} {right:.2g}."))


def compared(rows: Iterable[Detection]) -> Document:
    """Return a table of which rule detects which fault."""
    results = tuple(rows)
    columns = headers("fault", *RULES, "symattn")
    words = {True: "found", False: "let through"}
    lines: list[tuple[Text, ...]] = []
    for row in results:
        detected = words[False] if row.after is None else f"{words[True]}, input {row.after}"
        lines.append(
            ((Code(row.fault.name),), *((words[row.rules[name]],) for name in RULES), (detected,))
        )
    counts = {name: sum(r.rules[name] for r in results) for name in RULES}
    counts["symattn"] = sum(r.after is not None for r in results)
    words_of_counts = (f"{name} {count}" for name, count in counts.items())
    totals = ", ".join(words_of_counts)
    of = results[0].fault.name if len(results) == 1 else "--all"
    blocks = (
        Table(columns, tuple(lines)),
        Paragraph((f"Number found, of {len(results)}: {totals}.",)),
        Note(
            (
                "The first two rules use entries from N(0, 1), n = d = 16 and five seeds. symattn uses the inputs of "
                "verify; the number is that of the first input that shows the fault.",
            )
        ),
    )
    return Document(
        "listing",
        "faults-found",
        ("Which rule finds which fault",),
        blocks,
        command=f"symattn faults run {of}",
        record={
            "faults": [{"name": r.fault.name, **r.rules, "symattn": r.after} for r in results],
            "found": counts,
        },
    )


def _write_fields_of_fault(fault: CorpusFault) -> str:
    fields = (f"{name}={value}" for name, value in fault.fields.items())
    return ", ".join(fields) or "plain"


def short(report: PublicReport) -> str:
    repository, number, _ = report
    return f"{repository}#{number}"
