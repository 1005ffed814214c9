"""Which known mistakes explain everything that was seen: what is wrong, and also what is right.

First in float64, where most are put aside; the rest is judged by balls, and then tried on inputs that were not seen
before. In this order: one mistake; one with a number that is fitted; one that is made at some sizes only; two at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, islice
from typing import TYPE_CHECKING

import numpy as np

from symattn.errors import SymattnError
from symattn.verification import judge, rules
from symattn.verification.diagnosis.combining import combined
from symattn.verification.diagnosis.conditions import only_where, separating, thresholds
from symattn.verification.diagnosis.emptied import what_empty_rows_give, without_empty_rows
from symattn.verification.diagnosis.fitted import fitted
from symattn.verification.diagnosis.fresh import SIZED, fresh
from symattn.verification.diagnosis.matching import LITTLE, best, left, ranked
from symattn.verification.diagnosis.mistakes import MISTAKES, STEPS, Mistake
from symattn.verification.diagnosis.outofrange import out_of_range
from symattn.verification.diagnosis.screening import Screen
from symattn.verification.effort import Effort
from symattn.verification.judge import Judged
from symattn.verification.reference import Variant
from symattn.verification.rules.storing import mistakes as by_storing

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_WRONG, _RIGHT, _RAISED = 10, 6, 4  # cases that are judged by balls
_SEEN = 60  # right cases that are looked at in float64
_FEW = 20  # of either kind, where many numbers are tried
_MOST = 8  # mistakes that are judged by balls
_LOOKED_AT = 6  # wrong cases by which mistakes are put in order
_TELLING = 150  # entries of inputs that tell much and take little time
_PARTS = 30  # mistakes of which pairs are tried
_PLACES = 4  # conditions that are tried for each mistake
_SCREENED = 20_000  # runs in float64 for each way, see ``effort``
_BALLS = 50  # such runs, that one in balls takes as long as


@dataclass(frozen=True)
class Cause:
    """Wrong cases, and the mistakes of which each alone explains them all; none, where nothing known does.

    ``sure`` says that they explained inputs as well that were made after they were found; ``raises`` that they explain
    all calls that raised too, ``besides`` tells a symptom that was put aside to find them.
    """

    records: tuple[Judged, ...]
    mistakes: tuple[Mistake, ...]
    raises: bool = False
    sure: bool = True
    besides: str = ""

    @property
    def only(self) -> Mistake | None:
        """The one mistake whose variant gives what the function gave, where there is one."""
        first = self.mistakes[0] if self.mistakes else None
        told = first is not None and (first.variant.steps or first.variant.spec or first.variant.inputs)
        return first if told or (first is not None and first.variant.values != "v") else None


def causes(session: Session) -> tuple[Cause, ...]:
    """What explains the wrong values and shapes among the session's records, one cause for each group of them."""
    records = session.records
    wrong = _sorted(r for r in records if r.finding in ("values", "not finite", "shape"))
    if not wrong:
        return ()
    search = Search(session, wrong, _sorted(r for r in records if r.finding is None))
    found, sure = search.found()
    if not (found and sure):
        hidden = _behind_empty_rows(session)
        if hidden:
            return (hidden,)
    if found:
        return (Cause(tuple(wrong), found, search.explain_errors(found), sure),)
    lost = [r for r in wrong if r.finding == "not finite"]
    overflow = out_of_range(session, lost, [r for r in records if r.ratios is not None]) if lost else ()
    if not overflow:
        return _separately(session, wrong) or (Cause(tuple(wrong), ()),)
    shapes = [r for r in wrong if r.ratios is None]  # it has agreed with every value
    first = (Cause(tuple(r for r in wrong if r.ratios is not None), overflow),)
    if not shapes:
        return first
    return (*first, Cause(tuple(shapes), Search(session, shapes, search.right).found()[0]))


def _behind_empty_rows(session: Session) -> Cause | None:
    """A mistake that explains all but the rows without any key, where these are wrong as well."""
    records = [without_empty_rows(r) for r in session.records]
    wrong = _sorted(r for r in records if r.finding in ("values", "not finite", "shape"))
    symptom = what_empty_rows_give(session.records)
    if not symptom or not wrong:
        return None
    search = Search(session, wrong, _sorted(r for r in records if r.finding is None), seen=without_empty_rows)
    found, sure = search.found()
    return Cause(tuple(wrong), found, search.explain_errors(found), sure, symptom) if found and sure else None


def _separately(session: Session, wrong: list[Judged]) -> tuple[Cause, ...]:
    """A mistake that explains all finite outputs, and what is not finite beside it; none where none explains those."""
    finite = [r for r in wrong if _is_finite(r)]
    lost = [r for r in wrong if r.ratios is not None and not _is_finite(r)]
    if not lost or not finite:
        return ()
    search = Search(session, finite, _sorted(r for r in session.records if r.finding is None))
    found, sure = search.found()
    if not (found and sure):
        return ()
    first = Cause(tuple(finite), found, search.explain_errors(found), sure)
    if not lost or all(m.step == "max" for m in found):  # what vanishes or overflows is its consequence
        return (first,)
    overflow = out_of_range(session, lost, [r for r in session.records if r.ratios is not None], beside=True)
    return Cause(tuple(lost), overflow), first


def _is_finite(judged: Judged) -> bool:
    got = judged.outcome.output
    return got is not None and bool(np.isfinite(got).all())


def _sorted(records: Iterable[Judged]) -> list[Judged]:
    return sorted(records, key=lambda r: r.case.size)


@dataclass
class Search:
    """A search for mistakes that explain all ``wrong`` cases and contradict no ``right`` one."""

    session: Session
    wrong: list[Judged]
    right: list[Judged]
    seen: Callable[[Judged], Judged] = lambda judged: judged  # what of a fresh case is looked at
    screen: Screen = field(init=False)
    effort: Effort = field(init=False)
    fits: list[Mistake] = field(default_factory=list)
    clear: list[Mistake] = field(default_factory=list)
    dim: list[Mistake] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begin()
        self.screen = Screen(self.session.spec, self.session.precision)
        self.raised = [r for r in self.session.records if r.finding == "raises"]
        every = (*MISTAKES, *rules.of_numbers(self.session.spec))
        self.possible = [m for m in every if self._possible(m)]

    def found(self) -> tuple[tuple[Mistake, ...], bool]:
        """The mistakes, and whether they explained fresh inputs as well."""
        doubtful: tuple[Mistake, ...] = ()
        judged = (self._known, self._dim, self._fitted, self._in_floats, self._sometimes, self._pairs)
        for way in (*judged[:2], self._by_rule, self._stored, *judged[2:]):
            candidates = self._judged(way()) if way in judged else tuple(way())
            if not candidates:
                continue
            sure = self._tried(candidates)
            if sure:
                return _plainest(sure), True
            doubtful = doubtful or candidates[:1]
        return doubtful, False

    def _known(self) -> Iterator[Mistake]:
        survivors = self._survivors(self.possible)
        self._begin()
        self.clear = [m for m in survivors if self._tells(m)]
        self.dim = [m for m in survivors if m not in self.clear]
        yield from self.clear

    def _survivors(self, mistakes: list[Mistake]) -> list[Mistake]:
        """Those that float64 does not put aside."""
        survivors = mistakes
        cases = sorted(self.wrong, key=lambda r: abs(r.case.size - _TELLING))
        for judged in (*cases, *self.right[:_SEEN]):  # case by case, so that the first ones leave few
            if self._over or not survivors:
                break
            survivors = [m for m in survivors if self.screened(judged, m) is not False]
        return survivors

    def _by_rule(self) -> Iterator[Mistake]:
        """Mistakes that the grammar makes, and known ones that balls cannot show, where they account for nearly all of
        what is wrong; of those that give the same numbers, the first."""
        self._begin()
        names = frozenset(self.wrong[0].case.inputs)
        survivors = self._survivors([m for m in rules.of_arrays(self.session.spec, names) if self._possible(m)])
        likely = best(self.screen, self.wrong, (*self.dim, *survivors))
        yield from islice(distinct(self.screen, self.wrong, likely), _MOST)

    def _stored(self) -> Iterator[Mistake]:
        """Arrays that are stored in a narrower format on the way, where that accounts for nearly all of the errors."""
        first = self.wrong[:_FEW][:: max(1, len(self.wrong[:_FEW]) // 4)]
        likely = best(self.screen, first, by_storing(self.session.spec, self.session.precision), slack=10)
        yield from islice(distinct(self.screen, self.wrong, best(self.screen, self.wrong, likely)), 1)

    def _dim(self) -> Iterator[Mistake]:
        """Those that float64 does not show clearly: in half formats its slack often hides them. Of the many, those that
        account for most of what is wrong come first."""
        self._begin()
        few = self.wrong[:: max(1, len(self.wrong) // _LOOKED_AT)]
        yield from (mistake for _, mistake in ranked(self.screen, few, self.dim))

    def _fits(self, mistake: Mistake) -> bool:
        """Whether it explains some of what was seen."""
        return self._explains(mistake, (*self.wrong[:_FEW], *self.right[:_FEW]))

    def _in_floats(self) -> Iterator[Mistake]:
        """Mistakes that float64 shows in most cases and contradicts in none, where the bound for balls is too narrow:
        it is proved for rows that sum to 1."""
        for mistake in self.clear:
            shown = sum(self.screened(judged, mistake) is True for judged in self.wrong)
            if not mistake.variant.rows and 2 * shown > len(self.wrong):
                yield replace(mistake, in_floats=True)

    def _fitted(self) -> Iterator[Mistake]:
        self.fits = [
            m for m in fitted(self.session.spec, self.screen, self.wrong, self._fits) if self._explains(m, self.wrong)
        ]
        for mistake in self.fits:
            if self._explains(mistake, self.right[:_SEEN]) and self._tells(mistake):
                yield mistake
                return

    def _sometimes(self) -> Iterator[Mistake]:
        """Mistakes that explain all that is wrong, and would be seen in cases that are right."""
        self._begin()
        for mistake in (*self.possible, *self.fits[:1]):
            if self._over:
                return
            if self._explains(mistake, self.wrong) and self._tells(mistake):
                against = [r for r in self.right if self.screened(r, mistake) is False]
                places = chain(separating(self.wrong, against), thresholds(self.session, self.wrong, against))
                for words, test in islice(places, _PLACES):
                    yield only_where(mistake, words, test)

    def _pairs(self) -> Iterator[Mistake]:
        """Two mistakes, each of which explains some of what is wrong by itself."""
        self._begin()
        few = self.wrong[:12]
        told = {id(m): sum(self.screened(r, m) is True for r in few) for m in self.possible if not self._over}
        parts = sorted((m for m in self.possible if told.get(id(m))), key=lambda m: -told[id(m)])[:_PARTS]
        for first, second in combinations(parts, 2):
            if self._over:
                return
            both = combined(*sorted((first, second), key=lambda m: STEPS.index(m.step)))
            if both is not None and self._explains(both, (*self.wrong, *self.right[:_SEEN])) and self._tells(both):
                yield both

    def _begin(self) -> None:
        self.effort = Effort(_SCREENED)

    @property
    def _over(self) -> bool:
        return self.effort.over or self.session.effort.over

    def screened(self, judged: Judged, mistake: Mistake) -> bool | None:
        """What float64 says."""
        self.effort.spend(judged.case.size)
        return _answer(judged, mistake, lambda r, variant: self.screen.answer(r, variant, mistake.around))

    def _explains(self, mistake: Mistake, cases: Sequence[Judged]) -> bool:
        return all(self.screened(judged, mistake) is not False for judged in cases)

    def _tells(self, mistake: Mistake) -> bool:
        return any(self.screened(judged, mistake) is True for judged in self.wrong)

    def _judged(self, mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
        """Those that balls do not contradict, no more than ``_MOST``."""
        found: list[Mistake] = []
        cases = [*self.wrong[:_WRONG], *self.right[:_RIGHT], *self.raised[:_RAISED]]
        for mistake in mistakes:
            if _explains_all(self._explained(judged, mistake) for judged in cases):
                found.append(mistake)
            if len(found) >= _MOST or self._over:
                break
        return tuple(found)

    def _explained(self, judged: Judged, mistake: Mistake) -> bool | None:
        """What balls say."""
        self.effort.spend(_BALLS * judged.case.size, _BALLS)
        return explains(self.session, judged, mistake)

    def _tried(self, mistakes: tuple[Mistake, ...]) -> tuple[Mistake, ...]:
        """Those that explain inputs that were not seen before, too."""
        kept, wrong = mistakes, []
        for judged in map(self.seen, fresh(self.session, mistakes)):
            kept = tuple(m for m in kept if explains(self.session, judged, m) is not False)
            wrong += [judged] if judged.finding == "values" else []
            if not kept:
                break
        return tuple(m for m in kept if not m.in_floats or not wrong or left(self.screen, wrong, m.variant) <= LITTLE)

    def explain_errors(self, mistakes: tuple[Mistake, ...]) -> bool:
        """Whether every call that raised had shapes for which the mistake has no result."""
        return all(explains(self.session, r, m) is True for m in mistakes for r in self.raised)

    def _possible(self, mistake: Mistake) -> bool:
        """Whether the mistake changes something that there is."""
        inputs = frozenset(self.wrong[0].case.inputs)
        steps = {step.name for step in self.session.spec.pipeline(inputs)}
        v = mistake.variant
        changed = v.values != "v" or v.spec is not None or v.inputs is not None or bool(steps & v.steps.keys())
        return mistake.applies(self.session.spec) and changed


def distinct(screen: Screen, cases: Sequence[Judged], mistakes: Sequence[Mistake]) -> Iterator[Mistake]:
    """The mistakes without those that give the same numbers as one before, up to roundings of float64."""
    told: list[list[np.ndarray]] = []
    for mistake in mistakes:
        outputs = [_output(screen, judged, mistake) for judged in cases[:_WRONG]]
        if not any(all(map(_same, outputs, others)) for others in told):
            told.append(outputs)
            yield mistake


def _output(screen: Screen, judged: Judged, mistake: Mistake) -> np.ndarray:
    """What the mistake gives in float64; nothing where it has no result."""
    try:
        return screen.run(judged, mistake.variant)[0]
    except (SymattnError, ValueError, IndexError, TypeError, KeyError):
        return np.zeros(0)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True))


def explains(session: Session, judged: Judged, mistake: Mistake) -> bool | None:
    """Whether a mistake gives what the function gave, as balls say; None where that cannot be told."""
    if mistake.around or mistake.in_floats:
        screen = Screen(session.spec, session.precision)
        return _answer(judged, mistake, lambda r, variant: screen.answer(r, variant, mistake.around))
    return _answer(judged, mistake, lambda r, variant: judge.explains(session.spec, session.precision, r, variant))


def _answer(judged: Judged, mistake: Mistake, ask: Callable[[Judged, Variant], bool | None]) -> bool | None:
    """The answer of ``ask``, where the mistake is made; where it is not, nothing may be wrong."""
    if mistake.where is None or mistake.where.holds(judged):
        return ask(judged, mistake.variant)
    return False if judged.finding in ("values", "not finite", "shape") else None


def _explains_all(answers: Iterator[bool | None]) -> bool:
    """Whether none contradicts, and some show the mistake clearly. Stops at the first contradiction."""
    seen = False
    for answer in answers:
        if answer is False:
            return False
        seen = seen or answer is True
    return seen


def _plainest(mistakes: tuple[Mistake, ...]) -> tuple[Mistake, ...]:
    """One for each cause; of those that differ in what stands in brackets, the first. What holds everywhere comes
    before what has a size of its own, and stands alone."""
    everywhere = tuple(m for m in mistakes if not SIZED.search(m.cause))
    mistakes = everywhere or mistakes
    return tuple({_bare(m.cause): m for m in reversed(mistakes)}.values())[::-1]


def _bare(cause: str) -> str:
    """Without what stands in brackets, and without the sizes at which the mistake is made."""
    return cause.partition(" (")[0].partition(", where ")[0]
