"""Linear attention: no softmax, so the product can be reassociated and run as a recurrence."""

from __future__ import annotations

from typing import Any

from symattn.arrays.namespace import namespace_of


def linear_attention(q: Any, k: Any, v: Any) -> Any:
    """φ(Q) (φ(K)ᵀ V) / φ(Q) (φ(K)ᵀ 1), q and k holding the features φ.

    Shapes: q (…, n_q, f), k (…, n_k, f), v (…, n_k, d_v). Source: Katharopoulos et al., Transformers are RNNs (2020),
    equation 5.
    """
    xp = namespace_of(q)
    return (q @ (k.mT @ v)) / (q @ xp.sum(k, axis=-2, keepdims=True).mT)


def causal_products(q: Any, k: Any, v: Any) -> Any:
    """Σ_{j ≤ i} (q_i · k_j) v_j, by cumulative sums of k_jᵀ v_j, without a normaliser.

    Shapes: q, k (…, n, f), v (…, n, d_v) → (…, n, d_v). Source: Katharopoulos et al. (2020), equation 9.
    """
    xp = namespace_of(q)
    states = xp.cumulative_sum(k[..., :, :, None] * v[..., :, None, :], axis=-3)
    return xp.sum(q[..., :, :, None] * states, axis=-2)


def delta_step(state: Any, k: Any, v: Any, beta: Any) -> Any:
    """S + β kᵀ (v − k S): the value stored under the key k moves towards v.

    Shapes: state (…, f, d_v), k (…, 1, f), v (…, 1, d_v). Source: Schlag, Irie, Schmidhuber, Linear Transformers Are
    Secretly Fast Weight Programmers (2021), equation 24.
    """
    return state + beta * (k.mT @ (v - k @ state))
