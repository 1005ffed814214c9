"""What the function's own answers say about its steps, without supposing any mistake."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite, log, sqrt

import numpy as np

from symattn.attention.spec import Attention
from symattn.verification.judge import Judged


@dataclass(frozen=True)
class ObservedScale:
    """At one d_k: the scale that the weights show, log(p₂/p₁)/(s₂ − s₁)."""

    d_k: int
    observed: float

    @property
    def candidates(self) -> dict[str, float]:
        """The scales to compare it with."""
        return {"1/d_k": 1 / self.d_k, "1/√d_k": 1 / sqrt(self.d_k)}


def scales(spec: Attention, records: Iterable[Judged]) -> tuple[ObservedScale, ...]:
    """The scale at every d_k of the group ``scale``, where q, k, v are given: two keys, the values 0 and 1."""
    found: dict[int, ObservedScale] = {}
    for judged in records:
        inputs, got = judged.case.inputs, judged.outcome.output
        if judged.case.group != "scale" or "q" not in inputs or spec.masks_anything or got is None or not got.size:
            continue
        d_k, score = inputs["q"].shape[-1], float(inputs["q"][0, 0])
        p = float(got.flat[0])
        if d_k not in found and 0 < p < 1:
            found[d_k] = ObservedScale(d_k, log(p / (1 - p)) / score)
    return tuple(found[d] for d in sorted(found))


def first_wrong_step(spec: Attention, records: Iterable[Judged]) -> tuple[str, str]:
    """The first step that the weights show to be wrong, and what shows it; ("output", "") where nothing does.

    Where the values are the identity the output is the matrix of weights. A forbidden key with a weight: mask. A row
    whose sum is not 1: softmax. Weights whose logarithms are proportional to the true ones: scale; others: score.
    Right weights, and wrong outputs elsewhere: values.
    """
    shown = [r for r in records if _shows_weights(r)]
    wrong = [r for r in shown if r.worst > 1]
    if not shown:
        return "output", ""
    if not wrong:
        return "values", f"in {len(shown)} cases whose values are the identity the weights are right"
    tests = (_mask, _sum, _proportion)
    for test in tests:
        for judged in wrong:
            found = test(spec, judged)
            if found:
                return found
    return "score", "the weights are wrong, their rows sum to 1, and their logarithms fit no scale"


def _shows_weights(judged: Judged) -> bool:
    v, got = judged.case.inputs.get("v"), judged.outcome.output
    if v is None or got is None or judged.ratios is None or v.ndim != 2 or not np.isfinite(got).all():
        return False
    return v.shape[0] == v.shape[1] and bool((v == np.eye(len(v))).all()) and len(v) > 1


def _mask(spec: Attention, judged: Judged) -> tuple[str, str] | None:
    got, open_ = judged.outcome.output, judged.expected.run.allowed
    assert got is not None
    assert judged.ratios is not None
    leaks = np.argwhere(~open_ & (judged.ratios > 1))
    if len(leaks):
        i, j = (int(n) for n in leaks[0])
        return "mask", f"query {i + 1} gives the forbidden key {j + 1} the weight {got[i, j]:.4g}"
    starved = np.argwhere(open_ & (got == 0) & (judged.ratios > 1))
    if len(starved) and spec.masks_anything:
        i, j = (int(n) for n in starved[0])
        return "mask", f"query {i + 1} gives the allowed key {j + 1} no weight"
    return None


def _sum(spec: Attention, judged: Judged) -> tuple[str, str] | None:
    got, allowed = judged.outcome.output, judged.expected.allowed
    assert got is not None
    off = np.abs(got.sum(axis=1) - 1) - allowed.sum(axis=1)
    i = int(np.argmax(off))
    return ("softmax", f"the weights of query {i + 1} sum to {got[i].sum():.6g}") if off[i] > 0 else None


def _proportion(spec: Attention, judged: Judged) -> tuple[str, str] | None:
    """Whether log-ratios of weights are one multiple of the true differences of scores."""
    got, open_ = judged.outcome.output, judged.expected.run.allowed
    assert got is not None
    t = np.where(open_, judged.expected.run.values["scaled"].midpoints(), np.nan)
    with np.errstate(all="ignore"):
        observed, true = np.diff(np.log(got), axis=1), np.diff(t, axis=1)
        ratios = (observed / true)[np.isfinite(observed) & (np.abs(true) > 0.1)]
    if len(ratios) < 2 or not isfinite(float(ratios.sum())) or np.ptp(ratios) > 0.01 * abs(ratios.mean()):
        return None
    return "scale", f"the weights are those of {ratios.mean():.4g} times the scores"
