"""One call against the exact result: its error as a fraction of the bound on rounding, and how sure a fault is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal

import numpy as np

from symattn.arrays.formats import HALF
from symattn.arrays.precision import Contract, Precision
from symattn.bounds.judgement import judge_output
from symattn.bounds.reference import canonical
from symattn.bounds.sharp.limits import Stores
from symattn.document.errors import SymattnError
from symattn.models.auditing.setting import CallSetting, Floats, Mask, Masking
from symattn.verification.rules import head_mistakes

# Probability with which a right call is reported as wrong.
ALPHA = 1e-9
_FAR = 200  # an output further off a hypothesis than this many units of roundoff does not fit
Sure = Literal["", "certified", "beyond rounding to nearest", "unknown"]


@dataclass(frozen=True)
class CallJudgement:
    """``ratio`` is the largest error as a fraction of the bound; ``sure`` is empty if the error is legal.

    ``certified``: no rounding in any implementation explains it. ``beyond rounding to nearest``: a right
    implementation gives this with a probability of at most 10⁻⁹, if roundings are independent. ``unknown``: it could
    not be judged, and ``words`` says why. ``empty`` counts the rows without any key, which are left out,
    ``undefined`` those of them that hold NaN or infinity; ``at`` is (batch, head, row).
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
        """Return whether the result is as near to the exact one as that of a right implementation."""
        return not self.sure


def arithmetic_of(dtype: str, contract: Contract = "eager") -> Precision:
    """The precision of a call: ``eager`` may store scores in its format, ``fused`` not; sums are in float32."""
    return Precision.of(dtype, contract, accumulate="float32" if dtype in HALF else None)


def together(arithmetic: Precision) -> Stores:
    """The stored steps for the bound on all roundings together, which also holds in wide formats."""
    return Stores.of(arithmetic, True, False) or Stores(
        arithmetic.input, 0 if arithmetic.contract == "fused" else 2
    )


def judge(
    setting: CallSetting,
    got: Floats,
    arithmetic: Precision,
    alpha: float = ALPHA,
    factors: Floats | None = None,
) -> CallJudgement:
    """Judge ``got`` (b, h, r, d_v) as the result of ``setting``, with weights times ``factors`` of dropout."""
    empty = setting.empty()
    is_finite_row = np.isfinite(got).all(axis=-1)
    undefined = int((empty & ~is_finite_row).sum())
    judgement = _of_others(setting, got, arithmetic, alpha, empty, factors)
    return replace(judgement, empty=int(empty.sum()), undefined=undefined)


def _of_others(
    setting: CallSetting,
    got: Floats,
    arithmetic: Precision,
    alpha: float,
    empty: Mask,
    factors: Floats | None,
) -> CallJudgement:
    """Judge the rows that are not empty."""
    if empty.all():
        return CallJudgement(0.0, "unknown", "no query that was looked at may see any key")
    for name, array in (("q", setting.q), ("k", setting.k), ("v", setting.v)):
        if not np.isfinite(array).all():
            return CallJudgement(
                np.nan, "unknown", f"{name} holds NaN or infinity: the cause is before the call"
            )
    spec, inputs = canonical(setting.spec()), setting.inputs()
    # Rows without any key have no right result.
    cleaned = np.where(empty[..., None], 0.0, got)
    how = Stores.of(arithmetic, True, spec.capped) if factors is None else together(arithmetic)
    try:
        judgement = judge_output(spec, inputs, cleaned, arithmetic, how, alpha, factors=factors)
    except SymattnError as error:
        return CallJudgement(np.nan, "unknown", str(error))
    if judgement.measured is not None and not np.isfinite(judgement.measured.allowed).any():
        return CallJudgement(np.nan, "unknown", "the bound says nothing about these inputs")
    words = f"weighted means of the output: {judgement.mean.words}" if judgement.mean else ""
    ratio = judgement.ratio if judgement.beyond else min(judgement.ratio, 1.0)
    sure: Sure = (
        "certified"
        if judgement.certain
        else "beyond rounding to nearest"
        if judgement.beyond
        else ""
    )
    return CallJudgement(ratio, sure, words, at=judgement.at[:-1])


def output(setting: CallSetting) -> Floats:
    """Return the result of the definition in float64."""
    result: Floats = setting.spec()(**setting.inputs())
    return result


def screened(setting: CallSetting, got: Floats, arithmetic: Precision) -> bool:
    """Return whether ``got`` may be right for a setting; a result that is far off need not be judged with care."""
    with np.errstate(all="ignore"):
        off = np.abs(output(setting) - got)[~setting.empty()]
        size = np.abs(got[~setting.empty()]).max(initial=0.0)
    return bool(
        np.isfinite(off).all()
        and off.max(initial=0.0) <= _FAR * float(arithmetic.input.u) * (1 + size)
    )


# -- which known mistake explains a wrong call, named only if exactly one does -----------------------------------------
_STEPS = 12  # of Newton's method, for a scale that fits
# in which wrong results may be computed
NARROWER = {"float64": ("float32",), "float32": ("float16", "bfloat16")}
_LISTED = 3  # hypotheses named if several fit


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """A mistake in words, and the setting of a call with it."""

    words: str
    setting: CallSetting


def cause(setting: CallSetting, masking: Masking | None, got: Floats, arithmetic: Precision) -> str:
    """The one known mistake in computing ``setting`` that gives ``got``, in words; if several fit, those.

    Empty if none fits.
    """
    different: list[Hypothesis] = []  # of those that mean the same for these queries, the first
    for hypothesis in hypotheses(setting, masking):
        if not any(hypothesis.setting.alike(other.setting) for other in different):
            different.append(hypothesis)
    fitting = [h.words for h in different if _is_setting_legal(h.setting, got, arithmetic)]
    # No mistake fits: perhaps a narrower format does, or another scale.
    if not fitting:
        for name in NARROWER.get(arithmetic.input.name, ()):
            if _is_setting_legal(setting, got, arithmetic_of(name)):
                return f"it is computed in {name}"
        scaled = _find_fitting_scale(setting, got, arithmetic)
        return (
            f"scores are scaled by {scaled / setting.scale:.4g} times the correct scale"
            if scaled
            else ""
        )
    return one_of(fitting)


def one_of(fitting: Sequence[str]) -> str:
    """Return the one mistake that fits, in words; if several do, words that say so and name the first of them."""
    if len(fitting) <= 1:
        return next(iter(fitting), "")
    more = f", or {len(fitting) - _LISTED} others" if len(fitting) > _LISTED else ""
    return f"open, since several mistakes fit: {'; or '.join(fitting[:_LISTED])}{more}"


def hypotheses(right: CallSetting, masking: Masking | None) -> Iterator[Hypothesis]:
    """Yield known mistakes, the simplest first."""
    if right.softcap is not None:
        yield Hypothesis("the softcap is left out", replace(right, softcap=None))
    # A scale that equals the right one is no mistake.
    for words, scale in scales(right, right.scale).items():
        if abs(scale - right.scale) > 1e-6 * right.scale:
            yield Hypothesis(words, replace(right, scale=scale))
    if right.sink is not None:
        yield Hypothesis("the sink is left out", replace(right, sink=None))
        yield Hypothesis(
            "the sink's logits are ignored: 0 is used for all of them",
            replace(right, sink=0 * right.sink),
        )
    yield from _of_heads(right)
    if right.bias is not None:
        yield Hypothesis("the bias of the scores is left out", replace(right, bias=None))
        # A nonzero bias read as a mask forbids.
        where = right.bias == 0 if right.allowed is None else right.allowed & (right.bias == 0)
        words = "what is added to the scores is read as a mask: every nonzero number forbids"
        yield Hypothesis(words, replace(right, bias=None, allowed=where))
    if masking is not None:
        for words, allowed in masking.mistakes():
            yield Hypothesis(words, right.with_mask(allowed))
    elif right.allowed is not None:
        yield Hypothesis("the mask is ignored", right.with_mask(None))
        yield Hypothesis("the mask is inverted", right.with_mask(~right.allowed))


def scales(setting: CallSetting, own: float) -> dict[str, float]:
    """Scales that are known to be mistaken for the right one, ``own``, by a description of the mistake."""
    d = setting.q.shape[-1]
    return {
        "scores are not scaled": 1.0,
        "scores are scaled by 1/√d_k": 1 / sqrt(d),
        # Some divide by d in place of its root.
        "scores are scaled by 1/d_k": 1 / d,
        "scores are scaled twice": own * own,
        "scores are scaled by √d_k": sqrt(d),
        "scores are scaled by d_k^(−1/4): the scale is in one of queries and keys alone": d**-0.25,
        "scores are scaled by 1/√d_model": 1 / sqrt(d * setting.heads),
        "scores are scaled by 1/√d_v": 1 / sqrt(setting.v.shape[-1]),
    }


def _of_heads(right: CallSetting) -> Iterator[Hypothesis]:
    """Yield the mistakes of the rules about which shared heads of keys and values are read."""
    if not 1 < right.key_heads < right.heads:
        return
    spec, inputs = right.spec(), right.inputs()
    values = spec.trace(**inputs)
    for mistake in head_mistakes.mistakes(spec, frozenset(inputs)):
        # Other mistakes of heads change steps before or after the call.
        if mistake.variant.steps and mistake.variant.steps.keys() <= {"k_shared", "v_shared"}:
            steps = mistake.variant.steps
            changed = {name: change(spec, values) for name, change in steps.items()}
            k, v = (changed.get(name, values[name]) for name in ("k_shared", "v_shared"))
            yield Hypothesis(mistake.cause, replace(right, k=k, v=v))


def _is_setting_legal(setting: CallSetting, got: Floats, arithmetic: Precision) -> bool:
    return screened(setting, got, arithmetic) and judge(setting, got, arithmetic).legal


def _find_fitting_scale(setting: CallSetting, got: Floats, arithmetic: Precision) -> float:
    """A scale with which ``got`` is right, found by Newton's method on the least squares; 0 if there is none."""
    usable = np.isfinite(got) & ~setting.empty()[..., None]
    scale = setting.scale
    for _ in range(_STEPS):
        with np.errstate(all="ignore"):
            here = output(replace(setting, scale=scale))
            slope = (output(replace(setting, scale=scale * (1 + 1e-6))) - here) / (scale * 1e-6)
            step = float((slope * (got - here))[usable].sum() / np.square(slope)[usable].sum())
        if not np.isfinite(step):
            return 0.0
        # A step at most halves or doubles the scale, which so stays above 0.
        scale += float(np.clip(step, -scale / 2, scale))
    return scale if _is_setting_legal(replace(setting, scale=scale), got, arithmetic) else 0.0
