"""Feature maps of linear attention: φ(q) · φ(k) in the place of e^{q·k}. Each row of x becomes a row of features."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of


def identity(x: Array) -> Array:
    """φ(x) = x. Source: Schlag, Irie, Schmidhuber (2021), §3.2; gated linear attention and DeltaNet use it."""
    return x


def elu_plus_one(x: Array) -> Array:
    """φ(x) = elu(x) + 1: x + 1 for x > 0, else e^x. Source: Katharopoulos et al. (2020), equation 7."""
    xp = namespace_of(x)
    above = x > 0
    return xp.where(above, x + 1, xp.exp(xp.where(above, 0, x)))


def relu(x: Array) -> Array:
    """φ(x) = max(x, 0). Source: Choromanski et al., Rethinking Attention with Performers (2021), Performer-ReLU."""
    return namespace_of(x).where(x > 0, x, 0)


def exponential(x: Array) -> Array:
    """φ(x) = e^x, entry by entry."""
    return namespace_of(x).exp(x)


def positive_random(x: Array, w: Array, shift: Any = 0) -> Array:
    """φ(x) = e^{w_l · x − ‖x‖²/2 − c} / √m for m directions w_l: positive, and for w ∼ N(0, I) of mean e^{q·k}.

    For softmax(Q Kᵀ / √d_k) the rows are q / d_k^{1/4} and k / d_k^{1/4}. Any number ``shift`` c, one for all keys and
    one for each query, cancels in normalised attention. Shapes: x (…, n, d), w (m, d) → (…, n, m).
    Source: Choromanski et al., Rethinking Attention with Performers (2021), §2.3, lemma 1.
    """
    xp = namespace_of(x)
    half_square = xp.sum(x * x, axis=-1, keepdims=True) / 2
    return xp.exp(x @ w.mT - half_square - shift) / xp.sqrt(xp.asarray(w.shape[-2], dtype=x.dtype))
