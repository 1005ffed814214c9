"""A search along lines, for the numbers in a mistake that leave least of the error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def minimise_by_golden_section(
    misses: Callable[[Any], Any], low: Any, high: Any, steps: int
) -> tuple[Any, Any]:
    """Return a minimum between two points, and its value, by so many golden sections.

    Arrays are searched entry by entry: ``misses`` then returns an array of their shape.
    """
    golden = (5**0.5 - 1) / 2
    a = high - golden * (high - low)
    b = low + golden * (high - low)
    at_a, at_b = misses(a), misses(b)
    for _ in range(steps):
        # The half without the smaller of both values is left out.
        left = np.less(at_a, at_b)
        low, high = np.where(left, low, a), np.where(left, b, high)
        width = golden * (high - low)
        new = np.where(left, high - width, low + width)
        at_new = misses(new)
        a, b = np.where(left, new, b), np.where(left, a, new)
        at_a, at_b = np.where(left, at_new, at_b), np.where(left, at_a, at_new)
    first = np.less(at_a, at_b)
    return np.where(first, a, b), np.where(first, at_a, at_b)
