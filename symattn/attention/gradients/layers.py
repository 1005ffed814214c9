"""The way back through activations and feed-forward layers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import pi
from symattn.attention.layers.activations import ACTIVATIONS, erf, sigmoid


def relu_slope(x: Any) -> Any:
    """1 where x > 0, else 0; at 0 it is 0, one of many, as frameworks take it."""
    xp = namespace_of(x)
    return xp.astype(x > 0, x.dtype)


def sigmoid_slope(x: Any) -> Any:
    """σ(x) (1 − σ(x))."""
    y = sigmoid(x)
    return y * (1 - y)


def silu_slope(x: Any) -> Any:
    """σ(x) (1 + x (1 − σ(x))). Source: Ramachandran, Zoph, Le, Searching for Activation Functions (2017), §5."""
    y = sigmoid(x)
    return y * (1 + x * (1 - y))


def tanh_slope(x: Any) -> Any:
    """1 − tanh² x."""
    y = namespace_of(x).tanh(x)
    return 1 - y * y


def identity_slope(x: Any) -> Any:
    """1."""
    return namespace_of(x).ones_like(x)


def gelu_slope(x: Any) -> Any:
    """Φ(x) + x φ(x) for the normal distribution Φ with the density φ = e^{−x²/2}/√(2π).

    Source: of Hendrycks, Gimpel, Gaussian Error Linear Units (2016), §2.
    """
    xp = namespace_of(x)
    density = xp.exp(-(x * x) / 2) / xp.sqrt(2 * pi(x))
    return (1 + erf(x / xp.sqrt(xp.asarray(2, dtype=x.dtype)))) / 2 + x * density


def gelu_tanh_slope(x: Any) -> Any:
    """(1 + t)/2 + x/2 (1 − t²) u', with t = tanh u, u = √(2/π) (x + 0.044715 x³)."""
    xp = namespace_of(x)
    root, c = xp.sqrt(2 / pi(x)), xp.asarray(Fraction(44715, 10**6), dtype=x.dtype)
    t = xp.tanh(root * (x + c * x * x * x))
    return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * c * x * x)


#: By the name of an activation, as in ``activations.ACTIVATIONS``.
SLOPES: dict[str, Callable[[Any], Any]] = {
    "relu": relu_slope,
    "gelu": gelu_slope,
    "gelu_tanh": gelu_tanh_slope,
    "silu": silu_slope,
    "sigmoid": sigmoid_slope,
    "tanh": tanh_slope,
    "identity": identity_slope,
}


def gated_gradients(activation: str, gates: Any, values: Any, g: Any) -> tuple[Any, Any]:
    """(G ⊙ V ⊙ f'(gates), G ⊙ f(gates)) of f(gates) ⊙ V. Source: Shazeer, GLU Variants Improve Transformer (2020)."""
    return g * values * SLOPES[activation](gates), g * ACTIVATIONS[activation].run(gates)
