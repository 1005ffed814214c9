"""Gradients of rows of scores from weights saved by the forward pass, and of arrays that were broadcast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.gradients.attention import softmax_vjp
from symattn.attention.sizes import same
from symattn.attention.softmax import nonempty


def summed_like(g: Array, x: Array) -> Array:
    """Return the gradient of a broadcast array x: g summed over the axes that x lacks or has with length 1."""
    xp, extra = namespace_of(g), g.ndim - x.ndim
    # Broadcast axes: length 1 in x, another length in g.
    wide = [
        axis
        for axis, length in enumerate(x.shape, start=extra)
        if same(length, 1) and not same(g.shape[axis], 1)
    ]
    g = xp.sum(g, axis=tuple(wide), keepdims=True) if wide else g
    return xp.sum(g, axis=tuple(range(extra))) if extra else g


# -- rows of weights: from the gradient of the weights of each row to that of its scores -------------------------------
def logarithm_of(base: int | None, like: Array) -> Any:
    """log b, the factor of the derivative of b^x; 1 for the base e."""
    xp = namespace_of(like)
    return 1 if base is None else xp.log(xp.asarray(base, dtype=like.dtype))


def softmax_gradient(p: Array, g: Array, base: int | None = None) -> Array:
    """dS = P ⊙ (dP − rowsum(P ⊙ dP)), times log 2 for powers of two.

    A forbidden key has p = 0 and the gradient 0, and so has a row of zeros. Shapes: p and g = dP (…, n_q, n_k).
    Source: Dao et al., FlashAttention (2022), appendix B.2.
    """
    ds = softmax_vjp(p, g)
    return ds if base is None else ds * logarithm_of(base, p)


def sink_gradients(p: Array, g: Array, base: int | None = None) -> tuple[Array, Array]:
    """(dS, db) with a sink b: dS = P ⊙ (dP − D) and db = −p_b D, D = rowsum(P ⊙ dP) and p_b = 1 − rowsum(P).

    The sink is one more key whose value is 0, so that its dP is 0. Shapes: p and g (…, n_q, n_k) → (…, n_q, n_k) and
    (…, n_q, 1), to be summed over the rows that share a sink.
    Source: Dao et al. (2022), appendix B.2, for one more key; Xiao et al. (2024), §3.3, for the sink.
    """
    xp = namespace_of(p)
    d = xp.sum(p * g, axis=-1, keepdims=True)
    own = 1 - xp.sum(p, axis=-1, keepdims=True)
    return softmax_gradient(p, g, base), -(own * d) * logarithm_of(base, p)


def sigmoid_gradient(a: Array, g: Array) -> Array:
    """dS = A ⊙ (1 − A) ⊙ dA, from the weights. Source: Ramapuram et al. (2024), of equation 3."""
    return a * (1 - a) * g


def relu_gradient(s: Array, g: Array, divided: bool = True) -> Array:
    """dS = dA / n_k where s > 0, or dA if not ``divided``, else 0.

    At s = 0 it is 0, one of many subgradients, the one that frameworks choose.

    Shapes: (…, n_q, n_k). Source: Wortsman et al., Replacing softmax with ReLU in Vision Transformers (2023), §3.
    """
    xp = namespace_of(s)
    positive = xp.where(s > 0, g, 0)
    return positive / xp.asarray(s.shape[-1], dtype=s.dtype) if divided else positive


def sparsemax_gradient(p: Array, g: Array) -> Array:
    """dS = dP − mean of dP over the support, on the support p > 0; elsewhere 0. From the weights.

    Where a score equals the threshold, this is one of many subgradients. Shapes: (…, n_q, n_k).
    Source: Martins, Astudillo, From Softmax to Sparsemax (2016), §2.5.
    """
    xp = namespace_of(p)
    support = xp.astype(p > 0, p.dtype)
    # An empty row has no support; its gradient is 0 in any case.
    number = nonempty(xp.sum(support, axis=-1, keepdims=True), "zeros")
    return support * (g - xp.sum(support * g, axis=-1, keepdims=True) / number)


def entmax15_gradient(p: Array, g: Array) -> Array:
    """dS = r ⊙ (dP − Σ r dP / Σ r) with r = √p, from the weights of 1.5-entmax. Shapes: (…, n_q, n_k).

    Source: Peters, Niculae, Martins, Sparse Sequence-to-Sequence Models (2019): r_j = p_j^{2 − α} for α = 1.5.
    """
    xp = namespace_of(p)
    r = xp.sqrt(p)
    total = nonempty(xp.sum(r, axis=-1, keepdims=True), "zeros")
    return r * (g - xp.sum(r * g, axis=-1, keepdims=True) / total)


#: The gradient of the scores by normaliser, of the base of powers, the scores, the weights and the gradient of these;
#: others take a tape.
FROM_WEIGHTS: dict[str, Callable[..., Array]] = {
    "softmax": lambda base, s, p, g: softmax_gradient(p, g, base),
    "sigmoid": lambda base, s, p, g: sigmoid_gradient(p, g),
    "relu": lambda base, s, p, g: relu_gradient(s, g),
    "relu_sum": lambda base, s, p, g: relu_gradient(s, g, divided=False),
    "sparsemax": lambda base, s, p, g: sparsemax_gradient(p, g),
    "entmax": lambda base, s, p, g: entmax15_gradient(p, g),
}
