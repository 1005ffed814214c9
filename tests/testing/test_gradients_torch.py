"""Gradients by torch and Transformers, of caps, sinks and biases: none is near the bound, whatever the inputs are."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.formats import Format
from symattn.bounds.sharp.backward_bounds import gradients
from symattn.bounds.sharp.limits import Stores
from tests.testing.half_kernels import INPUTS, Array, made, normal

H, N, D = 2, 70, 24
SCALE = D**-0.5
Attend = Callable[..., Any]


def sdpa(backend: str) -> Attend:
    def attend(q: Any, k: Any, v: Any, bias: Any, sink: Any, cap: Any) -> Any:
        import torch

        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    return attend


def of_transformers(name: str) -> Attend:
    def attend(q: Any, k: Any, v: Any, bias: Any, sink: Any, cap: Any) -> Any:
        from importlib import import_module

        function = import_module(f"transformers.models.{name}.modeling_{name}").eager_attention_forward
        module = SimpleNamespace(num_key_value_groups=1, training=True, sinks=sink)
        more = {"softcap": cap} if name == "gemma2" else {}
        return function(module, q, k, v, bias, scaling=SCALE, **more)[0].transpose(1, 2)

    return attend


def wide(q: Any, k: Any, v: Any, bias: Any, sink: Any, cap: Any) -> Any:
    """In float32, all steps."""
    import torch

    s = (q.float() @ k.float().mT) * SCALE
    s = (cap * torch.tanh(s / cap) if cap else s) + bias.float()
    if sink is not None:
        s = torch.cat([s, sink.float().reshape(1, -1, 1, 1).expand(1, H, N, 1)], -1)
    return (s.softmax(-1)[..., :N] @ v.float()).to(q.dtype)


#: What attends, how often it stores scores, and with what: a cap, a sink.
WAYS: dict[str, tuple[Attend, int, bool, bool]] = {
    "flash": (sdpa("FLASH_ATTENTION"), 0, False, False),
    "math": (sdpa("MATH"), 0, False, False),
    "wide": (wide, 0, True, True),
    "gemma2": (of_transformers("gemma2"), 2, True, False),
    "gpt_oss": (of_transformers("gpt_oss"), 2, False, True),
    "t5": (of_transformers("t5"), 2, False, False),
}


def ratios(way: str, name: str, inputs: Any, size: float, causal: bool) -> list[float]:
    """The largest error of each gradient, in parts of what is allowed; dO is of the given size."""
    import torch

    attend, scores, capped, sunk = WAYS[way]
    f, rng, every = Format(name), np.random.default_rng(5), np.arange(N)
    q, k, v = map(np.ascontiguousarray, made(f, inputs, (H, N, D)))
    bias = f.rounded(3 * rng.standard_normal((H, N, N)))
    bias = np.where(np.tri(N, dtype=bool), bias, -np.inf) if causal else bias
    sink, cap = f.rounded(rng.standard_normal(H)), 5.0 if capped else None
    dtype = getattr(torch, name)
    given = [torch.tensor(a[None]).to(dtype).requires_grad_() for a in (q, k, v)]
    out = attend(*given, torch.tensor(bias[None]).to(dtype), torch.tensor(sink).to(dtype) if sunk else None, cap)
    do = f.rounded(size * rng.standard_normal(q.shape))
    out.backward(torch.tensor(do[None]).to(dtype))
    spec = Attention(heads=H, mask="additive", softcap=cap, sink="given" if sunk else None)
    arrays = {"q": q, "k": k, "v": v, "mask": bias} | ({"sink": sink} if sunk else {})
    found = gradients(spec, arrays, do, Stores(f, scores), every, every)
    got: list[Array] = [a.grad[0].double().numpy() for a in given]
    return [float(found[n].ratios(g).max()) for n, g in zip(("dq", "dk", "dv"), got, strict=True)]


KINDS = [normal, *(pytest.param(i, marks=pytest.mark.deep) for i in INPUTS if i is not normal)]


@pytest.mark.transformers
@pytest.mark.parametrize("inputs", KINDS, ids=lambda i: i.__name__)
@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("way", WAYS)
def test_right_gradients_pass(way: str, name: str, inputs: Any) -> None:
    for size, causal in ((1.0, True), (1.0, False), (1e-4, True)):
        assert max(ratios(way, name, inputs, size, causal)) < 2 / 3
