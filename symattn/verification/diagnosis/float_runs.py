"""Runs of variants of attention in float64, and how far implementations of a variant may be from its run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.case_result import UNFIT, CaseResult
from symattn.bounds.reference import RIGHT, SCORES, Values, Variant, canonical, changed, trace
from symattn.verification.diagnosis.screening import ComputedValues

Array = np.ndarray
_ROUGH = 8  # multiple of a first-order bound
_KEPT = 1 << 17  # numbers up to which a run of the right definition is stored


@dataclass
class FloatRuns:
    """Runs of attention in float64; those of the right definition are stored."""

    spec: Attention
    precision: Precision
    right: ComputedValues[Values] = field(default_factory=ComputedValues)
    rough: dict[tuple[int, int], float] = field(default_factory=dict)

    def run(self, judged: CaseResult, variant: Variant) -> Array:
        """Return the output of a variant."""
        values = self._traced(judged, variant, np.float64)
        with np.errstate(all="ignore"):
            self.rough[id(judged), id(variant)] = self._rough(values)
        return np.asarray(values["output"], dtype=np.float64)

    def slack(self, judged: CaseResult, variant: Variant) -> float:
        """Return a rough bound on the distance of implementations from a variant that has just been run."""
        return self.rough[id(judged), id(variant)]

    def loses(self, judged: CaseResult, variant: Variant) -> bool:
        """Return whether the variant, in the format of the scores, is not finite wherever the function was not."""
        got, wide = judged.outcome.output, self.precision.score.name == "float64"
        try:
            out = np.asarray(self._traced(judged, variant, np.float64 if wide else np.float32)["output"])
        except UNFIT:
            return False
        return got is not None and got.shape == out.shape and bool((~np.isfinite(out))[~np.isfinite(got)].all())

    def _traced(self, judged: CaseResult, variant: Variant, dtype: type[np.floating[Any]]) -> Values:
        """Return all arrays of a variant in this type."""
        spec, inputs = changed(canonical(self.spec), judged.case.inputs, variant)
        own = judged.case.inputs
        known: Values = {}
        if dtype is np.float64 and variant is not RIGHT and variant.spec is None and inputs.keys() == own.keys():
            known = self._right_arrays(judged)
        arrays = {
            n: known[n] if known and a is own[n] else a if a.dtype.kind in "biu" else a.astype(dtype)
            for n, a in inputs.items()
        }
        with np.errstate(all="ignore"):
            return trace(spec, arrays, variant, known=known)

    def _right_arrays(self, judged: CaseResult) -> Values:
        """Return the arrays of the right definition; none if they are large, or if it has no result."""

        def run() -> Values:
            values = self._traced(judged, RIGHT, np.float64)
            return values if sum(np.size(a) for a in values.values()) <= _KEPT else {}

        try:
            return self.right.once((judged,), run)
        except UNFIT:
            return {}

    def _rough(self, values: Values) -> float:
        """Return u (n + d + |s|) max|v| Σ|a|, with generous factors."""
        f = self.precision.roughest
        met = ("q_joined", "k_joined") if "k_joined" in values else ("q", "k")  # for latents, both parts side by side
        q, k, a = (np.asarray(values[n]) for n in (*met, "weights"))
        n = a.shape[-1]
        later = [name for name in SCORES[1:] if name in values] or ["scores"]
        largest = max(_largest(np.asarray(values[name])) for name in later)
        raw = _largest(np.asarray(values["scores"]))
        lengths = _longest(q) * _longest(k)
        size = max(largest, lengths * min(largest / raw, 1e3) if raw > 0 and largest > 0 else lengths)
        terms = n + q.shape[-1] + 2 * (int(np.shape(values["x"])[-1]) if "x" in values else 0) + 8
        total = max(float(np.nanmax(np.abs(a).sum(axis=-1), initial=1.0)), 1.0) if a.size else 1.0
        values_ = _largest(np.asarray(values["v"])) * _projection(values)
        return float(_ROUGH * float(f.u) * (terms + 4 * size) * values_ * total + 64 * float(f.eta) * n * (values_ + 1))


def _projection(values: Values) -> float:
    """Return the largest factor by which an output projection can grow a number."""
    w = values.get("w_o")
    return 1.0 if w is None else float(np.abs(np.asarray(w)).sum(axis=0).max(initial=1.0))


def _largest(x: np.ndarray) -> float:
    finite = np.abs(x[np.isfinite(x)])
    return float(finite.max(initial=0.0))


def _longest(x: Array) -> float:
    return float(np.sqrt((x * x).sum(axis=-1)).max(initial=0.0))
