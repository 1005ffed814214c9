"""Attention without a softmax: first with gates, a state of keys times values that decays at each token.

S_t = e^{g_t} ⊙ S_{t−1} + k_tᵀ v_t and o_t = q_t S_t, in three forms: all pairs of tokens at once, token by token, and
by chunks. Gates are given as logarithms g: one for each feature of the key (…, n, f), one for each token (…, n, 1), or
none. Shapes: q, k (…, n, f), v (…, n, d_v), state (…, f, d_v). Below, the same read before a token is added, without
gates, the delta rule, and feature maps.

Sources, by gate: a constant, Sun et al., Retentive Network (2023), equations 5 to 7; one for each token, Dao, Gu,
Transformers are SSMs (2024), §5 and §6 (Mamba-2); one for each feature, Yang et al., Gated Linear Attention
Transformers with Hardware-Efficient Training (2023), §4; none, Katharopoulos et al. (2020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of

Step = Callable[..., tuple[Array, Array]]


def decayed_scores(
    q: Array,
    k: Array,
    sums: Array | None = None,
    itself: bool = True,
    of_queries: Array | None = None,
) -> Array:
    """Σ_f q_if k_jf e^{G_if − G_jf} for j ≤ i, or for j < i if not ``itself``, and 0 for later keys.

    G_i = g_1 + … + g_i are ``sums`` of gates; ``of_queries`` are those of the queries, if others. With decaying
    gates the exponents of later tokens are positive and may overflow, so these are masked first. Shapes: q, k
    (…, n, f), sums (…, n, f), (…, n, 1) or None → (…, n, n).
    """
    xp = namespace_of(q)
    place = xp.arange(q.shape[-2])
    # The delta rule needs earlier tokens only.
    visible = place[None, :] <= place[:, None] if itself else place[None, :] < place[:, None]
    if sums is None:
        return xp.where(visible, q @ k.mT, 0)
    # Masked before exponentiating: the exponents of later tokens may overflow.
    rows = sums if of_queries is None else of_queries
    between = xp.where(visible[:, :, None], rows[..., :, None, :] - sums[..., None, :, :], -xp.inf)
    return xp.sum(q[..., :, None, :] * k[..., None, :, :] * xp.exp(between), axis=-1)


def gate_sums(g: Array | None) -> Array | None:
    """G_i = g_1 + … + g_i, None for no gates. Shapes: as g."""
    return None if g is None else namespace_of(g).cumulative_sum(g, axis=-2)


def gated_products(q: Array, k: Array, v: Array, g: Array | None = None) -> Array:
    """o_i = Σ_{j ≤ i} (Σ_f q_if k_jf e^{g_{j+1,f} + … + g_if}) v_j: the definition, for all pairs of tokens."""
    return decayed_scores(q, k, gate_sums(g)) @ v


def decayed(state: Array, g: Array | None) -> Array:
    """e^g ⊙ S for the gate (…, 1, f) or (…, 1, 1) of one token."""
    return state if g is None else namespace_of(g).exp(g.mT) * state


def gated_step(
    state: Array, q: Array, k: Array, v: Array, g: Array | None = None
) -> tuple[Array, Array]:
    """One token: S' = e^g ⊙ S + kᵀ v and q S'. Shapes: q, k (…, 1, f), v (…, 1, d_v), g (…, 1, f) or (…, 1, 1)."""
    state = decayed(state, g) + k.mT @ v
    return state, q @ state


def gated_chunk(
    state: Array, q: Array, k: Array, v: Array, g: Array | None = None
) -> tuple[Any, Any]:
    """Several tokens at once: outputs from the state before them plus those from one another; see ``chunk_of_sums``."""
    whole = None if g is None else namespace_of(g).sum(g, axis=-2, keepdims=True)
    return chunk_of_sums(state, q, k, v, gate_sums(g), whole)


def chunk_of_sums(
    state: Array, q: Array, k: Array, v: Array, sums: Array | None, whole: Array | None
) -> tuple[Any, Any]:
    """o_i = (q_i e^{G_i}) S + Σ_{j ≤ i} (q_i e^{G_i − G_j} · k_j) v_j and S' = e^G ⊙ S + Σ_j (k_j e^{G − G_j})ᵀ v_j.

    G_i are the ``sums`` of gates in the chunk (…, n, f) or (…, n, 1), and G the last of them, ``whole`` (…, 1, f); both
    None for no gates. Source: Yang et al. (2023), §4; Sun et al. (2023), equation 7.
    """
    xp = namespace_of(q)
    # Tokens of one chunk see each other as in the definition.
    inner = decayed_scores(q, k, sums) @ v
    if sums is None:
        return state + k.mT @ v, q @ state + inner
    output = (q * xp.exp(sums)) @ state + inner
    return _state_after(state, k, v, sums, whole), output


def _state_after(state: Array, k: Array, v: Array, sums: Array, whole: Any) -> Any:
    """e^G ⊙ S + Σ_j (k_j e^{G − G_j})ᵀ v_j."""
    # Each key decays from its own token to the end of the chunk.
    return decayed(state, whole) + (k * namespace_of(k).exp(whole - sums)).mT @ v


# -- the state before a token is added ---------------------------------------------------------------------------------
# S_t = e^{g_t} ⊙ S_{t−1} + k_tᵀ v_t and o_t = q_t (S_{t−1} + (b ⊙ k_t)ᵀ v_t): a token reads the state before its own
# gate decays it, and itself by a bonus b for each feature, or not at all. Shapes as above, b (…, 1, f) or None.
#
# Source: Peng et al., Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence (2024), the time mixing of
# Finch, with r for q, w for e^g and u for b.


def own_products(q: Array, k: Array, v: Array, bonus: Array) -> Array:
    """(Σ_f q_tf b_f k_tf) v_t: what each token reads of itself. Shapes: q, k (…, n, f), v (…, n, d_v)."""
    return namespace_of(q).sum(q * bonus * k, axis=-1, keepdims=True) * v


def products_read_before(
    q: Array, k: Array, v: Array, g: Array | None = None, bonus: Array | None = None
) -> Any:
    """o_i = Σ_{j < i} (Σ_f q_if k_jf e^{g_{j+1,f} + … + g_{i−1,f}}) v_j + (q_i ⊙ b · k_i) v_i: the definition."""
    sums = gate_sums(g)
    before = None if g is None or sums is None else sums - g
    inner = decayed_scores(q, k, sums, itself=False, of_queries=before) @ v
    return inner if bonus is None else inner + own_products(q, k, v, bonus)


def step_read_before(
    state: Array, q: Array, k: Array, v: Array, g: Array | None = None, bonus: Array | None = None
) -> tuple[Array, Array]:
    """One token: q (S + (b ⊙ k)ᵀ v), read before S' = e^g ⊙ S + kᵀ v. Shapes: as ``gated_step``, b (…, 1, f).

    Source: Peng et al. (2024), the time mixing of Finch.
    """
    seen = state if bonus is None else state + (bonus * k).mT @ v
    return decayed(state, g) + k.mT @ v, q @ seen


def chunk_read_before(
    state: Array, q: Array, k: Array, v: Array, g: Array | None = None, bonus: Array | None = None
) -> tuple[Any, Any]:
    """Several tokens at once: o_i = (q_i e^{R_i}) S + Σ_{j < i} (q_i e^{R_i − G_j} · k_j) v_j + (q_i ⊙ b · k_i) v_i.

    G_i are the sums of gates up to a token, and R_i = G_i − g_i those before it; S' as in ``gated_chunk``.
    """
    xp, sums = namespace_of(q), gate_sums(g)
    inner = products_read_before(q, k, v, g, bonus)
    if g is None or sums is None:
        return state + k.mT @ v, q @ state + inner
    output = (q * xp.exp(sums - g)) @ state + inner
    return _state_after(state, k, v, sums, xp.sum(g, axis=-2, keepdims=True)), output


def reading_before(step: Step) -> Step:
    """Return a step of one token that reads the state before it: q S in the place of q S'."""

    def run(state: Array, q: Array, *more: Array) -> tuple[Array, Array]:
        return step(state, q, *more)[0], q @ state

    return run


class Scanned(NamedTuple):
    """The state after the last token, and the outputs (…, n, d_v)."""

    state: Array
    output: Array


def scan(step: Step, state: Array, bounds: Sequence[object], *arrays: Array) -> Scanned:
    """``step`` over the tokens between consecutive bounds (0, …, n): ``range(n + 1)`` goes token by token.

    ``step(state, *slices)`` gives the next state and the outputs of its tokens, such as ``gated_chunk``; the arrays are
    sliced along their axis of tokens, the last but one.
    """
    outputs = []
    for lo, hi in pairwise(bounds):
        state, output = step(state, *[x[..., lo:hi, :] for x in arrays])
        outputs.append(output)
    return Scanned(state, namespace_of(outputs[0]).concat(outputs, axis=-2))


def empty_state(k: Array, v: Array) -> Array:
    """Return the state before the first token: zeros (…, f, d_v)."""
    return namespace_of(k).zeros_like(k[..., :1, :].mT @ v[..., :1, :])


def normalised(products: Callable[[Any, Any, Any], Any], q: Array, k: Array, v: Array) -> Any:
    """Divide ``products`` of the values by ``products`` of ones, so that weights sum to one, as in linear attention.

    ``products(q, k, v)`` is any form of the sum over earlier tokens. Source: Katharopoulos et al. (2020), equation 9.
    """
    # Products of ones are the sums of the weights; the ones have the dtype of the values.
    return products(q, k, v) / products(
        q, k, namespace_of(v).sum(0 * v, axis=-1, keepdims=True) + 1
    )


# -- no gates: the product can be reassociated -------------------------------------------------------------------------
def linear_attention(q: Array, k: Array, v: Array) -> Array:
    """φ(Q) (φ(K)ᵀ V) / φ(Q) (φ(K)ᵀ 1), q and k holding the features φ.

    Shapes: q (…, n_q, f), k (…, n_k, f), v (…, n_k, d_v). Source: Katharopoulos et al., Transformers are RNNs (2020),
    equation 5.
    """
    xp = namespace_of(q)
    return (q @ (k.mT @ v)) / (q @ xp.sum(k, axis=-2, keepdims=True).mT)


def causal_products(q: Array, k: Array, v: Array) -> Array:
    """Σ_{j ≤ i} (q_i · k_j) v_j, by cumulative sums of k_jᵀ v_j, without a normaliser.

    Shapes: q, k (…, n, f), v (…, n, d_v) → (…, n, d_v). Source: Katharopoulos et al. (2020), equation 9.
    """
    xp = namespace_of(q)
    states = xp.cumulative_sum(k[..., :, :, None] * v[..., :, None, :], axis=-3)
    return xp.sum(q[..., :, :, None] * states, axis=-2)


def linear_state(k: Array, v: Array) -> tuple[Array, Array]:
    """(S, z) of a set of keys: S = Σ_j k_jᵀ v_j, z = Σ_j k_j. Shapes: k (…, n, f), v (…, n, d_v)."""
    return k.mT @ v, namespace_of(k).sum(k, axis=-2, keepdims=True)


def causal_linear_attention(q: Array, k: Array, v: Array) -> Any:
    """φ(q_i) Σ_{j ≤ i} φ(k_j)ᵀ v_j / φ(q_i) · Σ_{j ≤ i} φ(k_j). Shapes: q, k (…, n, f), v (…, n, d_v)."""
    return normalised(causal_products, q, k, v)


def delta_step(state: Array, k: Array, v: Array, beta: Array) -> Array:
    """S + β kᵀ (v − k S): the value stored under the key k moves towards v.

    Shapes: state (…, f, d_v), k (…, 1, f), v (…, 1, d_v). Source: Schlag, Irie, Schmidhuber, Linear Transformers Are
    Secretly Fast Weight Programmers (2021), equation 24.
    """
    return state + beta * (k.mT @ (v - k @ state))


# -- the delta rule ----------------------------------------------------------------------------------------------------
# S_t = e^{g_t} S_{t−1} + k_tᵀ u_t with u_t = β_t (v_t − k_t e^{g_t} S_{t−1}), and o_t = q_t S_t: token by token, or by
# chunks, in which the u of all tokens solve one triangular system. Shapes: q, k (…, n, f), v (…, n, d_v), beta
# (…, n, 1), g (…, n, 1), (…, n, f) or none, state (…, f, d_v).
#
# Sources: Schlag, Irie, Schmidhuber, Linear Transformers Are Secretly Fast Weight Programmers (2021); by chunks, Yang,
# Wang, Zhang, Shen, Kim, Parallelizing Linear Transformers with the Delta Rule over Sequence Length (2024), §3; gated,
# Yang, Kautz, Hatamizadeh, Gated Delta Networks (2024).


def delta_token(
    state: Array, q: Array, k: Array, v: Array, beta: Array, g: Array | None = None
) -> tuple[Array, Array]:
    """One token: S' = e^g S + β kᵀ (v − k e^g S) and q S'. With ``scan`` it is the definition.

    Source: Schlag et al. (2021), equation 24; gated, Yang, Kautz, Hatamizadeh (2024), equation 10.
    """
    state = delta_step(decayed(state, g), k, v, beta)
    return state, q @ state


def corrected(k: Array, x: Array, beta: Array, sums: Array | None = None) -> Array:
    """(I + L)⁻¹ diag(β) X, L_ij = β_i Σ_f k_if k_jf e^{G_if − G_jf} for j < i, by forward substitution.

    y_i = β_i x_i − Σ_{j < i} L_ij y_j. Shapes: k (…, n, f), x (…, n, d), beta (…, n, 1), sums of gates G (…, n, f),
    (…, n, 1) or None → (…, n, d); n is a number. Source: Yang et al. (2024), §3, the UT transform.
    """
    below, right = beta * decayed_scores(k, k, sums, itself=False), beta * x
    # The first row of a triangular system has no correction.
    rows = right[..., :1, :]
    for i in range(1, int(k.shape[-2])):
        row = right[..., i : i + 1, :] - below[..., i : i + 1, :i] @ rows
        rows = namespace_of(k).concat([rows, row], axis=-2)
    return rows


def delta_chunk(
    state: Array, q: Array, k: Array, v: Array, beta: Array, g: Array | None = None
) -> tuple[Any, Any]:
    """Several tokens at once: linear attention with the corrections U = (I + L)⁻¹ diag(β) (V − (K e^G) S) as values.

    U is the difference of two terms, so that the first, and the factor of S, can be computed before the state is known.
    Source: Yang et al. (2024), §3; gated, Yang, Kautz, Hatamizadeh (2024), §3.3.
    """
    if g is None:
        u = corrected(k, v, beta) - corrected(k, k, beta) @ state
        return chunk_of_sums(state, q, k, u, None, None)
    xp, sums = namespace_of(g), gate_sums(g)
    u = corrected(k, v, beta, sums) - corrected(k, k * xp.exp(sums), beta, sums) @ state
    return chunk_of_sums(state, q, k, u, sums, xp.sum(g, axis=-2, keepdims=True))


# -- erasing along another vector --------------------------------------------------------------------------------------
# S_t = e^{g_t} S_{t−1} − e_tᵀ (p_t X) + k_tᵀ v_t and o_t = q_t S_t, with X the decayed state e^{g_t} S_{t−1}, or, if
# tokens erase before it decays, S_{t−1}. The delta rule has p = β k, e = k and β v for v. Shapes: p, e as k (…, n, f).
#
# Sources: β p for p, and before the decay, Hu et al., Comba: Improving Bilinear RNNs with Closed-loop Control (2025);
# p = b ⊙ k and w ⊙ v for v, Hatamizadeh, Choi, Kautz, Gated DeltaNet-2: Decoupling Erase and Write in Linear Attention
# (2026), equation 10; p of length 1 and e = a ⊙ p, before the decay, Peng et al., RWKV-7 Goose (2025).


def erasing_token(
    state: Array, q: Array, k: Array, v: Array, p: Array, e: Array, g: Array | None = None, *,
    before: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    """One token: S' = e^g S − eᵀ (p X) + kᵀ v and q S', X = S if ``before``, else e^g S. With ``scan`` the definition.

    Sources: Hu et al., Comba (2025); Hatamizadeh, Choi, Kautz (2026), equation 10; Peng et al., RWKV-7 Goose (2025).
    """
    kept = decayed(state, g)
    seen = p @ (state if before else kept)
    state = kept - e.mT @ seen + k.mT @ v
    return state, q @ state


def erasing_chunk(
    state: Array,
    q: Array,
    k: Array,
    v: Array,
    p: Array,
    e: Array,
    g: Array | None = None,
    *,
    before: bool = False,
) -> tuple[Any, Any]:
    """Several tokens at once: what their p read, r, solves (I + L) r = (p e^R) S + M v, and is subtracted along e.

    L_ij = Σ_f p_if e_jf e^{R_if − G_jf} and M_ij the same of k, for j < i; G are the sums of gates up to a token, and R
    is G, or the sums before it. o = (q e^G) S + Σ_{j ≤ i} (q_i e^{G_i − G_j} · k_j) v_j − the same of e and r.
    Source: Yang et al. (2024), §3, for p = β k.
    """
    sums = gate_sums(g)
    reads = sums if g is None or sums is None or not before else sums - g

    def read(x: Array, of_x: Array | None) -> Any:
        return (x if of_x is None else x * namespace_of(x).exp(of_x)) @ state

    of_values = decayed_scores(p, k, sums, itself=False, of_queries=reads) @ v
    below = decayed_scores(p, e, sums, itself=False, of_queries=reads)
    right = read(p, reads) + of_values
    # By forward substitution, row by row.
    erased = right[..., :1, :]
    for i in range(1, int(k.shape[-2])):
        row = right[..., i : i + 1, :] - below[..., i : i + 1, :i] @ erased
        erased = namespace_of(k).concat([erased, row], axis=-2)
    last = None if g is None else namespace_of(g).sum(g, axis=-2, keepdims=True)
    return chunk_of_erased(state, q, k, v, e, erased, sums, last)


def chunk_of_erased(
    state: Array, q: Array, k: Array, v: Array, e: Array, erased: Array, sums: Array | None, whole: Array | None
) -> tuple[Any, Any]:  # fmt: skip
    """``chunk_of_sums`` of tokens that also subtract r along e, r being what their p ``erased`` (…, n, d_v).

    S' = e^G ⊙ S + Σ_j (k_j e^{G − G_j})ᵀ v_j − Σ_j (e_j e^{G − G_j})ᵀ r_j, and o the same of queries.
    Source: Yang et al. (2024), §3, for p = β k.
    """
    after, output = chunk_of_sums(state, q, k, v, sums, whole)
    # What is subtracted starts from an empty state.
    erased_state, of_erased = chunk_of_sums(0 * state, q, e, erased, sums, whole)
    return after - erased_state, output - of_erased


# -- feature maps ------------------------------------------------------------------------------------------------------
def elu_plus_one(x: Array) -> Array:
    """φ(x) = elu(x) + 1: x + 1 for x > 0, else e^x. Source: Katharopoulos et al. (2020), equation 7."""
    xp = namespace_of(x)
    above = x > 0
    # Only the branch that is chosen is exponentiated, so that none overflows.
    return xp.where(above, x + 1, xp.exp(xp.where(above, 0, x)))


def elu_then_one(x: Array) -> Array:
    """elu(x) + 1 as it is written, (e^x − 1) + 1 for x ≤ 0: equal to ``elu_plus_one`` but for rounding."""
    xp = namespace_of(x)
    above = x > 0
    return xp.where(above, x, xp.exp(xp.where(above, 0, x)) - 1) + 1


def relu(x: Array) -> Array:
    """φ(x) = max(x, 0). Source: Choromanski et al., Rethinking Attention with Performers (2021), Performer-ReLU."""
    return namespace_of(x).where(x > 0, x, 0)


def positive_random(x: Array, w: Array, shift: object = 0) -> Array:
    """φ(x) = e^{w_l · x − ‖x‖²/2 − c} / √m for m directions w_l: positive, and for w ∼ N(0, I) of mean e^{q·k}.

    For softmax(Q Kᵀ / √d_k) the rows are q / d_k^{1/4} and k / d_k^{1/4}. Any number ``shift`` c, one for all keys and
    one for each query, cancels in normalised attention. Shapes: x (…, n, d), w (m, d) → (…, n, m).
    Source: Choromanski et al., Rethinking Attention with Performers (2021), §2.3, lemma 1.
    """
    xp = namespace_of(x)
    half_square = xp.sum(x * x, axis=-1, keepdims=True) / 2
    return xp.exp(x @ w.mT - half_square - shift) / xp.sqrt(xp.asarray(w.shape[-2], dtype=x.dtype))
