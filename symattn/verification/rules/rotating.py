"""Mistakes in rotary positions: other pairs, frequencies or positions; for queries and keys, and ``Rotary`` alone.

A rotation takes cosines and sines of angles p ω_l. ``of_pairs`` yields mistakes in applying them, ``of_tables``
mistakes in the angles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import pi
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.formats import Format
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import Number, number
from symattn.attention.fields import finite
from symattn.attention.flow import Step
from symattn.attention.masks import for_heads
from symattn.attention.positions import rotary_steps
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.positions.rotary import (
    for_queries,
    inverse_frequencies,
    pairs,
    powers_of,
    rotate,
    rows_of_pairs,
)
from symattn.attention.positions.rotary_fields import LinearScaling, NTKScaling, YarnScaling
from symattn.attention.spec import Attention
from symattn.bounds.changed_steps import ChangedSteps, in_stated_steps
from symattn.bounds.mistake import (
    At,
    Mistake,
    MistakeFamily,
    Wrong,
    change,
    in_place_of,
    in_steps,
)
from symattn.verification.rules.tiling import other_tiles

Tables = tuple[Any, Any]  # cosines and sines
Turn = Callable[[Any, Any, Any, str], Any]  # from x, cosines, sines, layout
Stretch = Callable[[Any, Any, Any], Any]  # from frequencies, scaled frequencies, and the factor


@dataclass(frozen=True)
class TableStep:
    """A step on the way to the tables of a ``Rotary`` for vectors like x, and the arrays before it.

    ``positions`` are, at their own step, the right ones.
    """

    spec: Rotary
    x: Any
    positions: Any
    frequencies: Any = None
    angles: Any = None

    @property
    def width(self) -> int:
        """How many columns are rotated."""
        return self.spec.width or int(self.x.shape[-1])

    @property
    def like(self) -> Any:
        """An array of the kind that frequencies have."""
        return rotary_steps.floats_like(self.x)

    def scale_frequencies(self, unscaled: Any = None) -> Any:
        """Return the right frequencies, or those that follow from other unscaled ones."""
        return rotary_steps.find_frequencies(self.spec, self.positions, self.x, unscaled)

    def raise_base(self, base: Number, exponents: Iterable[Fraction]) -> Any:
        """Return powers of a base, of the kind that frequencies have."""
        return powers_of(base, [*exponents], self.like)

    def run(self, name: str) -> Any:
        """Return the array of the step ``name``, computed correctly."""
        if name == "positions":
            return self.positions
        if name == "frequencies":
            return self.scale_frequencies()
        if name == "angles":
            return rotary_steps.find_angles(self.spec, self.positions, self.frequencies)
        return rotary_steps.make_rotary_table(self.spec, FUNCTIONS[name], self.angles, self.x)


#: Wrong arrays on the way to the tables, by the name of the step.
TableChanges = Mapping[str, Callable[[TableStep], Any]]
#: The function of each table.
FUNCTIONS: Mapping[str, Literal["cos", "sin"]] = {"cosines": "cos", "sines": "sin"}


def tables_of(
    spec: Rotary, positions: Any, x: Any, changes: TableChanges = MappingProxyType({})
) -> Tables:
    """Return cosines and sines for vectors like x, by the definition's steps, of which some may be changed."""
    at = TableStep(spec, x, np.asarray(positions) if rotary_steps.stand_in_tables(x) else positions)

    def compute(name: str) -> Any:
        other = changes.get(name)
        return at.run(name) if other is None else other(at)

    for name in ("positions", "frequencies", "angles"):
        at = replace(at, **{name: compute(name)})
    return compute("cosines"), compute("sines")


def rotate_from_position(spec: Rotary, x: Array, start: int) -> Array:
    """Return the vectors x (…, n, d), rotated by the positions ``start``, ``start`` + 1 and so on."""
    positions = start + np.arange(int(x.shape[-2]))
    return rotate(x, *tables_of(spec, positions, x), spec.layout)


#: Words for the wrong pairs, by the layout that is used.
OTHER_PAIRS = {
    "interleaved": "adjacent columns 2l and 2l + 1 are rotated together, not column l with l + r/2",
    "half": "column l is rotated with l + r/2, not with the adjacent column",
}


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
    xp = namespace_of(x)
    f = int(cos.shape[-1])
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
def of_tables(spec: Rotary) -> Iterator[tuple[str, TableChanges]]:
    """Yield wrong angles: frequencies, their units, positions, and rows of positions in sections."""
    for yield_changes in (of_frequencies, of_angles_and_sections, of_positions):
        yield from yield_changes(spec)


def of_frequencies(spec: Rotary) -> Iterator[tuple[str, TableChanges]]:
    """Yield wrong frequencies: of other exponents, another base, or another scaling."""
    for words, exponent in _EXPONENTS.items():
        # If all columns are rotated, the exponents of all columns are right.
        if spec.width is not None or "all columns" not in words:
            yield words, {"frequencies": partial(_raise_to_exponents, exponent)}
    for base in (100, 1000, 10000, 100000, 500000, 1000000):
        # base² with exponents 2l/r is base with l/r, see above
        if float(spec.base) not in (base, base**2):
            words = f"the base of the frequencies is {base}, not {float(spec.base):g}"
            yield words, of_other_base(base)
    # A linear scaling divides every frequency: here the first would be right, and the second leave it out.
    if not isinstance(spec.scaling, LinearScaling | None):
        for words, other in _STRETCHED.items():
            yield words, {"frequencies": partial(_stretch_frequencies, other)}
    if spec.scaling is not None:
        yield "the frequencies are not scaled", of_other_fields(scaling=None)
    if isinstance(spec.scaling, YarnScaling | NTKScaling) and spec.scaling.length:
        words = "uses the length that the frequencies are scaled to instead of the trained one"
        length = round(spec.scaling.length * Fraction(spec.scaling.factor))
        yield words, of_other_scaling(length=length)
    if isinstance(spec.scaling, NTKScaling):
        for words, power in _POWERS_OF_FACTOR.items():
            yield words, {"frequencies": partial(_regrow_frequencies, power, None)}
        right_power: Callable[[int], Fraction] = lambda r: Fraction(r, r - 2)  # noqa: E731
        for words, growth in _GROWTHS.items() if spec.scaling.length else ():
            yield words, {"frequencies": partial(_regrow_frequencies, right_power, growth)}


def of_angles(spec: Rotary) -> Iterator[tuple[str, TableChanges]]:
    """Yield angles in other units."""
    for words, times in _UNITS.items():
        yield words, of_other_units(times)


def of_positions(spec: Rotary) -> Iterator[tuple[str, TableChanges]]:
    """Yield wrong positions."""
    for words, places in _make_wrong_positions().items():
        yield words, move_positions(places)


def of_angles_and_sections(spec: Rotary) -> Iterator[tuple[str, TableChanges]]:
    """Yield angles in other units, and of wrong rows of the positions."""
    yield from of_angles(spec)
    yield from of_sections(spec)


def of_magnitudes(spec: Rotary) -> Iterator[tuple[str, TableChanges]]:
    """Yield tables without the factor of a scaling."""
    if spec.scaling is not None and spec.scaling.multiplier:
        yield "the factor of cosines and sines is left out", _WITHOUT_MAGNITUDE


def of_other_base(base: Number) -> TableChanges:
    """Return the change to frequencies of another base."""
    return {
        "frequencies": lambda at: replace(at, spec=replace(at.spec, base=base)).run("frequencies")
    }


def of_other_units(times: float) -> TableChanges:
    """Return the change to angles times a factor."""
    return {"angles": lambda at: at.run("angles") * times}


def move_positions(places: Callable[[Any], Any]) -> TableChanges:
    """Return the change of positions (…, n) by a function."""
    return {"positions": lambda at: places(at.positions)}


def of_other_scaling(**fields: Any) -> TableChanges:
    """Return the change to a scaling with other fields. It raises ``KeyError`` where there is none."""

    def rescaled(spec: Rotary) -> Rotary:
        scaling: Any = spec.scaling
        if scaling is None:
            raise KeyError("there is no scaling")
        return replace(spec, scaling=replace(scaling, **fields))

    return _run_steps_of(rescaled)


def of_other_fields(**fields: Any) -> TableChanges:
    """Return the change to the frequencies and tables of a ``Rotary`` with other fields."""
    return _run_steps_of(lambda spec: replace(spec, **fields))


def _run_steps_of(other: Callable[[Rotary], Rotary]) -> TableChanges:
    def change(name: str) -> Callable[[TableStep], Any]:
        return lambda at: replace(at, spec=other(at.spec)).run(name)

    # Tables have the factor of a scaling.
    return {name: change(name) for name in ("frequencies", "cosines", "sines")}


def _make_table_without_magnitude(function: Literal["cos", "sin"], at: TableStep) -> Any:
    return rotary_steps.make_rotary_table(at.spec, function, at.angles, at.x, is_magnified=False)


_WITHOUT_MAGNITUDE: TableChanges = {
    name: partial(_make_table_without_magnitude, function) for name, function in FUNCTIONS.items()
}


# -- sections of pairs, each with its row of the positions -------------------------------------------------------------
def of_sections(spec: Rotary) -> Iterator[tuple[str, TableChanges]]:
    """Yield wrong rows of the positions for the pairs of columns, and wrong frequencies in their sections."""
    sections = spec.sections
    if sections is None:
        return
    m = len(sections)
    pairs_in_all = sum(sections)
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
        # With sections of one size, other orders and sizes in reverse may be the right rows.
        if rows != right_rows:
            yield words, {"angles": partial(_turn_by_rows, rows)}
    words = "the frequencies start again in each section"
    yield words, {"frequencies": partial(_restart_frequencies, right_rows)}


#: Words for the wrong order of sections, by the order that is used.
_OTHER_ORDER = {
    "interleaved": "sections are interleaved, not in blocks",
    "blocks": "sections are in blocks, not interleaved",
}


def _turn_by_rows(rows: tuple[int, ...], at: TableStep) -> Any:
    return rotary_steps.find_angles(at.spec, at.positions, at.frequencies, rows)


def _restart_frequencies(rows: tuple[int, ...], at: TableStep) -> Any:
    """Return frequencies in which the pairs of each row have the exponents 2l/r of a vector of their own columns."""
    counts = [rows[:pair].count(row) for pair, row in enumerate(rows)]
    exponents = (Fraction(-count, rows.count(row)) for count, row in zip(counts, rows, strict=True))
    return at.scale_frequencies(at.raise_base(at.spec.base, exponents))


def of_doubled_sections(spec: Rotary) -> Iterator[tuple[str, Turn, TableChanges]]:
    """Yield the mistake of cutting tables of all columns by sections of twice the size.

    Tables with every angle twice, (θ, θ), are cut by the sections once for each half: (2, 3, 3, 2, 3, 3). Sections that
    are doubled as numbers, (4, 6, 6), give the two columns of a pair different angles.
    """
    if spec.sections is not None and spec.layout == "half" and spec.section_order == "blocks":
        words = "sections are doubled in size, not repeated for the second half of the columns"
        yield words, _rotate_by_wide_tables, {"angles": _turn_by_doubled_sections}


def _turn_by_doubled_sections(at: TableStep) -> Any:
    """Return angles of all columns, two for each pair. Raises ``KeyError`` without sections."""
    sections = at.spec.sections
    if sections is None:
        raise KeyError("there are no sections")
    rows = rows_of_pairs([2 * pairs_in_section for pairs_in_section in sections])
    f = sum(sections)
    halves = [_turn_by_rows(part, at) for part in (rows[:f], rows[f:])]
    return namespace_of(halves[0]).concat(halves, axis=-1)


def _rotate_by_wide_tables(x: Any, cos: Any, sin: Any, layout: str) -> Any:
    """Return x ⊙ c + x' ⊙ s for tables with a column for each of x, halves of x exchanged in x'."""
    xp = namespace_of(x)
    width = int(cos.shape[-1])
    y = x[..., :width]
    rest = x[..., width:]
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


def _stretch_frequencies(other: Stretch, at: TableStep) -> Any:
    scaling: Any = at.spec.scaling
    if scaling is None:
        raise KeyError("there is no factor")
    factor = number(scaling.numbers["factor"], at.like)
    unscaled = inverse_frequencies(at.width, at.spec.base, at.like)
    return other(unscaled, at.run("frequencies"), factor)


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


def _regrow_frequencies(power: Callable[[int], Fraction], growth: Any, at: TableStep) -> Any:
    """Return frequencies of a base that is multiplied by another power, or by that of another growth of the factor."""
    scaling: Any = at.spec.scaling  # None beside the mistake that there is none
    r = at.width
    n = int(np.max(np.asarray(at.positions))) + 1
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
    grown = at.raise_base(s, (Fraction(-2 * pair) * power(r) / r for pair in range(pairs(r))))
    return inverse_frequencies(r, at.spec.base, at.like) * grown


def _raise_to_exponents(exponent: Callable[[int, int, int], Fraction], at: TableStep) -> Any:
    r = at.width
    d = int(at.x.shape[-1])
    exponents = (exponent(pair, r, d) for pair in range(pairs(r)))
    return at.scale_frequencies(at.raise_base(at.spec.base, exponents))


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


#: Numbers of a scaling of frequencies.
WORDS_OF_SCALINGS = {
    "factor": "the factor s of the scaled frequencies is {}",
    "length": "the trained length of the scaling is {}",
    "slow": "frequencies are slow that turn {} times",
    "fast": "frequencies are fast that turn {} times",
    "weight": "the weight in the factor of cosines and sines is {}",
}


# -- a rotation that a definition states -------------------------------------------------------------------------------
#: The names of steps to the tables, by the names that a definition which states them gives to these.
_STATED: Mapping[str, str] = {
    "places": "positions",
    "frequencies": "frequencies",
    "angles": "angles",
    "cosines": "cosines",
    "sines": "sines",
}


def mistakes_of_table_step(
    spec: Any, step: Step, of: Callable[[Rotary], Iterator[tuple[str, TableChanges]]]
) -> Iterator[Mistake]:
    """Yield the mistakes that begin at a step on the way to the tables, from the changes that ``of`` yields."""
    for words, changes in of(spec.rotary):
        yield in_stated_steps(spec, step.blames, words, _state_table_changes(changes))


def mistakes_of_rotation(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield rotations of all arrays that are wrong, and of one alone, at the step of the first one."""
    rotated = [s for s in spec.pipeline_of_all if s.role == step.role]
    if step != rotated[0]:
        return
    for words, turn in of_pairs(spec.rotary):
        wrong: Wrong = partial(_turn_stated, turn)
        yield in_stated_steps(spec, step.blames, words, {s.name: wrong for s in rotated})
        # Code may rotate one of them by another convention than the other.
        for one in rotated if len(rotated) > 1 else ():
            cause = f"in {spec.noun_of(one.of[0])} alone: {words}"
            yield in_stated_steps(spec, step.blames, cause, {one.name: wrong})
    for words, turn, changes in of_doubled_sections(spec.rotary):
        turned: Wrong = partial(_turn_stated_by_computed_tables, turn)
        steps = {s.name: turned for s in rotated} | _state_table_changes(changes)
        yield in_stated_steps(spec, step.blames, words, steps)


def further_mistakes_of_rotation(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield the rotation of one of several arrays by wrong tables."""
    is_alone = len(spec.of) == 1
    for words, changes in () if is_alone else of_tables(spec.rotary):
        cause = f"in {spec.noun_of(step.of[0])} alone: {words}"
        wrong = partial(_turn_stated_by_tables, changes)
        yield in_stated_steps(spec, step.blames, cause, {step.name: wrong})


def families_of_angles(spec: Any, step: Step) -> Iterator[MistakeFamily]:
    """Yield angles that are off by a factor, and frequencies whose scaling has another number in a field."""
    words = "the angles of the rotation are {} times what they should be"
    yield _make_stated_family(spec, step, words, of_other_units, np.geomspace(1e-3, 1e3, 40))
    for name, cause in WORDS_OF_SCALINGS.items():
        if finite(getattr(spec.rotary.scaling, name, None)):
            other = partial(_rescale, name)
            yield _make_stated_family(spec, step, cause, other, np.geomspace(1e-1, 1e5, 40))


def _rescale(name: str, x: float) -> TableChanges:
    return of_other_scaling(**{name: to_scaling_field(name, x)})


def _make_stated_family(
    spec: Any, step: Step, words: str, other: Callable[[float], TableChanges], grid: Any
) -> MistakeFamily:
    def way(x: float) -> ChangedSteps:
        return change_stated_tables(spec, other(x))

    return MistakeFamily(step.blames, words, way, [float(x) for x in grid])


def change_stated_tables(spec: Any, changes: TableChanges) -> ChangedSteps:
    """Return a run of a definition that states the steps to its tables, with changes of these."""
    changed = _state_table_changes(changes)
    return ChangedSteps(spec, {name: change(name, wrong) for name, wrong in changed.items()})


def _state_table_changes(changes: TableChanges) -> dict[str, Wrong]:
    """Return changes of steps to the tables for a definition that states these."""
    return {
        stated: partial(_change_stated_table_step, changes[name])
        for stated, name in _STATED.items()
        if name in changes
    }


def _change_stated_table_step(other: Callable[[TableStep], Any], at: At) -> Any:
    spec: Any = at.spec
    arrays = [at.values.get(name) for name in ("places", "frequencies", "angles")]
    # At the step of the positions, the right ones are not among the arrays yet.
    places = at.right() if at.name == "places" else arrays[0]
    return other(TableStep(spec.rotary, at.values[spec.of[0]], places, *arrays[1:]))


def _turn_stated(turn: Turn, at: At) -> Any:
    spec: Any = at.spec
    x, cos, sin = at.taken
    return turn(x, cos, sin, spec.rotary.layout)


def _turn_stated_by_computed_tables(turn: Turn, at: At) -> Any:
    """Return vectors that are turned wrongly. Raises ``KeyError`` where tables are inputs."""
    if "angles" not in at.values:
        raise KeyError("tables are inputs")
    return _turn_stated(turn, at)


def _turn_stated_by_tables(changes: TableChanges, at: At) -> Any:
    """Return vectors rotated by other tables. Raises ``KeyError`` where tables are inputs."""
    spec: Any = at.spec
    return rotate(
        at.first,
        *tables_of(spec.rotary, at.values["places"], at.first, changes),
        spec.rotary.layout,
    )


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
    for words, turn, changes in of_doubled_sections(position):
        yield _make_rotation_mistake(words, "qk", turn=turn, changes=changes)
    if position.given == "tables":
        exchanged = {"cos": "sin", "sin": "cos", "cos_q": "sin_q", "sin_q": "cos_q"}
        yield in_place_of("position", "cosines and sines are exchanged", **exchanged)
    else:
        yield from _yield_wrong_tables(position)
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
        yield from _yield_wrong_starts(position)
    if position.given != "tables" and position.width is not None and position.sections is None:
        whole = of_other_fields(width=None)
        yield _make_rotation_mistake(
            "all columns are rotated, not the first ones alone", "qk", changes=whole
        )


def _yield_wrong_tables(position: Rotary) -> Iterator[Mistake]:
    """Yield wrong tables of cosines and sines, which are made from positions."""
    for words, roles in (
        _MAGNITUDES.items() if position.scaling is not None and position.scaling.multiplier else ()
    ):
        yield _make_rotation_mistake(words, roles, changes=_WITHOUT_MAGNITUDE)
    for words, changes in of_tables(position):
        # Positions that are given need not be 0, 1, 2, …, and then counting from 0 changes differences as well.
        if not words.startswith(_ALIKE[: len(_ALIKE) - (position.given == "positions")]):
            yield _make_rotation_mistake(words, "qk", changes=changes)
        if not words.startswith(_ALIKE):
            yield from (
                _make_rotation_mistake(f"{noun} only: {words}", role, changes=changes)
                for role, noun, _ in _ROLES
            )
    for words, where, taken in other_tiles():
        read = move_positions(lambda p, taken=taken: p[..., taken(p.shape[-1])])  # type: ignore[misc]
        yield from (
            _make_rotation_mistake(f"positions of {noun} are {words} ({where})", role, changes=read)
            for role, noun, _ in _ROLES
        )


def _yield_wrong_starts(position: Rotary) -> Iterator[Mistake]:
    """Yield wrong positions of the first query, where queries are the last tokens of the keys."""
    yield _make_rotation_mistake(_LATE, "q", first=True)
    for by, words in ((1, "too far from"), (-1, "too near to")) if position.given is None else ():
        moved = move_positions(lambda p, by=by: p + by)  # type: ignore[misc]
        yield _make_rotation_mistake(
            f"queries are one position {words} the keys", "q", changes=moved
        )


#: Whose factor of cosines and sines is left out.
_MAGNITUDES = {
    "the factor of cosines and sines is left out": "qk",
    "the factor of cosines and sines is left out of those of one of queries and keys": "q",
}
_UNCHANGED: TableChanges = {}
_ROLES = (("q", "queries", "keys"), ("k", "keys", "queries"))


def _make_rotation_mistake(
    words: str,
    roles: str,
    turn: Turn = rotate,
    changes: TableChanges = _UNCHANGED,
    first: bool = False,
) -> Mistake:
    result: dict[str, Wrong] = {
        f"{r}_rotated": partial(_rotated, turn, changes, first) for r in roles
    }
    return in_steps("position", words, **result)


def by_base(base: float, at: At) -> Any:
    """Return queries or keys rotated by frequencies of another base."""
    return _rotated(rotate, of_other_base(base), False, at)


def by_field(name: str, x: float, at: At) -> Any:
    """Return queries or keys rotated by frequencies that are scaled with another number in a field."""
    return _rotated(rotate, of_other_scaling(**{name: to_scaling_field(name, x)}), False, at)


def to_scaling_field(name: str, x: float) -> int | Fraction:
    """Return the number x as a field of a scaling has it."""
    return max(round(x), 1) if name == "length" else Fraction(x).limit_denominator(10**6)


def by_factor(factor: float, at: At) -> Any:
    """Return queries or keys rotated by the right angles times a factor."""
    return _rotated(rotate, of_other_units(factor), False, at)


def _rotated(turn: Turn, changes: TableChanges, first: bool, at: At, x: Any = None) -> Any:
    """Return queries or keys, rotated; ``first``: the first query is at the position of the first key."""
    spec = at.spec
    values = at.values
    role = at.name[0]
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
        results = tables_of(position, p, x, changes)
    else:
        last = role == "q" and not first and spec.alignment == "bottom-right"
        p = np.arange(n) + position.start + (at.size("k", -2) - n if last else 0)
        results = tables_of(position, p, x, changes)
    cos, sin = (for_heads(t, x) for t in results)
    return turn(x, cos, sin, position.layout)


def _rotate_values_like_keys(at: At) -> Any:
    """Return values rotated like keys, by tables of their own width unless tables are given.

    Raises ``KeyError`` if another mistake leaves the rotation out, and for values with too few columns.
    """
    position = at.spec.position
    v = at.met
    if not isinstance(position, Rotary):
        raise KeyError("there is no rotation")
    table_width = 2 * at.size("cos") if position.given == "tables" else 0
    if int(v.shape[-1]) < max(table_width, position.width or 0):
        raise KeyError("there are too few columns")
    # An odd number of columns has no pairs, so that the values stay.
    odd = position.given != "tables" and position.width is None and int(v.shape[-1]) % 2
    return v if odd else _rotated(rotate, _UNCHANGED, False, replace(at, name="k_rotated"), v)
