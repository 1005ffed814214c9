"""Mistakes tried in float64, before balls decide: what cannot be, by far, is put aside at little cost.

A variant of the definition runs on NumPy arrays, and its output is compared with what the function gave. The slack is
generous: several times what is legal for the right definition, and no less than a rough bound for the variant's own
scores and weights. So a mistake that is put aside here is none that balls would accept; what is left is judged there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.case_result import UNFIT, CaseResult
from symattn.bounds.judge import traced
from symattn.bounds.reference import RIGHT, SCORES, Values, Variant, canonical, changed, trace

Array = np.ndarray
T = TypeVar("T")
_LEGAL = 8  # times what is legal for the right definition
_BESIDE = 3  # the same, for variants whose scores and weights are nearly the right ones
_ROUGH = 8  # times a first-order bound
_KEPT = 1 << 17  # numbers that a run of the right definition has at most to be kept


@dataclass
class ComputedValues(Generic[T]):
    """Values computed from objects, by their ``id``; each object is stored too, so that no other takes its ``id``."""

    results: dict[tuple[int, ...], tuple[tuple[object, ...], T]] = field(default_factory=dict)

    def once(self, of: tuple[object, ...], compute: Callable[[], T], keep: bool = True) -> T:
        """Return what is computed of these objects, which is computed again only if it was not kept."""
        key = tuple(map(id, of))
        if key in self.results:
            return self.results[key][1]
        result = compute()
        if keep:
            self.results[key] = of, result
        return result


@dataclass
class Screen:
    """Runs in float64; those of the right definition, and answers, are kept."""

    spec: Attention
    precision: Precision
    right: ComputedValues[tuple[Array, float, Values]] = field(default_factory=ComputedValues)
    answers: ComputedValues[bool | None] = field(default_factory=ComputedValues)

    def answer(self, judged: CaseResult, variant: Variant, around: tuple[Variant, ...] = ()) -> bool | None:
        """Return what ``_answer`` says, asked once for each case and variant."""
        return self.answers.once((judged, variant, *around), lambda: self._answer(judged, variant, around))

    def _answer(self, judged: CaseResult, variant: Variant, around: tuple[Variant, ...]) -> bool | None:
        """False where the variant cannot have given what the function gave, True where it can and the right definition
        cannot, None where nothing can be told.

        With variants ``around``, what was given may be as far away as they are, and as what is legal for the right
        definition.
        """
        try:
            out, rough = self.run(judged, variant)
            beside = [self.run(judged, other)[0] for other in around]
        except KeyError:  # it changes an array that is not there
            return None
        except UNFIT:  # it cannot be computed for these shapes
            return judged.finding == "raises" or None if judged.outcome.error else False
        got = judged.outcome.output
        if got is None:
            return None
        if got.shape != out.shape:
            return False
        with np.errstate(all="ignore"):
            if around:
                slack = _BESIDE * self._legal(judged, out) + sum(np.abs(x - out) for x in beside)
            else:
                slack = np.maximum(_LEGAL * self._legal(judged, out), rough)
        right = out if judged.ratios is None else self.run(judged, RIGHT)[0]
        return compared(got, out, right, judged.ratios, slack)

    def run(self, judged: CaseResult, variant: Variant) -> tuple[Array, float]:
        """The output of a variant, and a rough bound on how far code of it may be from that."""
        if variant is RIGHT:
            return self.right.once((judged,), lambda: self._run(judged, RIGHT))[:2]
        return self._run(judged, variant)[:2]

    def _run(self, judged: CaseResult, variant: Variant) -> tuple[Array, float, Values]:
        """Run a variant, with all arrays where these are few."""
        values = self._traced(judged, variant, np.float64)
        few = sum(np.size(a) for a in values.values()) <= _KEPT
        with np.errstate(all="ignore"):
            return np.asarray(values["output"], dtype=np.float64), self._rough(values), values if few else {}

    def loses(self, judged: CaseResult, variant: Variant) -> bool:
        """Return whether the variant, in the format of the scores, gives no number wherever the function gave none."""
        got, wide = judged.outcome.output, self.precision.score.name == "float64"
        try:
            out = np.asarray(self._traced(judged, variant, np.float64 if wide else np.float32)["output"])
        except UNFIT:
            return False
        return got is not None and got.shape == out.shape and bool((~np.isfinite(out))[~np.isfinite(got)].all())

    def _traced(self, judged: CaseResult, variant: Variant, dtype: type[np.floating[Any]]) -> Values:
        """All arrays of a variant in this type."""
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
        """The arrays of the right definition; none where they are many, or where it has no result."""
        try:
            return self.right.once((judged,), lambda: self._run(judged, RIGHT))[-1]
        except UNFIT:
            return {}

    def _legal(self, judged: CaseResult, out: Array) -> Array:
        allowed = traced(judged).allowed
        return allowed if allowed.shape == out.shape else np.zeros(out.shape)

    def _rough(self, values: Values) -> float:
        """u (n + d + |s|) max|v| Σ|a|, with factors that are generous."""
        f = self.precision.roughest
        met = ("q_joined", "k_joined") if "k_joined" in values else ("q", "k")  # of latents, both parts side by side
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
    """How much larger an output projection can make a number."""
    w = values.get("w_o")
    return 1.0 if w is None else float(np.abs(np.asarray(w)).sum(axis=0).max(initial=1.0))


def _largest(x: np.ndarray) -> float:
    finite = np.abs(x[np.isfinite(x)])
    return float(finite.max(initial=0.0))


def _longest(x: Array) -> float:
    return float(np.sqrt((x * x).sum(axis=-1)).max(initial=0.0))


def compared(got: Array, wrong: Array, right: Array, ratios: Array | None, slack: Array) -> bool | None:
    """Return False where ``got`` is no output of a mistake up to the slack, True where it is and the right one is none.

    None where nothing can be told. ``ratios`` are errors as parts of what is legal; without them the shape is wrong.
    """
    result = np.isfinite(wrong) & np.isfinite(slack)
    with np.errstate(all="ignore"):
        if (~(np.abs(got - wrong) <= slack) & result).any():
            return False
        if ratios is None:
            return True if result.any() else None
        apart = ~(np.abs(right - wrong) <= slack)
    return True if ((ratios > 1) & result & apart).any() else None
