"""Relative positions: terms of the scores and of the values that depend on the distance of query and key."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import integer_root, made_wide
from symattn.attention.masks import causal, places
from symattn.attention.positions.angles import linear_bias
from symattn.attention.positions.rotary import powers_of
from symattn.document.errors import InputError


def rows(table: Array, index: Array) -> Array:
    """Return the rows of a table at integer indices. Shapes: table (…, m, d), index (a, …, b) → (…, a, …, b, d)."""
    xp = namespace_of(table)
    # Indices are flat for ``take``, and get their axes back afterwards.
    picked = xp.take(table, xp.reshape(index, (-1,)), axis=table.ndim - 2)
    return xp.reshape(picked, (*table.shape[:-2], *index.shape, table.shape[-1]))


def ahead(s: Array, alignment: str = "bottom-right") -> Array:
    """j − i for every query i and key j of scores S, see ``masks.places``: the index of rows of tables.

    Shapes: s (…, n_q, n_k) → (n_q, n_k). Sizes that are letters have no rows to look up and are refused by name.
    """
    i, j = places(s, alignment)
    return j - i


def clipped(distance: Array, most: int, least: int | None = None) -> Array:
    """Return distances clipped to −k … k, or to −k … ``least``, as indices from 0: max(−k, min(k, ·)) + k.

    Sources: Shaw et al. (2018), equation 5; cut to −k … k − 1, He et al. (2021), equation 3.
    """
    xp = namespace_of(distance)
    return xp.minimum(xp.maximum(distance, -most), most if least is None else least) + most


def bucket_bias(s: Array, table: Array, index: Array) -> Array:
    """s_hij + b_{β(i,j),h}: one learned number for each bucket and head.

    Shapes: s (…, h, n_q, n_k), table (b, h), index (n_q, n_k); for scores without heads table (b, 1). Source: Raffel et
    al., T5 (2020), §2.1.
    """
    bias = namespace_of(table).permute_dims(rows(table, index), (2, 0, 1))
    return s + (bias if s.ndim > 2 else bias[0, ...])


def relative_keys(s: Array, q: Array, table: Array, index: Array) -> Array:
    """s_ij + q_i · a_ij with the row a_ij of a table of relative keys.

    Shapes: s (…, n_q, n_k), q (…, n_q, d_k), table (m, d_k) or (…, m, d_k), index (n_q, n_k). Source: Shaw, Uszkoreit,
    Vaswani, Self-Attention with Relative Position Representations (2018), equation 4, before the scale.
    """
    # One product for each query: its keys have rows of their own.
    return s + (rows(table, index) @ q[..., :, :, None])[..., 0]


def relative_values(o: Array, p: Array, table: Array, index: Array) -> Array:
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
    # Transposed, keys take the place of queries, with the index transposed as well.
    return relative_keys(s.mT, k, table, index.mT).mT


def with_biases(
    s: Array, q: Array, k: Array, table: Array, index: Array, u: Array, w: Array
) -> Array:
    """(q_i + u) · k_j + (q_i + w) · r_ij, from s_ij = q_i · k_j, with the row r_ij of a table of relative keys.

    u weighs a key regardless of its position, w a distance regardless of the query. Shapes: as in
    ``relative_keys``, u and w (h, d_k). Source: Dai et al., Transformer-XL (2019), §3.3; its v is called w here.
    """
    content = s + for_each_query(u, s) @ k.mT
    return relative_keys(content, q + for_each_query(w, s), table, index)


def for_each_query(bias: Array, s: Array) -> Array:
    """Shape a bias (h, d) to broadcast to the queries of the scores s: (h, 1, d), or (1, d) without heads."""
    return bias[:, None, :] if s.ndim > 2 else bias


def from_far_to_near(ahead: Array, n_k: Any, rows_given: Any) -> Array:
    """Return the row for each j − i in a table that starts with the farthest key: row 0 is for i − j = n_k − 1.

    With n_k rows queries look back only; keys ahead of them, which a mask forbids, get the last row.
    """
    # The minimum keeps indices of keys ahead within a table that only looks back.
    return namespace_of(ahead).minimum(ahead + (n_k - 1), rows_given - 1)


# -- ALiBi -------------------------------------------------------------------------------------------------------------
def slope_exponents(heads: int) -> tuple[Fraction, ...]:
    """Return e_h, the exponent of the slope 2^(−e_h), for each head.

    If h is a power of two, they are 8/h, 16/h, …, 8. Else they are those of the largest power of two m below h,
    followed by every second one of those of 2m. Source: Press, Smith, Lewis, Train Short, Test Long (2022), §3, and
    their code.
    """
    # The largest power of two up to the number of heads.
    m = 1 << (heads.bit_length() - 1)
    between = [Fraction(4 * (2 * t + 1), m) for t in range(heads - m)]
    return (*[Fraction(8 * (t + 1), m) for t in range(m)], *between)


def slopes(heads: int, like: Array) -> Any:
    """Return the slopes 2^(−e_h) as elements of the kind of ``like``. Shapes: (h,).

    On ``exact`` they exist if all are rational or square roots: for up to 8 heads, with roots for up to 16.
    """
    return made_wide(lambda wide: powers_of(2, [-e for e in slope_exponents(heads)], wide), like)


def biased(
    s: Array, slope: Array, two_sided: bool = False, alignment: str = "bottom-right"
) -> Array:
    """s_ij − m_h (i − j), or m_h |i − j| if ``two_sided``, i and j counted from the last query and key.

    Shapes: s (…, h, n_q, n_k), slope (h,); for scores without heads (1,). Both agree where a causal mask allows.
    """
    xp = namespace_of(s)
    wide = slope[:, None, None] if s.ndim > 2 else slope[:, None]
    if not two_sided:
        return linear_bias(s, wide, alignment)
    # Ahead of the query i − j is negative, so the other sign is the absolute value.
    return xp.where(
        causal(s, alignment), linear_bias(s, wide, alignment), linear_bias(s, -wide, alignment)
    )


# -- buckets -----------------------------------------------------------------------------------------------------------
# Starts of buckets are computed in integers, not by rounded logarithms: ⌊c log(a/m) / log(D/m)⌋ ≥ t is equivalent to
# a^c ≥ D^t m^(c−t). The bucket of a distance is the number of buckets that start at or below it.


# Roots of large integers, needed again at each call.
@cache
def t5_starts(buckets: int, max_distance: int) -> tuple[int, ...]:
    """Return the distances at which the buckets 1, 2, …, b − 1 start.

    With m = ⌊b/2⌋ the distance a is in the bucket a if a < m, else in m + ⌊(b − m) log(a/m) / log(D/m)⌋, at most b − 1.
    Raises InputError unless b ≥ 2 and D > m. Source: Raffel et al., T5 (2020), §2.1; the formula: mesh-tensorflow.
    """
    m, d = buckets // 2, max_distance
    if buckets < 2 or d <= m:
        raise InputError(
            f"{buckets} buckets up to the distance {d}: there must be two or more, and {d} above {m}"
        )
    c = buckets - m
    return (
        *range(1, m),
        # The root of one less, plus 1, is the root rounded up.
        *(integer_root(d**t * m ** (c - t) - 1, c) + 1 for t in range(c)),
    )  # roots, rounded up


@cache
def deberta_starts(buckets: int, max_distance: int) -> tuple[int, ...]:
    """Return the distances at which the buckets 1, 2, …, b start.

    With m = ⌊b/2⌋ the distance a is in the bucket a if a ≤ m, else in m + ⌈(m − 1) log(a/m) / log((D − 1)/m)⌉, here at
    most b. Raises InputError unless b ≥ 4 and D > m + 1. Source: He et al., DeBERTa (2021), its code for version 2.
    """
    m, d = buckets // 2, max_distance - 1
    if buckets < 4 or d <= m:
        raise InputError(
            f"{buckets} buckets up to {d + 1}: there must be four or more, and {d} above {m}"
        )
    # Roots of integers, as a logarithm in floats may fall on the wrong side of a whole number.
    c = m - 1
    ends = (
        integer_root(d**t * m ** (c - t) if t <= c else d**t // m ** (t - c), c)
        for t in range(buckets - m)
    )
    return (*range(1, m + 1), *(end + 1 for end in ends))


def bucket(distance: Array, starts: tuple[int, ...]) -> Array:
    """Return the bucket of each distance a ≥ 0: the number of ``starts`` at or below it."""
    xp = namespace_of(distance)
    if xp is np:  # without the comparison of each distance with each start
        return np.searchsorted(starts, np.asarray(distance), side="right")
    # Counting comparisons needs no search, which other kinds lack.
    begun = distance[..., None] >= xp.asarray(starts, dtype=xp.int64)
    return xp.sum(xp.astype(begun, xp.int64), axis=-1)


def t5_bucket(
    ahead: Array, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> Array:
    """Return the bucket of each j − i; keys ahead have half of the buckets, from b/2 on, or bucket 0 in one direction.

    Raises InputError for an odd number of buckets in two directions. Source: Raffel et al., T5 (2020), §2.1, and code.
    """
    xp = namespace_of(ahead)
    if not bidirectional:
        # Keys ahead count as distance 0, to be masked.
        return bucket(xp.where(ahead < 0, -ahead, 0), t5_starts(buckets, max_distance))
    if buckets % 2:
        raise InputError(f"the number of buckets must be even for two directions, got {buckets}")
    half = buckets // 2
    side = xp.astype(ahead > 0, xp.int64) * half
    return side + bucket(xp.abs(ahead), t5_starts(half, max_distance))


def deberta_bucket(behind: Array, buckets: int, max_distance: int) -> Array:
    """The bucket of each i − j, with its sign: between −b and b. Source: He et al. (2021), its code for version 2."""
    xp = namespace_of(behind)
    size = bucket(xp.abs(behind), deberta_starts(buckets, max_distance))
    return xp.where(behind < 0, -size, size)
