"""Beside the worst case: what roundings to nearest do, element by element and in means, but for a probability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.sharp import means, rows_in_float64
from symattn.bounds.sharp.elements import tolerances
from symattn.bounds.sharp.limits import ALPHA, Floats, Stores
from symattn.document.errors import InputError, Refused
from symattn.verification.tolerances.asked import Beforehand, ForInputs
from symattn.verification.tolerances.weighing import drawn

_KEYS = 8192  # that inputs are drawn for, at most


@dataclass(frozen=True, eq=False)
class Sharp:
    """The sharp tolerance of each element, (…, n_q, d_v), and of weighted means of them, but for ``alpha`` each.

    ``words`` say for which inputs. The scale is exact here; for the other hypotheses, and the proof, see
    ``verification.sharp.limits``. One of them is wider than the worst case has it: exponentials may be off by 2⁻¹³. So
    of ``worse`` elements, those of few keys, the worst case, ``worst``, allows less, and that is taken.
    """

    elements: Floats
    alpha: float
    words: str
    spec: Attention
    inputs: Mapping[str, Any]
    how: Stores
    worst: Floats
    worse: int = 0

    @property
    def largest(self) -> float:
        """The largest tolerance of an element: atol, with rtol = 0."""
        return float(self.elements.max(initial=0.0))

    @property
    def median(self) -> float:
        """The median of the tolerances."""
        return float(np.median(self.elements))

    def mean(self, weights: object = None) -> float:
        """How far Σ weights · (out − exact) may be off; by default the mean of all elements.

        ``weights`` (…, n_q, d_v) must not depend on what is judged. Where scores of different queries coincide, so that
        their roundings do, or where it is smaller, it is the same mean of the worst case.
        """
        shape = self.elements.shape
        try:
            values = np.full(shape, 1 / max(self.elements.size, 1)) if weights is None else np.asarray(weights, float)
            values = np.broadcast_to(values, shape)
        except (TypeError, ValueError):
            raise InputError(
                f"weights are no array that fits the output, {shape}; hint: one weight an element"
            ) from None
        parts = np.multiply(np.abs(values), self.worst, where=values != 0, out=np.zeros(shape))
        worst = float(parts.sum()) * (1 + 1e-9)  # the sum's own rounding
        return min(means.of_mean(self.spec, self.inputs, self.how, values, self.alpha), worst)


def sharp(asked: Beforehand | ForInputs, alpha: float = ALPHA, seed: int = 0) -> Sharp | None:
    """The sharp tolerance for the inputs given, or for inputs drawn as those of a bound beforehand are supposed to be.

    None where the filter does not speak: of float32 and wider, fp8, what is no plain attention.
    """
    how = Stores.of(asked.precision, wide_sums=True, capped=asked.spec.capped)
    if how is None:
        return None
    inputs, words = (asked.inputs, "for these inputs") if isinstance(asked, ForInputs) else _drawn(asked, seed)
    if not rows_in_float64.applies(asked.spec, inputs):
        return None
    try:
        result = tolerances(asked.spec, inputs, how, alpha)[1]
    except Refused:
        return None
    worst = np.broadcast_to(asked.bound.allowed if isinstance(asked, ForInputs) else asked.value, result.shape)
    worse = int((worst < result).sum())
    return Sharp(np.minimum(result, worst), alpha, words, asked.spec, inputs, how, worst, worse)


def _drawn(beforehand: Beforehand, seed: int) -> tuple[dict[str, Any], str]:
    most = beforehand.reach.v

    def changed(name: str, a: Floats) -> Floats:
        return a if beforehand.reach.normal else np.clip(a, -most, most)

    inputs = drawn(beforehand.spec, beforehand.precision, changed, beforehand.sizes, seed, _KEYS)
    entries = "N(0, 1)" if beforehand.reach.normal else f"N(0, 1), cut off at {most:g}"
    rows, keys = inputs["q"].shape[-2], inputs["k"].shape[-2]
    return inputs, f"on {rows} queries and {keys} keys drawn from {entries}"
