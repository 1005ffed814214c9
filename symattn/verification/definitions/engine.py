"""The verification of a definition: cases are called, judged, explained, and the smallest one is sought."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import inf

import numpy as np

from symattn.arrays.precision import Precision
from symattn.errors import Undecided
from symattn.evidence import Grade
from symattn.verification import power
from symattn.verification.definitions.drawing import at_random, cases
from symattn.verification.definitions.faults import faults
from symattn.verification.definitions.judging import Judged, judge
from symattn.verification.definitions.subject import Compute, Form, Inputs, Subject
from symattn.verification.domain import Domain
from symattn.verification.effort import Effort, for_finding, spent
from symattn.verification.engine import BUDGET, EXAMPLES, SEED, Progress, Unusable
from symattn.verification.judge import Case
from symattn.verification.power import Mutation
from symattn.verification.probing import refusals
from symattn.verification.report import Check, Fault, Power, Report
from symattn.verification.target import Runner

_WHOLE = 10  # cases for which all ways are run, whatever the function gives
_ENOUGH = 12  # wrong cases, after which no more are sought
_DRAWN = 6  # cases on which a mistake must have an effect to be one
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
    wanted: Counter[str] = field(default_factory=Counter)  # cases of each group that there are
    tried: Counter[str] = field(default_factory=Counter)  # and those that were called
    finding: Effort = field(init=False)
    explaining: Effort | None = None

    def __post_init__(self) -> None:
        self.finding = for_finding(self.examples, self.budget)

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
        self.tried[case.group] += 1
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
        if not session.subject.admitted(case.inputs, session.domain):
            continue
        session.wanted[case.group] += 1
        if case.group == "again" or not session.enough:
            session.take(case)
    for _ in range(session.examples):
        if session.over or session.enough:
            break
        case = at_random(*given, rng)
        if session.subject.admitted(case.inputs, session.domain):
            session.take(case)


def _check_usable(session: Session) -> None:
    failed = [r.outcome.error for r in session.records if r.outcome.error is not None]
    if session.records and len(failed) < len(session.records):
        return
    if not session.records and session.refused:
        error = session.refused[0].outcome.error
        if refusals.by_library([r.outcome.error for r in session.refused]):
            return
        raise Unusable(f"{session.runner.describe()} gave nothing to judge on any input: {error}")
    if not session.records and not session.untold:
        raise Unusable(f"{session.runner.describe()}: no input fits the definition within {session.domain.words}")
    if not session.records:
        raise Unusable(f"{session.runner.describe()}: nothing is known of what is legal for any input tried")
    never = all(e.reason == "time limit" for e in failed)
    words = f"did not return: {failed[0]}" if never else f"gave nothing to judge on any input: {failed[0]}"
    raise Unusable(f"{session.runner.describe()} {words}")


def _report(session: Session, found: tuple[Fault, ...]) -> Report:
    domain = f"{session.subject.title}, {_tried(session)}"
    seen = () if found else _power(session)
    missing = () if found else (*power.lacking(_counts(session), seen, session.finding.struck), *_open(session))
    return Report(
        power.verdict(found, missing), session.runner.describe(), session.precision.words, domain,
        session.seed, found, tuple(_checks(session)), tuple(dict.fromkeys(_notes(session))), "".join(session.stdout),
        power=seen, missing=missing,
    )  # fmt: skip


def _tried(session: Session) -> str:
    """The largest sizes that were tried."""
    most: dict[str, int] = {}
    for judged in session.records:
        for letter, size in session.subject.sizes_of(judged.case.inputs).items():
            most[letter] = max(size, most.get(letter, 0))
    return ", ".join(f"{letter} ≤ {size}" for letter, size in most.items() if letter not in session.subject.kept)


def _whole(session: Session) -> list[Judged]:
    """The cases in which what is allowed is what any of the ways may err."""
    return [r for r in session.records if r.ratios and r.whole]


def _power(session: Session) -> tuple[Power, ...]:
    """What the judged cases would have shown of each step."""
    subject, rng = session.subject, np.random.default_rng((session.seed, 4))
    given = (subject, session.names, session.precision, session.domain)
    drawn = [case.inputs for case in islice(cases(*given, rng), _DRAWN) if subject.admitted(case.inputs)]
    mutations: dict[str, list[Mutation]] = {}
    for m in subject.mistakes:
        if m.exact:
            mutations.setdefault(m.step, []).append(Mutation(m.step, m.cause, partial(_run, subject, m.run)))
    tried = [(r.case.inputs, r.expected) for r in _whole(session)]
    kinds = {step: [alike] for step, alike in mutations.items()}
    return power.powers(partial(_run, subject, subject.ways[0]), kinds, drawn, tried)


def _run(subject: Subject, way: Compute, inputs: Inputs) -> tuple[np.ndarray, ...]:
    return subject.run(way, inputs)


def _counts(session: Session) -> dict[str, tuple[int, int]]:
    """For each group, how many cases were tried, and how many it takes."""
    wanted = {name: min(power.LEAST, n) for name, n in session.wanted.items()}
    wanted["random"] = min(power.LEAST, session.examples)
    return {name: (session.tried[name], least) for name, least in wanted.items()}


def _open(session: Session) -> Iterator[str]:
    """The outputs of which nothing that was tried could have shown a fault."""
    told = _whole(session)
    names = [n for k, n in enumerate(session.subject.outputs) if not any(r.expected[k].decisive for r in told)]
    if names:
        mend = "mend: a larger --budget, or a finer --dtype"
        yield f"No case bounds {', '.join(names)} well enough to show a fault; {mend}"


def _checks(session: Session) -> Iterator[Check]:
    for name in dict.fromkeys(r.case.group for r in session.records):
        records = [r for r in session.records if r.case.group == name]
        wrong = sum(r.finding is not None for r in records)
        told = any(e.decisive for r in records if r.ratios for e in r.expected)
        grade = Grade.REFUTED if wrong else Grade.SAMPLED if told else Grade.UNDECIDED
        yield Check(name, grade, len(records), wrong, max(r.worst for r in records))


def _sized(session: Session) -> Callable[[Judged], refusals.Sized]:
    """The sizes of a case as a domain names them, and how its arrays lie."""
    subject = session.subject
    return lambda r: (subject.named(subject.sizes_of(r.case.inputs)), r.case.memory)


def _forms(session: Session) -> Iterator[str]:
    """What any implementation means, where the ways have words."""
    words = [way.words for way in session.subject.ways if isinstance(way, Form)]
    if words:
        yield f"Any implementation is one in one of these forms, each with its own bound: {'; '.join(words)}."


def _notes(session: Session) -> Iterator[str]:
    yield from session.runner.notes
    yield from session.runner.convention.notes
    yield from _forms(session)
    wanted = len(session.subject.outputs)
    if session.refused:
        smallest = min(session.refused, key=lambda r: r.case.size)
        found = refusals.explaining(
            session.domain, *(map(_sized(session), r) for r in (session.refused, session.records))
        )
        yield (
            f"It refuses some inputs ({len(session.refused)} calls): {smallest.outcome.error}; {refusals.told(found)}; "
            "only what it takes was judged."
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
