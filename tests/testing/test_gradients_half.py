"""Gradients in half precision: right backward passes pass, wrong ones are refused; some rows give what all do."""

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError
from symattn.arrays.formats import Format
from symattn.bounds.sharp import backward
from symattn.bounds.sharp.limits import Stores
from symattn.programs.gradients import gradients_close_to_exact
from symattn.programs.question import Question
from symattn.testing import AttentionFault, assert_close_to_exact
from tests.testing.half_kernels import INPUTS, Array, eager, made, masked, normal, outliers, tiles, weights

H, N, D = 2, 150, 40
CAUSAL = Attention(causal=True, heads=H)
BF16, FP16 = Format("bfloat16"), Format("float16")


def _deep(inputs: Any) -> Any:
    return pytest.param(inputs, marks=pytest.mark.deep)


BOTH = pytest.mark.parametrize("f", [BF16, FP16], ids=lambda f: f.name)
Gradients = tuple[Array, Array, Array]


def fused(
    q: Array, k: Array, v: Array, do: Array, f: Format, scale: float = 1 / sqrt(D), term: float = 1.0
) -> Gradients:
    """As FlashAttention: weights and dS are stored where they meet the values, the output where D is made of it."""
    p = weights(masked((q @ k.mT) * scale).astype(np.float32))
    o = f.rounded(f.rounded(p) @ v)
    ds = f.rounded(p * (do @ v.mT - term * (do * o).sum(-1, keepdims=True)))
    return f.rounded(scale * (ds @ k)), f.rounded(scale * (ds.mT @ q)), f.rounded(f.rounded(p).mT @ do)


def stored(q: Array, k: Array, v: Array, do: Array, f: Format) -> Gradients:
    """As a model in PyTorch's own steps: everything is stored, and queries and keys times the root of the scale."""
    r, root = f.rounded, D**-0.25
    a, b = r(q * root), r(k * root)
    p = r(weights(masked(r(a @ b.mT))))
    dp = r(do @ v.mT)
    ds = r(p * (dp - (p * dp).sum(-1, keepdims=True)))
    return r(r(ds @ b) * root), r(r(ds.mT @ a) * root), r(p.mT @ do)


def drawn(f: Format, inputs: Any = normal, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    q, k, v = made(f, inputs, (H, N, D), seed)
    return q, k, v, f.rounded(np.random.default_rng(seed + 1).standard_normal(q.shape))


def judged(given: Any, do: Array, gradients: Any, spec: Attention | None, precision: str, contract: Any = None) -> str:
    return gradients_close_to_exact(Question(None, given, spec, precision, contract, do=do, gradients=gradients))


def judge(f: Format, q: Array, k: Array, v: Array, do: Array, gradients: Any, contract: Any = None, **told: Any) -> str:
    out = (tiles if contract else eager)(q, k, v, f)
    try:
        assert_close_to_exact(
            out, q, k, v, CAUSAL, precision=f.name, contract=contract, do=do, gradients=gradients, **told
        )
    except AttentionFault as fault:
        return str(fault)
    return ""


@BOTH
@pytest.mark.parametrize("inputs", [normal, *(_deep(i) for i in INPUTS if i is not normal)], ids=lambda i: i.__name__)
def test_right_gradients_pass(f: Format, inputs: Any) -> None:
    given = drawn(f, inputs)
    assert not judge(f, *given, fused(*given, f), "fused")
    assert not judge(f, *given, fused(*given, f), rows=9)
    assert not judge(f, *given, stored(*given, f))
    near = float(f.rounded(np.array(D**-0.5)))
    assert not judge(f, *given, fused(*given, f, scale=near), "fused")


def test_gradients_below_the_normal_numbers_pass() -> None:
    """dS, once it is scaled, loses more where a small dO takes it there; in steps of which each is stored."""
    rng, r, n, d, scale = np.random.default_rng(0), FP16.rounded, 300, 256, 1 / 16
    q, k, v, do = (r(rng.standard_normal(shape)) for shape in ((20, d), (n, d), (n, 64), (20, 64)))
    do = r(1e-5 * do)
    p = r(weights(r(r(q @ k.mT) * scale)))
    dp = r(do @ v.mT)
    ds = r(scale * r(p * (dp - (p * dp).sum(-1, keepdims=True))))
    given, right = {"q": q, "k": k, "v": v}, (r(ds @ k), r(ds.mT @ q), r(p.mT @ do))
    assert not judged(given, do, right, None, "float16")
    p = weights((q @ k.mT) * scale)
    ds = r(scale * p * (do @ v.mT - (do * r(r(p) @ v)).sum(-1, keepdims=True)))  # in tiles, scaled where it is stored
    fused = r(ds @ k), r(ds.mT @ q), r(r(p).mT @ do)
    assert not judged(given, do, fused, None, "float16", contract="fused")
    for at, name in enumerate(("dq", "dk", "dv")):
        wrong = [g + 1e-5 if i == at else g for i, g in enumerate(right)]
        assert f"elements of {name}" in judged(given, do, wrong, None, "float16")


@pytest.mark.deep
def test_gradients_above_the_largest_number_are_not_accused_of_being_infinite() -> None:
    q, k, v, do = drawn(FP16)
    given, do = {"q": q, "k": k, "v": FP16.rounded(100 * v)}, FP16.rounded(1e4 * do)
    with np.errstate(all="ignore"):
        made = fused(*given.values(), do, FP16)
    assert not np.isfinite(made[0]).all()
    with pytest.raises(InputError, match=r"not finite may be right here: .* above 65504"):
        judged(given, do, made, CAUSAL, "float16", contract="fused")
    assert not judged(given, do, (None, None, made[2]), CAUSAL, "float16", contract="fused")
    assert "of dv" in judged(given, do, (None, None, -made[2]), CAUSAL, "float16", contract="fused")


WRONG: dict[str, tuple[str, Callable[[Gradients], Gradients]]] = {
    "signs": ("dq", lambda g: (-g[0], g[1], g[2])),
    "a head's": ("dk", lambda g: (g[0], g[1][::-1], g[2])),
    "transposed": ("dv", lambda g: (g[0], g[1], g[2][:, ::-1])),
    "half": ("dk", lambda g: (g[0], g[1] * 0.5, g[2])),
    "NaN": ("dv", lambda g: (g[0], g[1], g[2] * np.nan)),
}


@BOTH
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_gradients_are_refused(f: Format, wrong: str) -> None:
    name, change = WRONG[wrong]
    given = drawn(f)
    for told in ({}, {"rows": 9}, {"rows": [3, 140]}):
        words = judge(f, *given, change(fused(*given, f)), "fused", **told)
        assert f"elements of {name} are beyond all roundings together in {f.name}\nThe worst is {name}[" in words
    assert "however they fall, if sums are taken in float32" in words
    assert not judge(f, *given, (*fused(*given, f)[:2], None), "fused")


@BOTH
def test_the_term_d_and_the_scale_are_seen(f: Format) -> None:
    given = drawn(f)
    assert "of dq" in judge(f, *given, fused(*given, f, term=0.0), "fused")
    assert "of dq" in judge(f, *given, fused(*given, f, scale=1.15 / sqrt(D)), "fused")


@BOTH
def test_a_twentieth_of_the_bound_is_too_little(f: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    given, whole = drawn(f), backward.SharpGradient.ratios
    monkeypatch.setattr(backward.SharpGradient, "ratios", lambda found, got: 20 * whole(found, got))
    assert "of dq" in judge(f, *given, fused(*given, f), "fused")


@pytest.mark.deep
def test_rows_and_heads_that_share_keys_give_what_all_rows_do() -> None:
    rng = np.random.default_rng(0)
    spec = Attention(causal=True, window=(40, 0), heads=4, kv_heads=2)
    q, k, v, do = (BF16.rounded(rng.standard_normal((3, h, 300, 16))) for h in (4, 2, 2, 4))
    inputs, how, every = {"q": q, "k": k, "v": v}, Stores(BF16, 2), np.arange(300)
    found = backward.gradients(spec, inputs, do, how, every, every)
    exact = _by_definition(spec, q, k, v, do)
    some = backward.gradients(spec, inputs, do, how, np.array([0, 7, 299]), np.array([255, 256]))
    for name, right in exact.items():
        np.testing.assert_allclose(found[name].exact, right, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(some[name].exact, right[..., some[name].rows, :], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(some[name].allowed, found[name].allowed[..., some[name].rows, :], rtol=1e-6)


def _by_definition(spec: Attention, q: Array, k: Array, v: Array, do: Array) -> dict[str, Array]:
    from symattn import vjp

    found = [vjp(spec, g, {"q": a, "k": b, "v": c}, ("q", "k", "v")) for a, b, c, g in zip(q, k, v, do, strict=True)]
    return {f"d{n}": np.stack([np.asarray(one[n], dtype=float) for one in found]) for n in "qkv"}


def test_what_is_not_judged_is_refused_in_a_line() -> None:
    q, k, v, do = drawn(BF16)
    for told, words in (
        ({"do": None}, "give do"),
        ({"gradients": (q, k)}, "gradients are not 3 arrays"),
        ({"gradients": 3}, "gradients are not 3 arrays"),
        ({"gradients": None}, "do is for gradients, and there are none"),
        ({"gradients": (None, None, None)}, "gradients are None, all of them"),
        ({"do": do + 1e-4}, "do holds numbers that bfloat16 does not"),
        ({"do": do[:, :-1]}, "do has the shape"),
        ({"spec": Attention(heads=H, base=2)}, "gradients are judged of dot products times a scale"),
        ({"contract": "eager"}, "bfloat16 and float16, with sums in float32"),
    ):
        given: dict[str, Any] = {"spec": Attention(heads=H), "do": do, "gradients": (q, k, v), **told}
        out = np.asarray(given["spec"](q=q, k=k, v=v), dtype=float)
        with pytest.raises(InputError, match=words):
            assert_close_to_exact(BF16.rounded(out), q, k, v, precision="bfloat16", **given)
    less = {"q": q, "k": k[:, :9], "v": v[:, :9]}
    none = Attention(causal=True, heads=H, fully_masked="nan")
    with pytest.raises(InputError, match="a query may attend to no key"):
        judged(less, do, (q, *(less[n] for n in "kv")), none, "bfloat16")
    wide = np.asarray(CAUSAL(q=q, k=k, v=v), dtype=float)
    with pytest.raises(AttentionFault, match="dk has the shape"):
        assert_close_to_exact(BF16.rounded(wide), q, k, v, CAUSAL, precision="bfloat16", do=do, gradients=(q, k[:1], v))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("backend", ["MATH", "FLASH_ATTENTION"])
def test_gradients_of_torch_pass(name: str, backend: str) -> None:
    torch = pytest.importorskip("torch")
    for seed, (n, d, causal) in enumerate(((37, 16, True), (200, 64, False), (300, 40, True))):
        torch.manual_seed(seed)
        q, k, v = (torch.randn(2, 3, n, d, dtype=getattr(torch, name), requires_grad=True) for _ in range(3))
        do = torch.randn(2, 3, n, d, dtype=getattr(torch, name))
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        out.backward(do)
        arrays, grads = (a.detach() for a in (out, q, k, v)), [a.grad for a in (q, k, v)]
        assert_close_to_exact(*arrays, Attention(causal=causal, heads=3), do=do, gradients=grads)


@pytest.mark.torch
@pytest.mark.parametrize(("f", "n", "d"), [(FP16, 130, 64), (BF16, 400, 128)], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("inputs", [normal, outliers], ids=lambda i: i.__name__)
def test_gradients_that_are_stored_tile_by_tile_pass(f: Format, n: int, d: int, inputs: Any) -> None:
    """PyTorch's flash kernel on a CPU adds to dK and dV in the format itself."""
    torch = pytest.importorskip("torch")
    q, k, v = made(f, inputs, (2, n, d), 29)
    do = f.rounded(np.random.default_rng(0).standard_normal(q.shape))
    given = [torch.tensor(a).to(getattr(torch, f.name))[None].requires_grad_() for a in (q, k, v)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        out = torch.nn.functional.scaled_dot_product_attention(*given)
    out.backward(torch.tensor(do).to(out.dtype)[None])
    arrays, grads = [a.detach()[0] for a in (out, *given)], [a.grad[0] for a in given]
    assert_close_to_exact(
        *arrays, Attention(heads=2), contract="fused", do=torch.tensor(do).to(out.dtype), gradients=grads
    )
