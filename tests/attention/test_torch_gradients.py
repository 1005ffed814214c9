"""Gradients are what torch's autograd computes from plain operations, to the rounding errors of those operations.

The bound is that of the gradient itself, run on ``rounded``: what any implementation of the definition, differentiated
operation by operation, may be off by in float64.
"""

from typing import Any

import numpy as np
import pytest

from symattn.arrays.rounded import rounded
from symattn.attention.derivative import vjp
from symattn.attention.variants import VARIANTS
from tests.attention.definition import parts
from tests.attention.gradient_cases import CASES, Case, drawn
from tests.attention.test_torch_layers import B, M, N, array, block, fields, forbidden, layer, made, tensors, tokens

pytestmark = pytest.mark.torch
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
