"""How large inputs are: what a tolerance for all of them, written down before they are known, has to suppose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np

from symattn.bounds.inputs import Sizes
from symattn.document.errors import InputError

RISK = 1e-9
_UP = 1 + 2.0**-40  # more than the roundings of the few operations here


@dataclass(frozen=True)
class Reach:
    """Largest ‖q_i‖₂, ‖k_j‖₂ and |v_jc|; ``words`` say of which inputs this holds."""

    q: float
    k: float
    v: float
    words: str
    normal: bool = False

    def __post_init__(self) -> None:
        for name in ("q", "k", "v"):
            if not 0 <= getattr(self, name) < np.inf:
                raise InputError(f"the largest {name} must be a number of at least 0, got {getattr(self, name)}")


def normal(sizes: Sizes, risk: float = RISK) -> Reach:
    """Entries drawn from N(0, 1): what they do not exceed, but with a probability of at most ``risk``.

    ‖q‖² is χ² with d_k degrees of freedom, and P(χ²_d ≥ d + 2√(dx) + 2x) ≤ e^−x; P(|v| ≥ t) ≤ e^(−t²/2) for t ≥ 1.
    Each of the three events gets a third of the risk, over all rows or entries.
    Source: Laurent, Massart, Adaptive estimation of a quadratic functional by model selection (2000), lemma 1.
    """

    def norm(rows: int) -> float:
        x = log(3 * rows / risk)
        return sqrt(sizes.d_k + 2 * sqrt(sizes.d_k * x) + 2 * x) * _UP

    v = sqrt(2 * log(3 * sizes.n_k * sizes.d_v / risk)) * _UP
    return Reach(norm(sizes.n_q), norm(sizes.n_k), v, f"entries from N(0, 1), but for a probability of {risk:g}", True)


def bounded(sizes: Sizes, largest: float = 1.0) -> Reach:
    """Entries of at most ``largest``: ‖q‖₂ ≤ largest · √d_k."""
    norm = largest * sqrt(sizes.d_k) * _UP
    return Reach(norm, norm, largest, f"entries of at most {largest:g}")


def of_inputs(inputs: Mapping[str, Any]) -> Reach:
    """The inputs given: q, k (…, n, d_k) and v (…, n_k, d_v)."""
    missing = [n for n in "qkv" if n not in inputs]
    if missing:
        raise InputError(f"the inputs lack {', '.join(missing)}; give q, k and v")
    q, k, v = (np.abs(np.asarray(inputs[n], dtype=np.float64)) for n in "qkv")
    if not all(np.isfinite(a).all() for a in (q, k, v)):
        raise InputError("the inputs must be finite, but hold NaN or infinity")
    up = _UP * (1 + q.shape[-1] * 2.0**-52)
    return Reach(_norm(q) * up, _norm(k) * up, float(v.max(initial=0.0)), "the inputs given")


def _norm(a: np.ndarray) -> float:
    """The largest 2-norm of a row, scaled so that no square over- or underflows."""
    largest = float(a.max(initial=0.0))
    return float(np.sqrt(((a / largest) ** 2).sum(axis=-1)).max()) * largest if largest else 0.0
