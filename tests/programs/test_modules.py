"""Modules of torch that hold their weights: read by the names in their state, and called with others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, LayerNorm, RMSNorm, verify
from symattn.programs import definitions
from symattn.programs.calls import Target
from symattn.programs.request import Request
from symattn.programs.target import target
from symattn.programs.verifying import requested
from tests import refusals
from tests.programs.programs import Program
from tests.verification.naming import convicts

pytestmark = pytest.mark.torch
TWO, PACKED = Attention(heads=2), Attention(heads=2, packed=True)
D = 8


def module(forward: Callable[..., Any], **layers: Any) -> Any:
    """A module of these layers and parameters, of two heads."""
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.num_heads = 2
            for name, layer in layers.items():
                setattr(self, name, layer)

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    return Layer()


def attend(q: Any, k: Any, v: Any, h: int = 2) -> Any:
    """Attention of heads that stand side by side; heads of keys may be fewer."""
    from torch.nn.functional import scaled_dot_product_attention

    d = q.shape[-1] // h
    apart = [a.unflatten(-1, (-1, d)).transpose(-2, -3) for a in (q, k, v)]
    apart[1:] = [a.repeat_interleave(h // a.shape[-3], -3) for a in apart[1:]]
    return scaled_dot_product_attention(*apart).transpose(-2, -3).flatten(-2)


def linear(*sizes: int, **told: Any) -> Any:
    from torch import nn

    return nn.Linear(*sizes, **told)


def apart(**more: Any) -> Any:
    layers = {f"{x}_proj": linear(D, D) for x in "qkv"} | {"out_proj": linear(D, D)}
    return module(lambda m, x: m.out_proj(attend(m.q_proj(x), m.k_proj(x), m.v_proj(x))), **layers)


def exchanged() -> Any:
    layers = {f"{x}_proj": linear(D, D) for x in "qkv"}
    return module(lambda m, x: attend(m.q_proj(x), m.v_proj(x), m.k_proj(x)), **layers)


def transposed() -> Any:
    """A right one but for x W in the place of x Wᵀ, which the square matrix lets through."""
    layers = {f"to_{x}": linear(D, D, bias=False) for x in "qkv"}
    return module(lambda m, x: attend(x @ m.to_q.weight, m.to_k(x), m.to_v(x)), **layers)


def keys_first() -> Any:
    def forward(m: Any, x: Any) -> Any:
        k, q, v = m.qkv(x).chunk(3, -1)
        return attend(q, k, v)

    return module(forward, qkv=linear(D, 3 * D))


def heads_exchanged() -> Any:
    """The heads of the output stand in the other order before the last projection."""
    layers = {f"{x}_proj": linear(D, D) for x in "qkvo"}

    def forward(m: Any, x: Any) -> Any:
        heads = attend(m.q_proj(x), m.k_proj(x), m.v_proj(x)).unflatten(-1, (2, -1))
        return m.o_proj(heads.flip(-2).flatten(-2))

    return module(forward, **layers)


def fewer_keys() -> Any:
    layers = {"wq": linear(D, D), "wk": linear(D, D // 2), "wv": linear(D, D // 2), "wo": linear(D, D)}
    return module(lambda m, x: m.wo(attend(m.wq(x), m.wk(x), m.wv(x))), **layers)


def wide() -> Any:
    """More columns than heads fill, and dropout, which is switched off."""
    from torch import nn

    out = nn.Sequential(linear(4, D), nn.Dropout(0.5))
    layers = {"to_q": linear(D, 4, bias=False), "to_kv": linear(D, 8, bias=False), "to_out": out}
    return module(lambda m, x: m.to_out(attend(m.to_q(x), *m.to_kv(x).chunk(2, -1))), **layers)


def bert() -> Any:
    layers = {name: linear(D, D) for name in ("query", "key", "value")}
    return module(lambda m, x: (attend(m.query(x), m.key(x), m.value(x)), None), **layers)


def packed() -> Any:
    return module(lambda m, x: m.out(attend(*m.Wqkv(x).chunk(3, -1))), Wqkv=linear(D, 3 * D), out=linear(D, D))


def by_head() -> Any:
    def forward(m: Any, x: Any) -> Any:
        q, k, v = m.query_key_value(x).unflatten(-1, (2, -1)).chunk(3, -1)
        return m.dense(attend(q.flatten(-2), k.flatten(-2), v.flatten(-2)))

    return module(forward, query_key_value=linear(D, 3 * D), dense=linear(D, D))


def conv() -> Any:
    import torch

    class Conv1D(torch.nn.Module):
        def __init__(self, out: int, into: int) -> None:
            super().__init__()
            self.weight, self.bias = torch.nn.Parameter(torch.ones(into, out)), torch.nn.Parameter(torch.ones(out))

        def forward(self, x: Any) -> Any:
            return x @ self.weight + self.bias

    return module(
        lambda m, x: m.c_proj(attend(*m.c_attn(x).chunk(3, -1))), c_attn=Conv1D(3 * D, D), c_proj=Conv1D(D, D)
    )


def either() -> Any:
    """Attention to other tokens, or to its own where none are given."""
    from torch import nn

    class Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.to_q, self.to_kv = linear(D, D), linear(D, 2 * D)

        def forward(self, x: Any, context: Any = None) -> Any:
            return attend(self.to_q(x), *self.to_kv(x if context is None else 2 * context).chunk(2, -1))

    return Cross()


def bare(order: str) -> Any:
    import torch

    def forward(m: Any, x: Any) -> Any:
        return attend(*(x @ (w if order == "in out" else w.T) for w in (m.W_q, m.W_k, m.W_v)))

    return module(forward, **{f"W_{x}": torch.nn.Parameter(torch.ones(D, D)) for x in "qkv"})


NORMED = Attention(heads=2, qk_norm="rms", eps=1e-5)


def normed(read: str = "qk", at: str = "norm") -> Any:
    """Queries and keys of length √d in each head, with gains; ``read`` says with which."""
    from torch import nn

    def forward(m: Any, x: Any) -> Any:
        norms = [getattr(m, f"{n}_{at}") for n in read]
        parts = zip((m.q_proj, m.k_proj), norms, strict=True)
        q, k = (norm(p(x).unflatten(-1, (2, -1))).flatten(-2) for p, norm in parts)
        return attend(q, k, m.v_proj(x))

    layers = {f"{x}_proj": linear(D, D) for x in "qkv"}
    return module(forward, **layers, **{f"{x}_{at}": nn.RMSNorm(D // 2, eps=1e-5) for x in "qk"})


def own(**told: Any) -> Any:
    import torch

    return torch.nn.MultiheadAttention(D, 2, **told)


def agreed(layer: Any, spec: Attention = TWO) -> tuple[Target, Any]:
    found = target(layer, Request.of(spec, dtype="float32", layout="auto"), "layer")
    assert hasattr(found.convention, "reading")
    return found, found.convention


def is_right(found: Target, spec: Attention = TWO) -> bool:
    """Whether one call gives what the specification gives."""
    import numpy as np

    from symattn import Precision
    from symattn.bounds.inputs import Maker, Sizes

    how, rng = found.convention, np.random.default_rng(1)
    assert how.domain is not None  # one of a wrapper
    maker = Maker(spec, how, Precision.of("float32"), how.domain)
    inputs = maker.make(
        Sizes(3, 3, 1, 1, batch=(2,) * maker.batches), lambda name, shape: rng.integers(-2, 3, shape), rng
    )
    output = found.run(inputs).output
    return output is not None and bool(np.allclose(output, spec(**inputs), atol=1e-5))


RIGHT: dict[str, tuple[Callable[[], Any], Attention]] = {
    "apart": (apart, TWO), "fewer keys": (fewer_keys, Attention(heads=2, kv_heads=1)), "wide": (wide, TWO),
    "bert": (bert, TWO), "packed": (packed, TWO), "by head": (by_head, TWO), "conv": (conv, TWO),
    "either": (either, TWO), "gains": (normed, NORMED), "gains by name": (lambda: normed(at="layernorm"), NORMED),
    "bare": (lambda: bare("out in"), TWO), "bare, as they are": (lambda: bare("in out"), TWO),
    "torch": (own, TWO), "torch, batch first": (lambda: own(batch_first=True, bias=False), TWO),
    "packed columns": (packed, PACKED), "packed columns, apart": (apart, PACKED),
    "packed columns, by head": (by_head, PACKED), "packed columns, wide": (wide, PACKED),
    "packed columns, fewer keys": (fewer_keys, Attention(heads=2, kv_heads=1, packed=True)),
    "packed columns, torch": (own, PACKED),
    "torch, causal": (own, Attention(heads=2, causal=True)), "torch, padded": (own, Attention(heads=2, padding=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_weights_are_read_by_their_names(name: str) -> None:
    make, spec = RIGHT[name]
    layer = make()
    found, how = agreed(layer, spec)
    assert is_right(found, spec)
    assert "other weights in place of its own" in how.notes[0]
    again = target(layer, Request.of(spec, dtype="float32", layout="auto"), "layer", how)
    assert again.convention == how
    assert is_right(again, spec)


WRONG = [exchanged, transposed, keys_first, heads_exchanged]


@pytest.mark.parametrize("make", WRONG)
def test_a_wrong_module_is_wrong_in_every_reading(make: Callable[[], Any]) -> None:
    assert not is_right(agreed(make())[0])
    assert not is_right(agreed(make(), PACKED)[0], PACKED)


@pytest.mark.deep
def test_columns_in_another_order_are_named() -> None:
    (fault,) = verify(keys_first(), PACKED, examples=0).faults
    # Exchanged queries and keys are the same mistake.
    assert fault.cause.split("; or ")[0] == "the columns of the packed projection are read in the order k, q, v"


def test_biases_of_some_columns_are_no_packed_bias() -> None:
    layers = {"to_q": linear(D, D), "to_kv": linear(D, 2 * D, bias=False)}
    layer = module(lambda m, x: attend(m.to_q(x), *m.to_kv(x).chunk(2, -1)), **layers)
    refusals.refuses(agreed, layer, PACKED, says="holds b_q alone, which is no bias of packed columns")


def test_keys_with_the_gain_of_queries_are_wrong_and_exchanged_gains_are_not() -> None:
    assert not is_right(agreed(normed("qq"), NORMED)[0], NORMED)
    assert is_right(agreed(normed("kq"), NORMED)[0], NORMED)  # scores have the product of both
    assert not is_right(agreed(normed(), replace(NORMED, eps=1))[0], replace(NORMED, eps=1))


@pytest.mark.deep
@pytest.mark.parametrize("name", ["apart", "wide", "by head", "conv", "torch", "torch, causal"])
def test_right_modules_have_no_fault(name: str) -> None:
    make, spec = RIGHT[name]
    assert verify(make(), spec, examples=0).verdict.value == "no fault"


def test_the_modules_own_weights_stay() -> None:
    import torch

    layer = apart()
    before = {n: w.clone() for n, w in layer.state_dict().items()}
    assert is_right(agreed(layer)[0])
    assert all(torch.equal(w, before[n]) for n, w in layer.state_dict().items())
    assert layer.training


def sinking(wrong: bool = False) -> Any:
    """A module of q, k and v that holds the sinks of its two heads."""
    import torch

    class Sinking(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sinks = torch.nn.Parameter(torch.zeros(1, 2, 1, 1))

        def forward(self, q: Any, k: Any, v: Any, scale: float | None = None) -> Any:
            scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
            sinks = self.sinks.flip(1) if wrong else self.sinks
            both = torch.cat([scores, sinks.expand(*scores.shape[:-1], 1)], -1)
            return both.softmax(-1)[..., :-1] @ v

    return Sinking()


@pytest.mark.parametrize("is_wrong", [False, True])
def test_inputs_that_a_module_holds_are_passed_like_the_others(is_wrong: bool) -> None:
    spec = replace(TWO, sink="given")
    runner = target(sinking(is_wrong), Request.of(spec, dtype="float64", layout="bhnd"), "layer")
    assert "in place of its own: sinks" in runner.convention.notes[0]
    rng = np.random.default_rng(1)
    inputs = {name: rng.integers(-3, 4, (2, 3, 4)).astype(float) for name in "qkv"} | {"sink": np.array([1.0, -2.0])}
    outcome = runner.run(inputs)
    assert outcome.error is None
    assert np.allclose(outcome.output, spec(**inputs), rtol=0, atol=1e-12) is not is_wrong
    four = Request.of(replace(spec, heads=4))
    refusals.refuses(target, sinking(), four, "layer", says="holds sinks")


def test_what_cannot_be_read_is_refused() -> None:
    import torch

    def refusal(layer: Any, spec: Attention = TWO) -> str:
        return refusals.refusal(target, layer, Request.of(spec, layout="auto"), "layer")

    assert refusal(own(), Attention()) == "layer has 2 heads, and the specification 1; say --heads 2, in Python heads=2"
    assert "holds mlp.weight (8, 8), which is not a projection" in refusal(module(lambda m, x: x, mlp=linear(D, D)))
    assert "no w_k among them" in refusal(module(lambda m, x: x, q_proj=linear(D, D)))
    assert refusal(normed()).endswith("; say --qk-norm rms or layer")
    assert "q_norm.bias (4,), which is not" in refusal(module(lambda m, x: x, q_norm=torch.nn.LayerNorm(4)), NORMED)
    both = torch.nn.ModuleList([apart(), apart()])
    assert "holds two weights that may be w_q" in refusal(both)
    tall = module(lambda m, x: x, to_q=linear(4, D), to_k=linear(4, D), to_v=linear(4, D))
    assert "is not a projection of 4 columns to 2 heads" in refusal(tall)


def test_a_module_in_a_file(program: Program) -> None:
    from symattn.programs.child import Child

    program("import torch\nlayer = torch.nn.MultiheadAttention(8, 2)\n")
    with Child("attn.py:layer", Request.of(TWO, dtype="float32", layout="auto")) as child:
        assert hasattr(child.convention, "reading")
        assert child.convention.framework == "torch"


def rms(wrong: bool = False) -> Any:
    import torch

    class Norm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(D))

        def forward(self, x: Any) -> Any:
            found = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
            return found * (1 + self.weight) if wrong else found * self.weight

    return Norm()


def test_norms_that_hold_their_gain() -> None:
    import torch

    for layer, spec, right in (
        (torch.nn.LayerNorm(D), LayerNorm(), True), (torch.nn.RMSNorm(D, eps=1e-5), RMSNorm(), True),
        (rms(), RMSNorm(), True), (rms(wrong=True), RMSNorm(), False), (rms(), LayerNorm(), False),
    ):  # fmt: skip
        found = definitions.target(layer, requested(spec, dtype="float32"), "norm")
        assert found.subject.shapes[0]["d"] == D
        assert found.right is right
        assert "other weights in place of its own" in " ".join(found.convention.notes)
    with pytest.raises(InputError, match="which is not a gain or bias of a norm"):
        definitions.target(linear(D, D), requested(RMSNorm(), dtype="float32"), "norm")


def of_transformers(name: str) -> Any:
    """A layer of Hugging Face Transformers, of eight columns and two heads."""
    if name == "gpt2":
        from transformers.models.gpt2.modeling_gpt2 import GPT2Attention, GPT2Config

        return GPT2Attention(GPT2Config(n_embd=D, n_head=2, n_positions=512, attn_implementation="sdpa"), layer_idx=0)
    if name == "bert":
        from transformers.models.bert.modeling_bert import BertConfig, BertSelfAttention

        return BertSelfAttention(BertConfig(hidden_size=D, num_attention_heads=2, attn_implementation="eager"))
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    return LlamaRMSNorm(D, eps=1e-6)


@pytest.mark.deep
@pytest.mark.transformers
@pytest.mark.parametrize(
    ("name", "spec", "other"),
    [
        ("gpt2", Attention(heads=2, causal=True), TWO), ("bert", TWO, Attention(heads=2, scale=1)),
        ("llama", RMSNorm(eps=1e-6), RMSNorm(eps=1e-3)),
    ],
)  # fmt: skip
def test_layers_of_transformers(name: str, spec: Any, other: Any) -> None:
    assert verify(of_transformers(name), spec, examples=0).verdict.value == "no fault"
    assert convicts(of_transformers(name), other, examples=0)
