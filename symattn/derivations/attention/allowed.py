"""Which key each query may attend to, by the conditions themselves: places, windows, blocks, documents, padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.derivations.attention.place import Front, part


def allowed(
    spec: Attention, arrays: Mapping[str, Any], batch: Front, sizes: tuple[int, ...], pair: tuple[int, ...]
) -> bool:
    """Whether query i may attend to key j, by all but a mask that is given."""
    i, j = pair
    if spec.padding and not part(arrays["keep"], batch, 1)[j]:
        return False
    if not spec.documents:
        n_q, n_k = sizes
        return _by_place(spec, i + (n_k - n_q if spec.alignment == "bottom-right" else 0), j)
    of_queries, of_keys = (
        list(part(arrays[name if name in arrays else "doc"], batch, 1)) for name in ("doc_q", "doc_k")
    )
    label = of_queries[i]
    if of_keys[j] != label:
        return False
    query, key = of_queries[:i].count(label), of_keys[:j].count(label)
    offset = of_keys.count(label) - of_queries.count(label) if spec.alignment == "bottom-right" else 0
    return _by_place(spec, query + offset, key)


def _by_place(spec: Attention, place: int, j: int) -> bool:
    """Causal, within the window, in the same block."""
    left, right = spec.sides
    causal = j <= place or (spec.prefix is not None and j < spec.prefix)
    near = (left is None or place - j <= left) and (right is None or j - place <= right)
    together = spec.block is None or place // spec.block == j // spec.block
    return (causal or not spec.causal) and near and together


def table(spec: Attention, arrays: Mapping[str, Any], sizes: tuple[int, int]) -> np.ndarray:
    """Which key each query may attend to, the mask included, without batches: (n_q, n_k) or (h, n_q, n_k)."""
    found = np.array([[allowed(spec, arrays, (), sizes, (i, j)) for j in range(sizes[1])] for i in range(sizes[0])])
    if spec.mask is None:
        return found
    mask = arrays["mask"]
    seen = np.asarray(mask, dtype=bool) if spec.mask == "boolean" else np.vectorize(_finite, otypes=[bool])(mask)
    return found & seen


def _finite(x: Any) -> bool:
    from symattn.arrays.special import Forbidden

    return not isinstance(x, Forbidden)
