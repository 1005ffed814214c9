"""Recurrences that take a state and return one: right programs pass, lost and undecayed states are found and named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import InputError, LinearAttention, Verdict, verify
from symattn.bounds.linear_forms import LinearTerms
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options, verified
from symattn.testing import AttentionFault, assert_close_to_exact
from symattn.verification.definitions.linear_bounds import _with_state_as_tokens

Array = Any
GATED = LinearAttention(feature="identity", normalised=False, gate="token", state="kv")
DELTA = replace(GATED, delta=True)


def by_tokens(
    q: Array, k: Array, v: Array, g: Array, beta: Array | None = None, initial_state: Array | None = None
) -> tuple[Array, Array]:
    """Token by token; arrays are (…, n, d), gates and β (…, n), the state (…, d_k, d_v)."""
    empty = 0 * (k[..., 0, :, None] * v[..., 0, None, :])
    state, rows = empty if initial_state is None else empty + initial_state, []
    for t in range(k.shape[-2]):
        state = state * np.exp(g[..., t, None, None])
        written = v[..., t, :]
        if beta is not None:
            written = (written - (k[..., t, None, :] @ state)[..., 0, :]) * beta[..., t, None]
        state = state + k[..., t, :, None] * written[..., None, :]
        rows.append((q[..., t, None, :] @ state)[..., 0, :])
    return np.stack(rows, axis=-2).astype(v.dtype), state.astype(v.dtype)


def by_chunks(q: Array, k: Array, v: Array, g: Array, initial_state: Array, size: int = 64) -> tuple[Array, Array]:
    """In chunks, without the delta rule."""
    state, parts = initial_state, []
    for lo in range(0, q.shape[-2], size):
        some = slice(lo, lo + size)
        queries, keys, values = (x[..., some, :] for x in (q, k, v))
        sums = np.cumsum(g[..., some], -1)
        decays = np.tril(np.exp(np.tril(sums[..., :, None] - sums[..., None, :])))
        grown = np.exp(sums)[..., None]
        parts.append(queries * grown @ state + (queries @ keys.swapaxes(-1, -2) * decays) @ values)
        kept = keys * np.exp(sums[..., -1:] - sums)[..., None]
        state = state * grown[..., -1:, :] + kept.swapaxes(-1, -2) @ values
    return np.concatenate(parts, -2), state


def delta(q: Array, k: Array, v: Array, g: Array, beta: Array, initial_state: Array) -> tuple[Array, Array]:
    return by_tokens(q, k, v, g, beta, initial_state)


def gated(q: Array, k: Array, v: Array, g: Array, initial_state: Array) -> tuple[Array, Array]:
    return by_tokens(q, k, v, g, None, initial_state)


def in_vk(q: Array, k: Array, v: Array, g: Array, initial_state: Array) -> tuple[Array, Array]:
    output, state = gated(q, k, v, g, initial_state.swapaxes(-1, -2))
    return output, state.swapaxes(-1, -2)


def drawn(with_beta: bool) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    given = {
        "q": rng.standard_normal((2, 7, 4)),
        "k": rng.standard_normal((2, 7, 4)),
        "v": rng.standard_normal((2, 7, 3)),
    }
    given |= {"g": -0.3 * rng.random((2, 7)), "initial_state": rng.standard_normal((2, 4, 3))}
    return {**given, "beta": rng.random((2, 7))} if with_beta else given


@pytest.mark.parametrize("spec", [GATED, DELTA])
def test_states_are_those_of_a_loop_in_all_forms(spec: LinearAttention) -> None:
    given = drawn(spec.delta)
    right = by_tokens(**given)
    columns = {name: a[:, None] for name, a in given.items()}
    for way in (lambda **arrays: spec(**arrays), *next(definitions_of(spec, "bhnd")).ways):
        got = way(**columns)
        assert all(np.abs(a[:, 0] - b).max() < 1e-14 for a, b in zip(got, right, strict=True))
    turned = {**given, "initial_state": given["initial_state"].swapaxes(-1, -2)}
    output, state = replace(spec, state="vk")(**turned)
    assert np.abs(output - right[0]).max() < 1e-14
    assert np.abs(state.swapaxes(-1, -2) - right[1]).max() < 1e-14


def test_a_run_in_two_parts_is_that_in_one() -> None:
    given = drawn(True)
    state = given.pop("initial_state")
    parts = []
    for some in (slice(0, 3), slice(3, 7)):
        mine = {name: a[:, some] for name, a in given.items()}
        output, state = DELTA(**mine, initial_state=state)
        parts.append(output)
    whole, end = DELTA(**drawn(True))
    assert np.abs(np.concatenate(parts, axis=1) - whole).max() < 1e-14
    assert np.abs(state - end).max() < 1e-14


def test_states_need_sums_over_earlier_tokens() -> None:
    for fields in ({"causal": False, "normalised": False}, {"normalised": True}):
        with pytest.raises(InputError, match="normalised=False"):
            LinearAttention(state="kv", **fields)


@pytest.mark.parametrize("layout", ["kv", "vk"])
def test_closeness_reads_states_in_their_layout(layout: Any) -> None:
    given = {name: np.float32(a) for name, a in drawn(True).items()}
    output, end = by_tokens(**given)
    rows, rest = [given.pop(name) for name in "qkv"], given
    state = rest.pop("initial_state")
    if layout == "vk":
        state, end = (x.swapaxes(-1, -2) for x in (state, end))
    spec = replace(DELTA, state=layout)
    assert_close_to_exact(output, *rows, spec, **rest, initial_state=state, final_state=end)
    other = replace(DELTA, state="kv" if layout == "vk" else "vk")
    with pytest.raises(InputError, match=r"\(2, 4, 3\)"):
        assert_close_to_exact(output, *rows, other, **rest, initial_state=state, final_state=end)
    with pytest.raises(AttentionFault, match="final_state"):
        assert_close_to_exact(output, *rows, spec, **rest, initial_state=state, final_state=end * np.float32(1.001))


# -- verify ------------------------------------------------------------------------------------------------------------
RIGHT = [
    (delta, DELTA, "bhnd"),
    (gated, GATED, "bhnd"),
    (by_chunks, GATED, "bhnd"),
    (in_vk, replace(GATED, state="vk"), "bhnd"),
]


@pytest.mark.deep
@pytest.mark.parametrize(("run", "spec", "layout"), RIGHT)
def test_right_states_are_no_fault(run: Callable[..., Any], spec: LinearAttention, layout: Any) -> None:
    how = Options(verdict_alone=True, dtype="float32", layout=layout, contract=None, examples=10)
    assert verified(run, spec, how).verdict is Verdict.NO_FAULT


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_states_in_the_format_of_inputs_are_no_fault(dtype: str) -> None:
    def narrow(q: Array, k: Array, v: Array, g: Array, initial_state: Array) -> tuple[Array, Array]:
        output, state = gated(*(x.astype(np.float32) for x in (q, k, v, g, initial_state)))
        return output.astype(q.dtype), state.astype(q.dtype)

    how = Options(verdict_alone=True, dtype=dtype, layout="bhnd", contract="fused", examples=10)
    assert verified(narrow, GATED, how).verdict is Verdict.NO_FAULT


def test_states_are_no_part_of_the_triangular_system() -> None:
    given = drawn(True)
    k, beta, state = given["k"], given["beta"][..., None], given["initial_state"]
    terms = LinearTerms(given["q"], k, beta * given["v"], beta * k, None)
    right = beta * np.tril(k @ k.swapaxes(-1, -2), -1)
    assert np.abs(_with_state_as_tokens(DELTA, terms, state).system - right).max() < 1e-14


@pytest.mark.deep
def test_tokens_before_heads_leave_states_as_they_are() -> None:
    def moved(q: Array, k: Array, v: Array, g: Array, initial_state: Array) -> tuple[Array, Array]:
        q, k, v, g = (np.moveaxis(x, 1, 2) for x in (q, k, v, g))
        output, state = gated(q, k, v, g, initial_state)
        return np.moveaxis(output, 2, 1), state

    how = Options(verdict_alone=True, dtype="float32", layout="bnhd", contract=None, examples=10)
    assert verified(moved, GATED, how).verdict is Verdict.NO_FAULT


def zeroed(x: Array, *places: Any) -> Array:
    result = x.copy()
    for place in places:
        result[..., place] = 0
    return result


def lost(q: Array, k: Array, v: Array, g: Array, initial_state: Array) -> tuple[Array, Array]:
    return gated(q, k, v, g, 0 * initial_state)


def lost_at_the_end(q: Array, k: Array, v: Array, g: Array, initial_state: Array) -> tuple[Array, Array]:
    return gated(q, k, v, g, initial_state)[0], lost(q, k, v, g, initial_state)[1]


def undecayed_first(q: Array, k: Array, v: Array, g: Array, initial_state: Array) -> tuple[Array, Array]:
    return gated(q, k, v, zeroed(g, 0), initial_state)


def undecayed_last(q: Array, k: Array, v: Array, g: Array, initial_state: Array) -> tuple[Array, Array]:
    return gated(q, k, v, g, initial_state)[0], gated(q, k, v, zeroed(g, -1), initial_state)[1]


def transposed(q: Array, k: Array, v: Array, g: Array, initial_state: Array) -> tuple[Array, Array]:
    square = initial_state.shape[-1] == initial_state.shape[-2]
    return gated(q, k, v, g, initial_state.swapaxes(-1, -2) if square else initial_state)


def returned_transposed(q: Array, k: Array, v: Array, g: Array, initial_state: Array) -> tuple[Array, Array]:
    output, state = gated(q, k, v, g, initial_state)
    return output, state.swapaxes(-1, -2).copy() if state.shape[-1] == state.shape[-2] else state


WRONG = [
    (lost, "the initial state is left out"),
    (lost_at_the_end, "the initial state is left out of the final state"),
    (undecayed_first, "handed over undecayed: the first token's gate"),
    (undecayed_last, "handed over undecayed by the last token's gate"),
    (transposed, "the initial state is read transposed"),
    (returned_transposed, "the final state is returned transposed"),
]


@pytest.mark.deep
@pytest.mark.parametrize(("run", "cause"), WRONG)
def test_wrong_states_are_named(run: Callable[..., Any], cause: str) -> None:
    result = verify(run, GATED, layout="bhnd", examples=10)
    assert cause in " ".join(str(result).split())
