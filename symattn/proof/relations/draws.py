"""Numbers for testing a relation, chosen so that a false one hardly passes by accident."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import prod
from random import Random

from symattn.proof.drawing import Sign
from symattn.proof.statement import Numbers

_TOPS = ((1,), (2,), (3, 2), (2, 3, 1), (4, 3, 5))
KINDS = ("whole", "fractions", "large", "ties and zeros", "all equal", "small")


class Drawn(Numbers):
    """Draws of rationals as balls: fractions of both signs, large ones, ties and zeros, all equal, whole, small."""

    def __init__(self, sizes: dict[str, int], seed: int) -> None:
        super().__init__(sizes, seed, balls=True)

    def _entries(self, name: str, lengths: list[int], sign: Sign) -> list[Fraction]:
        random = Random(f"{self.seed} {name} {sorted(self.sizes.items())}")
        low = {"positive": 1, "nonnegative": 0, "real": -40}[sign]
        return [self._entry(random, low) for _ in range(prod(lengths))]

    def _entry(self, random: Random, low: int) -> Fraction:
        kind = KINDS[self.seed % len(KINDS)]
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
    every = [{sort: top[i % len(top)] for i, sort in enumerate(sorts)} for top in _TOPS]
    every += [{sort: top[-1 - i % len(top)] for i, sort in enumerate(sorts)} for top in _TOPS[2:]]
    return [x for i, x in enumerate(every) if x not in every[:i]]


def draws(sorts: Sequence[str]) -> Iterator[Drawn]:
    """Yield every kind of numbers at every size."""
    for lengths in sizes(sorts):
        for seed in range(len(KINDS) * (1 if sorts else 5)):
            yield Drawn(lengths, seed)


class TwoValues(Drawn):
    """Draws from few values, for which many bounds are equations; nonnegative entries are 0, or large, or either."""

    def _entries(self, name: str, lengths: list[int], sign: Sign) -> list[Fraction]:
        self.values = Random(f"{self.seed} {name}").choice([[0], [0], [60], [0, 1, 60]])
        return super()._entries(name, lengths, sign)

    def _entry(self, random: Random, low: int) -> Fraction:
        if low == 0:
            return Fraction(random.choice(self.values))
        return Fraction(max(low, random.choice([[0, 1], [0, 2], [-1, 1], [0, 1, -1]][self.seed % 4])))


class FarApart(TwoValues):
    """Draws with numbers far apart: many bounds are nearly equations."""

    def _entry(self, random: Random, low: int) -> Fraction:
        return super()._entry(random, low) * (40 if low < 0 else 1)


class _Moderate(Drawn):
    """Draws in which a scalar is neither 0 nor large, where a weaker bound could be equal to a sharp one."""

    def _entries(self, name: str, lengths: list[int], sign: Sign) -> list[Fraction]:
        scalar = [Random(f"{self.seed} {name}").choice([Fraction(1), Fraction(2)])]
        return super()._entries(name, lengths, sign) if lengths else scalar


class ModerateTwoValues(_Moderate, TwoValues):
    """Draws of arrays from few values, and of moderate scalars."""


class ModerateFarApart(_Moderate, FarApart):
    """Draws of arrays with entries far apart, and of moderate scalars."""


class NearlyEqual(Drawn):
    """Draws of nearly equal entries, nearly 0 if they are nonnegative: many bounds are nearly equations."""

    def _entry(self, random: Random, low: int) -> Fraction:
        return Fraction(0 if low == 0 else 1) + Fraction(random.randint(0, 40), 10 ** (3 + self.seed % 3))


class NearZero(Drawn):
    """Draws of entries that are nearly 0."""

    def _entry(self, random: Random, low: int) -> Fraction:
        return Fraction(1) if low == 1 else Fraction(random.randint(low, 40), 10 ** (4 + self.seed % 3))


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
            yield from (kind(lengths, seed) for seed in range(96 if issubclass(kind, _Moderate) else 24))
