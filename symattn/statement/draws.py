"""Numbers at which a relation is tried: made to be hard to pass by accident."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import prod
from random import Random
from typing import Any

import numpy as np

from symattn.proof.statement import Declared, Numbers

_TOPS = ((1,), (2,), (3, 2), (2, 3, 1), (4, 3, 5))
KINDS = ("whole", "fractions", "large", "ties and zeros", "all equal", "small")


class Drawn(Numbers):
    """Balls around rationals: fractions of both signs, large ones, ties and zeros, all equal, whole, small."""

    def __init__(self, sizes: dict[str, int], seed: int) -> None:
        super().__init__(sizes, seed, balls=True)

    def array(self, name: str, shape: str, declared: Declared) -> Any:
        if any(name in pair for pair in declared.units):
            return super().array(name, shape, declared)
        lengths = [self.axis(axis) for axis in shape.split()]
        random = Random(f"{self.seed} {name} {sorted(self.sizes.items())}")
        low = 1 if name in declared.positive else 0 if name in declared.nonnegative else -40
        entries = [self._entry(random, low) for _ in range(prod(lengths))]
        return self.lift(np.array(entries, dtype=object).reshape(lengths))

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
    """Sizes that are equal, rise and fall, so that no size goes for another."""
    every = [{sort: top[i % len(top)] for i, sort in enumerate(sorts)} for top in _TOPS]
    every += [{sort: top[-1 - i % len(top)] for i, sort in enumerate(sorts)} for top in _TOPS[2:]]
    return [x for i, x in enumerate(every) if x not in every[:i]]


def draws(sorts: Sequence[str]) -> Iterator[Drawn]:
    """Every kind of numbers at every size."""
    for there in sizes(sorts):
        for seed in range(len(KINDS)):
            yield Drawn(there, seed)
