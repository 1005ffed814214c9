"""Mistakes in rotary positions: other pairs, frequencies or positions; for queries and keys, and ``Rotary`` alone.

A rotation takes cosines and sines of angles p ω_l. ``of_pairs`` yields mistakes in applying them, ``of_tables``
mistakes in the angles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import pi
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.formats import Format
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import number
from symattn.attention.masks import for_heads
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.positions.rotary import (
    angles,
    angles_by_sections,
    for_queries,
    inverse_frequencies,
    pairs,
    powers_of,
    rotate,
    rows_of_pairs,
)
from symattn.attention.positions.rotary_fields import LinearScaling, NTKScaling, YarnScaling
from symattn.attention.spec import Attention
from symattn.bounds.mistake import At, Mistake, Wrong, in_place_of, in_steps
from symattn.verification.rules.tiling import other_tiles

Tables = tuple[Any, Any]  # cosines and sines
Turn = Callable[[Any, Any, Any, str], Any]  # from x, cosines, sines, layout
Right = Callable[[Rotary, Any, Any], Tables]  # from positions, and an array like the result
Stretch = Callable[[Any, Any, Any], Any]  # from frequencies, scaled frequencies, and the factor
Change = Callable[[Rotary, Any, Any, Right], Tables]
#: Words for the wrong pairs, by the layout that is used.
OTHER_PAIRS = {
    "interleaved": "adjacent columns 2l and 2l + 1 are rotated together, not column l with l + r/2",
    "half": "column l is rotated with l + r/2, not with the adjacent column",
}


def tables_of(
    spec: Rotary,
    positions: Any,
    x: Any,
    frequencies: Any = None,
    times: float = 1,
    *,
    other: Stretch | None = None,
    magnified: bool = True,
    rows: Sequence[int] | None = None,
) -> Tables:
    """Return cosines and sines for vectors like x, by the definition's frequencies or others, times a factor.

    ``other`` computes frequencies that replace the scaled ones; without ``magnified``, the tables' factor is left out.
    ``rows`` replace the definition's row of the positions for each pair, if it has sections.
    """
    size: Any = 1
    # On residues, whole numbers stand in place of cosines and sines of an angle.
    stand_ins = getattr(type(x), "tables", None)
    x = x if not hasattr(type(x), "tables") else np.zeros(np.shape(x))
    if frequencies is None:
        frequencies = inverse_frequencies(spec.width or int(x.shape[-1]), spec.base, x)
    if spec.scaling is not None:
        scaled = spec.scaling.frequencies(
            frequencies, spec.base, int(np.max(np.asarray(positions))) + 1
        )
        factor: Any = spec.scaling.numbers["factor"] if other else 1
        frequencies = other(frequencies, scaled, number(factor, x)) if other else scaled
        size = spec.scaling.magnitude(x) if magnified else 1
    frequencies = frequencies if times == 1 else frequencies * times
    positions = np.asarray(positions) if stand_ins else positions
    if spec.sections is None:
        turned = angles(positions, frequencies)
    else:
        rows = rows or rows_of_pairs(spec.sections, spec.section_order)
        turned = angles_by_sections(positions, frequencies, rows)
    if stand_ins:
        return stand_ins("cos", turned) * size, stand_ins("sin", turned) * size
    xp = namespace_of(turned)
    return xp.cos(turned) * size, xp.sin(turned) * size


# -- how angles are applied --------------------------------------------------------------------------------------------
def of_pairs(spec: Rotary) -> Iterator[tuple[str, Turn]]:
    """Yield wrong rotations by the right cosines and sines."""
    other = "interleaved" if spec.layout == "half" else "half"
    yield OTHER_PAIRS[other], lambda x, c, s, layout: rotate(x, c, s, other)
    yield from _TURNS.items()
    if spec.width is not None:
        yield "the last columns are rotated, not the first", _rotate_last_columns


def _rotate_with_mixed_layouts(
    x: Array, cos: Array, sin: Array, laid: str, exchanged: str, sign: int = -1
) -> Array:
    """Return x ⊙ c + x' ⊙ s: c and s laid out for one kind of pairs, the columns of x' exchanged in another."""
    # Tables have one column for each pair, f, and so 2 f columns of x are rotated.
    xp, f = namespace_of(x), int(cos.shape[-1])
    c, s = (_lay_out_rotary_table(t, laid) for t in (cos, sin))
    y = x[..., : 2 * f]
    rest = x[..., 2 * f :]
    # (x₁, x₂) → (−x₂, x₁), with x₂ half a row away.
    if exchanged == "half":
        turned = xp.concat([sign * y[..., f:], y[..., :f]], axis=-1)
    else:
        # The same with x₂ next to x₁.
        apart = xp.reshape(y, (*y.shape[:-1], f, 2))
        turned = xp.reshape(xp.stack([sign * apart[..., 1], apart[..., 0]], axis=-1), y.shape)
    rotated = y * c + turned * s
    return xp.concat([rotated, rest], axis=-1) if rest.shape[-1] else rotated


def _lay_out_rotary_table(table: Any, layout: str) -> Array:
    xp = namespace_of(table)
    if layout == "half":
        return xp.concat([table, table], axis=-1)
    return xp.reshape(
        xp.stack([table, table], axis=-1), (*table.shape[:-1], 2 * int(table.shape[-1]))
    )


def _rotate_last_columns(x: Any, cos: Any, sin: Any, layout: str) -> Any:
    rest = int(x.shape[-1]) - 2 * int(cos.shape[-1])
    rotated = rotate(x[..., rest:], cos, sin, layout)
    return namespace_of(x).concat([x[..., :rest], rotated], axis=-1) if rest else rotated


_BACKWARDS: Turn = lambda x, c, s, layout: rotate(x, c, -s, layout)  # noqa: E731
_TURNS: dict[str, Turn] = {
    "the rotation is the other way round: angles have the other sign": _BACKWARDS,
    "cosines and sines are exchanged": lambda x, c, s, layout: rotate(x, s, c, layout),
    "the angles are doubled: it is rotated twice": lambda x, c, s, layout: rotate(
        rotate(x, c, s, layout), c, s, layout
    ),
    "the vectors are not rotated": lambda x, c, s, layout: x + 0 * rotate(x, c, s, layout),
    "the columns are exchanged without a change of sign": lambda x, c, s, layout: (
        _rotate_with_mixed_layouts(x, c, s, layout, layout, 1)
    ),
    "both terms with the sine are subtracted: x₂ cos − x₁ sin stands for x₂ cos + x₁ sin": lambda x, c, s, layout: (
        _rotate_with_mixed_layouts(x, c, -s, layout, layout, 1)
    ),
    "the terms with the sine are left out": lambda x, c, s, layout: _rotate_with_mixed_layouts(
        x, c, 0 * s, layout, layout
    ),
    "halves are rotated with angles in the interleaved layout": lambda x, c, s, layout: (
        _rotate_with_mixed_layouts(x, c, s, "interleaved", "half")
    ),
    "adjacent pairs are rotated with angles in the half-split layout": lambda x, c, s, layout: (
        _rotate_with_mixed_layouts(x, c, s, "half", "interleaved")
    ),
}


# -- the angles --------------------------------------------------------------------------------------------------------
def of_tables(spec: Rotary) -> Iterator[tuple[str, Change]]:
    """Yield wrong angles: functions of the specification, positions, x, and the function for the right angles."""
    for words, exponent in _EXPONENTS.items():
        if spec.width is not None or "all columns" not in words:
            yield words, partial(_make_tables_of_exponents, exponent)
    for base in (100, 1000, 10000, 100000, 500000, 1000000):
        if float(spec.base) not in (
            base,
            base**2,
        ):  # base² with exponents 2l/r is base with l/r, see above
            words = f"the base of the frequencies is {base}, not {float(spec.base):g}"
            yield words, lambda a, p, x, right, base=base: right(replace(a, base=base), p, x)  # type: ignore[misc]
    for words, other in (
        _STRETCHED.items() if not isinstance(spec.scaling, LinearScaling | None) else ()
    ):
        yield words, lambda a, p, x, right, other=other: tables_of(a, p, x, other=other)  # type: ignore[misc]
    if spec.scaling is not None:
        words = "the frequencies are not scaled"
        yield words, lambda a, p, x, right: right(replace(a, scaling=None), p, x)
    for words, times in _UNITS.items():
        yield words, lambda a, p, x, right, times=times: tables_of(a, p, x, times=times)  # type: ignore[misc]
    if isinstance(spec.scaling, YarnScaling | NTKScaling) and spec.scaling.length:
        words = "uses the length that the frequencies are scaled to instead of the trained one"
        yield words, partial(_of_length, round(spec.scaling.length * Fraction(spec.scaling.factor)))
    if isinstance(spec.scaling, NTKScaling):
        for words, power in _POWERS_OF_FACTOR.items():
            yield words, partial(_make_regrown_tables, power, None)
        for words, growth in _GROWTHS.items() if spec.scaling.length else ():
            yield words, partial(_make_regrown_tables, lambda r: Fraction(r, r - 2), growth)
    for words, places in _make_wrong_positions().items():
        yield words, lambda a, p, x, right, places=places: right(a, places(p), x)  # type: ignore[misc]
    if spec.sections is not None:
        yield from _of_sections(spec, spec.sections)


# -- sections of pairs, each with its row of the positions -------------------------------------------------------------
def _of_sections(spec: Rotary, sections: tuple[int, ...]) -> Iterator[tuple[str, Change]]:
    """Yield wrong rows of the positions for the pairs of columns, and wrong frequencies in their sections."""
    m, pairs_in_all = len(sections), sum(sections)
    right_rows = rows_of_pairs(sections, spec.section_order)
    wrong_rows: dict[str, tuple[int, ...]] = {
        f"every pair is rotated by row {row + 1} of the positions, not by that of its section": (
            row,
        )
        * pairs_in_all
        for row in range(m)
    }
    for a, b in combinations(range(m), 2):
        exchanged = {a: b, b: a}
        words = f"rows {a + 1} and {b + 1} of the positions are exchanged"
        wrong_rows[words] = tuple(exchanged.get(row, row) for row in right_rows)
    other = "interleaved" if spec.section_order == "blocks" else "blocks"
    wrong_rows[_OTHER_ORDER[other]] = rows_of_pairs(sections, other)
    words = "the sizes of the sections are in the opposite order"
    wrong_rows[words] = rows_of_pairs(sections[::-1], spec.section_order)
    if spec.section_order == "interleaved":
        words = "rows of the positions take turns to the last pair: no section ends"
        wrong_rows[words] = tuple(pair % m for pair in range(pairs_in_all))
    for words, rows in wrong_rows.items():
        if rows != right_rows:
            yield words, partial(_make_tables_of_rows, rows)
    yield "the frequencies start again in each section", partial(_restart_frequencies, right_rows)


#: Words for the wrong order of sections, by the order that is used.
_OTHER_ORDER = {
    "interleaved": "sections are interleaved, not in blocks",
    "blocks": "sections are in blocks, not interleaved",
}


def _make_tables_of_rows(
    rows: tuple[int, ...], spec: Rotary, p: Any, x: Any, right: Right
) -> Tables:
    return tables_of(spec, p, x, rows=rows)


def _restart_frequencies(
    rows: tuple[int, ...], spec: Rotary, p: Any, x: Any, right: Right
) -> Tables:
    """Return tables in which the pairs of each row have the exponents 2l/r of a vector of their own columns."""
    counts = [rows[:pair].count(row) for pair, row in enumerate(rows)]
    exponents = [Fraction(-count, rows.count(row)) for count, row in zip(counts, rows, strict=True)]
    like = np.zeros(()) if hasattr(type(x), "tables") else x
    return tables_of(spec, p, x, powers_of(spec.base, exponents, like))


def of_doubled_sections(spec: Rotary) -> Iterator[tuple[str, Turn, Change]]:
    """Yield the mistake of cutting tables of all columns by sections of twice the size.

    Tables with every angle twice, (θ, θ), are cut by the sections once for each half: (2, 3, 3, 2, 3, 3). Sections that
    are doubled as numbers, (4, 6, 6), give the two columns of a pair different angles.
    """
    if spec.sections is not None and spec.layout == "half" and spec.section_order == "blocks":
        words = "sections are doubled in size, not repeated for the second half of the columns"
        yield words, _rotate_by_wide_tables, _make_tables_of_doubled_sections


def _make_tables_of_doubled_sections(spec: Rotary, p: Any, x: Any, right: Right) -> Tables:
    """Return tables of all columns, with two angles for each pair. Raises ``KeyError`` without sections."""
    if spec.sections is None:
        raise KeyError("there are no sections")
    rows = rows_of_pairs([2 * pairs_in_section for pairs_in_section in spec.sections])
    f = sum(spec.sections)
    halves = [tables_of(spec, p, x, rows=part) for part in (rows[:f], rows[f:])]
    cos, sin = (namespace_of(t[0]).concat([*t], axis=-1) for t in zip(*halves, strict=True))
    return cos, sin


def _rotate_by_wide_tables(x: Any, cos: Any, sin: Any, layout: str) -> Any:
    """Return x ⊙ c + x' ⊙ s for tables with a column for each of x, halves of x exchanged in x'."""
    xp, width = namespace_of(x), int(cos.shape[-1])
    y, rest = x[..., :width], x[..., width:]
    turned = xp.concat([-y[..., width // 2 :], y[..., : width // 2]], axis=-1)
    rotated = y * cos + turned * sin
    return xp.concat([rotated, rest], axis=-1) if rest.shape[-1] else rotated


#: Wrong exponents of the base for the pair l of r/2, in a vector of width d.
_EXPONENTS: dict[str, Callable[[int, int, int], Fraction]] = {
    "the exponents of the frequencies are l/r, not 2l/r": lambda pair, r, d: Fraction(-pair, r),
    "the exponents of the frequencies are 2l/(r/2), not 2l/r": lambda pair, r, d: Fraction(
        -4 * pair, r
    ),
    "the exponents of the frequencies are 2(l + 1)/r, not 2l/r": lambda pair, r, d: Fraction(
        -2 * pair - 2, r
    ),
    "the exponents of the frequencies are 2l/(r − 2): as if the last one were the whole base": lambda pair, r, d: (
        Fraction(-2 * pair, max(r - 2, 1))
    ),
    "the frequencies grow with the column: the sign of their exponents is changed": lambda pair, r, d: (
        Fraction(2 * pair, r)
    ),
    "the frequencies are in the opposite order: the last pair turns fastest": lambda pair, r, d: (
        Fraction(2 * pair + 2, r) - 1
    ),
    "all pairs have the frequency 1": lambda pair, r, d: Fraction(0),
    "the frequencies are those of all columns, not of the ones that are rotated": lambda pair, r, d: (
        Fraction(-2 * pair, d)
    ),
}


#: Wrong scaled frequencies: from the plain ones f, the scaled ones g, and the factor s.
_STRETCHED: dict[str, Stretch] = {
    "every frequency is divided by the factor": lambda f, g, s: f / s,
    "the scaling of the frequencies is the other way round: those are divided that should stay": lambda f, g, s: (
        f + f / s - g
    ),
}


def _of_length(length: int, spec: Rotary, p: Any, x: Array, right: Right) -> Tables:
    scaling: Any = spec.scaling
    if scaling is None:
        raise KeyError("there is no length")
    return right(replace(spec, scaling=replace(scaling, length=length)), p, x)


#: Factors of the angles.
_UNITS = {
    "the angles are multiplied by 2π": 2 * pi,
    "the angles are divided by 2π": 0.5 / pi,
    "the angles are converted to degrees": 180 / pi,
    "the angles are converted from degrees": pi / 180,
}
#: Wrong powers of s that multiply the base, by the number r of columns that are rotated.
_POWERS_OF_FACTOR: dict[str, Callable[[int], Fraction]] = {
    "the base is multiplied by s, not by s^(r/(r − 2))": lambda r: Fraction(1),
    "the base is multiplied by s^((r − 2)/r), not by s^(r/(r − 2))": lambda r: Fraction(r - 2, r),
    "the base is multiplied by s^(r/(r − 1)), not by s^(r/(r − 2))": lambda r: Fraction(r, r - 1),
    "the base is multiplied by s^(r/(r + 2)), not by s^(r/(r − 2))": lambda r: Fraction(r, r + 2),
    "the base is divided by s^(r/(r − 2)), not multiplied": lambda r: Fraction(-r, r - 2),
}
#: Wrong growth of the base with the number n of positions, from the factor s and n/L; 1 up to L but for the last one.
_GROWTHS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "the base does not grow with the number of positions: the factor s is used beyond L": lambda s, n: (
        s
    ),
    "the base grows by n/L, not by s n/L − (s − 1)": lambda s, n: n,
    "the base grows by s n/L, not by s n/L − (s − 1)": lambda s, n: s * n,
    "the base grows by s n/L − s, not by s n/L − (s − 1)": lambda s, n: s * n - s,
    "the base grows from the first position on, not beyond L alone": lambda s, n: s * n - (s - 1),
}


def _make_regrown_tables(
    power: Callable[[int], Fraction], growth: Any, spec: Rotary, p: Any, x: Array, right: Right
) -> Tables:
    """Return tables by a base that is multiplied by another power, or by that of another growth of the factor."""
    scaling: Any = spec.scaling  # None beside the mistake that there is none
    r = spec.width or int(x.shape[-1])
    n = int(np.max(np.asarray(p))) + 1
    # With two columns there is no exponent r/(r − 2).
    if scaling is None or r < 4:
        raise KeyError("there is no such base")
    s = scaling.grown(n)
    # Up to the trained length the base does not grow, except by the last mistake of all.
    if growth is not None and (n > (scaling.length or n) or growth is [*_GROWTHS.values()][-1]):
        s = growth(Fraction(scaling.factor), Fraction(n, scaling.length or n))
    # A base of 0 or less has no real powers.
    if s <= 0:
        raise KeyError("there is no such base")
    exponents = [Fraction(-2 * pair) * power(r) / r for pair in range(pairs(r))]
    grown = powers_of(s, exponents, x)
    return tables_of(
        replace(spec, scaling=None), p, x, inverse_frequencies(r, spec.base, x) * grown
    )


def _make_tables_of_exponents(
    exponent: Callable[[int, int, int], Fraction], spec: Rotary, p: Array, x: Array, right: Right
) -> Tables:
    d = int(x.shape[-1])
    r = spec.width or d
    return tables_of(
        spec, p, x, powers_of(spec.base, [exponent(pair, r, d) for pair in range(pairs(r))], x)
    )


def _make_wrong_positions() -> dict[str, Callable[[Any], Any]]:
    """Return wrong positions, from the right ones."""
    result: dict[str, Callable[[Any], Any]] = {
        "positions are one too large": lambda p: p + 1,
        "positions are one too small": lambda p: p - 1,
        "every position is the same": lambda p: 0 * p + p[..., :1],
        "positions are counted from 0, whatever is given": lambda p: 0 * p + np.arange(p.shape[-1]),
        "positions are counted from the first one given": lambda p: p - p[..., :1],
    }
    for name in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"):
        result[f"positions are rounded to {name}"] = partial(
            _round_positions_to_format, Format(name)
        )
    result["positions are counted from the last token to the first"] = lambda p: p[..., ::-1]
    for n in (2, 4, 8, 16, 32, 64, 128):
        result[f"positions are counted modulo {n}"] = lambda p, n=n: p % n  # type: ignore[misc]
        result[f"positions end at {n - 1}: later tokens get this position too"] = lambda p, n=n: (
            np.minimum(p, n - 1)
        )  # type: ignore[misc]
        result[f"positions are rounded down to multiples of {n}"] = lambda p, n=n: p // n * n  # type: ignore[misc]
        result[f"positions are divided by {n}, without the remainder"] = lambda p, n=n: p // n  # type: ignore[misc]
    return result


def _round_positions_to_format(f: Format, p: Any) -> Any:
    rounded = f.rounded(np.asarray(p, dtype=np.float64))
    # Positions beyond the range of the format stay as they are.
    return np.where(np.isfinite(rounded), rounded, p).astype(np.int64)


# -- queries and keys --------------------------------------------------------------------------------------------------
_LATE = "positions of queries are counted from the first key, not to the last: the keys before are not counted"
#: Changes of positions that change no differences.
_ALIKE = (
    "positions are one too",
    "every position",
    "positions are counted from the first",
    "positions are counted from 0",
)


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes in queries and keys that are rotated."""
    position = spec.position
    if not isinstance(position, Rotary) or spec.latent is not None or position.triples is not None:
        return
    for words, turn in of_pairs(position):
        if words not in ("cosines and sines are exchanged", "the vectors are not rotated"):
            yield _make_rotation_mistake(words, "qk", turn=turn)
            if turn is not _BACKWARDS:  # which has its own words below
                yield from (
                    _make_rotation_mistake(f"{noun} only: {words}", role, turn=turn)
                    for role, noun, _ in _ROLES
                )
    for words, turn, change in of_doubled_sections(position):
        yield _make_rotation_mistake(words, "qk", turn=turn, change=change)
    if position.given == "tables":
        exchanged = {"cos": "sin", "sin": "cos", "cos_q": "sin_q", "sin_q": "cos_q"}
        yield in_place_of("position", "cosines and sines are exchanged", **exchanged)
    else:
        for words, roles in (
            _MAGNITUDES.items()
            if position.scaling is not None and position.scaling.multiplier
            else ()
        ):
            yield _make_rotation_mistake(
                words, roles, change=lambda a, p, x, right: tables_of(a, p, x, magnified=False)
            )
        for words, change in of_tables(position):
            if not words.startswith(_ALIKE[: len(_ALIKE) - (position.given == "positions")]):
                yield _make_rotation_mistake(words, "qk", change=change)
            if not words.startswith(_ALIKE):
                yield from (
                    _make_rotation_mistake(f"{noun} only: {words}", role, change=change)
                    for role, noun, _ in _ROLES
                )
        for words, where, taken in other_tiles():
            read: Change = lambda a, p, x, right, taken=taken: right(  # type: ignore[misc] # noqa: E731
                a, p[..., taken(p.shape[-1])], x
            )
            yield from (
                _make_rotation_mistake(
                    f"positions of {noun} are {words} ({where})", role, change=read
                )
                for role, noun, _ in _ROLES
            )
    for role, noun, other in _ROLES:
        yield _make_rotation_mistake(
            f"{noun} are rotated backwards, {other} forwards", role, turn=_BACKWARDS
        )
        words = f"{noun} are not rotated, {other} alone are"
        yield in_steps("position", words, **{f"{role}_rotated": lambda at: at.first * 1})
    rotated = in_steps(
        "position", "values are rotated too", True, "changed", changed=_rotate_values_like_keys
    )
    yield replace(rotated, in_floats=True)  # the bound covers no rotation of values
    if spec.alignment == "bottom-right":
        yield _make_rotation_mistake(_LATE, "q", first=True)
        for by, words in (
            ((1, "too far from"), (-1, "too near to")) if position.given is None else ()
        ):
            moved: Change = lambda a, p, x, right, by=by: right(a, p + by, x)  # type: ignore[misc] # noqa: E731
            yield _make_rotation_mistake(
                f"queries are one position {words} the keys", "q", change=moved
            )
    if position.given != "tables" and position.width is not None and position.sections is None:
        whole: Change = lambda a, p, x, right: right(replace(a, width=None), p, x)  # noqa: E731
        yield _make_rotation_mistake(
            "all columns are rotated, not the first ones alone", "qk", change=whole
        )


#: Whose factor of cosines and sines is left out.
_MAGNITUDES = {
    "the factor of cosines and sines is left out": "qk",
    "the factor of cosines and sines is left out of those of one of queries and keys": "q",
}
_ROLES = (("q", "queries", "keys"), ("k", "keys", "queries"))


def _make_right_tables(spec: Rotary, p: np.ndarray, x: np.ndarray, right: Right) -> Tables:
    return right(spec, p, x)


def _make_rotation_mistake(
    words: str,
    roles: str,
    turn: Turn = rotate,
    change: Change = _make_right_tables,
    first: bool = False,
) -> Mistake:
    result: dict[str, Wrong] = {
        f"{r}_rotated": partial(_rotated, turn, change, first) for r in roles
    }
    return in_steps("position", words, **result)


def by_base(base: float, at: At) -> Any:
    """Return queries or keys rotated by frequencies of another base."""
    return _rotated(rotate, lambda a, p, x, right: right(replace(a, base=base), p, x), False, at)


def by_field(name: str, x: float, at: At) -> Any:
    """Return queries or keys rotated by frequencies that are scaled with another number in a field."""

    def change(a: Rotary, p: Any, y: Any, right: Right) -> Tables:
        value = max(round(x), 1) if name == "length" else Fraction(x).limit_denominator(10**6)
        scaling: Any = a.scaling
        return right(replace(a, scaling=replace(scaling, **{name: value})), p, y)

    return _rotated(rotate, change, False, at)


def by_factor(factor: float, at: At) -> Any:
    """Return queries or keys rotated by the right angles times a factor."""
    return _rotated(rotate, lambda a, p, x, right: tables_of(a, p, x, times=factor), False, at)


def _rotated(turn: Turn, change: Change, first: bool, at: At, x: Any = None) -> Any:
    """Return queries or keys, rotated; ``first``: the first query is at the position of the first key."""
    spec, values, role = at.spec, at.values, at.name[0]
    position: Any = spec.position
    x = at.first if x is None else x
    n = int(x.shape[-2])
    if position.given == "tables":
        own = role == "q" and "cos_q" in values
        results: Any = [values[f"{t}_q" if own else t] for t in ("cos", "sin")]
        if role == "q" and not own:
            results = [for_queries(t, n, "top-left" if first else spec.alignment) for t in results]
    elif position.given == "positions":
        own = role == "q" and "positions_q" in values
        p = np.asarray(values["positions_q" if own else "positions"])
        # Queries are the last tokens, unless they have positions of their own.
        if role != "k" and not own:
            last_tokens = slice(p.shape[-1] - n, None)
            p = p[..., :n] if first else p[..., last_tokens]
        results = change(position, p, x, tables_of)
    else:
        last = role == "q" and not first and spec.alignment == "bottom-right"
        p = np.arange(n) + position.start + (at.size("k", -2) - n if last else 0)
        results = change(position, p, x, tables_of)
    cos, sin = (for_heads(t, x) for t in results)
    return turn(x, cos, sin, position.layout)


def _rotate_values_like_keys(at: At) -> Any:
    """Return values rotated like keys, by tables of their own width unless tables are given.

    Raises ``KeyError`` if another mistake leaves the rotation out, and for values with too few columns.
    """
    position, v = at.spec.position, at.met
    if not isinstance(position, Rotary):
        raise KeyError("there is no rotation")
    table_width = 2 * at.size("cos") if position.given == "tables" else 0
    if int(v.shape[-1]) < max(table_width, position.width or 0):
        raise KeyError("there are too few columns")
    # An odd number of columns has no pairs, so that the values stay.
    odd = position.given != "tables" and position.width is None and int(v.shape[-1]) % 2
    return (
        v if odd else _rotated(rotate, _make_right_tables, False, replace(at, name="k_rotated"), v)
    )
