"""The backward pass of attention as it is implemented."""

from __future__ import annotations

from typing import Any, NamedTuple

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of


class Gradients(NamedTuple):
    """dQ, dK, dV."""

    q: Any
    k: Any
    v: Any


def softmax_vjp(p: Array, g: Array) -> Array:
    """p ⊙ (g − ⟨p, g⟩): the gradient of ⟨g, softmax(s)⟩ with respect to s, from the weights p. Shapes: (…, n_k)."""
    xp = namespace_of(p)
    return p * (g - xp.sum(p * g, axis=-1, keepdims=True))


def softcap_gradient(y: Array, cap: object, g: Array) -> Array:
    """dS = dY ⊙ (1 − (y/c)²), from the capped scores y = c tanh(s/c). Source: Gemma Team, Gemma 2 (2024), §2."""
    t = y / namespace_of(y).asarray(cap, dtype=y.dtype)
    return g * (1 - t * t)


def backward(q: Array, k: Array, v: Array, p: Array, g: Array) -> Gradients:
    """Return the gradients of ⟨G, P V⟩ with P = softmax(Q Kᵀ / √d_k), from the weights P.

    dV = Pᵀ G, dP = G Vᵀ, dS = P ⊙ (dP − rowsum(P ⊙ dP)), dQ = dS K / √d_k, dK = dSᵀ Q / √d_k.
    Shapes: those of q, k, v; p (…, n_q, n_k), g (…, n_q, d_v). Source: Dao et al., FlashAttention (2022), appendix B.2.
    """
    xp = namespace_of(q)
    ds = softmax_vjp(p, g @ v.mT)
    root = xp.sqrt(xp.asarray(q.shape[-1], dtype=q.dtype))
    return Gradients(ds @ k / root, ds.mT @ q / root, p.mT @ g)
