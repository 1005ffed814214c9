"""The way back through normalisations over the last axis."""

from __future__ import annotations

from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.norms import centre, unit


def rms_norm_gradients(x: Any, g: Any, eps: Any = 0, gain: Any = None) -> tuple[Any, Any, Any]:
    """(dX, dγ, dβ) of γ ⊙ x̂ + β, x̂ = x / r, r = √(mean(x²) + ε): with h = γ ⊙ G

    dX = (h − x̂ mean(h ⊙ x̂)) / r, dγ = Σ G ⊙ x̂ and dβ = Σ G over all rows. Shapes: x and g (…, d), gain (d,) →
    (…, d), (d,), (d,). Source: Zhang, Sennrich, Root Mean Square Layer Normalization (2019), §4, of equation 4.
    """
    xp = namespace_of(x)
    r = xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + xp.asarray(eps, dtype=x.dtype))
    normed = x / r
    h = g if gain is None else g * gain
    dx = (h - normed * xp.mean(h * normed, axis=-1, keepdims=True)) / r
    return dx, over_rows(g * normed), over_rows(g)


def layer_norm_gradients(x: Any, g: Any, eps: Any = 0, gain: Any = None) -> tuple[Any, Any, Any]:
    """(dX, dγ, dβ) of LayerNorm: dX = (h − mean(h) − x̂ mean(h ⊙ x̂)) / σ with h = γ ⊙ G, σ² = variance + ε.

    Those of ``rms_norm_gradients`` for the centred x, and dX centred: to centre is its own transpose.
    Shapes: as there. Source: Ba, Kiros, Hinton, Layer Normalization (2016), of equations 3 and 4.
    """
    dx, dgain, dbias = rms_norm_gradients(centre(x), g, eps, gain)
    return centre(dx), dgain, dbias


def unit_gradient(x: Any, g: Any) -> Any:
    """dX = (G − u (u · G)) / ‖x‖ of u = x / ‖x‖: what of G is at right angles to x. Shapes: (…, d)."""
    xp = namespace_of(x)
    u = unit(x)
    across = g - u * xp.sum(u * g, axis=-1, keepdims=True)
    return across / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))


def over_rows(g: Any) -> Any:
    """The sum over all axes but the last: the gradient by one vector that every row is given."""
    return namespace_of(g).sum(g, axis=tuple(range(g.ndim - 1))) if g.ndim > 1 else g
