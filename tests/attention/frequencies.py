"""Rotary frequencies in numbers of 70 digits, and balls that must hold them."""

from typing import Any

import mpmath
import numpy as np

from symattn import kind

BASE, LENGTH = 500000, 8192
BITS = 256


def ball() -> Any:
    return kind("ball").lift(0)


def true_frequencies(width: int, base: Any = BASE) -> list[Any]:
    return [mpmath.mpf(base) ** (-mpmath.mpf(2 * i) / width) for i in range(width // 2)]


def is_close(balls: Any, wanted: Any) -> bool:
    """Whether narrow balls hold numbers that are known to 60 digits."""
    with mpmath.workdps(70):
        found = balls.entries
        flat = np.array(wanted, dtype=object)
        if found.shape != flat.shape:
            return False
        narrow = all(float(b.rad()) < 1e-60 * max(1.0, abs(float(b.mid()))) for b in found.flat)
        middles = [mpmath.mpf(b.mid().str(70, radius=False)) for b in found.flat]
        return narrow and all(abs(x - y) < mpmath.mpf("1e-58") for x, y in zip(middles, flat.flat, strict=True))
