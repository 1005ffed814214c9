"""Mistakes tried in float64 before balls decide: clearly impossible ones are ruled out at little cost.

A variant of the definition runs on NumPy arrays, and its output is compared with the function's. The slack is generous:
several times the bound of the right definition, at least a rough bound for the variant's own scores and weights. So
balls would not accept a mistake that is ruled out here; they judge the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, islice
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from symattn.bounds.case_result import OF_VALUES, CaseResult, Part, largest
from symattn.bounds.mistake import Mistake

if TYPE_CHECKING:
    from symattn.verification.diagnosis.causes import Outputs, Search

Array = np.ndarray
T = TypeVar("T")


@dataclass
class ComputedValues(Generic[T]):
    """Values computed from objects, by their ``id``; the objects are stored too, so that their ``id`` stays unique.

    One value that is not to be kept is, until the next one: it is often needed twice in a row.
    """

    results: dict[tuple[int, ...], tuple[tuple[object, ...], T]] = field(default_factory=dict)
    latest: dict[tuple[int, ...], tuple[tuple[object, ...], T]] = field(default_factory=dict)

    def __contains__(self, of: tuple[object, ...]) -> bool:
        """Return whether a value is stored for these objects."""
        return tuple(map(id, of)) in self.results

    def once(self, of: tuple[object, ...], compute: Callable[[], T], keep: bool = True) -> T:
        """Return the value for these objects, computed unless it was stored."""
        key = tuple(map(id, of))
        for stored in (self.results, self.latest):
            if key in stored:
                return stored[key][1]
        result = compute()
        if keep:
            # The objects are stored beside the value, so that no other one can get their identity.
            self.results[key] = of, result
        else:
            self.latest = {key: (of, result)}
        return result


def compared(
    got: Array, wrong: Array, right: Array, ratios: Array | None, slack: Array
) -> bool | None:
    """Return False if ``got`` is no output of a mistake up to the slack, True if it is and the right output is not.

    None if that is undecidable. ``ratios`` are errors as fractions of the bound; without them the shape is wrong.
    """
    # Where the mistake has no number, or no known slack, nothing can be compared.
    result = np.isfinite(wrong) & np.isfinite(slack)
    with np.errstate(all="ignore"):
        # Negated, so that NaN of the function counts as a difference.
        if (~(np.abs(got - wrong) <= slack) & result).any():
            return False
        # A wrong shape has no ratios: the same shape and numbers are an explanation.
        if ratios is None:
            return True if result.any() else None
        apart = ~(np.abs(right - wrong) <= slack)
    return True if ((ratios > 1) & result & apart).any() else None


# -- how much of the error a mistake accounts for ----------------------------------------------------------------------
# A mistake's direction D = o_m − o is compared with the residual y − o. The bound for each element only rules mistakes
# out. In half precision it is wide, and many mistakes are within it; but roundings are far smaller than their bound, so
# that the right mistake leaves next to nothing of the residual, and another one leaves most of it.
LITTLE = 0.1  # of the squared residual: what a mistake that is named may leave
NOTHING = 1e-9  # of the squared residual: what roundings of float64 may leave
_ALIKE = 4  # a mistake that leaves at most this multiple of what the best one leaves is as good
_CASES, _FIRST = 24, 3
_STORED = 512  # entries of the inputs of cases whose own errors are stored
_PARALLEL = 0.98  # two directions whose squared cosine is at least this count as one


def left(search: Search, cases: Sequence[CaseResult], mistake: Mistake, most: float = inf) -> float:
    """Return the mean over the cases of ‖y − o_m‖² / ‖y − o‖², entries in units of the bound; ∞ if undefined.

    Entries that are not finite are ignored. Code may compute in float16 if its contract allows that: then o_m is the
    mistake in that arithmetic, if this leaves less. A mean above ``most`` may be ∞ instead.
    """
    sample = spread(cases, _CASES)
    of_formats = (search.comparable_outputs, search.outputs_in_float16)
    return min(_mean_left(search, sample, partial(_run_on, of, mistake), most) for of in of_formats)


def _run_on(of: Callable[..., Outputs], mistake: Mistake, judged: CaseResult) -> Outputs:
    return of(judged, mistake)


def _mean_left(
    search: Search,
    cases: Sequence[CaseResult],
    outputs_of: Callable[[CaseResult], Outputs],
    most: float,
) -> float:
    shares = list[float]()
    for judged in cases:
        share = left_by(search, judged, outputs_of(judged))
        if share is not None:
            shares.append(share)
        # No share is negative, so that a sum which is too large already stays so. Most mistakes end here, after a case
        # or two of many. The margin is for the two digits that are compared.
        if sum(shares) > 1.1 * most * len(cases):
            return inf
    return float(np.mean(shares)) if shares else inf


def left_by(search: Search, judged: CaseResult, outputs: Outputs) -> float | None:
    """Return ‖y − o_m‖² / ‖y − o‖² for the outputs o_m of a mistake, entries as above; None if undefined."""
    pair = errors_of(search, judged, outputs)
    size = 0.0 if pair is None else np.abs(pair[0]).max(initial=0.0)
    if pair is None or not size:
        # Without any error in the outputs concerned a share is undefined.
        return None
    # Beside infinities, errors that the bound allows are rounding, which any mistake may share by chance.
    if judged.finding == "not finite" and size <= 1:
        return None
    with np.errstate(over="ignore"):  # overflow: such a mistake leaves everything
        e = pair[0] / size
        d = pair[1] / size
        return float(((e - d) ** 2).sum() / (e**2).sum())


def leaves_little(search: Search, judged: CaseResult, outputs: Outputs) -> bool:
    """Return whether these outputs leave little of the error of a case."""
    share = left_by(search, judged, outputs)
    return share is not None and share <= LITTLE


def contradicts_right_cases(search: Search, right: Sequence[CaseResult], mistake: Mistake) -> bool:
    """Return whether the definition leaves little of the errors that the outputs of right cases have as a mistake's.

    In half formats, the bound of a right case may allow the mistake as well.
    """
    pairs = [
        x for r in right if (x := errors_of(search, r, search.outputs(r, mistake))) is not None
    ]
    # The difference of huge outputs may overflow when squared; ∞ then decides.
    with np.errstate(over="ignore"):
        as_right, as_wrong = (
            sum(float((x**2).sum()) for x in of)
            for of in ([e for e, _ in pairs], [e - d for e, d in pairs])
        )
    return as_right < LITTLE * as_wrong


def spread(cases: Sequence[CaseResult], most: int) -> Sequence[CaseResult]:
    """Return at most so many of the cases, from the smallest to the largest."""
    return cases[:: -(-len(cases) // most)] if cases else cases


def errors_of(search: Search, judged: CaseResult, outputs: Outputs) -> tuple[Array, Array] | None:
    """Return y − o and o_m − o of all outputs, over the bound; 0 if one is not finite, None if shapes differ."""
    pairs = search.meant(judged, outputs) if outputs is not None else []
    if not pairs or any(
        p.got is None or not p.got.shape == a.shape == p.expected.allowed.shape for p, a in pairs
    ):
        return None
    errors = []
    with np.errstate(all="ignore"):
        for part, wrong in pairs:
            # The function's own error is the same beside every mistake.
            unit, own = search.own_errors.once(
                (part,), partial(_own_error_in_units, part), judged.case.size <= _STORED
            )
            errors.append([own, ((wrong - part.expected.near) / unit).ravel()])
    error, direction = (
        errors[0] if len(errors) == 1 else map(np.concatenate, zip(*errors, strict=True))
    )
    # An entry that is not finite would decide the sum alone.
    finite = np.isfinite(error) & np.isfinite(direction)
    return (
        (error, direction)
        if finite.all()
        else (np.where(finite, error, 0.0), np.where(finite, direction, 0.0))
    )


def _own_error_in_units(part: Part) -> tuple[Array, Array]:
    """Return the bound of each entry as its unit, and y − o in these units, in one line."""
    near = part.expected.near
    allowed = part.expected.allowed
    # Entries without allowed error have unit 1 if all are so, and do not count otherwise.
    unit = np.where(allowed > 0, allowed, np.inf if (allowed > 0).any() else 1.0)
    return unit, ((np.asarray(part.got) - near) / unit).ravel()


def best(search: Search, cases: Sequence[CaseResult], mistakes: Iterable[Mistake]) -> list[Mistake]:
    """Return the mistakes that leave little, and at most a few times what the best one leaves; the best first. A few
    cases are used for a first selection."""
    # A rough selection on a few cases first, with more slack, then on all.
    for sample, slack in ((cases[:: -(-len(cases) // _FIRST) or 1], 5), (cases, 1)):
        result = ranked(search, sample, mistakes, slack * LITTLE)
        # A best share of exactly 0 must not exclude equals.
        most = min(LITTLE, _ALIKE * result[0][0] + NOTHING) if result else 0
        mistakes = [m for share, m in result if share <= slack * most]
    return [*mistakes]


def ranked(
    search: Search, cases: Sequence[CaseResult], mistakes: Iterable[Mistake], most: float = inf
) -> list[tuple[float, Mistake]]:
    """Return the mistakes with the share that each leaves, the smallest first; equal ones keep their order.

    A share above ``most`` may be ∞ instead.
    """
    # Two digits, so that mistakes that differ by chance alone stay in their order.
    result = [(float(f"{left(search, cases, m, most):.2g}"), m) for m in mistakes]
    return sorted(result, key=lambda x: x[0])


def firsts(
    search: Search, cases: Sequence[CaseResult], mistakes: Sequence[Mistake], count: int
) -> tuple[list[Mistake], list[Mistake]]:
    """Return ``count`` mistakes that account for most of r = y − o, each in another direction; and all others.

    With the best factor θ = ⟨D, r⟩/‖D‖², D = o_m − o accounts for ⟨D, r⟩²/(‖D‖² ‖r‖²): 1 if y lies on the line through
    o and o_m. Of two mistakes at once, the larger one accounts for most.
    """
    shares = []
    chosen = list[tuple[Mistake, Array]]()
    for mistake in mistakes:
        errors = [errors_of(search, judged, search.outputs(judged, mistake)) for judged in cases]
        if errors and not any(pair is None for pair in errors):
            r, d = (
                _of_length_one(np.concatenate(e)) for e in zip(*filter(None, errors), strict=True)
            )
            # Three digits, so that equal directions stay in their order.
            shares.append((float(f"{(d @ r) ** 2:.3g}"), mistake, d))
    in_order = sorted(shares, key=lambda x: -x[0])
    for _, mistake, d in in_order:
        if (
            len(chosen) < count
            and d.any()
            and all((d @ other) ** 2 < _PARALLEL for _, other in chosen)
        ):
            chosen.append((mistake, d))
    first = [mistake for mistake, _ in chosen]
    return first, [mistake for _, mistake, _ in in_order if all(mistake is not m for m in first)]


def _of_length_one(x: Array) -> Array:
    # Divided by the largest entry first, as squares may overflow.
    largest = np.abs(x).max(initial=0.0)
    x = x / largest if largest > 0 else x
    return x / np.sqrt(x @ x) if largest > 0 else x


# -- which mistakes mean the same --------------------------------------------------------------------------------------
#: Matches the words of a mistake with a size of its own.
SIZED = re.compile(
    r"(blocks?|tiles?|first|parts?|merged) (of )?\d+|\d+ (slots|in all|parts|keys)|(//|%) \d+"
)


def are_alike(one: Outputs, other: Outputs) -> bool:
    """Return whether outputs are the same up to roundings of float64."""
    if one is None or other is None:
        return one is other
    near = (
        np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True)
        for a, b in zip(one, other, strict=True)
    )
    return [a.shape for a in one] == [b.shape for b in other] and all(near)


def miss(part: Part, wrong: np.ndarray) -> float:
    got = part.got
    if got is None or got.shape != wrong.shape or not np.isfinite(wrong).all():
        return float("inf")
    return float(np.abs(got - wrong).max(initial=0.0)) / max(largest(part.expected.near), 1e-300)


def is_finite(judged: CaseResult) -> bool:
    """Return whether every output was returned and is finite."""
    return all(part.got is not None and bool(np.isfinite(part.got).all()) for part in judged.parts)


def plainest(mistakes: tuple[Mistake, ...]) -> tuple[Mistake, ...]:
    """Return one mistake for each cause; of those that differ in brackets, or in the sizes at which they are made, the
    first. Mistakes without a size of their own exclude those with one."""
    # A mistake with a size fits by chance more easily than one without.
    everywhere = tuple(m for m in mistakes if not SIZED.search(m.cause))
    mistakes = everywhere or mistakes
    # Reversed twice, so that the first of several mistakes with equal words stays.
    return tuple(
        {
            m.cause.partition(" (")[0].partition(", where ")[0]: m for m in reversed(mistakes)
        }.values()
    )[::-1]


# -- two mistakes at once, likely ones first: neither needs to explain a case alone ------------------------------------
_PARTS = 30  # mistakes of which pairs are tried
_ALONE = 3  # mistakes that are first paired with all others
# every third of the smallest wrong cases shows which mistakes explain some alone
_SMALLEST = 12
_APART = 3
# wrong cases for the search of pairs: of at most so many entries, with the most outputs
_PAIRED = 2
_LARGE = 400
TELLING = (
    150  # entries of inputs that show much and take little time; survivors were asked there first
)
_FIRSTS = 6  # mistakes that are paired with others
_NEAREST = 2  # of these others, those that then take the first one's place
# units for the pairs of one mistake, if runs of the definition are slow as those of a gradient are
_UNITS_OF_ONE = 1600
_FEWEST_OF_ONE = 30  # pairs that are tried, however slow runs are


def likely_pairs(search: Search) -> Iterator[list[Mistake]]:
    """Yield groups of pairs: mistakes explaining one of several outputs, or some cases, alone, with those that leave
    least beside them; those that account for most, and those that leave least with them; at last all others with any,
    as far as the effort goes: if one changes the input of the other, neither needs to account for much."""
    finite = [
        r for r in search.wrong if is_finite(r) and r.ratios is not None and r.case.size <= _LARGE
    ]
    is_slow = search.session.subject.costs > 1

    def order(r: CaseResult) -> tuple[int, int]:
        entries = sum(p.expected.allowed.size for p in r.parts)
        # Of slow definitions the outputs of every mistake are stored where it was screened first.
        return (abs(r.case.size - TELLING), 0) if is_slow else (-entries, r.case.size)

    few = sorted(finite, key=order)[: 1 if is_slow else _PAIRED]
    possible = [*_select_possible_parts(search, few)]
    # By identity, so that a mistake can be taken out once its pairs are tried.
    every = {id(m): m for m in possible}
    in_one = [m for m in every.values() if search.explains_an_output(few, m)]
    for first in islice(search.distinct(in_one, few, every=True), _ALONE):
        yield _pair_mistake_with_others(search, first, every, few)[0]
    search.begin()
    larger, smaller = firsts(search, few, list(every.values()), _FIRSTS)
    # the mistakes that explain some of a few small cases alone, those that explain most first
    small = few if is_slow else search.wrong[:_SMALLEST:_APART]
    # What is stored of slow definitions has been counted already.
    asked = search.answer if is_slow else search.screened
    counts = [(sum(asked(r, m) is True for r in small), m) for m in every.values()]
    alone = [m for count, m in sorted(counts, key=lambda x: -x[0]) if count]
    parts = list(search.distinct(alone, few, every=True))
    for first in parts[:_ALONE]:
        telling = _cases_of_a_second(search, first, few)
        yield _pair_mistake_with_others(search, first, every, telling)[0]
    search.begin()  # the effort of finding those parts is not charged to the mistakes that account for most
    for first in larger:
        pairs, nearest = _pair_mistake_with_others(search, first, every, few)
        for other in nearest:
            pairs += _pair_mistake_with_others(search, other, every, few)[0]
        yield pairs
    yield [both for pair in combinations(parts[:_PARTS], 2) for both in search.combined(*pair)]
    for first in (*parts, *smaller):
        yield _pair_mistake_with_others(search, first, every, few)[0]


def _select_possible_parts(search: Search, few: Sequence[CaseResult]) -> Iterator[Mistake]:
    """Yield the mistakes that spoil no right output of the first case: another one does not undo that, but by chance.

    Runs of slow definitions are counted where no outputs are stored.
    """
    costs = search.session.subject.costs
    for mistake in (*search.possible, *search.further()):
        if not few:
            yield mistake
            continue
        if costs > 1 and (few[0], mistake.way) not in search.computed:
            search.effort.spend(few[0].case.size, costs)
            if search.over:
                return
        if not search.spoils_right_output(few[0], mistake):
            yield mistake


def _cases_of_a_second(
    search: Search, first: Mistake, few: Sequence[CaseResult]
) -> Sequence[CaseResult]:
    """Return the wrong cases that tell what is wrong besides a mistake: a few, if one of them contradicts it.

    A mistake that explains them all has no second one there, which shows at larger sizes alone, such as those of tiles.
    The smallest cases that contradict the first one then tell, held-out ones among them.
    """
    if any(search.screened(judged, first) is False for judged in few):
        return few
    held_out = [r for r in search.held_out_by_all_ways() if r.finding in OF_VALUES]
    every = sorted((*search.wrong, *held_out), key=lambda r: r.case.size)
    beyond = (r for r in every if is_finite(r) and search.screened(r, first) is False)
    return list(islice(beyond, _PAIRED)) or few


def _pair_mistake_with_others(
    search: Search, first: Mistake, every: dict[int, Mistake], few: Sequence[CaseResult]
) -> tuple[list[Mistake], list[Mistake]]:
    """Return the pairs of a mistake with others that leave little, and the others of the pairs that leave least.

    The mistake is removed from ``every``, since its pairs are then tried.
    """
    # Pairs of this mistake are tried already, or there is no effort left.
    if search.over or every.pop(id(first), None) is None:
        return [], []
    others = _likeliest_beside(search, first, [first, *every.values()], few[:1])
    pairs = [(both, m) for m in others for both in search.combined(first, m)]
    # The runs that ranking will take are charged at once.
    search.effort.spend(0, search.session.subject.costs * len(pairs))
    beside = {id(both): m for both, m in pairs}
    in_order = ranked(search, few[:1], [both for both, _ in pairs])
    likely = [both for share, both in in_order if share <= LITTLE]
    return best(search, few, likely), [beside[id(both)] for _, both in in_order[:_NEAREST]]


def _likeliest_beside(
    search: Search, first: Mistake, mistakes: list[Mistake], cases: Sequence[CaseResult]
) -> list[Mistake]:
    """Return the mistakes whose pairs with the first one are run: all, or of a slow definition the likeliest.

    These leave least of r = y − o if changes add up: ‖r − D₁ − D₂‖², with D = o_m − o of either mistake alone.
    """
    costs = search.session.subject.costs
    most = max(_UNITS_OF_ONE // costs, _FEWEST_OF_ONE)
    if costs == 1 or len(mistakes) <= most or not cases:
        return mistakes
    judged = cases[0]
    of_first = errors_of(search, judged, search.outputs(judged, first))
    if of_first is None:
        return mistakes[:most]
    beside = of_first[0] - of_first[1]

    def left_by_sum(mistake: Mistake) -> float:
        errors = errors_of(search, judged, search.outputs(judged, mistake))
        with np.errstate(over="ignore"):
            return float("inf") if errors is None else float(((beside - errors[1]) ** 2).sum())

    # Sorting is stable, so that equal ones stay in their order.
    return sorted(mistakes, key=left_by_sum)[:most]
