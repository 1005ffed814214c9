"""Many keys in half precision: read in parts and in float32, they give the verdicts that they give at once."""

import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.formats import Format
from symattn.bounds.sharp import means, rows_in_float64
from symattn.bounds.sharp.limits import Stores
from symattn.testing import AttentionFault, assert_close_to_exact
from tests.testing.half_kernels import Array, made, normal, online, scores, tiles

BF16, FP16 = Format("bfloat16"), Format("float16")
SHAPE = (2, 160, 40)
SPECS = {
    "causal": Attention(causal=True),
    "no mask": Attention(),
    "a cap": Attention(causal=True, softcap=20.0),
    "base 2": Attention(base=2, scale=0.3),
    "a scale of 1": Attention(scale=1, window=(30, 0), causal=True),
}


def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 50 keys, blocks of 8 rows, and no head kept."""
    monkeypatch.setattr(rows_in_float64, "_KEYS", 50)
    monkeypatch.setattr(rows_in_float64, "_SCORES", 1)
    monkeypatch.setattr(means, "_KEPT", 1)


def narrow(*arrays: Array) -> list[Any]:
    return [a.astype(ml_dtypes.bfloat16) for a in arrays]


@pytest.mark.parametrize("name", SPECS)
def test_parts_of_the_keys_give_the_block(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every array of it, within what float64 does, and the noise within what float32 does."""
    q, k, v = (a[0] for a in made(BF16, normal, SHAPE))

    def block(kind: type[np.floating[Any]]) -> rows_in_float64.QueryBlock:
        given = {"q": q.astype(kind), "k": k.astype(kind), "v": v.astype(kind)}
        spec, (head,), _ = rows_in_float64.every_head(SPECS[name], given)
        return rows_in_float64.block(spec, head, np.arange(160))

    whole = block(np.float64)
    in_parts(monkeypatch)
    some = block(np.float32)
    assert some.values.dtype == np.float32
    assert some.o.dtype == some.t.dtype == np.float64
    assert (np.abs(some.o - whole.o) <= whole.error).all()
    for field in ("t", "raw", "free", "p"):
        assert np.allclose(getattr(some, field), getattr(whole, field), rtol=1e-12, atol=1e-14)
    how = Stores(BF16, 2)
    for one, other in zip(some.noise(how), whole.noise(how), strict=True):
        assert np.allclose(one, other, rtol=1e-5, atol=0)
    assert np.allclose(some.lawless(how), whole.lawless(how), rtol=1e-5)


def words(out: Array, *given: Array, **told: Any) -> str:
    try:
        assert_close_to_exact(*narrow(out, *given), Attention(causal=True, heads=2), **told)
    except AttentionFault as fault:
        return str(fault)
    return ""


@pytest.mark.deep
@pytest.mark.parametrize("rows", [None, 24])
def test_verdicts_are_the_same(rows: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A right kernel, a scale that is 1 % off, which means show, and a lost key, which elements do."""
    q, k, v = made(BF16, normal, SHAPE, 1)
    right, s = tiles(q, k, v, BF16), scores(q, k, True)
    lost = s.copy()
    lost[..., 81:, 80] = -np.inf
    outs = [right, online(s * np.float32(1.005), v, BF16), online(lost, v, BF16)]
    told: dict[str, Any] = {"rows": rows, "contract": "fused"}
    before = [words(out, q, k, v, **told) for out in outs]
    assert before[0] == ""
    assert all(before[1:]) or rows
    in_parts(monkeypatch)
    assert [words(out, q, k, v, **told).split("\n")[0] for out in outs] == [text.split("\n")[0] for text in before]


def peak(out: Any, q: Any, k: Any, v: Any, rows: list[int]) -> int:
    tracemalloc.start()
    try:
        assert_close_to_exact(out, q, k, v, Attention(causal=True, heads=4), rows=rows)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.deep
def test_memory_is_that_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 heads, 6000 keys, 48 rows: 8 rows of a head at a time, against all of them kept."""
    rng, rows = np.random.default_rng(0), list(range(0, 6000, 125))
    q, k, v = narrow(*(rng.standard_normal((4, 6000, 16)) for _ in range(3)))
    wide = [a.astype(np.float64) for a in (q[:, rows], k, v)]
    s = np.where(np.arange(6000) <= np.array(rows)[:, None], wide[0] @ wide[1].mT / 4, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    out = np.zeros(q.shape, ml_dtypes.bfloat16)
    out[:, rows] = (e / e.sum(-1, keepdims=True) @ wide[2]).astype(ml_dtypes.bfloat16)
    kept = peak(out, q, k, v, rows)
    in_parts(monkeypatch)
    assert peak(out, q, k, v, rows) < 0.5 * kept
