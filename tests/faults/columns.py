"""The programs of plain attention in the collection in both forms: as ``Attention``, and as a ``Definition``.

    python -m tests.faults.columns [--every 7] [--only definition] [NAME …]

One engine verifies both. The definition of an attention has probes, searches and mistakes of its own; the one beside it
is stated as those of log-sums, gradients and caches are, with what all of these share. What the second one misses is
missed for all of these. Each line of the golden file ``columns.tsv`` has a program, the form, the verdict, the first
step that is blamed, whether the cause is named as the collection names it, and seconds of processor time, which are
shown and not compared.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from pathlib import Path
from time import process_time
from typing import Any

from symattn import Attention, Report, SymattnError, verify
from symattn.bounds import reference
from symattn.programs.verifying import Options
from symattn.verification import engine
from symattn.verification.definitions import attending, lse
from symattn.verification.definitions.inner_attention import WrongAttention
from tests.faults.collection.entries import Entry, Wrong
from tests.faults.collection.every import chosen
from tests.letters import needed_by

FILE = Path(__file__).parents[1] / "golden" / "columns.tsv"
ENGINES = ("attention", "definition")
EVERY = 4  # one of so many programs is frozen: all take an hour of processor time
_SCORES = ("positioned", "scores", "scaled", "tempered", "capped", "biased", "masked")
_TAKEN = {"q", "k", "v", "mask", "keep", "bias", "sink"}


def programs() -> list[Entry]:
    """Return the programs whose arrays a definition knows: q, k, v in the layout nd, masks, biases and sinks."""
    return [entry for entry in chosen() if isinstance(entry.spec, Attention) and _is_taken(entry)]


def _is_taken(entry: Entry) -> bool:
    spec = entry.spec
    plain = not (spec.lse or spec.dropout or entry.torch) and spec.is_softmax and entry.layout == "nd"
    return plain and set(signature(entry.program).parameters) <= _TAKEN


def output_alone(spec: Attention, layout: str = "nd") -> Any:
    """Return the definition of the output of an attention, made of the ways of its log-sums."""
    attending.check(spec, "the output", layout)
    laid = partial(attending.in_order, layout, ("q", "k", "v"))
    names = frozenset(("q", "k", "v", *needed_by(spec)))
    first, *others = lse.ways(replace(spec, lse=True))
    assert first is not None

    def of_variant(variant: reference.Variant) -> Any:
        return laid(lambda **keywords: reference.variant_values(spec, keywords, variant)["output"])

    wrong = WrongAttention(spec, names, of_variant)
    return attending.of_attention(
        spec,
        layout,
        wrong,
        title=repr(spec),
        step="weights",
        outputs=("output",),
        ways=(laid(spec), *(laid(partial(_first_output, way)) for way in others)),
        mistakes=tuple(attending.known_mistakes(wrong)),
        others=(),
        numbered=tuple(attending.by_number(spec, of_variant, {*_SCORES, "weights"})),
        output_run=attending.run_of(spec, layout),
    )


def _first_output(way: Any, **keywords: Any) -> Any:
    return way(**keywords)[0]


@contextmanager
def _as_definition() -> Iterator[None]:
    """Let the definition of log-sums be that of the output alone."""
    usual = lse.subjects
    lse.subjects = lambda spec, layout="nd": iter([output_alone(replace(spec, lse=False), layout)])
    try:
        yield
    finally:
        lse.subjects = usual


def verified_as_definition(entry: Entry) -> Report:
    """Verify the program of plain attention by the definition that is made as that of log-sums is."""
    options, spec = Options(dtype=entry.arithmetic, domain=entry.domain), replace(entry.spec, lse=True)
    with _as_definition(), options.opened(entry.program, spec) as runner:
        of = options.session(runner, spec)
        return engine.verify(runner, of.subject, of.precision, of.domain)


def verified_as_attention(entry: Entry) -> Report:
    """Verify the program as the attention that it is."""
    return verify(entry.program, entry.spec, precision=entry.arithmetic, domain=entry.domain)


_BY_ENGINE = {"attention": verified_as_attention, "definition": verified_as_definition}


@dataclass(frozen=True)
class Row:
    """What one engine says of one program; ``named`` is whether it says the cause, "-" for right programs."""

    program: str
    engine: str
    verdict: str
    step: str
    named: str
    seconds: float

    @property
    def compared(self) -> tuple[str, ...]:
        """All but the seconds."""
        return self.program, self.engine, self.verdict, self.step, self.named

    def __str__(self) -> str:
        return "\t".join((*self.compared, f"{self.seconds:.1f}"))


def row(entry: Entry, engine_name: str) -> Row:
    """Return what an engine says of a program; an error that symattn raises stands in place of the verdict."""
    began = process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = _BY_ENGINE[engine_name](entry)
    except SymattnError as error:
        return Row(entry.name, engine_name, type(error).__name__, "", "-", process_time() - began)
    step = report.faults[0].step if report.faults else ""
    said = " ".join(f"{fault.cause or ''} {fault.message}" for fault in report.faults)
    named = ("yes" if entry.named_in(said) else "no") if isinstance(entry, Wrong) else "-"
    return Row(entry.name, engine_name, report.verdict.value, step, named, process_time() - began)


def frozen() -> list[Row]:
    """Return the rows of the golden file."""
    lines = (line.split("\t") for line in FILE.read_text(encoding="utf-8").splitlines()) if FILE.exists() else ()
    return [Row(*words[:5], float(words[5])) for words in lines]


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each engine: what it found and named, whom it accused, and its processor time."""
    wrong = {entry.name for entry in chosen() if isinstance(entry, Wrong)}
    for name in ENGINES:
        of = [r for r in rows if r.engine == name]
        faulty = [r for r in of if r.program in wrong]
        found, named = (sum(r.verdict == "fault" for r in faulty), sum(r.named == "yes" for r in faulty))
        accused = sum(r.verdict == "fault" for r in of if r.program not in wrong)
        undecided = sum(r.verdict not in ("fault", "no fault") for r in of)
        yield (
            f"{name}: {len(faulty)} wrong, {found} found, {named} named; {len(of) - len(faulty)} right, {accused} "
            f"accused; {undecided} without a verdict; {sum(r.seconds for r in of):.0f} s of processor time"
        )


def main() -> None:
    """Write the golden file anew, or print the rows of the programs named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="programs; without any, the golden file is written anew")
    parser.add_argument("--only", choices=ENGINES, help="one engine; the rows of the other stay as they were")
    parser.add_argument("--every", type=int, default=EVERY, help="one of so many programs")
    asked = parser.parse_args()
    entries = [e for e in programs() if e.name in asked.names] if asked.names else programs()[:: asked.every]
    rows = []
    for entry in entries:
        for name in (asked.only,) if asked.only else ENGINES:
            rows.append(row(entry, name))
            print(rows[-1], flush=True)
    print(*summary(rows), sep="\n")
    if not asked.names and asked.every == EVERY:
        kept = [] if asked.only is None else [r for r in frozen() if r.engine != asked.only]
        by_key = {(r.program, r.engine): r for r in (*kept, *rows)}
        in_order = [by_key[entry.name, engine] for entry in entries for engine in ENGINES]
        FILE.write_text("".join(f"{r}\n" for r in in_order), encoding="utf-8")


if __name__ == "__main__":
    main()
