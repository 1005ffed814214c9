"""The verification of a definition: cases are called, judged, explained, and the smallest one is sought."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

import numpy as np

from symattn.arrays.precision import Precision
from symattn.errors import Undecided
from symattn.evidence import Grade, Verdict
from symattn.verification.definitions.drawing import at_random, cases
from symattn.verification.definitions.faults import faults
from symattn.verification.definitions.judging import Judged, judge
from symattn.verification.definitions.subject import Subject
from symattn.verification.domain import Domain
from symattn.verification.effort import Effort, spent
from symattn.verification.engine import BUDGET, EXAMPLES, SEED, Progress, Unusable
from symattn.verification.judge import Case
from symattn.verification.report import Check, Fault, Report
from symattn.verification.target import Runner

_WHOLE = 10  # cases for which all ways are run, whatever the function gives
_ENOUGH = 12  # wrong cases, after which no more are sought
_EFFORT = 5000  # of ``effort``, for finding: several times what most functions need
_HANGS = 2  # calls that do not return, after which no more are made


@dataclass
class Session:
    """One verification on its way."""

    runner: Runner
    subject: Subject
    precision: Precision
    domain: Domain
    seed: int
    examples: int
    budget: float
    records: list[Judged] = field(default_factory=list)
    stdout: list[str] = field(default_factory=list)
    refused: list[Judged] = field(default_factory=list)
    untold: int = 0
    finding: Effort = field(init=False)
    explaining: Effort | None = None

    def __post_init__(self) -> None:
        self.finding = Effort(_EFFORT, self.budget)

    @property
    def effort(self) -> Effort:
        """What is left to spend: for finding, and once that is done, for explaining."""
        return self.explaining or self.finding

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs that the function takes."""
        taken = self.runner.convention.inputs
        return tuple(i.name for i in self.subject.inputs if i.name in taken)

    @property
    def over(self) -> bool:
        """Whether the effort is spent, or the function hangs."""
        hangs = sum(r.outcome.error is not None and r.outcome.error.reason == "time limit" for r in self.records)
        return hangs >= _HANGS or self.effort.over

    @property
    def enough(self) -> bool:
        """Whether so much is wrong that more of it would tell nothing."""
        return sum(r.finding is not None for r in self.records) >= _ENOUGH

    def try_(self, case: Case) -> Judged | None:
        """Call and judge; None where nothing is known of what is legal."""
        self.effort.spend(case.size)
        outcome = self.runner.run(case.inputs, case.memory)
        if outcome.stdout:
            self.stdout.append(outcome.stdout)
        try:
            return judge(self.subject, self.precision, case, outcome, len(self.records) < _WHOLE)
        except Undecided:
            return None

    def take(self, case: Case) -> None:
        """Call, judge and remember, while effort is left. What the function itself refuses is told, and no fault."""
        if self.over:
            return
        judged = self.try_(case)
        if judged is None:
            self.untold += 1
        elif judged.outcome.error is not None and judged.outcome.error.refused:
            self.refused.append(judged)
        else:
            self.records.append(judged)


def verify(
    runner: Runner,
    subject: Subject,
    precision: Precision,
    domain: Domain | None = None,
    *,
    seed: int = SEED,
    examples: int = EXAMPLES,
    budget: float = BUDGET,
    progress: Progress = lambda words: None,
) -> Report:
    """Try the runner's function against the definition. Raises ``Unusable`` where it never gives anything to judge.

    No tolerance is picked: an output is a fault if no implementation of the ways, in the ``precision``, could give it.
    """
    session = Session(runner, subject, precision, domain or Domain(), seed, examples, budget)
    _collect(session, progress)
    _check_usable(session)
    progress("causes")
    session.explaining = Effort(inf, budget)
    return _report(session, faults(session))


def _collect(session: Session, progress: Callable[[str], None]) -> None:
    rng = np.random.default_rng(session.seed)
    given = (session.subject, session.names, session.precision, session.domain)
    for case in cases(*given, rng):
        progress(case.group)
        if not session.subject.admitted(case.inputs):
            continue
        if case.group == "again" or not session.enough:
            session.take(case)
    for _ in range(session.examples):
        if session.over or session.enough:
            break
        case = at_random(*given, rng)
        if session.subject.admitted(case.inputs):
            session.take(case)


def _check_usable(session: Session) -> None:
    failed = [r.outcome.error for r in session.records if r.outcome.error is not None]
    if session.records and len(failed) < len(session.records):
        return
    if not session.records and session.refused:
        error = session.refused[0].outcome.error
        raise Unusable(f"{session.runner.describe()} gave nothing to judge on any input: {error}")
    if not session.records:
        raise Unusable(f"{session.runner.describe()}: nothing is known of what is legal for any input tried")
    never = all(e.reason == "time limit" for e in failed)
    words = f"did not return: {failed[0]}" if never else f"gave nothing to judge on any input: {failed[0]}"
    raise Unusable(f"{session.runner.describe()} {words}")


def _report(session: Session, found: tuple[Fault, ...]) -> Report:
    domain = f"{session.subject.title}, {_tried(session)}"
    return Report(
        _verdict(session, found), session.runner.describe(), session.precision.words, domain,
        session.seed, found, tuple(_checks(session)), tuple(dict.fromkeys(_notes(session))), "".join(session.stdout),
    )  # fmt: skip


def _tried(session: Session) -> str:
    """The largest sizes that were tried."""
    most: dict[str, int] = {}
    for judged in session.records:
        for letter, size in session.subject.sizes_of(judged.case.inputs).items():
            most[letter] = max(size, most.get(letter, 0))
    return ", ".join(f"{letter} ≤ {size}" for letter, size in most.items() if letter not in session.subject.kept)


def _verdict(session: Session, found: tuple[Fault, ...]) -> Verdict:
    if found:
        return Verdict.FAULT
    told = [r for r in session.records if r.ratios and r.whole]
    decisive = all(any(r.expected[k].decisive for r in told) for k in range(len(session.subject.outputs)))
    return Verdict.NO_FAULT if decisive and len(told) > 1 else Verdict.UNDECIDED


def _checks(session: Session) -> Iterator[Check]:
    for name in dict.fromkeys(r.case.group for r in session.records):
        records = [r for r in session.records if r.case.group == name]
        wrong = sum(r.finding is not None for r in records)
        told = any(e.decisive for r in records if r.ratios for e in r.expected)
        grade = Grade.REFUTED if wrong else Grade.SAMPLED if told else Grade.UNDECIDED
        yield Check(name, grade, len(records), wrong, max(r.worst for r in records))


def _notes(session: Session) -> Iterator[str]:
    yield from session.runner.notes
    yield from session.runner.convention.notes
    wanted = len(session.subject.outputs)
    if session.refused:
        smallest = min(session.refused, key=lambda r: r.case.size)
        yield (
            f"It refuses some inputs itself ({len(session.refused)} calls): {smallest.outcome.error}; only what it"
            " takes was judged."
        )
    if session.untold:
        yield f"For {session.untold} inputs a comparison depends on rounding: there nothing was judged."
    for dtype in sorted({r.outcome.dtype for r in session.records if r.outcome.dtype and r.finding != "dtype"}):
        if dtype != session.precision.input.name:
            yield f"For {session.precision.input.name} inputs it returns {dtype}."
    if any(r.outcome.returned > wanted for r in session.records):
        yield f"It returns more than {wanted} array{'s' * (wanted > 1)}; the first were taken."
    warned = {w for r in session.records for w in r.outcome.warnings}
    if warned:
        yield f"It warns: {sorted(warned)[0]}" + (f" (and {len(warned) - 1} more)" if len(warned) > 1 else "")
    if session.stdout:
        yield f"It prints ({sum(t.count(chr(10)) for t in session.stdout)} lines); --show-output shows what."
    yield from spent(session.finding, session.explaining, session.budget)
