"""Linear attention with gates: all pairs of tokens, token by token and by chunks are one function."""

from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from symattn import streaming
from symattn.attention import linear
from tests.attention.definition import EXACT, drawn, exactly, legal, proved

N, BOUNDS = 6, (0, 2, 5, 6)
PLAIN = drawn(41, q=(N, 2), k=(N, 2), v=(N, 3), state=(2, 3))
GATES = {"none": {}, "token": {"g": -abs(drawn(42, g=(N, 1))["g"])}, "feature": {"g": -abs(drawn(43, g=(N, 2))["g"])}}


@cache
def data(gates: str, *without: str) -> dict[str, np.ndarray]:
    return {name: x for name, x in (PLAIN | GATES[gates]).items() if name not in without}


def by_loops(q: Any, k: Any, v: Any, state: Any = None, g: Any = None) -> Any:
    """Each output by loops over the tokens before, and the features, every gate on the way written out."""
    xp = q.__array_namespace__()
    rows = []
    for i in range(N):
        row = 0 * v[:1]
        for j in range(-1, i + 1):
            if j < 0 and state is None:
                continue
            for f in range(2):
                way = q[i, f]
                for t in range(j + 1, i + 1):
                    way = way if g is None else way * xp.exp(g[t, f % g.shape[1]])
                row = row + way * (state[f : f + 1] if j < 0 else k[j, f] * v[j : j + 1])
        rows.append(row)
    return xp.concat(rows, axis=0)


def scanned(step: Any, bounds: Any, q: Any, k: Any, v: Any, state: Any = None, g: Any = None) -> Any:
    start = streaming.empty_state(k, v) if state is None else state
    return streaming.scan(step, start, bounds, q, k, v, *([] if g is None else [g]))


STEPS, CHUNKS = partial(scanned, streaming.gated_step, range(N + 1)), partial(scanned, streaming.gated_chunk, BOUNDS)


@pytest.mark.parametrize("gates", GATES)
def test_every_form_is_the_sum_over_earlier_tokens(gates: str) -> None:
    given = data(gates, "state")
    for form in (streaming.gated_products, lambda **x: STEPS(**x).output, lambda **x: CHUNKS(**x).output):
        assert exactly(form, by_loops, given)
        assert legal(form, given)


@pytest.mark.parametrize("gates", GATES)
def test_a_state_goes_on(gates: str) -> None:
    """From a state that is there, and in two calls: as in generation after a prompt."""
    given = data(gates)
    for form in (STEPS, CHUNKS, partial(scanned, streaming.gated_chunk, (0, N))):
        assert exactly(lambda f=form, **x: f(**x).output, by_loops, given)
        assert exactly(form, STEPS, given)
    assert legal(CHUNKS, given)

    def in_two(state: Any, **tokens: Any) -> Any:
        first = scanned(streaming.gated_chunk, (0, 1, 4), state=state, **{n: x[:4] for n, x in tokens.items()})
        last = scanned(streaming.gated_step, range(3), state=first.state, **{n: x[4:] for n, x in tokens.items()})
        return last.state, state.__array_namespace__().concat([first.output, last.output], axis=0)

    assert exactly(in_two, STEPS, given)


def test_without_gates_it_is_causal_linear_attention() -> None:
    given = data("none", "state")
    assert exactly(streaming.gated_products, streaming.causal_products, given)
    features = {name: x * x + 1 if name in "qk" else x for name, x in given.items()}
    for form in (streaming.gated_products, lambda q, k, v: CHUNKS(q, k, v).output):
        assert exactly(partial(linear.normalised, form), streaming.causal_linear_attention, features)
    assert not exactly(partial(linear.normalised, by_loops), by_loops, features)


def test_batches_and_heads() -> None:
    given = drawn(44, q=(2, 3, N, 2), k=(2, 3, N, 2), v=(2, 3, N, 3), g=(2, 3, N, 1))
    got = streaming.scan(streaming.gated_chunk, streaming.empty_state(given["k"], given["v"]), BOUNDS, *given.values())
    for place in np.ndindex(2, 3):
        np.testing.assert_allclose(got.output[place], by_loops(**{n: x[place] for n, x in given.items()}), rtol=1e-12)


# -- what is wrong ---------------------------------------------------------------------------------------------------
def late_decay(state: Any, q: Any, k: Any, v: Any, g: Any) -> tuple[Any, Any]:
    """The new token decays too."""
    state = linear.decayed(state + k.mT @ v, g)
    return state, q @ state


def state_kept(state: Any, q: Any, k: Any, v: Any, g: Any) -> tuple[Any, Any]:
    """A chunk whose state does not decay."""
    return state + streaming.gated_chunk(0 * state, q, k, v, g)[0], streaming.gated_chunk(state, q, k, v, g)[1]


def undecayed_keys(state: Any, q: Any, k: Any, v: Any, g: Any) -> tuple[Any, Any]:
    """A chunk whose own keys enter the state undecayed."""
    xp = g.__array_namespace__()
    return linear.decayed(state, xp.sum(g, axis=-2, keepdims=True)) + k.mT @ v, streaming.gated_chunk(
        state, q, k, v, g
    )[1]


FALSE = {
    "no decay": lambda q, k, v, state, g: CHUNKS(q, k, v, state),
    "the new token decays": partial(scanned, late_decay, range(N + 1)),
    "the state does not decay": partial(scanned, state_kept, BOUNDS),
    "keys of a chunk do not decay": partial(scanned, undecayed_keys, BOUNDS),
    "a chunk begins late": lambda q, k, v, state, g: scanned(
        streaming.gated_chunk,
        (0, 1, 4, 5),
        *(q.__array_namespace__().concat([x[:2], x[3:]], axis=0) for x in (q, k, v)),
        state,
        g[:5],
    ),
    "gates one token early": lambda q, k, v, state, g: CHUNKS(
        q, k, v, state, g.__array_namespace__().concat([g[1:], g[:1]], axis=0)
    ),
}


@pytest.mark.parametrize("gates", ["token", "feature"])
@pytest.mark.parametrize("name", FALSE)
def test_a_wrong_form_is_refused(name: str, gates: str) -> None:
    given = data(gates)
    if name != "a chunk begins late":
        assert not exactly(FALSE[name], STEPS, given)
        assert not legal(FALSE[name], given, bounded_by=STEPS)
    else:
        lifted = {n: EXACT.lift(x) for n, x in given.items()}
        assert not (FALSE[name](**lifted).state == STEPS(**lifted).state).all()


# -- gates -----------------------------------------------------------------------------------------------------------
def _constant(gamma: Fraction) -> Any:
    """log γ for each of N tokens. Source: Sun et al. (2023)."""
    return EXACT.xp.broadcast_to(EXACT.xp.log(EXACT.lift([[gamma]])), (N, 1))


def test_retention_decays_by_powers() -> None:
    """o_i = Σ_{j ≤ i} γ^{i − j} (q_i · k_j) v_j, in exact numbers: log γ is a logarithm that waits."""
    gamma = Fraction(3, 4)
    q, k, v = (EXACT.lift(PLAIN[name]) for name in "qkv")
    powers = np.array([[gamma ** max(i - j, 0) * (j <= i) for j in range(N)] for i in range(N)], dtype=object)
    wanted = (q @ k.mT * EXACT.lift(powers)) @ v
    gates = _constant(gamma)
    assert gates.shape == (N, 1)
    for found in (
        streaming.gated_products(q, k, v, gates),
        CHUNKS(q, k, v, g=gates).output,
        STEPS(q, k, v, g=gates).output,
    ):
        assert (found == wanted).all()
    assert not (streaming.gated_products(q, k, v, _constant(gamma / 2)) == wanted).all()


def test_a_selective_state_space_by_its_recurrence() -> None:
    """h_t = e^{Δ_t A} h_{t−1} + Δ_t B_tᵀ x_t, y_t = C_t h_t."""
    given = drawn(45, x=(N, 3), b=(N, 2), c=(N, 2)) | {"delta": abs(drawn(46, delta=(N, 1))["delta"])}
    given["a"] = np.array([[-0.5]])

    def by_recurrence(x: Any, delta: Any, a: Any, b: Any, c: Any) -> Any:
        xp, h, rows = x.__array_namespace__(), None, []
        for t in range(N):
            new = delta[t] * b[t][:, None] * x[t][None, :]
            h = new if h is None else xp.exp(delta[t] * a[0]) * h + new
            rows.append(c[t : t + 1] @ h)
        return xp.concat(rows, axis=0)

    def form(x: Any, delta: Any, a: Any, b: Any, c: Any) -> Any:
        return CHUNKS(c, b, delta * x, g=delta * a).output  # Dao, Gu (2024), §7: q = C, k = B, v = Δ x, g = Δ A

    assert exactly(form, by_recurrence, given)
    assert legal(form, given)
    assert not exactly(lambda **arrays: form(**{**arrays, "delta": 0 * arrays["delta"] + 1}), by_recurrence, given)


def test_strong_gates_do_not_overflow() -> None:
    """Gates of −200 for each token: what is masked would be e^{+1000}, and is not computed."""
    q, k, v = (PLAIN[name].astype(np.float32) for name in "qkv")
    g = np.full((N, 1), -200, dtype=np.float32)
    for found in (streaming.gated_products(q, k, v, g), CHUNKS(q, k, v, g=g).output, STEPS(q, k, v, g=g).output):
        np.testing.assert_allclose(found, (q * k).sum(axis=1, keepdims=True) * v, rtol=1e-6)


# -- all sizes -------------------------------------------------------------------------------------------------------
CHUNKED = {"q": "a+b f", "k": "a+b f", "v": "a+b w", "state": "f w"}


def two_chunks(q: Any, k: Any, v: Any, state: Any, size: Any) -> Any:
    a, b = size["a"], size["b"]
    return streaming.scan(streaming.gated_chunk, state, (0, a, a + b), q, k, v)


def one_chunk(q: Any, k: Any, v: Any, state: Any, size: Any) -> Any:
    return streaming.gated_chunk(state, q, k, v)


def forgetful(q: Any, k: Any, v: Any, state: Any, size: Any) -> Any:
    a = size["a"]
    first = streaming.gated_chunk(state, q[:a], k[:a], v[:a])[1]
    last, output = streaming.gated_chunk(state, q[a:], k[a:], v[a:])
    return last, q.__array_namespace__().concat([first, output], axis=0)


def test_two_chunks_are_one_for_all_sizes() -> None:
    """With chunks of one token, by induction: the recurrence is the sum over pairs of tokens."""
    assert proved(two_chunks, one_chunk, CHUNKED)
    assert not proved(forgetful, one_chunk, CHUNKED)


def _gated(features: str) -> dict[str, str]:
    """The sums of gates within each chunk, and their last ones."""
    return CHUNKED | {"x": f"a {features}", "y": f"b {features}", "last": f"1 {features}", "end": f"1 {features}"}


def two_gated(q: Any, k: Any, v: Any, state: Any, x: Any, y: Any, last: Any, end: Any, size: Any) -> Any:
    a = size["a"]
    state, first = linear.chunk_of_sums(state, q[:a], k[:a], v[:a], x, last)
    state, second = linear.chunk_of_sums(state, q[a:], k[a:], v[a:], y, end)
    return state, q.__array_namespace__().concat([first, second], axis=0)


def one_gated(q: Any, k: Any, v: Any, state: Any, x: Any, y: Any, last: Any, end: Any, size: Any) -> Any:
    return linear.chunk_of_sums(state, q, k, v, q.__array_namespace__().concat([x, last + y], axis=0), last + end)


def not_counted_on(q: Any, k: Any, v: Any, state: Any, x: Any, y: Any, last: Any, end: Any, size: Any) -> Any:
    """The sums of the second chunk begin anew."""
    return linear.chunk_of_sums(state, q, k, v, q.__array_namespace__().concat([x, y], axis=0), last + end)


@pytest.mark.parametrize("features", ["1", "f"])
def test_two_gated_chunks_are_one_for_all_sizes(features: str) -> None:
    assert proved(two_gated, one_gated, _gated(features))
    assert not proved(two_gated, not_counted_on, _gated(features))


@pytest.mark.parametrize("features", ["1", "f"])
def test_a_chunk_of_one_token_is_a_step_for_all_sizes(features: str) -> None:
    shapes = {"q": "1 f", "k": "1 f", "v": "1 w", "state": "f w", "g": f"1 {features}"}

    def step(q: Any, k: Any, v: Any, state: Any, g: Any, size: Any) -> Any:
        return streaming.gated_step(state, q, k, v, g)

    def chunk(q: Any, k: Any, v: Any, state: Any, g: Any, size: Any) -> Any:
        return streaming.gated_chunk(state, q, k, v, g)

    assert proved(chunk, step, shapes)
    assert not proved(chunk, lambda size, state, **x: late_decay(state, **x), shapes)
