"""From tokens to queries, keys and values, in one head or several, shared by groups of queries, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of


def project(x: Array, w: Array, b: Array | None = None) -> Array:
    """X W + b. Shapes: x (…, n, d_model), w (d_model, d), b (d,) → (…, n, d)."""
    y = x @ w
    return y if b is None else y + b


def unpack(w: Array, role: str, heads: int, key_heads: int) -> Array:
    """Return the columns for q, k or v of a matrix or bias with columns q | k | v, all heads equally wide.

    Shapes: (…, (h + 2g)·d) → (…, h·d) for q, (…, g·d) for k and v. Source: the layout of PyTorch's
    ``nn.MultiheadAttention.in_proj_weight`` (transposed) and of fused projections.
    """
    width = w.shape[-1] // (heads + 2 * key_heads)
    start = {"q": 0, "k": heads, "v": heads + key_heads}[role] * width
    return w[..., start : start + (heads if role == "q" else key_heads) * width]


def split_heads(x: Array, heads: int) -> Array:
    """Split the columns into heads: (…, n, h·d) → (…, h, n, d)."""
    xp = namespace_of(x)
    *batch, n, width = x.shape
    y = xp.reshape(x, (*batch, n, heads, width // heads))
    r = len(batch)
    return xp.permute_dims(y, (*range(r), r + 1, r, r + 2))


def merge_heads(x: Array) -> Array:
    """Concatenate the columns of all heads: (…, h, n, d) → (…, n, h·d)."""
    xp = namespace_of(x)
    *batch, h, n, d = x.shape
    r = len(batch)
    by_token = xp.permute_dims(x, (*range(r), r + 1, r, r + 2))
    return xp.reshape(by_token, (*batch, n, h * d))


# -- grouped queries: several query heads read one head of keys and values ---------------------------------------------
def repeat_heads(x: Array, times: object) -> Array:
    """Repeat each head ``times`` times in a row, so that query head h reads the head ⌊h / times⌋.

    Shapes: (…, g, n, d) → (…, g·times, n, d). Source: Ainslie et al., GQA (2023), §2.2.
    """
    xp = namespace_of(x)
    *batch, g, n, d = x.shape
    spread = xp.broadcast_to(x[..., :, None, :, :], (*batch, g, times, n, d))
    return xp.reshape(spread, (*batch, g * times, n, d))


def tile_heads(x: Array, times: object) -> Array:
    """Repeat the sequence of heads ``times`` times, so that query head h reads the head h mod g: the other order.

    Shapes: (…, g, n, d) → (…, times·g, n, d).
    """
    xp = namespace_of(x)
    *batch, g, n, d = x.shape
    spread = xp.broadcast_to(x[..., None, :, :, :], (*batch, times, g, n, d))
    return xp.reshape(spread, (*batch, times * g, n, d))


def grouped_attention(
    attention: Callable[[Any, Any, Any], object], q: Array, k: Array, v: Array
) -> Array:
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
