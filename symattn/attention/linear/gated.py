"""Gated linear attention: a state of keys times values that decays by a gate at each token.

S_t = e^{g_t} ⊙ S_{t−1} + k_tᵀ v_t and o_t = q_t S_t, in three forms: all pairs of tokens at once, token by token, and
by chunks. Gates are given as logarithms g: one for each feature of the key (…, n, f), one for each token (…, n, 1), or
none. Shapes: q, k (…, n, f), v (…, n, d_v), state (…, f, d_v).

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

Step = Callable[..., tuple[Any, Any]]


def decayed_scores(q: Array, k: Array, sums: Any = None, itself: bool = True) -> Array:
    """Σ_f q_if k_jf e^{G_if − G_jf} for j ≤ i, or for j < i if not ``itself``, and 0 for later keys.

    G_i = g_1 + … + g_i are ``sums`` of gates. Those of later tokens would be growth: they are masked before they are
    exponentiated. Shapes: q, k (…, n, f), sums (…, n, f), (…, n, 1) or None → (…, n, n).
    """
    xp = namespace_of(q)
    place = xp.arange(q.shape[-2])
    seen = place[None, :] <= place[:, None] if itself else place[None, :] < place[:, None]
    if sums is None:
        return xp.where(seen, q @ k.mT, 0)
    between = xp.where(seen[:, :, None], sums[..., :, None, :] - sums[..., None, :, :], -xp.inf)
    return xp.sum(q[..., :, None, :] * k[..., None, :, :] * xp.exp(between), axis=-1)


def gate_sums(g: Array | None) -> Array | None:
    """G_i = g_1 + … + g_i, None for no gates. Shapes: as g."""
    return None if g is None else namespace_of(g).cumulative_sum(g, axis=-2)


def gated_products(q: Any, k: Any, v: Any, g: Any = None) -> Any:
    """o_i = Σ_{j ≤ i} (Σ_f q_if k_jf e^{g_{j+1,f} + … + g_if}) v_j: the definition, for all pairs of tokens."""
    return decayed_scores(q, k, gate_sums(g)) @ v


def decayed(state: Array, g: Array | None) -> Array:
    """e^g ⊙ S for the gate (…, 1, f) or (…, 1, 1) of one token."""
    return state if g is None else namespace_of(g).exp(g.mT) * state


def gated_step(state: Array, q: Array, k: Array, v: Array, g: Any = None) -> tuple[Any, Any]:
    """One token: S' = e^g ⊙ S + kᵀ v and q S'. Shapes: q, k (…, 1, f), v (…, 1, d_v), g (…, 1, f) or (…, 1, 1)."""
    state = decayed(state, g) + k.mT @ v
    return state, q @ state


def gated_chunk(state: Any, q: Any, k: Any, v: Array, g: Any = None) -> tuple[Any, Any]:
    """Some tokens at once: what comes from the state before them, and from one another. See ``chunk_of_sums``."""
    whole = None if g is None else namespace_of(g).sum(g, axis=-2, keepdims=True)
    return chunk_of_sums(state, q, k, v, gate_sums(g), whole)


def chunk_of_sums(state: Array, q: Array, k: Array, v: Array, sums: Any, whole: Any) -> tuple[Any, Any]:
    """o_i = (q_i e^{G_i}) S + Σ_{j ≤ i} (q_i e^{G_i − G_j} · k_j) v_j and S' = e^G ⊙ S + Σ_j (k_j e^{G − G_j})ᵀ v_j.

    G_i are the ``sums`` of gates in the chunk (…, n, f) or (…, n, 1), and G the last of them, ``whole`` (…, 1, f); both
    None for no gates. Source: Yang et al. (2023), §4; Sun et al. (2023), equation 7.
    """
    xp = namespace_of(q)
    inner = decayed_scores(q, k, sums) @ v
    if sums is None:
        return state + k.mT @ v, q @ state + inner
    output = (q * xp.exp(sums)) @ state + inner
    return decayed(state, whole) + (k * xp.exp(whole - sums)).mT @ v, output


class Scanned(NamedTuple):
    """The state after the last token, and the outputs (…, n, d_v)."""

    state: Any
    output: Any


def scan(step: Step, state: Any, bounds: Sequence[Any], *arrays: Any) -> Scanned:
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
    """The state before the first token: zeros (…, f, d_v)."""
    return namespace_of(k).zeros_like(k[..., :1, :].mT @ v[..., :1, :])


def normalised(products: Callable[[Any, Any, Any], Any], q: Array, k: Array, v: Array) -> Any:
    """``products`` of the values over ``products`` of ones: rows that sum to one, as linear attention has them.

    ``products(q, k, v)`` is any form of the sum over earlier tokens. Source: Katharopoulos et al. (2020), equation 9.
    """
    return products(q, k, v) / products(q, k, namespace_of(v).sum(0 * v, axis=-1, keepdims=True) + 1)
