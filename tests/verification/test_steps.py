"""Mamba-2: a step Δ that multiplies A and x, and D x; right forms pass, wrong ones are found and named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Domain, InputError, LinearAttention, Verdict, verify
from symattn.arrays.formats import Format
from symattn.bounds.recurrent.recurrence import Recurrence
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic
from symattn.bounds.recurrent.recurrent_limits import limits
from symattn.bounds.recurrent.replays import replay
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options, verified
from symattn.testing import AttentionFault, assert_close_to_exact
from tests.verification.recurrent_programs import rounded
from tests.verification.stepping_programs import by_chunks, by_tokens
from tests.verification.test_read_before import shares

Array = Any
MAMBA2 = LinearAttention.named("mamba2")
STATES = replace(MAMBA2, state="kv")
#: A few chunks of narrow heads.
SHORT = Domain(max_tokens=80, max_width=12)


def drawn(n: int, front: tuple[int, ...] = (2,), heads: int = 2, d: int = 4) -> dict[str, Array]:
    rng = np.random.default_rng(n)
    given = {name: rng.standard_normal((*front, heads, n, d)) for name in "qk"}
    given |= {"v": rng.standard_normal((*front, 2 * heads, n, 3)), "a": -0.2 * rng.random(2 * heads)}
    given |= {"dt": rng.gamma(1.0, size=(*front, 2 * heads, n)), "skip": rng.standard_normal(2 * heads)}
    return {name: np.float32(a) for name, a in given.items()}


def test_all_forms_are_a_loop_in_any_layout() -> None:
    given: dict[str, Array] = {name: a.astype(np.float64) for name, a in drawn(9).items()}
    given["initial_state"] = np.random.default_rng(0).standard_normal((2, 4, 4, 3))
    right, end = by_tokens(**given)
    given["g"] = given.pop("a")
    output, state = STATES(**given)
    assert np.abs(output - right).max() < 1e-13
    assert np.abs(state - end).max() < 1e-13
    turned = {n: np.moveaxis(a, 1, 2) if n in ("q", "k", "v", "dt") else a for n, a in given.items()}
    for way in next(definitions_of(STATES, "bnhd")).ways:
        rows, state = way(**turned)
        assert np.abs(np.moveaxis(rows, 2, 1) - right).max() < 1e-13
        assert np.abs(state - end).max() < 1e-13


def test_what_has_no_meaning_is_refused() -> None:
    given = drawn(3)
    given["g"] = given.pop("a")
    for name, words in (("dt", "one step a token"), ("skip", "one number a head")):
        for other in (None, given[name][..., :1]):
            with pytest.raises(InputError, match=words):
                MAMBA2(**{**given, name: other})
    for name, field in (("dt", "step"), ("skip", "skip")):
        with pytest.raises(InputError, match=f"takes no {name} here; hint: .*{field}=True"):
            replace(MAMBA2, **{field: False})(**given)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"gate": "token"}, "gate='head' and delta=False"),
        ({"delta": True}, "gate='head' and delta=False"),
        ({"normalised": True}, "normalised=False"),
        ({"reads": "before", "bonus": True}, "step=False"),
    ]
    for fields, words in refused:
        with pytest.raises(InputError, match=words):
            replace(MAMBA2, **fields)
    with pytest.raises(InputError, match="each of which has a skip"):
        next(definitions_of(LinearAttention(normalised=False, skip=True), "bnd"))


@pytest.mark.parametrize("form", ["float32", "bfloat16", "float16"])
def test_right_programs_are_within_both_limits_and_wrong_ones_beyond(form: str) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rounded(np.float32(rng.standard_normal((90, d))), form) for d in (8, 8, 3))
    a, skip, state = np.float32(-0.1), np.float32(0.7), np.full((8, 3), 0.5, np.float32)
    # Steps so small that a product with one may underflow in float16.
    dt: Array = rng.gamma(1.0, size=90).astype(np.float32)
    dt[::3] *= 1e-4
    rates = dt.astype(np.float64)[:, None]
    queries, keys, values = (x.astype(np.float64) for x in (q, k, v))
    gates, start = float(a) * rates, state.astype(np.float64)
    of = Recurrence(queries, keys, values, gates, None, start, rates=rates, skip=float(skip))
    out = Format(form)
    how = RecurrentArithmetic(stored=None if form == "float32" else out, output=out, size=16)
    one_by_one = replace(how, order="tokens", stored=None)
    given = (q, k, v, a, dt, skip, state)
    runs = [(one_by_one, by_tokens(*given))]
    runs += [(how, by_chunks(*given, stored=form, on_scores=on_scores)) for on_scores in (True, False)]
    for arithmetic in (how, one_by_one):
        again = replay(of, arithmetic)
        runs.append((arithmetic, (again.output, again.state)))
    for way, (output, end) in runs:
        worst, sharp = shares(limits(of, way), rounded(np.float32(output), form), end, of)
        assert 0 < worst < 1
        assert 0 < sharp < 0.5
    for wrong in ("gates without step", "values without step", "no skip", "scaled skip"):
        output, end = by_tokens(*given, wrong=wrong)
        for way in (how, one_by_one):
            assert min(shares(limits(of, way), rounded(output, form), end, of)) > 3


def test_products_of_steps_and_gates_round_once_more_token_by_token() -> None:
    one, nothing, g = np.ones((1, 1)), np.zeros((1, 1)), np.full((1, 1), -40.0)
    how = RecurrentArithmetic(order="tokens")
    # Δ A, log₂ e and its product with Δ A may each be too small by u.
    off = np.exp(-40.0) * (np.exp(3 * 40 * float(how.sums.u)) - 1)
    stepped = limits(Recurrence(one, one, nothing, g, None, one, rates=one), how).worst[0, 0]
    assert off < stepped < 1.2 * off
    assert limits(Recurrence(one, one, nothing, g, None, one), how).worst[0, 0] < off


def test_scores_times_steps_that_leave_a_format_have_no_bound() -> None:
    one, how = np.ones((2, 1)), RecurrentArithmetic(stored=Format("float16"))
    of = Recurrence(30 * one, 30 * one, one, -one, None, np.zeros((1, 1)), rates=100 * one)
    assert np.isinf(limits(of, how).worst).all()
    assert np.isfinite(limits(replace(of, rates=one), how).worst).all()


def test_a_skip_is_added_to_the_delta_rule_with_normed_keys_too() -> None:
    spec = LinearAttention(feature="identity", normalised=False, delta=True, qk_norm="l2", eps=0.25, skip=True)
    rng = np.random.default_rng(0)
    given: dict[str, Array] = {n: rng.standard_normal((2, 5, 3)) for n in "qkv"}
    given |= {"beta": rng.random((2, 5)), "skip": np.array([1.5, -2.0])}
    without = {n: a for n, a in given.items() if n != "skip"}
    added = given["skip"][:, None, None] * given["v"]
    of_bare = {m.cause: m.run for m in next(definitions_of(replace(spec, skip=False))).mistakes if m.step == "norm"}
    for one in next(definitions_of(spec)).mistakes:
        if one.step == "norm":
            assert np.allclose(one.run(**given), of_bare[one.cause](**without) + added)


def test_sharp_limits_count_what_underflows_as_it_is_stored_with_a_step() -> None:
    form, rng = Format("float16"), np.random.default_rng(1)

    def stored(x: Array) -> Array:
        return np.float64(form.cast(x))

    q, k, v = (stored(size * rng.standard_normal((64, m))) for size, m in ((0.1, 8), (0.1, 8), (1.0, 50)))
    of = Recurrence(q, k, v, None, None, np.zeros((8, 50)), rates=1e-4 * rng.gamma(1.0, size=(64, 1)))
    found = limits(of, RecurrentArithmetic(stored=form))
    assert of.rates is not None
    output, state = stored(np.tril(q @ k.T) * of.rates.T) @ v, stored(k * of.rates).T @ v
    worst, sharp = shares(found, output, state, of)
    assert worst < 1
    assert 0.05 < sharp < 1


def test_closeness_judges_steps_and_skips() -> None:
    given = drawn(90, (), d=8)
    q, k, v, g, dt, skip = (given[name] for name in ("q", "k", "v", "a", "dt", "skip"))
    output, state = by_chunks(q, k, v, g, dt, skip, on_scores=True)
    assert_close_to_exact(output, q, k, v, STATES, g=g, dt=dt, skip=skip, final_state=state)
    late = by_tokens(q, k, v, g, dt, skip, wrong="values without step")[0]
    with pytest.raises(AttentionFault, match="beyond what any implementation"):
        assert_close_to_exact(late, q, k, v, MAMBA2, g=g, dt=dt, skip=skip)
    with pytest.raises(InputError, match="dt has a number below 0"):
        assert_close_to_exact(output, q, k, v, MAMBA2, g=g, dt=-dt, skip=skip)
    with pytest.raises(InputError, match=r"skip has the shape \(2,\), expected \(4,\)"):
        assert_close_to_exact(output, q, k, v, MAMBA2, g=g, dt=dt, skip=skip[:2])


# -- verify ------------------------------------------------------------------------------------------------------------
def outputs_of(run: Callable[..., Any], **how: Any) -> Callable[..., Array]:
    def function(C: Array, B: Array, x: Array, A: Array, dt: Array, D: Array) -> Array:
        return run(C, B, x, A, dt, D, **how)[0]

    return function


def chunks_of_32(
    q: Array, k: Array, v: Array, g: Array, dt: Array, skip: Array, initial_state: Array
) -> tuple[Array, Array]:
    return by_chunks(q, k, v, g, dt, skip, initial_state, size=32, on_scores=True)


@pytest.mark.deep
@pytest.mark.parametrize(("program", "spec"), [(outputs_of(by_tokens), MAMBA2), (chunks_of_32, STATES)])
def test_right_programs_are_no_fault(program: Callable[..., Any], spec: LinearAttention) -> None:
    how = Options(verdict_alone=True, layout="bhnd", domain=SHORT, examples=10)
    assert verified(program, spec, how).verdict is Verdict.NO_FAULT


WRONG = [
    (outputs_of(by_tokens, wrong="values without step"), "the step Δ multiplies the gates alone, not the values"),
    (outputs_of(by_tokens, wrong="gates without step"), "the step Δ multiplies the values alone, not the gates"),
    (outputs_of(by_tokens, wrong="no skip"), "the added term D x is left out"),
    (outputs_of(by_tokens, wrong="scaled skip"), "the added term is D Δ x, not D x"),
    (outputs_of(by_chunks, wrong="state lost"), "the state is not carried over from one chunk of 16"),
    (lambda q, k, v, g, dt, skip: by_tokens(q, k, v, g, dt, skip[::-1])[0], "heads have the D of the added term in"),
]


@pytest.mark.deep
@pytest.mark.parametrize(("program", "cause"), WRONG)
def test_wrong_programs_are_named(program: Callable[..., Any], cause: str) -> None:
    result = verify(program, MAMBA2, layout="bhnd", domain=SHORT, examples=10)
    assert cause in " ".join(str(result).split())
