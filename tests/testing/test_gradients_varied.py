"""Gradients of capped scores, sinks, biases and given scales in half precision: right ones pass, wrong ones do not."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError
from symattn.arrays.formats import Format
from symattn.bounds.sharp import backward
from symattn.bounds.sharp.limits import Stores
from symattn.programs.gradients import gradients_close_to_exact
from symattn.programs.question import Question
from tests.testing.half_kernels import INPUTS, Array, made, masked, normal

H, N, D = 2, 150, 40
BF16, FP16 = Format("bfloat16"), Format("float16")
BOTH = pytest.mark.parametrize("f", [BF16, FP16], ids=lambda f: f.name)
CASES = ("softcap", "sink", "bias", "additive mask", "scale", "all")


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


def fused(c: Case, wrong: str = "") -> tuple[Array, Array, Array]:
    """As FlashAttention: weights, dS and the output are stored, all else is wide."""
    q, k, v = (c.inputs[n] for n in "qkv")
    x = (c.scale * (q @ k.mT)).astype(np.float32)
    y, slope = _capped(x, c.cap)
    y, slope = (x, np.ones_like(x)) if wrong == "the cap is ignored" else (y, slope)
    slope = np.ones_like(x) if wrong == "the cap has no derivative" else slope
    bias = c.bias * (D**-0.5 if wrong == "the bias is scaled" else 1.0)
    p, of_sink = _weights(masked(y + bias, c.spec.causal), c.sink)
    right, _ = _weights(masked(_capped(x, c.cap)[0] + c.bias, c.spec.causal), c.sink)
    o = c.f.rounded(c.f.rounded(right) @ v)
    d = (c.do * o).sum(-1, keepdims=True) / (1 - of_sink if wrong == "the sink has no part in D" else 1.0)
    ds = c.f.rounded(p * (c.do @ v.mT - d) * slope)
    r = c.f.rounded
    return r(c.scale * (ds @ k)), r(c.scale * (ds.mT @ q)), r(r(p).mT @ c.do)


def eager(c: Case) -> tuple[Array, Array, Array]:
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


FAULTS = {
    "the cap is ignored": "softcap",
    "the cap has no derivative": "softcap",
    "the sink has no part in D": "sink",
    "the bias is scaled": "bias",
}


@BOTH
@pytest.mark.parametrize("wrong", FAULTS)
def test_wrong_gradients_are_refused(wrong: str, f: Format) -> None:
    c = case(FAULTS[wrong], f)
    words = judge(c, fused(c, wrong), "fused")
    assert "beyond all roundings together" in words
    assert "beyond all roundings together" in judge(c, fused(c, wrong), "fused", rows=9)


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
        found = backward.gradients(c.spec, c.inputs, c.do, Stores(BF16, 0), every, every)[key]
        np.testing.assert_allclose(found.exact, right, rtol=1e-9, atol=1e-12)


def test_what_is_not_judged_is_refused_in_a_line() -> None:
    c = case("bias", BF16)
    two = replace(c.spec, base=2)
    with pytest.raises(InputError, match="with caps, sinks, biases and masks alone"):
        judge(replace(c, spec=two), fused(c))


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
