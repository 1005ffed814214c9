"""From tokens to queries, keys and values, in one head or several, and back."""

from __future__ import annotations

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of


def project(x: Array, w: Array, b: Array | None = None) -> Array:
    """X W + b. Shapes: x (…, n, d_model), w (d_model, d), b (d,) → (…, n, d)."""
    y = x @ w
    return y if b is None else y + b


def unpack(w: Array, role: str, heads: int, key_heads: int) -> Array:
    """The columns for q, k or v of a matrix or bias with columns q | k | v, all heads equally wide.

    Shapes: (…, (h + 2g)·d) → (…, h·d) for q, (…, g·d) for k and v. Source: the layout of PyTorch's
    ``nn.MultiheadAttention.in_proj_weight`` (transposed) and of fused projections.
    """
    width = w.shape[-1] // (heads + 2 * key_heads)
    start = {"q": 0, "k": heads, "v": heads + key_heads}[role] * width
    return w[..., start : start + (heads if role == "q" else key_heads) * width]


def split_heads(x: Array, heads: int) -> Array:
    """Columns in ``heads`` groups, one a head: (…, n, h·d) → (…, h, n, d)."""
    xp = namespace_of(x)
    *batch, n, width = x.shape
    y = xp.reshape(x, (*batch, n, heads, width // heads))
    r = len(batch)
    return xp.permute_dims(y, (*range(r), r + 1, r, r + 2))


def merge_heads(x: Array) -> Array:
    """The heads' outputs side by side: (…, h, n, d) → (…, n, h·d)."""
    xp = namespace_of(x)
    *batch, h, n, d = x.shape
    r = len(batch)
    return xp.reshape(xp.permute_dims(x, (*range(r), r + 1, r, r + 2)), (*batch, n, h * d))


def weighted_values(a: Array, v: Array) -> Array:
    """O = A V, o_i = Σ_j a_ij v_j. Shapes: a (…, n_q, n_k), v (…, n_k, d_v) → (…, n_q, d_v)."""
    return a @ v
