"""How radii are computed in float64 so that they are never too small, without switching rounding modes.

Assumptions on the machine: float64 of IEEE 754, rounded to nearest, with subnormal numbers; ``sqrt`` and ``/`` rounded
correctly, as IEEE 754 demands; sums, and products of matrices by BLAS, in any order, fused or not, but plain (not
Strassen's). So for floats a, b and ∘ one of + − × ÷

    fl(a ∘ b) = (a ∘ b)(1 + δ) + ε,   |δ| ≤ u = 2⁻⁵³,   |ε| ≤ η/2,   η = 2⁻¹⁰⁷⁴,

with ε = 0 for + and −. And n products that are summed in any order are off by at most γ_n Σ|a_l b_l| + n η, where
γ_n = n u/(1 − n u) (N. Higham, Accuracy and Stability of Numerical Algorithms (2002), §3.1, §3.3 and lemma 3.1).

Inflation. A radius is a formula E of nonnegative floats with + × ÷, √ and sums. It is computed in plain floats as F,
and F·UP + TINY with UP = 1 + 2⁻³² and TINY = 2⁻¹⁰⁴⁰ is stored. That is not less than E if

    (i)  no number in it passes more than k = 2²⁰ + 64 roundings, and
    (ii) all underflows in it change the result by less than 2³⁰ η in total.

Proof. Every rounding multiplies or divides by at least 1 − u, and nothing is subtracted, so F ≥ E (1 − u)^k − 2³⁰ η,
and (1 − u)^k ≥ 1 − k u ≥ 1 − 2⁻³³ − 2⁻⁴⁷. The product is rounded: fl(F·UP) ≥ F·UP (1 − u) − η/2, and
(1 − 2⁻³³ − 2⁻⁴⁷)(1 + 2⁻³²)(1 − u) is more than 1 + 2⁻³⁴. The last sum is rounded by 1 − u, which 1 + 2⁻³⁴ outweighs;
and TINY (1 − u) is more than the 2³¹ η that may be lost. ∎ If products are followed by unbounded factors, (ii)
fails; such formulas add η to results that may have underflowed before they go on, which compensates for it.

For sums alone TINY is not needed: sums do not underflow, and F·UP ≥ F also for subnormal F.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.document.errors import Refused

# The unit roundoff of float64.
U = 2.0**-53
# The smallest positive float, which bounds what an underflow loses.
ETA = 2.0**-1074
# The factor that outweighs the roundings of a radius, see the proof above.
UP = 1 + 2.0**-32
# For differences that must not be too large.
DOWN = 1 - 2.0**-32
# Added to radii that may have underflowed, see (ii) above.
TINY = 2.0**-1040
LONGEST = 1 << 20  # of sums: the k of the proof
BLOCK = 1 << 14  # elements processed at a time, so that they stay in the cache
# up to this many elements, the errors of sums and products are computed, not bounded
SMALL = 1 << 12


def gamma(n: int) -> float:
    """Return an upper bound of γ_n = n u/(1 − n u). Raises Refused for n > 2²⁰."""
    if n > LONGEST:
        raise Refused(f"enclosure: a sum of {n} numbers; no more than {LONGEST} are bounded")
    return n * U / (1 - n * U) * UP


def blocks(shape: tuple[int, ...], size: int = BLOCK) -> Iterator[tuple[Any, ...]]:
    """Yield indices that cut an array of this shape into parts of about ``size`` elements, in order."""
    inner, k = 1, len(shape)
    # Axes from the last one on that fit together into one block.
    while k and inner * shape[k - 1] <= size:
        k -= 1
        inner *= shape[k]
    if k == 0:
        yield (...,)
        return
    step = max(1, size // inner) if inner else shape[k - 1]
    for index in np.ndindex(*shape[: k - 1]):
        for i in range(0, shape[k - 1], step):
            yield (*index, slice(i, i + step))


def sum_error(a: object, b: object, total: Any) -> Any:
    """|a + b − fl(a + b)|, exactly, if nothing overflows. Source: Knuth's TwoSum, TAOCP 2, §4.2.2, theorem C."""
    b_part = total - a
    return np.abs((a - (total - b_part)) + (b - b_part))


def product_error(a: Any, b: Any, product: Any) -> Any:
    """Return an upper bound of |a b − fl(a b)|, exact if neither over- nor underflow is near.

    Source: T. Dekker, A floating-point technique for extending the available precision (1971): exact if no
    intermediate result leaves the normal range, for which |a|, |b| < 2⁹⁰⁰ and |a b| > 2⁻⁹⁰⁰ suffice.
    """
    (a1, a2), (b1, b2) = _split_in_26_bits(a), _split_in_26_bits(b)
    high_parts = (product - a1 * b1) - a2 * b1
    error = np.abs(a2 * b2 - (high_parts - a1 * b2))
    size = np.abs(product)
    # Splitting multiplies by 2²⁷, which must not overflow.
    far = np.maximum(np.abs(a), np.abs(b)) < 2.0**900
    # Tiny products lose digits of their error, unless the product is 0 exactly.
    exact = far & ((size > 2.0**-900) | (a == 0) | (b == 0))
    return np.where(exact, error, (size * U) * UP + TINY)


def _split_in_26_bits(x: Array) -> tuple[Any, Any]:
    """Split x into a sum of two numbers of 26 bits (Veltkamp)."""
    wide = x * (2.0**27 + 1)
    high = wide - (wide - x)
    return high, x - high


def grid(x: np.ndarray) -> float:
    """Return the largest power of two that divides all elements; +∞ if all are zero."""
    mantissa, exponent = np.frexp(x[x != 0])
    # Zeros are multiples of every number.
    if not mantissa.size:
        return np.inf
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    # The lowest bit that is set is ``whole & -whole``.
    last_bit = np.log2((whole & -whole).astype(np.float64))
    lowest = exponent - 53 + last_bit.astype(np.int64)
    return float(np.ldexp(1.0, int(lowest.min())))


def sums_exactly(step: float, largest: float) -> bool:
    """Return whether sums of multiples of ``step`` with Σ|x| ≤ ``largest`` are exact in any order.

    All partial sums are multiples of the step below 2⁵³ steps, which floats hold.
    """
    # Below the normal range steps may underflow; 2⁵² leaves a factor of two for the estimate.
    normal = step >= 2.0**-1022
    return step == np.inf or (normal and largest <= 2.0**52 * step)
