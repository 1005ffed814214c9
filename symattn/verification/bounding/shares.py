"""Which step how much of the bound comes from, for each element."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.verification.bounding.distances import Floats
from symattn.verification.bounding.floats import Parts, Rows

STEPS = ("scores", "exponent", "rescaling", "merging", "sums", "stored weights", "underflow", "output")


def shares(rows: Rows, parts: Parts) -> dict[str, Floats]:
    """The terms of M split among the steps, in proportion to the means of their exponents over the weights.

    Exact to first order; what is of higher order is split in the same proportions.
    """
    e = rows.exponents
    every, scores, times = (_mean(rows, x) for x in (e.a, e.tau, e.times))
    alone, below = (_mean(rows, x) + 1e-300 for x in (e.alone, e.below))
    every = every + 1e-300
    rescaling = np.minimum(times * e.eps, every - scores)
    again, single = times * e.lam / alone, e.counts.alone * e.lam / alone
    added = e.counts.below * e.lam / below
    return {
        "scores": parts.moved * scores / every,
        "exponent": parts.moved * (every - scores - rescaling) / every,
        "rescaling": parts.moved * rescaling / every + parts.apart * again + parts.lost * times * e.lam / below,
        "merging": parts.apart * np.maximum(1 - again - single, 0)
        + parts.lost * np.maximum(1 - added - times * e.lam / below, 0),
        "sums": parts.sums + parts.apart * single + parts.lost * added,
        "stored weights": parts.kept,
        "underflow": parts.underflow,
    }


def _mean(rows: Rows, x: Any) -> Floats:
    """Σ w_j x_j."""
    found = np.einsum("ij,ij->i", rows.w, np.broadcast_to(x, rows.w.shape))
    return np.asarray(found[:, None] * rows.scale)
