"""Floats that stand for π, e or simple multiples of them, which they are not."""

from __future__ import annotations

import math

_KNOWN = {"π": math.pi, "e": math.e}
_TYPED = 2**30  # a float with a denominator up to this is a number that was meant


def irrational(x: float) -> str:
    """The name of the constant of which the float ``x`` is a simple multiple, else an empty string."""
    if not math.isfinite(x) or x == 0 or x.as_integer_ratio()[1] <= _TYPED:
        return ""
    for name, value in _KNOWN.items():
        for below in (1, 2, 3, 4, 6, 8, 12, 180):
            times = round(x / value * below)
            if times and abs(times) <= 720 and math.isclose(x, value * times / below, rel_tol=1e-15):
                return name if times == below else f"a multiple of {name}"
            inverse = round(1 / (x * value) * below) if abs(x) > 1e-9 else 0
            if inverse and inverse <= 12 and math.isclose(1 / x, value * inverse / below, rel_tol=1e-15):
                return f"a part of 1/{name}"
    return ""
