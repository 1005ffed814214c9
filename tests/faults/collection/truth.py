"""The definition by loops (``tests.attention.by_loops``): what decides which programs of the collection are wrong."""

from typing import Any

import mpmath
import numpy as np

from symattn import Attention
from tests.attention import by_loops
from tests.attention.definition import Definition, by_batches
from tests.attention.pieces import nested
from tests.faults.collection.truth_layers import Given, Sized

Array = Any


def attention(spec: Attention, given: Given) -> list[Sized]:
    """Return each output with how large the numbers were on the way: max |v| (1 + max |s|) of the first."""
    given = {n: np.nan_to_num(a) if n in ("k", "v") else np.asarray(a) for n, a in given.items()}  # NaN where forbidden
    with mpmath.workdps(25):
        batch, found = by_batches(Definition(spec, given), spec)
    reach = 1 + max((abs(float(s)) for one in found for s in one["scores"]), default=0.0)
    values = given["v"] if "v" in given else values_of(spec, given)
    size = reach * max(1.0, float(np.abs(values).max()))
    size *= float(np.abs(given["w_o"]).sum(axis=0).max()) if "w_o" in given else 1.0
    outputs = [np.array([one[name] for one in found], dtype=float) for name in ("output", "lse")]
    shaped = [a.reshape(*batch, *a.shape[1:]) for a in outputs]
    return [(shaped[0], size), (shaped[1], reach)][: 1 + spec.lse]


def values_of(spec: Attention, given: Given) -> Array:
    """Return the values that are made of tokens, of the first batch."""
    first = {n: nested(np.asarray(a[(0,) * (a.ndim - 2)] if n in "xy" else a)) for n, a in given.items()}
    return np.array(by_loops.heads_of(spec, first)[2], dtype=float)
