"""Absolute positions: tables whose rows are added to the tokens."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import Number
from symattn.attention.positions.angles import sinusoidal
from symattn.attention.positions.rotary import inverse_frequencies, tables


def sinusoids(positions: object, width: int, like: Array, base: Number = 10000, layout: str = "interleaved") -> Array:
    """The sinusoidal embeddings of positions: sin(p ω_l) and cos(p ω_l), ω_l = θ^(−2l/d).

    ``interleaved``: columns 2l and 2l + 1; ``half``: all sines, then all cosines (tensor2tensor, Transformer-XL).
    Shapes: positions (…, n) → (…, n, d). Source: Vaswani et al., Attention Is All You Need (2017), §3.5.
    """
    cos, sin = tables(positions, inverse_frequencies(width, base, like))
    return sinusoidal(cos, sin) if layout == "interleaved" else namespace_of(like).concat([sin, cos], axis=-1)


def rows(table: Array, index: Array) -> Array:
    """The rows of a table at whole numbers. Shapes: table (…, m, d), index (a, …, b) → (…, a, …, b, d)."""
    xp = namespace_of(table)
    picked = xp.take(table, xp.reshape(index, (-1,)), axis=table.ndim - 2)
    return xp.reshape(picked, (*table.shape[:-2], *index.shape, table.shape[-1]))


def learned(x: Array, table: Array, start: Any = 0) -> Array:
    """x_i + e_{p+i}: the rows of a learned table from the position p on.

    Shapes: x (…, n, d), table (m, d) with p + n ≤ m. Source: Gehring et al., Convolutional Sequence to Sequence
    Learning (2017), §3.1; so in BERT and GPT-2.
    """
    return x + table[..., start : start + x.shape[-2], :]
