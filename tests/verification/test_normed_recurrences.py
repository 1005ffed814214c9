"""Norms of queries and keys of recurrences: layers of public models pass, wrong norms are found and named."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import InputError, LinearAttention, Precision, Verdict, verify
from symattn.arrays.formats import Format
from symattn.bounds import linear_forms
from symattn.bounds.recurrent.recurrent_arithmetic import of_precision
from symattn.bounds.recurrent.recurrent_limits import exact_values, limits
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options, verified
from symattn.testing import AttentionFault, assert_close_to_exact
from symattn.verification.definitions.recurrent_law import recurrences
from tests.verification import recurrent_layers as layers

Array = Any
GATED = LinearAttention.named("gated-deltanet")


def drawn(n: int, d: int, gate: str | None, size: float = 1.0) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    result = {name: size * rng.standard_normal((n, d)) for name in "qkv"}
    result["beta"] = 2 / (1 + np.exp(-rng.standard_normal(n)))
    if gate:
        result["g"] = -0.1 * rng.gamma(1.0, size=(n, d) if gate == "feature" else n)
    return result


@pytest.mark.parametrize("name", ["deltanet", "gated-deltanet", "kda"])
def test_a_named_recurrence_is_that_of_a_layer(name: str) -> None:
    spec = LinearAttention.named(name)
    given = drawn(9, 4, spec.gate)
    right = layers.by_tokens(**{"g": None, **given})
    assert np.abs(spec(**given) - right).max() < 1e-14


def test_epsilon_belongs_to_a_norm() -> None:
    with pytest.raises(InputError, match="qk_norm='l2'"):
        LinearAttention(eps=1e-6)


# -- verify ------------------------------------------------------------------------------------------------------------
@pytest.mark.deep
@pytest.mark.parametrize("run", [layers.by_tokens, layers.by_chunks])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layers_of_public_models_are_no_fault(run: Callable[..., Array], dtype: str) -> None:
    def function(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Array:
        return run(q, k, v, g, beta)

    how = Options(verdict_alone=True, dtype=dtype, layout="bhnd", contract=None, examples=10)
    assert verified(function, GATED, how).verdict is Verdict.NO_FAULT


@pytest.mark.deep
def test_a_reservation_does_not_advise_the_contract_at_hand() -> None:
    def larger(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Array:
        rows = (x.astype(np.float32) for x in (q, k, v, g, beta))
        return (1.03 * layers.by_tokens(*rows)).astype(q.dtype)

    how = Options(verdict_alone=True, dtype="bfloat16", layout="bhnd", contract="fused", examples=10)
    (words,) = (x for x in verified(larger, GATED, how).reservations if "may go unnoticed" in x)
    assert "--contract" not in words


same: layers.Norm = lambda x: x  # noqa: E731
WRONG = {
    "keys are not normalised": {"k_norm": same},
    "queries are not normalised": {"q_norm": same},
    "queries and keys are not normalised": {"q_norm": same, "k_norm": same},
    "divides by the root of the mean square": {"q_norm": layers.rms, "k_norm": layers.rms},
    "the length is taken over the tokens": {"q_norm": layers.of_tokens, "k_norm": layers.of_tokens},
    "ε is the root": {"q_norm": partial(layers.l2, eps=1e-3), "k_norm": partial(layers.l2, eps=1e-3)},
}


@pytest.mark.deep
@pytest.mark.parametrize("cause", WRONG)
def test_wrong_norms_are_named(cause: str) -> None:
    def function(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Array:
        return layers.by_tokens(q, k, v, g, beta, **WRONG[cause])

    result = verify(function, GATED, layout="bhnd", examples=10)
    assert cause in " ".join(str(result).split())


# -- the law -----------------------------------------------------------------------------------------------------------
def in_format(dtype: str, x: Array) -> Array:
    return Format(dtype).cast(np.asarray(x, np.float32)).astype(np.float32)


def narrow_l2(dtype: str, x: Array) -> Array:
    """The norm with each step stored in a format."""
    store = partial(in_format, dtype)
    square = store(store(x * x).sum(-1, keepdims=True))
    return store(x * store(1 / np.sqrt(store(square + np.float32(layers.EPS)))))


@pytest.mark.parametrize("gate", ["token", "feature"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_norms_in_the_format_of_inputs_are_within_the_law(dtype: str, gate: str) -> None:
    spec = LinearAttention.named("kda" if gate == "feature" else "gated-deltanet")
    # Rows of small numbers show how ε and underflow are rounded.
    given = drawn(140, 12, gate, 2.0**-6)
    given = {name: in_format(dtype, a) if name in "qkv" else np.float32(a) for name, a in given.items()}
    norm = partial(narrow_l2, dtype)
    output = in_format(dtype, layers.by_tokens(**given, q_norm=norm, k_norm=norm))
    columns = {name: np.float64(a)[:, None] if np.ndim(a) == 1 else np.float64(a) for name, a in given.items()}
    precision = Precision.of(dtype, "fused")
    (of,) = recurrences(spec, columns, precision)
    for way in list(of_precision(precision, 140))[:2]:
        found = limits(of, way)
        assert found.sharp is None
        shares = np.abs(output - exact_values(of).output) / found.worst
        assert 0 < shares.max() < 0.5, way.words


def scaled_queries_of_one_token() -> tuple[dict[str, Array], Array]:
    """Return a token in float16 whose scaled query is mostly just above half the least number, and the output of a
    program that stores each step."""
    width = 128
    q, k = np.zeros((1, width)), np.zeros((1, width))
    q[0, 0], q[0, 1:], k[0, 1:] = 1, 1.02 * 2.0**-25 * np.sqrt(width), 1
    given = {name: in_format("float16", a) for name, a in zip("qkv", (q, k, [[3e4]]), strict=True)}
    queries = in_format("float16", narrow_l2("float16", given["q"]) * width**-0.5)
    score = (queries * narrow_l2("float16", given["k"])).sum()
    return {name: np.float64(a) for name, a in given.items()}, in_format("float16", score * given["v"])


NORMED = LinearAttention(feature="identity", normalised=False, scale=True, qk_norm="l2", eps=layers.EPS)


def test_scaled_queries_that_underflow_are_within_the_law() -> None:
    given, output = scaled_queries_of_one_token()
    precision = Precision.of("float16", "fused")
    (of,) = recurrences(NORMED, given, precision)
    error = np.abs(output - exact_values(of).output)
    assert error > 0.8 * exact_values(of).output
    assert all(error <= limits(of, way).worst for way in of_precision(precision, 1))


def test_scaled_queries_that_underflow_are_within_the_bound_of_other_forms() -> None:
    given, output = scaled_queries_of_one_token()
    form = next(definitions_of(NORMED)).other_forms
    assert form is not None
    (bound,) = form.bound({name: np.float16(a) for name, a in given.items()}, Precision.of("float16", "fused")) or [0]
    assert np.abs(output - NORMED(**given)) <= bound


def test_squares_that_underflow_are_within_the_error_of_norms() -> None:
    x = in_format("float16", np.full((1, 64), 1.7e-4))
    square = float((np.float64(x) ** 2).sum() + layers.EPS)
    right = np.float64(x) / np.sqrt(square)
    relative = linear_forms.error_of_norms(64, square, Precision.of("float16", "fused"))
    assert (np.abs(np.float64(narrow_l2("float16", x)) ** 2 - right**2) <= relative * right**2).all()


def test_squares_beyond_the_range_are_neither_right_nor_wrong() -> None:
    rows = [np.full((3, 128), 30, np.float16)] * 2 + [np.ones((3, 2), np.float16)]
    # Their sum is ∞ in float16, of which the reciprocal is 0.
    assert_close_to_exact(np.zeros((3, 2), np.float16), *rows, NORMED)
    with pytest.raises(AttentionFault):
        assert_close_to_exact(np.zeros((3, 2), np.float32), *map(np.float32, rows), NORMED)


def test_vectors_of_zeros_need_an_epsilon() -> None:
    rows = [np.ones((3, 2), np.float32), np.zeros((3, 2), np.float32), np.ones((3, 2), np.float32)]
    with pytest.raises(InputError, match="hint: the eps"):
        assert_close_to_exact(rows[0], *rows, replace(NORMED, eps=0))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_closeness_finds_wrong_norms(dtype: str) -> None:
    given = {name: np.float32(a) for name, a in drawn(100, 16, "token").items()}
    rest = {name: given[name] for name in ("g", "beta")}
    rows = [Format(dtype).cast(given[name]) for name in "qkv"]
    read = {name: np.asarray(a, np.float32) for name, a in zip("qkv", rows, strict=True)}

    def judge(**norms: layers.Norm) -> None:
        output = Format(dtype).cast(layers.by_tokens(**read, **rest, **norms))
        assert_close_to_exact(output, *rows, GATED, **rest)

    judge()
    for wrong in ({"q_norm": layers.rms}, {"q_norm": same}, {"q_norm": layers.of_tokens}):
        with pytest.raises(AttentionFault, match="beyond what any implementation"):
            judge(**wrong)
