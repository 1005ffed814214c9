"""How many keys may have a larger score: the B_j of ``bounds``, rounded up, for rows of floats."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]

_PAIRWISE = 1 << 20  # pairs of keys that are compared one by one
_BUCKETS, _DEEPEST = 512, 40.0


def larger_scores(fall: Floats, off: Floats, open_: NDArray[np.bool_]) -> Floats:
    """At least #{i ≠ j: off_i − fall_i > −off_j − fall_j}, for the keys in ``open_``; 0 for others. All shapes (rows,
    n).

    Few keys are compared one by one. Of many, those are counted whose bucket is that of fall_j + 2 max off or an
    earlier one: numbers go to buckets by a map that does not fall, so none is left out. Beyond a fall of 40, e^−40 <
    10⁻¹⁷, every other key is counted.
    """
    rows, n = fall.shape
    if rows * n * n <= _PAIRWISE:
        high, low = np.where(open_, off - fall, -np.inf), -off - fall
        above = high[:, None, :] > low[:, :, None]
        found = above.sum(axis=-1) - np.einsum("ijj->ij", above)
        return np.where(open_, found, 0).astype(fall.dtype)
    return _by_buckets(fall, off, open_)


def _by_buckets(fall: Floats, off: Floats, open_: NDArray[np.bool_]) -> Floats:
    rows, kind = len(fall), fall.dtype
    reach = (2 * off.max(axis=-1, keepdims=True)) * (1 + 2.0**-20)
    deepest = fall.max(axis=-1, keepdims=True)
    factor = (_BUCKETS / (np.minimum(_DEEPEST, deepest) + 1e-30)).astype(kind)
    start = np.arange(rows)[:, None] * (_BUCKETS + 1)
    place = fall * factor
    counts = np.bincount(_numbered(place, start, open_), minlength=rows * (_BUCKETS + 1))
    above = np.cumsum(counts.reshape(rows, -1), axis=-1) - 1
    np.add(fall, reach, out=place)
    place *= factor
    np.minimum(place, kind.type(_BUCKETS), out=place)
    index = place.astype(np.int64)
    index += start
    return np.asarray(np.maximum(above, 0).astype(kind).ravel()[index])


def _numbered(place: Floats, start: NDArray[np.int64], open_: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The bucket of each key that counts, one row's after another's."""
    np.minimum(place, place.dtype.type(_BUCKETS), out=place)
    index = place.astype(np.int64)
    index += start
    return index.ravel() if open_.all() else index[open_]
