"""Rotations by sections (M-RoPE): legal programs stay below the bound, and mistakes are found and named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from symattn import Attention, Precision, Rotary, Verdict, verify
from symattn.bounds.judge import expected
from tests.refusals import refuses
from tests.verification.test_bounds_variants import Given, VariantRow
from tests.verification.test_fields_of_models import attended

Array = np.ndarray
SECTIONS, PAIRS = (2, 1, 1), 4
BLOCKS = Rotary(given="positions", sections=SECTIONS)
IN_TURN = Rotary(given="positions", sections=SECTIONS, section_order="interleaved")
SPEC, OTHER = Attention(position=BLOCKS), Attention(position=IN_TURN)


# -- programs ----------------------------------------------------------------------------------------------------------
def rotated(x: Array, angles: Array) -> Array:
    """Columns turned by angles of pairs, or of all columns; the others pass."""
    wide = np.concatenate([angles, angles], axis=-1) if angles.shape[-1] == PAIRS else angles
    cos, sin, y = np.cos(wide).astype(x.dtype), np.sin(wide).astype(x.dtype), x[..., : 2 * PAIRS]
    turned = np.concatenate([-y[..., PAIRS:], y[..., :PAIRS]], axis=-1)
    return np.concatenate([y * cos + turned * sin, x[..., 2 * PAIRS :]], axis=-1)


def by_rows(
    rows: Sequence[int], exponents: Sequence[float] = (0, 0.25, 0.5, 0.75)
) -> Callable[[Array, Array, Array, Array], Array]:
    """A program that turns each pair, or each column, by this row of the positions."""

    def program(q: Array, k: Array, v: Array, positions: Array) -> Array:
        angles = positions[[*rows]].T * 10000.0 ** -np.resize(np.array(exponents), len(rows))
        return attended(rotated(q, angles[len(k) - len(q) :]), rotated(k, angles), v)

    return program


WRONG: list[tuple[Attention, Callable[..., Array], str]] = [
    (SPEC, by_rows((0, 0, 2, 1)), "rows 2 and 3 of the positions are exchanged"),
    (SPEC, by_rows((0, 0, 0, 0)), "every pair is rotated by row 1 of the positions, not by that of its section"),
    (SPEC, by_rows((0, 0, 0, 0, 1, 1, 2, 2)),
     "sections are doubled in size, not repeated for the second half of the columns"),
    (SPEC, by_rows((0, 1, 2, 0)), "sections are interleaved, not in blocks"),
    (SPEC, by_rows((0, 1, 2, 2)), "the sizes of the sections are in the opposite order"),
    (SPEC, by_rows((0, 0, 1, 2), (0, 0.5, 0, 0)), "the frequencies start again in each section"),
    (OTHER, by_rows((0, 0, 1, 2)), "sections are in blocks, not interleaved"),
]  # fmt: skip


#: Each of the others takes ten seconds.
FEW = [one if i in (0, 2) else pytest.param(*one, marks=pytest.mark.exhaustive) for i, one in enumerate(WRONG)]


@pytest.mark.deep
@pytest.mark.parametrize(("spec", "program", "cause"), FEW, ids=lambda x: x if isinstance(x, str) else "")
def test_a_mistake_is_named(spec: Attention, program: Callable[..., Array], cause: str) -> None:
    report = verify(program, spec, examples=2, budget=20)
    assert [fault.cause for fault in report.faults] == [cause]


@pytest.mark.exhaustive
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_right_programs_have_no_fault(precision: str) -> None:
    for spec, rows in ((SPEC, (0, 0, 1, 2)), (OTHER, (0, 1, 2, 0))):
        report = verify(by_rows(rows), spec, precision=precision, examples=2, budget=20)
        assert report.verdict is Verdict.NO_FAULT, report


@pytest.mark.exhaustive
def test_vectors_alone() -> None:
    def right(x: Array, positions: Array) -> Array:
        angles = np.moveaxis(positions[[0, 0, 1, 2]], 0, -1) * 10000.0 ** (-np.arange(PAIRS) / PAIRS)
        return rotated(x, angles)

    def exchanged(x: Array, positions: Array) -> Array:
        return right(x, positions[[0, 2, 1]])

    assert verify(right, BLOCKS, examples=1, budget=6).verdict is Verdict.NO_FAULT
    (fault,) = verify(exchanged, BLOCKS, examples=1, budget=6).faults
    assert fault.cause == "rows 2 and 3 of the positions are exchanged"


# -- the bound ---------------------------------------------------------------------------------------------------------
#: Frequencies that differ little, so that angles are large at far places.
FAST = Attention(position=Rotary(given="positions", sections=SECTIONS, base=4))


class SectionRow(VariantRow):
    """One row, each pair of whose columns has the place of its own row of the positions."""

    def _rotated(self, x: Array, place: Any, key: int = 0) -> Array:
        out = np.array(x, dtype=float)
        for pair, row in enumerate((0, 0, 1, 2)):
            columns = [pair, pair + PAIRS]
            alone = np.zeros(2 * PAIRS)
            alone[columns] = x[columns]
            out[columns] = super()._rotated(alone, place[row], key)[columns]
        return out


def share(precision: str, seed: int, cases: int) -> float:
    """The largest share of the bound that a legal program reaches; height and width are far, time is near."""
    p, rng, found = Precision.of(precision), np.random.default_rng(seed), 0.0
    for _ in range(cases):
        n = int(rng.integers(2, 6))
        shapes = {"q": (1, n, 8), "k": (1, n, 8), "v": (1, n, 1)}
        given = {name: p.input.rounded(rng.standard_normal(shape)) for name, shape in shapes.items()}
        arrays = {name: x[0] for name, x in given.items()}
        positions = np.stack([np.arange(n), rng.integers(0, 4000, n), rng.integers(0, 4000, n)])
        right = expected(FAST, {**arrays, "positions": positions}, p)
        row = SectionRow(FAST, p, rng)
        got = np.array(right.run.output.midpoints())
        last = Given(arrays["q"][-1], arrays["k"], arrays["v"][:, 0], positions[:, -1], positions.T)  # type: ignore[arg-type]
        got[-1, 0] = row.run(last)
        found = max(found, float(right.ratios(got)[-1, 0]))
    return found


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_no_legal_program_exceeds_the_bound(precision: str) -> None:
    assert 0.01 < share(precision, 5, 12) <= 1


def test_each_pair_needs_the_error_of_its_own_row() -> None:
    """By the places of the first row alone, which are near, a legal program would be accused."""
    place = "symattn.bounds.scores.positions_of_pairs"
    with patch(place, lambda places, rows: places[0][:, None] + 0 * np.array(rows)):
        assert share("float32", 5, 12) > 1


# -- refusals ----------------------------------------------------------------------------------------------------------
def test_senseless_sections_are_refused() -> None:
    for fields, says in (
        ({"sections": (2, 1)}, "hint: given='positions'"),
        ({"sections": (2,), "given": "positions"}, "be a tuple of two or more integers"),
        ({"sections": (2, 1), "width": 8, "given": "positions"}, "turn 6 columns, not 8"),
        ({"sections": (1, 2, 2), "given": "positions", "section_order": "interleaved"}, "a larger first one"),
        ({"section_order": "interleaved"}, "section_order belongs to sections"),
    ):
        refuses(Rotary, **fields, says=says)
    q = np.ones((3, 8))
    refuses(SPEC, q, q, q, positions=np.zeros((2, 3), int), says="the axis of rows of positions must have the length 3")
