"""The verification itself: cases are tried group by group, judged, explained, and the smallest one is sought."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import inf

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.attention.spelling import differing, spelled
from symattn.errors import SymattnError
from symattn.evidence import Grade
from symattn.verification import power
from symattn.verification.domain import Domain
from symattn.verification.effort import Effort, for_finding, spent
from symattn.verification.judge import Case, Judged, judge
from symattn.verification.probing import behaviour, groups, hints, refusals
from symattn.verification.probing.inputs import Array, Maker, Sizes
from symattn.verification.probing.probes import Group, batches
from symattn.verification.probing.search import FAMILIES, climb, search
from symattn.verification.report import Check, Fault, Power, Report
from symattn.verification.semantics import Identity
from symattn.verification.target import APART, Runner

SEED = 20261120
BUDGET = 120.0  # seconds at most for finding, and as many for explaining; on the way there, calls are counted
EXAMPLES = 100
_HANGS = 2  # calls that do not return, after which no more are made
_AHEAD = 16  # cases that are sent at once
_ENOUGH = 6  # wrong cases of a group, after which it has shown what it can
_CLIMBS, _STEPS = 3, 15  # cases from which larger errors are sought, and how often each is changed
_DUMB = 30  # calls that gave nothing, where none gave anything, after which no more are made
_ENDS = 6  # the same where each ended the process
Progress = Callable[[str], None]


class Unusable(SymattnError):
    """The function gave nothing to judge: it raised on every input, or never returned."""


@dataclass
class Session:
    """One verification on its way."""

    runner: Runner
    spec: Attention
    precision: Precision
    domain: Domain
    seed: int
    examples: int
    budget: float
    progress: Progress
    records: list[Judged] = field(default_factory=list)
    stdout: list[str] = field(default_factory=list)
    finding: Effort = field(init=False)
    explaining: Effort | None = None
    identity: Identity | None = None
    untried: list[str] = field(default_factory=list)
    in_front: Judged | None = None
    refused: list[Judged] = field(default_factory=list)
    promised: Domain = field(init=False)  # before anything was refused
    backwards: str = ""
    leaks: dict[str, dict[str, Array] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.promised = self.domain
        self.finding = for_finding(self.examples, self.budget)

    @property
    def effort(self) -> Effort:
        """What is left to spend: for finding, and once that is done, for explaining."""
        return self.explaining or self.finding

    @property
    def known(self) -> int:
        """How many cases have shown a fault."""
        return sum(r.finding is not None for r in self.records)

    @property
    def maker(self) -> Maker:
        """What makes inputs for the function."""
        return Maker(self.spec, self.runner.convention, self.precision, self.domain)

    @property
    def over(self) -> bool:
        """Whether the effort is spent, or the function hangs."""
        errors = [r.outcome.error for r in (*self.records, *self.refused)]
        reasons = [e.reason for e in errors if e is not None]
        dumb = len(reasons) == len(errors) and (len(errors) >= _DUMB or reasons.count("ended") >= _ENDS)
        return dumb or reasons.count("time limit") >= _HANGS or self.effort.over

    def try_(self, case: Case) -> Judged:
        """Call and judge."""
        self.effort.spend(case.size)
        outcome = self.runner.run(case.inputs, case.memory)
        if outcome.stdout:
            self.stdout.append(outcome.stdout)
        return judge(self.spec, self.precision, case, outcome)

    def _promised(self, case: Case) -> bool:
        """Whether the domain has such a case. What is made fits, but for scores that no change of queries lowers."""
        if self.domain.contiguous and case.memory in APART:
            return False
        return self.domain.max_abs_score is None or self.maker.admits(case.inputs)

    def ahead(self, cases: Iterable[Case]) -> Iterator[Case]:
        """The cases, sent to the function's own process, where it has one, several at a time."""
        send = getattr(self.runner, "ahead", None)
        left = iter(cases)
        while some := list(islice(left, _AHEAD)):
            if send is not None and not self.over:
                send([(case.inputs, case.memory) for case in some])
            yield from some

    def take(self, case: Case) -> None:
        """Call, judge and remember, while effort is left. What the function itself refuses is told, and no fault."""
        if self.over or not self._promised(case):
            return
        judged = self.try_(case)
        error = judged.outcome.error
        refused = error is not None and error.refused != ""
        (self.refused if refused else self.records).append(judged)
        if refused:
            self.domain = refusals.narrowed(self)


def verify(
    runner: Runner,
    spec: Attention,
    precision: Precision,
    domain: Domain | None = None,
    *,
    seed: int = SEED,
    examples: int = EXAMPLES,
    budget: float = BUDGET,
    progress: Progress = lambda words: None,
) -> Report:
    """Try the runner's function against the specification. Raises ``Unusable`` where it never gives anything to judge.

    No tolerance is picked: an output is a fault if no implementation in the ``precision`` could give it (``bounds``).
    """
    session = Session(runner, spec, precision, domain or Domain(), seed, examples, budget, progress)
    _collect(session)
    _check_usable(session)
    session.explaining = Effort(inf, budget)
    found = _explained(session) if session.known or session.domain.nonfinite_forbidden else ()
    return _report(session, found)


def _explained(session: Session) -> tuple[Fault, ...]:
    from symattn.verification.diagnosis import faults  # a right function does not wait for the mistakes that are known

    return faults.faults(session)


def _collect(session: Session) -> None:
    """Try the groups: all of the first; the others, and what residues hint at, as long as no fault is known."""
    rng = np.random.default_rng(session.seed)
    for name, group in groups.FIRST.items():
        _try_group(session, name, group, rng)
    session.progress("behaviour")
    for case in session.ahead(behaviour.cases(session.maker, rng)):
        behaviour.take(session, case)
    behaviour.leaking(session, "all")
    if session.known == 0:
        session.progress("semantics")
        session.identity = hints.understood(session)
        _follow_hint(session, rng)
        _look_in_front(session, rng)
    _try_later(session, groups.LATER, rng)
    session.progress("accuracy")
    _search(session)
    _climb(session, rng)
    _try_later(session, groups.LAST, rng)


def _try_later(session: Session, later: dict[str, Group], rng: np.random.Generator) -> None:
    for name, group in later.items():
        if session.known == 0:
            _try_group(session, name, group, rng)


def _try_group(session: Session, name: str, group: Group, rng: np.random.Generator) -> None:
    """The cases of a group; of a later one no more than tell what is wrong. Again, if the domain became narrower."""
    session.progress(name)
    before, domain = session.known, session.domain
    found = group(session.maker, rng)
    for case in session.ahead(Case(name, title, inputs) for title, inputs in found if inputs is not None):
        if name not in groups.FIRST and session.known - before >= _ENOUGH:
            return
        if session.over:
            session.untried += [name] if name not in session.untried else []
            return
        session.take(case)
        if session.domain != domain:
            return _try_group(session, name, group, rng)


def _follow_hint(session: Session, rng: np.random.Generator) -> None:
    """Floats at the sizes at which residues differ."""
    found = session.identity
    if found is not None and found.difference is not None:
        for title, inputs in hints.inputs(found.difference, session.maker, rng):
            if inputs is not None:
                session.take(Case("shapes", title, inputs))


def _look_in_front(session: Session, rng: np.random.Generator) -> None:
    """Axes in front of those of the layout, where they go through: a fault if the domain has them, else a note."""
    if session.runner.convention.front == "none" and not session.domain.batch:
        return
    for title, inputs in batches(session.maker, rng, in_front=True):
        if inputs is None or session.over:
            continue
        case = Case("batches", title, inputs)
        if session.domain.batch:
            session.take(case)
        else:
            judged = session.try_(case)
            session.in_front = session.in_front or (judged if judged.finding else None)


def _search(session: Session) -> None:
    """Inputs at random; fewer once faults are known, since these then only help to name them."""
    examples = session.examples // 4 if session.known else session.examples
    drawn = search(session.maker, session.seed, examples)
    for case in session.ahead(Case("accuracy", title, inputs) for title, inputs in drawn):
        session.take(case)
        if session.over:
            break


def _climb(session: Session, rng: np.random.Generator) -> None:
    """From the inputs with the largest errors to such with larger ones."""
    if session.known or not session.examples:
        return

    def ratio(inputs: dict[str, Array]) -> float:
        if session.over or session.known or not session.maker.admits(inputs):
            return 0.0
        session.take(Case("accuracy", "larger errors sought", inputs))
        return session.records[-1].worst

    best = sorted((r for r in session.records if 0 < r.worst < 1 and r.case.size < 600), key=lambda r: -r.worst)
    for judged in best[:_CLIMBS]:
        climb(session.maker, dict(judged.case.inputs), judged.worst, rng, min(_STEPS, session.examples), ratio)


def _check_usable(session: Session) -> None:
    tried = [*session.records, *session.refused]
    failed = [r.outcome.error for r in tried if r.outcome.error is not None]
    if not tried:
        raise Unusable(f"{session.runner.describe()}: no input fits the specification within {session.domain.words}")
    if len(failed) < len(tried) or refusals.by_library(failed):
        return
    never = all(e.reason == "time limit" for e in failed)
    words = f"did not return: {failed[0]}" if never else f"gave nothing to judge on any input: {failed[0]}"
    raise Unusable(f"{session.runner.describe()} {words}")


def _report(session: Session, found: tuple[Fault, ...]) -> Report:
    told = (*_notes(session), *behaviour.notes(session), *hints.notes(session.identity, bool(found)))
    notes = tuple(dict.fromkeys(told))
    seen = () if found else _power(session)
    missing = () if found else power.lacking(dict(_counts(session)), seen, session.finding.struck)
    return Report(
        power.verdict(found, missing), session.runner.describe(), session.precision.words, session.domain.words,
        session.seed, found, tuple(_checks(session)), notes, "".join(session.stdout),
        fields={name: spelled(value) for name, value in differing(session.spec, Attention()).items()},
        power=seen, missing=missing,
    )  # fmt: skip


def _power(session: Session) -> tuple[Power, ...]:
    """What the judged cases would have shown of each step that matters within the domain."""
    judged = [r for r in session.records if r.ratios is not None]
    rng, most = np.random.default_rng((session.seed, 4)), session.domain.max_tokens
    entries = FAMILIES["normal"](rng)
    drawn = [session.maker.make(sizes, entries, rng) for sizes in (Sizes(5, 7, 4, 3), Sizes(most, most, 4, 3))]
    names = {name for r in judged[:1] for name in r.case.inputs}
    right, mutations = power.of_attention(session.spec, names or drawn[0])
    return power.powers(right, mutations, drawn, [(r.case.inputs, (r.expected,)) for r in judged])


def _counts(session: Session) -> Iterator[tuple[str, tuple[int, int]]]:
    """For each group that the specification calls for, how many cases were tried, and how many it takes."""
    tried = Counter(r.case.group for r in (*session.records, *session.refused))
    for name, group in (groups.FIRST | groups.LATER | groups.LAST).items():
        if tried[name] < power.LEAST:
            made = (inputs for _, inputs in group(session.maker, np.random.default_rng(session.seed)))
            yield name, (tried[name], len(list(islice(filter(None, made), power.LEAST))))
    yield behaviour.GROUP, (tried[behaviour.GROUP], power.LEAST)
    yield "accuracy", (tried["accuracy"], min(power.LEAST, session.examples))


def _checks(session: Session) -> Iterator[Check]:
    for name in dict.fromkeys(r.case.group for r in session.records):
        records = [r for r in session.records if r.case.group == name]
        wrong = sum(r.finding is not None for r in records)
        told = any(r.decisive for r in records if r.ratios is not None)
        grade = Grade.REFUTED if wrong else Grade.SAMPLED if told else Grade.UNDECIDED
        yield Check(name, grade, len(records), wrong, max(r.worst for r in records))
    yield from hints.check(session.identity)


def _notes(session: Session) -> Iterator[str]:
    reach = max((n for n in session.spec.sides if n is not None), default=0)
    if reach >= session.domain.max_tokens:
        yield f"No input is longer than the window of {reach + 1} keys; --window 4 tries a short one."
    yield from session.runner.notes
    yield from session.runner.convention.notes
    yield from refusals.notes(session)
    other = {r.outcome.dtype for r in session.records if r.outcome.dtype and r.finding != "dtype"}
    for dtype in sorted(other - {session.precision.input.name}):
        yield f"For {session.precision.input.name} inputs it returns {dtype}."
    if any(r.outcome.returned > 1 for r in session.records):
        yield "It returns a tuple; the first item was taken."
    warned = {w for r in session.records for w in r.outcome.warnings}
    if warned:
        yield f"It warns: {sorted(warned)[0]}" + (f" (and {len(warned) - 1} more)" if len(warned) > 1 else "")
    if undecided := sum(r.undecided for r in session.records):
        yield f"For {undecided} inputs a comparison depends on rounding: there no numbers were judged."
    if session.stdout:
        yield f"It prints ({sum(t.count(chr(10)) for t in session.stdout)} lines); --show-output shows what."
    if not any(_hung(r) for r in session.records):
        yield from spent(session.finding, session.explaining, session.budget, session.untried)
    if session.in_front is not None:
        yield (
            f"Axes in front of those of one item go through, and give other values: {session.in_front.case.name}; "
            "Domain(batch=True) makes that a fault."
        )


def _hung(judged: Judged) -> bool:
    return judged.outcome.error is not None and judged.outcome.error.reason == "time limit"
