"""Attention with linear biases: a slope for each head."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import made_wide
from symattn.attention.masks import causal
from symattn.attention.positions.angles import linear_bias
from symattn.attention.positions.rotary import powers_of


def slope_exponents(heads: int) -> tuple[Fraction, ...]:
    """e_h with the slope 2^(−e_h) of each head.

    For a power of two they are 8/h, 16/h, …, 8. Else they are those of the largest power of two m below h, and then
    every second one of those of 2m. Source: Press, Smith, Lewis, Train Short, Test Long (2022), §3, and their code.
    """
    m = 1 << (heads.bit_length() - 1)
    between = [Fraction(4 * (2 * t + 1), m) for t in range(heads - m)]
    return (*[Fraction(8 * (t + 1), m) for t in range(m)], *between)


def slopes(heads: int, like: Array) -> Any:
    """The slopes 2^(−e_h) as elements of the kind of ``like``. Shapes: (h,).

    On ``exact`` they exist where all are rational or square roots: for up to 8 heads, and with roots for up to 16.
    """
    return made_wide(lambda wide: powers_of(2, [-e for e in slope_exponents(heads)], wide), like)


def biased(s: Array, slope: Any, two_sided: bool = False, alignment: str = "bottom-right") -> Any:
    """s_ij − m_h (i − j), or m_h |i − j| if ``two_sided``, i and j counted from the last query and key.

    Shapes: s (…, h, n_q, n_k), slope (h,); for scores without heads (1,). The two are equal where a causal mask allows.
    """
    xp = namespace_of(s)
    wide = slope[:, None, None] if s.ndim > 2 else slope[:, None]
    if not two_sided:
        return linear_bias(s, wide, alignment)
    return xp.where(causal(s, alignment), linear_bias(s, wide, alignment), linear_bias(s, -wide, alignment))
