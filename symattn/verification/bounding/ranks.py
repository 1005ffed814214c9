"""How many keys may have a larger score: the B_j of ``bounds``, rounded up, for rows of float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_PAIRWISE = 1 << 20  # pairs of keys that are compared one by one
_BUCKETS, _DEEPEST = 512, 40.0


def larger_scores(x: Floats, off: Floats, open_: NDArray[np.bool_]) -> Floats:
    """At least #{i ≠ j: x_i + off_i > x_j − off_j}, for the keys in ``open_``; 0 for others. All shapes (rows, n).

    Few keys are compared one by one. Of many, those are counted whose bucket is that of x_j − 2 max off or a higher
    one: numbers go to buckets by a map that does not fall, so no larger one is left out. ``x`` is at most 0; what is
    below −40 has e^x < 10⁻¹⁷, and every other key is counted.
    """
    rows, n = x.shape
    if rows * n * n <= _PAIRWISE:
        high, low = np.where(open_, x + off, -np.inf), x - off
        found = (high[:, None, :] > low[:, :, None]).sum(axis=-1) - (off > 0)
        return np.where(open_, np.maximum(found, 0), 0).astype(np.float64)
    return _by_buckets(x, off, open_)


def _by_buckets(x: Floats, off: Floats, open_: NDArray[np.bool_]) -> Floats:
    rows = len(x)
    reach = (2 * off.max(axis=-1, keepdims=True)) * (1 + 2.0**-40)
    depth = np.minimum(_DEEPEST, np.where(open_, -x, 0.0).max(axis=-1, keepdims=True)) + 1e-300
    factor = _BUCKETS / depth
    start = np.arange(rows)[:, None] * (_BUCKETS + 1)
    place = _bucket(x, factor)
    counted = place + start
    counts = np.bincount(counted.ravel() if open_.all() else counted[open_], minlength=rows * (_BUCKETS + 1))
    above = np.cumsum(counts.reshape(rows, -1), axis=-1)
    place = _bucket(x - reach, factor)
    place += start
    found = above.ravel()[place] - 1.0
    return np.asarray(np.maximum(found, 0.0, out=found))


def _bucket(x: Floats, factor: Floats) -> NDArray[np.int64]:
    """0 for x = 0 and more the farther below: ``_BUCKETS`` at −depth and beyond."""
    place = x * -factor
    np.minimum(place, float(_BUCKETS), out=place)
    return place.astype(np.int64)
