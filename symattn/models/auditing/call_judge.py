"""One call against the exact result: how much of what rounding may do its error is, and how sure a fault is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.precision import Contract, Precision
from symattn.bounds.judgement import Judgement, judge_output
from symattn.bounds.reference import canonical
from symattn.bounds.sharp.limits import FORMATS, Stores
from symattn.document.errors import SymattnError
from symattn.models.auditing.setting import CallSetting, Floats, Mask

ALPHA = 1e-9
_FAR = 200  # units of roundoff that an output is off by, at which a hypothesis is not looked at
Sure = Literal["", "certified", "beyond rounding to nearest", "unknown"]


@dataclass(frozen=True)
class CallJudgement:
    """``ratio`` is the largest error as a part of what is legal; ``sure`` is empty where it is legal.

    ``certified``: no rounding of any implementation explains it. ``beyond rounding to nearest``: a right output gives
    this with a probability of at most 10⁻⁹, if roundings are independent. ``unknown``: nothing can be said, and
    ``words`` says why. ``empty`` counts the rows without any key, which are left out, ``undefined`` those of them in
    which NaN or infinity was given; ``at`` is (batch, head, row).
    """

    ratio: float
    sure: Sure
    words: str = ""
    empty: int = 0
    undefined: int = 0
    at: tuple[int, ...] = ()

    RECORD = "ratio, sure, words"

    @property
    def legal(self) -> bool:
        """Return whether the result is as near to the exact one as a right implementation is."""
        return not self.sure


@dataclass(frozen=True)
class CallArithmetic:
    """The format of the inputs, and what an implementation may store: ``eager`` scores in it, ``fused`` does not."""

    dtype: str
    contract: Contract = "eager"

    @property
    def precision(self) -> Precision:
        """Return the precision of the worst case: sums are taken in float32 or wider, as they are by torch."""
        wide = self.dtype in FORMATS
        return Precision.of(self.dtype, self.contract, accumulate="float32" if wide else None)

    def stores(self, capped: bool) -> Stores | None:
        """Return the stored steps of the sharp test: sums are taken in float32; None for wide formats."""
        return Stores.of(self.precision, True, capped)

    @property
    def together(self) -> Stores:
        """Return the stored steps of all roundings together, whose bound holds in wide formats, too."""
        return self.stores(False) or Stores(Format(self.dtype), 0 if self.contract == "fused" else 2)


def judge(
    setting: CallSetting, got: Floats, arithmetic: CallArithmetic, alpha: float = ALPHA, factors: Floats | None = None
) -> CallJudgement:
    """``got`` (b, h, r, d_v) as the result of what ``setting`` says, with weights times ``factors`` of dropout."""
    empty = setting.empty()
    undefined = int((empty & ~np.isfinite(got).all(axis=-1)).sum())
    judgement = _of_others(setting, got, arithmetic, alpha, empty, factors)
    return replace(judgement, empty=int(empty.sum()), undefined=undefined)


def _of_others(
    setting: CallSetting, got: Floats, arithmetic: CallArithmetic, alpha: float, empty: Mask, factors: Floats | None
) -> CallJudgement:
    """Judge the rows that are not empty."""
    if empty.all():
        return CallJudgement(0.0, "unknown", "no query that was looked at may see any key")
    for name, array in (("q", setting.q), ("k", setting.k), ("v", setting.v)):
        if not np.isfinite(array).all():
            return CallJudgement(np.nan, "unknown", f"{name} holds NaN or infinity: the cause is before the call")
    spec, inputs = canonical(setting.spec()), setting.inputs()
    cleaned = np.where(empty[..., None], 0.0, got)
    how = arithmetic.stores(spec.capped) if factors is None else arithmetic.together
    try:
        return _told(judge_output(spec, inputs, cleaned, arithmetic.precision, how, alpha, factors=factors))
    except SymattnError as error:
        return CallJudgement(np.nan, "unknown", str(error))


def output(setting: CallSetting) -> Floats:
    """The definition in float64."""
    result: Floats = setting.spec()(**setting.inputs())
    return result


def screened(setting: CallSetting, got: Floats, arithmetic: CallArithmetic) -> bool:
    """Return whether ``got`` may be right for a setting: what is far off is not, and need not be judged with care."""
    with np.errstate(all="ignore"):
        off = np.abs(output(setting) - got)[~setting.empty()]
        size = np.abs(got[~setting.empty()]).max(initial=0.0)
    return bool(
        np.isfinite(off).all() and off.max(initial=0.0) <= _FAR * float(arithmetic.precision.input.u) * (1 + size)
    )


def _told(found: Judgement) -> CallJudgement:
    if found.measured is not None and not np.isfinite(found.measured.allowed).any():
        return CallJudgement(np.nan, "unknown", "the bound says nothing about these inputs")
    words = f"weighted means of the output: {found.mean.words}" if found.mean else ""
    ratio = found.ratio if found.beyond else min(found.ratio, 1.0)
    sure: Sure = "certified" if found.certain else "beyond rounding to nearest" if found.beyond else ""
    return CallJudgement(ratio, sure, words, at=found.at[:-1])
