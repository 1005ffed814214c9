"""Variants that PyTorch has a function for, and gradients by autograd: within the roundings of the operations."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import rounded, vjp
from symattn.attention.variants import AGREES, VARIANTS
from symattn.derivations.variants import Support
from tests.attention.definition import parts
from tests.attention.gradient_cases import CASES, Case, drawn
from tests.attention.test_torch_layers import B, M, N, array, block, fields, forbidden, layer, made, tensors, tokens

pytestmark = pytest.mark.torch
Tensors = Any  # the inputs by name, as attributes


def attend(t: Tensors, mask: Any = None, **how: Any) -> Any:
    """torch's own function; a mask holds booleans, or numbers to add."""
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = (x if x.ndim > 2 else x[None] for x in (t.q, t.k, t.v))
    out = scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, **how)[0]
    return out if t.q.ndim > 2 else out[0]


def flex(t: Tensors, modify: Callable[..., Any] | None = None, **how: Any) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = (x if x.ndim > 2 else x[None] for x in (t.q, t.k, t.v))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = flex_attention(q[None], k[None], v[None], score_mod=modify, **how)
    many = found if isinstance(found, tuple) else (found,)
    out = [x[0] if t.q.ndim > 2 else x[0, 0] for x in many]
    return tuple(out) if isinstance(found, tuple) else out[0]


def places(t: Tensors, offset: int | None = None) -> tuple[Any, Any]:
    """The places of queries, counted so that the last ones stand together, and of keys."""
    import torch

    n_q, n_k = t.q.shape[-2], t.k.shape[-2]
    return torch.arange(n_q)[:, None] + (n_k - n_q if offset is None else offset), torch.arange(n_k)[None]


def masked(allowed: Callable[[Any, Any], Any]) -> Callable[[Tensors], Any]:
    return lambda t: attend(t, allowed(*places(t)))


def combined(t: Tensors) -> Any:
    import torch

    i, j = places(t)
    allowed = (j <= i) & (i - j < 3) & t.mask & t.keep
    return attend(t, torch.where(allowed, t.bias, -torch.inf))


def normed(norm: str) -> Callable[[Tensors], Any]:
    def run(t: Tensors) -> Any:
        from torch.nn import functional as f

        by = {
            "rms": lambda x, r: f.rms_norm(x, (4,), getattr(t, f"g_{r}"), 0.25),
            "layer": lambda x, r: f.layer_norm(x, (4,), getattr(t, f"g_{r}"), getattr(t, f"beta_{r}"), 0.0),
            "l2": lambda x, r: f.normalize(x, dim=-1),
        }[norm]
        t.q, t.k = by(t.q, "q"), by(t.k, "k")
        return attend(t, scale=10.0 if norm == "l2" else None)

    return run


def cosine(t: Tensors) -> Any:
    import torch

    return torch.softmax(10 * torch.cosine_similarity(t.q[:, None], t.k[None], dim=-1), -1) @ t.v


def of_tokens(heads: int = 1, kv_heads: int = 1, packed: bool = False, gqa: bool = False, **how: Any) -> Any:
    def run(t: Tensors) -> Any:
        from torch.nn import functional as f

        y = getattr(t, "y", t.x)
        made = {}
        if packed:
            each = f.linear(t.x, t.w_in.mT, t.b_in).chunk(3, -1)
            made = dict(zip("qkv", each, strict=True))
        else:
            for r in "qkv":
                weight, bias = getattr(t, f"w_{r}"), getattr(t, f"b_{r}", None)
                made[r] = f.linear(t.x if r == "q" else y, weight.mT, bias)
        numbers = {"q": heads, "k": kv_heads, "v": kv_heads}
        t.q, t.k, t.v = (made[r].unflatten(-1, (numbers[r], -1)).transpose(-2, -3) for r in "qkv")
        out = attend(t, enable_gqa=gqa, **({"mask": places(t)[1] <= places(t)[0]} if how.get("causal") else {}))
        return f.linear(out.transpose(-2, -3).flatten(-2), t.w_o.mT, getattr(t, "b_o", None))

    return run


def parameter_free(t: Tensors) -> Any:
    t.q = t.k = t.v = t.x
    return attend(t)


def sunk(t: Tensors) -> Any:
    """A column of logits that softmax sees and the values do not."""
    import torch

    s = torch.cat([t.q @ t.k.mT / 2, t.sink[:, None, None].expand(-1, t.q.shape[-2], 1)], -1)
    return torch.softmax(s, -1)[..., :-1] @ t.v


def dropped(t: Tensors) -> Any:
    import torch

    return torch.softmax(t.q @ t.k.mT / 2, -1) * t.drop / 0.75 @ t.v


def capped(s: Any, *_: Any) -> Any:
    import torch

    return 2 * torch.tanh(s / 2)


TORCH: dict[str, Callable[[Tensors], Any]] = {
    "dot": lambda t: attend(t, scale=1.0),
    "scaled dot": attend,
    "1/d_k": lambda t: attend(t, scale=0.25),
    "scale per head": lambda t: flex(t, lambda s, b, h, i, j: s * t.scale[h], scale=1.0),
    "cosine": cosine,
    "RMS norm of q and k": normed("rms"),
    "LayerNorm of q and k": normed("layer"),
    "q and k of length 1": normed("l2"),
    "softcap": lambda t: flex(t, capped),
    "bias": lambda t: attend(t, t.bias),
    "causal": masked(lambda i, j: j <= i),
    "causal, top-left": lambda t: attend(t, is_causal=True),
    "sliding window": masked(lambda i, j: (j <= i) & (i - j < 2)),
    "window of two sides": masked(lambda i, j: (i - j).abs() <= 1),
    "local blocks": masked(lambda i, j: (j <= i) & (i // 2 == j // 2)),
    "prefix": masked(lambda i, j: (j <= i) | (j < 2)),
    "padding": lambda t: attend(t, t.keep[None]),
    "boolean mask": lambda t: attend(t, t.mask),
    "additive mask": lambda t: attend(t, t.mask),
    "masks combined": combined,
    "not stabilised": attend,
    "log-sum-exp returned": lambda t: flex(t, return_lse=True),
    "sink": sunk,
    "dropout": dropped,
    "self-attention": of_tokens(),
    "cross-attention": of_tokens(),
    "parameter-free": parameter_free,
    "multi-head": of_tokens(2, 2),
    "multi-query": of_tokens(6, 1, gqa=True),
    "grouped-query": lambda t: attend(t, places(t)[1] <= places(t)[0], enable_gqa=True),
    "grouped-query, of tokens": of_tokens(6, 2, gqa=True, causal=True),
    "packed projections": of_tokens(2, 2, packed=True),
}


class Named:
    """Tensors as attributes."""

    def __init__(self, **tensors: Any) -> None:
        self.__dict__.update(tensors)


def theirs(name: str, example: dict[str, np.ndarray]) -> list[np.ndarray]:
    import torch

    tensors = {n: torch.tensor(a) for n, a in example.items()}
    with torch.no_grad():
        found = TORCH[name](Named(**tensors))
    return [x.numpy() for x in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("name", AGREES["PyTorch"])
def test_torch_gives_what_the_variant_gives(name: str) -> None:
    of, kind = Support(name, VARIANTS[name]), rounded("float64")
    for bounded, own in zip(of.run(kind.lift), theirs(name, of.example), strict=True):
        assert np.all(bounded.within(own))
        assert not np.any(bounded.within(own + 2.0**-30))


def test_each_is_told_from_the_plain_one() -> None:
    """Each changes the output of plain attention on its example, as far as it differs from that at all."""
    for name in set(AGREES["PyTorch"]) - {"scaled dot", "not stabilised", "self-attention", "cross-attention"}:
        example = Support(name, VARIANTS[name]).example
        if {"q", "k", "v"} <= example.keys() and VARIANTS[name].spec.key_heads == VARIANTS[name].spec.heads:
            plain = attend_plain(example)
            assert np.abs(theirs(name, example)[0] - plain).max() > 1e-4 or name == "log-sum-exp returned", name


def attend_plain(example: dict[str, np.ndarray]) -> np.ndarray:
    import torch

    out = attend(Named(**{n: torch.tensor(example[n]) for n in "qkv"}))
    return np.asarray(out.numpy())


def test_what_is_listed_is_tried() -> None:
    assert set(AGREES["PyTorch"]) == set(TORCH)


ROUNDED = rounded("float64")
#: Draws without equal scores, of which rounding would decide the order.
SEEDS = {"sparsemax": 3, "entmax": 3}
#: Cases of combined fields that torch can express, and whose bound can be computed.
COMBINED = [n for n in CASES if n.startswith("combined") and not any(w in n for w in ("sparsemax", "entmax"))]


def by_torch(case: Case) -> tuple[Any, dict[str, Any]]:
    """The output, and the gradients of ⟨G, output⟩ by all numbers."""
    import torch

    given = {n: torch.tensor(a, dtype=torch.float64, requires_grad=True) for n, a in case.numbers.items()}
    plain = {n: torch.tensor(a) for n, a in case.plain.items()}
    outputs = parts(case.function(**given, **plain))
    cotangents = parts(case.cotangent(ROUNDED))
    total = torch.zeros((), dtype=torch.float64)
    for y, g in zip(outputs, cotangents, strict=True):
        there = y.isfinite()
        total = total + (y[there] * torch.tensor(g.value.midpoints())[there]).sum()
    total.backward()
    return outputs, {n: t.grad.numpy() for n, t in given.items()}


def case_of(name: str) -> Case:
    return drawn(VARIANTS[name], 8, SEEDS[name]) if name in SEEDS else CASES[name]


@pytest.mark.parametrize("name", [*VARIANTS, *COMBINED])
def test_autograd_agrees(name: str) -> None:
    case = case_of(name)
    bounds = vjp(case.function, case.cotangent(ROUNDED), case.given(ROUNDED))
    outputs, theirs = by_torch(case)
    values = parts(case.function(**case.given(ROUNDED)))
    assert all(v.within(y.detach().numpy()).all() for v, y in zip(values, outputs, strict=True))
    for n, bound in bounds.items():
        assert bound.within(theirs[n]).all(), n
        assert (bound.bound < 2.0**-36).all()


@pytest.mark.parametrize(
    "name", ["scaled dot", "sink", "latent", "Shaw", "softcap", "RMS norm of q and k", "sparsemax"]
)
def test_a_gradient_off_by_a_billionth_is_beyond_the_bound(name: str) -> None:
    case = case_of(name)
    bounds = vjp(case.function, case.cotangent(ROUNDED), case.given(ROUNDED))
    theirs = by_torch(case)[1]
    for n, bound in bounds.items():
        off = np.abs(theirs[n]) > 1e-3
        assert not bound.within(theirs[n] * (1 + 1e-9))[off].any()


# -- layers ------------------------------------------------------------------------------------------------------------
def of_layer(
    module: Any, call: dict[str, Any], *given: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, Any], Any]:
    """The inputs of a layer by this package's names, the gradients of ⟨G, output⟩ by them as torch computes them, G."""
    import torch

    arrays = dict(zip("xy", given, strict=False))
    parameters = layer(module) | arrays
    kept = {n: a.copy() for n, a in parameters.items()}
    sources = [t.requires_grad_() for t in tensors(*given)]
    output = module(*sources, **call)
    g = np.random.default_rng(1).integers(-4, 5, output.shape) / 4
    (output * torch.tensor(g)).sum().backward()
    for parameter in module.parameters():
        parameter.data = parameter.grad
    return kept, layer(module) | {n: array(t.grad) for n, t in zip("xy", sources, strict=False)}, g


LAYERS = [
    (kind, activation, first)
    for kind in ("Encoder", "Decoder")
    for activation, first in (("relu", True), ("gelu", False))
]


@pytest.mark.parametrize(("kind", "activation", "norm_first"), LAYERS)
def test_layers_have_the_gradients_of_torch(kind: str, activation: str, norm_first: bool) -> None:
    import torch

    module = made(getattr(torch.nn, f"Transformer{kind}Layer"), "float64", **fields(activation, norm_first))
    x, y = tokens("float64", N, B), tokens("float64", M, B)
    cross = kind == "Decoder"
    call = {"tgt_mask" if cross else "src_mask": forbidden()}
    given, theirs, g = of_layer(module, call, *((x, y) if cross else (x,)))
    spec = block(activation, norm_first, True, *([True] if cross else []))
    bounds = vjp(spec, ROUNDED.lift(g), {n: ROUNDED.lift(a) for n, a in given.items()})
    assert bounds.keys() == theirs.keys()
    for n, bound in bounds.items():
        assert bound.within(theirs[n]).all(), n
        assert (bound.bound < 2.0**-30).all()
