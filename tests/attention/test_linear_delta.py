"""The delta rule: chunks solve a triangular system and give what the tokens give one by one."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn.arrays.namespace import namespace_of
from symattn.attention import linear
from tests.attention.streaming_tools import EXACT, drawn, exactly, legal, proved

N, BOUNDS = 5, (0, 1, 4, 5)
PLAIN = drawn(51, q=(N, 2), k=(N, 2), v=(N, 3), state=(2, 3)) | {"beta": abs(drawn(52, b=(N, 1))["b"]) / 2}
GATES = {"none": {}, "token": {"g": -abs(drawn(53, g=(N, 1))["g"])}, "feature": {"g": -abs(drawn(54, g=(N, 2))["g"])}}
GIVEN = {gates: PLAIN | given for gates, given in GATES.items()}


def by_loops(q: Any, k: Any, v: Any, state: Any, beta: Any, g: Any = None) -> Any:
    """The recurrence, number by number: what is read under the key is moved towards the value."""
    xp = namespace_of(q)
    s = [[state[f, c] for c in range(3)] for f in range(2)]
    rows = []
    for t in range(N):
        if g is not None:
            s = [[xp.exp(g[t, f % g.shape[1]]) * s[f][c] for c in range(3)] for f in range(2)]
        read = [sum((k[t, f] * s[f][c] for f in range(2)), 0 * v[t, c]) for c in range(3)]
        s = [[s[f][c] + beta[t, 0] * k[t, f] * (v[t, c] - read[c]) for c in range(3)] for f in range(2)]
        rows.append(xp.stack([q[t, 0] * s[0][c] + q[t, 1] * s[1][c] for c in range(3)]))
    return xp.stack([xp.stack(row) for row in s]), xp.stack(rows)


def scanned(step: Any, bounds: Any, q: Any, k: Any, v: Any, state: Any, beta: Any, g: Any = None) -> Any:
    return linear.scan(step, state, bounds, q, k, v, beta, *([] if g is None else [g]))


STEPS, CHUNKS = partial(scanned, linear.delta_token, range(N + 1)), partial(scanned, linear.delta_chunk, BOUNDS)


@pytest.mark.parametrize("gates", GATES)
def test_every_form_is_the_recurrence(gates: str) -> None:
    given = GIVEN[gates]
    for form in (STEPS, CHUNKS, partial(scanned, linear.delta_chunk, (0, N))):
        assert exactly(form, by_loops, given)
    assert legal(STEPS, given)
    assert legal(CHUNKS, given)


def test_batches_and_heads() -> None:
    given = drawn(55, q=(2, 3, N, 2), k=(2, 3, N, 2), v=(2, 3, N, 3), state=(2, 3, 2, 3), beta=(2, 3, N, 1))
    got = CHUNKS(**given)
    for place in np.ndindex(2, 3):
        wanted = by_loops(**{n: x[place] for n, x in given.items()})
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a[place], b, rtol=1e-10, atol=1e-10)


def test_a_chunk_solves_its_triangular_system() -> None:
    """(I + L) Y = diag(β) X, and no other Y; L is below the diagonal."""
    k, beta, x, g = (EXACT.lift(a) for a in (PLAIN["k"], PLAIN["beta"], PLAIN["v"], GATES["token"]["g"]))
    sums = linear.gate_sums(g)
    y = linear.corrected(k, x, beta, sums)
    below = beta * linear.decayed_scores(k, k, sums, itself=False)
    assert (y + below @ y == beta * x).all()
    assert not (below == 0).all()
    assert (EXACT.xp.where(np.tri(N, N, -1) > 0, 0, below) == 0).all()
    assert not (linear.corrected(k, x, beta) == y).all()


def test_unit_keys_and_full_rates_replace_what_is_stored() -> None:
    k, v = EXACT.lift([["3/5", "4/5"]]), EXACT.lift(PLAIN["v"][:1])
    state, output = linear.delta_chunk(EXACT.lift(PLAIN["state"]), k, k, v, EXACT.lift([[1]]))
    assert (output == v).all()
    assert (k @ state == v).all()
    assert not (linear.delta_chunk(EXACT.lift(PLAIN["state"]), k, k, v, EXACT.lift([["1/2"]]))[1] == v).any()


# -- what is wrong ---------------------------------------------------------------------------------------------------
def undecayed_read(state: Any, q: Any, k: Any, v: Any, beta: Any, g: Any) -> tuple[Any, Any]:
    """What is stored is read before it decays."""
    state = linear.decayed(state, g) + beta * (k.mT @ (v - k @ state))
    return state, q @ state


def decayed_after(state: Any, q: Any, k: Any, v: Any, beta: Any, g: Any) -> tuple[Any, Any]:
    """The correction decays too."""
    state = linear.decayed(linear.delta_step(state, k, v, beta), g)
    return state, q @ state


def chunk(change: Any, state: Any, q: Any, k: Any, v: Any, beta: Any, g: Any) -> tuple[Any, Any]:
    """``delta_chunk`` with some of its parts replaced."""
    xp, sums = namespace_of(g), linear.gate_sums(g)
    parts = {"keys": k * xp.exp(sums), "sums": sums, "rate": beta, "state": state} | change(k, beta, sums, state)
    u = (
        linear.corrected(k, v, parts["rate"], parts["sums"])
        - linear.corrected(k, parts["keys"], beta, sums) @ parts["state"]
    )
    return linear.chunk_of_sums(state, q, k, u, sums, xp.sum(g, axis=-2, keepdims=True))


def undecayed_scores(state: Any, q: Any, k: Any, v: Any, beta: Any, g: Any) -> tuple[Any, Any]:
    """A chunk with (Q Kᵀ ⊙ M) U, M the causal mask: scores within the chunk do not decay."""
    xp, sums = namespace_of(g), linear.gate_sums(g)
    u = linear.corrected(k, v, beta, sums) - linear.corrected(k, k * xp.exp(sums), beta, sums) @ state
    output = (q * xp.exp(sums)) @ state + linear.decayed_scores(q, k) @ u
    return linear.delta_chunk(state, q, k, v, beta, g)[0], output


def test_the_chunk_that_is_changed_is_right_unchanged() -> None:
    same = partial(scanned, partial(chunk, lambda *_: {}), BOUNDS)
    assert exactly(same, CHUNKS, PLAIN | GATES["token"])


FALSE = {
    "no decay": lambda g, **given: CHUNKS(**given),
    "read before the decay": partial(scanned, undecayed_read, range(N + 1)),
    "the correction decays": partial(scanned, decayed_after, range(N + 1)),
    "no rate": lambda beta, **given: CHUNKS(beta=0 * beta + 1, **given),
    "the state is not read": partial(
        scanned, partial(chunk, lambda k, beta, sums, state: {"state": 0 * state}), BOUNDS
    ),
    "keys without the decay of the state": partial(
        scanned, partial(chunk, lambda k, beta, sums, state: {"keys": k}), BOUNDS
    ),
    "no decay between tokens of a chunk": partial(
        scanned, partial(chunk, lambda k, beta, sums, state: {"sums": 0 * sums}), BOUNDS
    ),
    "scores within a chunk do not decay": partial(scanned, undecayed_scores, BOUNDS),
    "values not corrected by one another": lambda beta, g, **given: scanned(
        lambda state, q, k, v, b, d: linear.chunk_of_sums(
            state, q, k, b * (v - k @ state), linear.gate_sums(d), namespace_of(d).sum(d, axis=-2, keepdims=True)
        ),
        BOUNDS,
        beta=beta,
        g=g,
        **given,
    ),
}


@pytest.mark.parametrize("gates", ["token", "feature"])
@pytest.mark.parametrize("name", FALSE)
def test_a_wrong_form_is_refused(name: str, gates: str) -> None:
    given = GIVEN[gates]
    assert not exactly(FALSE[name], STEPS, given)
    assert not legal(FALSE[name], given, bounded_by=STEPS)


# -- all sizes -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("features", ["", "f"])
def test_chunks_of_three_tokens_for_all_sizes_of_keys_and_values(features: str) -> None:
    """Three tokens hold every kind of term: the state, and one and two corrections before."""
    n = "1+1+1"
    shapes = {"q": f"{n} f", "k": f"{n} f", "v": f"{n} w", "beta": f"{n} 1", "state": "f w"}
    if features:
        shapes["g"] = f"{n} {features}"

    def tokens(q: Any, k: Any, v: Any, state: Any, beta: Any, size: Any, g: Any = None) -> Any:
        return scanned(linear.delta_token, range(4), q, k, v, state, beta, g)

    def one(q: Any, k: Any, v: Any, state: Any, beta: Any, size: Any, g: Any = None) -> Any:
        return linear.delta_chunk(state, q, k, v, beta, g)

    def uncorrected(q: Any, k: Any, v: Any, state: Any, beta: Any, size: Any, g: Any = None) -> Any:
        return scanned(lambda s, *x: linear.delta_token(s, *x[:3], 2 * x[3], *x[4:]), range(4), q, k, v, state, beta, g)

    assert proved(tokens, one, shapes)
    assert not proved(uncorrected, one, shapes)
