"""Sizes far beyond those at which each entry can be drawn, up to 10³⁰: the places of an axis are taken in groups.

The entries of a group are one ball, in which all of them lie, and a sum counts it as often as the group has places.
What needs single places, such as a mask, is refused; so is what would build arrays of such lengths.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache
from heapq import nlargest
from itertools import islice, product
from math import inf, isqrt, log, prod
from random import Random
from typing import Any

import flint
import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.namespace import Lacking, Namespace
from symattn.arrays.planes import Size
from symattn.document.errors import Refused, Undecided
from symattn.proof.drawing import Sign
from symattn.proof.relations import beyond, comparing
from symattn.proof.relations.compiling import Compiled, Link, has_waves
from symattn.proof.relations.part_values import Unread
from symattn.proof.statement import Declared, Numbers

# of each axis; of the only axis of all arrays
_GROUPS = ((13, 17, 19, 23, 29, 31), (97, 101, 103, 107, 109, 113))
_SINGLE = 4  # one in so many groups is a single place
# The largest size taken around a printed number.
_LARGEST = 10**30
# Sizes between which a nearest one is searched for.
_DOUBLED = [2**k for k in range(100)]
_WAVES = 1024  # the most sizes that are tried one by one where a sine or cosine of sizes is taken
_POWERS = (2, 4, 7, 12, 18, 30)  # of ten, taken as sizes
_SEVERAL = 12  # draws of several sizes
_NAMED = 24  # sizes at and around the printed numbers, if no entries are drawn; otherwise _FEW
_FEW = 6  # sizes of a peak, or combinations of sizes, that are drawn at
# for sizes asked for
_TRIED = (16, 20, 30, 32, 50, 64, 100, 128, 200, 300, 500, 1000, 3000, 10**4, 10**6)
_TUPLES = 1500  # of such sizes
# Operations that have the same result for a group as for each of its entries, or sum over axes.
_OFFERED = {
    "add", "subtract", "multiply", "divide", "negative", "maximum", "minimum", "abs", "pow", "exp", "log", "sqrt",
    "tanh", "erf", "cos", "sin", "exp2", "log2", "less", "less_equal", "greater", "greater_equal", "equal",
    "not_equal", "isfinite", "isinf", "isnan", "where", "sum", "max", "min", "any", "all", "mean", "matmul", "ndim",
    "shape", "permute_dims", "matrix_transpose", "moveaxis", "expand_dims", "squeeze", "stack", "broadcast_to",
    "full", "kind", "asarray", "astype", "arange", "inf", "pi", "bool", "int64", "float32", "float64",
}  # fmt: skip


class _Groups:
    """The groups of an axis: the first places alone, then groups whose ends grow like powers."""

    def __init__(self, length: int, count: int) -> None:
        first = count // _SINGLE
        ends = [*range(count // _SINGLE + 1)]
        for k in range(first + 1, count + 1):
            # Ends grow like powers; each group has one place at least, the later ones too.
            share = (k - first) / (count - first)
            end = int(first * (length / first) ** share)
            beyond_last = max(end, ends[-1] + 1)
            ends.append(min(beyond_last, length - count + k))
        self.length, self.ends = length, [*ends[:-1], length]
        edges = zip(self.ends, self.ends[1:], strict=False)
        self.counts = [b - a for a, b in edges]

    def place(self, x: object) -> int:
        """Return the group of a place. Raises Refused for what is no place."""
        if not isinstance(x, int):
            raise Refused("a part of an axis of groups")
        if not -self.length <= x < self.length:
            raise IndexError(f"the index {x} of {self.length} entries")
        return bisect(self.ends, x % self.length) - 1

    def positions(self) -> list[Any]:
        """Return the balls of 0, 1, 2, … in each group."""
        return [
            flint.arb(a).union(flint.arb(b - 1))
            for a, b in zip(self.ends, self.ends[1:], strict=False)
        ]


class _Grouped(Ball):
    """Balls for all entries of groups; ``groups`` has those of an axis by their number, which is like no other's."""

    name = "grouped"
    groups: Mapping[int, _Groups]

    @property
    def shape(self) -> tuple[Size, ...]:
        return tuple(
            Size(self.groups[n].length if n in self.groups else n, type(self))
            for n in self.plain_shape
        )

    @classmethod
    def _sum(cls, a: Any, axis: int) -> Any:
        groups = cls.groups.get(a.plain_shape[axis])
        # A group counts as often as it has places.
        if groups:
            counts = np.reshape(
                cls._lift_numbers_to_arbs(groups.counts), (-1, *[1] * (a.ndim - axis - 1))
            )
            a = cls._mul(a, cls(counts))
        return super()._sum(a, axis)

    @classmethod
    def _matmul(cls, a: Any, b: Any) -> Any:
        groups = cls.groups.get(a.plain_shape[-1])
        return super()._matmul(
            cls._mul(a, cls(cls._lift_numbers_to_arbs(groups.counts))) if groups else a, b
        )

    @classmethod
    def _lift_numbers_to_arbs(cls, numbers: list[Any]) -> np.ndarray:
        return cls.lift(numbers).entries

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        axis, key, whole = (
            0,
            list[Any](),
            self.ndim - sum(x is not None and x is not ... for x in parts),
        )
        for x in parts:
            whole_slice = isinstance(x, slice) and x == slice(None)
            plain = x is None or x is ... or whole_slice
            groups = None if plain else self.groups.get(self.plain_shape[axis])
            # An index along an axis of groups means the group of its place.
            key.append(groups.place(x) if groups else x)
            axis += whole if x is ... else x is not None
        return super().__getitem__(tuple(key))

    def __setitem__(self, index: Any, value: object) -> None:
        raise Refused("an entry of groups cannot be set")


class _Namespace(Namespace):
    """The operations that can be done group by group."""

    kind: Any

    def __getattribute__(self, name: str) -> Any:
        # An operation that is not listed might take a group for one entry.
        if not name.startswith("_") and name not in _OFFERED:
            raise Lacking(f"grouped lacks {name}")
        return super().__getattribute__(name)

    def _compact_grouped_shape(self, shape: Any) -> tuple[int, ...]:
        by_length = {g.length: n for n, g in self.kind.groups.items()}
        result = tuple(
            by_length.get(int(n), int(n)) for n in (shape if isinstance(shape, tuple) else (shape,))
        )
        if max(result, default=0) > _GROUPS[1][-1]:
            raise Refused("an axis of no groups")
        return result

    def arange(self, *ends: int) -> Any:  # type: ignore[override]
        (count,) = self._compact_grouped_shape(ends)
        groups = self.kind.groups.get(count)
        # A short axis has its positions one by one.
        if not groups:
            return np.arange(count)
        return self.kind(np.array(groups.positions(), dtype=object))

    def full(self, shape: Any, fill_value: object, *_: object, **__: object) -> Any:
        return self.broadcast_to(self.kind.of(fill_value), shape)

    def broadcast_to(self, a: Any, shape: Any) -> Any:
        return a.map(lambda plane: np.broadcast_to(plane, self._compact_grouped_shape(shape)))

    def stack(self, arrays: Any, axis: int = 0) -> Any:
        # Else the new axis would pass for one of groups.
        if len(arrays) in self.kind.groups:
            raise Refused("as many arrays as an axis has groups")
        entries = [self.kind.of(x).entries for x in arrays]
        return self.kind(np.stack(entries, axis))


class Far(Numbers):
    """Numbers at any sizes, for relations that are about groups of entries alone."""

    def __init__(
        self, sizes: Mapping[str, int], seed: int, declared: Declared, flat: bool = False
    ) -> None:
        super().__init__(sizes, seed, balls=True)
        axes = {a for shape in declared.arrays.values() for a in shape.split() if not a.isdigit()}
        sorts = {*axes, *declared.sorts()}
        lengths = {a: super(Far, self).axis(a) for a in sorts}
        # The number of groups identifies an axis, so no fixed length may equal it.
        numbers = [
            n
            for n in _GROUPS[flat]
            if all(str(n) not in s.split() for s in declared.arrays.values())
        ]
        # Each long axis needs a number of groups of its own.
        most = len(numbers)
        if sum(n >= numbers[0] for n in {*lengths.values()}) > most:
            raise Refused("so many sizes")
        long = dict(
            zip(sorted({n for n in lengths.values() if n >= numbers[0]}), numbers, strict=False)
        )
        self.counts = {a: long.get(n, n) for a, n in lengths.items()}
        groups = {count: _Groups(length, count) for length, count in long.items()}
        grouped: Any = type("Grouped", (_Grouped,), {"groups": groups})
        grouped.xp, self.grouped = _Namespace(grouped), grouped

    @property
    def kind(self) -> Any:
        if self.ball or not self.balls:
            raise comparing.Closer("numbers at sizes so large are balls")
        return self.grouped

    def axis(self, text: str) -> int:
        """Return the number of groups."""
        return self.counts[text] if text in self.counts else super().axis(text)

    def _list_drawn_entries(self, name: str, lengths: list[int], sign: Sign) -> list[Fraction]:
        count, low = prod(lengths), {"positive": 1, "nonnegative": 0, "real": -40}[sign]
        least = Fraction(max(low, 0))
        largest = max(self.sizes.values(), default=1)
        first = (1, 1000, log(largest), isqrt(largest), largest)
        if self.seed < len(first):  # in the first row
            row = min(lengths[-1] if len(lengths) > 1 else 1, count)
            large = [Fraction(first[self.seed])] * row
            return large + [least] * (count - row)
        if self.seed < len(first) + 3:  # nowhere, everywhere, or in the first column
            steps = (count + 1, 1, lengths[-1] if lengths else 1)
            step = steps[self.seed - len(first)]
            return [least if n % step or step > count else Fraction(1) for n in range(count)]
        random = Random(f"{self.seed} {name}")
        scale, few = (
            random.choice((1, 1, Fraction(1, 40), 40, isqrt(largest))),
            random.random() < 0.5,
        )
        every = (
            Fraction(random.randint(low, 40), random.choice((7, 9, 11))) * scale
            for _ in range(count)
        )
        return [least if few and random.random() < 0.8 else x for x in every]


def lengths(
    met: Callable[[Far], bool], declared: Declared, numbers: tuple[Fraction, ...]
) -> list[dict[str, int]]:
    """Return small sizes that are ``met``, or [] if the usual ones are; see ``draws.sizes``."""
    sorts, random = declared.sorts(), Random(0)

    def fitting(one: Mapping[str, int]) -> bool:
        with suppress(Refused, Undecided, Unread):
            return met(Far(one, 0, declared))
        return False

    # If a third of the usual sizes fit, no others are needed.
    if sum(map(fitting, usual := comparing.sizes(sorts))) > len(usual) // 3:
        return []
    near = [*range(1, 13), *_TRIED, *_list_sizes_around_numbers(numbers, False)]
    every = [*product(near, repeat=len(sorts))] if len(sorts) < 3 else []
    every = [
        *islice(every, _TUPLES),
        *(tuple(random.choices(near, k=len(sorts))) for _ in range(_TUPLES)),
    ]
    # The smallest sizes that fit come first.
    ordered = sorted(dict.fromkeys(every), key=lambda x: (sum(x), x))
    return [
        *islice((one for x in ordered if fitting(one := dict(zip(sorts, x, strict=True)))), _FEW)
    ]


def draws_at(declared: Declared, every: Iterable[dict[str, int]]) -> Iterator[Numbers]:
    """Yield draws at these sizes."""
    for one in every:
        if beyond.fits(declared, one):
            yield from (comparing.Drawn(one, seed) for seed in range(len(comparing.KINDS)))
        else:
            yield from (Far(one, seed, declared) for seed in range(DRAWS))


def peaks(near: Callable[[int], float], every: Sequence[int]) -> Iterator[int]:
    """Yield sizes at which ``near`` is larger than at those around, searched for between three of ``every``."""
    for low, middle, high in zip(every, every[1:], every[2:], strict=False):
        around = near(low), near(high)
        if near(middle) > min(around) and near(middle) >= max(around):
            # Ternary search: one peak is assumed between the outer sizes.
            while high - low > 2:
                third = (high - low) // 3
                a, b = low + third, high - third
                if near(a) > near(b):
                    low, high = (low, b)
                else:
                    low, high = (a, high)
            yield max(range(low, high + 1), key=near)


def turning(compiled: Compiled, bounds: Sequence[Link], base: Mapping[str, int]) -> Iterator[Far]:
    """Yield sizes, which alone a bound is about, at which its sides come nearest to each other; a search between
    doubled sizes needs few turning points, so that with sines or cosines each size is tried."""
    waves = has_waves(bounds)
    # One size at a time, the others as they are.
    for sort in compiled.declared.sorts():

        @cache
        def near(n: int, sort: str = sort) -> float:
            gaps = [-inf]
            world = Far({**base, sort: n}, 0, compiled.declared)
            # Sizes at which a side is undefined are no turning points.
            with suppress(Unread, Refused, Undecided, ZeroDivisionError, OverflowError):
                for x in bounds:
                    for a, b in compiled.stated(x, world):
                        gap = (a - b if x.sign in "≤<" else b - a).entries
                        gaps += [float(y.mid()) for y in gap.flat]
            return max(gaps)

        # A wave may turn anywhere, so that every size is looked at.
        every = nlargest(_FEW, range(1, _WAVES), key=near) if waves else peaks(near, _DOUBLED)
        yield from (Far({**base, sort: n}, 0, compiled.declared) for n in every)


DRAWS = 11  # of entries, for each sizes


def worlds(
    declared: Declared,
    numbers: tuple[Fraction, ...],
    flat: bool,
    entries: bool,
    base: Mapping[str, int],
) -> Iterator[Far]:
    """Yield draws at sizes of all magnitudes, the others as in ``base``, and at and around the printed ``numbers``;
    without ``entries`` in the relation, one for each sizes."""
    sorts, random = declared.sorts(), Random(0)
    every = [
        {**base, sort: n}
        for sort in sorts
        for n in [*(10**k for k in _POWERS), *_list_sizes_around_numbers(numbers, entries)]
    ]
    for _ in range(_SEVERAL if len(sorts) > 1 else 0):
        # The summand k makes equal draws differ.
        several = [
            round(10 ** random.uniform(0, random.choice(_POWERS))) + k for k in range(len(sorts))
        ]
        every.append(dict(zip(sorts, several, strict=True)))
    distinct = [x for n, x in enumerate(every) if x not in every[:n]]
    seeds = range(DRAWS if entries else 1)
    for lengths, seed in product(distinct, seeds):
        # Sizes for which there are too few numbers of groups are left out.
        with suppress(Refused):
            yield Far(lengths, seed, declared, flat)


def _list_sizes_around_numbers(numbers: tuple[Fraction, ...], entries: bool) -> list[int]:
    """Return sizes at and next to each number, its reciprocal, square, root and exponential; few if there are
    ``entries``."""
    candidates = set[int]()
    # Bounds may change their order at a printed number, its powers, root or exponential.
    for x in numbers:
        e = Fraction(2.718281828 ** float(x)) if x < log(_LARGEST) else Fraction(0)
        turning = (x, 1 / x, x * x, isqrt(int(x)), e)
        candidates |= {int(y) + k for y in turning for k in (0, 1, 2)}
    result = sorted(n for n in candidates if 2 < n <= _LARGEST)
    step = 1 + len(result) // (_FEW if entries else _NAMED)
    return result[::-step]
