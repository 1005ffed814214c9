"""``Precision``: the arithmetic that an implementation may use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

from symattn.arrays.formats import FORMATS, TF32, WIDE, Format, truncated
from symattn.document.errors import InputError, among, named
from symattn.document.keywords import SHORT, Answering, format_name

Contract = Literal["eager", "fused"]

#: Formats of sums in matrix units. ``fp32-truncated`` keeps 23 bits (Fasi, Higham, Mikaitis, Pranesh, 2021: Volta, and
#: one bit more or two in later ones); ``fp22`` keeps 13 (DeepSeek-V3 Technical Report, 2024, §3.3.2: FP8 on Hopper).
ACCUMULATORS = {"fp32-truncated": truncated("float32", 23), "fp22": truncated("float32", 13)}
# All names that ``Precision.of`` takes.
NAMES = (*SHORT, *FORMATS, TF32)


@dataclass(frozen=True)
class Precision(Answering):
    """The arithmetic of all implementations that a bound covers (``arrays.rounded`` and ``bounds``).

    input       format of the arrays given, and of the output
    score       arithmetic of scores and exponentials
    accumulate  arithmetic of sums
    stored      format in which weights may be stored before they meet the values
    exp_ulps    error of the exponential and its like, in units in the last place of ``score``
    tiles       number of tiles of keys, if the running result may be normalised after each (None: any)
    merges      number of successive merges, by their log-sum-exp, of parts that are normalised separately
    contract    ``eager``: every intermediate array may be stored in the input's format, and every sum taken in it;
                ``fused``: only the weights leave the arithmetic of the sums
    factors     format to which the factors of products are rounded first, such as TF32's (None: they are not)
    kept        format in which scores may be stored, if coarser than their arithmetic
    output      format of the output, if not the input's
    height      number of successive additions that a term passes in a sum over the keys (None: any order)
    rescalings  number of times that the running maximum may grow (None: any order of the keys)
    lse         whether weights may be computed as e^(score − log-sum-exp)
    normalised  whether weights may be divided by their sum before they are stored, and so be small
    times       least factor of weights before they are stored, divided out later, so that they do not underflow

    >>> Precision.of("bfloat16", "fused").accumulate.name
    'float32'
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
    factors: Format | None = None
    kept: Format | None = None
    output: Format | None = None
    height: int | None = None
    rescalings: int | None = None
    lse: bool = True
    normalised: bool = True
    times: float = 1.0

    def __post_init__(self) -> None:
        counts = {
            "tiles": self.tiles,
            "merges": self.merges,
            "height": self.height,
            "rescalings": self.rescalings,
        }
        for name, count in counts.items():
            if count is not None and count < 0:
                raise InputError(f"{name} of a precision must be at least 0, got {count}")
        if not 1 <= self.times <= self.stored.largest:
            raise InputError(
                f"times of a precision must be from 1 to the format's largest number, got {self.times}"
            )
        if not 0 < self.exp_ulps < 1e6:
            raise InputError(f"exp_ulps of a precision must be above 0, got {self.exp_ulps}")

    @classmethod
    def of(
        cls,
        dtype: str | Precision,
        contract: Contract | None = None,
        accumulate: str | None = None,
        *,
        output: str | None = None,
        stored: str | None = None,
        flush: bool | None = None,
    ) -> Precision:
        """Return the precision of code whose arrays are ``dtype``, with sums in ``accumulate`` if given.

        ``Precision.of("fp16", "fused")``; ``Precision.of("bfloat16", accumulate="float32")``: every array may be
        stored as bfloat16, sums are taken in float32; ``Precision.of("e4m3", "fused", accumulate="fp22")``: sums of
        Hopper's matrix units. ``output`` is the output's format if it is not ``dtype``, ``stored`` that of stored
        weights; ``flush`` says whether results below the normal numbers may become zero.
        """
        if contract is not None:
            check_contract(contract)
        # A precision that is given stays as it is, unless another contract is asked for.
        if isinstance(dtype, Precision) and contract in (None, dtype.contract):
            precision = dtype
        else:
            name = dtype.name if isinstance(dtype, Precision) else dtype
            precision = _make_preset_precision(_look_up_input_format(name), contract)
        if accumulate is not None:
            # Accumulators of hardware have names of their own.
            precision = replace(
                precision,
                accumulate=ACCUMULATORS.get(accumulate) or _look_up_input_format(accumulate),
            )
        if output is not None:
            precision = replace(precision, output=_look_up_input_format(output))
        if stored is not None:
            precision = replace(precision, stored=_look_up_input_format(stored))
        return precision if flush is None else precision._with_flushed_subnormals(flush)

    def in_tiles(self, keys: int, width: int = 64) -> Precision:
        """Return the precision of code that takes tiles of ``width`` keys one after another, each summed before it is
        added to the others, normalised once at the end, and not merged."""
        if width < 1 or keys < 1:
            raise InputError(
                f"keys and tiles must be at least 1, got {keys} keys in tiles of {width}"
            )
        count = -(-keys // width)
        # Tiles in order, without merges: each term passes its own tile and then the sum of tiles.
        return replace(
            self, tiles=0, merges=0, lse=False, height=width + count, rescalings=count - 1
        )

    def _with_flushed_subnormals(self, flush: bool) -> Precision:
        entries = ("input", "score", "accumulate", "stored", "factors", "kept", "output")
        formats = {name: getattr(self, name) for name in entries}
        return replace(
            self, **{n: replace(f, flush=flush) for n, f in formats.items() if f is not None}
        )

    @property
    def returned(self) -> Format:
        """The format of the output."""
        return self.output or self.input

    @cached_property
    def lost(self) -> float:
        """η of the stored weights."""
        # Weights are stored times this factor, which is divided out behind the sum.
        return float(self.stored.eta) / self.times

    @cached_property
    def roughest(self) -> Format:
        """The format with the largest unit roundoff."""
        return max(self._formats_of_arrays, key=lambda f: f.u)

    @cached_property
    def largest_eta(self) -> float:
        """The largest η of the formats that arrays may have; ``roughest`` may have a wider range than others."""
        return max(float(f.eta) for f in self._formats_of_arrays)

    @property
    def _formats_of_arrays(self) -> tuple[Format, ...]:
        return self.input, self.score, self.accumulate, self.stored

    @cached_property
    def between(self) -> Format:
        """The coarsest arithmetic in which scores may be computed."""
        return (
            # An eager program may store scores in the input's format between two operations.
            max((self.score, self.accumulate), key=lambda f: f.u)
            if self.contract == "fused"
            else self.roughest
        )

    @property
    def words(self) -> str:
        """The precision in one line, for a report."""
        if self.factors is not None:
            return f"{self.input.name}, factors of products rounded to {self.factors.name}"
        if self.score == self.input:
            return f"{self.name}, for every array and every sum"
        return f"{self.name} in and out, {self.score.name} between"

    @property
    def contracted(self) -> str:
        """The arrays that must not be stored in the narrow format, in words; empty if all may be.

        >>> Precision.of("bfloat16", "fused").contracted, Precision.of("bfloat16").contracted
        (' that keeps scores and sums in float32', '')
        """
        if self.score.u >= self.input.u or self.factors is not None or self.contract != "fused":
            return ""
        sums = " and sums" if self.accumulate.name == self.score.name else ""
        return f" that keeps scores{sums} in {self.score.name}"


# Made once: each has constants that are computed from those of its formats.
@lru_cache(maxsize=64)
def _make_preset_precision(f: Format, contract: Contract | None) -> Precision:
    wide = Format("float32")
    # TF32 rounds factors of products alone; arrays and sums are float32.
    if f.name == TF32:
        return Precision(f.name, wide, wide, wide, f, contract="fused", factors=f)
    # Wide formats have no wider one for scores and sums.
    if f.name in WIDE:
        return Precision(f.name, f, f, f, f, contract=contract or "eager")
    fused = Precision(f.name, f, wide, wide, f, contract="fused")
    # A narrow exponential is computed in float32 and rounded: one ulp is more than enough. No code normalises
    # repeatedly in narrow numbers, and allowing it would loosen the bound.
    eager = replace(fused, score=f, accumulate=f, exp_ulps=1.0, tiles=2, merges=1, contract="eager")
    return fused if contract == "fused" else eager


def check_contract(contract: str | None) -> None:
    """Raise InputError for anything but the two contracts and None."""
    if contract not in (None, "eager", "fused"):
        raise InputError(f"unknown contract {contract!r}{among(contract, ('eager', 'fused'))}")


def _look_up_input_format(name: str) -> Format:
    # Most names are those of formats as they are.
    if isinstance(name, str) and name in FORMATS:
        return Format(name)
    full = format_name(named("Precision.of()", name, NAMES))
    if full not in (*FORMATS, TF32):
        raise InputError(f"unknown precision {name!r}{among(name, NAMES)}")
    return Format(full)
