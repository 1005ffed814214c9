"""Tables of angles that are kept between runs are those of each length, and together no larger than is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.enclosure import Enclosure
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.positions.rotary_fields import NTKScaling
from symattn.bounds import reference

TRAINED = NTKScaling(factor=2, length=4)


def tables(position: Rotary, n: int) -> list[tuple[Any, Any]]:
    """Cosines and sines for n places of 4 columns, as a run has them and as their step makes them."""
    spec, q = Attention(position=position), Enclosure.lift(np.zeros((n, 4)))
    steps = [s for s in spec.pipeline(frozenset("qkv")) if s.name in ("cos", "sin")]
    return [(reference._run(s, spec, [q]), s.run(q)) for s in steps]


@pytest.mark.parametrize(
    "position", [Rotary(), Rotary(start=-3), Rotary(triples=((3, 4, 5),)), Rotary(scaling=TRAINED)]
)
def test_a_table_that_is_kept_is_that_of_each_length(position: Rotary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "_ANGLES", {})
    for n in (3, 1, 70, 5, 64):
        for kept, made in tables(position, n):
            np.testing.assert_array_equal(kept.mid, made.mid)
            np.testing.assert_array_equal(kept.rad, made.rad)


def test_tables_that_are_kept_are_no_larger_than_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "_ANGLES", {})
    monkeypatch.setattr(reference, "_MOST_NUMBERS", 400)
    for start, n in ((0, 5), (1, 5), (2, 5), (3, 300), (4, 5)):
        tables(Rotary(start=start), n)
        assert reference._ANGLES
        assert sum(a.mid.size for a in reference._ANGLES.values()) <= 400
