"""``Precision``: which arithmetic an implementation is allowed to use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from symattn.arrays.formats import FORMATS, WIDE, Format
from symattn.errors import InputError

Contract = Literal["eager", "fused"]


@dataclass(frozen=True)
class Precision:
    """The arithmetic of every implementation that a bound speaks for (``arrays.rounded`` and ``verification.bounds``).

    input       format of the arrays given, and of the output
    score       arithmetic of scores and exponentials
    accumulate  arithmetic of sums
    stored      format in which weights may be stored before they meet the values
    exp_ulps    error of the exponential and its like, in units in the last place of ``score``
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
    def of(cls, dtype: str | Precision, contract: Contract | None = None, accumulate: str | None = None) -> Precision:
        """The precision of code whose arrays are ``dtype``, with sums in ``accumulate`` if given.

        ``Precision.of("float16", "fused")``; ``Precision.of("bfloat16", accumulate="float32")``: every array may be
        stored as bfloat16, sums are taken in float32.
        """
        if contract not in (None, "eager", "fused"):
            raise InputError(f"unknown contract {contract!r}; known: eager, fused")
        if isinstance(dtype, Precision):
            found = dtype if contract in (None, dtype.contract) else cls._preset(dtype.name, contract)
        else:
            found = cls._preset(dtype, contract)
        return found if accumulate is None else replace(found, accumulate=_format(accumulate))

    @classmethod
    def _preset(cls, dtype: str, contract: Contract | None) -> Precision:
        f = _format(dtype)
        if dtype in WIDE:
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


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise InputError(f"unknown precision {name!r}; known: {', '.join(FORMATS)}")
    return Format(name)
