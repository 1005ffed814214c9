"""The gradient of what is added to scores, such as a learned bias: dS, summed over what shares it.

Of m terms in float32, of which partial sums may be stored once where there are several, the sum is off by Σ δ, the
errors of dS (``verification.sharp.backward``), by (w (3 m + 48) + u) Σ (|dS| + δ) + m η, and by half an ulp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.sharp.backward import SharpGradient, of_sums
from symattn.bounds.sharp.limits import Stores, W, half_ulp
from symattn.bounds.sharp.ways import scalings
from symattn.models.auditing.setting import Floats, heads_apart, numbers


class Group(NamedTuple):
    """Heads of queries (1, h, n, d) that share one of keys, of one item; ``heads`` are their places in the call."""

    item: int
    heads: slice
    spec: Attention
    inputs: Mapping[str, Any]
    do: Floats
    how: Stores
    factors: Floats | None = None


def ratio(groups: Sequence[Group], came: Any) -> float:
    """The largest error of a gradient (b or 1, h or 1, n_q or 1, ≥ n_k), as a part of what is allowed.

    It is that for the scale, or constant of the format, which fits best; ``groups`` are all heads of the call.
    """
    n_k = groups[0].inputs["k"].shape[-2]
    got = numbers(heads_apart(came))[..., :n_k]
    best = np.inf
    for taken in zip(*(scalings(g.spec, g.inputs, g.how) for g in groups), strict=True):
        best = min(best, float(_exact(groups, taken, got.shape).ratios(got).max()))
        if best <= 1:
            break
    return best


def _exact(groups: Sequence[Group], taken: Sequence[tuple[Attention, Any]], shape: tuple[int, ...]) -> SharpGradient:
    """Return the exact sums, and how far what came may be from them."""
    value, error, size = (np.zeros(shape) for _ in range(3))
    terms = 0
    for group, (spec, inputs) in zip(groups, taken, strict=True):
        ds, off = of_sums(spec, inputs, group.do, group.how, group.factors)
        at = (
            slice(group.item, group.item + 1) if shape[0] > 1 else slice(None),
            group.heads if shape[1] > 1 else slice(None),
        )
        for whole, part in ((value, ds), (error, off), (size, np.abs(ds))):
            whole[at] += part.sum(axis=tuple(a for a in (1, 2) if shape[a] == 1), keepdims=True)
        terms += ds.size
    count, how = max(1, terms // value.size), groups[0].how
    inside = (
        error + (size + error) * (W * (3 * count + 48) + (how.u if count > 1 else 0.0)) + count * float(how.format.eta)
    )
    return SharpGradient(np.arange(shape[-2]), value, inside + half_ulp(how.format, np.abs(value) + inside))
