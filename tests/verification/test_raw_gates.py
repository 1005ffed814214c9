"""Raw gates: right programs are within the bound, whatever the form; wrong ones are named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Domain, Gradient, InputError, LinearAttention, Precision, Verdict, verify
from symattn.arrays.formats import Format
from symattn.bounds.linear_forms import LinearTerms, allowed_of_moved_gates
from symattn.bounds.recurrent.gate_errors import bound_sigmoid_gates, bound_softplus_gates
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic
from symattn.bounds.recurrent.recurrent_limits import exact_values, limits
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options, verified
from symattn.testing import AttentionFault, assert_close_to_exact
from symattn.verification.definitions.recurrent_law import recurrences
from tests.verification.raw_gate_programs import SIGMOID, SOFTPLUS, by_chunks, by_tokens, gates

Array = Any
PLAIN = LinearAttention(feature="identity", normalised=False, gate="token", gate_form="softplus")
DELTA = replace(PLAIN, delta=True, state="kv")
BOUNDED = replace(DELTA, gate="feature", gate_form="sigmoid", lower_bound=-5)
#: A few chunks of narrow heads.
SHORT = Domain(max_tokens=80, max_width=12)


def drawn(spec: LinearAttention, n: int, front: tuple[int, ...] = (), h: int = 2, d: int = 4) -> dict[str, Array]:
    rng = np.random.default_rng(n)
    inputs = {name: rng.standard_normal((*front, h, n, d)) for name in "qkv"}
    if spec.delta:
        inputs["k"] = inputs["k"] / np.sqrt((inputs["k"] ** 2).sum(-1, keepdims=True))
        inputs["beta"] = rng.random((*front, h, n))
    features = (d,) if spec.gate == "feature" else ()
    inputs["g"] = rng.standard_normal((*front, h, n, *features)) - 1
    inputs |= {"A_log": rng.standard_normal(h) - 1, "dt_bias": rng.standard_normal((h, *features))}
    if spec.state:
        inputs["initial_state"] = rng.standard_normal((*front, h, d, d))
    return inputs


def of_raw(
    q: Array, k: Array, v: Array, g: Array, A_log: Array, dt_bias: Array, spec: LinearAttention = PLAIN, **more: Array
) -> tuple[Array, Array]:
    """The recurrence of raw gates, token by token."""
    return by_tokens(q, k, v, gates(g, A_log, dt_bias, spec.lower_bound), **more)


# -- the definition ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("spec", [DELTA, replace(DELTA, gate="feature"), BOUNDED])
def test_all_forms_are_a_loop_in_any_layout(spec: LinearAttention) -> None:
    inputs = drawn(spec, 9, (2,))
    right, end = of_raw(**inputs, spec=spec)
    turned = ("q", "k", "v", "beta", "g")
    moved = {name: np.moveaxis(a, 1, 2) if name in turned else a for name, a in inputs.items()}
    whole = next(definitions_of(spec, "bnhd"))
    results = [spec(**inputs)]
    for outputs in (*(way(**moved) for way in whole.ways), whole.law.compute_exactly(moved)):
        results.append((np.moveaxis(outputs[0], 2, 1), outputs[1]))
    for output, state in results:
        assert np.abs(output - right).max() < 1e-13
        assert np.abs(state - end).max() < 1e-13


def test_gradients_are_differences_of_outputs() -> None:
    spec = replace(BOUNDED, state=None)
    inputs = drawn(spec, 3)
    do = np.random.default_rng(0).standard_normal(inputs["v"].shape)
    # In the order of the definition.
    names = [x.name for x in next(definitions_of(spec)).inputs]
    results = dict(zip(names, Gradient(spec)(do=do, **inputs), strict=True))
    for name in ("g", "A_log", "dt_bias"):
        toward = np.random.default_rng(1).standard_normal(inputs[name].shape)
        outputs = [spec(**{**inputs, name: inputs[name] + step * toward}) for step in (1e-5, -1e-5)]
        slope = (do * (outputs[0] - outputs[1])).sum() / 2e-5
        assert abs((results[name] * toward).sum() - slope) < 1e-8 * (1 + abs(slope))


def test_what_has_no_meaning_is_refused() -> None:
    inputs = drawn(PLAIN, 3)
    for name, words in (("A_log", "one number a head"), ("dt_bias", "one number a head, dt_bias")):
        for other in (None, inputs[name][:1]):
            with pytest.raises(InputError, match=words):
                PLAIN(**{**inputs, name: other})
    with pytest.raises(InputError, match=r"takes no A_log here; hint: .*gate_form='softplus'"):
        replace(PLAIN, gate_form=None)(**inputs)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"gate": None}, "hint: gate='token' or gate='feature'"),
        ({"gate": "head", "step": True}, "not the raw step of Mamba-2"),
        ({"lower_bound": -5}, "hint: gate_form='sigmoid' and lower_bound=-5"),
        ({"gate_form": "sigmoid"}, "hint: gate_form='sigmoid' and lower_bound=-5"),
        ({"gate_form": "sigmoid", "lower_bound": 5}, "lower_bound must be a finite number below 0, got 5"),
        ({"gate_form": "tanh"}, "gate_form must be one of None, softplus, sigmoid"),
    ]
    for fields, words in refused:
        with pytest.raises(InputError, match=words):
            replace(PLAIN, **fields)
    with pytest.raises(InputError, match="each of which has a rate of gates"):
        next(definitions_of(PLAIN, "bnd"))


# -- bounds ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", ["float32", "bfloat16", "float16"])
def test_gates_of_every_form_are_within_their_errors(form: str) -> None:
    rng, kind = np.random.default_rng(1), Format(form)
    # Beyond 11 e^x overflows in float16.
    largest = 10.0 if form == "float16" else 30.0
    a = np.float64(kind.cast(rng.uniform(-12, largest, (6, 400))))
    A_log = np.float64(kind.cast(np.linspace(-4.0, 2.0, 6)))
    bias = np.float64(kind.cast(rng.uniform(-1, 1, 6)))
    rates = A_log[:, None]
    shares: dict[str, float] = {}
    for way in SOFTPLUS:
        gates_in_format = np.float64(gates(a, A_log, bias, None, way, form))
        allowed = bound_softplus_gates(a + bias[:, None], rates, kind)
        exact = -np.exp(rates) * np.logaddexp(0, a + bias[:, None])
        shares[way] = float((np.abs(gates_in_format - exact) / allowed).max())
    inside = np.exp(rates) * (a / 4 + bias[:, None])
    is_small = np.abs(inside) < 10
    for way in SIGMOID:
        gates_in_format = np.float64(gates(a / 4, A_log, bias, -5.0, way, form))
        allowed = bound_sigmoid_gates(a / 4 + bias[:, None], rates, -5.0, kind)
        share = np.abs(gates_in_format + 5 / (1 + np.exp(-inside))) / allowed
        shares[way] = float(share[is_small].max())
    for way, share in shares.items():
        # Errors are there, and no larger than is proved.
        assert 0.01 < share < 1, way


def test_gates_that_leave_a_format_have_no_bound() -> None:
    one, kind = np.ones((1, 1)), Format("float16")
    assert np.isinf(bound_softplus_gates(one, 12 * one, kind)).all()
    assert np.isinf(bound_sigmoid_gates(9 * one, 9 * one, -5.0, kind)).all()
    assert np.isfinite(bound_softplus_gates(one, one, kind)).all()


def of_rounded_gates(spec: LinearAttention, form: str) -> tuple[dict[str, Array], Array]:
    """Inputs in a format of which gates are the difference of a rate, far above 1, and a softplus, far below 1."""
    inputs = drawn(spec, 90, h=1, d=6)
    inputs |= {"A_log": np.full(1, 8.0), "dt_bias": np.full(1, -11.0), "initial_state": inputs["q"][:, :6]}
    if form != "float32":
        # What float32 loses of e^−11 beside 1, narrower formats lose of ordinary gates.
        inputs |= {"A_log": np.full(1, -1.0), "dt_bias": np.full(1, -1.0)}
    stored = {name: np.float32(Format(form).cast(a)) for name, a in inputs.items()}
    gates_in_format = gates(stored["g"], stored["A_log"], stored["dt_bias"], spec.lower_bound, "log", form)
    return stored, np.float32(gates_in_format)


@pytest.mark.parametrize("form", ["float32", "bfloat16", "float16"])
def test_programs_are_within_the_law_and_beyond_that_without_errors_of_gates(form: str) -> None:
    inputs, gates_in_format = of_rounded_gates(PLAIN, form)
    values = {name: np.float64(a) for name, a in inputs.items()}
    values["g"] = values["g"][..., None]
    (of,) = recurrences(PLAIN, values, Precision.of(form))
    assert of.gate_errors is not None
    exact = exact_values(of)
    q, k, v, state = (inputs[name] for name in ("q", "k", "v", "initial_state"))
    token_by_token = (by_tokens(q, k, v, gates_in_format, initial_state=state), RecurrentArithmetic(order="tokens"))
    # Chunks, from a state of zeros.
    from_nothing = replace(of, state=0 * of.state)
    runs = [(of, exact, *token_by_token)]
    for apart in (False, True):
        chunks = by_chunks(q, k, v, gates_in_format, apart=apart)
        runs.append((from_nothing, exact_values(from_nothing), chunks, RecurrentArithmetic(size=16)))
    for recurrence, right, (output, end), how in runs:
        bounds, without = limits(recurrence, how), limits(replace(recurrence, gate_errors=None), how)
        off, off_end = np.abs(output[0] - right.output), np.abs(end[0] - right.state)
        assert (off / bounds.worst).max() < 1
        assert (off_end / bounds.worst_state).max() < 1
        assert bounds.sharp is None
        assert (off / without.worst).max() > 3
        assert (off_end / without.worst_state).max() > 3


@pytest.mark.parametrize("form", ["float32", "bfloat16"])
def test_programs_are_within_the_bound_of_forms_and_beyond_that_of_exact_gates(form: str) -> None:
    inputs, gates_in_format = of_rounded_gates(PLAIN, form)
    short = {name: a[:, :24] if a.shape[1:2] == (90,) else a for name, a in inputs.items() if name != "initial_state"}
    exact_gates = gates(*(np.float64(short[name]) for name in ("g", "A_log", "dt_bias")))
    of_gates = {**{name: short[name] for name in "qkv"}, "g": exact_gates}
    right = by_tokens(*(np.float64(a) for a in of_gates.values()))[0]
    q, k, v = (short[name] for name in "qkv")
    off = np.abs(by_chunks(q, k, v, gates_in_format[:, :24], apart=True)[0] - right)
    bound_of_raw, bound_of_gates = (
        next(definitions_of(spec, "nd")).other_forms for spec in (PLAIN, replace(PLAIN, gate_form=None))
    )
    assert bound_of_raw is not None
    assert bound_of_gates is not None
    (allowed,) = bound_of_raw.bound(short, Precision.of(form))  # type: ignore[misc]
    # Everything but gates is computed in float32.
    (without,) = bound_of_gates.bound(of_gates, Precision.of("float32"))  # type: ignore[misc]
    assert (off / allowed).max() < 1
    assert (off / without).max() > 1


def test_gates_that_are_off_move_a_triangular_system_within_their_bound() -> None:
    rng, n = np.random.default_rng(0), 12
    q, k, p, v = (0.3 * rng.random((n, width)) for width in (4, 4, 4, 2))
    g, errors = -0.2 * rng.random((n, 4)), 0.05 * rng.random((n, 4))

    def outputs(g: Array) -> Array:
        state, rows = np.zeros((4, 2)), []
        for t in range(n):
            state = np.exp(g[t])[:, None] * state
            state = state + k[t][:, None] * (v[t] + p[t] @ state)
            rows.append(q[t] @ state)
        return np.stack(rows)

    def terms(g: Array) -> LinearTerms:
        sums = np.cumsum(g, axis=0)
        # Nothing cancels where −p is what is erased.
        return LinearTerms(q, k, v, -p, sums, reads=sums)

    precision = Precision.of("float64")
    allowed = allowed_of_moved_gates(terms(g), terms(g + errors), precision)
    exact = outputs(g)
    for signs in (np.ones((n, 4)), -np.ones((n, 4)), rng.choice([-1.0, 1.0], (n, 4))):
        assert (np.abs(outputs(g + signs * errors) - exact) <= allowed).all()
    # Where all are off upwards, all of it is reached.
    reached = (outputs(g + errors) - exact)[1:] / allowed[1:]
    assert (reached > 0.99).all()


# -- judging and verifying ---------------------------------------------------------------------------------------------
def test_closeness_judges_raw_gates() -> None:
    inputs = {name: np.float32(a) for name, a in drawn(BOUNDED, 90).items()}
    q, k, v = (inputs.pop(name) for name in "qkv")
    output, state = of_raw(q, k, v, **inputs, spec=BOUNDED)
    assert_close_to_exact(output, q, k, v, BOUNDED, **inputs, final_state=state)
    bare = {**inputs, "dt_bias": 0 * inputs["dt_bias"]}
    late = of_raw(q, k, v, **bare, spec=BOUNDED)[0]
    with pytest.raises(AttentionFault, match="beyond what any implementation"):
        assert_close_to_exact(late, q, k, v, BOUNDED, **inputs)
    with pytest.raises(InputError, match=r"dt_bias has the shape \(2,\), expected \(2, 4\)"):
        assert_close_to_exact(output, q, k, v, BOUNDED, **{**inputs, "dt_bias": inputs["A_log"]})
    with pytest.raises(InputError, match="there is no input 'A_log'"):
        assert_close_to_exact(output, q, k, v, BOUNDED, **{n: a for n, a in inputs.items() if n != "A_log"})
    unbounded = replace(BOUNDED, gate_form="softplus", lower_bound=None)
    with pytest.raises(InputError, match="gates that are not finite in float64"):
        assert_close_to_exact(output, q, k, v, unbounded, **{**inputs, "A_log": 1e30 + inputs["A_log"]})


def plain(q: Array, k: Array, v: Array, a: Array, A_log: Array, dt_bias: Array) -> Array:
    return by_chunks(q, k, v, gates(a, A_log, dt_bias), size=32)[0]


def bounded(
    q: Array, k: Array, v: Array, g: Array, A_log: Array, dt_bias: Array, beta: Array, initial_state: Array
) -> tuple[Array, Array]:
    return by_tokens(q, k, v, gates(g, A_log, dt_bias, -5, "tanh"), beta, initial_state)


@pytest.mark.deep
@pytest.mark.parametrize(("program", "spec"), [(plain, PLAIN), (bounded, BOUNDED)])
def test_right_programs_are_no_fault(program: Callable[..., Any], spec: LinearAttention) -> None:
    how = Options(verdict_alone=True, layout="bhnd", domain=SHORT, examples=5)
    assert verified(program, spec, how).verdict is Verdict.NO_FAULT


def read_as(gates_of: Callable[..., Array]) -> Callable[..., Array]:
    """The recurrence of wrong gates, which may grow beyond float32."""

    def program(q: Array, k: Array, v: Array, g: Array, A_log: Array, dt_bias: Array) -> Array:
        with np.errstate(all="ignore"):
            return by_tokens(q, k, v, gates_of(g, A_log[:, None], dt_bias[:, None]))[0]

    return program


WRONG = [
    (read_as(lambda a, rate, bias: -np.exp(rate) * (a + bias)), "the softplus of raw gates is left out"),
    (read_as(lambda a, rate, bias: -rate * SOFTPLUS["log1p"](a + bias)), "the rate of the gates is A, not e^A"),
    (read_as(lambda a, rate, bias: -np.exp(rate) * SOFTPLUS["log1p"](a)), "the bias of raw gates is left out"),
]


@pytest.mark.deep
@pytest.mark.parametrize(("program", "cause"), WRONG)
def test_wrong_programs_are_named(program: Callable[..., Any], cause: str) -> None:
    result = verify(program, PLAIN, layout="bhnd", domain=SHORT, examples=5)
    assert cause in " ".join(str(result).split())
