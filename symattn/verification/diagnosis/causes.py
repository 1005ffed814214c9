"""Which known mistakes explain all results: the wrong ones, and also the right ones.

Most mistakes are ruled out in float64; the rest is judged by balls, and then tried on fresh inputs. The order is that
of ``Search.ways``: first single mistakes, at last two at once; if the function runs on residues, mistakes with the same
residues come first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from symattn.bounds.case_result import OF_VALUES, UNFIT, Case, CaseResult, Part
from symattn.bounds.mistake import Mistake, MistakeFamily
from symattn.bounds.reference import RIGHT
from symattn.document.errors import Undecided
from symattn.verification.diagnosis import confirming, parts, screening
from symattn.verification.diagnosis.conditions import fitted, only_where, separating
from symattn.verification.diagnosis.screening import likely_pairs
from symattn.verification.effort import Effort
from symattn.verification.rules import own_numbers

if TYPE_CHECKING:
    from symattn.verification.engine import Session
    from symattn.verification.semantics import Witness

_SEEN = 60  # right cases that are compared in float64
_FEW = 20  # cases of either kind, if many numbers are tried
_MOST = 8  # mistakes that are judged by balls
_ALIKE = 10  # cases of either kind by which mistakes that explain everything are compared
# wrong cases that judge a mistake at least, and entries of all if they are more
_FEWEST = 2
_ENTRIES = 10_000  # of a case, beyond which balls take long
_PLACES = 4  # conditions that are tried for each mistake
_SCREENED = 20_000  # runs in float64 for each way, see ``effort``
_IN_PAIRS = 30_000  # the same for all pairs of mistakes,
_IN_SLOW_PAIRS = 12_000  # and if a run of the definition counts as several
_FEWER_PAIRS = 3  # this part of them, of all searches together, where edits were tried
_SHOWN = 12  # smallest wrong cases among which one with different sizes is chosen
_LOOKED_AT = 3  # wrong cases by which mistakes are put in order
KEPT = 512  # entries of the inputs of cases whose outputs are stored
_ASKED = 6  # wrong cases that are asked for each output, beside fresh ones
_RIGHT_BY_CHANCE = (
    0.2  # share of the entries where a mistake is undefined, such as means of one value
)
_BESIDE = 3  # multiple of the bound, for mistakes whose outputs are nearly the right ones
_SHARE_OF_OPERATIONS = 2  # a search among operations gets half of what is left
_OPERATIONS_OF_RUN = 3  # operations of a record that take as long as one run in float64
_BALLS = 50  # runs in float64 that take as long as one in balls


Way: TypeAlias = "Callable[[], Iterable[Mistake]]"
Outputs = list[np.ndarray] | None


@dataclass(frozen=True)
class Cause:
    """Wrong cases, and the mistakes of which each alone explains them all; none if no known one does.

    ``sure`` says that they also explained fresh inputs, ``raises`` that they also explain all calls that raised;
    ``besides`` describes a symptom that was ignored to find them.
    """

    records: tuple[CaseResult, ...]
    mistakes: tuple[Mistake, ...]
    search: Search
    raises: bool = False
    sure: bool = True
    besides: str = ""

    @property
    def only(self) -> Mistake | None:
        """The first mistake, if it gives numbers."""
        return self.mistakes[0] if self.mistakes and self.search.gives(self.mistakes[0]) else None

    def shows(self, judged: CaseResult) -> bool:
        """Return whether the mistake reproduces a case and the definition does not; without a mistake, whether one of
        the outputs concerned is wrong."""
        if self.only is None:
            among = self.search.among
            return among is None or bool(judged.wrong & among)
        return self.search.explains(judged, self.only) is True


def causes(session: Session) -> tuple[Cause, ...]:
    """Explain the wrong values and shapes among the session's records, by one cause for each group of them."""
    wrong = by_size(r for r in session.records if r.finding in OF_VALUES)
    if not wrong:
        return ()
    search = session.subject.search(
        session, wrong, by_size(r for r in session.records if r.finding is None)
    )
    results, sure = search.found()
    # A sure cause explains everything, and so does an edit: no search part by part is needed, which may be slow.
    is_whole = sure or (session.repairs.explain and session.subject.costs > 1)
    return (() if is_whole else search.otherwise(results)) or (search.cause(results, sure),)


def by_size(records: Iterable[CaseResult]) -> list[CaseResult]:
    """Return the records sorted by size, the smallest first."""
    return sorted(records, key=lambda r: r.case.size)


class RunsOfWays(Protocol):
    """How ways of computing of one sort are run, and how mistakes with such ways are judged."""

    def run(self, judged: CaseResult, way: Any) -> list[np.ndarray]:
        """Return the outputs of a way in float64. Raises ``KeyError`` if what it changes is missing."""

    def run_in(
        self, judged: CaseResult, way: Any, dtype: type[np.floating[Any]]
    ) -> list[np.ndarray]:
        """Return the outputs of a way in another format of NumPy."""

    def on_residues(self, inputs: dict[str, Any], mistake: Mistake) -> Sequence[Any]:
        """Return the outputs of a mistake on residues."""

    def rounding(
        self, judged: CaseResult, mistake: Mistake, part: Part, wrong: np.ndarray
    ) -> np.ndarray:
        """Return a generous bound on the distance of code with the mistake from its result in float64."""

    def reproduces(
        self, judged: CaseResult, mistake: Mistake, among: frozenset[int] | None
    ) -> bool | None:
        """Return whether a mistake gives the outputs of a case, all or those ``among``, by its own exact outputs and
        their bounds; None if that is undecidable."""


@dataclass
class Search(ABC):
    """A search for mistakes that explain all ``wrong`` cases and contradict no ``right`` one.

    ``among`` are the outputs concerned (None: all); ``cut`` says that the effort ran out before all mistakes were
    tried. ``held_out`` are the cases of other sizes by which mistakes were confirmed, in so many ``rounds``.
    """

    session: Session
    wrong: list[CaseResult]
    right: list[CaseResult]
    among: frozenset[int] | None = None
    effort: Effort = field(init=False)
    whole_effort: Effort | None = None  # of several ways together
    effort_of_pairs: Effort | None = None  # of the searches for all outputs one by one
    fits: list[Mistake] = field(default_factory=list)
    possible: list[Mistake] = field(init=False)
    clear: list[Mistake] = field(default_factory=list)
    dim: list[Mistake] = field(default_factory=list)
    cut: bool = False
    held_out: list[CaseResult] = field(default_factory=list)
    rounds: int = 0
    computed: screening.ComputedValues[Outputs] = field(default_factory=screening.ComputedValues)
    answers: screening.ComputedValues[bool | None] = field(default_factory=screening.ComputedValues)
    excused: screening.ComputedValues[Outputs] = field(default_factory=screening.ComputedValues)
    in_float16: screening.ComputedValues[Outputs] = field(default_factory=screening.ComputedValues)
    own_errors: screening.ComputedValues[tuple[np.ndarray, np.ndarray]] = field(
        default_factory=screening.ComputedValues
    )

    def __post_init__(self) -> None:
        self.begin()
        self.raised = [r for r in self.session.records if r.finding == "raises"]
        self.possible = self.every()

    # -- what a definition has -----------------------------------------------------------------------------------------
    @abstractmethod
    def every(self) -> list[Mistake]:
        """The known mistakes that change something."""

    @abstractmethod
    def constants(self) -> list[Mistake]:
        """The mistakes whose output ignores inputs, such as zeros."""

    @abstractmethod
    def further(self) -> list[Mistake]:
        """Less likely mistakes, such as changes of any array by rule."""

    @abstractmethod
    def runs_of(self, way: Any) -> RunsOfWays:
        """Return what computes a way of computing, and judges by it."""

    @abstractmethod
    def combined(self, first: Mistake, second: Mistake) -> Sequence[Mistake]:
        """Return both mistakes at once, in either order if that matters; nothing if they cannot be combined."""

    def families(self) -> Iterable[MistakeFamily]:
        """Return the families of mistakes with a number that fit the subject."""
        return ()

    def repeats(self, mistake: Mistake) -> bool:
        """Return whether the mistake is left out if an earlier one gives the same numbers: two rules may mean the same,
        and the first one is the simplest."""
        return True

    @abstractmethod
    def ways(self) -> Sequence[Way]:
        """The ways of searching, in order."""

    @abstractmethod
    def ways_beside_edit(self) -> Sequence[Way]:
        """The ways of searching, in order, where an edit of the source explains the fault already."""

    @property
    @abstractmethod
    def decided(self) -> Sequence[Way]:
        """The ways of searching whose results are not judged by balls at first."""

    def otherwise(self, found: tuple[Mistake, ...]) -> tuple[Cause, ...]:
        """Explain the wrong cases part by part, if nothing surely explains them all; return nothing if that fails
        too."""
        return ()

    def gives(self, mistake: Mistake) -> bool:
        """Return whether the mistake gives numbers; mistakes of a format's range do not."""
        return mistake.way != RIGHT

    def seen(self, judged: CaseResult) -> CaseResult:
        """Return the part of a fresh case that has to be explained."""
        return judged

    @cached_property
    def telling(self) -> CaseResult:
        """The small wrong case in which most sizes differ, with finite outputs if there is one, and of those the one
        with most different numbers."""
        measured = self.session.subject.source.measured

        def telling(judged: CaseResult) -> tuple[bool, int, int]:
            numbers = {
                x
                for a in judged.case.inputs.values()
                for x in np.ravel(a)[: screening.TELLING].tolist()
            }
            return screening.is_finite(judged), len({*measured(judged).values()}), len(numbers)

        return max(self.wrong[:_SHOWN], key=telling)

    # -- the search ----------------------------------------------------------------------------------------------------
    def meant(
        self, judged: CaseResult, outputs: Sequence[np.ndarray]
    ) -> list[tuple[Part, np.ndarray]]:
        """Return the outputs concerned, each with the corresponding one of ``outputs``."""
        pairs = list(zip(judged.parts, outputs, strict=True))
        return [pair for k, pair in enumerate(pairs) if self.among is None or k in self.among]

    def miss(self, judged: CaseResult, mistake: Mistake | None) -> float:
        """Return the largest distance in float64 of the outputs concerned from a mistake or the definition, relative to
        the largest entry; ∞ if it cannot be determined."""
        wrong = self.outputs(judged, mistake)
        if wrong is None:
            return float("inf")
        return max(screening.miss(part, a) for part, a in self.meant(judged, wrong))

    def distinct(
        self, mistakes: Iterable[Mistake], cases: Sequence[CaseResult], every: bool = False
    ) -> Iterator[Mistake]:
        """Yield the mistakes without those that repeat an earlier one up to rounding; ``every``: of any kind."""
        before: list[list[Outputs]] = []
        for mistake in mistakes:
            outputs = [self.outputs(judged, mistake) for judged in cases]
            if not (
                (every or self.repeats(mistake))
                and any(all(map(screening.are_alike, outputs, b)) for b in before)
            ):
                before.append(outputs)
                yield mistake

    def plainest(
        self, mistakes: tuple[Mistake, ...], tried: Sequence[CaseResult]
    ) -> tuple[Mistake, ...]:
        """Return the simplest of the mistakes that explain everything, including ``tried``; those that leave least of
        the error come first, as a report names only some of many.

        Mistakes that explain every number come before those for which a narrow range has to excuse some.
        """
        whole = tuple(
            mistake
            for mistake in mistakes
            if all(self.excused_outputs(judged, mistake) is None for judged in self.wrong)
        )
        mistakes = whole or mistakes
        if len(mistakes) < 2:
            return mistakes
        numbers = [r for r in tried if r.finding != "raises"]
        cases = [*self.wrong[:_ALIKE], *self.right[:_ALIKE], *numbers]
        different = [*self.distinct(screening.plainest(mistakes), cases)]
        if len(different) < 2:
            return tuple(different)
        ranked = screening.ranked(self, self.wrong, different)
        # What next to nothing is left of is alike: the simplest comes first.
        ranked.sort(key=lambda pair: max(pair[0], screening.NOTHING))
        return tuple(mistake for _, mistake in ranked)

    def cause(self, found: tuple[Mistake, ...], sure: bool, besides: str = "") -> Cause:
        """Return the cause for these mistakes."""
        # Every mistake of the cause must explain every call that raised.
        raises = bool(found) and all(
            self.explains(r, m) is True for m in found for r in self.raised
        )
        return Cause(tuple(self.wrong), found, self, raises, sure or not found, besides)

    def sure(self, besides: str = "") -> Cause | None:
        """Return the cause that also explained fresh inputs, if one did."""
        mistakes, sure = self.found()
        return self.cause(mistakes, sure, besides) if sure else None

    def found(self) -> tuple[tuple[Mistake, ...], bool]:
        """Return the mistakes, and whether they also explained fresh inputs."""
        doubtful: tuple[Mistake, ...] = ()
        # Residues decide where the function runs on them, so they come before floats.
        exactly: tuple[Way, ...] = (self.exactly,) if self.witnesses else ()
        # An edit that explains the fault leaves names for its effect to be sought, no numbers and no pairs.
        is_brief = self.session.repairs.explain or self.session.leaves_out_rules
        ways = self.ways_beside_edit() if is_brief else self.ways()
        self.cut |= is_brief
        for way in (self.ignoring, *exactly, *ways):
            # Without screening, which is over, most ways would be left with all of their mistakes.
            if self.session.effort_of_searches.over:
                self.cut = True
                break
            # Balls judge the candidates, unless floats or residues decide the way already.
            candidates = tuple(way()) if way in self.decided else self._select_by_balls(way())
            if not candidates:
                continue
            sure, tried = self._confirm_on_fresh_inputs(candidates)
            if sure:
                return self.plainest(sure, tried), True
            # If no candidate is confirmed, the first one is the likeliest.
            doubtful = doubtful or candidates[:1]
        self.cut |= self.session.effort_of_searches.over
        return doubtful, False

    @property
    def witnesses(self) -> tuple[Witness, ...]:
        """Outputs of the function on residues that differ from the definition's."""
        return (
            self.session.identity.witnesses if self.session.identity and self.among is None else ()
        )

    def exactly(self) -> Iterator[Mistake]:
        """Yield mistakes that give the same residues as the function, and that no output in floats contradicts."""
        for mistake in self.survivors(self.possible):
            if self._gives_all(self.witnesses, mistake):
                yield mistake

    def _other_residues(self, mistake: Mistake) -> bool:
        """Return whether a mistake with the residues of the function gives others at held-out sizes."""
        # Only a mistake with all residues so far can be refuted by others.
        if (
            mistake.where is not None
            or not self.witnesses
            or not self._gives_all(self.witnesses, mistake)
        ):
            return False
        identity = self.session.identity
        return identity is not None and not self._gives_all(identity.held_out, mistake)

    def _gives_all(self, witnesses: Sequence[Witness], mistake: Mistake) -> bool:
        """Return whether the mistake gives the residues of the function in all of these runs."""
        runs = self.runs_of(mistake.way)
        return all(w.gives(lambda inputs: runs.on_residues(inputs, mistake)) for w in witnesses)

    # -- whether a mistake explains a case -----------------------------------------------------------------------------
    def explains(self, judged: CaseResult, mistake: Mistake) -> bool | None:
        """Return whether a mistake explains a case, by balls; by floats for mistakes judged in floats or with ways
        around them. None if that is undecidable, as where it leaves the range of the format as the function did."""
        if mistake.around or mistake.in_floats:
            return self.answer(judged, mistake)
        if mistake.where is not None and not mistake.where.holds(judged):
            return answer_beside_condition(judged)
        return self._reproduces_unless_lost(judged, mistake)

    def _reproduces_unless_lost(self, judged: CaseResult, mistake: Mistake) -> bool | None:
        result = self.runs_of(mistake.way).reproduces(judged, mistake, self.among)
        if result is not False:
            return result
        excused = self.excused_outputs(judged, mistake)
        if excused is not None:
            return self._answer_at(judged, mistake, excused)
        # In the formats of code the mistake may lose the entries that the function lost.
        is_lost = not screening.is_finite(judged) and self.loses(judged, mistake)
        return None if is_lost else False

    def confirmed(self, mistake: Mistake, wrong: Sequence[CaseResult]) -> bool:
        """Return whether the wrong results for fresh inputs confirm the mistake: each wrong output must be explained in
        some case, as it may be undecidable in others. A mistake that is judged in floats must leave little."""
        cases = [*wrong, *self.wrong[:_ASKED]]
        with_numbers = [r for r in cases if r.finding == "values"]
        if self._is_undefined_where_right(with_numbers, mistake):
            return False
        if mistake.in_floats:
            most = screening.LITTLE
            return not wrong or screening.left(self, wrong, mistake, most) <= most
        # Where a mistake is undefined it contradicts nothing: it has to give some of the wrong numbers.
        if with_numbers and not any(self.gives_wrong_numbers(r, mistake) for r in with_numbers):
            return False
        outputs = frozenset[int]().union(*(r.wrong for r in cases))
        # With one output concerned nothing is left to require.
        if self.among is not None or len(outputs) < 2:
            return True
        runs = self.runs_of(mistake.way)
        return all(
            any(runs.reproduces(r, mistake, frozenset([k])) for r in cases if k in r.wrong)
            for k in outputs
        )

    def _is_undefined_where_right(self, cases: Sequence[CaseResult], mistake: Mistake) -> bool:
        """Return whether many entries in which a mistake is undefined, as in rows without a key, are right ones; or
        whether it is undefined in most of the wrong ones, of which it then explains few.

        Code with the mistake has arbitrary numbers there, which are right ones by chance alone.
        """
        undefined = right = wrong = 0
        for judged in cases:
            outputs = self.outputs(judged, mistake)
            for part, output in () if outputs is None else self.meant(judged, outputs):
                if part.ratios is None or part.ratios.shape != output.shape:
                    continue
                lost = np.isnan(output) & ~np.isnan(part.expected.near)
                undefined += int(lost.sum())
                right += int((lost & (part.ratios <= 1)).sum())
                wrong += int((part.ratios > 1).sum())
        return right > _RIGHT_BY_CHANCE * undefined or 2 * (undefined - right) > wrong

    def run(self, judged: CaseResult, mistake: Mistake) -> list[np.ndarray]:
        """Return the outputs of a mistake in float64. Raises ``KeyError`` if what it changes is missing."""
        return self.runs_of(mistake.way).run(judged, mistake.way)

    @property
    def _formats_of_range(self) -> tuple[type[np.floating[Any]], ...]:
        """The formats of NumPy with the ranges that the numbers of code may have, the widest first."""
        name = self.session.precision.score.name
        if name == "float64":
            return (np.float64,)
        return (np.float32, np.float16) if name == "float16" else (np.float32,)

    def _run_in_formats(
        self,
        judged: CaseResult,
        mistake: Mistake,
        formats: Sequence[type[np.floating[Any]]],
    ) -> Iterator[list[np.ndarray]]:
        """Yield the outputs of a mistake in each of the formats in which it can be computed."""
        for dtype in formats:
            try:
                outputs = self.runs_of(mistake.way).run_in(judged, mistake.way, dtype)
            except UNFIT:
                continue
            yield outputs

    def loses(self, judged: CaseResult, mistake: Mistake) -> bool:
        """Return whether the mistake, in a format of code, is not finite wherever the function was not."""
        return any(
            all(
                part.got is not None
                and part.got.shape == output.shape
                and not np.isfinite(output[~np.isfinite(part.got)]).any()
                for part, output in self.meant(judged, outputs)
            )
            for outputs in self._run_in_formats(judged, mistake, self._formats_of_range)
        )

    def slack(
        self, judged: CaseResult, mistake: Mistake, part: Part, wrong: np.ndarray
    ) -> np.ndarray:
        """Return a generous bound on the distance of code with the mistake from its result in float64; for one with
        ways around it, their distance besides the bound of the right definition."""
        if not mistake.around:
            return self.runs_of(mistake.way).rounding(judged, mistake, part, wrong)
        allowed = part.expected.allowed
        legal = allowed if allowed.shape == wrong.shape else np.zeros(wrong.shape)
        place = next(k for k, p in enumerate(judged.parts) if p is part)
        # Ways around a fitted number show how far its uncertainty moves the output.
        around = (self.runs_of(way).run(judged, way)[place] for way in mistake.around)
        moved = (np.abs(output - wrong) for output in around)
        # A way around that is 0/0 says nothing: exponentials of 0 are exact, and not below 1 as in that way.
        known = (np.where(np.isnan(x), 0.0, x) for x in moved)
        return np.asarray(_BESIDE * legal + sum(known))

    # -- in float64 ----------------------------------------------------------------------------------------------------
    def outputs(self, judged: CaseResult, mistake: Mistake | None) -> Outputs:
        """Return the outputs of a mistake, or of the definition; None if there are none. Small ones are stored."""
        if mistake is None:
            return [part.expected.near for part in judged.parts]

        def run() -> Outputs:
            self.count_run(judged.case.size)
            try:
                return self.run(judged, mistake)
            except UNFIT:
                return None

        return self.computed.once((judged, mistake.way), run, judged.case.size <= KEPT)

    def answer(self, judged: CaseResult, mistake: Mistake) -> bool | None:
        """Return False if the mistake cannot have given the case's output, True if it can and the definition cannot,
        None if that is undecidable."""
        if mistake.where is not None and not mistake.where.holds(judged):
            return answer_beside_condition(judged)
        decide = partial(self._decide_whether_explained, judged, mistake)
        return self.answers.once((judged, mistake.way), decide)

    def _decide_whether_explained(self, judged: CaseResult, mistake: Mistake) -> bool | None:
        try:
            outputs = self.outputs(judged, mistake) or self.run(judged, mistake)
        except KeyError:  # it changes nothing, so nothing may be wrong
            wrong = judged.finding in OF_VALUES and (
                self.among is None or judged.wrong & self.among
            )
            return False if wrong else None
        except Undecided:
            return None
        except UNFIT:  # it cannot be computed for these shapes
            return judged.finding == "raises" or None if judged.outcome.error else False
        if judged.outcome.output is None or not mistake.exact:
            # A mistake that only loses digits has the definition's numbers in float64.
            return None
        answer = self._answer_at(judged, mistake, outputs)
        excused = self.excused_outputs(judged, mistake) if answer is False else None
        return answer if excused is None else self._answer_at(judged, mistake, excused)

    def _answer_at(
        self, judged: CaseResult, mistake: Mistake, outputs: Sequence[np.ndarray]
    ) -> bool | None:
        pairs = self.meant(judged, outputs)
        answers = [self._of_part(judged, mistake, part, wrong) for part, wrong in pairs]
        return False if False in answers else True if True in answers else None

    def excused_outputs(self, judged: CaseResult, mistake: Mistake) -> Outputs:
        """Return the outputs of a mistake that float64 rules out, with NaN where code in a narrower range has other
        numbers, if these are all that speaks against it; else None.

        Sums may overflow there, and squares of small numbers vanish, which one over their root then magnifies.
        """
        compute = partial(self._find_excused_outputs, judged, mistake)
        return self.excused.once((judged, mistake.way), compute)

    def outputs_in_float16(self, judged: CaseResult, mistake: Mistake) -> Outputs:
        """Return the outputs of a mistake in float16 if code may compute in it, and the mistake can; else None."""
        if np.float16 not in self._formats_of_range:
            return None

        def run() -> Outputs:
            self.count_run(judged.case.size)
            return next(self._run_in_formats(judged, mistake, (np.float16,)), None)

        return self.in_float16.once((judged, mistake.way), run, judged.case.size <= KEPT)

    def comparable_outputs(self, judged: CaseResult, mistake: Mistake) -> Outputs:
        """Return the outputs of a mistake with NaN where a narrower range excuses other numbers; None if there are
        none."""
        excused = self.excused_outputs(judged, mistake)
        return self.outputs(judged, mistake) if excused is None else excused

    def _find_excused_outputs(self, judged: CaseResult, mistake: Mistake) -> Outputs:
        formats = self._formats_of_range
        if screening.is_finite(judged):
            # Finite numbers are beyond the range of float16 alone; most mistakes give none of the wrong ones.
            formats = tuple(f for f in formats if f is np.float16)
            if not formats or not self._gives_a_wrong_entry(judged, mistake):
                return None
        outputs = self.outputs(judged, mistake)
        if outputs is None or self._answer_at(judged, mistake, outputs) is not False:
            return None
        for narrow in self._run_in_formats(judged, mistake, formats):
            excused = self._keep_near(judged, mistake, outputs, narrow)
            if self._answer_at(judged, mistake, excused) is not False:
                return excused
        return None

    def _keep_near(
        self,
        judged: CaseResult,
        mistake: Mistake,
        outputs: Sequence[np.ndarray],
        narrow: Sequence[np.ndarray],
    ) -> list[np.ndarray]:
        """Return the outputs with NaN where those in a narrow format are further off than roundings are."""
        comparable = []
        for part, wrong, narrow_output in zip(judged.parts, outputs, narrow, strict=True):
            with np.errstate(all="ignore"):
                slack = self.slack(judged, mistake, part, wrong)
                is_near = np.abs(narrow_output - wrong) <= slack
            comparable.append(np.where(is_near, wrong, np.nan))
        return comparable

    def _gives_a_wrong_entry(self, judged: CaseResult, mistake: Mistake) -> bool:
        """Return whether a mistake leaves little of the error of some wrong entry."""
        outputs = self.outputs(judged, mistake)
        for part, wrong in () if outputs is None else self.meant(judged, outputs):
            if part.got is None or part.ratios is None or part.got.shape != wrong.shape:
                continue
            with np.errstate(all="ignore"):
                rest = part.got - wrong
                error = part.got - part.expected.near
                leaves_little = np.square(rest / error) <= screening.LITTLE
            if ((part.ratios > 1) & leaves_little).any():
                return True
        return False

    def explains_an_output(self, cases: Sequence[CaseResult], mistake: Mistake) -> bool:
        """Return whether a mistake explains one of several outputs in all cases."""
        answers = []
        for judged in cases:
            outputs = self.outputs(judged, mistake)
            if outputs is None:
                return False
            answers.append(
                [self._of_part(judged, mistake, part, a) for part, a in self.meant(judged, outputs)]
            )
        by_output = [*zip(*answers, strict=True)]
        return len(by_output) > 1 and any(map(explains_all, by_output))

    def gives_wrong_numbers(self, judged: CaseResult, mistake: Mistake) -> bool:
        """Return whether a mistake is finite at an entry where the function has a wrong number, or a wrong shape."""
        outputs = self.outputs(judged, mistake)
        # Nothing is known of what a mistake gives that cannot run in floats.
        if outputs is None:
            return True
        for part, wrong in self.meant(judged, outputs):
            if part.got is None or part.ratios is None:
                return True
            is_wrong_number = (part.ratios > 1) & np.isfinite(part.got)
            if wrong.shape == part.got.shape and (is_wrong_number & np.isfinite(wrong)).any():
                return True
        return False

    def spoils_right_output(self, judged: CaseResult, mistake: Mistake) -> bool:
        """Return whether a mistake clearly changes an output of a case in which the function has the right one."""
        outputs = self.outputs(judged, mistake)
        if outputs is None or judged.ratios is None:
            return False
        asked = self.among or {*range(len(judged.parts))}
        of_parts = enumerate(zip(judged.parts, outputs, strict=True))
        right = [pair for k, pair in of_parts if k in asked and k not in judged.wrong]
        return any(self._of_part(judged, mistake, *pair) is False for pair in right)

    def _of_part(
        self, judged: CaseResult, mistake: Mistake, part: Part, wrong: np.ndarray
    ) -> bool | None:
        if part.got is None or part.got.shape != wrong.shape:
            return False
        with np.errstate(all="ignore"):
            slack = self.slack(judged, mistake, part, wrong)
        return screening.compared(part.got, wrong, part.expected.near, part.ratios, slack)

    def ignoring(self) -> Iterator[Mistake]:
        """Yield the mistakes whose output ignores inputs, if they leave little of the error."""
        constants = self.survivors(self.constants())
        most = screening.LITTLE
        yield from (m for m in constants if screening.left(self, self.wrong, m, most) <= most)

    def known(self) -> Iterator[Mistake]:
        """Yield the mistakes that float64 shows clearly."""
        survivors = self.survivors(self.possible)
        self.begin()
        self.clear = [m for m in survivors if not self.over and self.tells(m)]
        clear = {*map(id, self.clear)}
        self.dim = [m for m in survivors if id(m) not in clear]
        self.begin()  # the effort spent on the many dim ones is not charged to the few clear ones
        yield from self.clear

    def less_clear(self) -> Iterator[Mistake]:
        """Yield mistakes that the slack hides, as in half formats; first those that account for most of the error."""
        self.begin()
        few = self.wrong[:: max(1, len(self.wrong) // _LOOKED_AT)]
        real = [
            m for m in self.dim if any(self.outputs(judged, m) is not None for judged in self.wrong)
        ]
        yield from (mistake for _, mistake in screening.ranked(self, few, real))

    def survivors(self, mistakes: list[Mistake]) -> list[Mistake]:
        """Return the mistakes that float64 does not rule out."""
        survivors = mistakes
        # Cases near this size rule out most mistakes at little cost, so they come first.
        cases = sorted(self.wrong, key=lambda r: abs(r.case.size - screening.TELLING))
        for judged in (
            *cases,
            *self.right[:_SEEN],
        ):  # case by case, so that the first cases leave few mistakes
            if self.over or not survivors:
                break
            survivors = [m for m in survivors if not self.rules_out(judged, m)]
        return survivors

    def rules_out(self, judged: CaseResult, mistake: Mistake) -> bool:
        """Return whether float64 shows that a mistake cannot explain a case."""
        return self.screened(judged, mistake) is False

    def with_numbers(self) -> Iterator[Mistake]:
        """Yield the first mistake with a fitted number that balls do not contradict: floats may accept wrong ones."""
        return self.fit_numbers(self.families())

    def fit_numbers(self, of: Iterable[MistakeFamily]) -> Iterator[Mistake]:
        """Yield the same of these families."""
        few = (*self.wrong[:_FEW], *self.right[:_FEW])
        smallest = self.wrong[0]

        def explains(mistake: Mistake) -> bool:
            return (
                self._is_allowed_by_screening(mistake, few)
                and self._is_explained_by_balls(smallest, mistake) is not False
            )

        named = partial(own_numbers.near, self.session.subject.described)
        results = fitted(of, self.miss, self.wrong, explains, named)
        fits = [m for m in results if self._is_allowed_by_screening(m, self.wrong)]
        self.fits = self.fits or fits
        for mistake in fits:
            if self._is_allowed_by_screening(mistake, self.right[:_SEEN]) and explains_all(
                self._is_explained_by_balls(judged, mistake) for judged in self.wrong[:_FEW]
            ):
                yield mistake
                return

    def sometimes(self) -> Iterator[Mistake]:
        """Yield mistakes that explain all wrong cases, but would be detected in right ones."""
        self.begin()
        for mistake in (*self.possible, *self.fits[:1]):
            if self.over:
                return
            if self._is_allowed_by_screening(mistake, self.wrong) and self.tells(mistake):
                yield from self.conditioned(mistake)

    def conditioned(self, mistake: Mistake) -> Iterator[Mistake]:
        """Yield the mistake, made only at sizes that separate wrong cases from right ones.

        Held-out cases that contradicted the mistake everywhere count as well.
        """
        against = [r for r in self.right if self.contradicts(r, mistake)]
        of_fresh = [
            (r, confirming.contradicts(self, r, mistake)) for r in self.held_out_by_all_ways()
        ]
        against += [r for r, contradicted in of_fresh if contradicted]
        made_in = [
            *self.wrong,
            *(r for r, contradicted in of_fresh if r.finding in OF_VALUES and not contradicted),
        ]
        answer: Callable[[CaseResult], bool | None] = lambda judged: (  # noqa: E731
            False if self.contradicts(judged, mistake) else self.screened(judged, mistake)
        )
        for words, test in islice(separating(self.session, made_in, against, answer), _PLACES):
            yield only_where(self.session, mistake, words, test)

    def contradicts(self, judged: CaseResult, mistake: Mistake) -> bool:
        """Return whether a case seems not to have the mistake; balls decide later."""
        return self.screened(judged, mistake) is False

    def axes_of_outputs(self) -> parts.Axes:
        """Return the axes of batch items and of heads that outputs have."""
        return {}

    @abstractmethod
    def way_in_part(self, way: Any, part: parts.OutputPart) -> Any:
        """Return a way of computing that is the given one in a part of the output, and right elsewhere."""

    def is_bounded(self, way: Any) -> bool:
        """Return whether the bounds by which mistakes are judged hold for a way of computing."""
        return True

    def in_part(self, mistake: Mistake, part: parts.OutputPart) -> Mistake:
        """Return the mistake, made in a part of the output alone."""
        way, *around = (self.way_in_part(w, part) for w in (mistake.way, *mistake.around))
        in_floats = mistake.in_floats or not self.is_bounded(way)
        # The changes and the specification would make the mistake in every part.
        return replace(
            mistake,
            cause=f"{mistake.cause}, for {part.words}",
            way=way,
            around=tuple(around),
            in_floats=in_floats,
            change=None,
            spec=None,
            inner=None,
        )

    def in_parts(self) -> Iterator[Mistake]:
        """Yield mistakes that are made for some batch items or heads alone, if all errors are there."""
        self.begin()
        group = max(1, int(getattr(self.session.subject.described, "group", 1)))
        for part in islice(parts.of_errors(self.wrong, self.axes_of_outputs(), group), _PLACES):
            every = (*self.possible, *self.further())
            likely = [self.in_part(m, part) for m in every if self._fits_in_part(m, part)]
            # The effort of choosing likely mistakes is not charged to ranking them.
            self.begin()
            yield from islice(screening.best(self, self.wrong, likely), _MOST)

    def _fits_in_part(self, mistake: Mistake, part: parts.OutputPart) -> bool:
        """Return whether no wrong case contradicts a mistake that is made in a part alone."""
        return not self.over and all(
            self._agrees_in_part(judged, mistake, part) for judged in self.wrong
        )

    def _agrees_in_part(self, judged: CaseResult, mistake: Mistake, part: parts.OutputPart) -> bool:
        self.effort.spend(judged.case.size, self.session.subject.costs)
        outputs = self.outputs(judged, mistake)
        if outputs is None:
            return False
        for one, wrong in self.meant(judged, outputs):
            right = one.expected.near
            if wrong.shape != right.shape:
                return False
            # Outside the part the right values are expected.
            places = part.places(right.shape)
            if self._of_part(judged, mistake, one, np.where(places, wrong, right)) is False:
                return False
        return True

    def pairs(self) -> Iterator[Mistake]:
        """Yield two mistakes at once that explain everything; neither need explain a case alone."""
        # A limit on all pairs together, besides that of each way.
        self.whole_effort = self.effort_of_pairs or self.begin_pairs()
        try:
            yield from self._yield_mistake_pairs()
        finally:
            self.whole_effort = None

    def begin_pairs(self) -> Effort:
        """Return the runs that all pairs of mistakes may take: fewer where edits were tried, two at once among them."""
        session = self.session
        units = _IN_PAIRS if session.subject.costs == 1 else _IN_SLOW_PAIRS
        if not session.repairs.were_sought:
            return Effort(units)
        if session.effort_of_pairs is None:
            session.effort_of_pairs = Effort(units // _FEWER_PAIRS)
        return session.effort_of_pairs

    def _yield_mistake_pairs(self) -> Iterator[Mistake]:
        self.begin()
        for pairs in likely_pairs(self):
            result = False
            of_finding = self.effort
            # The few that are left are judged, though finding them took all that pairs may take.
            self.effort = Effort(_SCREENED)
            for both in pairs:
                if self.over:
                    return
                ruled_out = any(self.rules_out(judged, both) for judged in self.wrong)
                if (
                    not ruled_out
                    and self._is_allowed_by_screening(both, self.right[:_SEEN])
                    and self.tells(both)
                ):
                    result = True
                    yield both
            if result:
                return
            # Without a result the effort of choosing pairs continues.
            self.effort = of_finding
            if self.whole_effort is not None and self.whole_effort.over:
                return

    def begin(self) -> None:
        """Restore the runs that one way of the search may take."""
        self.effort = Effort(_SCREENED, within=self.whole_effort)

    @property
    def over(self) -> bool:
        """Return whether nothing more is to be tried by this way of searching, or by any."""
        return self.effort.over or self.session.effort_of_searches.over or self.session.effort.over

    def share_of_operations(self) -> Effort:
        """Return what one search among operations may compute: a part of what is left, so that others have the rest."""
        return Effort(self.session.effort_of_searches.units / _SHARE_OF_OPERATIONS)

    def count_operations(self, operations: int) -> bool:
        """Count operations of the definition that were computed, and return whether more may be."""
        runs = operations / _OPERATIONS_OF_RUN
        self.effort.spend(calls=runs)
        self.session.effort_of_searches.spend(calls=runs)
        # The report then says that not all mistakes are tried.
        self.cut |= self.over
        return not self.over

    def count_run(self, elements: int, runs: float = 1) -> None:
        """Count runs of the definition or of a mistake, whichever search asks for them."""
        self.session.effort_of_searches.spend(elements, runs)

    def screened(self, judged: CaseResult, mistake: Mistake) -> bool | None:
        """Return whether a mistake explains a case, by float64; None if that is undecidable."""
        self.effort.spend(judged.case.size, self.session.subject.costs)
        return self.answer(judged, mistake)

    def _is_allowed_by_screening(self, mistake: Mistake, cases: Sequence[CaseResult]) -> bool:
        return all(self.screened(judged, mistake) is not False for judged in cases)

    def tells(self, mistake: Mistake) -> bool:
        """Return whether float64 shows the mistake clearly in some case."""
        return any(self.screened(judged, mistake) is True for judged in self.wrong)

    def _select_by_balls(self, mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
        """Return the mistakes that balls do not contradict, at most ``_MOST``."""
        result: list[Mistake] = []
        many_wrong, many_right, many_raised = self.session.subject.flow.judged
        beside = [*self.right[:many_right], *self.raised[:many_raised]]
        for mistake in mistakes:
            # The report then says that not all mistakes are tried.
            if self.over:
                self.cut = True
                break
            # Right and failed calls count too: a mistake must not contradict any of them.
            cases = [*self._select_cases_for_mistake(mistake, many_wrong), *beside]
            if explains_all(self._is_explained_by_balls(judged, mistake) for judged in cases):
                result.append(mistake)
            if len(result) >= _MOST:
                break
        return tuple(result)

    def _select_cases_for_mistake(self, mistake: Mistake, many: int) -> list[CaseResult]:
        """Return the smallest wrong cases, fewer if large, and a larger one that shows the mistake if needed."""
        sizes = accumulate(r.case.size for r in self.wrong)
        # Large cases take balls long, so fewer of them judge.
        many = min(many, max(_FEWEST, sum(size <= _ENTRIES for size in sizes)))
        shown = next((i for i, r in enumerate(self.wrong) if self.screened(r, mistake) is True), 0)
        return [*self.wrong[:many], *(self.wrong[shown : shown + 1] if shown >= many else ())]

    def _is_explained_by_balls(self, judged: CaseResult, mistake: Mistake) -> bool | None:
        """Return whether a mistake explains a case, by balls."""
        self.effort.spend(_BALLS * judged.case.size, _BALLS)
        self.count_run(_BALLS * judged.case.size, _BALLS)
        return self.explains(judged, mistake)

    def _confirm_on_fresh_inputs(
        self, mistakes: tuple[Mistake, ...]
    ) -> tuple[tuple[Mistake, ...], list[CaseResult]]:
        """Return the mistakes that also explain fresh inputs, and the cases with these inputs.

        Inputs of other sizes come first: float64 decides about them, and leaves few mistakes to balls.
        """
        remaining: tuple[Mistake, ...] = self._confirmed_at_other_sizes(mistakes)
        tried: list[CaseResult] = []
        if not remaining:
            return (), []
        for case in self.session.subject.source.unseen(self.session, remaining):
            unexplained = lambda r, m: self.explains(r, m) is False  # noqa: E731
            judged, remaining = self._judge_fresh(case, remaining, unexplained)
            tried.append(judged)
            if not remaining or self.session.effort.over:
                break
        wrong = [judged for judged in tried if judged.finding == "values"]
        return tuple(m for m in remaining if self.confirmed(m, wrong)), tried

    def _confirmed_at_other_sizes(self, mistakes: tuple[Mistake, ...]) -> tuple[Mistake, ...]:
        """Return the mistakes that no input of other sizes contradicts; each time, new inputs are drawn."""
        self.begin()
        self.rounds += 1
        session = self.session
        # Other inputs in each round, so that none has a part in choosing what it confirms.
        rng = np.random.default_rng((session.seed, confirming.HELD_OUT_SEED, self.rounds))
        # Residues at other sizes refute a mistake without any call.
        remaining = tuple(m for m in mistakes if not self._other_residues(m))
        contradicts = partial(confirming.contradicts, self)
        for case in session.subject.source.of_other_sizes(session, mistakes, rng):
            if session.effort.over:
                break
            judged, remaining = self._judge_fresh(case, remaining, contradicts)
            self.held_out.append(judged)
            if not remaining:
                break
        return remaining

    def _judge_fresh(
        self,
        case: Case,
        mistakes: tuple[Mistake, ...],
        contradicts: Callable[[CaseResult, Mistake], bool],
    ) -> tuple[CaseResult, tuple[Mistake, ...]]:
        """Return a call with fresh inputs, and the mistakes that it does not contradict.

        The first way of computing is enough where it contradicts none. Otherwise all ways decide, whose bounds take
        most of the time: what the first one does not allow, another one may.
        """
        judged = self.session.run_case(self.session.without_compiling(case), by_first_way=True)
        fresh = self.seen(judged)
        remaining = tuple(m for m in mistakes if not contradicts(fresh, m))
        # What NumPy rounds in another way than JAX does must contradict no mistake.
        if len(remaining) < len(mistakes) and judged.outcome.interpreted:
            judged = self.session.run_case(case, by_first_way=True)
            fresh = self.seen(judged)
            remaining = tuple(m for m in mistakes if not contradicts(fresh, m))
        if len(remaining) < len(mistakes) and not judged.whole:
            fresh = self.seen(self.session.judge_by_all_ways(judged))
            remaining = tuple(m for m in mistakes if not contradicts(fresh, m))
        return fresh, remaining

    def held_out_by_all_ways(self) -> list[CaseResult]:
        """Return the held-out cases, each compared with all ways of computing: mistakes that were not asked there may
        contradict what the first way alone says."""
        self.held_out = [self.session.judge_by_all_ways(r) for r in self.held_out]
        return self.held_out


def answer_beside_condition(judged: CaseResult) -> bool | None:
    """Return whether a case in which a mistake is not made is explained: nothing may be wrong in it."""
    return False if judged.finding in OF_VALUES else None


def explains_all(answers: Iterable[bool | None]) -> bool:
    """Return whether no answer is False and some are True. Stops at the first contradiction."""
    any_true = False
    for answer in answers:
        if answer is False:
            return False
        any_true = any_true or answer is True
    return any_true
