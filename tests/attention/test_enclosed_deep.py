"""A hundred thousand elements against Arb at 200 bits: random and hostile inputs, masks, shapes, none outside."""

from __future__ import annotations

import random

import numpy as np
import pytest

from symattn.attention import enclosed
from symattn.attention.enclosed import enclose
from symattn.attention.enclosing import radius, sums
from tests.attention.enclosed_by_balls import SPECS, Inputs, hostile, masks_for, on_balls, qkv, used

ELEMENTS = 100_000


def drawn(rng: np.random.Generator, choose: random.Random) -> Inputs:
    """Inputs of some size, at some scale each, or hostile ones."""
    n_q, n_k, d, d_v = (choose.choice(sizes) for sizes in ((1, 3, 8, 17), (1, 2, 9, 24), (1, 2, 5), (4, 8)))
    if choose.random() < 0.4:
        table = hostile(rng, choose.choice([4, 9, 16]), d)
        return table[choose.choice([name for name in table if name != "beyond all floats"])]
    inputs = qkv(rng, n_q, n_k, d, d_v)
    sizes = {"q": [1, 1, 10, 1e-3, 1e4], "k": [1, 1, 10, 1e-3], "v": [1, 1, 1e-9, 1e12]}
    return {name: inputs[name] * choose.choice(sizes[name]) for name in inputs}


@pytest.mark.deep
def test_a_hundred_thousand_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, choose = np.random.default_rng(20), random.Random(20)
    looked, outside, narrow = 0, 0, 0
    while looked < ELEMENTS:
        queries, keys = choose.choice([(256, 256), (3, 4), (5, 2)])
        for module in (sums, enclosed):
            monkeypatch.setattr(module, "QUERIES", queries)
        for module in (sums, radius):
            monkeypatch.setattr(module, "KEYS", keys)
        spec = choose.choice(SPECS)
        inputs = masks_for(spec, rng, drawn(rng, choose))
        part = used(on_balls(spec, inputs), *enclose(spec, inputs, tight=choose.random() < 0.3))
        looked, outside, narrow = looked + part.size, outside + (part > 1).sum(), narrow + (1000 * part > 1).sum()
    assert outside == 0
    assert narrow > looked / 100  # a thousandth of the radius would be too little for many


@pytest.mark.deep
@pytest.mark.parametrize("n", [257, 600])
def test_large_sizes_by_rows(n: int) -> None:
    rng = np.random.default_rng(21)
    inputs = qkv(rng, n, n, 64, 8)
    rows = [0, 1, 127, 255, 256, n - 1]
    for spec in (s for s in SPECS if s.fully_masked == "zeros"):
        given = masks_for(spec, rng, inputs)
        found = enclose(spec, given)
        part = used(enclosed.enclose_rows(spec, given, rows), found.centre[rows], found.radius[rows])
        assert (part <= 1).all()
