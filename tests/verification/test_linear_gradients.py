"""Gradients of linear attention: of all inputs, by every form; right backward passes pass, and wrong ones are named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Domain, Gradient, InputError, LinearAttention, Verdict, verify
from symattn.programs.definitions import Backpropagated
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options, verified
from tests.verification.gradient_programs import gated_delta_backward, gla_backward

Array = Any
GATED_DELTA = LinearAttention(feature="identity", normalised=False, gate="token", delta=True)
SMALL = Domain(max_tokens=24, max_width=6)
#: Few calls of small arrays.
FEW = Options(verdict_alone=True, layout="bhnd", domain=Domain(max_tokens=9, max_width=4), examples=1)


def with_states(name: str) -> LinearAttention:
    spec = LinearAttention.named(name)
    return spec if spec.normalised else replace(spec, state="kv")


def drawn(spec: LinearAttention, layout: Any) -> dict[str, Array]:
    """Inputs of a small case, with the gradients of outputs."""
    of, rng = next(definitions_of(Gradient(spec), layout)), np.random.default_rng(0)
    shapes = {i: of.shape(i.name, of.shapes[2]) for i in of.inputs}
    return {i.name: i.entries(a, rng) if i.entries else rng.standard_normal(a) for i, a in shapes.items()}


#: Besides those with a name, the delta rule whose tokens read the state before them.
NAMES = "linear gla retnet lightning mamba2 rwkv6 deltanet gated-deltanet qwen3-next kda comba gdn2 rwkv7"
FORMS = {
    **{name: with_states(name) for name in NAMES.split()},
    "read before": replace(GATED_DELTA, reads="before", state="kv"),
}


@pytest.mark.parametrize("name", FORMS)
def test_all_forms_give_the_slopes_of_the_definition(name: str) -> None:
    spec = FORMS[name]
    given, of = drawn(spec, "bnhd"), next(definitions_of(Gradient(spec), "bnhd"))
    forward, arrays = (
        next(definitions_of(spec, "bnhd")).ways[0],
        {n: a for n, a in given.items() if n[0] != "d" or n == "dt"},
    )

    def ends(step: float, directions: dict[str, Array]) -> float:
        result = forward(**{n: a + step * directions[n] for n, a in arrays.items()})
        outputs = result if isinstance(result, tuple) else (result,)
        upstream = (given["do"], given.get("dfinal_state"))
        return float(sum((x * d).sum() for x, d in zip(outputs, upstream, strict=False)))

    right = of.ways[0](**given)
    assert of.outputs == tuple(f"d{n}" for n in arrays)
    for way in of.ways[1:]:
        assert max(np.abs(a - b).max() for a, b in zip(way(**given), right, strict=True)) < 1e-12
    # One direction for each input, as an error in one gradient may cancel with another.
    rng = np.random.default_rng(1)
    for at, gradient in zip(arrays, right, strict=True):
        directions = {n: rng.standard_normal(a.shape) if n == at else 0 * a for n, a in arrays.items()}
        slope = (ends(1e-5, directions) - ends(-1e-5, directions)) / 2e-5
        assert abs(slope - (gradient * directions[at]).sum()) < 1e-6 * (1 + abs(slope))


@pytest.mark.parametrize("name", ["mamba2", "comba", "qwen3-next"])
def test_mistakes_of_the_backward_pass_are_mistakes(name: str) -> None:
    spec = with_states(name)
    given, of = drawn(spec, "bhnd"), next(definitions_of(Gradient(spec), "bhnd"))
    right = of.ways[0](**given)
    own = [m for m in of.mistakes if not m.cause.startswith("it is the gradient of")]
    assert len(own) > 20
    n = given["q"].shape[-2]
    for mistake in own:
        wrong = mistake.run(**given)
        apart = max(np.abs(a - b).max() for a, b in zip(wrong, right, strict=True))
        beyond = any(f"of {size} tokens" in mistake.cause for size in range(n, 200))
        assert (apart > 1e-9) != beyond, mistake.cause


def test_mistakes_in_any_array_are_ones_of_all_gradients() -> None:
    spec = replace(GATED_DELTA, state="kv")
    given, of = drawn(spec, "nd"), next(definitions_of(Gradient(spec)))
    changed = [m for m in of.flow.further(frozenset(given)) if "taken with the other sign" in m.cause]
    # The attention's own arrays are among them, as its output with such an array is differentiated.
    assert any("of the gates" in m.cause for m in changed)
    for mistake in changed:
        shapes = [gradient.shape for gradient in mistake.run(**given)]
        assert shapes == [gradient.shape for gradient in of.ways[0](**given)], mistake.cause


def delta_with_late_queries(q: Array, k: Array, v: Array, beta: Array, do: Array) -> tuple[Array, ...]:
    """The backward pass of the delta rule whose adjoint takes the query of the token before."""
    n = q.shape[0]
    states = np.zeros((n + 1, k.shape[1], v.shape[1]), q.dtype)
    errors, dq, dk, dv, dbeta = np.zeros_like(v), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), beta * 0
    for t in range(n):
        errors[t] = v[t] - k[t] @ states[t]
        states[t + 1] = states[t] + beta[t] * np.outer(k[t], errors[t])
        dq[t] = states[t + 1] @ do[t]
    adjoint = np.zeros_like(states[0])
    for t in reversed(range(n)):
        adjoint = adjoint + np.outer(q[t - 1], do[t])
        read = k[t] @ adjoint
        dbeta[t] = read @ errors[t]
        dv[t] = beta[t] * read
        dk[t] = beta[t] * (adjoint @ errors[t] - states[t] @ read)
        adjoint = adjoint - beta[t] * np.outer(k[t], read)
    return dq, dk, dv, dbeta


@pytest.mark.deep
def test_a_wrong_array_of_a_backward_pass_is_named() -> None:
    spec = Gradient(LinearAttention(feature="identity", normalised=False, delta=True))
    (fault,) = verify(delta_with_late_queries, spec, domain=SMALL).faults
    assert fault.cause == "entries of q are those of the token before"


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "spec"),
    [
        (gla_backward(), LinearAttention.named("gla")),
        pytest.param(gated_delta_backward(), GATED_DELTA, marks=pytest.mark.exhaustive),
    ],
)
def test_right_backward_passes_are_no_fault(program: Callable[..., Any], spec: LinearAttention) -> None:
    report = verified(program, Gradient(spec), FEW)
    assert report.verdict is Verdict.NO_FAULT
    assert any("no law bounds them" in words for words in report.reservations)


WRONG = [
    ("unscaled", "dQ is not scaled"),
    ("gate without decay", "dG is that of decays: it is not multiplied by e^g"),
    ("cut", "the gradient of the state is not carried from a chunk of 4 tokens to the one before"),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("wrong", "cause"), WRONG)
def test_wrong_backward_passes_are_named(wrong: str, cause: str) -> None:
    spec = Gradient(LinearAttention.named("gla"))
    assert cause in " ".join(str(verify(gla_backward(wrong), spec, layout="bhnd", domain=SMALL, examples=4)).split())


@pytest.mark.parametrize("wrong", ["erasure constant", "β of the erased left out", "adjoint undecayed"])
def test_wrong_backward_passes_of_the_delta_rule_are_faults(wrong: str) -> None:
    assert verified(gated_delta_backward(wrong), Gradient(GATED_DELTA), FEW).verdict is Verdict.FAULT


def torch_chunks(wrong: bool) -> Callable[..., Any]:
    """One chunk of the gated delta rule in torch, with an inverse; wrong, the inverse is a constant."""
    import torch

    def run(q: Array, k: Array, v: Array, beta: Array, g: Array) -> Array:
        sums, n = g.cumsum(-1), q.shape[-2]
        decay = (sums[..., :, None] - sums[..., None, :]).tril().exp()
        lower = ((beta[..., None] * k) @ k.mT * decay).tril(-1)
        system = torch.eye(n, dtype=q.dtype) + lower
        inverse = torch.linalg.solve_triangular(system, torch.eye(n, dtype=q.dtype), upper=False)
        u = (inverse.detach() if wrong else inverse) @ (beta[..., None] * v)
        return (q @ k.mT * decay).tril() @ u

    return run


@pytest.mark.torch
def test_gradients_of_torch_functions_are_by_name_and_of_the_final_state_too() -> None:
    import torch

    def run(q: Array, k: Array, v: Array, b: Array, decay: Array, h0: Array) -> Any:
        """Two tokens, with inputs in another order than those of the definition."""
        rows, state = [], h0
        for t in range(q.shape[-2]):
            state = decay[..., t, None, None].exp() * state
            correction = b[..., t, None, None] * (v[..., t, None, :] - k[..., t, None, :] @ state)
            state = state + k[..., t, :, None] @ correction
            rows.append(q[..., t, None, :] @ state)
        return torch.cat(rows, -2), state

    spec = replace(GATED_DELTA, state="kv")
    of, given = next(definitions_of(Gradient(spec), "bhnd")), drawn(spec, "bhnd")
    names = {"b": "beta", "decay": "g", "h0": "initial_state"}
    arrays = {x: given[names.get(x, x)] for x in ("q", "k", "v", "b", "decay", "h0", "do", "dfinal_state")}
    function = Backpropagated(run, of)
    function.inputs = names
    got = function(**{x: torch.tensor(a) for x, a in arrays.items()})
    apart = {n: np.abs(np.asarray(a) - b).max() for n, a, b in zip(of.outputs, got, of.ways[0](**given), strict=True)}
    assert max(apart.values()) < 1e-12, apart


@pytest.mark.torch
@pytest.mark.exhaustive
@pytest.mark.parametrize("wrong", [False, True])
def test_gradients_of_torch_functions_are_those_of_all_inputs(wrong: bool) -> None:
    report = verified(torch_chunks(wrong), Gradient(GATED_DELTA), FEW)
    assert report.verdict is (Verdict.FAULT if wrong else Verdict.NO_FAULT)


def weights_first(q: Array, k: Array, v: Array) -> Array:
    import torch

    a, b = (torch.nn.functional.elu(x) + 1 for x in (q, k))
    scores = (a @ b.mT).tril()
    return (scores / scores.sum(-1, keepdim=True)) @ v


@pytest.mark.torch
@pytest.mark.exhaustive
def test_weights_may_be_divided_before_the_values() -> None:
    assert verified(weights_first, Gradient(LinearAttention()), FEW).verdict is Verdict.NO_FAULT


def test_gradients_come_in_the_order_of_the_definition() -> None:
    spec = LinearAttention.named("gla")
    given = drawn(spec, "nd")
    turned = dict(reversed(given.items()))
    for one, other in zip(Gradient(spec)(**given), Gradient(spec)(**turned), strict=True):
        assert one.shape == other.shape
        assert np.array_equal(one, other)


@pytest.mark.torch
def test_features_that_are_0_have_no_slope_to_compare() -> None:
    """Relu as a maximum, a clamp or a condition has another derivative at 0 in torch, and the same elsewhere."""
    import torch

    spec = LinearAttention(feature="relu", normalised=False)
    of, given = next(definitions_of(Gradient(spec), "bhnd")), drawn(spec, "bhnd")

    def run(q: Array, k: Array, v: Array) -> Array:
        return (q.clamp(min=0) @ k.clamp(min=0).mT).tril() @ v

    function = Backpropagated(run, of)

    def apart() -> float:
        got = function(**{x: torch.tensor(a) for x, a in given.items()})
        return max(np.abs(np.asarray(a) - b).max() for a, b in zip(got, of.ways[0](**given), strict=True))

    assert of.admits(given, {})
    assert apart() < 1e-12
    assert not {"integer", "sparse"} & {*of.families}
    given["q"][..., 0] = 0
    assert not of.admits(given, {})
    assert apart() > 0.1


def test_what_has_no_gradients_is_refused() -> None:
    with pytest.raises(InputError, match="an Attention or a LinearAttention"):
        Gradient("gla")  # type: ignore[arg-type]
