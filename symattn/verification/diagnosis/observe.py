"""Evidence about a function's steps from its own outputs, without assuming any mistake."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.case_result import CaseResult
from symattn.bounds.judge import traced
from symattn.bounds.reference import usual


@dataclass(frozen=True)
class ObservedScale:
    """The scale that the weights show at one d_k, log(p₂/p₁)/(s₂ − s₁)."""

    d_k: int
    observed: float

    RECORD = "d_k, observed, *candidates"

    @property
    def candidates(self) -> dict[str, float]:
        """The usual scales."""
        return {"1/d_k": 1 / self.d_k, "1/√d_k": 1 / sqrt(self.d_k)}


def scales(spec: Attention, records: Iterable[CaseResult]) -> tuple[ObservedScale, ...]:
    """Return the scale at every d_k of the group ``scale``, whose cases have two keys with the values 0 and 1."""
    if not usual(spec):
        return ()
    result: dict[int, ObservedScale] = {}
    for judged in records:
        inputs, got = judged.case.inputs, judged.outcome.output
        if (
            judged.case.group != "scale"
            or "q" not in inputs
            or got is None
            or judged.ratios is None
        ):
            continue
        d_k = inputs["q"].shape[-1]
        score = float(inputs["q"].flat[0])
        p = float(got.flat[-1])  # the last query sees both keys even under a causal mask
        # log(p / (1 − p)) needs a weight strictly between 0 and 1.
        if d_k not in result and 0 < p < 1:
            result[d_k] = ObservedScale(d_k, log(p / (1 - p)) / score)
    return tuple(result[d] for d in sorted(result))


def first_wrong_step(
    spec: Attention,
    judged: CaseResult,
    weights: CaseResult | None,
    place: str,
    records: Iterable[CaseResult] = (),
) -> tuple[str, str]:
    """Return the first step that a wrong case shows to be wrong, and the evidence; ("output", "") if there is none.

    ``place`` says which case it is, in the words of the report.

    ``weights`` is the same case with the identity as values, so that its output is the matrix of weights. If it is
    right, the values are to blame. If it is wrong, and its product with the values is the function's output, then the
    step is: mask, if a forbidden key has a weight; normalize, if a row does not sum to 1; otherwise weights. A mask
    hides nothing in the smallest inputs, so it is also checked in ``records``.
    """
    if weights is None or weights.ratios is None or not _is_output_finite(weights):
        return "output", ""
    context = f"{place}, with V = I for its values"
    # Right weights and a wrong output: the values are read or weighed wrongly.
    if weights.worst <= 1:
        return "values", f"{context}, the weights are right"
    if not explains(judged, weights):
        return "output", ""
    words = _observe_mask_violation(spec, weights)
    if words:
        return "mask", f"{context}, {words}"
    # Small inputs mask nothing, so other cases that show weights are searched too.
    for other in filter(_shows_weights, records):
        words = _observe_mask_violation(spec, other)
        if words:
            return "mask", f"{in_group(other)}, {words}"
    words = _observe_weight_sum(weights)
    if words:
        return "normalize", f"{context}, {words}"
    return "weights", f"{context}, weights are wrong, and every row of them sums to 1"


def in_group(judged: CaseResult) -> str:
    """Return where a case stands that the report does not print."""
    return f"in the group {judged.case.group}, case “{judged.case.name}”"


def _shows_weights(judged: CaseResult) -> bool:
    v = judged.case.inputs.get("v")
    if v is None or v.ndim not in (2, 3) or judged.ratios is None or not _is_output_finite(judged):
        return False
    keys, columns = v.shape[-2:]
    return keys == columns and bool((v == np.eye(columns)).all())


def _is_output_finite(judged: CaseResult) -> bool:
    return judged.outcome.output is not None and bool(np.isfinite(judged.outcome.output).all())


def explains(judged: CaseResult, weights: CaseResult | None) -> bool:
    """Return whether the weights seen, times the values, can be the output seen; else V enters in another way."""
    if weights is None or weights.ratios is None:
        return True
    got = judged.outcome.output
    weight_matrix = weights.outcome.output
    v = judged.case.inputs["v"]
    if got is None or weight_matrix is None or judged.ratios is None:
        return False
    with np.errstate(invalid="ignore"):
        if (
            v.ndim > 2 and v.shape[0] != weight_matrix.shape[0]
        ):  # heads of values that several heads of queries read
            v = np.repeat(v, weight_matrix.shape[0] // v.shape[0], axis=0)
        off = np.abs(weight_matrix @ v - got)
        return bool(
            (off <= 2 * traced(judged).allowed + 2 * traced(weights).allowed @ np.abs(v)).all()
        )


def _observe_mask_violation(spec: Attention, judged: CaseResult) -> str:
    got, open_ = judged.outcome.output, traced(judged).run.allowed
    assert got is not None
    assert judged.ratios is not None
    leaks = np.argwhere(~open_ & (judged.ratios > 1))
    if len(leaks):
        *_, i, j = at = tuple(int(n) for n in leaks[0])
        return f"query {i + 1} gives the forbidden key {j + 1} the weight {got[at]:.4g}"
    # A weight of 0 where the bound requires more.
    starved = np.argwhere(open_ & (got == 0) & (judged.ratios > 1))
    if len(starved) and spec.masks_anything:
        *_, i, j = (int(n) for n in starved[0])
        return f"query {i + 1} gives the allowed key {j + 1} no weight"
    return ""


def _observe_weight_sum(judged: CaseResult) -> str:
    # A sink takes part of the weights, so the exact sum may be below 1.
    got, allowed = judged.outcome.output, traced(judged).allowed
    assert got is not None
    # weights of a query should sum to 1, less what a sink takes
    exact_sums = traced(judged).near.sum(axis=-1)
    off = np.abs(got.sum(axis=-1) - exact_sums) - allowed.sum(axis=-1)
    at = np.unravel_index(int(np.argmax(off)), off.shape)
    return (
        f"the weights of query {int(at[-1]) + 1} sum to {got[at].sum():.6g}" if off[at] > 0 else ""
    )
