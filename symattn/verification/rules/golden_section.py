"""A search along a line, for the number in a mistake that leaves least of the error."""

from __future__ import annotations

from collections.abc import Callable


def minimise_by_golden_section(
    misses: Callable[[float], float], low: float, high: float, steps: int
) -> tuple[float, float]:
    """Return a minimum between two points, and its value, by so many golden sections."""
    golden = (5**0.5 - 1) / 2
    a = high - golden * (high - low)
    b = low + golden * (high - low)
    at_a, at_b = misses(a), misses(b)
    for _ in range(steps):
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - golden * (high - low)
            at_a = misses(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + golden * (high - low)
            at_b = misses(b)
    return (a, at_a) if at_a < at_b else (b, at_b)
