"""``power`` of ``assert_close_to_exact``: what would be detected; many keys, read in parts, give the same verdicts."""

import re
import tracemalloc
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np
import pytest

from symattn import Attention, InputError, testing
from symattn.arrays.formats import Format
from symattn.bounds.sharp import means, rows_in_float64
from symattn.bounds.sharp.elements import Accused
from symattn.bounds.sharp.limits import Stores
from symattn.testing import AttentionFault, assert_close_to_exact
from tests.testing.half_kernels import Array, made, normal, online, scores, tiles

FP16 = Format("float16")
H, N, D = 2, 160, 40
CAUSAL = Attention(causal=True, heads=H)
Q, K, V = made(FP16, normal, (H, N, D), 1)
RIGHT = tiles(Q, K, V, FP16)


def asked(out: Array = RIGHT, power: Any = None, spec: Attention = CAUSAL, **told: Any) -> tuple[str, tuple[Any, ...]]:
    """What is wrong, and what would be detected; scores are not stored unless told."""
    how: dict[str, Any] = {"precision": "float16", "contract": "fused", "alpha": 1e-9, "rows": None, **told}
    heard: list[tuple[Any, ...]] = []
    with patch.object(testing.settings, "seek", heard.append):
        try:
            assert_close_to_exact(out, Q, K, V, spec, power=power or {"scale": 0.003}, **how)
        except AttentionFault as fault:
            return str(fault), heard[0]
    return "", heard[0]


def rows_read(found: tuple[Any, ...]) -> int:
    told = re.match(r"in (\d+) of 160 rows of each of 2 heads, 160 keys$", found[0].how)
    assert told is not None
    return int(told[1])


@pytest.mark.deep
def test_what_is_asked_for_would_be_seen() -> None:
    words, found = asked()
    assert not words
    assert found[0].words == "a scale that is 0.3 % off"
    assert 60 <= rows_read(found) <= 160
    assert_close_to_exact(RIGHT, Q, K, V, CAUSAL, precision="float16", power={"scale": 0.01})


def test_what_would_be_seen_is_seen() -> None:
    """The same comparison accuses kernels of its own that have the mistake."""
    for by in (0.997, 1.003):
        out = online(scores(Q, K, True) * np.float32(by), V, FP16)
        with pytest.raises(AttentionFault, match="beyond"):
            assert_close_to_exact(out, Q, K, V, CAUSAL, precision="float16", contract="fused", power={"scale": 0.003})


@pytest.mark.deep
def test_more_rows_are_read_until_it_would_be() -> None:
    counts = [rows_read(asked(power={"scale": share}, rows=8)[1]) for share in (0.02, 0.0005)]
    assert 8 <= counts[0] < counts[1] <= 160


def test_an_output_is_judged_on_every_row_that_is_read() -> None:
    """A wrong row that the first look leaves out is found as soon as a power makes more rows be read."""
    out = RIGHT.copy()
    out[1, 101] += 1
    told: dict[str, Any] = {"precision": "float16", "contract": "fused", "rows": 8}
    assert_close_to_exact(out, Q, K, V, CAUSAL, **told)
    with pytest.raises(AttentionFault, match=r"The worst is out\[1, 101, "):
        assert_close_to_exact(out, Q, K, V, CAUSAL, power={"scale": 0.0003}, **told)


@pytest.mark.deep
def test_a_power_that_is_not_there_fails() -> None:
    with pytest.raises(AttentionFault) as fault:
        assert_close_to_exact(RIGHT, Q, K, V, CAUSAL, precision="float16", power={"scale": 0.0003})
    lines = str(fault.value).splitlines()
    assert lines[0] == "No fault was found, but a scale that is 0.03 % off would not be detected"
    assert re.fullmatch(
        r"The limits of roundings to nearest in 160 of 160 rows of each of 2 heads, 160 keys allow as much;"
        r" from 0\.\d+ % on it would be detected",
        lines[1],
    )
    assert lines[2] == "A scale stored in float16, which is allowed, has an error of 0.021 %"
    assert lines[3].startswith("Hint: contract='fused' where scores are in float32, more heads or tokens")


def test_rows_that_are_named_are_all_that_is_read() -> None:
    words, found = asked(power={"scale": 0.0007}, rows=[3, 100])
    assert not found[0].seen
    assert "in 2 of 160 rows" in words
    assert "Hint: rows as a number" in words


@pytest.mark.deep
def test_memory_limits_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symattn.programs.sensitivity._CELLS", H * N * 20)
    words, _ = asked(power={"scale": 0.0005}, rows=8)
    assert re.search(r"in 1\d of 160 rows .*\nHint: fewer heads in a call", words)


def test_in_float32_the_worst_case_decides() -> None:
    out = np.asarray(CAUSAL(q=Q, k=K, v=V)).astype(np.float32)
    told: dict[str, Any] = {"precision": "float32", "contract": None}
    words, found = asked(out, {"scale": 0.01, "normalize": 0.01}, **told)
    assert not words
    assert [one.step for one in found] == ["scale", "normalize"]
    words, _ = asked(out, {"scale": 1e-6}, **told)
    assert "The worst case in 160 of 160 rows of each of 2 heads, 160 keys allows as much; from " in words


def test_the_worst_case_alone_is_blunt() -> None:
    words, _ = asked(power={"scale": 0.01}, alpha=None, contract=None)
    assert "The worst case in " in words
    assert "alpha where it is None" in words


def test_a_blind_comparison_has_no_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where means and elements accuse nothing, nothing would be detected, whatever is asked for."""
    monkeypatch.setattr("symattn.bounds.sharp.means.judged", lambda *given, **told: None)
    nothing = Accused(0, (), (0, 0), 1.0, lambda: 0.0, 0.0, 0.0)
    monkeypatch.setattr("symattn.bounds.sharp.elements.judged", lambda *given: nothing)
    words, _ = asked(power={"scale": 0.003})
    assert words.startswith("No fault was found, but a scale that is 0.3 % off would not be detected")


WRONG: list[tuple[Any, str]] = [
    ({}, "hint: parts of numbers by steps"), ([1], "hint: parts of numbers by steps"),
    ({"mask": 0.1}, "power: 'mask' has no number in this attention"),
    ({"scale": 2}, "must be a number between 0 and 1, such as 0.001, got 2"),
]  # fmt: skip


@pytest.mark.parametrize(("power", "says"), WRONG)
def test_what_cannot_be_asked_for(power: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        assert_close_to_exact(RIGHT, Q, K, V, CAUSAL, precision="float16", power=power)


def test_packed_sequences_have_no_power() -> None:
    with pytest.raises(InputError, match="a call for each sequence"):
        assert_close_to_exact(RIGHT, Q, K, V, CAUSAL, precision="float16", power={"scale": 0.1}, cu_seqlens=[0, N])


B16 = Format("bfloat16")
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
    q, k, v = (a[0] for a in made(B16, normal, SHAPE))

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
    how = Stores(B16, 2)
    for one, other in zip(some.noise(how), whole.noise(how), strict=True):
        assert np.allclose(one, other, rtol=1e-5, atol=0)
    assert np.allclose(some.lawless(how), whole.lawless(how), rtol=1e-5)


def said(out: Array, *given: Array, **told: Any) -> str:
    try:
        assert_close_to_exact(*narrow(out, *given), Attention(causal=True, heads=2), **told)
    except AttentionFault as fault:
        return str(fault)
    return ""


@pytest.mark.deep
@pytest.mark.parametrize("rows", [None, 24])
def test_verdicts_are_the_same(rows: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A right kernel, a scale that is 1 % off, which means show, and a lost key, which elements do."""
    q, k, v = made(B16, normal, SHAPE, 1)
    right, s = tiles(q, k, v, B16), scores(q, k, True)
    lost = s.copy()
    lost[..., 81:, 80] = -np.inf
    outs = [right, online(s * np.float32(1.005), v, B16), online(lost, v, B16)]
    told: dict[str, Any] = {"rows": rows, "contract": "fused"}
    before = [said(out, q, k, v, **told) for out in outs]
    assert before[0] == ""
    assert all(before[1:]) or rows
    in_parts(monkeypatch)
    assert [said(out, q, k, v, **told).split("\n")[0] for out in outs] == [text.split("\n")[0] for text in before]


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
