"""The way back through positions: rotations, slopes, tables of distances."""

from __future__ import annotations

from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.gradients.linear import padded, rows_gradient
from symattn.attention.gradients.scores import summed_like
from symattn.attention.positions import alibi
from symattn.attention.positions.absolute import rows
from symattn.attention.positions.relative import for_each_query
from symattn.attention.positions.rotary import rotate


def rotate_gradients(x: Any, cos: Any, sin: Any, g: Any, layout: str = "half") -> tuple[Any, Any, Any]:
    """(dX, dcos, dsin): G rotated back, by the angles with the sines −sin; the columns that pass, pass.

    A pair (a, b) ↦ (a cos − b sin, b cos + a sin) with the gradients (c, d) gives dcos = a c + b d, dsin = a d − b c.
    Shapes: x and g (…, n, d), cos and sin (…, n, r/2). Source: Su et al., RoFormer (2021), equation 34, transposed.
    """
    a, b = pairs_of(x, cos, layout)
    c, d = pairs_of(g, cos, layout)
    return rotate(g, cos, -sin, layout), summed_like(a * c + b * d, cos), summed_like(a * d - b * c, sin)


def pairs_of(x: Any, cos: Any, layout: str) -> tuple[Any, Any]:
    """The first and the second of each pair of columns that are rotated: (…, n, r/2) each."""
    f = cos.shape[-1]
    if layout == "half":
        return x[..., :f], x[..., f : f * 2]
    pairs = namespace_of(x).reshape(x[..., : f * 2], (*x.shape[:-1], f, 2))
    return pairs[..., 0], pairs[..., 1]


def rows_of_all(g: Any, table: Any, alignment: str) -> Any:
    """The gradient by a table of all positions, of which the queries were given the last rows, or the first ones."""
    rest = table.shape[-2] - g.shape[-2]
    return padded(g.mT, *((0, rest) if alignment == "top-left" else (rest, 0))).mT


def slopes_gradient(slope: Any, g: Any, two_sided: bool = False, alignment: str = "bottom-right") -> Any:
    """dm = −Σ_ij dS_ij (i − j), or |i − j|, of each head. Shapes: slope (h,), g (…, h, n_q, n_k) → (h,)."""
    xp = namespace_of(g)
    moved = alibi.biased(xp.zeros_like(g), xp.ones_like(slope), two_sided, alignment)
    each = xp.sum(g * moved, axis=(-2, -1))[..., None] if g.ndim == 2 else xp.sum(g * moved, axis=(-2, -1))
    return summed_like(each, slope)


def bucket_gradient(table: Any, index: Any, g: Any) -> Any:
    """The gradient by the biases of buckets: Σ dS_hij over the places ij of each bucket.

    Shapes: table (b, h), index (n_q, n_k), g (…, h, n_q, n_k) → (b, h).
    """
    xp = namespace_of(g)
    heads = g[..., None, :, :] if g.ndim == 2 else g
    last = xp.moveaxis(heads, -3, -1)
    return rows_gradient(last, index, table)


def relative_key_gradients(q: Any, table: Any, index: Any, g: Any) -> tuple[Any, Any]:
    """(dQ, dA) of q_i · a_ij with the rows a_ij of a table: Σ_j ds_ij a_ij, and Σ ds_ij q_i over each row's places.

    Shapes: q (…, n_q, d), table (m, d) or (…, m, d), index (n_q, n_k), g (…, n_q, n_k).
    """
    there = rows(table, index)
    dq = (g[..., :, None, :] @ there)[..., 0, :]
    return summed_like(dq, q), rows_gradient(g[..., None] * q[..., :, None, :], index, table)


def relative_value_gradients(p: Any, table: Any, index: Any, g: Any) -> tuple[Any, Any]:
    """(dP, dC) of Σ_j p_ij c_ij with the rows c_ij of a table: G_i · c_ij, and Σ p_ij G_i over each row's places.

    Shapes: p (…, n_q, n_k), table (m, d_v), index (n_q, n_k), g (…, n_q, d_v).
    """
    there = rows(table, index)
    dp = (there @ g[..., :, :, None])[..., 0]
    return dp, rows_gradient(p[..., None] * g[..., :, None, :], index, table)


def bias_gradients(q: Any, k: Any, table: Any, index: Any, u: Any, w: Any, g: Any) -> tuple[Any, Any, Any, Any, Any]:
    """(dQ, dK, dR, du, dw) of u · k_j + (q_i + w) · r_ij. Shapes: as ``relative.with_biases``, g (…, n_q, n_k).

    Source: Dai et al., Transformer-XL (2019), §3.3.
    """
    wide_u, wide_w = for_each_query(u, g), for_each_query(w, g)
    dq, dtable = relative_key_gradients(q + wide_w, table, index, g)
    dk = summed_like(g.mT @ (0 * q + wide_u), k)
    return summed_like(dq, q), dk, dtable, _of_bias(g @ k, wide_u, u), _of_bias(dq, wide_w, w)


def _of_bias(g: Any, wide: Any, bias: Any) -> Any:
    total = summed_like(g, wide)
    return total[..., 0, :] if wide.ndim > bias.ndim else total
