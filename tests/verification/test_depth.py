"""Attention over depth: against loops, in its usual forms, and with mistakes that are found and named."""

from collections.abc import Callable
from math import exp, sqrt

import numpy as np
import pytest

from symattn import Attention, DepthAttention, Domain, Gradient, LinearAttention, Verdict, kind, verify
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options, verified
from tests.refusals import refuses

Array = np.ndarray
NORMED = DepthAttention(eps=0.125)
INNER = DepthAttention(eps=0.125, layers="inner")
BARE = DepthAttention(norm=None)
FEW = Domain(max_tokens=20, max_width=12)


# -- loops -------------------------------------------------------------------------------------------------------------
def by_loops(w: Array, outputs: Array, gain: Array | None, eps: float) -> Array:
    """Number by number, for outputs (layers, items, tokens, columns)."""
    layers, items, tokens, width = outputs.shape
    result = np.zeros((items, tokens, width))
    for item in range(items):
        for token in range(tokens):
            scores = []
            for layer in range(layers):
                x = [float(number) for number in outputs[layer, item, token]]
                root = sqrt(sum(number * number for number in x) / width + eps) if gain is not None else 1.0
                gains = gain if gain is not None else [1.0] * width
                scores.append(sum(w[c] * x[c] / root * gains[c] for c in range(width)))
            terms = [exp(score) for score in scores]
            for c in range(width):
                result[item, token, c] = sum(terms[k] * outputs[k, item, token, c] for k in range(layers)) / sum(terms)
    return result


@pytest.mark.parametrize("spec", [NORMED, INNER, BARE])
def test_every_way_is_that_of_loops(spec: DepthAttention) -> None:
    rng = np.random.default_rng(3)
    w, outputs = rng.standard_normal(4), rng.standard_normal((5, 2, 3, 4))
    gain = rng.uniform(0.5, 2, 4) if spec.norm else None
    loops = by_loops(w, outputs, gain, float(spec.eps))
    given = {"w": w, "outputs": outputs if spec.layers == "first" else np.moveaxis(outputs, 0, 2)}
    given |= {} if gain is None else {"gain": gain}
    for way in (spec, *next(definitions_of(spec)).ways):
        assert np.allclose(way(**given), loops, rtol=1e-12)


def test_it_is_an_attention_of_one_query_with_a_norm_of_keys() -> None:
    spec = Attention(scale=1, qk_norm="rms", qk_norm_of="keys", eps=0.125)
    rng = np.random.default_rng(4)
    w, outputs = rng.standard_normal(4), rng.standard_normal((5, 4))
    assert np.allclose(spec(w[None], outputs, outputs)[0], NORMED(w, outputs[:, None])[0])


def test_a_query_of_zeros_gives_the_mean_exactly() -> None:
    exact = kind("exact")
    w, outputs = exact.lift(np.zeros(2)), exact.lift(np.array([[[1.0, 4.0]], [[2.0, 0.0]], [[0.0, 0.0]]]))
    assert str(NORMED(w, outputs)) == "exact([[1, 4/3]])"


# -- programs ----------------------------------------------------------------------------------------------------------
def rms(x: Array, eps: float = 0.125) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(eps))


def weighted(scores: Array, values: Array, axis: int = 0) -> Array:
    e = np.exp(scores - scores.max(axis, keepdims=True))
    return ((e / e.sum(axis, keepdims=True))[..., None] * values).sum(0)


def stacked(w: Array, outputs: Array, gain: Array) -> Array:
    return weighted(rms(outputs) * gain @ w, outputs)


def divided(w: Array, outputs: Array, gain: Array) -> Array:
    """Scores of the outputs themselves, divided by their roots."""
    root = np.sqrt((outputs * outputs).mean(-1) + outputs.dtype.type(0.125))
    return weighted(outputs @ (w * gain) / root, outputs)


def over_tokens(w: Array, outputs: Array, gain: Array) -> Array:
    return weighted(rms(outputs) * gain @ w, outputs, axis=-1)


def of_normed_values(w: Array, outputs: Array, gain: Array) -> Array:
    keys = rms(outputs) * gain
    return weighted(keys @ w, keys)


def without_norm(w: Array, outputs: Array, gain: Array) -> Array:
    return weighted(outputs @ w, outputs)


def with_query_normed(w: Array, outputs: Array, gain: Array) -> Array:
    return weighted(rms(outputs) * gain @ rms(w), outputs)


def scaled(w: Array, outputs: Array, gain: Array) -> Array:
    return weighted(rms(outputs) * gain @ w / np.sqrt(w.shape[-1]).astype(w.dtype), outputs)


def without_newest(w: Array, outputs: Array, gain: Array) -> Array:
    return stacked(w, outputs[:-1] if len(outputs) > 1 else outputs, gain)


def with_residual(w: Array, outputs: Array, gain: Array) -> Array:
    return stacked(w, outputs, gain) + outputs[-1]


def keys_of_sums(w: Array, outputs: Array, gain: Array) -> Array:
    return weighted(rms(outputs.cumsum(0)) * gain @ w, outputs)


@pytest.mark.deep
@pytest.mark.parametrize("function", [stacked, divided])
def test_right_programs_have_no_fault(function: Callable[..., Array]) -> None:
    report = verified(function, NORMED, Options(verdict_alone=True, examples=2, domain=FEW))
    assert report.verdict is Verdict.NO_FAULT


LARGE = {
    "layers": (stacked, NORMED, Domain()),
    "long ones alone": (stacked, NORMED, Domain(min_tokens=288, max_width=8)),
    "heads": (lambda q, k, v: (v, q[..., 0]), Attention(heads=48, lse=True), Domain()),
    "columns": (lambda q, k, v, g, d_out: (q, k, v, g), Gradient(LinearAttention(gate="token")), Domain()),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.deep) if n == "heads" else n for n in LARGE])
def test_large_inputs_of_every_definition_fit_into_memory(name: str) -> None:
    """The reference holds tens of copies of an input, or of the scores of all heads, which are a gigabyte at most."""
    function, spec, domain = LARGE[name]
    options, rng = Options(domain=domain), np.random.default_rng(1)
    with options.opened(function, spec) as runner:
        session = options.session(runner, spec)
        source = session.subject.source
        groups = [source.last()["together"], source.later()["multiples"]]
        cases = [case for group in groups for case in group(session, rng)]
    for case in cases:
        sizes = session.subject.named(session.subject.sizes_of(case.inputs))
        scores = sizes.get("h", 1) * sizes["n_q"] * sizes.get("n_k", sizes["n_q"])
        columns = sizes["d_k"] if "g" in case.inputs else 1
        # Lengths are rounded to those of the domain.
        room = 1.01 * 2**21
        assert max(a.size for a in case.inputs.values()) <= room
        assert scores * columns <= room * (1 if columns > 1 else 4)
    # As large as there is room for.
    assert max(case.size for case in cases) > 2**14


WRONG = [
    (over_tokens, "softmax-over-tokens"), (of_normed_values, "norm-of-other-role"), (without_norm, "norm-missing"),
    (scaled, "scale-unrequested"), (without_newest, "depth-layers"), (with_residual, "depth-residual"),
    (keys_of_sums, "depth-sums"), (with_query_normed, "norm-of-other-role"),
]  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize(("function", "code"), WRONG, ids=lambda x: getattr(x, "__name__", ""))
def test_a_mistake_is_named(function: Callable[..., Array], code: str) -> None:
    faults = verify(function, NORMED, examples=3).faults
    assert [fault.codes[0].code for fault in faults] == [code]


@pytest.mark.deep
def test_a_scale_is_no_mistake_of_the_norm() -> None:
    """With a small ε only small outputs tell a scale of 1/√d from a norm by the sum of the squares."""
    eps = 1e-6

    def program(w: Array, outputs: Array, gain: Array) -> Array:
        return weighted(rms(outputs, eps) * gain @ w / np.sqrt(w.shape[-1]).astype(w.dtype), outputs)

    (fault,) = verify(program, DepthAttention(eps=eps)).faults
    assert (fault.step, fault.cause) == ("scale", "scores are scaled by 1/√d_k")


@pytest.mark.exhaustive
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision(precision: str) -> None:
    """Sums in float32 of inputs in half precision: no fault, and keys without their norm are named."""

    def in_float32(w: Array, outputs: Array, norm: bool = True) -> Array:
        x = outputs.astype(np.float32)
        keys = rms(x) if norm else x
        return weighted((keys * w.astype(np.float32)).sum(-1), x).astype(outputs.dtype)

    def wrong(w: Array, outputs: Array) -> Array:
        return in_float32(w, outputs, norm=False)

    # So few calls need not exclude every mistake.
    right = verify(lambda w, outputs: in_float32(w, outputs), NORMED, precision=precision, examples=1, budget=6)
    assert not right.faults
    (fault,) = verify(wrong, NORMED, precision=precision, examples=1, budget=6).faults
    assert fault.cause == "keys are not normalised"


def test_what_has_no_meaning_is_refused() -> None:
    w, outputs = np.ones(3), np.ones((2, 1, 3))
    refuses(NORMED, w[:2], outputs, says="w has the shape (2,), expected (3,)")
    refuses(NORMED, w, w, says="outputs have the shape (3,); hint: (layers, …, d)")
    refuses(NORMED, w, outputs[:0], says="an empty array has no attention")
    refuses(BARE, w, outputs, gain=w, says="a gain belongs to norm")
    refuses(DepthAttention, layers="last", says="layers must be 'first' or 'inner'")
    refuses(Attention, qk_norm_of="keys", says="qk_norm_of='keys' belongs to qk_norm")


@pytest.mark.torch
def test_the_function_of_the_paper_has_no_fault() -> None:
    import torch

    def block_attn_res(blocks: torch.Tensor, w: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        """A stack of block sums and the sum of this block so far: keys by a norm, a softmax over the stack."""
        keys = torch.nn.functional.rms_norm(blocks, (blocks.shape[-1],), gain, 0.125)
        scores = torch.einsum("d, n b t d -> n b t", w, keys)
        return torch.einsum("n b t, n b t d -> b t d", scores.softmax(0), blocks)

    report = verified(block_attn_res, NORMED, Options(verdict_alone=True, examples=2, domain=FEW))
    assert report.verdict is Verdict.NO_FAULT
