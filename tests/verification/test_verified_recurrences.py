"""``verify`` of gated recurrences by the law of rounding: forms by chunks are not refused, wrong ones are found."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import LinearAttention, Precision, Verdict
from symattn.bounds.recurrent.recurrent_arithmetic import widest_of_precision
from symattn.bounds.recurrent.recurrent_limits import limits
from symattn.programs.verifying import Options, verified
from symattn.verification.definitions.recurrent_law import RecurrentLaw
from tests.verification import recurrent_programs as programs
from tests.verification.recurrent_shares import recurrence

Array = Any
GATED_DELTA = LinearAttention(feature="identity", normalised=False, gate="token", delta=True)
DELTA = replace(GATED_DELTA, gate=None)
GATED = replace(GATED_DELTA, delta=False)


def by_heads(run: Callable[..., Any], *arrays: Array, gate: str | None, delta: bool) -> Array:
    """Run a program of one head for each of several; arrays are (b, h, n, …)."""
    q, k, v, *more = arrays
    given = iter(more)
    g = next(given) if gate else None
    beta = next(given) if delta else None
    result = np.empty(v.shape, np.float32)
    for at in np.ndindex(q.shape[:-2]):
        gates = None if g is None else g[at].reshape(len(q[at]), -1)
        betas = None if beta is None else beta[at][:, None]
        empty = np.zeros((q.shape[-1], v.shape[-1]))
        of = programs.Inputs(q[at], k[at], v[at], gates, betas, empty)
        result[at] = run(of, delta=delta)[0]
    return result.astype(v.dtype)


def function_of(run: Callable[..., Any], spec: LinearAttention) -> Callable[..., Array]:
    how: Any = partial(by_heads, run, gate=spec.gate, delta=spec.delta)
    if spec.gate and spec.delta:
        return lambda q, k, v, g, beta: how(q, k, v, g, beta)
    if spec.delta:
        return lambda q, k, v, beta: how(q, k, v, beta)
    return lambda q, k, v, g: how(q, k, v, g)


def transposed_state(of: programs.Inputs, size: int = 64, delta: bool = True) -> tuple[Array, Array]:
    """Hand the state over transposed after ``size`` tokens."""
    parts, state = [], of.state
    for lo in range(0, len(of.q), size):
        some = [None if x is None else x[lo : lo + size] for x in (of.q, of.k, of.v, of.g, of.beta)]
        output, state = programs.by_tokens(programs.Inputs(*some, state), delta=delta)
        state = state.T if state.shape[0] == state.shape[1] else state
        parts.append(output)
    return np.concatenate(parts), state


def judged(run: Callable[..., Any], spec: LinearAttention, dtype: str) -> Verdict:
    how = Options(verdict_alone=True, dtype=dtype, layout="bhnd", contract=None, examples=10)
    return verified(function_of(run, spec), spec, how).verdict


RIGHT = [
    (partial(programs.by_chunks, split="no"), GATED_DELTA, "float32"),
    (partial(programs.by_chunks, inverse="general", split="no"), GATED_DELTA, "bfloat16"),
    (partial(programs.by_chunks, inverse="substitution", split="no"), GATED_DELTA, "float16"),
    (partial(programs.by_chunks, inverse="blocks", split="no", size=32), DELTA, "float32"),
    (partial(programs.by_chunks, inverse="general", split="first", size=16), GATED_DELTA, "float32"),
    (partial(programs.by_chunks, split="first", size=16), GATED, "float32"),
    (programs.by_tokens, GATED_DELTA, "float16"),
]
WRONG = [
    (transposed_state, GATED_DELTA),
    (partial(programs.by_chunks, split="no", wrong="first token of a chunk lost"), GATED_DELTA),
    (partial(programs.by_chunks, split="no", wrong="state decays by the last gate alone"), GATED_DELTA),
    (partial(programs.by_chunks, split="no", wrong="β missing in the system"), GATED_DELTA),
    (partial(programs.by_chunks, split="no", wrong="one gate left out"), GATED_DELTA),
    (partial(programs.by_tokens, wrong="decay after the update"), GATED_DELTA),
    (transposed_state, GATED),
    (partial(programs.by_chunks, split="no", scale=1.01), DELTA),
]


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize(("run", "spec", "dtype"), RIGHT)
def test_right_forms_are_no_fault(run: Callable[..., Any], spec: LinearAttention, dtype: str) -> None:
    assert judged(run, spec, dtype) is Verdict.NO_FAULT


@pytest.mark.deep
@pytest.mark.parametrize(("run", "spec"), WRONG)
def test_wrong_forms_are_a_fault(run: Callable[..., Any], spec: LinearAttention) -> None:
    assert judged(run, spec, "float32") is Verdict.FAULT


def late_in_wide_rows(of: programs.Inputs, delta: bool) -> tuple[Array, Array]:
    """Return outputs that are 3 % off for more than 256 tokens of more than 64 features."""
    output, state = programs.by_tokens(of, delta=delta)
    tokens, width = of.k.shape
    return output * (1.03 if tokens > 256 and width > 64 else 1), state


@pytest.mark.deep
@pytest.mark.parametrize("spec", [DELTA, GATED_DELTA, GATED])
def test_a_mistake_of_many_tokens_in_wide_rows_is_a_fault(spec: LinearAttention) -> None:
    assert judged(late_in_wide_rows, spec, "float32") is Verdict.FAULT


@pytest.mark.deep
def test_what_no_bound_shows_in_half_precision_is_said() -> None:
    wrong = function_of(transposed_state, GATED_DELTA)
    how = Options(verdict_alone=True, dtype="float16", layout="bhnd", examples=10)
    assert any("may go unnoticed" in words for words in verified(wrong, GATED_DELTA, how).reservations)
    assert verified(wrong, GATED_DELTA, replace(how, contract="fused")).verdict is Verdict.FAULT


# -- the law itself ----------------------------------------------------------------------------------------------------
def by_powers(lower: Array) -> Array:
    """(I + L)⁻¹ = (I − L)(I + L²)(I + L⁴)…"""
    one = np.eye(len(lower), dtype=lower.dtype)
    power, inverse = -lower, one - lower
    for _ in range(len(lower).bit_length()):
        power = power @ power
        inverse = inverse + inverse @ power
    return inverse


@contextmanager
def with_inverse(name: str, function: Callable[[Array], Array]) -> Iterator[None]:
    programs.INVERSES[name] = function
    yield
    del programs.INVERSES[name]


@pytest.mark.parametrize("kind", ["gated delta rule", "keys alike"])
def test_an_inverse_by_powers_is_within_the_law_of_any_system_alone(kind: str) -> None:
    given = programs.draw(kind, 130, 12, "float32")
    with with_inverse("powers", by_powers):
        output, _ = programs.by_chunks(given, inverse="powers", split="no")
    of = recurrence(given)
    ways = list(widest_of_precision(Precision.of("float32"), 130))
    narrow, *wide = [limits(of, w, with_state=False, with_sharp=False).worst for w in ways]
    right, _ = programs.by_tokens(given)
    error = np.abs(output.astype(float) - right)
    assert (error <= np.maximum.reduce([narrow, *wide])).all()
    assert (narrow < np.maximum.reduce(wide)).all()


def test_the_law_leaves_out_what_it_does_not_cover() -> None:
    law = RecurrentLaw(GATED, "nd")
    one = np.ones((4, 3))
    inputs = {"q": one, "k": one, "v": one, "g": np.full(4, -0.5)}
    assert law.covers(inputs)
    assert not law.covers({**inputs, "g": np.full(4, 0.5)})
    assert not law.covers({**inputs, "v": one * np.inf})
    assert not RecurrentLaw(LinearAttention(), "nd").covers(inputs)


def by_systems(q: Array, k: Array, v: Array, beta: Array, size: int = 48) -> Array:
    """The delta rule in the format of its inputs, a system of equations for each chunk."""
    state, parts = np.zeros((k.shape[-1], v.shape[-1]), v.dtype), []
    for lo in range(0, len(q), size):
        of_q, of_k, of_v, b = (a[lo : lo + size] for a in (q, k, v, beta[:, None]))
        system = np.tril(b * (of_k @ of_k.T), -1) + np.eye(len(of_q), dtype=q.dtype)
        u = np.linalg.solve(system, b * (of_v - of_k @ state))
        parts.append(of_q @ state + np.tril(of_q @ of_k.T) @ u)
        state = state + of_k.T @ u
    return np.concatenate(parts)


def test_the_law_judges_many_tokens_in_float64() -> None:
    law, rng = RecurrentLaw(DELTA, "nd"), np.random.default_rng(0)
    drawn = {name: rng.standard_normal((260, 24)) for name in "qkv"} | {"beta": rng.standard_normal(260)}
    inputs = law.as_in_models(drawn, 0.0, rng)
    assert law.covers(inputs)
    (expected,) = law.ways(inputs, Precision.of("float64"))[0]()
    got = by_systems(**inputs)
    assert (np.abs(got - expected.near) <= expected.allowed).all()
    assert (np.abs(got * (1 + 1e-9) - expected.near) > expected.allowed).any()


@pytest.mark.parametrize("layout", ["nd", "bhnd", "bnhd"])
def test_outputs_by_the_law_are_those_of_the_definition_in_any_layout(layout: Any) -> None:
    rng = np.random.default_rng(0)
    front = (2, 3) if layout != "nd" else ()
    q, k, v = (0.3 * rng.standard_normal((*front, 9, 4)) for _ in range(3))
    g, beta = -rng.random((*front, 9)), rng.random((*front, 9))
    right = GATED_DELTA(q, k, v, g, beta)
    given = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
    if layout == "bnhd":
        given = {name: np.moveaxis(a, 2, 1) for name, a in given.items()}
        right = np.moveaxis(right, 2, 1)
    assert np.abs(RecurrentLaw(GATED_DELTA, layout).compute_exactly(given)[0] - right).max() < 1e-14
