"""How many keys may have a larger score: the B_j of ``bounds``, rounded up, for rows of floats."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]

PAIRWISE = 1 << 20  # pairs of keys that are compared one by one, at most
_BUCKETS, _DEEPEST = 256, 40.0


def compared(fall: Floats, off: Floats, open_: NDArray[np.bool_]) -> Floats:
    """#{i ≠ j: off_i − fall_i > −off_j − fall_j}, for the keys in ``open_``; 0 for others. All shapes (rows, n)."""
    high, low = np.where(open_, off - fall, -np.inf), -off - fall
    above = high[:, None, :] > low[:, :, None]
    found = above.sum(axis=-1) - np.einsum("ijj->ij", above)
    return np.where(open_, found, 0).astype(fall.dtype)


def in_buckets(fall: Floats, reach: Floats, open_: NDArray[np.bool_] | None = None) -> Floats:
    """At least #{i ≠ j: fall_i < fall_j + reach}, ``reach`` a number for each row, (rows, 1); ``open_`` None: all keys.

    Counted are the keys whose bucket is at most that of fall_j and ⌈reach⌉ + 1 buckets more: numbers go to buckets by a
    map that does not fall, and is off by less than half a bucket. Of a key whose fall is more than 40, e^−40 < 10⁻¹⁷,
    every other one counts.
    """
    rows, kind, deepest = len(fall), fall.dtype, fall.max(axis=-1, keepdims=True)
    factor = (_BUCKETS / (np.minimum(_DEEPEST, deepest) + 1e-30)).astype(kind)
    place = fall * factor
    np.minimum(place, kind.type(_BUCKETS), out=place)
    index = place.astype(np.int64)
    index += np.arange(rows)[:, None] * (_BUCKETS + 1)
    counts = np.bincount(index.ravel() if open_ is None else index[open_], minlength=rows * (_BUCKETS + 1))
    above = np.cumsum(counts.reshape(rows, -1), axis=-1) - 1
    further = np.minimum(np.ceil(reach.astype(np.float64) * factor) + 1, _BUCKETS).astype(np.int64)
    shifted = np.take_along_axis(above, np.minimum(np.arange(_BUCKETS + 1) + further, _BUCKETS), axis=-1)
    return np.asarray(np.maximum(shifted, 0).astype(kind).ravel()[index])
