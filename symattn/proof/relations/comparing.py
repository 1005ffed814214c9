"""Decide whether a link of a chain holds for numbers: in balls, or in exact numbers.

The numbers are drawn so that a false relation hardly passes by accident.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from fractions import Fraction
from math import prod, sqrt
from random import Random
from typing import Any

import flint
import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.ball import Ball, OutsideDomain, precision
from symattn.arrays.namespace import Namespace
from symattn.arrays.special import Undefined
from symattn.document.errors import Refused, SymattnError, Undecided
from symattn.document.text import equal_sizes, text
from symattn.proof.drawing import Sign
from symattn.proof.relations.compiling import Compiled, Link
from symattn.proof.relations.named import COMPARED
from symattn.proof.relations.part_values import Unread
from symattn.proof.statement import Numbers, Pair

CLOSER = 2**16  # bits, where two sides are nearly equal
# bits: of numbers beyond 2^±_SCALE a term may be lost in a sum, even with CLOSER bits
_SCALE = CLOSER // 16
_SATURATED = ("tanh", "erf")  # these approach ±1
_TELLING = 3  # numbers at which none is, for an equation to count as checked
# sizes, or entries of all arrays, up to which exact numbers are tried at once
_FEW = 3
_ENTRIES = 8
_LONG, _LINE = 9, 80  # characters of an exact entry, and of all
_SMALL = 2.0**-80  # numbers below it may be rounding
_WIDE = 2.0**-40  # balls wider than this, for numbers of size 1, decide nothing


class FalseStep(AssertionError):
    """Raised for a relation of a document that is false or cannot be read: a defect of symattn."""

    verdict = "what is printed is not so"


class Closer(Undecided):
    """Raised when two balls overlap and cannot be told apart."""


class SideUndefined(Closer):
    """Raised when a side of a relation is undefined for some numbers, which then neither refute nor support it."""


class NotDecided(FalseStep):
    """Raised for a relation that can be read, and is neither shown nor refuted: it may be true."""

    verdict = "what is printed is not shown"


class NotRead(FalseStep):
    """Raised for a relation that cannot be read, or cannot be decided: it may be true."""


class Ordinary(Ball):
    """Balls of ordinary size, so that a term that is lost in a sum beside others is lost for no reason but equality.

    A power of such a number up to the 15th, relative to 1, can still be seen with ``CLOSER`` bits. Raises Closer for a
    number that is too small or too large, or whose tanh or erf is as near to ±1.
    """

    def __init__(self, *planes: np.ndarray) -> None:
        super().__init__(*planes)
        small = flint.arb(2) ** -_SCALE
        large = flint.arb(2) ** _SCALE
        for x in self.entries.flat:
            if not hasattr(x, "rad") or not x.is_finite():
                continue
            # Numbers that far apart make any difference look like rounding.
            if 0 < abs(x) < small or abs(x) > large:
                raise Closer("a number is too small or too large to tell =")

    @classmethod
    def function(cls, name: str, x: Any) -> Any:
        if name in _SATURATED and abs(x) > sqrt(_SCALE):
            raise Closer(f"{name} is too near to ±1 to tell =")
        return super().function(name, x)


Ordinary.xp = Namespace(Ordinary)


def compare_closely(
    compiled: Compiled, equations: Sequence[Link], worlds: Sequence[Numbers]
) -> None:
    """Compare equations again, with ``CLOSER`` bits. Unless they are about rounding, which small terms do not
    survive, some numbers must tell at which no term can be lost; ties and few values only if there are no others.

    Raises FalseStep if the balls refute one, and NotDecided if too few numbers tell.
    """
    spread = [
        w for w in worlds if KINDS[w.seed % len(KINDS)] in ("fractions", "large", "small")
    ] or worlds
    rounds = compiled.glossary.formats or "fl" in compiled.glossary.families
    missing = min(_TELLING, len(spread)) if equations and not rounds else 0
    with precision(CLOSER):
        compared(compiled, equations, worlds[0])
        for world in spread:
            if not missing:
                return
            # A copy, since other relations use the same draws with ordinary balls.
            ordinary = copy(world)
            ordinary.ball = Ordinary
            # Numbers that are too small or too large do not tell.
            with suppress(Closer):
                compared(compiled, equations, ordinary)
                missing -= 1
    if missing:
        first = equations[0]
        raise NotDecided(
            f"{text(first.left)} = {text(first.right)}: a term may be too small to be seen beside others"
        )


def compared(
    compiled: Compiled, every: Sequence[Link], world: Numbers, closer: int = CLOSER
) -> list[float]:
    """Return how near each link comes to equality for these numbers (see ``nearness``).

    Raises FalseStep if the balls refute a link. If two sides of an inequality are nearly equal, compute them again with
    ``closer`` bits (with 0 bits, in exact numbers if sizes are small), and then in exact numbers. Raise Closer if these
    do not tell, and SideUndefined if a side is undefined.
    """
    return [
        _nearness_of_link_sides(compiled, link, world, stated, closer)
        for link, stated in _yield_links_with_pairs(compiled, every, world)
    ]


def compared_if_finite(compiled: Compiled, every: Sequence[Link], world: Numbers) -> bool:
    """Compare as ``compared`` with ``closer=0`` if all sides are finite balls; return whether these tell each link."""
    read = list(_yield_links_with_pairs(compiled, every, world))
    entries = (
        x for _, stated in read for both in stated for side in both for x in side.entries.flat
    )
    # Entries such as −∞ have no radius.
    if not all(hasattr(x, "rad") and x.is_finite() for x in entries):
        return False
    decisions = 0
    for link, stated in read:
        with suppress(Closer):
            _nearness_of_link_sides(compiled, link, world, stated, closer=0)
            decisions += 1
    return decisions == len(read)


def meets(compiled: Compiled, where: Sequence[Link], world: Numbers) -> bool:
    """Return whether these numbers meet the conditions."""
    try:
        compared(compiled, where, world)
    except (FalseStep, Closer):
        return False
    return True


def _yield_links_with_pairs(
    compiled: Compiled, every: Sequence[Link], world: Numbers
) -> Iterator[tuple[Link, list[Pair]]]:
    for link in every:
        try:
            yield link, compiled.stated(link, world)
        except OutsideDomain as reason:
            raise SideUndefined(
                f"a side of {text(link.left)} {link.sign} … is undefined"
            ) from reason


def _nearness_of_link_sides(
    compiled: Compiled, link: Link, world: Numbers, stated: Sequence[Pair], closer: int
) -> float:
    least = 1.0
    for left, right in stated:
        # 0/0 on one side decides nothing about the other.
        if any(isinstance(x, Undefined) for side in (left, right) for x in side.entries.flat):
            raise SideUndefined(
                f"a side of {text(link.left)} {link.sign} {text(link.right)} is undefined"
            )
        if not _holds_or_looks_closer(compiled, link, world, left, right, closer):
            at = equal_sizes(world.sizes) or _list_drawn_entries(compiled, world) or "some numbers"
            raise FalseStep(f"{text(link.left)} {link.sign} {text(link.right)}: false at {at}")
        # How near the sides come guides the search for numbers at which they cross.
        least = min([least, *nearness(left, right)])
    return least


def _list_drawn_entries(compiled: Compiled, world: Numbers) -> str:
    """Return the entries of a few arrays of fixed size, long ones rounded; "" if there are many."""
    exactly, shown = copy(world), list[str]()
    exactly.balls = False
    with suppress(SymattnError, ArithmeticError):  # a number too large for a float is not shown
        for key in compiled.glossary.given:
            name = compiled.argument(key)
            every = exactly.array(name, compiled.declared.arrays[name], compiled.declared).entries
            digits = [*map(str, every.flat)]
            if max(map(len, digits)) > _LONG:
                digits = [f"{x.to_float():.6g}" for x in every.flat]
            equal = "≈" if any("." in x or "e" in x for x in digits) else "="
            shown.append(
                f"{key} {equal} {', '.join(digits) if not every.ndim else '(' + ', '.join(digits) + ')'}"
            )
    result = ", ".join(shown).replace("-", "−")
    whole = len(shown) == len(compiled.glossary.given)
    return result if whole and len(result) <= _LINE else ""


def _holds_or_looks_closer(
    compiled: Compiled, link: Link, world: Numbers, left: Array, right: Array, closer: int
) -> bool:
    try:
        return holds(left, link.sign, right)
    except Closer:
        # Without more bits, exact numbers are tried where they are quick.
        if not closer:
            shapes = compiled.declared.arrays.values()
            entries = sum(prod(map(world.axis, shape.split())) for shape in shapes)
            many = entries > _ENTRIES
            if world.wild or (many and max(world.sizes.values(), default=0) > _FEW):
                raise
            return _holds_exactly(compiled, link, world)
        with precision(closer):
            again = compiled.stated(link, world)
            try:
                return all(holds(a, link.sign, b) for a, b in again)
            except Closer:
                return _holds_exactly(compiled, link, world)


def _holds_exactly(compiled: Compiled, link: Link, world: Numbers) -> bool:
    """Decide a link by exact numbers at the same place. Raises Closer if they lack a function or do not tell."""
    exactly = copy(world)
    exactly.balls = False
    try:
        sides = compiled.stated(link, exactly)
        return all(holds(a, link.sign, b) for a, b in sides)
    except (Unread, Refused, Undecided) as reason:
        raise Closer(f"neither balls nor exact numbers tell {link.sign}") from reason


def nearness(left: Any, right: Any) -> Iterator[float]:
    """Yield |x − y| over the larger of |x| and |y| for each pair of balls that are not both nearly 0."""
    a, b = np.broadcast_arrays(left.entries, right.entries)
    for x, y in zip(a.flat, b.flat, strict=True):
        if hasattr(x, "rad") and hasattr(y, "rad"):
            size_of_x = abs(float(x.mid()))
            scale = max(size_of_x, abs(float(y.mid())))
            if scale > _SMALL:
                yield abs(float((y - x).mid())) / scale


def holds(left: Any, sign: str, right: Any) -> bool:
    """Return whether ``left sign right`` for every entry."""
    a, b = np.broadcast_arrays(left.entries, right.entries)
    entries = zip(a.flat, b.flat, strict=True)
    return all(entry_holds(x, sign, y) for x, y in entries)


def entry_holds(x: Any, sign: str, y: Any) -> bool:
    """Return whether ``x sign y`` for two entries. Raises Undecided."""
    if not hasattr(x, "rad") or not hasattr(y, "rad"):
        try:
            return bool(COMPARED[sign](x, y))
        except TypeError as reason:
            raise Undecided(f"there is no order between {x} and {y}") from reason
    if not (x.is_finite() and y.is_finite()):
        if "nan" in (str(x), str(y)):  # NaN is here equal to itself, and has no order
            return sign == "=" and str(x) == str(y)
        return bool(COMPARED[sign](x, y))
    gap = y - x
    if sign in "=≠":
        if not gap.contains(0):
            return sign == "≠"
        # A wide ball contains 0 whatever the numbers are.
        if gap.rad() > _WIDE * (1 + abs(float(x.mid()))):
            raise Undecided("the balls are too wide to tell")
        return sign == "="
    apart = gap if sign in "<≤" else -gap
    if sign in "≤≥":
        holding, failing = (apart >= 0, apart < 0)
    else:
        holding, failing = (apart > 0, apart <= 0)
    if not holding and not failing:
        raise Closer(f"the balls are too wide to tell {sign}")
    return bool(holding)


# Sizes for sorts in turn; in the longer ones neighbours differ.
_TOPS = ((1,), (2,), (3, 2), (2, 3, 1), (4, 3, 5))
KINDS = ("whole", "fractions", "large", "ties and zeros", "all equal", "small")


class Drawn(Numbers):
    """Draws of rationals as balls: fractions of both signs, large ones, ties and zeros, all equal, whole, small."""

    def __init__(self, sizes: dict[str, int], seed: int) -> None:
        super().__init__(sizes, seed, balls=True)

    def _list_drawn_entries(self, name: str, lengths: list[int], sign: Sign) -> list[Fraction]:
        # Seeded by name and sizes, so that arrays differ from each other.
        own_sizes = sorted(self.sizes.items())
        random = Random(f"{self.seed} {name} {own_sizes}")
        low = {"positive": 1, "nonnegative": 0, "real": -40}[sign]
        return [self._draw_one_entry(random, low) for _ in range(prod(lengths))]

    def _draw_one_entry(self, random: Random, low: int) -> Fraction:
        kind = KINDS[self.seed % len(KINDS)]
        # The kinds take turns with the seed.
        if kind == "all equal":
            return Fraction(max(low, 2))
        if kind == "ties and zeros":
            return Fraction(random.choice([max(low, -1), max(low, 0), 1]))
        if kind == "whole":
            return Fraction(random.randint(max(low, -3), 4))
        fraction = Fraction(random.randint(low, 40), random.choice([7, 9, 11, 13]))
        return fraction * (6 if kind == "large" else Fraction(1, 64) if kind == "small" else 1)


def sizes(sorts: Sequence[str]) -> list[dict[str, int]]:
    """Return sizes that are equal, rise and fall, so that no size passes for another."""
    lists = [*_TOPS, *(top[::-1] for top in _TOPS[2:])]
    every = [{sort: top[i % len(top)] for i, sort in enumerate(sorts)} for top in lists]
    return [x for i, x in enumerate(every) if x not in every[:i]]


def draws(sorts: Sequence[str]) -> Iterator[Drawn]:
    """Yield every kind of numbers at every size."""
    for lengths in sizes(sorts):
        # Without sizes there are few cases, so each kind is drawn more often.
        for seed in range(len(KINDS) * (1 if sorts else 5)):
            yield Drawn(lengths, seed)


class TwoValues(Drawn):
    """Draws from few values, for which many bounds are equations; nonnegative entries are 0, or large, or either."""

    def _list_drawn_entries(self, name: str, lengths: list[int], sign: Sign) -> list[Fraction]:
        # One choice for each array, so that arrays differ in kind.
        own = Random(f"{self.seed} {name}")
        self.values = own.choice([[0], [0], [60], [0, 1, 60]])
        return super()._list_drawn_entries(name, lengths, sign)

    def _draw_one_entry(self, random: Random, low: int) -> Fraction:
        if low == 0:
            return Fraction(random.choice(self.values))
        values = [[0, 1], [0, 2], [-1, 1], [0, 1, -1]][self.seed % 4]
        return Fraction(max(low, random.choice(values)))


class FarApart(TwoValues):
    """Draws with numbers far apart: many bounds are nearly equations."""

    def _draw_one_entry(self, random: Random, low: int) -> Fraction:
        return super()._draw_one_entry(random, low) * (40 if low < 0 else 1)


class _Moderate(Drawn):
    """Draws in which a scalar is neither 0 nor large, where a weaker bound could be equal to a sharp one."""

    def _list_drawn_entries(self, name: str, lengths: list[int], sign: Sign) -> list[Fraction]:
        own = Random(f"{self.seed} {name}")
        scalar = [own.choice([Fraction(1), Fraction(2)])]
        return super()._list_drawn_entries(name, lengths, sign) if lengths else scalar


class ModerateTwoValues(_Moderate, TwoValues):
    """Draws of arrays from few values, and of moderate scalars."""


class ModerateFarApart(_Moderate, FarApart):
    """Draws of arrays with entries far apart, and of moderate scalars."""


class NearlyEqual(Drawn):
    """Draws of nearly equal entries, nearly 0 if they are nonnegative: many bounds are nearly equations."""

    def _draw_one_entry(self, random: Random, low: int) -> Fraction:
        return Fraction(0 if low == 0 else 1) + Fraction(
            random.randint(0, 40), 10 ** (3 + self.seed % 3)
        )


class NearZero(Drawn):
    """Draws of entries that are nearly 0."""

    def _draw_one_entry(self, random: Random, low: int) -> Fraction:
        return (
            Fraction(1)
            if low == 1
            else Fraction(random.randint(low, 40), 10 ** (4 + self.seed % 3))
        )


EXTREME: Mapping[str, tuple[type[Drawn], float]] = {
    "attained": (TwoValues, 2.0**-12),
    "far": (FarApart, 2.0**-12),
    "whole": (ModerateTwoValues, 2.0**-12),
    "apart": (ModerateFarApart, 2.0**-12),
    "approached": (NearlyEqual, 1 / 16),
    "small": (NearZero, 1 / 16),
}
"""Kinds of draws for which bounds are equations, or nearly, and the largest ``nearness`` that counts as equality."""


def extreme(sorts: Sequence[str], kind: type[Drawn]) -> Iterator[Drawn]:
    """Yield draws for which bounds are equations, or nearly; no size is 1."""
    for lengths in sizes(sorts):
        if 1 not in lengths.values():
            yield from (
                kind(lengths, seed) for seed in range(96 if issubclass(kind, _Moderate) else 24)
            )
