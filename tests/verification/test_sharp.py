"""The sharp tolerance of elements and means: it holds for right kernels, is far below the worst case, says of what."""

import json
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, Precision, bound, printing
from symattn.arrays.formats import Format
from symattn.bounds.sharp.directions import directions
from symattn.bounds.sharp.limits import Stores, half_ulp
from symattn.bounds.sharp.means import MeanLimits, judged
from symattn.bounds.sharp.rows_in_float64 import block, every_head
from symattn.bounds.sharp.sample import only

F = Format("float16")


def drawn(n: int, d: int = 16, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: F.rounded(rng.standard_normal((n, d))) for name in "qkv"}


def kernel(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    s = q @ k.T / sqrt(q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return F.rounded(F.rounded(e) @ v / e.sum(-1, keepdims=True))


def one(inputs: dict[str, np.ndarray], spec: Attention | None = None) -> tuple[Any, Any]:
    spec, (head, *_), _ = every_head(spec or Attention(), inputs)
    return head, block(spec, head, np.arange(len(head.q)))


def sharp_of(inputs: dict[str, np.ndarray]) -> Any:
    """The sharp tolerance of a kernel in float16 that keeps scores wide."""
    found = bound(inputs=inputs, dtype="float16").sharp
    assert found is not None
    return found


def test_it_lies_between_errors_and_the_worst_case() -> None:
    inputs = drawn(200)
    found = bound(inputs=inputs, dtype="float16")
    assert found.sharp is not None
    exact = np.asarray(Attention()(**inputs), dtype=float)
    errors = np.abs(kernel(**inputs) - exact)
    assert (errors < found.sharp.elements / 2).all()
    assert (found.sharp.elements <= found.allowed).all()
    assert found.sharp.median < 0.8 * np.median(found.allowed)
    assert abs((kernel(**inputs) - exact).mean()) < found.sharp.mean() / 2
    assert found.sharp.mean() < found.sharp.median / 20
    first = np.zeros(exact.shape)
    first[3, 5] = 1
    assert found.sharp.mean(first) < found.sharp.elements[3, 5] * 1.01


def _together(b: Any, stores: int, sink: float | None) -> np.ndarray:
    """The first column if all that eager attention stores errs as far as it may, each to the same effect."""
    u, t, o = float(F.u), b.t, b.o[:, :1]
    m = np.maximum(t.max(1, keepdims=True), -np.inf if sink is None else sink)
    off = u * (1 + stores * np.abs(b.raw) + np.abs(t) * len(b.added) + (0 if sink is None else np.abs(t - m)))
    w = np.exp(t - m + off * np.sign(b.values[:, :1].T - o))
    own = 0 if sink is None else np.exp((sink - m) - u * np.abs(sink - m) * np.sign(o))
    return np.asarray((w @ b.values[:, :1]) / (w.sum(1, keepdims=True) + own))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sink", [None, -4.0, 20.0], ids=["cap", "sink below", "sink above"])
@pytest.mark.parametrize("biased", [False, True], ids=["", "biased"])
def test_all_that_eager_attention_stores_may_err_together(seed: int, sink: float | None, biased: bool) -> None:
    """Under a cap quotient, tanh and product are stored, beside a sink differences to the largest score, and with a
    bias the score before it and their sum."""
    rng = np.random.default_rng(seed)
    q, k, v = (F.rounded(rng.standard_normal((24, 16)) * by) for by in (6, 1, 1))
    inputs, spec = {"q": q, "k": k, "v": 8 * np.sign(v)}, Attention(softcap=30)
    if sink is not None:
        inputs, spec = inputs | {"sink": np.array([sink])}, Attention(sink="given")
    if biased:
        inputs, spec = inputs | {"bias": F.rounded(rng.standard_normal((24, 24)))}, replace(spec, bias=True)
    how = Stores.of(Precision.of("float16"), wide_sums=True, capped=sink is None)
    assert how is not None
    _, b = one(inputs, spec)
    off = np.abs(_together(b, how.scores, sink) - b.o[:, :1])
    assert (off <= b.lawless(how)[:, :1]).all()
    if sink is None and not biased:
        assert how.scores == 5
        assert (off > b.lawless(Stores(F, 3))[:, :1]).any()


def test_a_bias_that_cancels_scores_leaves_their_roundings() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (F.rounded(rng.standard_normal((24, 16)) * by) for by in (6, 1, 1))
    inputs = {"q": q, "k": k, "v": 8 * np.sign(v), "bias": F.rounded(-(q @ k.T) / 4)}
    how = Stores.of(Precision.of("float16"), wide_sums=True)
    assert how is not None
    _, b = one(inputs, Attention(bias=True))
    off = np.abs(_together(b, how.scores, None) - b.o[:, :1])
    assert (off <= b.lawless(how)[:, :1]).all()
    assert (off > replace(b, added=()).lawless(how)[:, :1]).all()


@pytest.mark.parametrize("least", [-65504.0, -1e9, float(np.finfo(np.float32).min)])
def test_what_a_finite_mask_takes_away_has_no_part(least: float) -> None:
    inputs, open_ = drawn(20), np.tri(20, dtype=bool)
    spec, masked = Attention(mask="additive"), inputs | {"mask": np.where(open_, 0.0, least)}
    _, b = one(masked, spec)
    _, plain = one(inputs | {"mask": open_}, Attention(mask="boolean"))
    for found, wanted in ((b.t, plain.t), (b.p, plain.p), (b.lawless(Stores(F, 2)), plain.lawless(Stores(F, 2)))):
        assert np.array_equal(found, wanted)


def test_a_smaller_probability_takes_a_larger_tolerance() -> None:
    inputs = drawn(30)
    usual, rare = (bound(inputs=inputs, dtype="float16", alpha=a) for a in (1e-9, 1e-30))
    assert usual.sharp is not None
    assert rare.sharp is not None
    assert (rare.sharp.elements >= usual.sharp.elements).all()
    assert rare.sharp.mean() > usual.sharp.mean()


def test_what_it_does_not_speak_of() -> None:
    inputs = drawn(8)
    assert bound(inputs=inputs).sharp is None
    assert bound(n=64).sharp is None
    assert bound(Attention(normaliser="sigmoid"), inputs, "float16").sharp is None
    found = bound(inputs=inputs, dtype="float16").sharp
    assert found is not None
    with pytest.raises(InputError, match="weights"):
        found.mean(np.ones(3))
    with pytest.raises(InputError, match="alpha"):
        _ = bound(inputs=inputs, dtype="float16", alpha=0.0).sharp
    whole = {name: np.random.default_rng(0).integers(-2, 3, (60, 4)).astype(float) for name in "qkv"}
    coinciding = bound(inputs=whole, dtype="float16")
    assert coinciding.sharp is not None
    assert coinciding.sharp.mean() == pytest.approx(coinciding.allowed.mean(), rel=1e-8)  # the worst case


def test_documents_say_probability_and_hypothesis() -> None:
    found = bound(n=512, d_k=32, dtype="bfloat16").document()
    text = " ".join(printing.render(found, "text").split())
    assert "Rounding to nearest [sampled: the inputs are drawn]" in text
    assert "Except with probability 1e-09, on 16 queries and 512 keys drawn from N(0, 1), if roundings" in text
    told = json.loads(printing.render(found, "json"))["sharp"]
    assert told["value"] < 0.1 * bound(n=512, d_k=32, dtype="bfloat16").value
    assert told["mean"] < told["median"] < told["value"]
    given = printing.render(bound(inputs=drawn(9), dtype="float16").document(), "text")
    assert "Rounding to nearest  [argued: for these inputs, under the hypothesis below]" in given


def test_equal_scores_are_rounded_alike() -> None:
    inputs = drawn(40)
    inputs["k"][20:] = inputs["k"][:20]
    _, b = one(inputs)
    assert (np.asarray(b.alike) == 2).all()
    assert one(drawn(40))[1].alike == 1.0
    inputs["v"][20:] = inputs["v"][:20]
    twice, _ = one(inputs)[1].noise(Stores(F, 0))
    once, _ = one({name: a[:20] if name != "q" else a for name, a in inputs.items()})[1].noise(Stores(F, 0))
    np.testing.assert_allclose(twice, once, rtol=0.02)


def test_equal_queries_are_rounded_alike() -> None:
    inputs = drawn(40)
    apart = sharp_of(inputs).mean()
    inputs["q"][1:] = inputs["q"][:1]
    assert sharp_of(inputs).mean() > 3 * apart


def test_scores_that_coincide_in_any_row_are_seen() -> None:
    inputs = drawn(40)
    inputs["q"][1] = 0
    assert (np.asarray(one(inputs)[1].alike)[1] == 40).all()
    whole = drawn(300, 4)
    assert sharp_of(whole).mean() < 0.5 * sharp_of(whole).worst.mean()
    whole["k"] = np.random.default_rng(0).integers(-2, 3, (300, 4)).astype(float)
    whole["q"][1:30] = np.random.default_rng(1).integers(-2, 3, (29, 4))
    found = sharp_of(whole)
    assert found.mean() == pytest.approx(found.worst.mean(), rel=1e-8)


def test_means_are_accused_through_limits_that_are_too_small_at_first() -> None:
    """What passes the last rounding's noise alone has limits that are larger; what is wrong does not pass it."""
    inputs, how = drawn(40), Stores(F, 0)
    _, b = one(inputs)
    limits = MeanLimits(b, how, 6.0)
    for direction in directions(b):
        assert (limits.least(direction.x) <= limits.of(direction.x)[0]).all()
    wrong = Attention(scale=0.3)(**inputs)
    right = F.rounded(b.o)
    assert judged(Attention(), inputs, how, F.rounded(wrong), 1e-9, range(40)) is not None
    assert judged(Attention(), inputs, how, right, 1e-9, range(40)) is None
    kept = {(): b}
    assert judged(Attention(), inputs, how, F.rounded(wrong), 1e-9, range(40), kept) is not None


def test_a_query_without_keys_hides_no_mean() -> None:
    """Its output is NaN there, and has no part in means."""
    rng, f, n = np.random.default_rng(0), Format("bfloat16"), 96
    q, k, v = (f.rounded(rng.standard_normal((rows, 80))) for rows in (16, n, n))
    mask = np.ones((16, n), dtype=bool)
    mask[5] = False
    spec, given = Attention(mask="boolean", fully_masked="nan"), {"q": q, "k": k, "v": v, "mask": mask}

    def found(scale: float) -> Any:
        e = np.exp(q @ k.T * (scale / sqrt(80))) * np.where(mask, 1.0, np.nan)
        out = f.rounded(e / e.sum(-1, keepdims=True) @ v)
        return judged(spec, given, Stores(f, 0), out, 1e-9, range(16))

    assert found(1.0) is None
    mean = found(1.01)
    assert mean is not None
    assert mean.place == "of all rows"


def test_noise_is_that_of_roundings_that_are_drawn() -> None:
    """σ against the spread of outputs whose weights are off by ± half an ulp: the sum before, the sum after."""
    inputs, how = drawn(50), Stores(F, 0)
    _, b = one(inputs)
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (400, *b.p.shape))
    p = b.p * (1 + how.u * signs)
    for out in (p @ b.values, p @ b.values / p.sum(-1, keepdims=True)):
        spread = (out - b.o).std(axis=0)
        assert (spread < 1.2 * b.noise(how)[0]).all()
    assert np.median((p @ b.values).std(axis=0) / b.noise(how)[0]) > 0.7


def test_the_reference_is_enclosed() -> None:
    from symattn import enclose_rows

    inputs = drawn(30)
    spec = Attention(causal=True)
    _, b = one(inputs, spec)
    exact = enclose_rows(spec, inputs, range(30)).midpoints()
    assert (np.abs(exact - b.o) <= b.error).all()
    assert b.error.max() < 1e-10


def test_half_an_ulp_is_that_of_the_format() -> None:
    x = np.array([0.0, 1e-7, 2.0**-14, 0.75, 1.0, 3.0, 1000.0])
    near = F.cast(x)
    wanted = np.spacing(near).astype(float) / 2
    assert half_ulp(F, near.astype(float)).tolist() == wanted.tolist()


@pytest.mark.parametrize("rows", [[5, 1, 7], [5, 6, 7], [7, 5]])
def test_each_query_alone_has_its_own_mask(rows: list[int]) -> None:
    _, inputs = only(Attention(causal=True), drawn(9), rows)
    assert (inputs["mask"] == np.tri(9, dtype=bool)[rows]).all()
