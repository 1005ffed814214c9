"""What is asked for: a bound for sizes (beforehand) or for inputs, in one arithmetic, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf, sqrt
from numbers import Real
from typing import Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.inputs import Sizes
from symattn.bounds.interface import APriori, Bound, a_priori, bound
from symattn.bounds.reference import usual
from symattn.document.codec import differing
from symattn.document.errors import InputError
from symattn.verification.tolerances.reach import Reach

_UP = 1 + 2.0**-40


@dataclass(frozen=True)
class Beforehand:
    """The bound for all inputs that the ``reach`` holds."""

    spec: Attention
    precision: Precision
    sizes: Sizes
    reach: Reach
    largest_score: float
    bound: APriori

    @property
    def value(self) -> float:
        """The tolerance; +∞ where it would be as much as any two values are apart, and so says nothing."""
        return self.bound.value if self.bound.value < 2 * self.reach.v else inf


def beforehand(spec: Attention, precision: Precision, sizes: Sizes, reach: Reach) -> Beforehand:
    """The closed formula. Raises ``InputError`` for what it does not speak of: its scores are scaled dot products."""
    if not usual(spec):
        what = ", ".join(f"{name}={value!r}" for name, value in differing(spec, Attention()).items())
        raise InputError(f"the formula is for scaled dot products under masks, not for {what}; hint: --inputs FILE")
    score = _scale(spec, sizes.d_k) * reach.q * reach.k * _UP
    entries = max(reach.q, reach.k)
    return Beforehand(
        spec, precision, sizes, reach, score,
        a_priori(sizes.n_k, sizes.d_k, score, reach.v, precision, entry_max=entries),
    )  # fmt: skip


def _scale(spec: Attention, d_k: int) -> float:
    """s, rounded up."""
    if spec.scale is None:
        return 1 / sqrt(d_k) * _UP
    if spec.scale == "1/d_k":
        return 1 / d_k * _UP
    if isinstance(spec.scale, Real | Fraction):
        return abs(float(spec.scale)) * _UP
    raise InputError("the formula needs a scale that is a number; hint: --scale, or give --inputs FILE")


@dataclass(frozen=True)
class ForInputs:
    """The bound for these inputs, element by element."""

    spec: Attention
    precision: Precision
    inputs: Mapping[str, Any]
    exact: np.ndarray
    bound: Bound

    @property
    def needed(self) -> tuple[float, float]:
        """The least atol with rtol = 0, and the least rtol with atol = 0 (+∞ where an exact element is 0)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.where(self.bound.allowed == 0, 0.0, self.bound.allowed / np.abs(self.exact))
        return self.bound.largest, float(parts.max(initial=0.0)) if np.isfinite(parts).all() else inf


def for_inputs(spec: Attention, precision: Precision, inputs: Mapping[str, Any]) -> ForInputs:
    """The bound for given inputs; the exact output is shown as float64 has it."""
    with np.errstate(all="ignore"):
        exact = np.asarray(spec(**inputs), dtype=np.float64)
    return ForInputs(spec, precision, inputs, exact, bound(spec, inputs, precision))
