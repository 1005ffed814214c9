"""The delta rule: each token corrects what the state holds under its key; with gates, of a state that decays.

S_t = e^{g_t} S_{t−1} + k_tᵀ u_t with u_t = β_t (v_t − k_t e^{g_t} S_{t−1}), and o_t = q_t S_t: token by token, or by
chunks, in which the u of all tokens solve one triangular system. Shapes: q, k (…, n, f), v (…, n, d_v), beta
(…, n, 1), g (…, n, 1), (…, n, f) or none, state (…, f, d_v).

Sources: Schlag, Irie, Schmidhuber, Linear Transformers Are Secretly Fast Weight Programmers (2021); by chunks, Yang,
Wang, Zhang, Shen, Kim, Parallelizing Linear Transformers with the Delta Rule over Sequence Length (2024), §3; gated,
Yang, Kautz, Hatamizadeh, Gated Delta Networks (2024).
"""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.linear.gated import chunk_of_sums, decayed, decayed_scores, gate_sums
from symattn.attention.linear.plain import delta_step


def delta_token(state: Array, q: Array, k: Array, v: Array, beta: Any, g: Any = None) -> tuple[Any, Any]:
    """One token: S' = e^g S + β kᵀ (v − k e^g S) and q S'. With ``scan`` it is the definition.

    Source: Schlag et al. (2021), equation 24; gated, Yang, Kautz, Hatamizadeh (2024), equation 10.
    """
    state = delta_step(decayed(state, g), k, v, beta)
    return state, q @ state


def corrected(k: Array, x: Array, beta: Array, sums: Array | None = None) -> Array:
    """(I + L)⁻¹ diag(β) X, L_ij = β_i Σ_f k_if k_jf e^{G_if − G_jf} for j < i: row by row, from the first on.

    y_i = β_i x_i − Σ_{j < i} L_ij y_j. Shapes: k (…, n, f), x (…, n, d), beta (…, n, 1), sums of gates G (…, n, f),
    (…, n, 1) or None → (…, n, d); n is a number. Source: Yang et al. (2024), §3, the UT transform.
    """
    below, right = beta * decayed_scores(k, k, sums, itself=False), beta * x
    rows = right[..., :1, :]
    for i in range(1, int(k.shape[-2])):
        row = right[..., i : i + 1, :] - below[..., i : i + 1, :i] @ rows
        rows = namespace_of(k).concat([rows, row], axis=-2)
    return rows


def delta_chunk(state: Array, q: Array, k: Array, v: Array, beta: Any, g: Array | None = None) -> tuple[Any, Any]:
    """Some tokens at once: linear attention to what each corrects, U = (I + L)⁻¹ diag(β) (V − (K e^G) S).

    The two parts of U are computed apart, so that the first and the factor of S need no state.
    Source: Yang et al. (2024), §3; gated, Yang, Kautz, Hatamizadeh (2024), §3.3.
    """
    if g is None:
        u = corrected(k, v, beta) - corrected(k, k, beta) @ state
        return chunk_of_sums(state, q, k, u, None, None)
    xp, sums = namespace_of(g), gate_sums(g)
    u = corrected(k, v, beta, sums) - corrected(k, k * xp.exp(sums), beta, sums) @ state
    return chunk_of_sums(state, q, k, u, sums, xp.sum(g, axis=-2, keepdims=True))
