"""Any ``Attention`` by tiles, as FlashAttention computes it: weights are never stored whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symattn.attention.streaming.tiled_runs import TileRun

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


def by_tiles(
    attention: Attention,
    rows: Sequence[object],
    keys: Sequence[object],
    *qkv: object,
    **inputs: object,
) -> Any:
    """Return the output of ``attention``, with the weights in tiles between the bounds ``rows`` and ``keys``.

    Everything before the weights (projections, positions, masks, shared heads) and after them runs as usual;
    softmax and the sum over values are those of ``row_states``.

    >>> import numpy as np
    >>> from symattn.attention.spec import Attention
    >>> q, v = np.zeros((3, 2)), np.array([[1.0], [3.0], [8.0]])
    >>> by_tiles(Attention(causal=True), (0, 1, 3), (0, 2, 3), q, q, v)
    array([[1.],
           [2.],
           [4.]])

    Raises InputError for weights that a state (m, ℓ, a) cannot represent: other normalisers, powers of two, dropped
    weights, and positions that are added to values.
    """
    arrays = {**dict(zip("qkv", qkv, strict=False)), **inputs}
    run = TileRun(
        attention, rows, keys, {name: array for name, array in arrays.items() if array is not None}
    )
    return (run.values["output"], run.values["lse"]) if attention.lse else run.values["output"]
