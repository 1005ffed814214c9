"""Finite numbers that stand for −∞, with their sizes, so that they cancel.

A kernel with tiles fills masked scores with a number F such as −1e7. In a tile that hides all keys of a query the
maximum is F, and e^(F − F) = 1 enters its sums, until a later tile multiplies them by e^(F − m) = 0. Read as −∞, F − F
has no value. So here an infinite element is x + L: x has residues, and L, its level, is the sum of the numbers that
stand for −∞, with signs. Levels add, are multiplied by known numbers, and F − F has level 0, which is finite. As if
each F were as large as we please, e^(x + L) is 0 for L < 0, and has no value for L > 0; of several elements the
largest is one of the highest level.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import log

import numpy as np

from symattn.arrays.residues.state import State
from symattn.document.errors import Refused

_SMALL = 2**20  # residues of smaller whole numbers are these numbers
_CANCELLED = 1e-6  # a level that is so small beside its terms is a rounding of 0


def have_levels(*states: State) -> bool:
    """Return whether a state has infinite elements with levels."""
    return any(s.level is not None for s in states)


def known_number(x: State) -> Fraction | float | None:
    """Return the number c (ln 2)^k that all elements are, exact if k = 0, or None."""
    if x.constant is None:
        return None
    c, power = x.constant
    return c if power == 0 else float(c) * log(2) ** power


def at_levels(x: State, level: np.ndarray) -> State:
    """Return the elements of x at these levels; without levels if all are 0."""
    level = np.broadcast_to(level, x.shape)
    infinite = np.asarray(level != 0)
    # Where all levels cancelled the array is finite, and other operations are allowed.
    if not infinite.any():
        return x.finite()
    # Elements at a level are no known number and have no known sign.
    return replace(x, forbidden=infinite, level=level, number=None, multiple=None, sign=0)


def sum_of_levels(x: State, y: State) -> np.ndarray:
    """Return the levels of x + y. Raises Refused for ∞ − ∞."""
    one, other = x.levels, y.levels
    # ∞ − ∞ is refused below, so NumPy's warning is not needed.
    with np.errstate(invalid="ignore"):
        total = np.asarray(one + other)
    if np.isnan(total).any():
        raise Refused("modular: -inf minus -inf")
    # Beside a true infinity no finite level is small.
    larger = np.maximum(np.abs(one), np.abs(other))
    finite_larger = np.where(np.isinf(larger), 0, larger)
    return np.where(np.abs(total) <= _CANCELLED * finite_larger, 0, total)


def scaled_levels(x: State, y: State) -> np.ndarray:
    """Return the levels of x · y for finite y: known numbers, or positive elements, after which levels are unknown.

    Raises Refused if the sign of an infinity would not be known.
    """
    number, level = known_number(y), x.levels
    # A mask of zeros and ones may multiply filled scores: zeros remove the level.
    factors = _small_whole_numbers(y) if number is None else np.asarray(float(number))
    if factors is None:
        # A positive factor of unknown size keeps the sign of a level, not its size.
        if y.sign < 2 or (level > 0).any():
            raise Refused(
                "modular: -inf (a masked score) times something that is not known to be positive"
            )
        return np.broadcast_to(
            np.where(level < 0, -np.inf, 0), np.broadcast_shapes(x.shape, y.shape)
        )
    # True −∞ times 0 is undefined, and times a negative number is ∞.
    if (np.isneginf(level) & (factors <= 0)).any():
        raise Refused("modular: -inf (a masked score) times a number that is not positive")
    return np.asarray(level * factors)


def _small_whole_numbers(x: State) -> np.ndarray | None:
    """Return the elements if they are known whole numbers, such as a mask of zeros and ones."""
    form = x.form
    if x.exponent is None or x.factor is not None or form is None or not x.defined:
        return None
    known = form.degree == 0 and form.power == 0 and form.divisor == 1 and form.size <= _SMALL
    return x.exponent.value if known else None  # residues are centred
