"""Refute a statement: run both sides on exact numbers at growing sizes until they differ.

``search`` takes small numbers, for counterexamples that are easy to read. ``thorough`` decides whether a statement may
be called searched: it takes wild numbers, sizes beyond the whole numbers in the statement, and thousands of points in
floating point, which only suggest where to look: exact numbers or balls must confirm a difference.

The numbers that a statement names are read from its code, and recorded while it runs: a number that it computes (11!),
or takes from a class or a text, is no literal in the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice
from math import prod
from random import Random
from typing import Any

import numpy as np

from symattn.arrays.index.array import irrational
from symattn.arrays.notes import Met, Polynomial, listening, meet_place, meeting, value_at
from symattn.document.errors import InputError, Meaningless, Refused, SymattnError, Undecided
from symattn.document.text import equal_sizes
from symattn.proof.code import reached
from symattn.proof.statement import Declared, Letters, Numbers, Sides, growing_sizes, pairs

TRIES = 400  # sizes tried, the small ones first
# wild points in exact numbers; in floats at small sizes; at the largest ones
WILD = 60
FLOATS = 400
LARGE = 12
ENTRIES = 20_000  # the most entries of an array in floats
_APART = 1e-6  # a larger difference of floats, relative to the largest there, is examined again
# every size up to EACH is tried in floats; products of at most SEVERAL named numbers
EACH = 64
SEVERAL = 6
EXACT = 9  # the largest size in exact numbers
# the largest sizes at which differences are confirmed in exact numbers and in balls
EXACTLY_AT = 64
CONFIRMED = 256
# larger ones, as far as arrays may have them
_LADDER = tuple(round(EACH * 2 ** (k / 3)) for k in range(1, 16))
_LOOKED_AT = 12  # the most differences that are examined again
_ENOUGH = 3  # exact points of a spot check at which both sides are equal
_SILENT = 12  # points in a row that floats cannot run
# Both patterns read texts of notes: a note that is worded otherwise is not recognised.
_FLOAT = re.compile(r"the float (\S+) was taken")
_CAST = re.compile(r"astype\((\w+)\) kept")
_EXACTLY = ("float", "float64", "None")  # casts to these do not count as rounding


@dataclass(frozen=True)
class RefutingExample:
    """A counterexample: sizes and a seed at which the two sides differ, the place, and their exact values there."""

    sizes: dict[str, int]
    seed: int
    place: tuple[int, ...]
    left: str
    right: str

    def __str__(self) -> str:
        sizes = equal_sizes(self.sizes) or "some numbers"
        place = list(self.place)
        return f"{sizes}: {self.left} and {self.right} at {place} (seed {self.seed})"


@dataclass(frozen=True)
class CounterexampleSearch:
    """The result of a search: a counterexample, or the number of inputs at which both sides were equal.

    ``doubt`` says why equality at these inputs does not suffice for ``searched``; ``first`` are the first sizes of a
    ``spot_check`` at which both sides were defined. ``in_floats`` is the number of points at which floats agreed, up to
    the size ``furthest``. ``decided`` says in words where the difference of the sides reduces to 0 in every case.
    """

    counterexample: RefutingExample | None
    agreed: int
    undefined: int
    largest: dict[str, int]
    doubt: str = ""
    first: dict[str, int] = field(default_factory=dict)
    in_floats: int = 0
    furthest: int = 0
    decided: str = ""

    @property
    def tried(self) -> str:
        """Describe what was tried: "60 draws of exact numbers at sizes up to n = 5, 700 in floats up to size 91"."""
        sizes = f" at sizes up to {equal_sizes(self.largest)}" if self.largest else ""
        exactly = f"{self.agreed} draws of exact numbers{sizes}"
        reached = f" up to size {self.furthest}" if self.furthest else ""
        return (
            f"{exactly}, {self.in_floats} in floating point{reached}" if self.in_floats else exactly
        )


def search(sides: Sides, declared: Declared, top: int = 3, seeds: int = 2) -> CounterexampleSearch:
    """Run both sides on exact numbers at sizes 1, …, ``top`` until they differ."""
    # Small sizes come first, so that a counterexample is easy to read.
    every = islice(growing_sizes(declared.sorts(), top), TRIES)
    return _search_counterexample(
        sides, declared, (Numbers(sizes, seed) for sizes in every for seed in range(seeds))
    )


def spot_check(
    sides: Sides, declared: Declared, top: int = 3, enough: int = _ENOUGH
) -> CounterexampleSearch:
    """Search at a few sizes that differ from each other, until both sides were equal ``enough`` times."""
    every = enumerate(spread_sizes(declared.sorts(), top))
    return _search_counterexample(
        sides, declared, (Numbers(sizes, seed) for seed, sizes in every), enough
    )


def _search_counterexample(
    sides: Sides, declared: Declared, worlds: Iterable[Numbers], enough: int = 0
) -> CounterexampleSearch:
    """Try numbers until the sides differ, or were equal ``enough`` times."""
    result, agreed, undefined = None, 0, 0
    first: dict[str, int] = {}
    largest: dict[str, int] = {}
    for world in worlds:
        try:
            # Shapes that fit by chance at some sizes make agreement there meaningless.
            result, defined = _find_clean_difference(sides, declared, world)
        except Meaningless as reason:  # shapes that fit at some sizes alone
            return CounterexampleSearch(None, 0, undefined, {}, str(reason))
        agreed, undefined = agreed + defined, undefined + (not defined)
        first = world.sizes if defined and agreed == 1 else first
        if defined and sum(world.sizes.values()) >= sum(largest.values()):
            largest = world.sizes
        if result or agreed == enough > 0:
            break
    return CounterexampleSearch(result, agreed, undefined, largest, first=first)


def spread_sizes(sorts: list[str], top: int) -> list[dict[str, int]]:
    """Return the sizes 1, 2, 1, …; 2, 1, 2, …; then with 2 and 3; then all 1, 2, 3; none above ``top``."""
    # Sizes differ between neighbours, so that two swapped axes show.
    turns = [(1, 2), (2, 1), (2, 3), (3, 2), (1, 1), (2, 2), (3, 3)]
    return [{sort: min(turn[i % 2], top) for i, sort in enumerate(sorts)} for turn in turns]


def counterexample(sides: Sides, declared: Declared, top: int = 3) -> RefutingExample | None:
    """Return a counterexample in small numbers, else in others."""
    result = search(sides, declared, top).counterexample
    return result or thorough(sides, declared, top).counterexample


def thorough(
    sides: Sides, declared: Declared, top: int = 3, beyond: dict[str, int] | None = None
) -> CounterexampleSearch:
    """Look hard for a counterexample; ``beyond`` are sizes at which one is likely."""
    brought, sorts = named(sides, declared), declared.sorts()
    # Two more than the largest named number: code may branch at the number or next to it.
    in_range = (n for n in brought.sizes if n <= LARGEST)
    highest = max(top, 2 + max(in_range, default=1))
    before = _search_counterexample(
        sides, declared, _yield_exact_worlds(sorts, brought, top, highest, beyond or {})
    )
    # A doubt of exact numbers cannot be removed by floats, so the slower search is left out.
    if before.counterexample or before.doubt:
        return before
    float_search = _by_floats(sides, declared, brought, top, highest)
    doubt = float_search.doubt
    # Sizes beyond LARGEST would need arrays that are too large to run.
    if sorts and max(brought.sizes, default=0) > LARGEST:
        doubt = (
            doubt
            or f"{max(brought.sizes)}, which the statement names, and more were not tried as sizes"
        )
    doubt = doubt or brought.doubt
    large = next(
        (sizes for sizes in brought.branches if not _is_within_entry_limit(declared, sizes)), None
    )
    if large and not doubt:
        doubt = f"sizes {equal_sizes(large)}, at which the code branches, were not tried"
    return replace(
        float_search,
        agreed=before.agreed,
        undefined=before.undefined,
        largest=before.largest,
        doubt=doubt,
    )


def suspected(sides: Sides, declared: Declared, top: int = 3) -> Iterator[Numbers]:
    """Yield numbers, as balls, at which the sides differ in floats, at sizes beyond ``top`` + 2: each up to EACH."""
    brought = named(sides, declared)
    for sizes, seed in _yield_sizes_and_seeds(declared, brought, top, top):
        balls, floats = (
            Numbers(sizes, seed, x, True, not x, brought.numbers) for x in (True, False)
        )
        # Smaller sizes were compared in exact numbers, larger ones cannot be confirmed.
        if top + 2 < max(sizes.values(), default=0) <= CONFIRMED and _floats_differ(
            sides, declared, floats
        ):
            yield balls


def by_cells(
    sides: Sides, declared: Declared, before: CounterexampleSearch
) -> CounterexampleSearch:
    """Search where comparisons of entries are walked cell by cell, after the search ``before``."""
    from symattn.proof.cells import cells

    # Cells use letters, whose notes and numbers must not reach the records of the caller.
    with listening(), meeting():
        walked = cells(sides, declared, named(sides, declared))
    outcomes = [_find_clean_difference(sides, declared, world) for world in walked.worlds]
    result = next((outcome for outcome, _ in outcomes if outcome), None)
    missing = before.undefined + (not walked.defined)
    return replace(
        before,
        counterexample=result,
        agreed=before.agreed + sum(defined for _, defined in outcomes),
        undefined=missing,
        doubt=walked.doubt,
        decided=walked.where_decided(),
    )


def _yield_exact_worlds(
    sorts: list[str], brought: NamedNumbers, top: int, highest: int, beyond: dict[str, int]
) -> Iterator[Numbers]:
    """Yield exact numbers to try: at ``beyond``, wild at small sizes, and with one size at a time up to ``highest``."""
    # Sizes at which a counterexample is likely come first: two with small, two with wild numbers.
    for seed in range(4 if beyond else 0):
        sizes = {s: max(beyond.get(s, 1), 1) for s in sorts}
        yield Numbers(sizes, seed, wild=seed > 1, literals=brought.numbers)
    random = Random(0)
    for seed in range(WILD):
        yield Numbers(
            {s: random.randint(1, top) for s in sorts}, seed, wild=True, literals=brought.numbers
        )
    for seed, sort in enumerate(sorts):
        # One size at a time: with all sizes large, exact numbers would be slow.
        for n in range(top + 1, min(highest, EXACT) + 1):
            yield Numbers(
                {s: n if s == sort else 2 for s in sorts},
                seed,
                wild=bool(n % 2),
                literals=brought.numbers,
            )


def _by_floats(
    sides: Sides, declared: Declared, brought: NamedNumbers, top: int, highest: int
) -> CounterexampleSearch:
    """Return a point where floats differ and balls or exact numbers confirm it, or a doubt that could not be tested,
    with the number of points at which floats agree."""
    confirmed = silent = agreed = furthest = 0

    def search_result(
        example: RefutingExample | None = None, doubt: str = ""
    ) -> CounterexampleSearch:
        return CounterexampleSearch(example, 0, 0, {}, doubt, in_floats=agreed, furthest=furthest)

    for sizes, seed in _yield_sizes_and_seeds(declared, brought, top, highest):
        apart = _floats_differ(
            sides, declared, Numbers(sizes, seed, wild=True, floats=True, literals=brought.numbers)
        )
        # Only failures in a row count: a statement may be undefined at a few sizes.
        silent = silent + 1 if apart is None else 0
        if silent > _SILENT:
            unrun = "floating point cannot run it at the sizes at which it branches"
            # If code branches, sizes that floats cannot run may hide cases.
            return search_result(doubt=unrun if brought.branches else "")
        largest = max(sizes.values(), default=0)
        if apart is False:
            agreed, furthest = agreed + 1, max(furthest, largest)
        # Balls first: they reach larger sizes, and disjoint balls prove a difference.
        again = ((True, CONFIRMED), (False, EXACTLY_AT)) if apart else ()
        for balls in (balls for balls, most in again if largest <= most):
            result, _ = _find_clean_difference(
                sides, declared, Numbers(sizes, seed, balls, wild=True, literals=brought.numbers)
            )
            if result:
                return search_result(result)
        # Too large for exact numbers: the difference is neither confirmed nor excluded.
        if apart and largest > EXACTLY_AT:
            return search_result(doubt=f"floating point differs at {equal_sizes(sizes)}")
        # Differences that exact numbers do not confirm are rounding errors; a few are enough.
        confirmed += bool(apart)
        if confirmed == _LOOKED_AT:
            break
    return search_result()


def _is_within_entry_limit(declared: Declared, sizes: Mapping[str, int]) -> bool:
    return max(Numbers(sizes).entry_counts(declared), default=0) <= ENTRIES


def _yield_sizes_and_seeds(
    declared: Declared, brought: NamedNumbers, top: int, highest: int
) -> Iterator[tuple[dict[str, int], int]]:
    """Yield sizes and seeds: many small ones, then large ones as long as arrays stay below ``ENTRIES``.

    Each size runs through all small numbers, a ladder of larger ones, and through those that the statement names,
    their products and cubes, and the neighbours of all these.
    """
    random, sorts = Random(1), declared.sorts()
    # Few, since their products grow fast and each of them adds a run.
    named_sizes = brought.sizes[:SEVERAL]
    result = {
        *brought.sizes,
        *(a * b for a in named_sizes for b in named_sizes),
        *(a**3 for a in named_sizes),
    }
    lengths = sorted(
        {
            *range(1, EACH + 1),
            *_LADDER,
            *(n + k for n in result if n <= LARGEST for k in (-1, 0, 1)),
        }
    )
    alone = ({s: n if s == sort else 2 for s in sorts} for sort in sorts for n in lengths)
    # Branching sizes come first: a difference is most likely there.
    for seed, sizes in enumerate([*map(dict, brought.branches), *alone]):
        if _is_within_entry_limit(declared, sizes):
            yield sizes, seed
    for seed in range(FLOATS):
        yield {s: random.randint(1, top + seed % 3) for s in sorts}, seed
    # Each of the largest points makes another choice of sorts large, as far as arrays may grow.
    for seed in range(LARGE if sorts else 0):
        large = random.sample(sorts, 1 + seed % len(sorts))
        sizes = {
            s: max(highest, 8) + seed % 4 if s in large else random.randint(1, top) for s in sorts
        }
        if _is_within_entry_limit(declared, sizes):
            yield sizes, seed


def _floats_differ(sides: Sides, declared: Declared, world: Numbers) -> bool | None:
    """Return whether both sides differ in floats; None if they cannot run there."""
    try:
        # Overflow and 0/0 are expected for wild numbers; the next lines drop such entries.
        with np.errstate(all="ignore"):
            for left, right in pairs(sides, declared, world):
                a, b = np.broadcast_arrays(
                    _convert_to_plain_floats(left), _convert_to_plain_floats(right)
                )
                result = np.isfinite(a) & np.isfinite(b)
                gap = np.abs(a[result] - b[result])
                # Relative to the largest entry: a small one may be a difference of large terms.
                of_left = np.abs(a[result])
                larger = np.maximum(of_left, np.abs(b[result]))
                if (gap > _APART * larger.max(initial=0)).any():
                    return True
    except Exception:  # whatever floats lack: they only suggest where to look
        return None
    return False


def _convert_to_plain_floats(x: object) -> np.ndarray:
    from symattn.arrays.floats import Float64

    return np.asarray(x.planes[0] if isinstance(x, Float64) else x, dtype=np.float64)


def _find_clean_difference(
    sides: Sides, declared: Declared, world: Numbers
) -> tuple[RefutingExample | None, bool]:
    """Return a difference at these numbers, if any, and whether both sides were defined and could be compared."""
    with listening() as notes:
        result, defined = _find_unequal_entries(sides, declared, world)
    # A difference that comes from a float for π, or from a rounded cast, refutes nothing.
    return (None, False) if meaningless(notes) else (result, defined)


def _find_unequal_entries(
    sides: Sides, declared: Declared, world: Numbers
) -> tuple[RefutingExample | None, bool]:
    from symattn.arrays.special import Forbidden, Undefined

    try:
        for left, right in pairs(sides, declared, world):
            a, b = np.broadcast_arrays(
                _entries_of_refuting_side(left, world.balls),
                _entries_of_refuting_side(right, world.balls),
            )
            # Arrays without entries agree with anything, so they count as undefined.
            if not a.size:
                return None, False
            for place in np.ndindex(a.shape):
                entries = (a[place], b[place])
                if any(isinstance(x, (Undefined, Forbidden)) for x in entries):
                    return None, False
                if world.balls and not (a[place] < b[place] or a[place] > b[place]):
                    continue  # overlapping balls decide nothing
                if a[place] != b[place]:
                    result = world.sizes, world.seed, place, str(a[place]), str(b[place])
                    return RefutingExample(*result), True
    # Shapes that do not fit at all concern the statement, not these numbers.
    except Meaningless:
        raise
    except (Refused, Undecided, InputError, ZeroDivisionError):
        return None, False
    # Balls can only show a difference: overlap is no equality.
    return None, not world.balls


def _entries_of_refuting_side(x: object, balls: bool = False) -> np.ndarray:
    from symattn.arrays.ball import Ball
    from symattn.arrays.exact import Exact

    return (Ball if balls else Exact).of(x).entries


def meaningless(notes: Iterable[str]) -> str:
    """Return why the notes of a run make it meaningless: a float for π, a cast that rounds; empty if they do not."""
    result = list(notes)
    floats = (float(match[1]) for note in result if (match := _FLOAT.search(note)))
    casts = (match[1] for note in result if (match := _CAST.search(note)))
    wrong = next((f"the float {x!r} is not {name}" for x in floats if (name := irrational(x))), "")
    return wrong or next((f"a cast to {to} rounds" for to in casts if to not in _EXACTLY), "")


LARGEST = 2000  # the largest size at which the sign of a length is evaluated
_BRANCHES = 64  # the most sizes at which branches of the code are searched for
_RUN_AT = 2  # the length of every axis when a statement is run to record its numbers


@dataclass(frozen=True)
class NamedNumbers:
    """The numbers of a statement. ``sizes``: integers above 1, to take sizes around; ``numbers``: for entries.

    ``branches`` are sizes at or next to which the code branches; ``doubt`` says that there are more.
    """

    sizes: tuple[int, ...]
    numbers: tuple[Fraction, ...]
    branches: tuple[Mapping[str, int], ...] = ()
    doubt: str = ""


def _make_recording_comparison(name: str) -> Callable[[int, object], Any]:
    def compared(self: int, other: object) -> Any:
        if isinstance(other, int):
            # Only comparisons with numbers tell where code branches; two lengths have no number.
            meet_place(int(other))
        return getattr(int, name)(self, other)

    return compared


class _Length(int):
    """A length that records the whole numbers with which it is compared, where code needs it as a number."""

    __lt__, __le__, __gt__ = (
        _make_recording_comparison("__lt__"),
        _make_recording_comparison("__le__"),
        _make_recording_comparison("__gt__"),
    )
    __ge__, __eq__, __ne__ = (
        _make_recording_comparison("__ge__"),
        _make_recording_comparison("__eq__"),
        _make_recording_comparison("__ne__"),
    )
    # A class that defines __eq__ loses the inherited hash.
    __hash__ = int.__hash__


class _Numbers(Numbers):
    def length(self, sort: str) -> int:
        return _Length(super().length(sort))


def named(sides: Sides, declared: Declared) -> NamedNumbers:
    """Return the numbers in the code of a statement, and those recorded when it runs on letters and on numbers."""
    written = literals(sides)
    in_letters = _meet_statement_numbers(sides, declared, Letters())
    # Letters reach what depends on sizes; numbers reach code that refuses letters.
    in_numbers = _meet_statement_numbers(
        sides, declared, _Numbers(dict.fromkeys(declared.sorts(), _RUN_AT))
    )
    places = in_letters.places | in_numbers.places
    sizes = {*written, *(abs(n) for n in places)}
    met = in_letters.numbers | in_numbers.numbers | {Fraction(n) for n in written}
    # 0 and 1 are in nearly all code and name nothing.
    numbers = {abs(x) for x in met} - {0, 1}
    return NamedNumbers(
        tuple(sorted(n for n in sizes if n > 1)),
        tuple(sorted(numbers)),
        *_find_branching_sizes(sides, declared),
    )


def _find_branching_sizes(
    sides: Sides, declared: Declared
) -> tuple[tuple[Mapping[str, int], ...], str]:
    """Return the sizes at and next to which a condition on sizes in the code changes, and a doubt if there may be more.

    The next sizes that leave a remainder are added after each size, except sizes that were added for a remainder.
    """
    # Starts from small equal sizes: other branches are reached from the sizes added below.
    pending: list[dict[str, int]] = [dict.fromkeys(declared.sorts(), n) for n in (1, 2, 3, 4)]
    result: list[dict[str, int]] = []
    periodic: list[dict[str, int]] = []
    while pending:
        sizes = pending.pop()
        met = _meet_statement_numbers(sides, declared, Letters(), sizes)
        # The same condition may be met at many entries.
        gaps = {tuple(sorted(gap.items())): gap for gap in met.branches}
        turns = [
            (sort, *_sizes_at_sign_changes(gap, sort, sizes))
            for gap in gaps.values()
            for sort in _sorts_in_length(gap, sizes)
        ]
        # A remainder recurs without end, so sizes added for it must not add further ones.
        repeated = (
            []
            if sizes in periodic
            else [
                (sort, _next_sizes_with_remainder(*one, sort, sizes), False)
                for one in met.remainders
                for sort in _sorts_in_length(one[0], sizes)
            ]
        )
        for n, (sort, lengths, far) in enumerate([*turns, *repeated]):
            # Sizes listed already are not examined again, so the search ends.
            fresh = [
                new for new in ({**sizes, sort: length} for length in lengths) if new not in result
            ]
            result, pending = result + fresh, pending + fresh
            periodic += fresh if n >= len(turns) else []
            # Beyond the limit the list is incomplete, and the caller must say so.
            if far or len(result) > _BRANCHES:
                return tuple(
                    result
                ), "the code branches on sizes, and not all of its ways were tried"
    return tuple(result), ""


def _sorts_in_length(length: Polynomial, sizes: Mapping[str, int]) -> list[str]:
    return [sort for sort in sizes if any(sort in letters for letters in length)]


def _next_sizes_with_remainder(
    length: Polynomial, modulus: int, remainder: int, sort: str, sizes: Mapping[str, int]
) -> list[int]:
    """Return the next size of ``sort`` at which the length leaves the remainder, and its neighbours, or []."""
    # One full period: the remainder occurs in it or nowhere.
    after = range(sizes[sort] + 1, sizes[sort] + modulus + 1)
    fitting = (n for n in after if value_at(length, {**sizes, sort: n}) % modulus == remainder)
    # The size before the first candidate is the present one, which is examined already.
    around = ([n, n + 1] if n == after[0] else [n - 1, n, n + 1] for n in fitting)
    return next(around, [])


def _sizes_at_sign_changes(
    gap: Polynomial, sort: str, sizes: Mapping[str, int]
) -> tuple[list[int], bool]:
    """Return the sizes of ``sort`` at and next to which the sign changes, and whether it may change beyond LARGEST."""
    powers: dict[int, Fraction] = {}
    for letters, c in gap.items():
        others = prod(sizes[s] for s in letters if s != sort)
        powers[letters.count(sort)] = (
            powers.get(letters.count(sort), Fraction(0)) + Fraction(c) * others
        )
    top = max((p for p, c in powers.items() if c), default=0)
    signs = [
        0,
        *(
            _sign_of_fraction(sum((c * n**p for p, c in powers.items()), Fraction(0)))
            for n in range(1, LARGEST + 1)
        ),
    ]
    # Both sides of each change: code may use < or ≤.
    changes = (n for n in range(2, LARGEST + 1) if signs[n] != signs[n - 1])
    turns = {m for n in changes for m in (n - 1, n)}
    # Cauchy's bound: no root of the polynomial is larger in absolute value.
    ratios = (abs(c / powers[top]) for p, c in powers.items() if p < top)
    bound = 1 + max(ratios, default=Fraction(0))
    # A line has one root: the final sign at LARGEST shows that the root lies below.
    return sorted(turns), bound > LARGEST and (
        top > 1 or signs[-1] != _sign_of_fraction(powers[top])
    )


def _sign_of_fraction(x: Fraction) -> int:
    return (x > 0) - (x < 0)


def _meet_statement_numbers(
    sides: Sides,
    declared: Declared,
    world: Letters | Numbers,
    sizes: Mapping[str, int] | None = None,
) -> Met:
    """Run the statement until it ends or is refused, and record its numbers; ``sizes`` decide comparisons."""
    with meeting(sizes) as result, listening():
        try:
            for pair in pairs(sides, declared, world):
                for side in pair:
                    # Entries are computed lazily, and comparisons occur only when an entry is read.
                    for place in side.places() if hasattr(side, "places") else ():
                        side.at(place)
        except (SymattnError, ArithmeticError, TypeError, IndexError):
            pass  # a number that only some sizes give, say a remainder, can only be compared
    return result


def literals(*functions: object) -> tuple[int, ...]:
    """Return the integers above 1 in the code of functions, in values they hold, and in user code they call."""
    result = {abs(x) for x in reached(*functions) if isinstance(x, int)}
    return tuple(sorted(n for n in result if n > 1))
