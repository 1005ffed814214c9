"""A rotary position in steps: the positions, the frequencies, the angles, and the tables of cosines and sines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.positions.rotary import (
    angles,
    angles_by_sections,
    inverse_frequencies,
    rows_of_pairs,
)


def stand_in_tables(x: Any) -> Any:
    """Return what makes the tables of angles on residues, which have no cosines; None for other kinds."""
    return getattr(type(x), "tables", None)


def floats_like(x: Any) -> Any:
    """Return x, or on residues zeros of its shape: positions, frequencies and angles are floats there."""
    return np.zeros(np.shape(x)) if stand_in_tables(x) else x


def list_positions(spec: Rotary, positions: Any, x: Array) -> Any:
    """Return the positions of the tokens of x (…, n, d): those that are passed, or start, start + 1, ….

    With sections they are (…, s, n): a row for each, and without positions there is text alone, whose rows are equal.
    """
    if positions is not None:
        return np.asarray(positions) if stand_in_tables(x) else positions
    xp = namespace_of(floats_like(x))
    counted = spec.start + xp.arange(int(x.shape[-2]))
    return xp.stack([counted] * len(spec.sections)) if spec.sections else counted


def find_frequencies(spec: Rotary, positions: Any, x: Array, unscaled: Any = None) -> Any:
    """Return ω_l for vectors like x: θ^(−2l/r), or what is passed as ``unscaled``, scaled. Shape: (f,)."""
    like = floats_like(x)
    if unscaled is None:
        unscaled = inverse_frequencies(spec.width or int(x.shape[-1]), spec.base, like)
    if spec.scaling is None:
        return unscaled
    # Positions count from 0, so that the largest one tells how long the text is.
    length = int(np.max(np.asarray(positions))) + 1
    return spec.scaling.frequencies(unscaled, spec.base, length)


def find_angles(
    spec: Rotary, positions: Any, frequencies: Array, rows: Sequence[int] | None = None
) -> Any:
    """Return p ω_l; with sections, p in the row of pair l, which ``rows`` may replace. Shape: (…, n, f)."""
    if spec.sections is None:
        return angles(positions, frequencies)
    rows = rows or rows_of_pairs(spec.sections, spec.section_order)
    return angles_by_sections(positions, frequencies, rows)


def make_rotary_table(
    spec: Rotary, function: Literal["cos", "sin"], turned: Any, x: Array, is_magnified: bool = True
) -> Any:
    """Return the cosines or sines of angles for vectors like x, times the factor of a scaling."""
    of_angles = stand_in_tables(x) or _take_cosines_or_sines
    table = of_angles(function, turned)
    if spec.scaling is None or not is_magnified:
        return table
    return table * spec.scaling.magnitude(floats_like(x))


def _take_cosines_or_sines(function: str, turned: Any) -> Any:
    xp = namespace_of(turned)
    return xp.cos(turned) if function == "cos" else xp.sin(turned)
