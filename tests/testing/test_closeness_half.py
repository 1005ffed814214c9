"""``assert_close_to_exact`` in half precision: right kernels pass, small mistakes are found, verdicts say how sure."""

import re
from collections.abc import Callable
from math import log, sqrt
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, Precision
from symattn.arrays.formats import Format
from symattn.bounds.sharp import elements, means, rows_in_float64
from symattn.bounds.sharp.elements import Accused
from symattn.bounds.sharp.limits import Stores
from symattn.bounds.sharp.rows_in_float64 import block, every_head
from symattn.testing import assert_close_to_exact
from tests.refusals import refuses
from tests.testing.half_kernels import (
    INPUTS,
    KERNELS,
    Array,
    eager,
    made,
    masked,
    normal,
    online,
    scores,
    tiles,
    weights,
    wide,
    words,
)

H, N, D = 2, 160, 40
BF16, FP16 = Format("bfloat16"), Format("float16")
CAUSAL = Attention(causal=True, heads=H)
SHAPE = (H, N, D)


@pytest.mark.parametrize("f", [BF16, FP16], ids=lambda f: f.name)
@pytest.mark.parametrize("inputs", INPUTS, ids=lambda i: i.__name__)
def test_right_kernels_pass(f: Format, inputs: Any) -> None:
    q, k, v = made(f, inputs, SHAPE)
    for kernel in KERNELS:
        assert_close_to_exact(kernel(q, k, v, f), q, k, v, CAUSAL, precision=f.name)
    for kernel in (wide, tiles):
        assert_close_to_exact(kernel(q, k, v, f), q, k, v, CAUSAL, precision=f.name, contract="fused")


@pytest.mark.deep
@pytest.mark.parametrize("f", [BF16, FP16], ids=lambda f: f.name)
def test_a_twentieth_of_the_tolerance_is_too_little(f: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows_in_float64.QueryBlock.tolerance
    monkeypatch.setattr(rows_in_float64.QueryBlock, "tolerance", lambda *given: whole(*given) / 20)
    monkeypatch.setattr(elements, "GUARD", np.inf)
    q, k, v = made(f, normal, SHAPE)
    assert "beyond rounding to nearest" in words(eager(q, k, v, f), q, k, v, CAUSAL, precision=f.name)


def stored_sum(q: Array, k: Array, v: Array, f: Format) -> Array:
    """As ``tiles``, but the sum of the weights is stored after every 16 keys."""
    s = scores(q, k, True)
    e, total = np.exp(s - s.max(-1, keepdims=True)), np.zeros((*s.shape[:-1], 1))
    for at in range(0, s.shape[-1], 16):
        total = f.rounded(total + e[..., at : at + 16].sum(-1, keepdims=True))
    return f.rounded(f.rounded(e) @ v / total)


@pytest.mark.deep
@pytest.mark.parametrize("f", [BF16, FP16], ids=lambda f: f.name)
def test_a_sum_that_is_stored_is_seen_in_squares(f: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = made(f, normal, SHAPE)
    out = stored_sum(q, k, v, f)
    told = words(out, q, k, v, CAUSAL, precision=f.name, contract="fused")
    assert "(row by row, their squares summed)" in told
    assert "as if outputs were scaled by 1.00" in told
    assert_close_to_exact(out, q, k, v, CAUSAL, precision=f.name, contract="eager")
    monkeypatch.setattr(means, "MOST", 0.0)
    assert_close_to_exact(out, q, k, v, CAUSAL, precision=f.name, contract="fused")


@pytest.mark.deep
def test_forbidden_scores_that_are_finite_are_named() -> None:
    q, k, v = made(BF16, normal, SHAPE)
    s = scores(q, k, True, BF16)

    def filled(by: float) -> Array:
        return BF16.rounded(BF16.rounded(weights(np.where(np.isfinite(s), s, by))) @ v)

    assert "from −10.4 to −9.7" in words(filled(-10.0), q, k, v, CAUSAL, precision="bfloat16")
    assert_close_to_exact(filled(-30.0), q, k, v, CAUSAL, precision="bfloat16")


@pytest.mark.deep
def test_verdicts_say_how_sure_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = made(BF16, normal, SHAPE)
    out = tiles(q, k, v, BF16)
    _, heads, _ = every_head(CAUSAL, {"q": q, "k": k, "v": v})
    b, how = block(CAUSAL, heads[1], np.arange(N)), Stores(BF16, 2)
    sharp, lawless = b.tolerance(how, sqrt(2 * log(2 * out.size / 5e-10))), b.lawless(how)
    i, c = (int(x) for x in np.unravel_index((lawless / sharp).argmax(), sharp.shape))
    out[1, i, c] = b.o[i, c] + (sharp + lawless)[i, c] / 2
    text = words(out, q, k, v, CAUSAL, precision="bfloat16")
    assert text.startswith(
        f"1 of 12800 elements is beyond rounding to nearest in bfloat16\nThe worst is out[1, {i}, {c}]"
    )
    assert "probability of at most 1e-09, if roundings to nearest are independent" in text
    assert "certifies" not in text
    out[1, i, c] = b.o[i, c] + 2 * lawless[i, c]
    with monkeypatch.context() as patched:
        # What is certain without the law of rounding is said without its replays.
        patched.setattr(elements, "replays", None)
        text = words(out, q, k, v, CAUSAL, precision="bfloat16")
    assert text.startswith("1 of 12800 elements is beyond all roundings together in bfloat16")
    assert "however they fall, if sums are taken in float32" in text
    assert "probability" not in text
    assert_close_to_exact(out, q, k, v, CAUSAL, precision="bfloat16", alpha=None)
    assert_close_to_exact(out, q, k, v, CAUSAL, precision=Precision.of("bfloat16"))
    out[1, i, c] += 3
    text = words(out, q, k, v, CAUSAL, precision="bfloat16", contract="fused")
    assert "beyond what any implementation in bfloat16 that keeps scores and sums in float32 can give" in text
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


@pytest.mark.deep
@pytest.mark.parametrize("f", [BF16, FP16], ids=lambda f: f.name)
@pytest.mark.parametrize("wrong", WRONG)
def test_small_mistakes_are_found(f: Format, wrong: str) -> None:
    q, k, v = made(f, normal, SHAPE, 1)
    raw = (q @ k.swapaxes(-1, -2)) / sqrt(D)
    out = online(WRONG[wrong](masked(raw), raw), v, f)
    assert "beyond" in words(out, q, k, v, CAUSAL, precision=f.name, contract="fused")
    if wrong != "capped at 15":  # stored scores hide it from 160 keys in bfloat16
        assert "beyond" in words(out, q, k, v, CAUSAL, precision=f.name)


@pytest.mark.deep
@pytest.mark.parametrize("f", [BF16, FP16], ids=lambda f: f.name)
def test_a_cap_that_is_ignored_is_found(f: Format) -> None:
    q, k, v = made(f, normal, SHAPE, 1)
    cap = 25.0 if f is BF16 else 30.0  # in bfloat16 a constant for the scale, 2e-3 off, looks like no cap of 30
    capped = Attention(causal=True, heads=H, softcap=cap)
    right = np.where(np.isfinite(scores(q, k, True)), cap * np.tanh(scores(q, k, False) / cap), -np.inf)
    for contract in (None, "fused"):
        assert_close_to_exact(online(right, v, f), q, k, v, capped, precision=f.name, contract=contract)
    text = words(tiles(q, k, v, f), q, k, v, capped, precision=f.name, contract="fused")
    assert "beyond" in text
    if f is BF16:
        assert "as if the cap were ignored, to a part of " in text


LOOKS: dict[str, tuple[Callable[[Array], Array], str]] = {
    "a scale": (lambda s: s * 1.3, "The worst rows are as if scores were scaled by 1.2"),
    "a head": (
        lambda s: np.concatenate([s[:1], s[1:] * 1.2]),
        "The worst rows, head [1], are as if scores were scaled by 1.19",
    ),
    "the last key": (
        lambda s: np.where(np.eye(N, dtype=bool) & (np.arange(N) > 0), -np.inf, s),
        "as if the last key that is allowed were lost",
    ),
    "keys": (
        lambda s: np.where(np.arange(N) // 64 == 1, np.where(np.arange(N)[:, None] < 130, s, -np.inf), s),
        "as if keys 64 to 127 were lost",
    ),
    "heads in another order": (lambda s: s[::-1], ""),
}


@pytest.mark.deep
@pytest.mark.parametrize("f", [BF16, FP16], ids=lambda f: f.name)
@pytest.mark.parametrize("wrong", LOOKS)
def test_wrong_elements_are_told_with_the_mistake_that_explains_them(f: Format, wrong: str) -> None:
    change, told = LOOKS[wrong]
    q, k, v = made(f, normal, SHAPE, 1)
    text = words(online(change(scores(q, k, True)), v, f), q, k, v, CAUSAL, precision=f.name)
    assert "beyond" in text
    assert told in text
    assert bool(told) == (" as if " in text)


@pytest.mark.deep
def test_one_head_alone_may_be_wrong() -> None:
    q, k, v = made(FP16, normal, SHAPE, 1)
    out, s = tiles(q, k, v, FP16), scores(q, k, True)
    out[1] = online(lost(s, N // 2), v, FP16)[1]
    assert "The worst is out[1, " in words(out, q, k, v, CAUSAL, precision="float16")
    out = tiles(q, k, v, FP16)
    out[0] = online(s * np.float32(1.0008), v, FP16)[0]
    assert "head [0]" in words(out, q, k, v, CAUSAL, precision="float16", contract="fused")


@pytest.mark.deep
def test_means_say_what_they_look_like() -> None:
    q, k, v = made(BF16, normal, SHAPE, 1)
    out = online(scores(q, k, True) * np.float32(1.005), v, BF16)
    text = words(out, q, k, v, CAUSAL, precision="bfloat16", contract="fused")
    assert re.search(r"^Weighted means of the output \(of all rows\) are beyond rounding to nearest in bfloat16", text)
    found = re.search(r"as if scores were scaled by ([\d.]+) ± ([\d.]+) of the scale; every element is within", text)
    assert found is not None
    assert abs(float(found[1]) - 1.005) < float(found[2]) < 0.005


@pytest.mark.deep
def test_what_only_stored_scores_make_legal_is_told() -> None:
    q, k, v = made(BF16, normal, SHAPE, 1)
    right, off = (online(scores(q, k, True) * np.float32(by), v, BF16) for by in (1, 1.005))
    assert assert_close_to_exact(right, q, k, v, CAUSAL, precision="bfloat16") is None
    told = assert_close_to_exact(off, q, k, v, CAUSAL, precision="bfloat16")
    assert told is not None
    assert told.startswith('A kernel that does not store scores could not give this: contract="fused"\nWeighted means')
    rows = assert_close_to_exact(off, q, k, v, CAUSAL, precision="bfloat16", rows=[3, 4])
    assert rows is None
    fused = words(off, q=q, k=k, v=v, spec=CAUSAL, precision="bfloat16", contract="fused")
    assert fused.endswith("It passes with contract=None, where scores may be stored in bfloat16")
    assert assert_close_to_exact(off, q, k, v, CAUSAL, precision="bfloat16", alpha=None) is None
    eager_too = Precision.of("bfloat16", accumulate="float32")
    assert assert_close_to_exact(off, q, k, v, CAUSAL, precision=eager_too) is None


@pytest.mark.deep
@pytest.mark.parametrize("spec", [CAUSAL, Attention(causal=True, alignment="top-left", heads=H)])
def test_another_alignment_that_explains_all_is_told(spec: Attention) -> None:
    q, k, v = made(BF16, normal, SHAPE)
    offset = N - 50 if spec.alignment == "top-left" else 0
    s = np.where(np.tri(50, N, offset, dtype=bool), scores(q[:, :50], k, False), -np.inf)
    out = BF16.rounded(weights(s) @ v)
    other = "bottom-right" if spec.alignment == "top-left" else "top-left"
    given: dict[str, Any] = {"q": q[:, :50], "k": k, "v": v, "spec": spec, "precision": "bfloat16"}
    assert words(out, **given).endswith(f'It passes with alignment="{other}"')
    out[1, 2, 3] += 3
    assert "alignment" not in words(out, **given)


@pytest.mark.deep
def test_a_twentieth_of_the_limit_of_means_is_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = means.factor
    monkeypatch.setattr(means, "factor", lambda *given: whole(*given) / 20)
    monkeypatch.setattr(means, "GUARD", np.inf)
    q, k, v = made(FP16, normal, SHAPE)
    assert "Weighted means" in words(tiles(q, k, v, FP16), q, k, v, CAUSAL, precision="float16", contract="fused")


@pytest.mark.deep
def test_means_beyond_all_roundings_need_no_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "GUARD", 0.0)
    monkeypatch.setattr(elements, "judged", lambda *given: Accused(0, (), (0, 0), 1.0, lambda: 0.0, 0.0, 0.0))
    q, k, v = made(BF16, normal, SHAPE, 1)
    out = online(scores(q, k, True) * np.float32(1.03), v, BF16)
    text = words(out[..., 20:, :], q[..., 20:, :], k, v, CAUSAL, precision="bfloat16", contract="fused")
    assert text.startswith("Weighted means of the output (of all rows) are beyond all roundings together in bfloat16, ")
    assert "Roundings can do no more than 0." in text


@pytest.mark.deep
def test_no_mean_is_judged_where_replays_need_a_third(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "GUARD", 0.0)
    q, k, v = made(BF16, normal, SHAPE, 1)
    out = online(scores(q, k, True) * np.float32(1.005), v, BF16)
    assert_close_to_exact(out, q, k, v, CAUSAL, precision="bfloat16", contract="fused")


@pytest.mark.deep
def test_some_rows_alone_are_judged() -> None:
    q, k, v = made(FP16, normal, SHAPE)
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
        refuses(assert_close_to_exact, out, q, k, v, CAUSAL, precision="float16", rows=rows, says="rows")
    with pytest.raises(InputError, match="hint: judge all rows"):
        assert_close_to_exact(out, q, k, v, Attention(normaliser="sigmoid", heads=H), precision="float16", rows=3)


def test_the_worst_row_need_not_be_the_first() -> None:
    """Each row is held by the worst case to the keys that it sees, not to those of another."""
    q, k, v = made(FP16, normal, SHAPE)
    out, (_, heads, _) = tiles(q, k, v, FP16), every_head(CAUSAL, {"q": q, "k": k, "v": v})
    b = block(CAUSAL, heads[0], np.arange(N))
    sharp = b.tolerance(Stores(FP16, 2), sqrt(2 * log(2 * out.size / 5e-10)))
    for row, times in ((155, 1.02), (156, 1.03), (158, 1.02)):
        out[0, row, 3] = b.o[row, 3] + times * sharp[row, 3]
    text = words(out, q, k, v, CAUSAL, precision="float16")
    assert " beyond rounding to nearest in float16\nThe worst is out[0, 156, 3]" in text


@pytest.mark.deep
@pytest.mark.parametrize("f", [BF16, pytest.param(FP16, marks=pytest.mark.exhaustive)], ids=lambda f: f.name)
def test_the_scale_may_be_a_constant_of_the_format(f: Format) -> None:
    """Rounded itself, as √d_k and 1 over that again, or with log₂ e in it; but it may not be 1 % off."""
    q, k, v = made(f, normal, (2, 400, 56))
    raw, scale = q @ k.mT, 1 / sqrt(56)
    near, root, with_log = (float(f.rounded(np.array(x))) for x in (scale, sqrt(56), scale / np.log(2)))
    twice = float(f.rounded(np.array(1 / root)))
    for stored in (near, 1 / root, twice, with_log * np.log(2)):
        out = online(masked(raw * stored), v, f)
        assert_close_to_exact(out, q, k, v, CAUSAL, precision=f.name, contract="fused")
    out = online(masked(raw * scale * 1.01), v, f)
    assert "beyond" in words(out, q, k, v, CAUSAL, precision=f.name, contract="fused")


def test_edges_are_always_among_the_rows() -> None:
    from symattn.bounds.sharp.sample import chosen

    q = np.zeros((1000, 4))
    spec = Attention(causal=True, window=(300, 0), documents=True)
    rows = chosen(spec, {"q": q, "k": q, "v": q, "doc": np.repeat([0, 1], [400, 600])}, 40)
    assert {0, 999, 300, 301, 302, 399, 400} <= set(rows)
    assert len(rows) <= 44
    assert {63, 64, 959, 960} & set(rows)


def test_rows_are_whole_numbers() -> None:
    from symattn.bounds.sharp.sample import chosen

    q = np.zeros((9, 4))
    inputs = {"q": q, "k": q, "v": q}
    assert chosen(Attention(), inputs, np.int64(3)) == chosen(Attention(), inputs, 3)
    assert chosen(Attention(), inputs, np.array([4, 2, 4])) == [2, 4]  # type: ignore[arg-type]
    assert chosen(Attention(), inputs, np.array(3)) == chosen(Attention(), inputs, 3)  # type: ignore[arg-type]
    wrong: list[Any] = [True, [True], 2.5, [1.0, 2.0], "12", None, [[1]]]
    for rows in wrong:
        refuses(chosen, Attention(), inputs, rows, says="rows must be a number of queries")


def test_more_rows_than_there_are_take_no_memory() -> None:
    from symattn.bounds.sharp.sample import chosen

    q = np.zeros((9, 4))
    assert chosen(Attention(), {"q": q, "k": q, "v": q}, 10**15) == list(range(9))


def test_one_query_of_a_document_has_edges() -> None:
    from symattn.bounds.sharp.sample import chosen

    q, spec = np.zeros((1, 4)), Attention(documents=True)
    assert chosen(spec, {"q": q, "k": q, "v": q, "doc": np.zeros(1, int)}, 1) == [0]


def test_what_the_filter_speaks_of() -> None:
    assert Stores.of(Precision.of("float32"), wide_sums=True) is None
    assert Stores.of(Precision.of("float16", "eager")) is None
    assert Stores.of(Precision.of("float16", "fused", "fp22")) is None
    wrong: list[Any] = [2.0, float("nan"), "x", [0.1]]
    for alpha in wrong:
        for more in ({}, {"power": {"scale": 0.1}}):
            with pytest.raises(InputError, match=r"alpha must be a probability"):
                assert_close_to_exact(*(np.ones((2, 2), np.float16),) * 4, alpha=alpha, **more)


MASK = np.random.default_rng(5).random((N, N)) < 0.5
MASK[7] = False
BIAS = BF16.rounded(np.random.default_rng(6).standard_normal((4, N, N)))
ADDED = BF16.rounded(
    np.where(MASK | np.eye(N, dtype=bool), np.abs(np.subtract.outer(np.arange(N), np.arange(N))) / 64, -np.inf)
)
SPECS: dict[str, tuple[Attention, dict[str, Array]]] = {
    "window": (Attention(causal=True, window=(20, 0), heads=4, kv_heads=2), {}),
    "sink": (Attention(sink="given", heads=4, kv_heads=1), {"sink": np.array([0.5, 1.0, -2.0, 3.0])}),
    "a row that sees nothing": (Attention(mask="boolean", heads=4), {"mask": MASK}),
    "a row of NaN": (Attention(mask="boolean", fully_masked="nan", heads=4), {"mask": MASK}),
    "padding": (Attention(padding=True, heads=4), {"keep": np.arange(N) < 100}),
    "documents": (Attention(causal=True, documents=True, heads=4), {"doc": np.repeat([0, 1, 2], [50, 60, 50])}),
    "prefix": (Attention(causal=True, prefix=30, heads=4), {}),
    "base 2": (Attention(base=2, scale=0.3, heads=4), {}),
    "bias": (Attention(causal=True, bias=True, heads=4, kv_heads=2, softcap=20.0), {"bias": BIAS}),
    "additive": (Attention(causal=True, mask="additive", heads=4), {"mask": ADDED}),
    "both": (
        Attention(mask="additive", bias=True, padding=True, heads=4),
        {"mask": ADDED, "bias": BIAS, "keep": np.arange(N) < 130},
    ),
    "top left": (Attention(causal=True, alignment="top-left", heads=4, softcap=20.0), {}),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", SPECS)
def test_variants_are_judged(name: str) -> None:
    spec, others = SPECS[name]
    rng = np.random.default_rng(3)
    rows = 100 if name == "top left" else N
    q, k, v = (BF16.rounded(rng.standard_normal((h, n, D))) for h, n in ((4, rows), *[(spec.key_heads, N)] * 2))
    with np.errstate(all="ignore"):
        out = BF16.rounded(np.asarray(spec(q=q, k=k, v=v, **others)))
    for told in ({}, {"contract": "fused"}, {"rows": 9}):
        assert_close_to_exact(out, q, k, v, spec, precision="bfloat16", **others, **told)  # type: ignore[arg-type]
    wrong = out.copy()
    wrong[3, 99, 1] += 1.5
    assert "The worst is out[3, 99, 1]" in words(wrong, q, k, v, spec, precision="bfloat16", **others)
    assert "The worst is out[3, 99, 1]" in words(wrong, q, k, v, spec, precision="bfloat16", rows=[2, 99], **others)
    if name.startswith("a row"):
        out[0, 7] = 1.0
        assert "The worst is out[0, 7, " in words(out, q, k, v, spec, precision="bfloat16", **others)


@pytest.mark.deep
def test_arrays_of_torch_are_read() -> None:
    torch = pytest.importorskip("torch")
    q, k, v = (torch.randn(2, 3, 40, 16, dtype=torch.bfloat16) for _ in range(3))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_close_to_exact(out, q, k, v, Attention(causal=True, heads=3))
    out[1, 2, 30] *= 1.2
    assert "The worst is out[1, 2, 30, " in words(out, q, k, v, Attention(causal=True, heads=3), contract="fused")
