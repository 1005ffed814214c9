"""Which known mistake explains a wrong call: named only where exactly one does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from symattn.models.auditing.call_judge import CallArithmetic, judge, output, screened
from symattn.models.auditing.promised_mask import Masking
from symattn.models.auditing.setting import CallSetting, Floats
from symattn.verification.rules import heads

_STEPS = 12  # of Newton, for a scale that fits
_TOLD = 3  # hypotheses that are told where several fit


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """A mistake in words, and what is computed with it."""

    words: str
    setting: CallSetting


def cause(setting: CallSetting, masking: Masking | None, got: Floats, arithmetic: CallArithmetic) -> str:
    """The one known mistake in computing ``setting`` that gives ``got``, in words; those that fit where several do.

    Empty where none fits.
    """
    fitting = [h.words for h in _different(hypotheses(setting, masking)) if _fits(h.setting, got, arithmetic)]
    if not fitting:
        scaled = _rescaled(setting, got, arithmetic)
        return f"scores are scaled by {scaled / setting.scale:.4g} times the correct scale" if scaled else ""
    return one_of(fitting)


def one_of(fitting: Sequence[str]) -> str:
    """Return the one mistake that fits, in words; where several do, that it is open, and the first of them."""
    if len(fitting) <= 1:
        return next(iter(fitting), "")
    more = f", or {len(fitting) - _TOLD} others" if len(fitting) > _TOLD else ""
    return f"open, since several mistakes fit: {'; or '.join(fitting[:_TOLD])}{more}"


def hypotheses(right: CallSetting, masking: Masking | None) -> Iterator[Hypothesis]:
    """Known mistakes, the plainest first."""
    yield from _of_scores(right)
    if right.sink is not None:
        yield Hypothesis("the sink is left out", replace(right, sink=None))
        yield Hypothesis(
            "the sink's logits are ignored: 0 is used for all of them", replace(right, sink=0 * right.sink)
        )
    yield from _of_heads(right)
    if right.bias is not None:
        yield Hypothesis("the bias of the scores is left out", replace(right, bias=None))
        where = right.bias == 0 if right.allowed is None else right.allowed & (right.bias == 0)
        words = "what is added to the scores is read as a mask: every nonzero number forbids"
        yield Hypothesis(words, replace(right, bias=None, allowed=where))
    if masking is not None:
        for words, allowed in masking.mistakes():
            yield Hypothesis(words, right.with_mask(allowed))
    elif right.allowed is not None:
        yield Hypothesis("the mask is ignored", right.with_mask(None))
        yield Hypothesis("the mask is inverted", right.with_mask(~right.allowed))


def _of_scores(right: CallSetting) -> Iterator[Hypothesis]:
    if right.softcap is not None:
        yield Hypothesis("the softcap is left out", replace(right, softcap=None))
    for words, scale in scales(right, right.scale).items():
        if abs(scale - right.scale) > 1e-6 * right.scale:
            yield Hypothesis(words, replace(right, scale=scale))


def scales(setting: CallSetting, own: float) -> dict[str, float]:
    """The scales that are known to be taken for the right one, ``own``, by what is wrong with them."""
    d = setting.q.shape[-1]
    return {
        "scores are not scaled": 1.0,
        "scores are scaled by 1/√d_k": 1 / sqrt(d),
        "scores are scaled by 1/d_k": 1 / d,
        "scores are scaled twice": own * own,
        "scores are scaled by √d_k": sqrt(d),
        "scores are scaled by d_k^(−1/4): the scale is in one of queries and keys alone": d**-0.25,
        "scores are scaled by 1/√d_model": 1 / sqrt(d * setting.heads),
        "scores are scaled by 1/√d_v": 1 / sqrt(setting.v.shape[-1]),
    }


def _of_heads(right: CallSetting) -> Iterator[Hypothesis]:
    """The mistakes by rule in which heads of keys and values are read, where those are shared."""
    if not 1 < right.key_heads < right.heads:
        return
    spec, inputs = right.spec(), right.inputs()
    values = spec.trace(**inputs)
    for mistake in heads.mistakes(spec, frozenset(inputs)):
        if mistake.variant.steps and mistake.variant.steps.keys() <= {"k_shared", "v_shared"}:
            changed = {name: change(spec, values) for name, change in mistake.variant.steps.items()}
            k, v = (changed.get(name, values[name]) for name in ("k_shared", "v_shared"))
            yield Hypothesis(mistake.cause, replace(right, k=k, v=v))


def _different(found: Iterator[Hypothesis]) -> list[Hypothesis]:
    """Keep the first of those that say the same of these queries."""
    kept: list[Hypothesis] = []
    for hypothesis in found:
        if not any(hypothesis.setting.alike(other.setting) for other in kept):
            kept.append(hypothesis)
    return kept


def _fits(setting: CallSetting, got: Floats, arithmetic: CallArithmetic) -> bool:
    return screened(setting, got, arithmetic) and judge(setting, got, arithmetic).legal


def _rescaled(setting: CallSetting, got: Floats, arithmetic: CallArithmetic) -> float:
    """A scale with which ``got`` is right, found by Newton's method on the least squares; 0 where there is none."""
    usable = np.isfinite(got) & ~setting.empty()[..., None]
    scale = setting.scale
    for _ in range(_STEPS):
        with np.errstate(all="ignore"):
            here = output(replace(setting, scale=scale))
            slope = (output(replace(setting, scale=scale * (1 + 1e-6))) - here) / (scale * 1e-6)
            step = float((slope * (got - here))[usable].sum() / np.square(slope)[usable].sum())
        if not np.isfinite(step):
            return 0.0
        scale += float(np.clip(step, -scale / 2, scale))
    return scale if _fits(replace(setting, scale=scale), got, arithmetic) else 0.0
