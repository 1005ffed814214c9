"""``Format``: a binary floating-point format, from its ``finfo``. All its constants are exact.

Rounding is to nearest, ties to even, as in NumPy and ml_dtypes. Sums in matrix units are coarser: see ``truncated``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from symattn.arrays.tensors import is_tensor, namespace

# All formats of arrays, from the widest to the narrowest.
FORMATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
# Formats in which scores and sums are taken as they are.
WIDE = ("float64", "float32")
# Formats of 16 bits.
HALF = ("bfloat16", "float16")
# Formats whose scores and sums are usually taken in float32.
NARROW = FORMATS[2:]
TF32 = "tfloat32"  # float32's range with 11 digits: the factors of products in matrix units, not a format of arrays


@dataclass(frozen=True)
class Format:
    """The format of p digits called ``name``, one of ``FORMATS`` or ``TF32``.

    ``roundoff`` is the error of an operation if it is more than 2^−p; if ``aligned``, it is relative to the sum of the
    absolute values of the terms, not to the sum (``truncated``). ``flush`` says whether results below the normal
    numbers may be set to zero; None: if the format's range is that of float32 or wider.
    """

    name: str
    roundoff: Fraction | None = None
    aligned: bool = False
    flush: bool | None = None

    @cached_property
    def _finfo_of_format(self) -> Any:
        # tf32 is float32 with ten bits of significand.
        if self.name == TF32:
            f = np.finfo(np.float32)
            parts = {
                # (2 − 2⁻¹⁰) 2¹²⁷.
                "max": 2.0**128 - 2.0**117,
                "smallest_subnormal": 2.0**-136,
                "smallest_normal": f.smallest_normal,
            }
            return SimpleNamespace(dtype=f.dtype, nmant=10, maxexp=f.maxexp, **parts)
        if hasattr(np, self.name):
            return np.finfo(self.name)
        import ml_dtypes  # slow to import, and formats of NumPy do without it

        return ml_dtypes.finfo(getattr(ml_dtypes, self.name, self.name))

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype."""
        result: np.dtype[Any] = np.dtype(self._finfo_of_format.dtype)
        return result

    @property
    def digits(self) -> int:
        """p, the number of digits of a significand, including the leading one."""
        return int(self._finfo_of_format.nmant) + 1

    @cached_property
    def u(self) -> Fraction:
        """The unit roundoff 2^−p, half the distance from 1 to the next number, or the ``roundoff`` given."""
        return Fraction(1, 2**self.digits) if self.roundoff is None else self.roundoff

    @property
    def power_beyond(self) -> Fraction:
        """2^(e_max + 1), the power of two just above the largest number."""
        return Fraction(2) ** int(self._finfo_of_format.maxexp)

    @cached_property
    def largest(self) -> Fraction:
        """The largest finite number."""
        return Fraction(float(self._finfo_of_format.max))

    @cached_property
    def smallest(self) -> Fraction:
        """The smallest positive number, a subnormal one."""
        return Fraction(float(self._finfo_of_format.smallest_subnormal))

    @cached_property
    def smallest_normal(self) -> Fraction:
        """The smallest positive number with all its digits."""
        return Fraction(float(self._finfo_of_format.smallest_normal))

    @property
    def flushes(self) -> bool:
        """Return whether subnormal results may be flushed to zero, by default if the range is at least float32's."""
        return self.smallest_normal < Fraction(1, 2**100) if self.flush is None else self.flush

    @cached_property
    def eta(self) -> Fraction:
        """η, the error of a result that underflows: at most half the smallest number, or all of it if it is flushed."""
        return self.smallest_normal if self.flushes else self.smallest / 2

    @property
    def wider(self) -> type[np.floating[Any]]:
        """A format that contains this one's numbers and the midpoints between them."""
        return np.float64 if self.name == "float32" else np.float32

    def cast(self, x: object) -> np.ndarray:
        """Return the numbers of this format nearest to ``x`` in float64, as an array of ``dtype``."""
        with np.errstate(all="ignore"):
            plain = np.asarray(x, dtype=np.float64)
            rounded = plain if hasattr(np, self.name) else odd(plain)
            return np.asarray(rounded.astype(self.dtype))

    def nearest(self, x: Fraction) -> Fraction | float:
        """Return the number of this format nearest to ``x``, ties to even; ±∞ from half a step past the largest."""
        if not x:
            return x
        size = abs(x)
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= size < Fraction(2) ** exponent
        step = max(self.smallest, Fraction(2) ** (exponent + 1 - self.digits))
        result = round(x / step) * step  # Python rounds a half to even
        if abs(result) <= self.largest:
            return result
        return float("inf") * (1 if x > 0 else -1)

    def rounded(self, x: object) -> Any:
        """Round to this format and return float64; a float64 tensor gives a tensor."""
        if is_tensor(x):
            xp = namespace(x)
            wide = x if self.name in WIDE else odd(x)
            return xp.astype(xp.astype(wide, getattr(xp, self.name)), xp.float64)
        return np.asarray(self.cast(x).astype(np.float64))

    def numbers(self) -> np.ndarray:
        """Return every finite number of a format of at most 16 bits, including both zeros."""
        bits = self.dtype.itemsize * 8
        patterns = np.arange(2**bits, dtype=np.uint32)
        every = patterns.astype(f"uint{bits}").view(self.dtype)
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return every[np.isfinite(every.astype(np.float64))]

    def neighbours(self, x: float) -> tuple[float, float]:
        """Return the numbers of the format next below and next above x, which is not one of them."""
        near = self.cast(x)
        direction = 1 if float(near) < x else -1
        step = np.nextafter(near, self.cast(float(self.largest) * direction))
        low, high = sorted((float(near), float(step)))
        return low, high


def truncated(name: str, bits: int) -> Format:
    """Return the format of sums in a matrix unit that keeps ``bits`` bits after the leading one: u = 2^(1 − bits).

    The unit adds k products to its running sum, a block at a time. It shifts them to the exponent of the largest and
    truncates each, so that each of the others is off by at most 2^−bits of the largest, then it truncates the sum: an
    error of at most (k + 1) 2^−bits of the sum of the absolute values. A term of a sum of n products passes at most n/k
    blocks, or one: no more than n errors of 2^(1 − bits).
    Source: Fasi, Higham, Mikaitis, Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Comput. Sci. 7:e330
    (2021).
    """
    return Format(name, roundoff=Fraction(2, 2**bits), aligned=True)


def odd(wide: object) -> Any:
    """Round float64 to float32 by rounding to odd, so that rounding the result again to fewer digits is correct.

    Source: Boldo, Melquiond, Emulation of a FMA and correctly rounded sums, IEEE Trans. Comput. 57 (2008), theorem 3.
    """
    if not is_tensor(wide):
        return _odd_by_digits(np.asarray(wide, dtype=np.float64))
    return _odd_by_neighbours(namespace(wide), wide)


# float64 has 29 binary digits more than float32.
_BEYOND_FLOAT32 = np.int64(2**29 - 1)
_LEAST_NORMAL, _BEYOND_LARGEST = 2.0**-126, 2.0**128


def _odd_by_digits(wide: np.ndarray) -> np.ndarray:
    """Cut digits off, and set the last one that stays if any was 1: in a third of the time of comparing neighbours."""
    bits = wide.view(np.int64)
    cut_off = bits & _BEYOND_FLOAT32
    last_digit = (cut_off != 0).astype(np.int64) << 29
    kept = ((bits ^ cut_off) | last_digit).view(np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        narrow = np.asarray(kept.astype(np.float32))
    # Smaller numbers lose more digits, and larger ones have no float32 to be cut to.
    size = np.abs(wide)
    is_small = (size < _LEAST_NORMAL) & (size > 0)
    is_large = (size >= _BEYOND_LARGEST) & (size < np.inf)
    others = is_small | is_large
    if others.any():
        narrow[others] = _odd_by_neighbours(np, wide[others])
    return narrow


def _odd_by_neighbours(xp: Any, wide: Any) -> Any:
    """Round to nearest, and go on to the neighbour if the result is inexact and even."""
    with np.errstate(over="ignore"):
        narrow = xp.astype(wide, xp.float32)
        bits = narrow.view(xp.int32)  # apart from the sign, these integers are ordered by magnitude
        away = xp.abs(narrow) < xp.abs(wide)
        inexact_even = (narrow != wide) & ((bits & 1) == 0)
        moved = xp.where(inexact_even, xp.where(away, bits + 1, bits - 1), bits)
    return moved.view(xp.float32)
