"""Decide many theorems: from the cache if nothing has changed, in several processes if requested.

Each decision is stored at once, so an interrupt loses only those in progress.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

from symattn.arrays.index import expressions
from symattn.arrays.index.writing import Writing, in_blocks, length, size
from symattn.document import model as md
from symattn.document.errors import Refused, SymattnError
from symattn.document.evidence import Evidence, Grade
from symattn.document.measure import width
from symattn.document.model import Block, Inline, Text
from symattn.document.notation import Node, Sum, Words, call, equals, name, relation
from symattn.proof import certificate, typeset_words
from symattn.proof.certificate import by_definition
from symattn.proof.code import raised_in_symattn
from symattn.proof.prover import ElementEquation
from symattn.proof.theorem import Theorem, TheoremOutcome, decide
from symattn.theorems import findings
from symattn.theorems.as_printed import read
from symattn.theorems.documents import Decided
from symattn.theorems.kept import Cache

Source = Callable[[], Mapping[str, Theorem]]
Progress = Callable[[int, int, str], None]
_Parts = tuple[findings.TheoremFinding, tuple[Block, ...], tuple[Mapping[str, Any], ...]]


def run(
    theorems: Sequence[Theorem],
    source: Source,
    *,
    jobs: int = 1,
    explain: bool = False,
    cached: bool = True,
    progress: Progress = lambda done, of, name: None,
) -> list[Decided]:
    """Return every theorem with its finding, in the given order.

    ``source`` returns all theorems by name in the other processes, to which functions cannot be sent. ``progress`` is
    called with how many are done, of how many, and which is next or was last.
    """
    cache = Cache(cached)
    result: dict[str, Decided] = {}
    for theorem in theorems:
        # Findings are stored without the argument, so explaining decides anew.
        stored = None if explain else cache.get(theorem)
        if stored:
            result[theorem.name] = Decided(theorem, stored)
    undecided = [t for t in theorems if t.name not in result]
    # A process for a single theorem would cost more than it saves.
    many = jobs > 1 and len(undecided) > 1
    decided = (
        _decide_in_processes(undecided, source, min(jobs, len(undecided)), explain)
        if many
        else _in_turn(undecided, explain, progress)
    )
    for outcome in decided:
        # A defect may be mended without a change of the statement.
        if not outcome.finding.evidence.where.startswith((findings.DEFECT, findings.BAD_STATEMENT)):
            cache.put(outcome.theorem, outcome.finding)
        result[outcome.theorem.name] = outcome
        progress(len(result), len(theorems), outcome.theorem.name)
    # Results come in any order; the caller expects its own.
    return [result[t.name] for t in theorems]


class Broken(Exception):
    """Raised if a function of a statement fails: ``name`` is the theorem's, ``error`` the message in one line."""

    def __init__(self, name: str, error: str) -> None:
        super().__init__(name, error)
        self.name, self.error = name, error


def decide_one(theorem: Theorem, explain: bool = False) -> Decided:
    """Decide a theorem, with its argument and certificates if ``explain``.

    If symattn itself fails, the theorem is undecided, and says so. Raises ``Broken``.
    """
    try:
        outcome, reading = decide(theorem), read(theorem)
    # Errors of symattn about the statement are findings elsewhere, no crash.
    except SymattnError:
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        # A failure in symattn is a defect of symattn; any other is the statement's.
        if raised_in_symattn(error):
            return Decided(theorem, findings.crashed(message))
        raise Broken(theorem.name, message) from error
    result = findings.finding(outcome, reading)
    printed = reading is not None and any(r.evidence for r in reading.claims)
    if theorem.letters is None or not printed or result.of_code is not None:
        result = replace(result, stated=stated(outcome))
    return (
        Decided(theorem, result, explained(outcome), certificates(outcome))
        if explain
        else Decided(theorem, result)
    )


def _in_turn(theorems: Sequence[Theorem], explain: bool, progress: Progress) -> Iterator[Decided]:
    for n, theorem in enumerate(theorems):
        progress(n, len(theorems), theorem.name)
        yield _decided_or_unstated(theorem, explain)


def _decided_or_unstated(theorem: Theorem, explain: bool) -> Decided:
    """Decide a theorem; one whose functions fail is reported, and stops no other."""
    try:
        return decide_one(theorem, explain)
    except Broken as broken:
        return Decided(
            theorem, findings.unstated(f"a function of {broken.name!r} raises {broken.error}")
        )


def _decide_in_processes(
    theorems: Sequence[Theorem], source: Source, jobs: int, explain: bool
) -> Iterator[Decided]:
    """Decide theorems in several processes, yielding each as soon as it is done."""
    by_name = {t.name: t for t in theorems}
    with _open_worker_pool(jobs) as pool:
        with _interrupts_blocked():
            waiting = [
                pool.submit(_decide_theorem_in_worker, source, name, explain) for name in by_name
            ]
        for done in as_completed(waiting):
            name, parts = done.result()
            yield Decided(by_name[name], *parts)


@contextmanager
def _open_worker_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    # Spawned: a forked copy could share locks and open files.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_ignore_interrupts_in_worker)
    try:
        yield pool
    # Running theorems are not awaited after an interrupt.
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Let processes started inside ignore interrupts from their first instruction, before
    ``_ignore_interrupts_in_worker`` can run.

    An interrupt that arrives meanwhile is blocked, and reaches this process at the end.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ignore_interrupts_in_worker() -> None:
    """Leave interrupts to the main process, which ends the others, and keep standard output for it."""
    sys.stdout = sys.stderr
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _decide_theorem_in_worker(source: Source, name: str, explain: bool) -> tuple[str, _Parts]:
    decided = _decided_or_unstated(source()[name], explain)
    return name, (decided.finding, decided.explained, decided.certificates)


# -- the argument of a theorem that the prover decided: its equations, and how each was reduced ------------------------
_LONGEST = 90  # the most parts of an expression that is printed
_LINE = 34.0  # em of an equation on one line
_WIDEST = 60.0  # em of a term, which is shrunk to a line
_SHORT = 8.0  # em of formulas in a reason
_FEW = 3  # the most equations in a statement
_MOST = 12  # the most equations that are printed, those with the longest proofs first


def explained(outcome: TheoremOutcome) -> tuple[Block, ...]:
    """Return the argument as blocks; () if the prover proved no equation."""
    proofs = [p for p in outcome.decision.proofs if p.proved]
    cases = [(p, c) for p in proofs for c in p.cases]
    if not cases:
        return ()
    # Equal normal forms say the least, so they are left out first.
    result = sorted(cases, key=lambda pc: pc[1].how == "normal form")[:_MOST]
    left_out = len(cases) - len(result)
    out: list[Block] = []
    for n, (_, case) in enumerate(result, 1):
        out += _describe_equation_case(
            case, f"Equation {n} of {len(cases)}" if len(cases) > 1 else "The equation"
        )
    if left_out:
        out.append(md.Paragraph((f"{left_out} more equations are decided in the same way.",)))
    if any(in_blocks(side) for _, c in result for side in (c.left, c.right)):
        words = "an axis made of several blocks has, before its indices, the numbers of the blocks"
        out.append(md.Note((f"A letter with {words}.",)))
    if any(_contains_masked_expression(side) for _, c in result for side in (c.left, c.right)):
        words = "is x where a is 1, and −∞ where a is 0"
        out.append(md.Note((call(Words("masked"), "x", "a"), f" {words}.")))
    return (*out, *_describe_checker_verdicts(outcome))


def stated(outcome: TheoremOutcome) -> tuple[Node, ...]:
    """Return the proved equations between elements, as the code gives them, before any simplification; () if they are
    many or long."""
    cases = [c for p in outcome.decision.proofs if p.proved for c in p.cases]
    result: list[Node] = []
    # Many or long equations are no statement to read.
    for case in cases if len(cases) <= _FEW else ():
        sides = case.written
        writing = Writing(sides, case.indices)
        left, right = (_format_short_expression(writing, side) for side in sides)
        if left is None or right is None or width(left) + width(right) > _LINE:
            return ()
        result.append(equals(left, right))
    return tuple(result)


def _contains_masked_expression(x: expressions.Expression) -> bool:
    return isinstance(x, expressions.Masked) or any(map(_contains_masked_expression, x.children))


def _describe_equation_case(case: ElementEquation, label: str) -> Iterator[Block]:
    writing = Writing(
        [x for x in (case.left, case.right, case.numerator) if x is not None], case.indices
    )
    free: list[Inline] = []
    for i in case.indices:
        free += [", " if free else ", for all ", relation(writing.index(i), "≤", size(i.sort))]
    colon = ":" if free else ""
    yield md.Paragraph((f"{label}{':' if not free else ''}", *free, colon))
    left, right = (
        _format_short_expression(writing, case.left),
        _format_short_expression(writing, case.right),
    )
    if left is None or right is None:
        parts = length(case.left) + length(case.right)
        yield md.Paragraph(
            (f"(It has {parts} parts, too many to print; the certificate has them all.)",)
        )
    else:
        reason: Text = ()
        if case.how == "normal form":
            reason = (
                "by definition: both sides are written alike"
                if by_definition(case)
                else "equal normal forms",
            )
        yield md.Steps(_make_equation_steps(left, right, reason))
    yield from _describe_cleared_difference(case, writing)


def _make_equation_steps(left: Node, right: Node, reason: Text) -> tuple[md.Step, ...]:
    """Return left = right; if that is long, with a letter for each side, since first sides are not broken."""
    proved = Evidence(Grade.PROVED)
    if width(left) + width(right) <= _LINE:
        return (md.Step(equals(left, right), reason, proved),)
    first = md.Step(equals(name("L"), left), ("the left side",))
    second = md.Step(equals(name("R"), right), ("the right side",))
    return (first, second, md.Step(equals(name("L"), name("R")), reason, proved))


def _describe_cleared_difference(case: ElementEquation, writing: Writing) -> Iterator[Block]:
    if case.numerator is None or case.limits is None:
        return
    numerator = _format_short_expression(writing, case.numerator)
    if numerator is not None:
        divisors = [_format_short_expression(writing, d.base) for d in case.divisors]
        shown = [
            d**p.times if p.times > 1 else d
            for d, p in zip(divisors, case.divisors, strict=True)
            # Divisors without notation are left out of the formula.
            if d
        ]
        by: Text = ("the difference, cleared of denominators",) if divisors else ("the difference",)
        if shown and len(shown) == len(divisors) and sum(map(width, shown)) < _SHORT:
            by = ("the difference, times ", *typeset_words.listed(shown))
        yield md.Steps((md.Step(equals(0, numerator), by, Evidence(Grade.PROVED)),))
    yield md.Paragraph(_describe_deciding_sizes(case))


def _describe_deciding_sizes(case: ElementEquation) -> Text:
    """Say D_s, and the sizes that suffice by the cut-off theorem."""
    assert case.limits is not None
    counted = case.limits.counted
    if not counted:
        return ("No size and no sum occurs: one polynomial identity decides it.",)
    out: list[Inline] = ["Free and bound indices in any term, at most: "]
    for n, (sort, d) in enumerate(counted.items()):
        out += [", " if n else "", equals(name("D", size(sort)), d)]
    if case.how == "one size":
        return (
            *out,
            ". Every bound index shows in a letter, so the one size ",
            *findings.sizes_written(case.sizes[0]),
            " decides all sizes: there the polynomial is zero.",
        )
    extra = " of each number of rows, with 1/Z · Z = 1," if case.how == "rows" else ""
    return (
        *out,
        f". So the {len(case.sizes)} sizes",
        extra,
        " up to ",
        *findings.sizes_written(case.limits.top),
        " decide all sizes: at each of them the polynomial is zero.",
    )


def _format_short_expression(writing: Writing, x: Any) -> Node | None:
    """Return an expression as a formula; None if it is too long to print, or has parts without notation."""
    if length(x) > _LONGEST:
        return None
    try:
        shown = writing(x)
    except Refused:
        return None
    # Only terms are limited: a sum breaks between them.
    terms = shown.terms if isinstance(shown, Sum) else (shown,)
    return shown if all(width(t) <= _WIDEST for t in terms) else None


def certificates(outcome: TheoremOutcome) -> tuple[Mapping[str, Any], ...]:
    """Return the certificates of an outcome."""
    return certificate.certificates(outcome.decision.proofs, outcome.decision.premises)


def _describe_checker_verdicts(outcome: TheoremOutcome) -> tuple[Block, ...]:
    """Describe the independent checker's verdicts on the certificates."""
    verdicts = certificate.verdicts(certificates(outcome))
    refused = [v.why for v in verdicts if not v.accepted]
    if refused:
        return (
            md.Note(
                (
                    f"The checker refuses {len(refused)} of {len(verdicts)} certificates: {refused[0]}.",
                )
            ),
        )
    many = "The certificate is" if len(verdicts) == 1 else f"All {len(verdicts)} certificates are"
    # Any of them may be the one that is accepted by chance.
    epsilon = sum(v.epsilon for v in verdicts)
    error = f", with an error of at most {epsilon:.0e}" if epsilon else ""
    return (
        md.Paragraph(
            (f"{many} accepted by the checker, which shares no code with the prover{error}.",)
        ),
    )
