"""Grouped-query attention: several query heads read one head of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of


def repeat_heads(x: Array, times: Any) -> Array:
    """Each head ``times`` times in a row, so that query head h reads the head ⌊h / times⌋.

    Shapes: (…, g, n, d) → (…, g·times, n, d). Source: Ainslie et al., GQA (2023), §2.2.
    """
    xp = namespace_of(x)
    *batch, g, n, d = x.shape
    spread = xp.broadcast_to(x[..., :, None, :, :], (*batch, g, times, n, d))
    return xp.reshape(spread, (*batch, g * times, n, d))


def tile_heads(x: Array, times: Any) -> Array:
    """All heads ``times`` over, so that query head h reads the head h mod g: the other order of sharing.

    Shapes: (…, g, n, d) → (…, times·g, n, d).
    """
    xp = namespace_of(x)
    *batch, g, n, d = x.shape
    spread = xp.broadcast_to(x[..., None, :, :, :], (*batch, times, g, n, d))
    return xp.reshape(spread, (*batch, times * g, n, d))


def grouped_attention(attention: Callable[[Any, Any, Any], Any], q: Array, k: Array, v: Array) -> Array:
    """Attention with g heads of keys and values and h = g·r of queries, without copies: query head t reads ⌊t / r⌋.

    Shapes: q (…, h, n_q, d_k), k (…, g, n_k, d_k), v (…, g, n_k, d_v) → (…, h, n_q, d_v); g = 1 is multi-query
    attention. Source: Ainslie et al., GQA (2023); Shazeer, Fast Transformer Decoding (2019).
    """
    xp = namespace_of(q)
    *batch, h, n, d = q.shape
    g = k.shape[-3]
    members = xp.reshape(q, (*batch, g, h // g, n, d))
    out = attention(members, k[..., :, None, :, :], v[..., :, None, :, :])
    return xp.reshape(out, (*batch, h, n, v.shape[-1]))
