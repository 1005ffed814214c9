"""Mistakes that are changes of the steps of an attention: how they are run in float64, and bounded.

Runs share the arrays of the right definition before the step that is changed. How far implementations of a variant may
be from its run is known roughly, for its own scores and weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, prod, sqrt
from typing import Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.flow import STEPS_TO_BLAME
from symattn.attention.letters_of_attention import SCORES
from symattn.attention.spec import Attention
from symattn.bounds import judge
from symattn.bounds.case_result import UNFIT, CaseResult, Part
from symattn.bounds.mistake import Mistake
from symattn.bounds.reference import (
    RIGHT,
    Change,
    Values,
    Variant,
    changed,
    trace,
    variant_values,
)
from symattn.verification.diagnosis import parts
from symattn.verification.diagnosis.screening import ComputedValues
from symattn.verification.rules.two_mistakes import combine_mistakes

Array = np.ndarray
_LEGAL = 8  # multiple of the bound of the right definition
_ROUGH = 8  # multiple of a first-order bound
_KEPT = 1 << 17  # numbers up to which a run of the right definition is stored


@dataclass
class StepRuns:
    """Runs of variants of an attention; those of the right definition are stored."""

    spec: Attention
    precision: Precision
    right: ComputedValues[Values] = field(default_factory=ComputedValues)
    ran: tuple[CaseResult, Variant, Values] | None = None
    latest: tuple[CaseResult, Mapping[str, Change], Values] | None = None

    # -- how they are computed, see ``causes.Search`` ------------------------------------------------------------------
    def run(self, judged: CaseResult, way: Variant) -> list[Array]:
        """Return the output of a variant in float64."""
        self.ran = None  # its arrays may be large
        self.ran = judged, way, self._trace_variant_in_dtype(judged, way, np.float64)
        return [np.asarray(self.ran[2]["output"], dtype=np.float64)]

    def run_in(
        self, judged: CaseResult, way: Variant, dtype: type[np.floating[Any]]
    ) -> list[Array]:
        """Return the output of a variant in another format."""
        traced = self._trace_variant_in_dtype(judged, way, dtype)
        return [np.asarray(traced["output"], dtype=np.float64)]

    def on_residues(self, inputs: dict[str, Any], mistake: Mistake) -> Sequence[Any]:
        """Return the output of a mistake on residues."""
        return (variant_values(self.spec, inputs, mistake.variant)["output"],)

    def in_part(self, way: Variant, part: parts.OutputPart, names: frozenset[str]) -> Variant:
        """Return the variant that is made in a part of the output alone: both outputs are computed, and joined."""

        def output(spec: Attention, values: Mapping[str, Any]) -> Any:
            inputs = {n: values[n] for n in names}
            wrong, right = (variant_values(spec, inputs, of)["output"] for of in (way, RIGHT))
            return part.joined(wrong, right)

        return Variant({"output": output}, False)

    def combined(self, first: Mistake, second: Mistake) -> Sequence[Mistake]:
        """Return both mistakes at once; see ``combine_mistakes``."""
        # In the order of the steps, whichever mistake comes first.
        both = combine_mistakes(
            *sorted((first, second), key=lambda m: STEPS_TO_BLAME.index(m.step))
        )
        return () if both is None else (both,)

    # -- by what they are judged ---------------------------------------------------------------------------------------
    def rounding(self, judged: CaseResult, mistake: Mistake, part: Part, wrong: Array) -> Array:
        """Return several times the bound of the right definition, at least a rough one for the mistake's own scores and
        weights."""
        allowed = part.expected.allowed
        legal = allowed if allowed.shape == wrong.shape else np.zeros(wrong.shape)
        return np.maximum(_LEGAL * legal, self._find_slack(judged, mistake.variant))

    def reproduces(
        self, judged: CaseResult, mistake: Mistake, among: frozenset[int] | None
    ) -> bool | None:
        """See ``judge.explains``."""
        return judge.explains(self.spec, self.precision, judged, mistake.variant)

    def _find_slack(self, judged: CaseResult, variant: Variant) -> float:
        """Return a rough bound on the distance of implementations from a variant, which mostly has just been run."""
        ran = self.ran
        if ran is None or ran[0] is not judged or ran[1] is not variant:
            ran = judged, variant, self._trace_variant_in_dtype(judged, variant, np.float64)
        with np.errstate(all="ignore"):
            return self._estimate_rounding_error(ran[2])

    def _trace_variant_in_dtype(
        self, judged: CaseResult, variant: Variant, dtype: type[np.floating[Any]]
    ) -> Values:
        """Return all arrays of a variant in this type."""
        spec, inputs = changed(self.spec, judged.case.inputs, variant)
        own = judged.case.inputs
        right: Values = {}
        # Arrays of the right run serve only float64 runs of the same specification and inputs.
        if (
            dtype is np.float64
            and variant is not RIGHT
            and variant.spec is None
            and inputs.keys() == own.keys()
        ):
            right = self._right_arrays(judged)
        arrays = {
            n: right[n]
            if right and a is own[n]
            else a
            if a.dtype.kind in "biu"
            else a.astype(dtype)
            for n, a in inputs.items()
        }
        known = [(RIGHT.steps, right)] if right else []
        known += [self.latest[1:]] if right and self.latest and self.latest[0] is judged else []
        with np.errstate(all="ignore"):
            result = trace(spec, arrays, variant, known=known)
        if right and variant.values == "v":  # in a row of pairs, one mistake is often the same
            self.latest = judged, variant.steps, result
        return result

    def _right_arrays(self, judged: CaseResult) -> Values:
        """Return the arrays of the right definition; none if they are large, or if it has no result."""

        def run() -> Values:
            values = self._trace_variant_in_dtype(judged, RIGHT, np.float64)
            return values if sum(np.size(a) for a in values.values()) <= _KEPT else {}

        try:
            return self.right.once((judged,), run)
        except UNFIT:
            return {}

    def _estimate_rounding_error(self, values: Values) -> float:
        """Return u (n + d + |s|) max|v| Σ|a|, with generous factors."""
        f = self.precision.roughest
        # for latents, both parts side by side
        met = ("q_joined", "k_joined") if "k_joined" in values else ("q", "k")
        q, k, a = (np.asarray(values[n]) for n in (*met, "weights"))
        n = a.shape[-1]
        later = [name for name in SCORES if name in values and name != "scores"] or ["scores"]
        largest = max(_largest_finite_modulus(np.asarray(values[name])) for name in later)
        raw = _largest_finite_modulus(np.asarray(values["scores"]))
        lengths = prod(sqrt((x * x).sum(axis=-1).max(initial=0.0)) for x in (q, k))
        # Norms bound unscaled scores; the ratio of the largest scores brings them to scale.
        size = max(
            largest, lengths * min(largest / raw, 1e3) if raw > 0 and largest > 0 else lengths
        )
        width = int(np.shape(values["x"])[-1]) if "x" in values else 0
        terms = n + q.shape[-1] + 2 * width + 8
        total = (
            # fmax ignores rows that are NaN.
            float(np.fmax.reduce(np.abs(a).sum(axis=-1), axis=None, initial=1.0)) if a.size else 1.0
        )
        grown = (
            float(np.abs(np.asarray(values["w_o"])).sum(axis=0).max(initial=1.0))
            if "w_o" in values
            else 1.0
        )
        weighed = values["v_normed" if "v_normed" in values else "v"]
        values_ = _largest_finite_modulus(np.asarray(weighed)) * grown
        return float(
            _ROUGH * float(f.u) * (terms + 4 * size) * values_ * total
            + 64 * float(f.eta) * n * (values_ + 1)
        )


def _largest_finite_modulus(x: np.ndarray) -> float:
    largest = float(np.abs(x).max(initial=0.0))
    # Infinite entries say nothing of the size of the others.
    return largest if isfinite(largest) else float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
