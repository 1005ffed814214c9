"""What stands around attention: embeddings, feed-forward layers, residuals. Linear layers are ``projections.project``.

Weights multiply from the right, x W, so that W has the shape (width before, width after).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.projections import project


def embed(table: Array, ids: Any) -> Array:
    """The row of ``table`` for each number of a token.

    Shapes: table (vocabulary, d_model), ids (…, n) of whole numbers from 0 → (…, n, d_model).
    Source: Vaswani et al., Attention Is All You Need (2017), §3.4.
    """
    xp = namespace_of(table)
    rows = xp.take(table, namespace_of(ids).reshape(ids, (-1,)), axis=0)
    return xp.reshape(rows, (*ids.shape, table.shape[-1]))


def widen(x: Array) -> Array:
    """√d_model x, so that embeddings are not lost beside positions. Source: Vaswani et al. (2017), §3.4."""
    xp = namespace_of(x)
    return x * xp.sqrt(xp.asarray(x.shape[-1], dtype=x.dtype))


def gated(activation: Callable[[Any], Any], gates: Any, values: Array) -> Any:
    """f(gates) ⊙ values: GLU for f = sigmoid, ReGLU for ReLU, GeGLU for GELU, SwiGLU for SiLU.

    Source: Shazeer, GLU Variants Improve Transformer (2020), equations 4 and 5; Dauphin et al. (2017) for GLU.
    """
    return activation(gates) * values


def feed_forward(
    activation: Callable[[Any], Any],
    x: Array,
    w_up: Any,
    w_down: Any,
    b_up: Any = None,
    b_down: Any = None,
    w_gate: Any = None,
    b_gate: Any = None,
) -> Array:
    """f(x W_up + b_up) W_down + b_down for an activation f; with a gate f(x W_gate + b_gate) ⊙ (x W_up + b_up) is what
    W_down multiplies.

    Shapes: x (…, n, d_model), w_up and w_gate (d_model, d_ff), w_down (d_ff, d_model).
    Source: Vaswani et al. (2017), equation 2; Shazeer (2020), equation 6.
    """
    up = project(x, w_up, b_up)
    hidden = activation(up) if w_gate is None else gated(activation, project(x, w_gate, b_gate), up)
    return project(hidden, w_down, b_down)


def residual(x: Array, y: Array) -> Array:
    """x + y. Source: He et al., Deep Residual Learning for Image Recognition (2016), equation 1."""
    return x + y


def unembed(x: Array, table: Array) -> Array:
    """Logits from the table of embeddings, x Eᵀ. Source: Press, Wolf, Using the Output Embedding to Improve Language
    Models (2017)."""
    return x @ table.mT
