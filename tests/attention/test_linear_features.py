"""Feature maps are what they say, number by number, and make linear attention of it."""

from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest

from symattn.arrays import kind
from symattn.arrays.namespace import namespace_of
from symattn.attention import linear
from symattn.attention.layers.steps import identity
from symattn.attention.softmax import powers, softmax
from symattn.document.errors import Undecided
from tests.attention.streaming_tools import EXACT, drawn, exactly, legal, proved

DATA = drawn(61, q=(4, 2), k=(4, 2), v=(4, 3))
W = drawn(62, w=(4, 2))["w"]


def number(function: Any, x: Any) -> Any:
    """``function`` of each number alone, on arrays of exact numbers."""
    return type(x)(np.frompyfunc(function, 1, 1)(x.entries))


ENTRIES = {
    "identity": (identity, lambda x: x),
    "elu + 1": (linear.elu_plus_one, lambda x: x + 1 if x > 0 else x.exp()),
    "relu": (linear.relu, lambda x: x if x > 0 else 0 * x),
    "exponential": (powers, lambda x: x.exp()),
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
    got = linear.positive_random(EXACT.lift(DATA["q"]), EXACT.lift(W))
    assert got.shape == (4, 4)
    for a, b in zip(got.entries.flat, np.array(wanted, dtype=object).flat, strict=True):
        assert abs(mpmath.mpf(a.decimal(25)) / b - 1) < 1e-20
    assert (got > 0).all()
    assert legal(lambda q, k, v: linear.positive_random(q, namespace_of(q).asarray(W, dtype=q.dtype)), DATA)


def features(x: Any, shift: Any = 0) -> Any:
    return linear.positive_random(x, namespace_of(x).asarray(W, dtype=x.dtype), shift)


def test_a_shift_of_features_cancels() -> None:
    """One for all keys, and one for each query."""

    def plain(q: Any, k: Any, v: Any) -> Any:
        return linear.linear_attention(features(q), features(k), v)

    def shifted(q: Any, k: Any, v: Any) -> Any:
        return linear.linear_attention(features(q, q[:, :1]), features(k, 3), v)

    def each_key(q: Any, k: Any, v: Any) -> Any:
        return linear.linear_attention(features(q), features(k, k[:, :1]), v)

    assert exactly(shifted, plain, DATA)
    assert not exactly(each_key, plain, DATA)


def test_many_directions_come_near_softmax() -> None:
    """The mean over directions of N(0, I); without ‖x‖²/2 it comes near something else."""
    draw = np.random.default_rng(0)
    q, k, v = (draw.normal(size=shape) / 2 for shape in ((4, 3), (5, 3), (5, 2)))
    wanted = softmax(q @ k.T) @ v
    errors = [
        np.abs(linear.linear_attention(linear.positive_random(q, w), linear.positive_random(k, w), v) - wanted).max()
        for w in (draw.normal(size=(m, 3)) for m in (100, 100_000))
    ]
    assert errors[1] < 5e-3 < errors[0]
    w = draw.normal(size=(100_000, 3))
    assert np.abs(linear.linear_attention(np.exp(q @ w.T), np.exp(k @ w.T), v) - wanted).max() > 5e-3


@pytest.mark.parametrize("feature", [linear.elu_plus_one, powers, features])
def test_features_by_chunks_are_causal_linear_attention(feature: Any) -> None:
    def products(q: Any, k: Any, v: Any) -> Any:
        return linear.scan(linear.gated_chunk, linear.empty_state(k, v), (0, 1, 3, 4), q, k, v).output

    def chunked(q: Any, k: Any, v: Any) -> Any:
        return linear.normalised(products, feature(q), feature(k), v)

    def by_loops(q: Any, k: Any, v: Any) -> Any:
        a, b, rows = feature(q), feature(k), []
        for i in range(4):
            weights = [(a[i] * b[j]).sum() for j in range(i + 1)]
            total = sum(weights[1:], weights[0])
            rows.append(sum((x / total * v[j] for j, x in enumerate(weights)), 0 * v[0]))
        return namespace_of(v).stack(rows)

    assert exactly(chunked, by_loops, DATA)
    assert exactly(lambda q, k, v: linear.causal_linear_attention(feature(q), feature(k), v), by_loops, DATA)
    assert legal(chunked, DATA)
    assert not exactly(lambda q, k, v: linear.linear_attention(feature(q), feature(k), v), by_loops, DATA)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_large_numbers_do_not_overflow(dtype: str) -> None:
    x = kind(dtype).lift([[-1000, 1000, 0]])
    assert (linear.elu_plus_one(x) == kind(dtype).lift([[0, 1001, 1]])).all()
    assert (linear.relu(x) == kind(dtype).lift([[0, 1000, 0]])).all()


def test_letters_have_no_sign() -> None:
    """Which branch is taken depends on the numbers: it is not guessed."""
    for feature in (linear.elu_plus_one, linear.relu):
        with pytest.raises(Undecided):
            proved(lambda x, size, f=feature: f(x), lambda x, size: x, {"x": "n f"})


def test_reassociated_for_all_sizes() -> None:
    shapes = {"q": "n d", "k": "m d", "v": "m w", "w": "f d"}

    def form(q: Any, k: Any, v: Any, w: Any, size: Any) -> Any:
        return linear.linear_attention(linear.positive_random(q, w), linear.positive_random(k, w), v)

    def definition(change: int, q: Any, k: Any, v: Any, w: Any, size: Any) -> Any:
        scores = linear.positive_random(q, w) @ (change * linear.positive_random(k, w)).mT
        return (scores @ v) / namespace_of(v).sum(scores, axis=-1, keepdims=True) * change

    assert proved(form, partial(definition, 1), shapes)
    assert not proved(form, partial(definition, 2), shapes)
