"""Activations, norms, embeddings: against loops in fractions and mpmath, on every kind."""

import math
from fractions import Fraction
from typing import Any

import array_api_strict
import mpmath
import numpy as np
import pytest

from symattn import InputError, Refused, functional, kind, kinds, rounded
from symattn.attention.layers import steps
from tests.attention.by_loops import normed
from tests.attention.definition import nested
from tests.attention.transformer_loops import ACTIVATIONS

POINTS = [Fraction(n, 8) for n in (-40, -9, -3, -1, 0, 1, 5, 12, 33)]
RNG = np.random.default_rng(3)
mp: Any = mpmath


REFERENCE = ACTIVATIONS | {
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "tanh": lambda x: mp.tanh(x),
    "identity": lambda x: x,
}
EXACTLY = ("relu", "silu", "sigmoid", "tanh", "identity")


def expected(name: str, digits: int = 30) -> list[Any]:
    with mp.workdps(digits + 10):
        return [mp.mpf(REFERENCE[name](mp.mpf(x.numerator) / x.denominator)) for x in POINTS]


@pytest.mark.parametrize("name", steps.ACTIVATIONS)
def test_activations_in_balls(name: str) -> None:
    with kinds.precision(128):
        got = steps.ACTIVATIONS[name].run(kind("ball").lift(POINTS)).entries
    assert all(x.rad() < 2.0**-100 for x in got)
    with mp.workdps(40):
        assert all(
            abs(mp.mpf(x.mid().str(38, radius=False)) - y) < mp.mpf(10) ** -25
            for x, y in zip(got, expected(name), strict=True)
        )


@pytest.mark.parametrize("name", EXACTLY)
def test_activations_in_exact_numbers(name: str) -> None:
    got = steps.ACTIVATIONS[name].run(kind("exact").lift(POINTS)).entries
    assert [float(x.decimal(20)) for x in got] == [float(y) for y in expected(name)]


@pytest.mark.parametrize(("name", "why"), [("gelu", "erf"), ("gelu_tanh", "π")])
def test_what_leaves_the_decided_field_is_refused(name: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        steps.ACTIVATIONS[name].run(kind("exact").lift(POINTS))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("name", steps.ACTIVATIONS)
def test_activations_in_floats_lie_within_their_bound(name: str, dtype: str) -> None:
    x = kind(dtype).lift(np.array([float(p) for p in POINTS]))
    got = steps.ACTIVATIONS[name].run(x)
    assert got.dtype == x.dtype
    bound = steps.ACTIVATIONS[name].run(rounded(dtype).lift(x))
    assert bound.within(got).all()
    alike = {"gelu", "gelu_tanh"} if dtype == "float16" and "gelu" in name else {name}  # 5e-4 apart
    for other in set(steps.ACTIVATIONS) - alike:
        assert not bound.within(steps.ACTIVATIONS[other].run(x)).all(), other


def test_the_two_gelus_differ_and_by_little() -> None:
    x = np.linspace(-6, 6, 1001)
    assert 1e-4 < abs(steps.gelu(x) - steps.gelu_tanh(x)).max() < 1e-3


def test_gelu_on_numpy_without_erf_is_that_of_the_standard_library() -> None:
    x = RNG.normal(size=(3, 4))
    assert np.array_equal(steps.gelu(x), [[v / 2 * (1 + math.erf(v / math.sqrt(2))) for v in row] for row in x])
    strict = steps.gelu(array_api_strict.asarray(x))
    assert np.array_equal(np.from_dlpack(strict), steps.gelu(x))
    assert steps.gelu(x.astype(np.float16)).dtype == np.float16


def test_activations_on_letters() -> None:
    letters = kinds.Indexed.letters("x", "n", "d")
    for run in (steps.relu, steps.gelu, steps.sigmoid, steps.silu):
        assert run(letters).shape == letters.shape
    symbols = kind("symbolic").letters("x", 2)
    assert [str(e) for e in steps.silu(symbols).entries] == ["x_1/(1 + exp(-x_1))", "x_2/(1 + exp(-x_2))"]


# -- norms ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("eps", [0, Fraction(1, 10**5), 1e-3, Fraction(3)])
@pytest.mark.parametrize("given", ["", "gain", "bias", "gain bias"])
def test_norms_by_loops(centred: bool, eps: Any, given: str) -> None:
    rows = RNG.integers(-8, 9, (2, 3, 5)) / 4
    rows[..., 0] += 1 / 8
    gain, bias = RNG.integers(-8, 9, 5) / 4, RNG.integers(-8, 9, 5) / 4
    arrays = {"gain": gain, "bias": bias}
    norm = functional.layer_norm if centred else functional.rms_norm
    with kinds.precision(128):
        lift = kind("ball").lift
        got = norm(lift(rows), eps, **{n: lift(arrays[n]) for n in given.split()}).entries
    for index in np.ndindex(2, 3):
        with mp.workdps(40):
            more = [nested(arrays[n]) if n in given else None for n in ("gain", "bias")]
            wanted = normed("layer" if centred else "rms", nested(rows[index]), eps, *more)
            found = [mp.mpf(x.mid().str(38, radius=False)) for x in got[index]]
            assert all(abs(x - y) < mp.mpf(10) ** -30 for x, y in zip(found, wanted, strict=True))


def test_eps_stands_inside_the_root() -> None:
    x = kind("exact").lift([[3, 3]])
    assert str(functional.rms_norm(x, 7).entries[0, 0]) == "3/4"
    assert str(functional.layer_norm(kind("exact").lift([[1, -1]]), 3).entries[0, 0]) == "1/2"


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("norm", [functional.layer_norm, functional.rms_norm])
def test_norms_in_floats_lie_within_their_bound(norm: Any, dtype: str) -> None:
    rng = np.random.default_rng(3)  # its own: which entries are far from 0 must not hang on the tests that ran before
    x, gain = rng.normal(size=(4, 6)).astype(dtype), rng.normal(size=6).astype(dtype)
    lift = rounded(dtype).lift
    got = norm(x, Fraction(1, 10**5), gain)
    assert got.dtype == x.dtype
    bound = norm(lift(x), Fraction(1, 10**5), lift(gain))
    assert bound.within(got).all()
    assert not bound.within(norm(x, 1, gain)).all(axis=-1).any()
    outside = x / (np.sqrt((x * x).mean(-1, keepdims=True)) + 0.2) * gain
    assert not bound.within(outside).all(axis=-1).any()


# -- embeddings -------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["exact", "ball", "symbolic", "float32", "bfloat16"])
def test_embeddings_are_rows(name: str) -> None:
    table, ids = RNG.integers(-4, 5, (5, 3)) / 2, np.array([[4, 0, 0, 2], [1, 1, 3, 4]])
    lift = kind(name).lift
    got = steps.embed(lift(table), ids)
    assert got.shape == (2, 4, 3)
    assert bool((got == lift(table[ids])).all())
    assert bool((steps.embed(lift(table), ids[0]) == lift(table[ids[0]])).all())


def test_widened_embeddings_keep_their_root() -> None:
    assert str(steps.widen(kind("exact").lift([[1, 0, 0]])).entries[0, 0]) == "sqrt(3)"


def test_ids_out_of_range_are_an_error() -> None:
    with pytest.raises((IndexError, InputError)):
        steps.embed(np.zeros((3, 2)), np.array([3]))
