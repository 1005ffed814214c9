"""The delta rule and gates in the forms in which code computes them: never refused, and wrong ones found."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from symattn import Domain, LinearAttention, Precision, Verdict, verify
from symattn.bounds.linear_forms import LinearTerms, _largest_product, _largest_product_of_chunks, allowed
from symattn.programs.verifying import Options
from symattn.verification.semantics import IdentityResult
from tests.verification.naming import convicts

DELTA = LinearAttention(feature="identity", delta=True, normalised=False)
GATED = LinearAttention(feature="identity", gate="token", normalised=False)
Array = Any


def _system(k: Array, beta: Array) -> Array:
    return np.eye(k.shape[-2], dtype=k.dtype) + np.tril(beta[..., None] * (k @ k.swapaxes(-1, -2)), -1)


def _read(q: Array, k: Array, u: Array) -> Array:
    return np.tril(q @ k.swapaxes(-1, -2)) @ u


def solved(q: Array, k: Array, v: Array, beta: Array) -> Array:
    return _read(q, k, np.linalg.solve(_system(k, beta), beta[..., None] * v))


def inverted(q: Array, k: Array, v: Array, beta: Array) -> Array:
    return _read(q, k, np.linalg.inv(_system(k, beta)) @ (beta[..., None] * v))


def doubled(q: Array, k: Array, v: Array, beta: Array) -> Array:
    """(I + A)⁻¹ = (I − A)(I + A²)(I + A⁴)…"""
    n = k.shape[-2]
    one = np.eye(n, dtype=k.dtype)
    power = one - _system(k, beta)
    inverse = one + power
    for _ in range(max(n - 1, 1).bit_length() - 1):
        power = power @ power
        inverse = inverse + inverse @ power
    return _read(q, k, inverse @ (beta[..., None] * v))


def split(q: Array, k: Array, v: Array, g: Array) -> Array:
    sums = np.cumsum(g, axis=-1)[..., None]
    return _read(q * np.exp(sums), k * np.exp(-sums), v)


def without_beta(q: Array, k: Array, v: Array, beta: Array) -> Array:
    return _read(q, k, np.linalg.solve(_system(k, 0 * beta + 1), beta[..., None] * v))


def transposed(q: Array, k: Array, v: Array, beta: Array) -> Array:
    return _read(q, k, np.linalg.solve(_system(k, beta).swapaxes(-1, -2), beta[..., None] * v))


def unmasked(q: Array, k: Array, v: Array, beta: Array) -> Array:
    return q @ k.swapaxes(-1, -2) @ np.linalg.solve(_system(k, beta), beta[..., None] * v)


def split_on_keys_alone(q: Array, k: Array, v: Array, g: Array) -> Array:
    return _read(q, k * np.exp(-np.cumsum(g, axis=-1)[..., None]), v)


def on_residues(function: Callable[..., Any], spec: LinearAttention) -> IdentityResult:
    with Options(layout="bhnd").opened(function, spec) as runner:
        result: IdentityResult = runner.semantics(spec, 60.0, Domain())  # type: ignore[attr-defined]
    return result


RIGHT = [(solved, DELTA), (inverted, DELTA), (doubled, DELTA), (split, GATED)]
WRONG = [(without_beta, DELTA), (transposed, DELTA), (unmasked, DELTA), (split_on_keys_alone, GATED)]


@pytest.mark.deep
@pytest.mark.parametrize(("function", "spec"), RIGHT)
def test_right_forms_are_tested_on_residues(function: Callable[..., Any], spec: LinearAttention) -> None:
    result = on_residues(function, spec)
    assert result.agrees
    assert result.epsilon is not None
    assert result.epsilon < 1e-11


@pytest.mark.parametrize(("function", "spec"), WRONG)
def test_wrong_forms_differ_on_residues(function: Callable[..., Any], spec: LinearAttention) -> None:
    assert on_residues(function, spec).difference is not None


@pytest.mark.deep
@pytest.mark.parametrize(("function", "spec"), RIGHT)
def test_right_forms_are_no_fault(function: Callable[..., Any], spec: LinearAttention) -> None:
    assert verify(function, spec, layout="bhnd", examples=10).verdict is Verdict.NO_FAULT


@pytest.mark.deep
@pytest.mark.parametrize(("function", "spec"), WRONG)
def test_wrong_forms_are_a_fault(function: Callable[..., Any], spec: LinearAttention) -> None:
    assert convicts(function, spec, layout="bhnd", examples=10)


# -- the bound on all forms --------------------------------------------------------------------------------------------
def _exactly(q: Array, k: Array, v: Array, beta: Array) -> Array:
    """The recurrence in rational numbers."""
    q, k, v, beta = (np.vectorize(Fraction, otypes=[object])(x) for x in (q, k, v, beta))
    state = 0 * np.outer(k[0], v[0])
    rows = []
    for t in range(len(q)):
        state = state + beta[t] * np.outer(k[t], v[t] - k[t] @ state)
        rows.append(q[t] @ state)
    return np.array(rows)


def _drawn(n: int, seed: int, dtype: str) -> tuple[Array, ...]:
    """Unit keys or whole ones, for which pivots differ; the first values are 0, and so is what is read of them."""
    rng = np.random.default_rng(seed)
    q, k, v = rng.normal(size=(n, 3)), rng.normal(size=(n, 3)), rng.normal(size=(n, 2))
    k = rng.integers(-2, 3, (n, 3)) / 1.0 if seed % 2 else k / np.linalg.norm(k, axis=-1, keepdims=True)
    v[: n // 3] = 0
    return tuple(x.astype(dtype) for x in (q, k, v, rng.integers(0, 9, n) / 8))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", [solved, inverted, doubled])
def test_every_form_is_within_the_bound(function: Callable[..., Any], dtype: str) -> None:
    for seed, n in enumerate((1, 5, 9, 16, 24)):
        given = _drawn(n, seed, dtype)
        q, k, v, beta = (x.astype(np.float64) for x in given)
        bound = allowed(LinearTerms(q, k, beta[:, None] * v, beta[:, None] * k, None), Precision.of(dtype))
        assert bound is not None
        exact = _exactly(*given)
        error = np.abs(np.vectorize(Fraction, otypes=[object])(function(*given).astype(np.float64)) - exact)
        assert (error.astype(np.float64) <= bound).all()


def test_the_bound_refuses_a_part_in_a_thousand_of_few_tokens() -> None:
    q, k, v, beta = _drawn(5, 0, "float64")
    bound = allowed(LinearTerms(q, k, beta[:, None] * v, beta[:, None] * k, None), Precision.of("float32"))
    assert bound is not None
    assert bound.max() < 1e-3 * np.abs(solved(q, k, v, beta)).max()


def test_there_is_no_bound_where_a_split_of_gates_overflows() -> None:
    q, k, v, _ = _drawn(9, 0, "float64")
    gates = np.full((9, 1), -10.0)
    assert allowed(LinearTerms(q, k, v, None, np.cumsum(gates, 0)), Precision.of("float32")) is None


def test_the_factors_of_a_chunk_count_where_their_entries_are_larger() -> None:
    rng = np.random.default_rng(201)
    below = _system(2 * rng.standard_normal((24, 3)), rng.random(24)) - np.eye(24)
    chunk = _largest_product(below[None, :16, :16])
    assert _largest_product(below[None]) < chunk / 2
    assert _largest_product_of_chunks(below[None]) >= chunk
