"""The steps around attention: embeddings, feed-forward layers, residuals. Linear layers are ``projections.project``.

Weights multiply from the right, x W, so that W has the shape (width before, width after).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import pi


def embed(table: Array, ids: Array) -> Array:
    """Return the row of ``table`` for each number of a token.

    Shapes: table (vocabulary, d_model), ids (…, n) of whole numbers from 0 → (…, n, d_model).
    Source: Vaswani et al., Attention Is All You Need (2017), §3.4.
    """
    xp = namespace_of(table)
    # Not all kinds take rows by indices with several axes, so the indices are flat.
    rows = xp.take(table, namespace_of(ids).reshape(ids, (-1,)), axis=0)
    return xp.reshape(rows, (*ids.shape, table.shape[-1]))


def widen(x: Array) -> Array:
    """√d_model x, so that positions do not outweigh embeddings. Source: Vaswani et al. (2017), §3.4."""
    xp = namespace_of(x)
    return x * xp.sqrt(xp.asarray(x.shape[-1], dtype=x.dtype))


def gated(activation: Callable[[Any], object], gates: Array, values: Array) -> Array:
    """f(gates) ⊙ values: GLU for f = sigmoid, ReGLU for ReLU, GeGLU for GELU, SwiGLU for SiLU.

    Source: Shazeer, GLU Variants Improve Transformer (2020), equations 4 and 5; Dauphin et al. (2017) for GLU.
    """
    return activation(gates) * values


def residual(x: Array, y: Array) -> Array:
    """x + y. Source: He et al., Deep Residual Learning for Image Recognition (2016), equation 1."""
    return x + y


# -- activations: functions of single numbers, between the two matrices of feed-forward layers -------------------------
# ``ACTIVATIONS`` holds them by name, each with its formula.


def relu(x: Array) -> Array:
    """max(x, 0). Source: Nair, Hinton, Rectified Linear Units Improve Restricted Boltzmann Machines (2010)."""
    return namespace_of(x).maximum(x, 0)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^{−x}). In floats e^{−x} overflows far below zero, and the quotient is 0 as it should be."""
    return 1 / (1 + namespace_of(x).exp(-x))


def softplus(x: Array) -> Array:
    """log(1 + e^x). Source: Dugas, Bengio, Bélisle, Nadeau, Garcia, Incorporating Second-Order Functional Knowledge for
    Better Option Pricing (2000)."""
    xp = namespace_of(x)
    return xp.log(1 + xp.exp(x))


def silu(x: Array) -> Array:
    """x / (1 + e^{−x}), x times its sigmoid. Source: Hendrycks, Gimpel, Gaussian Error Linear Units (2016), §2; as
    Swish: Ramachandran, Zoph, Le, Searching for Activation Functions (2017)."""
    return x / (1 + namespace_of(x).exp(-x))


def tanh(x: Array) -> Array:
    """(e^x − e^{−x}) / (e^x + e^{−x})."""
    return namespace_of(x).tanh(x)


def identity(x: Array) -> Array:
    """x: a gated layer without activation is bilinear. Source: Shazeer, GLU Variants Improve Transformer (2020)."""
    return x


def gelu(x: Array) -> Array:
    """x/2 · (1 + erf(x/√2)), x times the probability that a standard normal variable is below x.

    Source: Hendrycks, Gimpel, Gaussian Error Linear Units (2016), §2.
    """
    xp = namespace_of(x)
    return x / 2 * (1 + erf(x / xp.sqrt(xp.asarray(2, dtype=x.dtype))))


def gelu_tanh(x: Array) -> Array:
    """x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), which is close to ``gelu`` but not the same function.

    Source: Hendrycks, Gimpel, Gaussian Error Linear Units (2016), §2; Radford et al., GPT-2 (2019), in its code.
    """
    xp = namespace_of(x)
    root = xp.sqrt(2 / pi(x))
    cubic = xp.asarray(Fraction(44715, 10**6), dtype=x.dtype) * x * x * x
    return x / 2 * (1 + xp.tanh(root * (x + cubic)))


def erf(x: Any) -> Array:
    """2/√π ∫₀^x e^{−t²} dt. NumPy lacks it: there it is the C library's, in double precision, rounded to the type."""
    xp = namespace_of(x)
    if hasattr(xp, "erf"):
        return xp.erf(x)
    return xp.asarray(np.vectorize(math.erf, otypes=[float])(np.from_dlpack(x)), dtype=x.dtype)


@dataclass(frozen=True)
class Activation:
    """A function of each number, the sign it is written with, and its formula at x."""

    run: Callable[[Any], Any]
    sign: str
    formula: str


# Every value of ``Block.activation``.
ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(relu, "ReLU", "max(x, 0)"),
    "gelu": Activation(gelu, "GELU", "{x/2} {1 + erf(x/√2)}"),
    "gelu_tanh": Activation(gelu_tanh, "GELU_tanh", "{x/2} {1 + tanh(√{2/π} {x + 0.044715 x³})}"),
    "silu": Activation(silu, "SiLU", "x/{1 + e^{−x}}"),
    "sigmoid": Activation(sigmoid, "σ", "1/{1 + e^{−x}}"),
    "tanh": Activation(tanh, "tanh", "tanh(x)"),
    "identity": Activation(identity, "id", "x"),
}
