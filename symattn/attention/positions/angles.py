"""Positions: sinusoidal and rotary embeddings, and linear biases."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.masks import places


def sinusoidal(cos: Array, sin: Array) -> Array:
    """Sinusoidal embedding: column 2l holds sin(ω_l p), column 2l + 1 holds cos(ω_l p).

    Shapes: cos and sin (…, n, d/2), the angles of each position → (…, n, d). Source: Vaswani et al., Attention Is All
    You Need (2017), §3.5.
    """
    xp = namespace_of(cos)
    *batch, f = cos.shape
    return xp.reshape(xp.stack([sin, cos], axis=-1), (*batch, f * 2))


def add_angles(cos: Array, sin: Array, more_cos: Array, more_sin: Array) -> tuple[Any, Any]:
    """(cos, sin) of a + b: (cos a cos b − sin a sin b, sin a cos b + cos a sin b)."""
    return cos * more_cos - sin * more_sin, sin * more_cos + cos * more_sin


def rotate_half(x: Array, cos: Array, sin: Array) -> Array:
    """Rotary embedding, pairs (l, l + d/2): (x₁, x₂) ↦ (x₁ cos − x₂ sin, x₂ cos + x₁ sin).

    Shapes: x (…, n, d), cos and sin (…, n, d/2), the angles of each position. Source: Su et al., RoFormer (2021), §3.2;
    this layout is that of GPT-NeoX and Llama.
    """
    xp = namespace_of(x)
    half = x.shape[-1] // 2
    x_1, x_2 = x[..., :half], x[..., half:]
    return xp.concat([x_1 * cos - x_2 * sin, x_2 * cos + x_1 * sin], axis=-1)


def rotate_interleaved(x: Array, cos: Array, sin: Array) -> Array:
    """Rotary embedding, pairs (2l, 2l + 1). Shapes as ``rotate_half``. Source: Su et al. (2021), equation 34."""
    xp = namespace_of(x)
    pairs = xp.reshape(x, (*x.shape[:-1], x.shape[-1] // 2, 2))
    x_1, x_2 = pairs[..., 0], pairs[..., 1]
    rotated = xp.stack([x_1 * cos - x_2 * sin, x_2 * cos + x_1 * sin], axis=-1)
    # tables may have axes of batches that x lacks
    return xp.reshape(rotated, (*rotated.shape[:-2], x.shape[-1]))


def linear_bias(s: Array, slope: Array, alignment: str = "bottom-right") -> Array:
    """ALiBi: s_ij − slope (i − j), i and j counted from the last query and key, or from the first for ``top-left``.

    Shapes: s (…, n_q, n_k). Source: Press, Smith, Lewis, Train Short, Test Long (2022), §3.
    """
    i, j = places(s, alignment)
    return s - slope * namespace_of(s).astype(i - j, s.dtype)
