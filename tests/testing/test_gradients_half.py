"""Gradients in half precision: right backward passes pass, wrong ones are refused; some rows give what all do.

Of plain attention, and of capped scores, sinks, biases, masks and given scales.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError
from symattn.arrays.formats import Format
from symattn.bounds.sharp import backward_bounds
from symattn.bounds.sharp.limits import Stores
from symattn.programs.gradients import gradients_close_to_exact
from symattn.programs.question import Question
from symattn.testing import AttentionFault, assert_close_to_exact
from tests.testing.half_kernels import INPUTS, Array, made, masked, normal, outliers, tiles, weights

H, N, D = 2, 150, 40
BF16, FP16 = Format("bfloat16"), Format("float16")
BOTH = pytest.mark.parametrize("f", [BF16, FP16], ids=lambda f: f.name)
CASES = ("plain", "softcap", "sink", "bias", "additive mask", "scale", "all")


@dataclass(frozen=True)
class Case:
    """What is attended to, and how: scores are s q · k, then capped, then biased; ``sink`` takes weight."""

    spec: Attention
    inputs: dict[str, Array]
    do: Array
    f: Format

    @property
    def scale(self) -> Any:
        given = self.inputs.get("scale")
        return D**-0.5 if given is None else given[:, None, None]

    @property
    def cap(self) -> float | None:
        return None if self.spec.softcap is None else float(self.spec.softcap)

    @property
    def sink(self) -> Array:
        return self.inputs.get("sink", np.full(H, -np.inf))[:, None, None]

    @property
    def bias(self) -> Array:
        return np.asarray(sum(self.inputs[n] for n in ("bias", "mask") if n in self.inputs) + np.zeros((N, N)))


def case(name: str, f: Format, inputs: Any = normal) -> Case:
    """Causal, 2 heads, 150 tokens, width 40."""
    rng = np.random.default_rng(7)
    q, k, v = made(f, inputs, (H, N, D))
    more: dict[str, dict[str, Any]] = {
        "plain": {},
        "softcap": {"softcap": 2.0},
        "sink": {"sink": "given"},
        "bias": {"bias": True},
        "additive mask": {"mask": "additive", "causal": False},
        "scale": {"scale": "given"},
    }
    told = more[name] if name != "all" else {**more["softcap"], **more["sink"], **more["bias"], **more["scale"]}
    spec = replace(Attention(causal=True, heads=H), **told)
    beside = {
        "sink": f.rounded(rng.standard_normal(H) + 3),
        "bias": f.rounded(2 * rng.standard_normal((H, N, N))),
        "mask": np.where(np.tri(N, dtype=bool), f.rounded(rng.standard_normal((N, N))), -np.inf),
        "scale": f.rounded(np.array([0.3, 0.1])),
    }
    needed = (
        "sink" if spec.sink else "",
        "bias" if spec.bias else "",
        spec.mask and "mask",
        told.get("scale") and "scale",
    )
    return Case(
        spec, {"q": q, "k": k, "v": v} | {n: beside[n] for n in needed if n}, f.rounded(rng.standard_normal(q.shape)), f
    )


Gradients = tuple[Array, Array, Array]


def fused(c: Case, wrong: str = "") -> Gradients:
    """As FlashAttention: weights and dS are stored where they meet the values, the output where D is made of it."""
    q, k, v = (c.inputs[n] for n in "qkv")
    scale = c.scale * (1.15 if wrong == "the scale is 15 % off" else 1.0)
    x = (scale * (q @ k.mT)).astype(np.float32)
    y, slope = _capped(x, c.cap)
    y, slope = (x, np.ones_like(x)) if wrong == "the cap is ignored" else (y, slope)
    slope = np.ones_like(x) if wrong == "the cap has no derivative" else slope
    bias = c.bias * (D**-0.5 if wrong == "the bias is scaled" else 1.0)
    p, of_sink = _weights(masked(y + bias, c.spec.causal), c.sink)
    right, _ = _weights(masked(_capped(x, c.cap)[0] + c.bias, c.spec.causal), c.sink)
    o = c.f.rounded(c.f.rounded(right) @ v)
    d = (c.do * o).sum(-1, keepdims=True) / (1 - of_sink if wrong == "the sink has no part in D" else 1.0)
    d = 0.0 if wrong == "D is left out" else d
    ds = c.f.rounded(p * (c.do @ v.mT - d) * slope)
    r = c.f.rounded
    return r(scale * (ds @ k)), r(scale * (ds.mT @ q)), r(r(p).mT @ c.do)


def roots(c: Case) -> Gradients:
    """Step by step, of plain attention: everything is stored, and queries and keys times the root of the scale."""
    (q, k, v), r, root = (c.inputs[n] for n in "qkv"), c.f.rounded, D**-0.25
    a, b = r(q * root), r(k * root)
    p = r(weights(masked(r(a @ b.mT))))
    dp = r(c.do @ v.mT)
    ds = r(p * (dp - (p * dp).sum(-1, keepdims=True)))
    return r(r(ds @ b) * root), r(r(ds.mT @ a) * root), r(p.mT @ c.do)


def eager(c: Case) -> Gradients:
    """Step by step, as a model in PyTorch: everything is stored, the largest score taken away and differentiated."""
    (q, k, v), r = (c.inputs[n] for n in "qkv"), c.f.rounded
    x = r(r(q @ k.mT) * c.scale)
    z = None if c.cap is None else r(np.tanh(r(x / c.cap)))
    s = r((x if z is None else r(z * c.cap)) + c.bias)
    s = masked(s, c.spec.causal)
    sinks = np.broadcast_to(c.sink, (*s.shape[:-1], 1))
    whole = np.concatenate([s, sinks], axis=-1) if c.spec.sink else s
    top = whole.max(-1, keepdims=True)
    p = r(_weights(r(whole - top) if c.spec.sink else whole, np.full((H, 1, 1), -np.inf))[0])
    dp = r(c.do @ v.mT)
    dp = np.concatenate([dp, np.zeros_like(sinks)], axis=-1) if c.spec.sink else dp
    ds = r(p * (dp - (p * dp).sum(-1, keepdims=True)))
    if c.spec.sink:
        ds = r(ds - (np.arange(N + 1) == whole.argmax(-1)[..., None]) * r(ds.sum(-1, keepdims=True)))[..., :-1]
    if z is not None and c.cap is not None:
        ds = r(r(r(ds * c.cap) * (1 - z * z)) / c.cap)
    ds, p = r(ds * c.scale), p[..., :N]
    return r(ds @ k), r(ds.mT @ q), r(p.mT @ c.do)


def _capped(x: Array, cap: float | None) -> tuple[Array, Array]:
    """c tanh(x/c) and its slope."""
    t = np.tanh(x / cap) if cap else np.zeros_like(x)
    return (cap * t if cap else x), 1 - t * t


def _weights(s: Array, sink: Array) -> tuple[Array, Array]:
    """Of the keys and of the sink."""
    top = np.maximum(s.max(-1, keepdims=True), sink)
    e, own = np.exp(s - top), np.exp(sink - top)
    total = e.sum(-1, keepdims=True) + own
    return e / total, own / total


def judge(c: Case, gradients: Any, contract: Any = None, **told: Any) -> str:
    asked = Question(None, c.inputs, c.spec, c.f.name, contract, do=c.do, gradients=gradients, **told)
    return gradients_close_to_exact(asked)


WIDE = [pytest.param(i, marks=pytest.mark.deep) for i in INPUTS if i is not normal]


@BOTH
@pytest.mark.parametrize("inputs", [normal, *WIDE], ids=lambda i: i.__name__)
@pytest.mark.parametrize("name", CASES)
def test_right_gradients_pass(name: str, inputs: Any, f: Format) -> None:
    c = case(name, f, inputs)
    assert not judge(c, fused(c), "fused")
    assert not judge(c, fused(c), rows=9)
    assert not judge(c, eager(c))
    if name == "plain":
        assert not judge(c, roots(c))
        near = np.full(H, float(f.rounded(np.array(D**-0.5))))  # the scale is a constant of the format
        assert not judge(c, fused(replace(c, inputs={**c.inputs, "scale": near})), "fused")


FAULTS = {
    "the cap is ignored": "softcap",
    "the cap has no derivative": "softcap",
    "the sink has no part in D": "sink",
    "the bias is scaled": "bias",
    "D is left out": "plain",
    "the scale is 15 % off": "plain",
}


@BOTH
@pytest.mark.parametrize("wrong", FAULTS)
def test_wrong_gradients_are_refused(wrong: str, f: Format) -> None:
    c = case(FAULTS[wrong], f)
    for told in ({}, {"rows": 9}):
        assert "elements of dq are beyond all roundings together" in judge(c, fused(c, wrong), "fused", **told)


def _by_definition(c: Case) -> dict[str, Array]:
    """Head by head."""
    from symattn import vjp

    alone = replace(c.spec, heads=1)
    per_head = [
        {n: a[h : h + 1] if a.ndim == 1 else a[h] if a.ndim == 3 else a for n, a in c.inputs.items()} for h in range(H)
    ]
    found = [vjp(alone, g, given, ("q", "k", "v")) for g, given in zip(c.do, per_head, strict=True)]
    return {f"d{n}": np.stack([np.asarray(one[n], dtype=float) for one in found]) for n in "qkv"}


@pytest.mark.parametrize("name", CASES)
def test_what_is_exact_is_the_derivative_of_the_definition(name: str) -> None:
    c, every = case(name, BF16), np.arange(N)
    for key, right in _by_definition(c).items():
        found = backward_bounds.gradients(c.spec, c.inputs, c.do, Stores(BF16, 0), every, every)[key]
        np.testing.assert_allclose(found.exact, right, rtol=1e-9, atol=1e-12)


@BOTH
def test_given_scales_may_be_constants_of_the_format(f: Format) -> None:
    """Each head's own, rounded; one that is further off is refused."""
    c = case("scale", f)
    given = replace(c, inputs={**c.inputs, "scale": np.array([0.3, 0.1])})
    assert (f.rounded(given.inputs["scale"]) != given.inputs["scale"]).all()
    stored = replace(c, inputs={**c.inputs, "scale": f.rounded(np.array([0.3, 0.1]))})
    assert not judge(given, fused(stored), "fused")
    wrong = replace(c, inputs={**c.inputs, "scale": np.array([0.3, 0.11])})
    assert "beyond all roundings together" in judge(given, fused(wrong), "fused")


def test_gradients_below_the_normal_numbers_pass() -> None:
    """dS, once it is scaled, loses more where a small dO takes it there; in steps of which each is stored."""
    rng, r, n, d, scale = np.random.default_rng(0), FP16.rounded, 300, 256, 1 / 16
    q, k, v, do = (r(rng.standard_normal(shape)) for shape in ((20, d), (n, d), (n, 64), (20, 64)))
    do = r(1e-5 * do)
    p = r(weights(r(r(q @ k.mT) * scale)))
    dp = r(do @ v.mT)
    ds = r(scale * r(p * (dp - (p * dp).sum(-1, keepdims=True))))
    c, right = Case(Attention(), {"q": q, "k": k, "v": v}, do, FP16), (r(ds @ k), r(ds.mT @ q), r(p.mT @ do))
    assert not judge(c, right)
    p = weights((q @ k.mT) * scale)
    ds = r(scale * p * (do @ v.mT - (do * r(r(p) @ v)).sum(-1, keepdims=True)))  # in tiles, scaled where it is stored
    assert not judge(c, (r(ds @ k), r(ds.mT @ q), r(r(p).mT @ do)), "fused")
    for at, name in enumerate(("dq", "dk", "dv")):
        wrong = [g + 1e-5 if i == at else g for i, g in enumerate(right)]
        assert f"elements of {name}" in judge(c, wrong)


@pytest.mark.deep
def test_gradients_above_the_largest_number_are_not_accused_of_being_infinite() -> None:
    c = case("plain", FP16)
    c = replace(c, inputs=c.inputs | {"v": FP16.rounded(100 * c.inputs["v"])}, do=FP16.rounded(1e4 * c.do))
    with np.errstate(all="ignore"):
        made = fused(c)
    assert not np.isfinite(made[0]).all()
    with pytest.raises(InputError, match=r"not finite may be right here: .* above 65504"):
        judge(c, made, "fused")
    assert not judge(c, (None, None, made[2]), "fused")
    assert "of dv" in judge(c, (None, None, -made[2]), "fused")


WRONG: dict[str, tuple[str, Callable[[Gradients], Gradients]]] = {
    "signs": ("dq", lambda g: (-g[0], g[1], g[2])),
    "a head's": ("dk", lambda g: (g[0], g[1][::-1], g[2])),
    "transposed": ("dv", lambda g: (g[0], g[1], g[2][:, ::-1])),
    "half": ("dk", lambda g: (g[0], g[1] * 0.5, g[2])),
    "NaN": ("dv", lambda g: (g[0], g[1], g[2] * np.nan)),
}


@BOTH
@pytest.mark.parametrize("wrong", WRONG)
def test_changed_gradients_are_refused(f: Format, wrong: str) -> None:
    name, change = WRONG[wrong]
    c = case("plain", f)
    out = tiles(*(c.inputs[n] for n in "qkv"), f)
    given: dict[str, Any] = {**c.inputs, "spec": c.spec, "precision": f.name, "contract": "fused", "do": c.do}
    for told in ({}, {"rows": 9}, {"rows": [3, 140]}):
        with pytest.raises(AttentionFault) as fault:
            assert_close_to_exact(out, **given, gradients=change(fused(c)), **told)
        words = str(fault.value)
        assert f"elements of {name} are beyond all roundings together in {f.name}\nThe worst is {name}[" in words
    assert "however they fall, if sums are taken in float32" in words
    assert_close_to_exact(out, **given, gradients=(*fused(c)[:2], None))


@BOTH
def test_a_twentieth_of_the_bound_is_too_little(f: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    c, whole = case("plain", f), backward_bounds.SharpGradient.ratios
    monkeypatch.setattr(backward_bounds.SharpGradient, "ratios", lambda found, got: 20 * whole(found, got))
    assert "of dq" in judge(c, fused(c), "fused")


@pytest.mark.deep
def test_rows_and_heads_that_share_keys_give_what_all_rows_do() -> None:
    rng = np.random.default_rng(0)
    spec = Attention(causal=True, window=(40, 0), heads=4, kv_heads=2)
    q, k, v, do = (BF16.rounded(rng.standard_normal((3, h, 300, 16))) for h in (4, 2, 2, 4))
    inputs, how, every = {"q": q, "k": k, "v": v}, Stores(BF16, 2), np.arange(300)
    found = backward_bounds.gradients(spec, inputs, do, how, every, every)
    exact = _by_sequence(spec, q, k, v, do)
    some = backward_bounds.gradients(spec, inputs, do, how, np.array([0, 7, 299]), np.array([255, 256]))
    for name, right in exact.items():
        np.testing.assert_allclose(found[name].exact, right, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(some[name].exact, right[..., some[name].rows, :], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(some[name].allowed, found[name].allowed[..., some[name].rows, :], rtol=1e-6)


def _by_sequence(spec: Attention, q: Array, k: Array, v: Array, do: Array) -> dict[str, Array]:
    from symattn import vjp

    found = [vjp(spec, g, {"q": a, "k": b, "v": c}, ("q", "k", "v")) for a, b, c, g in zip(q, k, v, do, strict=True)]
    return {f"d{n}": np.stack([np.asarray(one[n], dtype=float) for one in found]) for n in "qkv"}


def test_what_is_not_judged_is_refused_in_a_line() -> None:
    c = case("plain", BF16)
    (q, k, v), do = (c.inputs[n] for n in "qkv"), c.do
    for told, words in (
        ({"do": None}, "give do"),
        ({"gradients": (q, k)}, "gradients are not 3 arrays"),
        ({"gradients": 3}, "gradients are not 3 arrays"),
        ({"gradients": None}, "do is for gradients, and there are none"),
        ({"gradients": (None, None, None)}, "gradients are None, all of them"),
        ({"do": do + 1e-4}, "do holds numbers that bfloat16 cannot hold"),
        ({"do": do[:, :-1]}, "do has the shape"),
        ({"spec": Attention(heads=H, base=2)}, "with caps, sinks, biases and masks alone"),
        ({"contract": "eager"}, "bfloat16 and float16, with sums in float32"),
    ):
        given: dict[str, Any] = {"spec": Attention(heads=H), "do": do, "gradients": (q, k, v), **told}
        out = np.asarray(given["spec"](q=q, k=k, v=v), dtype=float)
        with pytest.raises(InputError, match=words):
            assert_close_to_exact(BF16.rounded(out), q, k, v, precision="bfloat16", **given)
    less = {"q": q, "k": k[:, :9], "v": v[:, :9]}
    with pytest.raises(InputError, match="a query may attend to no key"):
        judge(Case(replace(c.spec, fully_masked="nan"), less, do, BF16), tuple(less.values()))
    wide = np.asarray(c.spec(q=q, k=k, v=v), dtype=float)
    with pytest.raises(AttentionFault, match="dk has the shape"):
        assert_close_to_exact(BF16.rounded(wide), q, k, v, c.spec, precision="bfloat16", do=do, gradients=(q, k[:1], v))


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
