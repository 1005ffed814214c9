"""Feature maps of linear attention, number by number, and the delta rule: chunks give what single tokens give."""

from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest

from symattn import Undecided, functional, kind, streaming
from symattn.attention import linear
from tests.attention.definition import EXACT, drawn, exactly, legal, proved

N, BOUNDS = 5, (0, 1, 4, 5)
PLAIN = drawn(51, q=(N, 2), k=(N, 2), v=(N, 3), state=(2, 3)) | {"beta": abs(drawn(52, b=(N, 1))["b"]) / 2}
GATES = {"none": {}, "token": {"g": -abs(drawn(53, g=(N, 1))["g"])}, "feature": {"g": -abs(drawn(54, g=(N, 2))["g"])}}
GIVEN = {gates: PLAIN | given for gates, given in GATES.items()}


def by_loops(q: Any, k: Any, v: Any, state: Any, beta: Any, g: Any = None) -> Any:
    """The recurrence, number by number: what is read under the key is moved towards the value."""
    xp = q.__array_namespace__()
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
    return streaming.scan(step, state, bounds, q, k, v, beta, *([] if g is None else [g]))


STEPS, CHUNKS = partial(scanned, streaming.delta_token, range(N + 1)), partial(scanned, streaming.delta_chunk, BOUNDS)


@pytest.mark.parametrize("gates", GATES)
def test_every_form_is_the_recurrence(gates: str) -> None:
    given = GIVEN[gates]
    for form in (STEPS, CHUNKS, partial(scanned, streaming.delta_chunk, (0, N))):
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
    state, output = streaming.delta_chunk(EXACT.lift(PLAIN["state"]), k, k, v, EXACT.lift([[1]]))
    assert (output == v).all()
    assert (k @ state == v).all()
    assert not (streaming.delta_chunk(EXACT.lift(PLAIN["state"]), k, k, v, EXACT.lift([["1/2"]]))[1] == v).any()


# -- what is wrong ---------------------------------------------------------------------------------------------------
def undecayed_read(state: Any, q: Any, k: Any, v: Any, beta: Any, g: Any) -> tuple[Any, Any]:
    """What is stored is read before it decays."""
    state = linear.decayed(state, g) + beta * (k.mT @ (v - k @ state))
    return state, q @ state


def decayed_after(state: Any, q: Any, k: Any, v: Any, beta: Any, g: Any) -> tuple[Any, Any]:
    """The correction decays too."""
    state = linear.decayed(streaming.delta_step(state, k, v, beta), g)
    return state, q @ state


def chunk(change: Any, state: Any, q: Any, k: Any, v: Any, beta: Any, g: Any) -> tuple[Any, Any]:
    """``delta_chunk`` with some of its parts replaced."""
    xp, sums = g.__array_namespace__(), linear.gate_sums(g)
    parts = {"keys": k * xp.exp(sums), "sums": sums, "rate": beta, "state": state} | change(k, beta, sums, state)
    u = (
        linear.corrected(k, v, parts["rate"], parts["sums"])
        - linear.corrected(k, parts["keys"], beta, sums) @ parts["state"]
    )
    return linear.chunk_of_sums(state, q, k, u, sums, xp.sum(g, axis=-2, keepdims=True))


def undecayed_scores(state: Any, q: Any, k: Any, v: Any, beta: Any, g: Any) -> tuple[Any, Any]:
    """A chunk with (Q Kᵀ ⊙ M) U, M the causal mask: scores within the chunk do not decay."""
    xp, sums = g.__array_namespace__(), linear.gate_sums(g)
    u = linear.corrected(k, v, beta, sums) - linear.corrected(k, k * xp.exp(sums), beta, sums) @ state
    output = (q * xp.exp(sums)) @ state + linear.decayed_scores(q, k) @ u
    return streaming.delta_chunk(state, q, k, v, beta, g)[0], output


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
            state,
            q,
            k,
            b * (v - k @ state),
            linear.gate_sums(d),
            d.__array_namespace__().sum(d, axis=-2, keepdims=True),
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
        return scanned(streaming.delta_token, range(4), q, k, v, state, beta, g)

    def one(q: Any, k: Any, v: Any, state: Any, beta: Any, size: Any, g: Any = None) -> Any:
        return streaming.delta_chunk(state, q, k, v, beta, g)

    def uncorrected(q: Any, k: Any, v: Any, state: Any, beta: Any, size: Any, g: Any = None) -> Any:
        return scanned(
            lambda s, *x: streaming.delta_token(s, *x[:3], 2 * x[3], *x[4:]), range(4), q, k, v, state, beta, g
        )

    assert proved(tokens, one, shapes)
    assert not proved(uncorrected, one, shapes)


DATA = drawn(61, q=(4, 2), k=(4, 2), v=(4, 3))
W = drawn(62, w=(4, 2))["w"]


def number(function: Any, x: Any) -> Any:
    """``function`` of each number alone, on arrays of exact numbers."""
    return type(x)(np.frompyfunc(function, 1, 1)(x.entries))


ENTRIES = {
    "identity": (lambda x: x, lambda x: x),
    "elu + 1": (streaming.elu_plus_one, lambda x: x + 1 if x > 0 else x.exp()),
    "relu": (streaming.relu, lambda x: x if x > 0 else 0 * x),
    "exponential": (functional.powers, lambda x: x.exp()),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_feature_of_each_number(name: str) -> None:
    feature, wanted = ENTRIES[name]
    x = EXACT.lift(DATA["q"])
    assert all((y > 0).any() for y in (x, -x))  # numbers on both sides of 0
    assert (feature(x) == number(wanted, x)).all()
    others = [f for n, (f, _) in ENTRIES.items() if n != name]
    assert not any((other(x) == number(wanted, x)).all() for other in others)
    assert legal(lambda q, k, v: feature(q), DATA)


def test_positive_random_features() -> None:
    """Row by row in 30 digits, and in exact numbers with four directions, of which the root is 2."""
    with mpmath.workdps(30):
        wanted = [
            [mpmath.exp(mpmath.fdot(w, x) - mpmath.fdot(x, x) / 2) / 2 for w in W.tolist()] for x in DATA["q"].tolist()
        ]
    got = streaming.positive_random(EXACT.lift(DATA["q"]), EXACT.lift(W))
    assert got.shape == (4, 4)
    for a, b in zip(got.entries.flat, np.array(wanted, dtype=object).flat, strict=True):
        assert abs(mpmath.mpf(a.decimal(25)) / b - 1) < 1e-20
    assert (got > 0).all()
    assert legal(lambda q, k, v: streaming.positive_random(q, q.__array_namespace__().asarray(W, dtype=q.dtype)), DATA)


def features(x: Any, shift: Any = 0) -> Any:
    return streaming.positive_random(x, x.__array_namespace__().asarray(W, dtype=x.dtype), shift)


def test_a_shift_of_features_cancels() -> None:
    """One for all keys, and one for each query."""

    def plain(q: Any, k: Any, v: Any) -> Any:
        return streaming.linear_attention(features(q), features(k), v)

    def shifted(q: Any, k: Any, v: Any) -> Any:
        return streaming.linear_attention(features(q, q[:, :1]), features(k, 3), v)

    def each_key(q: Any, k: Any, v: Any) -> Any:
        return streaming.linear_attention(features(q), features(k, k[:, :1]), v)

    assert exactly(shifted, plain, DATA)
    assert not exactly(each_key, plain, DATA)


def test_many_directions_come_near_softmax() -> None:
    """The mean over directions of N(0, I); without ‖x‖²/2 it comes near something else."""
    draw = np.random.default_rng(0)
    q, k, v = (draw.normal(size=shape) / 2 for shape in ((4, 3), (5, 3), (5, 2)))
    wanted = functional.softmax(q @ k.T) @ v
    errors = [
        np.abs(
            streaming.linear_attention(streaming.positive_random(q, w), streaming.positive_random(k, w), v) - wanted
        ).max()
        for w in (draw.normal(size=(m, 3)) for m in (100, 100_000))
    ]
    assert errors[1] < 5e-3 < errors[0]
    w = draw.normal(size=(100_000, 3))
    assert np.abs(streaming.linear_attention(np.exp(q @ w.T), np.exp(k @ w.T), v) - wanted).max() > 5e-3


@pytest.mark.parametrize("feature", [streaming.elu_plus_one, functional.powers, features])
def test_features_by_chunks_are_causal_linear_attention(feature: Any) -> None:
    def products(q: Any, k: Any, v: Any) -> Any:
        return streaming.scan(streaming.gated_chunk, streaming.empty_state(k, v), (0, 1, 3, 4), q, k, v).output

    def chunked(q: Any, k: Any, v: Any) -> Any:
        return linear.normalised(products, feature(q), feature(k), v)

    def by_loops(q: Any, k: Any, v: Any) -> Any:
        a, b, rows = feature(q), feature(k), []
        for i in range(4):
            weights = [(a[i] * b[j]).sum() for j in range(i + 1)]
            total = sum(weights[1:], weights[0])
            rows.append(sum((x / total * v[j] for j, x in enumerate(weights)), 0 * v[0]))
        return v.__array_namespace__().stack(rows)

    assert exactly(chunked, by_loops, DATA)
    assert exactly(lambda q, k, v: streaming.causal_linear_attention(feature(q), feature(k), v), by_loops, DATA)
    assert legal(chunked, DATA)
    assert not exactly(lambda q, k, v: streaming.linear_attention(feature(q), feature(k), v), by_loops, DATA)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_large_numbers_do_not_overflow(dtype: str) -> None:
    x = kind(dtype).lift([[-1000, 1000, 0]])
    assert (streaming.elu_plus_one(x) == kind(dtype).lift([[0, 1001, 1]])).all()
    assert (streaming.relu(x) == kind(dtype).lift([[0, 1000, 0]])).all()


def test_letters_have_no_sign() -> None:
    """Which branch is taken depends on the numbers: it is not guessed."""
    for feature in (streaming.elu_plus_one, streaming.relu):
        with pytest.raises(Undecided):
            proved(lambda x, size, f=feature: f(x), lambda x, size: x, {"x": "n f"})


def test_reassociated_for_all_sizes() -> None:
    shapes = {"q": "n d", "k": "m d", "v": "m w", "w": "f d"}

    def form(q: Any, k: Any, v: Any, w: Any, size: Any) -> Any:
        return streaming.linear_attention(streaming.positive_random(q, w), streaming.positive_random(k, w), v)

    def definition(change: int, q: Any, k: Any, v: Any, w: Any, size: Any) -> Any:
        scores = streaming.positive_random(q, w) @ (change * streaming.positive_random(k, w)).mT
        return (scores @ v) / v.__array_namespace__().sum(scores, axis=-1, keepdims=True) * change

    assert proved(form, partial(definition, 1), shapes)
    assert not proved(form, partial(definition, 2), shapes)
