"""Enclosed tables of cosines and sines, put together from short ones: each entry against Arb."""

from __future__ import annotations

import flint
import numpy as np
import pytest

from symattn import Attention, Rotary
from symattn.arrays.enclosing import functions
from symattn.arrays.enclosing.work import Parts
from symattn.arrays.enclosure import Enclosure
from symattn.attention.positions import rotary
from symattn.attention.positions.rotary_fields import LinearScaling

N, WIDTH, U = 200, 12, 2.0**-53
RNG = np.random.default_rng(5)


def enclosed(position: Rotary, n: int = N) -> dict[str, Enclosure]:
    x = {name: Enclosure.lift(RNG.standard_normal((n, WIDTH))) for name in "qkv"}
    return Attention(position=position).trace(**x)


@pytest.mark.parametrize(
    "position", [Rotary(), Rotary(base=500000, start=-7), Rotary(start=90, scaling=LinearScaling(factor=8))]
)
def test_every_entry_encloses_what_arb_gives(position: Rotary) -> None:
    values, slower = enclosed(position), 1 if position.scaling is None else 8
    with flint.ctx.workprec(200):
        for pair in range(WIDTH // 2):
            frequency = flint.arb(position.base) ** (flint.arb(-2 * pair) / WIDTH) / slower
            for p in range(N):
                exact = {
                    "sin": (frequency * (position.start + p)).sin(),
                    "cos": (frequency * (position.start + p)).cos(),
                }
                for name, x in exact.items():
                    mid, rad = (float(a[p, pair]) for a in (values[name].mid, values[name].rad))
                    assert abs(x - flint.arb(mid)) <= flint.arb(rad)


def test_radii_are_as_proved() -> None:
    frequencies = rotary.inverse_frequencies(WIDTH, 10000, Enclosure.lift(np.zeros(())))
    far, near = rotary.short_tables(3, N, frequencies)
    r = max(float(table.rad.max()) for table in (*far, *near))
    assert all(table.rad.max() <= 2 * (4.01 * r + 4 * U) for table in rotary.joined(far, near, N))


def test_few_cosines_are_asked_of_arb(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, by_arb = [], functions._by_arb

    def counted(kind: str, name: str, a: Parts) -> Parts:
        asked.append(a.mid.size)
        return by_arb(kind, name, a)

    monkeypatch.setattr(functions, "_by_arb", counted)
    enclosed(Rotary(base=12345), n=256)
    assert sum(asked) <= 2 * (256 // 32 + 32) * WIDTH // 2 + WIDTH
