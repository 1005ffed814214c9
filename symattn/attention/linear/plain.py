"""Linear attention: no softmax, so the product can be reassociated and run as a recurrence."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of


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


def linear_state(k: Array, v: Array) -> tuple[Any, Any]:
    """(S, z) of a set of keys: S = Σ_j k_jᵀ v_j, z = Σ_j k_j. Shapes: k (…, n, f), v (…, n, d_v)."""
    return k.mT @ v, namespace_of(k).sum(k, axis=-2, keepdims=True)


def linear_step(state: tuple[Any, Any], q: Array, k: Array, v: Array) -> tuple[tuple[Any, Any], Any]:
    """One token: S + kᵀ v, z + k, and the output q S / (q · z).

    Shapes: q and k (…, 1, f), v (…, 1, d_v). Source: Katharopoulos et al. (2020), equations 16 to 20.
    """
    total, sums = state[0] + k.mT @ v, state[1] + k
    return (total, sums), (q @ total) / (q @ sums.mT)


def causal_linear_attention(q: Array, k: Array, v: Array) -> Array:
    """φ(q_i) Σ_{j ≤ i} φ(k_j)ᵀ v_j / φ(q_i) · Σ_{j ≤ i} φ(k_j). Shapes: q, k (…, n, f), v (…, n, d_v)."""
    one = namespace_of(v).sum(0 * v, axis=-1, keepdims=True) + 1
    return causal_products(q, k, v) / causal_products(q, k, one)


def delta_step(state: Array, k: Array, v: Array, beta: Any) -> Any:
    """S + β kᵀ (v − k S): the value stored under the key k moves towards v.

    Shapes: state (…, f, d_v), k (…, 1, f), v (…, 1, d_v). Source: Schlag, Irie, Schmidhuber, Linear Transformers Are
    Secretly Fast Weight Programmers (2021), equation 24.
    """
    return state + beta * (k.mT @ (v - k @ state))
