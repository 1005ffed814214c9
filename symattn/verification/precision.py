"""``Precision``: which arithmetic an implementation is allowed to use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import frexp
from typing import Any, Literal

import numpy as np

from symattn.errors import InputError

Contract = Literal["eager", "fused"]

FORMATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_WIDE = ("float64", "float32")


@dataclass(frozen=True)
class Format:
    """A number format, by what its ``finfo`` says: unit roundoff u, underflow η, and the range.

    η bounds the absolute error of an operation whose result underflows. A wide format may flush to zero, so that it is
    the smallest normal number; a narrow one underflows gradually, by half the smallest subnormal one.
    """

    name: str

    @cached_property
    def _info(self) -> Any:
        if self.name in _WIDE or self.name == "float16":
            return np.finfo(self.name)
        import ml_dtypes

        return ml_dtypes.finfo(getattr(ml_dtypes, self.name))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        found: np.dtype[Any] = np.dtype(self._info.dtype)
        return found

    @property
    def u(self) -> float:
        """Unit roundoff: half the distance from 1 to the next number."""
        return float(self._info.eps) / 2

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return float(self._info.tiny)

    @property
    def eta(self) -> float:
        """Absolute error of a result that underflows."""
        return self.tiny if self.flushes else float(self._info.smallest_subnormal) / 2

    @property
    def flushes(self) -> bool:
        """Whether subnormal results may be flushed to zero: those of a format as wide in range as float32."""
        return frexp(self.tiny)[1] < -100

    @property
    def max(self) -> float:
        """The largest finite number."""
        return float(self._info.max)

    def rounded(self, values: Any) -> np.ndarray:
        """The values that the format holds nearest to ``values``, as float64."""
        with np.errstate(over="ignore"):
            return np.asarray(values, dtype=np.float64).astype(self.dtype).astype(np.float64)


@dataclass(frozen=True)
class Precision:
    """The arithmetic of every implementation that the bound speaks for (``bounds`` has the whole list).

    input       format of the arrays given, and of the output
    score       arithmetic of scores and exponentials
    accumulate  arithmetic of sums
    stored      format in which weights may be stored before they meet the values
    exp_ulps    error of the exponential, in units in the last place of ``score``
    tiles       number of tiles that the keys come in, where the running result may be normalised after each (None: any)
    merges      number of times, one after another, that parts normalised by themselves are merged by their log-sum-exp
    contract    ``eager``: every array in between may be stored in the input's format, and every sum taken in it;
                ``fused``: nothing but the weights leaves the arithmetic of the sums
    """

    name: str
    input: Format
    score: Format
    accumulate: Format
    stored: Format
    exp_ulps: float = 3.0
    tiles: int | None = None
    merges: int = 3
    contract: Contract = "eager"

    @classmethod
    def of(cls, dtype: str | Precision, contract: Contract | None = None) -> Precision:
        """The precision of code whose arrays are ``dtype``: ``Precision.of("float16", "fused")``."""
        if isinstance(dtype, Precision):
            return dtype if contract in (None, dtype.contract) else cls.of(dtype.name, contract)
        if dtype not in FORMATS:
            raise InputError(f"unknown precision {dtype!r}; known: {', '.join(FORMATS)}")
        if contract not in (None, "eager", "fused"):
            raise InputError(f"unknown contract {contract!r}; known: eager, fused")
        f = Format(dtype)
        if dtype in _WIDE:
            return cls(dtype, f, f, f, f)
        wide = Format("float32")
        fused = cls(dtype, f, wide, wide, f, contract="fused")
        # A narrow exponential is computed in float32 and rounded: one ulp holds it with room to spare. Normalising
        # again and again in narrow numbers is nothing that code does, and would blunt the bound.
        eager = replace(fused, score=f, accumulate=f, exp_ulps=1.0, tiles=2, merges=1, contract="eager")
        return fused if contract == "fused" else eager

    @property
    def roughest(self) -> Format:
        """The format with the largest unit roundoff."""
        return max((self.input, self.score, self.accumulate, self.stored), key=lambda f: f.u)

    @property
    def words(self) -> str:
        """In one line, for a report."""
        if self.score == self.input:
            return f"{self.name}, every array and every sum may be kept in it"
        return f"{self.name} in and out, {self.score.name} between"
