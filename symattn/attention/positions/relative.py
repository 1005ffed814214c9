"""Relative positions: terms of the scores, and of the values, that depend on how far a key is from a query."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.positions.absolute import rows


def ahead(n_q: Any, n_k: Any, like: Array, alignment: str = "bottom-right") -> Array:
    """j − i for every query i and key j, counted so that the last ones stand together, to look up rows of tables by.

    ``top-left``: the first ones. Shapes: (n_q, n_k). Sizes that are letters have no rows to look up: Refused by name.
    """
    xp = namespace_of(like)
    offset = 0 if alignment == "top-left" else n_k - n_q
    return xp.arange(n_k)[None, :] - (xp.arange(n_q)[:, None] + offset)


def clipped(distance: Any, most: int) -> Array:
    """A distance cut to −k … k, as an index from 0: max(−k, min(k, ·)) + k. Source: Shaw et al. (2018), equation 5."""
    xp = namespace_of(distance)
    return xp.minimum(xp.maximum(distance, -most), most) + most


def spanned(distance: Any, span: int) -> Array:
    """A distance as an index into 2k rows: max(−k, min(k − 1, ·)) + k. Source: He et al. (2021), equation 3."""
    xp = namespace_of(distance)
    return xp.minimum(xp.maximum(distance, -span), span - 1) + span


def bucket_bias(s: Array, table: Array, index: Any) -> Array:
    """s_hij + b_{β(i,j),h}: one learned number for each bucket and head.

    Shapes: s (…, h, n_q, n_k), table (b, h), index (n_q, n_k); for scores without heads table (b, 1). Source: Raffel et
    al., T5 (2020), §2.1.
    """
    bias = namespace_of(table).permute_dims(rows(table, index), (2, 0, 1))
    return s + (bias if s.ndim > 2 else bias[0, ...])


def relative_keys(s: Array, q: Array, table: Array, index: Any) -> Array:
    """s_ij + q_i · a_ij with the row a_ij of a table of relative keys.

    Shapes: s (…, n_q, n_k), q (…, n_q, d_k), table (m, d_k) or (…, m, d_k), index (n_q, n_k). Source: Shaw, Uszkoreit,
    Vaswani, Self-Attention with Relative Position Representations (2018), equation 4, before the scale.
    """
    return s + (rows(table, index) @ q[..., :, :, None])[..., 0]


def relative_values(o: Array, p: Array, table: Array, index: Any) -> Array:
    """o_i + Σ_j p_ij a_ij with the row a_ij of a table of relative values.

    Shapes: o (…, n_q, d_v), p (…, n_q, n_k), table (m, d_v), index (n_q, n_k). Source: Shaw et al. (2018), equation 3.
    """
    return o + (p[..., :, None, :] @ rows(table, index))[..., 0, :]


def relative_queries(s: Array, k: Array, table: Array, index: Array) -> Array:
    """s_ij + k_j · b_ij with the row b_ij of a table of relative queries.

    Shapes: s (…, n_q, n_k), k (…, n_k, d_k), table (m, d_k) or (…, m, d_k), index (n_q, n_k). The paper takes the row
    δ(j, i) of the distance from the key to the query; the code that DeBERTa was trained with takes δ(i, j).
    Source: He et al., DeBERTa (2021), equation 4; microsoft/DeBERTa, whose issue 162 tells of the difference.
    """
    return relative_keys(s.mT, k, table, index.mT).mT


def with_biases(s: Array, q: Array, k: Array, table: Array, index: Array, u: Array, w: Array) -> Array:
    """(q_i + u) · k_j + (q_i + w) · r_ij, from s_ij = q_i · k_j, with the row r_ij of a table of relative keys.

    u says how much a key is wanted wherever it is, w how much a distance is, whatever the query. Shapes: as in
    ``relative_keys``, u and w (h, d_k). Source: Dai et al., Transformer-XL (2019), §3.3; its v is called w here.
    """
    content = s + for_each_query(u, s) @ k.mT
    return relative_keys(content, q + for_each_query(w, s), table, index)


def for_each_query(bias: Array, s: Array) -> Array:
    """A bias (h, d) for queries (…, h, n_q, d) with the scores s: (h, 1, d), or (1, d) without heads."""
    return bias[:, None, :] if s.ndim > 2 else bias


def from_far_to_near(ahead: Any, n_k: Any, rows_given: Any) -> Array:
    """The rows of a table that starts with the farthest key: row 0 is for i − j = n_k − 1, the next for one less.

    Queries of n_k rows look back only; what lies ahead of them, which a mask forbids, is given the last row.
    """
    return namespace_of(ahead).minimum(ahead + (n_k - 1), rows_given - 1)
