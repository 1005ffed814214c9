"""Wrong programs that are right unless sizes are large together, which must be found, and right ones that must pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, verify
from symattn.bounds.case_result import Case
from symattn.programs.verifying import Options
from symattn.verification.engine import finds_fault
from tests.verification import sizes_together
from tests.verification.sizes_together import written

Array = Any


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def plain(q: Array, k: Array, v: Array, c: float = 1.0) -> Array:
    scale = np.asarray(c / np.sqrt(q.shape[-1]), q.dtype)
    return softmax(q @ np.swapaxes(k, -1, -2) * scale) @ v


def by_tiles(q: Array, k: Array, v: Array, tile: int = 128, rescaled: bool = True) -> Array:
    m = np.full((*q.shape[:-1], 1), -np.inf, q.dtype)
    total, out = np.zeros_like(m), np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    scale = np.asarray(1 / np.sqrt(q.shape[-1]), q.dtype)
    for j in range(0, k.shape[-2], tile):
        s = q @ np.swapaxes(k[..., j : j + tile, :], -1, -2) * scale
        new = np.maximum(m, s.max(-1, keepdims=True))
        a, p = np.exp(m - new), np.exp(s - new)
        total, m = total * a + p.sum(-1, keepdims=True), new
        out = out * (a if rescaled else 1) + p @ v[..., j : j + tile, :]
    return out / total


def first_block(q: Array, k: Array, v: Array) -> Array:
    blocks = range(0, q.shape[-2], 128)
    return np.concatenate([plain(q[..., :128, :][..., : q.shape[-2] - i, :], k, v) for i in blocks], -2)


def lost_tile(q: Array, k: Array, v: Array) -> Array:
    n = k.shape[-2] // 64 * 64 if q.shape[-1] > 64 and k.shape[-2] > 128 else k.shape[-2]
    return plain(q, k[..., :n, :], v[..., :n, :])


def lost_end(q: Array, k: Array, v: Array) -> Array:
    """Leave out the keys past a multiple of 48 where there are many queries, and an odd number of them."""
    odd = q.shape[-2] > 64 and q.shape[-2] % 2
    n = k.shape[-2] // 48 * 48 if odd and k.shape[-2] > 48 else k.shape[-2]
    return plain(q, k[..., :n, :], v[..., :n, :])


def wide_not_rescaled(q: Array, k: Array, v: Array) -> Array:
    return by_tiles(q, k, v, 64, rescaled=q.shape[-1] <= 64)


def scaled(c: float, where: Callable[[int, int, int], bool]) -> Callable[..., Array]:
    """Return attention whose scale is ``c`` times too large at some sizes n_q, n_k, d_k."""

    def attention(q: Array, k: Array, v: Array) -> Array:
        return plain(q, k, v, c if where(q.shape[-2], k.shape[-2], q.shape[-1]) else 1.0)

    return attention


def decides(q: Array, k: Array, v: Array) -> Array:
    """Compare data, so that residues stop at short inputs, and be wrong beyond 64 keys of 100 queries."""
    s = q @ np.swapaxes(k, -1, -2) * np.asarray(1 / np.sqrt(q.shape[-1]), q.dtype)
    if k.shape[-2] > 64 and (s.max() > 1e30).any():
        return s @ v
    return plain(q, k, v, 1.02 if k.shape[-2] > 64 and q.shape[-2] > 100 else 1.0)


def two_stages(q: Array, k: Array, v: Array) -> Array:
    """Blocks of 128 queries: full tiles of keys first, then the tile of the diagonal; a full tile is left out."""
    out = []
    for i in range(0, q.shape[-2], 128):
        rows, last = q[..., i : i + 128, :], i + k.shape[-2] - q.shape[-2]
        full = np.arange(k.shape[-2]) < max(last - 128 * (i > 128), 0)
        diagonal = (np.arange(k.shape[-2]) >= last) & (np.arange(k.shape[-2]) < last + 128)
        s = rows @ np.swapaxes(k, -1, -2) * np.asarray(1 / np.sqrt(q.shape[-1]), q.dtype)
        causal = np.arange(k.shape[-2]) <= last + np.arange(128)[:, None]
        out.append(softmax(np.where((full | diagonal) & causal, s, -np.inf)) @ v)
    return np.concatenate(out, -2)


def last_head(q: Array, k: Array, v: Array) -> Array:
    """Two heads of queries for each of keys; those of the last head are exchanged for more than 256 queries."""
    heads = [0, 0, 1, 1] if q.shape[-3] == 4 and q.shape[-2] <= 256 else [0, 0, 1, 0]
    return plain(q, k[..., heads, :, :], v[..., heads, :, :])


def wrong_stride(q: Array, k: Array, v: Array, mask: Array) -> Array:
    if k.shape[-2] > 128 and q.shape[-1] > 64:
        mask = mask.reshape(-1)[: mask.size // 64 * 64]
        mask = np.resize(mask, (q.shape[-2], k.shape[-2]))
    s = q @ np.swapaxes(k, -1, -2) * np.asarray(1 / np.sqrt(q.shape[-1]), q.dtype)
    return softmax(np.where(mask, s, np.asarray(-1e30, q.dtype))) @ v


WRONG: dict[str, tuple[Callable[..., Array], Attention, dict[str, Any]]] = {
    "each block of queries is the first": (first_block, Attention(), {}),
    "the last tile of keys is lost in wide heads": (lost_tile, Attention(), {}),
    "a scale is off where n_k > 1024": (scaled(1.02, lambda n_q, n_k, d: n_k > 1024), Attention(), {}),
    "the last keys are lost for odd n_q": (lost_end, Attention(), {}),
    "residues stop early": (decides, Attention(), {}),
    "a full tile is left out": (
        two_stages,
        Attention(causal=True),
        {"domain": Domain(multiple_of=128), "layout": "nd"},
    ),
    "the accumulator is not rescaled in wide heads": (wide_not_rescaled, Attention(), {}),
    "a scale is off where n_q > 512": (scaled(1.03, lambda n_q, n_k, d: n_q > 512), Attention(), {}),
    "a scale is off where n_q > 128": (scaled(1.02, lambda n_q, n_k, d: n_q > 128), Attention(), {}),
    "a scale is off in wide heads": (scaled(1.05, lambda n_q, n_k, d: n_k > 64 and d > 32), Attention(), {}),
    "the last head": (last_head, Attention(heads=4, kv_heads=2), {"layout": "bhnd"}),
    "a mask has a wrong stride": (wrong_stride, Attention(mask="boolean"), {"layout": "nd"}),
}
RIGHT: dict[str, tuple[Callable[..., Array], Attention, dict[str, Any]]] = {
    "tiles of 128 with a remainder": (by_tiles, Attention(), {}),
    "two paths by size": (lambda q, k, v: (by_tiles if k.shape[-2] > 200 else plain)(q, k, v), Attention(), {}),
    "multiples of 128": (by_tiles, Attention(), {"domain": Domain(multiple_of=128)}),
}


def is_found(program: Callable[..., Array], spec: Attention, **how: Any) -> bool:
    """Return whether some input shows a fault, without a search for its cause."""
    options = Options(**how)
    with options.opened(program, spec) as runner:
        return finds_fault(options.session(runner, spec))


@pytest.mark.deep
@pytest.mark.parametrize("name", WRONG)
def test_wrong_where_sizes_are_large_together(name: str) -> None:
    program, spec, how = WRONG[name]
    assert is_found(program, spec, **how)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "dtype"),
    [
        (first_block, "float16"),
        (first_block, "bfloat16"),
        (lost_tile, "float16"),
        (wide_not_rescaled, "float16"),
        (wide_not_rescaled, "bfloat16"),
    ],
)
def test_wrong_in_half_precision(program: Callable[..., Array], dtype: str) -> None:
    assert is_found(program, Attention(), dtype=dtype)


@pytest.mark.deep
@pytest.mark.parametrize("name", RIGHT)
def test_right_at_every_size(name: str) -> None:
    program, spec, how = RIGHT[name]
    report = verify(program, spec, **how)
    assert report.verdict.value == "no fault", report
    floats, residues = report.largest.floats, report.largest.residues
    assert min(floats["n_q"], floats["n_k"]) > 512
    assert min(residues["n_q"], residues["n_k"]) > 128
    assert min(floats["d_k"], residues["d_k"]) > 64


@pytest.mark.deep
def test_lengths_of_several_tiles() -> None:
    shapes: set[tuple[int, int]] = set()

    def seen(q: Array, k: Array, v: Array) -> Array:
        shapes.add((q.shape[-2], k.shape[-2]))
        return plain(q, k, v)

    verify(seen, Attention(), domain=Domain(multiple_of=128))
    assert {(128, 256), (256, 384), (384, 640), (640, 256)} <= shapes


@pytest.mark.deep
def test_residues_that_stop_settle_nothing() -> None:
    def attention(q: Array, k: Array, v: Array) -> Array:
        return plain(q, k, v) if k.shape[-2] < 64 or float(np.asarray(k).max()) < 1e9 else v

    report = verify(attention, Attention())
    assert report.largest.stages < report.largest.planned
    assert report.largest.stopped
    assert any(note.startswith("Residues stopped") for note in report.notes)
    settled = verify(plain, Attention())
    assert report.cases > 1.2 * settled.cases


@pytest.mark.parametrize(
    ("sizes", "follow"),
    [
        ({"n_q": 260, "n_k": 300, "d_k": 72}, True),
        ({"n_q": 260, "n_k": 300, "d_k": 64, "d_v": 64}, False),
        ({"n_q": 128, "n_k": 1100, "d_k": 72}, False),
        ({"n_q": 260, "n_k": 300}, True),
        ({}, False),
    ],
)
def test_the_table_of_sizes_tells_what_falls_short(sizes: dict[str, int], follow: bool) -> None:
    assert ("falls short" in written(sizes)) is not follow


@pytest.mark.exhaustive
@pytest.mark.parametrize("mistake", ["block", "tile", "scale"])
def test_log_sums_that_are_wrong_at_large_sizes_are_judged_where_few_are_large(mistake: str) -> None:
    """Bounds of all ways at 520 × 1100 × 72 would take minutes and gigabytes."""
    rows = sizes_together.rows()
    row = next(r for r in rows if (r.framework, r.name) == ("numpy", "log-sum"))
    assert sizes_together.is_found(row, mistake)


def scaled_beyond_a_tile(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Return attention and the logarithms of its sums, with scores too large beyond 128 keys."""
    factor = (1.05 if len(k) > 128 else 1) / np.sqrt(q.shape[-1])
    s = q @ k.T * np.asarray(factor, q.dtype)
    return softmax(s) @ v, np.log(np.exp(s).sum(-1))


@pytest.mark.exhaustive
def test_a_smaller_call_stands_for_a_large_one_only_where_cases_are_recorded() -> None:
    """Those who ask about one case read outputs, layouts and sizes of that case."""
    spec, options, rng = Attention(lse=True), Options(framework="numpy"), np.random.default_rng(0)
    shapes = {"q": (4, 16), "k": (260, 16), "v": (260, 16)}
    case = Case("one", "", {n: np.float64(np.float32(rng.standard_normal(s))) for n, s in shapes.items()})
    with options.opened(scaled_beyond_a_tile, spec) as runner:
        session = options.session(runner, spec)
        assert session.run_case(case).case is case
        taken = session.take(case)
    assert taken is not None
    assert taken.finding == "values"
    assert taken.case.group == "one"
    assert 2 * taken.case.size <= case.size
