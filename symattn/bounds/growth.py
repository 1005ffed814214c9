"""e^x − 1, rounded up, for the exponents of the fast bound, and e^x in float32."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import log

import flint
import numpy as np

from symattn.arrays.enclosing.exponential import CHUNK, STEPS, exp_moderate, powers
from symattn.arrays.formats import Format
from symattn.bounds import rule

FARTHEST = 600.0  # larger exponents give no bound
# Up to here e^x − 1 ≤ x (1 + 0.51 x), which is relatively sharp where 1 would cancel.
_SMALL = 2.0**-6
# Beyond this exponent e^x nears the range of float32 (e^88), so results stay float64.
_OF_FLOAT32 = 80.0
# Covers twice the error of the proved exponential.
_UP = 1 + 2.0**-50
_N = STEPS // 2  # steps of a binary order in ``single``
SINGLE, DEEPEST = 4.5 * 2.0**-24, 87.0  # below, products of ``single`` would underflow
# Down to 2⁻¹²⁶, the least normal number of float32; computed at the first use.
# 2^{−k/N}
_powers = lru_cache(1)(
    lambda: powers(np.arange(0.0, -126.0 * STEPS, -STEPS / _N)).astype(np.float32)
)


@lru_cache(64)
def rate(f: Format) -> float:
    """Return λ, rounded up."""
    # The conversion to float may round down by one unit.
    return float(rule.rate_of(f.u)) * (1 + 2.0**-52)


@lru_cache(4096)
def g(n: int, f: Format) -> float:
    """Return e^{nλ} − 1, rounded up."""
    return growth_of(n * rule.rate_of(f.u))


@lru_cache(4096)
def growth_of(x: Fraction | float) -> float:
    """Return e^x − 1 of one number, rounded up."""
    exact = Fraction(x)
    result = (flint.arb(flint.fmpq(exact.numerator, exact.denominator))).exp() - 1
    # e⁰ − 1 is exactly 0, which a step up would lose.
    return float(np.nextafter(float(result.upper()), np.inf)) if exact else 0.0


def growth(x: np.ndarray, most: float | None = None) -> np.ndarray:
    """Return e^x − 1, rounded up but for the last four roundings, for 0 ≤ x ≤ ``FARTHEST``; larger x count as that.

    ``most`` is the largest, if known. float32 stays float32 only if no exponent exceeds 80. Small ones: e^x
    − 1 = x (1 + x/2 + x²/6 + …), where x/2 + x²/6 + … ≤ (x/2)/(1 − x/3) ≤ 0.51 x for x ≤ 2⁻⁶. Others: the proved
    exponential, enlarged by twice its error, less 1: that rounds by u e^x, which is in it too. Of a small x that would
    be more than x; so the smaller one is taken, and what x gives does not depend on the other elements.
    """
    x = np.asarray(x)
    most = float(x.max(initial=0.0)) if most is None else most
    small = 0.51 * x
    small += 1.0
    small *= x
    # Without larger exponents the exponential need not run at all.
    if most <= _SMALL:
        return np.asarray(small)
    # A new array, as the exponential overwrites its argument.
    out = np.array(np.minimum(x, FARTHEST), dtype=np.float64, order="C", ndmin=1)
    exp_moderate(out)
    out *= _UP
    out -= 1.0
    out = out.reshape(x.shape)
    values = np.where(x <= _SMALL, np.minimum(small, out), out)
    return values if most > _OF_FLOAT32 else values.astype(x.dtype)


def single(x: np.ndarray) -> np.ndarray:
    """Return e^x in float32, off by at most the part ``SINGLE``, for −``DEEPEST`` ≤ x ≤ 0, which is overwritten.

    With N = 1024, L = ln 2/N and w = 2⁻²⁴: e^x = 2^{−k/N} e^{−f L} for y = −x/L, k the integer next to y and f = y − k,
    |f L| ≤ 3.4·10⁻⁴. y is off by less than 10⁻¹⁰, f is exact, and the table is off by 1.01 w. 1 − f L leaves out less
    than (f L)²/2 < w. Roundings of f L and its product are less than 0.01 w, that of the last sum is w: 3.1 w in all.
    Where the product underflows, w is added.
    """
    flat = x.reshape(-1)
    result = np.empty(x.size, np.float32)
    # Chunks fit into the processor's cache.
    for start in range(0, x.size, CHUNK):
        y = flat[start : start + CHUNK]
        out = result[start : start + CHUNK]
        y *= -_N / log(2)
        k = np.rint(y)
        y -= k
        # take() buffers its output in the default mode, which checks indices.
        _powers().take(k.astype(np.int32).astype(np.int64), out=out, mode="clip")
        per_unit = np.float32(-log(2) / _N)
        out += out * (y.astype(np.float32) * per_unit)
    return result.reshape(x.shape)


@lru_cache(64)
def power_up(x: float) -> float:
    """Return e^x, rounded up."""
    return (1 + growth_of(x)) * (1 + 2.0**-52)
