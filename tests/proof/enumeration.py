"""Expectations by going through all outcomes of a discrete law: nothing is shared with the proof."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product

Outcomes = Mapping[Fraction, Fraction]
"""Value → probability."""

FLIP: Outcomes = {Fraction(-1): Fraction(1, 2), Fraction(1): Fraction(1, 2)}
SKEWED: Outcomes = {Fraction(0): Fraction(1, 2), Fraction(1): Fraction(1, 3), Fraction(3): Fraction(1, 6)}
LAWS = {"flip": FLIP, "skewed": SKEWED}


def moment(law: Outcomes, power: int) -> Fraction:
    return sum((p * x**power for x, p in law.items()), Fraction(0))


def expectation(law: Outcomes, letters: int, function: Callable[[Sequence[Fraction]], Fraction]) -> Fraction:
    """E of a function of so many independent letters."""
    total = Fraction(0)
    for outcome in product(law.items(), repeat=letters):
        weight = Fraction(1)
        for _, p in outcome:
            weight *= p
        total += weight * function([x for x, _ in outcome])
    return total


def variance(law: Outcomes, letters: int, function: Callable[[Sequence[Fraction]], Fraction]) -> Fraction:
    mean = expectation(law, letters, function)
    return expectation(law, letters, lambda x: (function(x) - mean) ** 2)
