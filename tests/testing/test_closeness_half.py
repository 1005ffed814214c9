"""``assert_close_to_exact`` in half precision: right kernels pass, small mistakes are found, verdicts say how sure."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Precision
from symattn.arrays.formats import Format
from symattn.errors import InputError
from symattn.testing import AttentionFault, assert_close_to_exact
from symattn.verification.sharp import elements, means
from symattn.verification.sharp.limits import Stores, factor

H, N, D = 2, 160, 40
BF16, FP16 = Format("bfloat16"), Format("float16")
CAUSAL = Attention(causal=True, heads=H)
Array = np.ndarray
Kernel = Callable[..., Array]


def normal(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    q, k, v = rng.standard_normal((3, H, N, D))
    return q, k, v


def heavy(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    q, k, v = rng.standard_t(2, (3, H, N, D)).clip(-40, 40)
    return q, k, v


def outliers(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    q, k, v = normal(rng)
    q[..., :2] *= 8
    k[..., :2] *= 4
    return q, k, v


def repeated(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    which = rng.integers(0, 8, N)
    return tuple(a[:, which] for a in normal(rng))  # type: ignore[return-value]


def near_zero(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    q, k, v = normal(rng)
    return q * 1e-3, k, v


def same_sign(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    q, k, v = normal(rng)
    return q, k, 1 + 0.01 * v


def both(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    q, k, v = near_zero(rng)
    return q, k, 1 + 0.1 * v


def whole(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    q, k, v = rng.integers(-2, 3, (3, H, N, D)).astype(float)
    return q, k, v


def padded(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    q, k, v = normal(rng)
    for a in (q, k, v):
        a[:, N // 2 :] = 0
    return q, k, v


INPUTS = (normal, heavy, outliers, repeated, near_zero, same_sign, both, whole, padded)


def made(f: Format, inputs: Any, seed: int = 0) -> tuple[Array, Array, Array]:
    """Inputs as float64 whose numbers are of the format."""
    return tuple(f.rounded(a) for a in inputs(np.random.default_rng(seed)))  # type: ignore[return-value]


def scores(q: Array, k: Array, f: Format | None = None) -> Array:
    s = (q.astype(np.float32) @ k.swapaxes(-1, -2).astype(np.float32)).astype(float)
    s = s if f is None else f.rounded(s)
    s = s * np.float32(1 / sqrt(q.shape[-1]))
    return masked(s if f is None else f.rounded(s))


def masked(s: Array) -> Array:
    return np.where(np.tri(*s.shape[-2:], s.shape[-1] - s.shape[-2], dtype=bool), s, -np.inf)


def online(s: Array, v: Array, f: Format, tile: int = 64) -> Array:
    """Weights stored relative to the largest score so far."""
    m, total, out = np.full((*s.shape[:-1], 1), -np.inf), 0.0, 0.0
    for at in range(0, s.shape[-1], tile):
        now = s[..., at : at + tile]
        new = np.maximum(m, now.max(-1, keepdims=True))
        e, kept = np.exp(now - new).astype(np.float32), np.exp(m - new)
        total = total * kept + e.sum(-1, keepdims=True)
        out = (out * kept + f.rounded(e) @ v[..., at : at + tile, :]).astype(np.float32)
        m = new
    return f.rounded(out / total)


def weights(s: Array) -> Array:
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def wide(q: Array, k: Array, v: Array, f: Format) -> Array:
    return f.rounded(weights(scores(q, k)) @ v)


def tiles(q: Array, k: Array, v: Array, f: Format) -> Array:
    return online(scores(q, k), v, f)


def eager(q: Array, k: Array, v: Array, f: Format) -> Array:
    return f.rounded(f.rounded(weights(scores(q, k, f))) @ v)


def scaled_first(q: Array, k: Array, v: Array, f: Format) -> Array:
    return online(masked(f.rounded(q / sqrt(q.shape[-1])) @ k.swapaxes(-1, -2)), v, f)


def roots(q: Array, k: Array, v: Array, f: Format) -> Array:
    root = q.shape[-1] ** -0.25
    return online(masked(f.rounded(q * root) @ f.rounded(k * root).swapaxes(-1, -2)), v, f)


KERNELS = (wide, tiles, eager, scaled_first, roots)


def words(*given: Any, **told: Any) -> str:
    with pytest.raises(AttentionFault) as fault:
        assert_close_to_exact(*given, **told)
    return str(fault.value)


@pytest.mark.parametrize("f", [BF16, FP16], ids=lambda f: f.name)
@pytest.mark.parametrize("inputs", INPUTS, ids=lambda i: i.__name__)
def test_right_kernels_pass(f: Format, inputs: Any) -> None:
    q, k, v = made(f, inputs)
    for kernel in KERNELS:
        assert_close_to_exact(kernel(q, k, v, f), q, k, v, CAUSAL, precision=f.name)
    for kernel in (wide, tiles):
        assert_close_to_exact(kernel(q, k, v, f), q, k, v, CAUSAL, precision=f.name, contract="fused")


@pytest.mark.parametrize("f", [BF16, FP16], ids=lambda f: f.name)
def test_a_twentieth_of_the_tolerance_is_too_little(f: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = elements.Block.tolerance
    monkeypatch.setattr(elements.Block, "tolerance", lambda *given: whole(*given) / 20)
    monkeypatch.setattr(elements, "GUARD", np.inf)
    q, k, v = made(f, normal)
    assert "beyond rounding to nearest" in words(eager(q, k, v, f), q, k, v, CAUSAL, precision=f.name)


def test_verdicts_say_how_sure_they_are() -> None:
    q, k, v = made(BF16, normal)
    out = tiles(q, k, v, BF16)
    out[1, 150, 3] += 0.06
    text = words(out, q, k, v, CAUSAL, precision="bfloat16")
    assert text.startswith("1 of 12800 elements is beyond rounding to nearest in bfloat16\nThe worst is out[1, 150, 3]")
    assert "probability of at most 1e-09, if roundings to nearest are independent" in text
    assert "certifies" not in text
    assert_close_to_exact(out, q, k, v, CAUSAL, precision="bfloat16", alpha=None)
    assert_close_to_exact(out, q, k, v, CAUSAL, precision=Precision.of("bfloat16"))
    out[1, 150, 3] += 3
    text = words(out, q, k, v, CAUSAL, precision="bfloat16", contract="fused")
    assert "beyond what any implementation in bfloat16 can give" in text
    assert "the worst-case bound certifies" in text
    assert "rounding to nearest" not in text


def lost(s: Array, key: int) -> Array:
    s = s.copy()
    s[..., key + 1 :, key] = -np.inf
    return s


def shifted(s: Array, raw: Array, by: int) -> Array:
    """The causal edge moved, for the last quarter of the rows."""
    moved = np.where(np.tri(N, k=by, dtype=bool), raw, -np.inf)
    return np.where(np.arange(N)[:, None] >= 3 * N // 4, moved, s)


WRONG: dict[str, Callable[[Array, Array], Array]] = {
    "scaled by 1.01": lambda s, raw: s * 1.01,
    "capped at 15": lambda s, raw: np.where(np.isfinite(s), 15 * np.tanh(raw / 15), s),
    "a key lost": lambda s, raw: lost(s, N // 2),
    "the last key lost": lambda s, raw: np.where(np.eye(N, dtype=bool) & (np.arange(N) == N - 1), -np.inf, s),
    "edge −1": lambda s, raw: shifted(s, raw, -1),
    "edge +1": lambda s, raw: shifted(s, raw, 1),
}


@pytest.mark.parametrize("f", [BF16, FP16], ids=lambda f: f.name)
@pytest.mark.parametrize("wrong", WRONG)
def test_small_mistakes_are_found(f: Format, wrong: str) -> None:
    q, k, v = made(f, normal, 1)
    raw = (q @ k.swapaxes(-1, -2)) / sqrt(D)
    out = online(WRONG[wrong](masked(raw), raw), v, f)
    assert "beyond" in words(out, q, k, v, CAUSAL, precision=f.name, contract="fused")
    if wrong != "capped at 15":  # stored scores hide it from 160 keys in bfloat16
        assert "beyond" in words(out, q, k, v, CAUSAL, precision=f.name)


def test_means_say_what_they_look_like() -> None:
    q, k, v = made(BF16, normal, 1)
    out = online(scores(q, k) * np.float32(1.005), v, BF16)
    text = words(out, q, k, v, CAUSAL, precision="bfloat16", contract="fused")
    assert re.search(r"^Weighted means of the output \(of all rows\) are beyond rounding to nearest in bfloat16", text)
    found = re.search(r"as if scores were scaled by ([\d.]+) ± ([\d.]+) of the scale; every element is within", text)
    assert found is not None
    assert abs(float(found[1]) - 1.005) < float(found[2]) < 0.005


def test_a_twentieth_of_the_limit_of_means_is_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "factor", lambda count, alpha: factor(count, alpha) / 20)
    monkeypatch.setattr(means, "GUARD", np.inf)
    q, k, v = made(FP16, normal)
    assert "Weighted means" in words(tiles(q, k, v, FP16), q, k, v, CAUSAL, precision="float16", contract="fused")


def test_no_mean_is_judged_where_replays_need_a_third(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "GUARD", 0.0)
    q, k, v = made(BF16, normal, 1)
    out = online(scores(q, k) * np.float32(1.005), v, BF16)
    assert_close_to_exact(out, q, k, v, CAUSAL, precision="bfloat16", contract="fused")


def test_some_rows_alone_are_judged() -> None:
    q, k, v = made(FP16, normal)
    out = tiles(q, k, v, FP16)
    out[0, 100] = 5
    spec = Attention(causal=True, window=(30, 0), heads=H)
    assert_close_to_exact(tiles(q, k, v, FP16), q, k, v, CAUSAL, precision="float16", rows=12)
    assert_close_to_exact(out, q, k, v, CAUSAL, precision="float16", rows=[3, 99, 101])
    for precision in ("float16", "float32"):
        text = words(out, q, k, v, CAUSAL, precision=precision, rows=[3, 100, 120], alpha=None)
        assert "The worst is out[0, 100, " in text
    assert "beyond" in words(tiles(q, k, v, FP16), q, k, v, spec, precision="float16", rows=2)
    for rows in ([160], [], 0):
        with pytest.raises(InputError, match="rows"):
            assert_close_to_exact(out, q, k, v, CAUSAL, precision="float16", rows=rows)
    with pytest.raises(InputError, match="mend: leave rows out"):
        assert_close_to_exact(out, q, k, v, Attention(softcap=5.0, heads=H), precision="float16", rows=3)


def test_edges_are_always_among_the_rows() -> None:
    from symattn.verification.sharp.sample import chosen

    q = np.zeros((1000, 4))
    spec = Attention(causal=True, window=(300, 0), documents=True)
    rows = chosen(spec, {"q": q, "k": q, "v": q, "doc": np.repeat([0, 1], [400, 600])}, 40)
    assert {0, 999, 300, 301, 302, 399, 400} <= set(rows)
    assert len(rows) <= 44
    assert {63, 64, 959, 960} & set(rows)


def test_what_the_filter_speaks_of() -> None:
    assert Stores.of(Precision.of("float32"), wide_sums=True) is None
    assert Stores.of(Precision.of("float16", "eager")) is None
    assert Stores.of(Precision.of("float16", "fused", "fp22")) is None
    with pytest.raises(InputError, match="alpha"):
        assert_close_to_exact(*(np.ones((2, 2), np.float16),) * 4, alpha=2.0)
