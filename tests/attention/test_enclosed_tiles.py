"""What a tile of queries sees, and the definition for some rows, against the definition for all."""

import random
from dataclasses import replace

import numpy as np
import pytest

from symattn import Attention, InputError
from symattn.arrays.ball import Ball, precision
from symattn.attention.enclosed import enclose_rows
from symattn.attention.enclosing.pattern import Seen, heads
from tests.attention.enclosed_by_balls import SPECS, masks_for, on_balls, qkv

MASKED = [spec for spec in SPECS if spec.masks_anything]
SIZES = [(7, 7), (3, 9), (9, 4), (1, 5), (5, 1)]


def allowed(spec: Attention, n_q: int, n_k: int, given: np.ndarray | None) -> np.ndarray:
    """The definition's masks on scores of 0."""
    names = {"mask": given} if given is not None else {}
    spec = replace(spec, padding=False, mask=None if given is None else "boolean", sink=None, fully_masked="zeros")
    trace = spec.trace(np.zeros((n_q, 1)), np.zeros((n_k, 1)), np.zeros((n_k, 1)), **names)
    return np.isfinite(trace.get("masked", np.zeros((n_q, n_k))))


@pytest.mark.parametrize("spec", MASKED, ids=str)
@pytest.mark.parametrize("tile", [1, 2, 4])
def test_tiles_are_parts_of_the_definition_s_mask(spec: Attention, tile: int) -> None:
    rng = np.random.default_rng(1)
    for n_q, n_k in SIZES:
        given = rng.random((n_q, n_k)) < 0.6 if spec.mask else None
        whole, seen = allowed(spec, n_q, n_k, given), Seen(spec, n_q, n_k, given)
        for i in range(0, n_q, tile):
            rows = slice(i, min(i + tile, n_q))
            low, high = seen.span(rows.start, rows.stop)
            assert not whole[rows, :low].any()
            assert not whole[rows, high:].any()
            for j in range(0, n_k, tile):
                keys = slice(j, min(j + tile, n_k))
                part = seen.tile(rows, keys)
                assert np.array_equal(whole[rows, keys], np.ones_like(whole[rows, keys]) if part is None else part)


def test_tiles_that_see_everything_are_not_masked() -> None:
    seen = Seen(Attention(causal=True), 100, 100, None)
    assert seen.tile(slice(60, 80), slice(0, 60)) is None
    assert seen.span(60, 80) == (0, 80)
    assert Seen(Attention(causal=True, window=10), 100, 100, None).span(60, 80) == (51, 80)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_rows_are_those_of_the_definition(spec: Attention) -> None:
    rng = np.random.default_rng(2)
    inputs = masks_for(spec, rng, qkv(rng, 5, 6, 3, 2))
    exact, rows = on_balls(spec, inputs), [4, 0, 2]
    found = enclose_rows(spec, inputs, rows)
    assert found.plain_shape == (3, 2)
    same(found, exact, rows)


def test_rows_of_shared_heads() -> None:
    rng = np.random.default_rng(3)
    few, many = qkv(rng, 4, 5, 3, 2, (2, 2)), qkv(rng, 4, 5, 3, 2, (2, 4))
    spec = Attention(heads=4, kv_heads=2, causal=True, sink="given")
    inputs = {"q": many["q"], "k": few["k"], "v": few["v"], "sink": rng.standard_normal(4)}
    same(enclose_rows(spec, inputs, [3, 1]), on_balls(spec, inputs), [3, 1])


def same(found: Ball, exact: Ball, rows: list[int]) -> None:
    with precision(200):
        for x, y in zip(found.entries.flat, exact.entries[..., rows, :].flat, strict=True):
            assert type(x) is type(y)
            if hasattr(x, "overlaps"):
                assert x.overlaps(y)
                assert x.rad() < 1e-40


def test_rows_follow_the_precision() -> None:
    inputs = qkv(np.random.default_rng(4), 2, 3, 2, 1)
    coarse, fine = (enclose_rows(Attention(), inputs, [1], bits).entries[0, 0].rad() for bits in (60, 300))
    assert fine < 1e-80 < 1e-25 < coarse


@pytest.mark.parametrize("row", [-1, 5])
def test_a_row_that_is_none(row: int) -> None:
    with pytest.raises(InputError, match=f"row {row}: there are rows 0 to 4"):
        enclose_rows(Attention(), qkv(np.random.default_rng(5), 5, 2, 2, 2), [0, row])


def test_each_head_reads_its_own_keys() -> None:
    rng = random.Random(6)
    h, g = 6, 3
    given = {name: np.arange(n)[:, None, None] + np.zeros((n, 2, 1)) for name, n in (("q", h), ("k", g), ("v", g))}
    found = {head.index[0]: head.k[0, 0] for head in heads(Attention(heads=h, kv_heads=g), given)}
    t = rng.randrange(h)
    assert found[t] == t // 2
    assert sorted(found) == list(range(h))
