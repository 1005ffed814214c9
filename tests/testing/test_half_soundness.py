"""No right kernel is accused: by others and our own, on inputs of many kinds, plain ones and variants.

Variants have caps, sinks, biases, windows and shared heads. ``exhaustive`` takes as many cases of each kind as
``SYMATTN_CASES`` says (2000 by default, a few hours); results are in docs/figures.md. Each case has thousands of
statistics: every element, every mean.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from math import sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.formats import Format
from symattn.testing import AttentionFault, assert_close_to_exact
from tests.testing import half_kernels
from tests.testing.half_kernels import INPUTS, KERNELS, Array, made, normal, online, refused

KEYS, WIDTHS = (5, 12, 37, 64, 130, 256, 400, 700), (16, 40, 64, 80, 128)
#: torch's hint on speed.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
CAPS, WINDOWS = (None, None, 2.0, 20.0, 50.0), (None, None, 1, 16, 63, 100)
BIASES = ("", "", "normal", "large", "alibi", "additive")


@dataclass(frozen=True)
class Case:
    """A specification, its arrays in float64, and the format whose numbers they are."""

    spec: Attention
    format: Format
    arrays: dict[str, Array]

    @property
    def seen(self) -> Array:
        """Which keys each query sees."""
        n = self.arrays["k"].shape[-2]
        back = self.spec.sides[0]
        i, j = np.arange(n)[:, None], np.arange(n)
        return (j <= i) & (True if back is None else j >= i - back)

    def tensor(self, name: str) -> Any:
        import torch

        dtype = getattr(torch, self.format.name)
        return torch.tensor(np.ascontiguousarray(self.arrays[name])).to(dtype)[None]

    @property
    def added(self) -> Array:
        """What is added to scores, (4 or 1, n, n), −∞ where nothing is seen."""
        added = self.arrays.get("bias", self.arrays.get("mask", np.zeros((1, 1, 1))))
        return np.where(self.seen, added, -np.inf)

    @property
    def sink(self) -> Array:
        return self.arrays.get("sink", np.full(self.spec.heads, -np.inf))[:, None, None]


def plain(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    shape = int(rng.choice([1, 2, 4])), int(rng.choice(KEYS)), int(rng.choice(WIDTHS))
    f, inputs = Format(str(rng.choice(["bfloat16", "float16"]))), INPUTS[rng.integers(len(INPUTS))]
    spec = Attention(causal=bool(rng.integers(2)), heads=shape[0])
    q, k, v = made(f, inputs, shape, seed)
    return Case(spec, f, {"q": f.rounded(q * rng.choice([1, 1, 1, 3, 10])), "k": k, "v": v})


def varied(seed: int) -> Case:
    """A causal variant: of four heads that share keys or not, with a cap, a window, a sink and a bias or without."""
    rng = np.random.default_rng(seed)
    shared, n, width = int(rng.choice([1, 2, 4])), int(rng.choice(KEYS[:-1])), int(rng.choice(WIDTHS))
    f, inputs = Format(str(rng.choice(["bfloat16", "float16"]))), INPUTS[rng.integers(len(INPUTS))]
    cap, window, sunk = CAPS[rng.integers(len(CAPS))], WINDOWS[rng.integers(len(WINDOWS))], rng.integers(2) == 1
    q, k, v = made(f, inputs, (4, n, width), seed)
    arrays = {"q": f.rounded(q * rng.choice([1, 1, 1, 3, 10])), "k": k[:shared], "v": v[:shared]}
    if sunk:
        arrays["sink"] = f.rounded(rng.choice([0.1, 3.0]) * rng.standard_normal(4))
    bias = str(rng.choice(BIASES))
    spec = Attention(
        causal=True,
        heads=4,
        kv_heads=shared,
        softcap=cap,
        window=None if window is None else (window, 0),
        sink="given" if sunk else None,
        bias=bias not in ("", "additive"),
        mask="additive" if bias == "additive" else None,
    )
    if bias:
        arrays["mask" if bias == "additive" else "bias"] = f.rounded(biases(bias, n, rng))
    return Case(spec, f, arrays)


def biases(kind: str, n: int, rng: np.random.Generator) -> Array:
    """What is added to scores, (4, n, n); an additive mask has the least number of float16 in some places."""
    if kind == "alibi":
        return np.asarray(
            -np.array([0.5, 0.0625, 2**-6, 2**-8])[:, None, None] * np.abs(np.subtract.outer(*[np.arange(n)] * 2))
        )
    drawn = rng.standard_normal((4, n, n)) * (8 if kind == "large" else 1)
    return (
        np.where((rng.random((n, n)) < 0.3) & ~np.eye(n, dtype=bool), -65504.0, drawn) if kind == "additive" else drawn
    )


def scores(case: Case) -> Array:
    """Scores in float32, capped, −∞ where nothing is seen."""
    q, k = (case.arrays[n].astype(np.float32) for n in ("q", "k"))
    s = (q @ np.repeat(k, 4 // len(k), axis=0).swapaxes(-1, -2)) * np.float32(1 / sqrt(q.shape[-1]))
    if case.spec.softcap:
        cap = np.float32(case.spec.softcap)
        s = cap * np.tanh(s / cap)
    return np.asarray(s.astype(float) + case.added)


def _values(case: Case) -> Array:
    v = case.arrays["v"]
    return np.repeat(v, 4 // len(v), axis=0)


def wide(case: Case) -> Array:
    """Nothing is stored but the output."""
    s = scores(case)
    top = np.maximum(s.max(-1, keepdims=True), case.sink)
    e = np.exp(s - top)
    return case.format.rounded(e @ _values(case) / (e.sum(-1, keepdims=True) + np.exp(case.sink - top)))


def tiles(case: Case) -> Array:
    """Weights are stored relative to the largest score so far; a sink is a first key whose value is 0."""
    s, v = scores(case), _values(case)
    if "sink" in case.arrays:
        s = np.concatenate([np.broadcast_to(case.sink, (*s.shape[:-1], 1)), s], axis=-1)
        v = np.concatenate([np.zeros_like(v[:, :1]), v], axis=-2)
    with np.errstate(invalid="ignore"):
        return _streamed(s, v, case.format)


def _streamed(s: Array, v: Array, f: Format) -> Array:
    """``online`` of what a window leaves: a first tile that a row sees nothing of is not summed."""
    out = np.empty((*s.shape[:-1], v.shape[-1]))
    for h, i in np.ndindex(s.shape[:-1]):
        at = np.flatnonzero(np.isfinite(s[h, i]))
        out[h, i] = online(s[h, i : i + 1, at].reshape(1, -1), v[h, at], f)[0]
    return out


def of_transformers(family: str, case: Case) -> Array:
    """The eager function of a family."""
    import torch

    function = import_module(f"transformers.models.{family}.modeling_{family}").eager_attention_forward
    sink = case.tensor("sink")[0] if "sink" in case.arrays else None
    q, k, v = (case.tensor(n) for n in ("q", "k", "v"))
    module = SimpleNamespace(num_key_value_groups=4 // k.shape[1], training=False, sinks=sink)
    hidden = torch.tensor(case.added).to(q.dtype).clamp(torch.finfo(q.dtype).min)
    more = {"softcap": case.spec.softcap} if family == "gemma2" else {}
    out = function(module, q, k, v, hidden[None], scaling=q.shape[-1] ** -0.5, **more)[0]
    return np.asarray(out.transpose(1, 2)[0].double().numpy())


def by_torch(backend: str, case: Case) -> Array:
    """PyTorch's own kernel, for variants with a mask of the type of the inputs."""
    import torch

    q, *others = (case.tensor(n) for n in ("q", "k", "v"))
    k, v = (a.repeat_interleave(q.shape[1] // a.shape[1], 1) for a in others)
    own: dict[str, Any] = {"is_causal": case.spec.causal}
    if case.spec != Attention(causal=case.spec.causal, heads=case.spec.heads):
        own = {"attn_mask": torch.tensor(case.added)[None].to(q.dtype)}
    with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, **own)
    return np.asarray(out[0].double().numpy())


def by_flex(case: Case) -> Array:
    """``flex_attention``, not compiled, with a cap, the bias and the mask as its score_mod."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    cap, added = case.spec.softcap, torch.tensor(np.broadcast_to(case.added, (4, *case.seen.shape)).astype(np.float32))

    def score_mod(s: Any, _b: Any, h: Any, i: Any, j: Any) -> Any:
        return (cap * torch.tanh(s / cap) if cap else s) + added[h, i, j]

    q, k, v = (case.tensor(n) for n in ("q", "k", "v"))
    out = flex_attention(q, k, v, score_mod=score_mod, enable_gqa=True)
    return np.asarray(out[0].double().numpy())


Outputs = Iterator[tuple[str, str | None, Array]]  # a kernel's name, the contract that it keeps, what it gives


def right_plain(case: Case) -> Outputs:
    for kernel in KERNELS:
        stores_little = kernel in (half_kernels.wide, half_kernels.tiles, half_kernels.cut_off)
        out = kernel(*case.arrays.values(), case.format, case.spec.causal)
        yield kernel.__name__, "fused" if stores_little else None, out
    yield "torch flash", "fused", by_torch("FLASH_ATTENTION", case)
    yield "torch math", "fused", by_torch("MATH", case)


def right_varied(case: Case) -> Outputs:
    yield "wide", "fused", wide(case)
    yield "tiles", "fused", tiles(case)
    if "sink" in case.arrays:
        if not case.spec.softcap:
            yield "gpt_oss", None, of_transformers("gpt_oss", case)
        return
    yield "gemma2", None, of_transformers("gemma2", case)
    yield "flex", None, by_flex(case)
    if not case.spec.softcap:
        yield "torch flash", "fused", by_torch("FLASH_ATTENTION", case)
        yield "torch math", "fused", by_torch("MATH", case)


#: How cases are drawn, and the right kernels of each.
KINDS: dict[str, tuple[Callable[[int], Case], Callable[[Case], Outputs]]] = {
    "plain": (plain, right_plain),
    "varied": (varied, right_varied),
}


def accused(kind: str, seeds: int) -> Iterator[str]:
    """The right outputs of so many cases that are accused, with the words."""
    draw, right = KINDS[kind]
    for seed in range(seeds):
        case = draw(seed)
        one = case.spec.heads == 1  # then there is no axis of heads
        given: dict[str, Any] = {n: a[0] if one else a for n, a in case.arrays.items()}
        given |= {"spec": case.spec, "precision": case.format.name}
        for name, contract, out in right(case):
            yield from (f"{seed} {case.spec} {name} {w}" for w in refused(out[0] if one else out, contract, **given))


EVERY = [pytest.param("plain", marks=pytest.mark.torch), pytest.param("varied", marks=pytest.mark.transformers)]


@pytest.mark.parametrize("kind", EVERY)
def test_right_kernels_are_not_accused(kind: str) -> None:
    assert not [*accused(kind, 3)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", EVERY)
def test_right_kernels_are_never_accused(kind: str) -> None:
    assert not [*accused(kind, int(os.environ.get("SYMATTN_CASES", "2000")))]


WRONG: dict[str, dict[str, Any]] = {
    "the cap is ignored": {"softcap": None},
    "the cap is a quarter larger": {"softcap": 25.0},
    "the window is one key longer": {"window": (17, 0)},
    "the window is ignored": {"window": None},
    "the sink is ignored": {"sink": None},
    "the bias is ignored": {"bias": False},
}


@pytest.mark.deep
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_kernels_of_variants_are_accused(wrong: str, name: str) -> None:
    f = Format(name)
    spec = Attention(causal=True, heads=4, kv_heads=2, softcap=20.0, window=(16, 0), sink="given", bias=True)
    q, k, v = made(f, normal, (4, 130, 64), 1)
    arrays = {"q": f.rounded(3 * q), "k": k[:2], "v": v[:2], "sink": f.rounded(np.linspace(-1, 2, 4))}
    case = Case(spec, f, arrays | {"bias": f.rounded(biases("alibi", 130, np.random.default_rng(2)))})
    other = replace(case, spec=replace(spec, **WRONG[wrong]))
    if (lost := wrong.split()[1]) in ("sink", "bias"):
        other = replace(other, arrays={n: a for n, a in case.arrays.items() if n != lost})
    assert_close_to_exact(tiles(case), **case.arrays, spec=spec, precision=name, contract="fused")
    with pytest.raises(AttentionFault, match="beyond"):
        assert_close_to_exact(tiles(other), **case.arrays, spec=spec, precision=name, contract="fused")
