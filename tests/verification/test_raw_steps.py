"""Raw steps of Mamba-2: right programs are within the law, whatever the form; wrong and cut off ones are named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Domain, Gradient, LinearAttention, Precision, Verdict
from symattn.arrays.formats import Format
from symattn.bounds.recurrent.recurrence import Recurrence
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic
from symattn.bounds.recurrent.recurrent_limits import exact_values, limits
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options, verified
from symattn.testing import AttentionFault, assert_close_to_exact
from symattn.verification.definitions.recurrent_law import recurrences
from tests.refusals import refuses
from tests.verification.raw_gate_programs import SOFTPLUS
from tests.verification.recurrent_programs import TYPES

Array = Any
PLAIN = LinearAttention(feature="identity", normalised=False, gate="head", step=True, skip=True, step_form="softplus")
LIMITED = replace(PLAIN, step_least=0.25, step_most=1.5, state="kv")
SHORT = Domain(max_tokens=40, max_width=8)


def drawn(spec: LinearAttention, n: int, h: int = 3, d: int = 4) -> dict[str, Array]:
    rng = np.random.default_rng(n)
    inputs = {name: rng.standard_normal((h, n, d)) for name in "qkv"}
    inputs |= {"g": -np.exp(rng.standard_normal(h)), "dt": rng.standard_normal((h, n))}
    inputs |= {"dt_bias": rng.standard_normal(h) - 1, "skip": rng.standard_normal(h)}
    return inputs | ({"initial_state": rng.standard_normal((h, d, d))} if spec.state else {})


def of_steps(
    q: Array, k: Array, v: Array, g: Array, steps: Array, skip: Array, initial_state: Array | None = None
) -> tuple[Array, Array]:
    """S ← e^{Δ A} S + k Δ v, o = q S + D v, token by token."""
    state = 0 * (k[..., 0, :, None] * v[..., 0, None, :])
    state = state if initial_state is None else state + initial_state
    decays, written, rows = np.exp(steps * g[:, None]), steps[..., None] * v, np.empty_like(v)
    for t in range(q.shape[-2]):
        state = decays[..., t, None, None] * state + k[..., t, :, None] * written[..., t, None, :]
        rows[..., t, :] = (q[..., t, :, None] * state).sum(-2)
    return rows + skip[:, None, None] * v, state


def usual_steps(spec: LinearAttention, dt: Array, dt_bias: Array, way: str = "log1p", form: str = "") -> Array:
    """The limited softplus, each operation in a format, by default that of dt."""
    kind = TYPES[form] if form else dt.dtype.type
    steps = SOFTPLUS[way](dt.astype(kind) + dt_bias.astype(kind)[:, None])
    least, most = spec.step_least, spec.step_most
    steps = steps if least is None else np.maximum(steps, kind(least))
    steps = steps if most is None else np.minimum(steps, kind(most))
    return steps.astype(dt.dtype)


def of_raw(spec: LinearAttention, dt: Array, dt_bias: Array, **inputs: Array) -> tuple[Array, Array]:
    return of_steps(steps=usual_steps(spec, dt, dt_bias), **inputs)


@pytest.mark.parametrize("spec", [PLAIN, LIMITED])
def test_all_forms_are_a_loop_in_any_layout(spec: LinearAttention) -> None:
    inputs = drawn(spec, 9)
    right, end = of_raw(spec, **inputs)
    whole = next(definitions_of(spec, "bnhd"))
    moved = {name: np.moveaxis(a, 0, 1)[None] if name in ("q", "k", "v", "dt") else a for name, a in inputs.items()}
    if spec.state:
        moved["initial_state"] = inputs["initial_state"][None]
    results = [spec(**inputs)]
    for outputs in (*(way(**moved) for way in whole.ways), whole.law.compute_exactly(moved)):
        of_items = outputs if isinstance(outputs, tuple) else (outputs,)
        results.append((np.moveaxis(of_items[0][0], 1, 0), *(state[0] for state in of_items[1:])))
    for result in results:
        output, *state = result if isinstance(result, tuple) else (result,)
        assert np.abs(output - right).max() < 1e-13
        assert all(np.abs(one - end).max() < 1e-13 for one in state)


def test_gradients_are_differences_of_outputs() -> None:
    spec = replace(LIMITED, state=None)
    inputs = drawn(spec, 3)
    do = np.random.default_rng(0).standard_normal(inputs["v"].shape)
    names = [i.name for i in next(definitions_of(spec, "nd")).inputs]
    results = dict(zip(names, Gradient(spec)(do=do, **inputs), strict=True))
    for name in ("g", "dt", "dt_bias"):
        toward = np.random.default_rng(1).standard_normal(inputs[name].shape)
        outputs = [spec(**{**inputs, name: inputs[name] + step * toward}) for step in (1e-6, -1e-6)]
        slope = (do * (outputs[0] - outputs[1])).sum() / 2e-6
        assert abs((results[name] * toward).sum() - slope) < 1e-7 * (1 + abs(slope))


def test_what_has_no_meaning_is_refused() -> None:
    refuses(replace, PLAIN, step=False, says="reads raw steps; hint: step=True")
    refuses(replace, PLAIN, step_form=None, step_least=1, says="limits are those of steps after their softplus")
    refuses(replace, PLAIN, step_least=2, step_most=1, says="step_least is 2, above step_most, 1")
    refuses(replace, PLAIN, step_least=-1, says="step_least must be a finite number of at least 0")
    inputs = drawn(PLAIN, 3)
    refuses(PLAIN, **{**inputs, "dt_bias": inputs["dt_bias"][:1]}, says="one number a head, dt_bias (h,)")
    refuses(replace(PLAIN, step_form=None), **inputs, says="takes no dt_bias here")


# -- bounds ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("spec", [PLAIN, LIMITED])
def test_programs_are_within_the_law_and_beyond_that_without_errors_of_steps(spec: LinearAttention, form: str) -> None:
    inputs = drawn(spec, 90, h=1, d=6)
    # What 1 + e^x loses of e^−11 in float32, narrower formats lose of ordinary steps.
    inputs["dt_bias"] = np.full(1, -11.0 if form == "float32" and spec is PLAIN else -3.0)
    inputs["g"] = np.full(1, -2000.0 if form == "float32" and spec is PLAIN else -1.0)
    stored = {name: np.float32(Format(form).cast(a)) for name, a in inputs.items()}
    beyond = 0.0
    for way in SOFTPLUS:
        steps = np.float32(usual_steps(spec, stored["dt"], stored["dt_bias"], way, form))
        others = {name: a for name, a in stored.items() if name not in ("dt", "dt_bias")}
        output, end = of_steps(steps=steps, **others)
        law = next(definitions_of(spec, "nd")).law
        assert law is not None
        (of,) = recurrences(spec, law.in_order(stored), Precision.of(form))
        exact, how = exact_values(of), RecurrentArithmetic(order="tokens")
        bounds, without = (limits(one, how) for one in (of, replace(of, gate_errors=None, key_errors=None)))
        off, off_end = np.abs(output[0] - exact.output), np.abs(end[0] - exact.state)
        assert (off / bounds.worst).max() < 1
        assert (off_end / bounds.worst_state).max() < 1
        assert bounds.sharp is None
        beyond = max(beyond, float((off / without.worst).max()))
    assert beyond > 1 or spec is LIMITED


def law_of(spec: LinearAttention, inputs: dict[str, Array], form: str) -> Recurrence:
    law = next(definitions_of(spec, "nd")).law
    assert law is not None
    (of,) = recurrences(spec, law.in_order(inputs), Precision.of(form))
    return of


def test_errors_of_steps_and_of_a_norm_of_keys_are_joined() -> None:
    """Of positive numbers all errors add up, so that the bound is as large as the error, and no smaller one is."""
    both = replace(PLAIN, skip=False, qk_norm="l2")
    inputs = {name: np.abs(a) for name, a in drawn(both, 6, h=1).items() if name != "skip"}
    inputs["g"] = np.zeros(1)
    of = replace(law_of(both, inputs, "bfloat16"), query_errors=None)
    assert of.rates is not None
    by_norm = law_of(replace(both, step_form=None), inputs | {"dt": of.rates.T}, "bfloat16").key_errors
    by_steps = law_of(replace(both, qk_norm=None), inputs | {"k": of.k[None]}, "bfloat16").key_errors
    assert by_norm is not None
    assert by_steps is not None
    written = (of.k + by_norm)[:, :, None] * (of.rates * (1 + by_steps[:, :1] / of.k[:, :1]) * of.v)[:, None]
    state = written.sum(0)
    output = (of.q[:, :, None] * written.cumsum(0)).sum(1)
    exact, how = exact_values(of), RecurrentArithmetic(order="tokens")
    joined = limits(of, how)
    for off, bound in ((output - exact.output, joined.worst), (state - exact.state, joined.worst_state)):
        assert (off / bound).min() > 0.99
        assert (off / bound).max() < 1
    for errors in (by_norm, by_steps, by_norm + by_steps):
        assert (output - exact.output > limits(replace(of, key_errors=errors), how).worst).all()


@pytest.mark.parametrize("form", ["float32", "bfloat16"])
def test_programs_are_within_the_bound_of_forms(form: str) -> None:
    inputs = drawn(PLAIN, 24)
    stored = {name: np.float32(Format(form).cast(a)) for name, a in inputs.items()}
    right = of_raw(PLAIN, **{name: np.float64(a) for name, a in stored.items()})[0]
    other = next(definitions_of(PLAIN, "nd")).other_forms
    assert other is not None
    (allowed,) = other.bound(stored, Precision.of(form))  # type: ignore[misc]
    steps = np.float32(usual_steps(PLAIN, stored["dt"], stored["dt_bias"], "log", form))
    others = {name: a for name, a in stored.items() if name not in ("dt", "dt_bias")}
    assert (np.abs(of_steps(steps=steps, **others)[0] - right) < allowed).all()


# -- judging and verifying ---------------------------------------------------------------------------------------------
def test_closeness_judges_raw_steps() -> None:
    inputs = {name: np.float32(a) for name, a in drawn(LIMITED, 90).items()}
    output, state = of_raw(LIMITED, **inputs)
    q, k, v = (inputs.pop(name) for name in "qkv")
    assert_close_to_exact(output, q, k, v, LIMITED, **inputs, final_state=state)
    free = of_raw(PLAIN, q=q, k=k, v=v, **inputs)[0]
    with pytest.raises(AttentionFault, match="beyond what any implementation"):
        assert_close_to_exact(free, q, k, v, LIMITED, **inputs)


def program_of(spec: LinearAttention, steps: Callable[[Array, Array], Array]) -> Callable[..., Any]:
    """The recurrence of other steps, which may grow beyond float32."""

    def program(q: Array, k: Array, v: Array, g: Array, dt: Array, dt_bias: Array, skip: Array) -> Array:
        with np.errstate(all="ignore"):
            return of_steps(q, k, v, g, steps(dt, dt_bias[:, None]).astype(q.dtype), skip)[0]

    return program


def softplus(x: Array) -> Array:
    return SOFTPLUS["log1p"](x)


STATELESS = replace(LIMITED, state=None)


def limited(x: Array) -> Array:
    return np.clip(x, x.dtype.type(0.25), x.dtype.type(1.5))


RIGHT = [
    (PLAIN, lambda dt, bias: softplus(dt + bias)),
    (STATELESS, lambda dt, bias: limited(softplus(dt + bias))),
]
WRONG = [
    (PLAIN, lambda dt, bias: np.maximum(softplus(dt + bias), dt.dtype.type(0.125)), "steps are cut off below 1/8"),
    (PLAIN, lambda dt, bias: dt + bias, "the softplus of raw steps is left out"),
    (STATELESS, lambda dt, bias: softplus(limited(dt + bias)),
     "raw steps are limited before their softplus, not after it"),
]  # fmt: skip
MORE_WRONG = [
    (PLAIN, lambda dt, bias: np.minimum(softplus(dt + bias), dt.dtype.type(1)), "steps are cut off above 1"),
    (PLAIN, lambda dt, bias: softplus(dt), "the bias of raw steps is left out"),
    (PLAIN, lambda dt, bias: softplus(dt) + bias, "the bias is added after the softplus of raw steps, not before"),
    (PLAIN, lambda dt, bias: 1 / (1 + np.exp(-dt - bias)), "raw steps have a sigmoid in place of the softplus"),
    (STATELESS, lambda dt, bias: softplus(dt + bias), "the limits of steps are left out"),
    (STATELESS, lambda dt, bias: np.minimum(softplus(dt + bias), dt.dtype.type(1.5)),
     "the lower limit of steps is left out"),
]  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize(("spec", "steps"), RIGHT)
def test_right_programs_are_no_fault(spec: LinearAttention, steps: Callable[[Array, Array], Array]) -> None:
    how = Options(verdict_alone=True, layout="bhnd", domain=SHORT, examples=3)
    assert verified(program_of(spec, steps), spec, how).verdict is Verdict.NO_FAULT


def named(spec: LinearAttention, steps: Callable[[Array, Array], Array]) -> list[str | None]:
    report = verified(program_of(spec, steps), spec, Options(layout="bhnd", domain=SHORT, examples=3))
    return [fault.cause for fault in report.faults]


@pytest.mark.deep
@pytest.mark.parametrize(("spec", "steps", "cause"), WRONG)
def test_wrong_programs_are_named(spec: LinearAttention, steps: Callable[[Array, Array], Array], cause: str) -> None:
    assert named(spec, steps) == [cause]


@pytest.mark.deep
@pytest.mark.parametrize(("spec", "steps", "cause"), MORE_WRONG)
def test_more_wrong_programs_are_named(
    spec: LinearAttention, steps: Callable[[Array, Array], Array], cause: str
) -> None:
    assert named(spec, steps) == [cause]


@pytest.mark.torch
@pytest.mark.deep
def test_the_scan_of_frameworks_has_no_fault() -> None:
    import torch

    def scan(
        x: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor, D: torch.Tensor,
        dt_bias: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """The scan of Mamba-2 token by token, with its dt_softplus and dt_limit."""
        steps = torch.clamp(torch.nn.functional.softplus(dt + dt_bias[:, None]), 0.25, 1.5)
        state = torch.zeros(*x.shape[:2], B.shape[-1], x.shape[-1], dtype=x.dtype)
        rows = []
        for t in range(x.shape[2]):
            written = B[..., t, :, None] * (steps[..., t, None] * x[..., t, :])[..., None, :]
            state = torch.exp(steps[..., t] * A)[..., None, None] * state + written
            rows.append((C[..., t, :, None] * state).sum(-2))
        return torch.stack(rows, 2) + D[:, None, None] * x

    how = Options(verdict_alone=True, layout="bhnd", domain=Domain(max_tokens=12, max_width=6), examples=2)
    assert verified(scan, STATELESS, how).verdict is Verdict.NO_FAULT
