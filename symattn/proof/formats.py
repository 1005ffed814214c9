"""Statements about number formats: they are checked in each of the formats named, of all its numbers where few.

Rounding is to nearest, ties to even, as NumPy and ml_dtypes do it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from symattn.document.model import Text
from symattn.evidence import Evidence, Grade
from symattn.proof.listed import all_true
from symattn.proof.theorem import Decision, Refutation

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Format:
    """A binary format of p digits, by what its ``finfo`` says."""

    name: str

    @cached_property
    def _info(self) -> Any:
        import ml_dtypes

        return ml_dtypes.finfo(getattr(ml_dtypes, self.name, self.name))

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type."""
        found: np.dtype[Any] = np.dtype(self._info.dtype)
        return found

    @property
    def digits(self) -> int:
        """p, the digits of a significand, the leading one counted."""
        return int(self._info.nmant) + 1

    @property
    def u(self) -> Fraction:
        """The unit roundoff 2^−p."""
        return Fraction(1, 2**self.digits)

    @property
    def power_beyond(self) -> Fraction:
        """2^(e_max + 1), the power of two next to the largest numbers."""
        return Fraction(2) ** int(self._info.maxexp)

    @property
    def largest(self) -> Fraction:
        """The largest finite number."""
        return Fraction(float(self._info.max))

    @property
    def smallest(self) -> Fraction:
        """The smallest positive number, a subnormal one."""
        return Fraction(float(self._info.smallest_subnormal))

    @property
    def smallest_normal(self) -> Fraction:
        """The smallest positive number with all its digits."""
        return Fraction(float(self._info.smallest_normal))

    @property
    def wider(self) -> type[np.floating[Any]]:
        """A format that this one's numbers, and those midway between them, are numbers of."""
        return np.float64 if self.name == "float32" else np.float32

    def rounded(self, x: Any) -> np.ndarray:
        """Numbers of the wider format, or such that it holds exactly, rounded to this one."""
        wide = np.asarray(x, dtype=np.float64).astype(self.wider)
        with np.errstate(all="ignore"):
            return wide.astype(self.dtype)

    def numbers(self) -> np.ndarray:
        """Every finite number of a format of at most 16 bits, each sign of zero."""
        bits = self.dtype.itemsize * 8
        every = np.arange(2**bits, dtype=np.uint32).astype(f"uint{bits}").view(self.dtype)
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return every[np.isfinite(every.astype(np.float64))]

    def neighbours(self, x: float) -> tuple[float, float]:
        """The largest number of the format below x and the smallest above it, x being none."""
        near = self.rounded(x)
        step = np.nextafter(near, self.rounded(float(self.largest) * (1 if float(near) < x else -1)))
        low, high = sorted((float(near), float(step)))
        return low, high


@dataclass(frozen=True)
class InFormats:
    """``holds`` says of a format whether the statement is true in it, ``false`` of the false variant.

    Each gives a truth value or an array of such. The false variant is refuted by one format in which it fails.
    """

    formats: tuple[str, ...]
    holds: Callable[[Format], Any]
    false: Callable[[Format], Any]
    looked_at: str = ""
    argument: Text = ()

    def decide(self) -> Decision:
        wrong = next((name for name, truth in self._found(self.holds) if not truth), "")
        if wrong:
            return Decision(Evidence(Grade.REFUTED, wrong))
        if not self.formats:
            return Decision(Evidence(Grade.UNDECIDED, "no format is named"))
        where = (f"{self.looked_at} " if self.looked_at else "") + ", ".join(self.formats)
        return Decision(Evidence(Grade.CHECKED, where), (self.argument,) if self.argument else ())

    def refute(self) -> Refutation:
        wrong = next((name for name, truth in self._found(self.false) if not truth), "")
        return Refutation(bool(wrong), f"in {wrong}" if wrong else "")

    def witness(self) -> str:
        return next((f"in {name}" for name, truth in self._found(self.holds) if truth), "")

    def _found(self, holds: Callable[[Format], Any]) -> Iterator[tuple[str, bool]]:
        for name in self.formats:
            with np.errstate(all="ignore"):
                yield name, all_true(holds(Format(name)))
