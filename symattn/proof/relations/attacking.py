"""Numbers at which a bound may fail: its two sides are computed in floats at many points at once, and the points at
which it comes nearest to failing, or fails already, are moved on.

The points begin at all scales; in half of them, an array is another one plus a little, or a multiple of another one.
Where the sides of a strict bound may meet, simple numbers are tried; if balls see them meet at others, it is open.
Floats only suggest where to look: who asks confirms what is yielded here in exact numbers or in balls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache, partial
from itertools import cycle, islice, permutations, product
from math import prod
from typing import Any

import numpy as np

from symattn.arrays.ball import precision
from symattn.arrays.entries import Entries
from symattn.arrays.functions import of_floats
from symattn.arrays.namespace import Namespace
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.text import text
from symattn.proof.relations import comparing
from symattn.proof.relations.compiling import Compiled, Link, has_waves
from symattn.proof.relations.far import peaks
from symattn.proof.relations.part_values import Unread
from symattn.proof.statement import Declared, Numbers

_TURNS = ((2, 2), (2, 3), (3, 2))  # sizes, for sorts in turn
# of one sort, between which its sides may come near to each other
_SIZES = (1, 2, 4, 8, 16, 32, 64)
_MANY = 400  # entries at sizes that conditions ask for
_ORDERS = 6  # permutations that are tried at each sizes: all of three
# points of a round, those moved on by each measure, and rounds at each sizes
_POINTS = 256
_KEPT = 16
_ROUNDS = 14
# points, and how far out, where sines or cosines of entries are taken
_SCANNED = 2**15
_FAR_WAVES = 1000.0
_READS = 24  # of the sides for the points of a round, which are as many as there are cells with some of them
_YIELDED = 3  # points at each sizes that are to be confirmed, at most
_BEYOND = 1e-9  # rounding explains a smaller failure of a bound, relative to its sides
# denominators of all entries but one, along which the sides of a strict bound may meet
_ROUNDED = (1, 2, 3, 5, 7, 60)
# by which the sides are brought nearest to each other
_STEPS = np.linspace(-2, 2, 9)
_WIDTHS = 4.0 ** -np.arange(22)
# widths of steps along each entry, and steps of each width
_COMPASS = 2.0 ** -np.arange(40)
_TURNED = 4
_BITS = 256  # of balls that tell whether they do
_BESIDE = 2.0**-10  # of a place at which they seem to meet, relative to its entries
_NARROW = [Fraction(1, 4**k) for k in range(12, 60)]  # the same, in balls
_EQUAL = 2.0**-200  # a smaller difference, in balls, counts as none
_ENTRIES = 12  # of all arrays together that such points move
_SIMPLE = 1000  # the largest denominator of the entry, or of its square, at which they meet
_MEETING = 8  # points from which such points are sought, and points that are to be confirmed, at each sizes


class _Mixed(Undecided):
    """Raised for a comparison that holds at some of the points; its argument says at which."""


def _make_pointwise_operator(function: Callable[[Any, Any], Any]) -> Any:
    def apply(self: PointValues, other: Any) -> Any:
        y = other.values if isinstance(other, PointValues) else other
        if not isinstance(y, (int, np.ndarray, np.floating)):
            # Python then tries the operation of the other operand.
            return NotImplemented
        return PointValues(function(self.values, y))

    return apply


def _make_pointwise_comparison(function: Callable[[Any, Any], Any]) -> Any:
    def compare(x: PointValues, y: PointValues) -> bool:
        result = function(x.values, y.values)
        # Where points compare differently, each part of them is read apart.
        if np.any(result) and not np.all(result):
            raise _Mixed(result)
        return bool(np.all(result))

    return staticmethod(compare)


class PointValues:
    """One number for each point."""

    __add__ = __radd__ = _make_pointwise_operator(np.add)
    __mul__ = __rmul__ = _make_pointwise_operator(np.multiply)
    __sub__, __truediv__ = (
        _make_pointwise_operator(np.subtract),
        _make_pointwise_operator(np.divide),
    )

    def __init__(self, values: Any) -> None:
        self.values = values


class ManyPoints(Entries):
    """Arrays whose entries are columns of floats; a comparison must have the same result at all points."""

    name, holds = "many", "floats at many points"
    less, same = _make_pointwise_comparison(np.less), _make_pointwise_comparison(np.equal)
    larger = staticmethod(_make_pointwise_operator(np.maximum))

    @classmethod
    def function(cls, name: str, x: Any) -> Any:
        return PointValues(of_floats(name, x.values))

    @classmethod
    def scalar(cls, value: Any) -> Any:
        plain = value.to_sympy() if hasattr(value, "to_sympy") else value
        return value if isinstance(value, PointValues) else PointValues(np.float64(plain))


ManyPoints.xp = Namespace(ManyPoints)


class Placed(Numbers):
    """Numbers whose arrays are given: as columns of floats, or as rationals, taken as balls."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        entries: Mapping[str, Sequence[Any]],
        seed: int,
        many: bool = False,
    ) -> None:
        super().__init__(sizes, seed, balls=not many)
        self.entries, self.many = entries, many

    @property
    def kind(self) -> Any:
        return ManyPoints if self.many else super().kind

    def permutation(self, name: str, sort: str) -> np.ndarray:
        # The seed numbers the permutations, again from the first after the last.
        orders = cycle(permutations(range(self.axis(sort))))
        return np.array(next(islice(orders, self.seed, None)))

    def array(self, name: str, shape: str, declared: Declared) -> Any:
        if name not in self.entries:
            return super().array(name, shape, declared)
        # Filled in two steps, since NumPy would take sequences in entries as further axes.
        entries = np.empty(len(self.entries[name]), dtype=object)
        entries[:] = self.entries[name]
        lengths = [self.axis(a) for a in shape.split()]
        return self.lift(entries.reshape(lengths))


class Rooted(Placed):
    """Numbers whose squares are given, with their signs."""

    def lift(self, entries: Any) -> Any:
        # The root of |x| with the sign of x.
        signs = super().lift(np.where(entries < 0, -1, 1))
        return signs * self.xp.sqrt(super().lift(abs(entries)))


def worlds(
    compiled: Compiled,
    every: Sequence[Link],
    where: Sequence[Link],
    begins: Sequence[dict[str, int]] = (),
    begun: Callable[[int], None] = lambda places: None,
) -> Iterator[Placed]:
    """Yield numbers at which, in floats, the conditions hold and a bound is false.

    ``begun`` is called with the number of places from which each ascent began.
    """
    bounds = [x for x in every if x.sign != "="]
    sorts = compiled.declared.sorts()
    touched = False
    usual = [{sort: turn[n % 2] for n, sort in enumerate(sorts)} for turn in _TURNS]
    # Larger sizes would make each evaluation slow.
    few = [x for x in begins if sum(Numbers(x).entry_counts(compiled.declared)) <= _MANY]
    sizes = [one for one in few[:2] or usual if bounds]
    sizes += [
        one
        for sort in sorts
        if bounds
        for one in _yield_nearest_sizes(compiled, bounds, where, sort)
    ]
    # A seed stands for a permutation.
    seeds = range(_ORDERS if compiled.declared.permutations else 1)
    distinct = [x for n, x in enumerate(sizes) if x not in sizes[:n]]
    for lengths, seed in product(distinct, seeds):
        attack = Attack(compiled, bounds, where, lengths, seed)
        yield from attack.points()
        begun(attack.places_begun)
        for strict in (True, False):
            yield from filter(attack.is_declared, attack.meetings(strict))
        touched |= attack.touched
    if touched:
        first = text(bounds[0].left)
        raise comparing.NotDecided(
            f"{first} {bounds[0].sign} …: its sides come as near to each other as balls tell"
        )


def _yield_nearest_sizes(
    compiled: Compiled, bounds: Sequence[Link], where: Sequence[Link], sort: str
) -> Iterator[dict[str, int]]:
    """Yield sizes at which the sides of a bound come nearer to each other than at those around, for equal entries."""

    @cache
    def lengths(n: int) -> dict[str, int]:
        return {**dict.fromkeys(compiled.declared.sorts(), 2), sort: n}

    @cache
    def near(n: int) -> float:
        attack = Attack(compiled, bounds, where, lengths(n), 0)
        # With equal entries, sizes are all that changes.
        return float(attack.failures(np.full((1, attack.count), 1.0))[1, 0])

    yield from map(lengths, peaks(near, _SIZES))


def _signed_square(x: Fraction) -> Fraction:
    return x * abs(x)


class Attack:
    """The search at given sizes."""

    def __init__(
        self,
        compiled: Compiled,
        bounds: Sequence[Link],
        where: Sequence[Link],
        sizes: Mapping[str, int],
        seed: int,
    ) -> None:
        self.compiled, self.bounds, self.where, self.sizes, self.seed = (
            compiled,
            bounds,
            where,
            sizes,
            seed,
        )
        # A fixed seed: the same statement is attacked at the same points.
        self.random = np.random.default_rng(0)
        declared, world = compiled.declared, Numbers(sizes)
        # Points on circles are drawn as usual, since steps would leave the circle.
        drawn = {name for pair in declared.units for name in pair}
        lengths = {
            name: prod(map(world.axis, s.split()))
            for name, s in declared.arrays.items()
            if name not in drawn
        }
        ends = np.cumsum([0, *lengths.values()]).tolist()
        pairs = zip(lengths, ends, ends[1:], strict=False)
        self.places = {name: slice(a, b) for name, a, b in pairs}
        self.count = ends[-1]
        self.worst: np.ndarray = np.empty((0, self.count))
        self.touched = False
        self.places_begun = 0

    def points(self) -> Iterator[Placed]:
        """Yield numbers at which a bound is false in floats, the worst of a round first."""
        points, left = self._first_attack_points(), _YIELDED
        # Sines and cosines have many peaks, so points far out are scanned as well.
        if has_waves(self.bounds):
            points = np.concatenate(
                [points, self.random.uniform(-_FAR_WAVES, _FAR_WAVES, (_SCANNED, self.count))]
            )
        failures = self.failures(points)
        self.places_begun = int(np.isfinite(failures[0]).sum()) if self.count else 0
        for _ in range(_ROUNDS if self.count else 0):
            worst = int(np.argmax(failures[0]))
            # No point meets the conditions, or enough points were tried.
            if failures[0, worst] == -np.inf or not left:
                return
            if failures[0, worst] > _BEYOND:
                left -= 1
                yield self._place_points_in_arrays(points[worst])
                # A point that was tried must not be the worst of the next round too.
                failures[:, worst] = -np.inf
            # ``meetings`` starts from the points with the nearest sides.
            self.worst = points[np.argsort(failures[1])[-_MEETING:]]
            # Both measures, relative and absolute, choose the points that move on.
            survivors = np.unique(np.argsort(failures)[:, -_KEPT:])
            new = self._move_points_nearby(points[survivors])
            failures = np.concatenate([failures[:, survivors], self.failures(new)], axis=1)
            points = np.concatenate([points[survivors], new])

    def meetings(self, strict: bool) -> Iterator[Placed]:
        """Yield numbers at which the sides of a bound may be equal, or fail by little: those along one entry at which
        they come nearest, as they are or, if it or its square is about a simple fraction, at this fraction; the other
        entries are rounded. Then those at which they come nearest if all entries are moved."""
        bounds = [x for x in self.bounds if (x.sign in "<>≠") == strict]
        # Steps along an entry would leave a circle.
        if not bounds or self.compiled.declared.units:
            return
        rows, axes, gaps = self._nearest_along_axes(bounds)
        if 1 < self.count <= _ENTRIES and len(self.worst):
            lowest, least = self._nearest_of_all(bounds)
            rows = np.concatenate([rows, lowest])
            gaps = np.concatenate([gaps, least])
            axes = np.concatenate([axes, np.full(lowest.shape, True)])
        # Points that agree to six digits count as one.
        different, unseen = np.unique(np.round(rows, 6), axis=0, return_index=True)[1], True
        for n in different[np.argsort(-gaps[different])][:_MEETING]:
            entries_by_name = self._place_points_in_arrays(rows[n]).entries
            simple = [
                Rooted(
                    self.sizes,
                    {name: [*map(near, entries)] for name, entries in entries_by_name.items()},
                    self.seed,
                )
                for near in (
                    lambda x: _signed_square(x.limit_denominator(_SIMPLE)),
                    lambda x: _signed_square(x).limit_denominator(_SIMPLE),
                )
            ]
            yield from simple
            moved = axes[n].sum() > 1
            # Where all entries moved, only sides that nearly meet are examined.
            if moved and -gaps[n] > _BEYOND:
                continue
            here = (
                self._minimize_room_along_axes(rows[n], axes[n], bounds)
                if moved
                else self._place_points_in_arrays(rows[n])
            )
            if any(
                self._are_sides_touching(here, rows[n], axis, bounds)
                for axis in np.diag(axes[n])[axes[n]]
            ):
                self.touched |= strict
                if unseen and not any(
                    abs(self._bound_room_between_sides(bounds, one)[1]) < _EQUAL for one in simple
                ):
                    unseen = False
                    yield (
                        here if moved else self._minimize_room_along_axes(rows[n], axes[n], bounds)
                    )

    def _nearest_along_axes(
        self, bounds: Sequence[Link]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return points at which the sides come nearest along one entry each, these entries, and the differences."""
        # Near a plain number a bound is often sharp, so that points are rounded.
        rounded = [np.round(self.worst * q) / q for q in _ROUNDED]
        whole = np.array([self.worst] * len(rounded))
        rows = np.array(rounded)
        # With many entries only some of the axes are tried.
        axis = np.eye(self.count, dtype=bool)[:: 1 + self.count // _ENTRIES]
        every_row = rows[:, :, None]
        axis_rows = whole[:, :, None]
        moved_rows = np.where(axis, axis_rows, every_row)
        rows = moved_rows.reshape(-1, self.count)
        repeats = len(rows) // max(len(axis), 1)
        axes = np.tile(axis, (repeats, 1))
        gaps = np.empty(0)
        # Narrower steps each time, around the best point so far.
        for width in _WIDTHS:
            rows, gaps = self._move_by_best_step(
                rows, width * _STEPS[:, None] * axes[:, None], bounds
            )
        return rows, axes, gaps

    def _nearest_of_all(self, bounds: Sequence[Link]) -> tuple[np.ndarray, np.ndarray]:
        """Return points, and the sides' difference there, from which no step along an entry brings the sides nearer."""
        unit = np.eye(self.count)
        steps = np.concatenate([np.zeros((1, self.count)), unit, -unit])
        points, gaps = self.worst, np.empty(0)
        for width in np.repeat(_COMPASS, _TURNED):
            points, gaps = self._move_by_best_step(points, width * steps, bounds)
        return points, gaps

    def _move_by_best_step(
        self, points: np.ndarray, steps: np.ndarray, bounds: Sequence[Link]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Move each point by the step that brings the sides nearest to each other; return their differences, too."""
        tried = points[:, None] + steps
        failures = self.failures(tried.reshape(-1, self.count), bounds)[1]
        every = failures.reshape(tried.shape[:2])
        best = np.argmax(every, axis=1)
        points_of_rows = np.arange(len(points))
        return tried[points_of_rows, best], every.max(axis=1, initial=-np.inf)

    def is_declared(self, world: Placed) -> bool:
        """Return whether entries that are declared positive or nonnegative are; rounding may have changed that."""
        positive, nonnegative = self.compiled.declared.positive, self.compiled.declared.nonnegative
        return all(
            x > 0 or (x == 0 and name not in positive)
            for name in (*positive, *nonnegative)
            for x in world.entries.get(name, ())
        )

    def _are_sides_touching(
        self, here: Placed, point: np.ndarray, axis: np.ndarray, bounds: Sequence[Link]
    ) -> bool:
        """Return whether the sides, in balls, are 10⁹ times as near to each other here as on both sides along the axis,
        and no strict condition and no sign is nearly violated."""
        little = _BESIDE * (1 + np.abs(point))
        strict = [x for x in self.where if x.sign in "<>≠"]
        # A positive entry near 0 is near the boundary of what is declared.
        if any(
            (np.abs(point) < little)[self.places[name]].any()
            for name in self.compiled.declared.positive
        ):
            return False
        beside = [
            self._bound_room_between_sides(
                bounds, self._place_points_in_arrays(point + side * little * axis)
            )[0]
            for side in (1, -1)
        ]
        near = self._bound_room_between_sides(bounds, here)[1] < _BEYOND * min(beside)
        return near and self._bound_room_between_sides(strict, here)[0] > little.max()

    def _minimize_room_along_axes(
        self, point: np.ndarray, axes: np.ndarray, bounds: Sequence[Link]
    ) -> Placed:
        """Return the numbers at which larger − smaller is least in balls, near here, moved along the axes in turn."""
        every = [
            x for entries in self._place_points_in_arrays(point).entries.values() for x in entries
        ]

        def at(numbers: Sequence[Fraction]) -> Placed:
            arrays = {name: numbers[here] for name, here in self.places.items()}
            return Placed(self.sizes, arrays, self.seed)

        # The middle one of five steps is the best of the five before.
        @cache
        def room(*numbers: Fraction) -> float:
            return self._bound_room_between_sides(bounds, at(numbers))[1]

        def room_if_moved(n: int, x: Fraction) -> float:
            return room(*every[:n], x, *every[n + 1 :])

        # One entry after another, in steps that shrink to a quarter each time.
        for width, n in product(_NARROW, np.flatnonzero(axes).tolist()):
            steps = (every[n] + width * step for step in (0, -2, -1, 1, 2))
            every[n] = min(steps, key=partial(room_if_moved, n))
        return at(every)

    def _bound_room_between_sides(
        self, links: Sequence[Link], world: Placed
    ) -> tuple[float, float]:
        """Return a lower and an upper bound of the least difference larger − smaller, or apart, of two sides; from
        balls, and infinite where they do not tell."""
        ends = [(np.inf, np.inf)]
        with precision(_BITS), suppress(Unread, Refused, Undecided, InputError, ZeroDivisionError):
            for link in links:
                for a, b in self.compiled.stated(link, world):
                    gaps = [
                        y - x if link.sign in "≤<" else x - y
                        for x, y in np.broadcast(a.entries, b.entries)
                    ]
                    # Sides of an equation are as far apart as their distance, whatever its sign.
                    gaps = [*map(abs, gaps)] if link.sign in "=≠" else gaps
                    ends += [(float(x.lower()), float(x.upper())) for x in gaps]
        least_end = min(least for least, _ in ends)
        return least_end, min(most for _, most in ends)

    def _first_attack_points(self) -> np.ndarray:
        """Return points at all scales, half of them with arrays that are near or multiples of each other."""
        random = self.random
        points = random.standard_normal((_POINTS, self.count))
        # Rounded points have ties.
        points[::4] = np.round(points[::4])
        points *= 10.0 ** random.uniform(-2, 3, (_POINTS, 1))
        near = points[1::2]
        for here in self.places.values():
            others = [
                near[:, x]
                for x in self.places.values()
                if x.stop - x.start == here.stop - here.start
            ]
            chosen = random.integers(len(others), size=len(near))
            other = np.array(others)[chosen, np.arange(len(near))]
            one, exact, negative = random.random((3, len(near), 1)) < 0.5
            powers = 10.0 ** random.uniform(-3, 3, one.shape)
            flip = np.where(negative & ~one, -1, 1)
            factor = np.where(one, 1, powers) * flip
            little = random.standard_normal(other.shape) * 10.0 ** random.uniform(-4, 0, one.shape)
            near[:, here] = factor * other + np.where(exact, 0, little)
        return points

    def _move_points_nearby(self, survivors: np.ndarray) -> Any:
        """Return new points near those that were kept, along their differences, or scaled."""
        random = self.random
        a, b, c = survivors[random.integers(len(survivors), size=(3, _POINTS))]
        away = random.standard_normal(a.shape) * (
            random.random(a.shape) < random.choice((0.3, 1.0))
        )
        largest = np.abs(a).max(axis=1, keepdims=True)
        sizes = largest * 10.0 ** random.uniform(-4, 0, (_POINTS, 1))
        scaled = 2.0 ** random.uniform(-3, 3, (_POINTS, 1))
        # A random step, a step along the difference of two points, or a scaling.
        how = random.integers(3, size=(_POINTS, 1))
        along_line = a + scaled / 4 * (b - c)
        between = np.where(how == 1, along_line, a * scaled)
        return np.where(how == 0, a + sizes * away, between)

    def _place_points_in_arrays(self, point: np.ndarray, many: bool = False) -> Placed:
        declared, entries = self.compiled.declared, {}
        for name, here in self.places.items():
            # A positive entry stays above 0 after any step.
            least = 2.0**-20 if name in declared.positive else 0.0
            signed = (
                np.abs(point[here]) + least
                if name in (*declared.positive, *declared.nonnegative)
                else point[here]
            )
            entries[name] = (
                [*map(PointValues, signed)] if many else [*map(Fraction, signed.tolist())]
            )
        return Placed(self.sizes, entries, self.seed, many)

    def failures(self, points: np.ndarray, bounds: Sequence[Link] | None = None) -> np.ndarray:
        """Return by how much some bound fails at each point, relative to its sides, and as it is; −∞ where a condition
        is not met, or a side is not finite or nearly 0 like the other. Points that compare differently are read apart.
        """
        result = np.full((2, len(points)), -np.inf)
        waiting = [np.arange(len(points))]
        for _ in range(_READS):
            if not waiting:
                break
            rows = waiting.pop()
            try:
                with np.errstate(all="ignore"):
                    result[:, rows] = self._measure_ratios_and_gaps(
                        points[rows], self.bounds if bounds is None else bounds
                    )
            except _Mixed as mixed:
                (there,) = mixed.args
                # The largest group comes last and is read next, as the number of reads is limited.
                waiting = sorted([*waiting, rows[there], rows[~there]], key=len)
            except Exception:  # whatever floats lack: they only suggest where to look
                break
        return result

    def _measure_ratios_and_gaps(self, points: np.ndarray, bounds: Sequence[Link]) -> np.ndarray:
        world = self._place_points_in_arrays(points.T, True)
        none = np.full(len(points), -np.inf)
        ratios, gaps, met = none, none, np.full(len(points), True)
        for gap, scale in (x for link in bounds for x in self._yield_gaps_and_scales(link, world)):
            # Relative to both sides, unless these are nearly 0.
            relative = np.where(scale > _BEYOND, gap / scale, -np.inf)
            ratios = np.fmax(ratios, relative)
            finite = np.where(np.isfinite(gap), gap, -np.inf)
            gaps = np.fmax(gaps, finite)
        # "≠" excludes single points, which floats rarely meet.
        for gap, _ in (
            x
            for link in self.where
            if link.sign != "≠"
            for x in self._yield_gaps_and_scales(link, world)
        ):
            met &= gap <= 0
        return np.where(met, (ratios, gaps), -np.inf)

    def _yield_gaps_and_scales(self, link: Link, world: Placed) -> Iterator[tuple[Any, Any]]:
        """Yield smaller − larger and |smaller| + |larger| for each entry of a bound."""
        for left, right in self.compiled.stated(link, world):
            for x, y in np.broadcast(left.entries, right.entries):
                gap = np.subtract(
                    *((x.values, y.values) if link.sign in "≤<" else (y.values, x.values))
                )
                sizes = np.abs(x.values) + np.abs(y.values)
                yield np.abs(gap) if link.sign == "=" else gap, sizes
