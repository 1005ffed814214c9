"""Rotary embeddings: frequencies, tables of cosines and sines, and the rotation of some columns in either layout."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import Number, numbers, powers
from symattn.attention.positions.angles import add_angles, rotate_half, rotate_interleaved
from symattn.attention.sizes import fits
from symattn.document.errors import InputError

Tables = tuple[Array, Array]
_TOGETHER = 32  # neighbouring positions that share the angle of the first of them


def inverse_frequencies(width: int, base: Number, like: Array) -> Any:
    """ω_l = θ^(−2l/r) for the base θ and r rotated columns: ω_0 = 1 is the fastest. Shapes: (r/2,).

    Raises InputError for an odd width. Source: Su et al., RoFormer (2021), §3.2.2; Vaswani et al. (2017), §3.5.
    """
    return powers_of(base, range(0, -2 * pairs(width), -2), like, width)


def powers_of(
    base: Number, exponents: Sequence[int | Fraction], like: Array, over: int = 1
) -> Array:
    """base^(e/``over``) for every e of ``exponents``. Shapes: (f,)."""
    # Ranges are hashable and short as keys of the caches; other sequences become tuples.
    each = exponents if isinstance(exponents, range) else tuple(exponents)
    result: Array
    if isinstance(like, np.ndarray):
        result = _float_powers_of_base(Fraction(base), each, like.dtype, over)
    elif hasattr(like, "in_balls"):
        # A copy, because the caller may write to it and the cache must not change.
        result = _enclosed_powers_of_base(base, each, type(like), over).copy()
    else:
        result = powers(base, (Fraction(e, over) for e in each), like)
    return result


@lru_cache(maxsize=64)  # every call of a specification needs the same frequencies
def _float_powers_of_base(
    base: Fraction, exponents: Sequence[int | Fraction], dtype: np.dtype[Any], over: int
) -> Any:
    like: Any = np.zeros((), dtype=dtype)
    result: Any = powers(base, (Fraction(e, over) for e in exponents), like)
    # The array is shared by all callers of the cache.
    result.flags.writeable = False
    return result


@lru_cache(maxsize=64)
def _enclosed_powers_of_base(
    base: Number, exponents: Sequence[int | Fraction], kind: Any, over: int
) -> Any:
    """Compute in balls, where operations on single numbers are cheaper."""
    return kind.in_balls(lambda ball: powers_of(base, exponents, ball, over))


def pairs(width: object) -> int:
    """Return the number of pairs of columns. Raises InputError for an odd number, or a letter."""
    if not isinstance(width, int):
        raise InputError(
            f"frequencies of {width} columns: a number of columns is needed; hint: give cos and sin"
        )
    if width < 2 or width % 2:
        raise InputError(
            f"rotary embeddings turn pairs of columns; {int(width)} is not an even number from 2 on"
        )
    return int(width) // 2


def angles(positions: object, frequencies: Array) -> Array:
    """p ω_l. Shapes: positions (…, n) whole numbers, frequencies (f,) → (…, n, f). Source: Su et al. (2021), §3.2.2."""
    return namespace_of(frequencies).astype(positions, frequencies.dtype)[..., None] * frequencies


def rows_of_pairs(sections: Sequence[int], order: str = "blocks") -> tuple[int, ...]:
    """Return the row of the positions, from 0 on, by which each pair of columns turns.

    ``blocks``: row 0 for the first ``sections[0]`` pairs, then row 1, …; ``interleaved``: pair l by row l mod m of m
    rows, while l < m ``sections[l mod m]``, and the pairs that remain by row 0. Sources: Wang et al., Qwen2-VL (2024),
    §2.1, and Bai et al., Qwen3-VL (2025), with their code in Hugging Face Transformers.

    >>> rows_of_pairs((2, 3, 3))
    (0, 0, 1, 1, 1, 2, 2, 2)
    >>> rows_of_pairs((4, 2, 2), "interleaved")
    (0, 1, 2, 0, 1, 2, 0, 0)
    """
    if order == "blocks":
        return tuple(row for row, pairs in enumerate(sections) for _ in range(pairs))
    m = len(sections)
    in_turn = ((pair, pair % m) for pair in range(sum(sections)))
    return tuple(row if pair < m * sections[row] else 0 for pair, row in in_turn)


def positions_of_pairs(positions: Any, rows: Sequence[int]) -> Any:
    """Return the position of each pair of columns, that of its row. Shapes: (…, m, n), f rows → (…, n, f)."""
    xp = namespace_of(positions)
    return xp.stack([positions[..., row, :] for row in rows], axis=-1)


def angles_by_sections(positions: Any, frequencies: Array, rows: Sequence[int]) -> Array:
    """p_r ω_l, r the row of pair l. Shapes: positions (…, m, n), frequencies (f,), f rows → (…, n, f).

    With equal rows these are ``angles``. Source: Wang et al., Qwen2-VL (2024), §2.1.
    """
    each = positions_of_pairs(positions, rows)
    return namespace_of(frequencies).astype(each, frequencies.dtype) * frequencies


def tables(positions: object, frequencies: Array) -> Tables:
    """(cos, sin) of the angles p ω_l. Shapes: positions (…, n), frequencies (f,) → twice (…, n, f)."""
    xp = namespace_of(frequencies)
    rotated = angles(positions, frequencies)
    return xp.cos(rotated), xp.sin(rotated)


def short_tables(start: int, n: int, frequencies: Array) -> tuple[Tables, Tables]:
    """Return the tables of 32 a, a = 1, 2, …, for n positions, and those of start + b, b = 0, …, min(n, 32) − 1."""
    xp = namespace_of(frequencies)
    # All offsets by whole groups; the first group needs none.
    far = xp.arange(1, -(-n // _TOGETHER)) * _TOGETHER
    return tables(far, frequencies), tables(xp.arange(min(n, _TOGETHER)) + start, frequencies)


def joined(far: Tables, near: Tables, n: int, index: int) -> Any:
    """Cosines (``index`` 0) or sines (1) at n positions 32 a + (start + b), from ``short_tables``. Shapes: → (n, f).

    An enclosure takes each cosine from Arb, which costs far more than the rest. The addition formulas need n/32 + 32 of
    them in place of n, and are identities: products and sums of enclosures enclose the result.

    The radius. Let all entries of the short tables be known to r ≤ 2⁻²⁰. They are at most 1 + r in size, so a product
    is off by at most 2 r + 3 r², and its middle is rounded by at most 2⁻⁵³ (1 + r)². The sum of two is at most
    2 (1 + r)² in size, and rounded by at most 2⁻⁵² (1 + r)². Together these are less than 4.01 r + 2⁻⁵¹ + 2⁻⁶⁹, and
    twice as much covers the rounding of the radii themselves.
    """
    xp = namespace_of(near[index])
    if n <= _TOGETHER:
        return xp.concat([near[index]])  # an array of its own: the short tables are kept
    cos, sin = (table[:, None, :] for table in far)
    # sin (a + b) = cos a sin b − sin a (−cos b)
    first, second = near if index == 0 else (near[1], -near[0])
    later = xp.reshape(cos * first - sin * second, (-1, first.shape[-1]))
    return xp.concat([near[index], later])[:n]


def pythagorean_tables(
    n: int, triples: Sequence[tuple[int, int, int]], like: Array, start: int = 0
) -> Tables:
    """(cos, sin) of the angles p θ_l at the positions p = start, …, start + n − 1, all of them rational.

    A triple a² + b² = c² is the angle with the cosine a/c and the sine b/c; its multiples follow from the addition
    formulas. It is a rational part of a turn only if a b = 0 (Niven's theorem), so no two positions look alike.
    Shapes: twice (n, f). Raises InputError for numbers that are not a triple.
    """
    xp = namespace_of(like)
    for a, b, c in triples:
        if a * a + b * b != c * c or c == 0:
            raise InputError(f"{a}, {b}, {c} is not a Pythagorean triple: {a}² + {b}² ≠ {c}²")
    step = tuple(numbers([Fraction(t[i], t[2]) for t in triples], like) for i in (0, 1))
    # The angle 0 has cosine 1 and sine 0, as elements of the kind.
    turns: list[Tables] = [(0 * step[0] + 1, 0 * step[1])]
    # Negative positions use the same turns: only the sine changes its sign.
    for _ in range(max(abs(start), abs(start + n - 1))):
        turns.append(add_angles(*turns[-1], *step))
    places = range(start, start + n)
    sines = [turns[p][1] if p >= 0 else -turns[-p][1] for p in places]
    return xp.stack([turns[abs(p)][0] for p in places]), xp.stack(sines)


def rotate(x: Array, cos: Array, sin: Array, layout: str = "half") -> Array:
    """Rotary embedding of the first columns, twice as many as the tables have; the others pass unchanged.

    ``half`` turns the pairs (l, l + r/2), ``interleaved`` (2l, 2l + 1). Shapes: x (…, n, d), cos and sin (…, n, r/2),
    r ≤ d → (…, n, d). Source: Su et al. (2021), equation 34; that the rest passes: Black et al., GPT-NeoX-20B (2022),
    §2.1.1.
    """
    turn = rotate_half if layout == "half" else rotate_interleaved
    width = cos.shape[-1] * 2
    if width == x.shape[-1]:
        return turn(x, cos, sin)
    xp = namespace_of(x)
    rotated, rest = turn(x[..., :width], cos, sin), x[..., width:]
    if not fits(rotated.shape[:-1], x.shape[:-1]):  # tables may have axes of batches that x lacks
        rest = xp.broadcast_to(rest, (*rotated.shape[:-1], x.shape[-1] - width))
    return xp.concat([rotated, rest], axis=-1)


def for_queries(table: Array, n_q: object, alignment: str = "bottom-right") -> Array:
    """Return the rows of the last n_q positions, or the first for ``top-left``. Shapes: (…, n_k, f) → (…, n_q, f)."""
    return (
        table[..., :n_q, :] if alignment == "top-left" else table[..., table.shape[-2] - n_q :, :]
    )
