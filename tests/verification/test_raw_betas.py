"""Raw β of the delta rule: right programs are within the law, whatever their sigmoid; wrong ones are named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Domain, Gradient, LinearAttention, Precision, Verdict
from symattn.arrays.formats import Format
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic
from symattn.bounds.recurrent.recurrent_limits import exact_values, limits
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options, verified
from symattn.testing import AttentionFault, assert_close_to_exact
from symattn.verification.definitions.recurrent_law import read_betas_with_errors, recurrences
from tests.refusals import refuses
from tests.verification.raw_gate_programs import SIGMOID
from tests.verification.recurrent_programs import TYPES

Array = Any
PLAIN = LinearAttention(feature="identity", normalised=False, delta=True, beta_form="sigmoid")
GATED = replace(LinearAttention.named("gated-deltanet"), beta_form="sigmoid", gate_form="softplus", state="kv")
SHORT = Domain(max_tokens=40, max_width=8)


def drawn(spec: LinearAttention, n: int, h: int = 3, d: int = 4) -> dict[str, Array]:
    rng = np.random.default_rng(n)
    inputs = {name: rng.standard_normal((h, n, d)) for name in "qkv"}
    inputs["k"] /= np.linalg.norm(inputs["k"], axis=-1, keepdims=True)
    if spec.gate:
        inputs |= {"g": rng.standard_normal((h, n)), "A_log": rng.standard_normal(h), "dt_bias": rng.standard_normal(h)}
    inputs["beta"] = rng.standard_normal((h, n))
    return inputs | ({"initial_state": rng.standard_normal((h, d, d))} if spec.state else {})


def of_betas(q: Array, k: Array, v: Array, beta: Array) -> Array:
    """S ← S + k β (v − k S), o = q S, token by token."""
    state = 0 * (k[..., 0, :, None] * v[..., 0, None, :])
    rows = np.empty_like(v)
    for t in range(q.shape[-2]):
        read = (k[..., t, :, None] * state).sum(-2)
        state = state + k[..., t, :, None] * (beta[..., t, None] * (v[..., t, :] - read))[..., None, :]
        rows[..., t, :] = (q[..., t, :, None] * state).sum(-2)
    return rows


def gated_by_loops(
    q: Array, k: Array, v: Array, g: Array, A_log: Array, dt_bias: Array, beta: Array, initial_state: Array
) -> tuple[Array, Array]:
    """The gated delta rule of Qwen3-Next, from what its layers project."""
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + x.dtype.type(1e-6)) for x in (q, k))
    decays = np.exp(-np.exp(A_log)[:, None] * np.log1p(np.exp(g + dt_bias[:, None])))
    rates, state, rows = 1 / (1 + np.exp(-beta)), initial_state, np.empty_like(v)
    for t in range(q.shape[-2]):
        state = state * decays[..., t, None, None]
        read = (k[..., t, :, None] * state).sum(-2)
        state = state + k[..., t, :, None] * (rates[..., t, None] * (v[..., t, :] - read))[..., None, :]
        rows[..., t, :] = (q[..., t, :, None] * state).sum(-2) / np.sqrt(q.dtype.type(q.shape[-1]))
    return rows, state


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_all_forms_are_a_loop_in_any_layout(layout: Any) -> None:
    inputs = drawn(GATED, 9)
    right, end = gated_by_loops(**inputs)
    whole = next(definitions_of(GATED, layout))
    of_tokens = ("q", "k", "v", "g", "beta")
    moved = {
        name: (np.moveaxis(a, 0, 1) if layout == "bnhd" else a)[None] if name in of_tokens else a
        for name, a in inputs.items()
    }
    moved["initial_state"] = inputs["initial_state"][None]
    results = [GATED(**inputs)]
    for output, state in (*(way(**moved) for way in whole.ways), whole.law.compute_exactly(moved)):
        results.append((np.moveaxis(output[0], 1, 0) if layout == "bnhd" else output[0], state[0]))
    for output, state in results:
        assert np.abs(output - right).max() < 1e-13
        assert np.abs(state - end).max() < 1e-13


def test_gradients_are_differences_of_outputs() -> None:
    inputs = drawn(PLAIN, 3)
    do = np.random.default_rng(0).standard_normal(inputs["v"].shape)
    results = dict(zip(inputs, Gradient(PLAIN)(do=do, **inputs), strict=True))
    toward = np.random.default_rng(1).standard_normal(inputs["beta"].shape)
    outputs = [PLAIN(**{**inputs, "beta": inputs["beta"] + step * toward}) for step in (1e-6, -1e-6)]
    slope = (do * (outputs[0] - outputs[1])).sum() / 2e-6
    assert abs((results["beta"] * toward).sum() - slope) < 1e-7 * (1 + abs(slope))


def test_what_has_no_meaning_is_refused() -> None:
    refuses(replace, PLAIN, delta=False, says="reads raw β; hint: delta=True")
    refuses(replace, LinearAttention.named("gdn2"), beta_form="sigmoid", says="reads raw β")


# -- bounds ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", ["float32", "bfloat16", "float16"])
def test_programs_are_within_the_law_and_beyond_that_without_errors_of_betas(form: str) -> None:
    # Without queries and keys of several terms, β has the largest rounding.
    inputs = drawn(PLAIN, 60, h=1, d=1)
    inputs["q"], inputs["k"] = np.ones_like(inputs["q"]), 0.5 * np.ones_like(inputs["k"])
    inputs["beta"] = inputs["beta"] - (9 if form == "float32" else 3)
    stored = {name: np.float32(Format(form).cast(a)) for name, a in inputs.items()}
    beyond = 0.0
    for sigmoid in SIGMOID.values():
        betas = np.float32(sigmoid(stored["beta"].astype(TYPES[form])))
        output = of_betas(stored["q"], stored["k"], stored["v"], betas)
        law = next(definitions_of(PLAIN, "nd")).law
        assert law is not None
        (of,) = recurrences(PLAIN, law.in_order(stored), Precision.of(form))
        exact, how = exact_values(of), RecurrentArithmetic(order="tokens")
        bounds, without = (limits(one, how) for one in (of, replace(of, key_errors=None)))
        off = np.abs(output[0] - exact.output)
        assert (off / bounds.worst).max() < 1
        assert bounds.sharp is None
        beyond = max(beyond, float((off / without.worst).max()))
    assert beyond > 1


@pytest.mark.parametrize("form", ["float32", "bfloat16"])
def test_programs_are_within_the_bound_of_forms(form: str) -> None:
    """A bound without the errors of β would refuse them."""
    inputs = drawn(PLAIN, 24)
    stored = {name: np.float32(Format(form).cast(a)) for name, a in inputs.items()}
    right = of_betas(**{name: np.float64(a) for name, a in stored.items() if name != "beta"},
                     beta=1 / (1 + np.exp(-np.float64(stored["beta"]))))  # fmt: skip
    other = next(definitions_of(PLAIN, "nd")).other_forms
    assert other is not None
    (allowed,) = other.bound(stored, Precision.of(form))  # type: ignore[misc]
    for sigmoid in SIGMOID.values():
        betas = np.float32(sigmoid(stored["beta"].astype(TYPES[form])))
        assert (np.abs(of_betas(stored["q"], stored["k"], stored["v"], betas) - right) < allowed).all()


def test_the_largest_errors_of_betas_and_of_a_norm_are_the_bound() -> None:
    """What is erased is off as its key is, not by the error of β once more."""
    normed = replace(PLAIN, qk_norm="l2", state="kv")
    for spec in (replace(normed, qk_norm=None), normed, replace(normed, erase="vector")):
        # One token that erases a state of positive numbers, so that all errors add up.
        inputs = {name: np.abs(a) for name, a in drawn(spec, 1, h=1).items()}
        inputs |= {"v": 0 * inputs["v"], "p": inputs["k"][..., ::-1]} if spec.erase else {"v": 0 * inputs["v"]}
        law = next(definitions_of(spec, "nd")).law
        assert law is not None
        values, precision = law.in_order(inputs), Precision.of("bfloat16")
        (of,) = recurrences(spec, values, precision)
        (given,) = recurrences(replace(spec, beta_form=None), {**values, "beta": of.beta[None]}, precision)  # type: ignore[index]
        off_betas = read_betas_with_errors(spec, values["beta"][0], precision)[1]
        exact, of = exact_values(of), replace(of, query_errors=None)
        key, erased = (a + moved for a, moved in ((of.k, given.moved.k), (of.erased, given.moved.p)))
        written = -key.T @ ((1 + off_betas / of.beta) * (erased @ of.state))
        for way in (RecurrentArithmetic(order="tokens"), RecurrentArithmetic(size=1)):
            bound = limits(of, way)
            for off, worst in (
                (of.q @ (of.state + written) - exact.output, bound.worst),
                (of.state + written - exact.state, bound.worst_state),
            ):
                assert np.abs(off / worst).min() > 0.99
                assert np.abs(off / worst).max() < 1


def test_beta_near_zero_leaves_a_bound() -> None:
    """The error of β is a large part of it there, of what is written alone; 0 in float64 is no part at all."""
    inputs = {name: np.float32(a) for name, a in drawn(PLAIN, 12, h=1).items()}
    usual, near = inputs["beta"].copy(), inputs["beta"].copy()
    near[:, 4], usual[:, 4] = -20, -5
    whole, precision = next(definitions_of(PLAIN, "nd")), Precision.of("float32")
    assert whole.law is not None
    assert whole.other_forms is not None

    def worst(beta: Array) -> Array:
        (of,) = recurrences(PLAIN, whole.law.in_order({**inputs, "beta": beta}), precision)  # type: ignore[union-attr]
        return limits(of, RecurrentArithmetic(order="tokens")).worst

    assert worst(near).max() < 2 * worst(usual).max()
    near[:, 4] = -10000
    zero = {**inputs, "beta": near}
    with np.errstate(all="raise", under="ignore"):
        (allowed,) = whole.other_forms.bound(zero, precision)  # type: ignore[misc]
        exact = whole.law.compute_exactly(zero)[0]
    with np.errstate(over="ignore"):
        betas = 1 / (1 + np.exp(-near))
    off = np.abs(of_betas(inputs["q"], inputs["k"], inputs["v"], betas) - exact)
    assert (off <= allowed).all()
    assert allowed.max() < 1


# -- judging and verifying ---------------------------------------------------------------------------------------------
def test_closeness_judges_raw_betas() -> None:
    inputs = {name: np.float32(a) for name, a in drawn(GATED, 90).items()}
    output, state = gated_by_loops(**inputs)
    q, k, v = (inputs.pop(name) for name in "qkv")
    assert_close_to_exact(output, q, k, v, GATED, **inputs, final_state=state)
    other = gated_by_loops(q, k, v, **{**inputs, "beta": 1.05 * inputs["beta"]})[0]
    with pytest.raises(AttentionFault, match="beyond what any implementation"):
        assert_close_to_exact(other, q, k, v, GATED, **inputs)


def program_of(betas: Callable[[Array], Array]) -> Callable[..., Any]:
    def program(q: Array, k: Array, v: Array, beta: Array) -> Array:
        with np.errstate(all="ignore"):
            return of_betas(q, k, v, betas(beta).astype(q.dtype))

    return program


WRONG = [
    (lambda b: b, "the sigmoid of raw β is left out"),
    (lambda b: 2 / (1 + np.exp(-b)), "β is twice the sigmoid of raw ones"),
    (lambda b: 1 / (1 + np.exp(b)), "β is the sigmoid of −b, 1 − β"),
    (np.exp, "raw β have an exponential in place of the sigmoid"),
    # A sigmoid in pieces is no known mistake, and a fault.
    (lambda b: np.clip(b / 6 + 0.5, 0, 1), None),
]  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize("name", SIGMOID)
def test_right_programs_are_no_fault(name: str) -> None:
    how = Options(verdict_alone=True, layout="bhnd", domain=SHORT, examples=3)
    assert verified(program_of(SIGMOID[name]), PLAIN, how).verdict is Verdict.NO_FAULT


@pytest.mark.deep
@pytest.mark.parametrize(("betas", "words"), WRONG)
def test_wrong_betas_are_named(betas: Callable[[Array], Array], words: str | None) -> None:
    report = verified(program_of(betas), PLAIN, Options(layout="bhnd", domain=SHORT))
    assert report.verdict is Verdict.FAULT
    assert [fault.cause for fault in report.faults] == [words]


# -- one token ---------------------------------------------------------------------------------------------------------
def test_a_token_by_itself_has_no_system_whose_rows_are_exchanged() -> None:
    """Only a key and what a later token erases meet in the triangular system of a chunk."""
    spec = LinearAttention(feature="identity", normalised=False, delta=True)
    law = next(definitions_of(spec, "nd")).law
    assert law is not None

    def covers(*lengths: float) -> bool:
        k = np.array(lengths)[:, None] * np.ones((1, 1))
        return law.covers_every_form({"q": k, "k": k, "v": k, "beta": np.ones(len(k))})

    assert covers(11.0)
    assert covers(0.25, 3.0)
    assert not covers(3.0, 0.5)
    assert not covers(0.25, 3.0, 0.5)
