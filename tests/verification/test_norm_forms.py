"""Norms in every legal form are never accused, whatever the numbers; their false twins are found."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn import LayerNorm, RMSNorm, Verdict, verify
from symattn.arrays.precision import Precision
from symattn.verification.definitions.judging import expected
from symattn.verification.definitions.norms import subject

Array = Any
Program = Callable[..., Array]
EPS = 1e-5
BF16 = ml_dtypes.bfloat16


def root(v: Array) -> Array:
    return np.sqrt(v + v.dtype.type(EPS))


def mean(x: Array) -> Array:
    return x.mean(axis=-1, keepdims=True)


def one_by_one(x: Array) -> Array:
    """The mean, added up from the last number on."""
    total = np.zeros_like(x[..., :1])
    for k in reversed(range(x.shape[-1])):
        total = total + x[..., k : k + 1]
    return total / x.dtype.type(x.shape[-1])


# -- LayerNorm ---------------------------------------------------------------------------------------------------------
def centred(x: Array, g: Array, b: Array) -> Array:
    c = x - mean(x)
    return c / root(mean(c * c)) * g + b


def by_reciprocal(x: Array, g: Array, b: Array) -> Array:
    c = x - one_by_one(x)
    return c * (1 / root(one_by_one(c * c))) * g + b


def gain_with_reciprocal(x: Array, g: Array, b: Array) -> Array:
    c = x - mean(x)
    return c * (g * (1 / root(mean(c * c)))) + b


def rows_folded(x: Array, g: Array, b: Array) -> Array:
    m = mean(x)
    r = 1 / root(mean((x - m) ** 2))
    return (x * r + -m * r) * g + b


def affine_folded(x: Array, g: Array, b: Array) -> Array:
    m = mean(x)
    s = g * (1 / root(mean((x - m) ** 2)))
    return x * s + (b - m * s)


def affine_by_division(x: Array, g: Array, b: Array) -> Array:
    m = one_by_one(x)
    s = g / root(one_by_one((x - m) ** 2))
    return (b - m * s) + s * x


def growing(x: Array, g: Array, b: Array) -> Array:
    m, total = np.zeros_like(x[..., :1]), np.zeros_like(x[..., :1])
    for k in range(x.shape[-1]):
        before = x[..., k : k + 1] - m
        m = m + before / x.dtype.type(k + 1)
        total = total + before * (x[..., k : k + 1] - m)
    return (x - m) / root(total / x.dtype.type(x.shape[-1])) * g + b


# -- RMSNorm -----------------------------------------------------------------------------------------------------------
def rms(x: Array, g: Array) -> Array:
    return x / root(mean(x * x)) * g


def rms_by_reciprocal(x: Array, g: Array) -> Array:
    return g * (x * (1 / root(one_by_one(x * x))))


def rms_gain_first(x: Array, g: Array) -> Array:
    return x * (g / root(mean(np.square(x))))


# -- float32 inside, in half types -------------------------------------------------------------------------------------
def wide(program: Program) -> Program:
    """Everything in float32, but the output."""

    def run(*given: Array) -> Array:
        return program(*(np.asarray(a, np.float32) for a in given)).astype(given[0].dtype)

    return run


def llama(x: Array, g: Array) -> Array:
    h = np.asarray(x, np.float32)
    return g * (h * (1 / root(mean(h * h)))).astype(x.dtype)


def stored_before_gain(x: Array, g: Array, b: Array) -> Array:
    h = np.asarray(x, np.float32)
    c = h - mean(h)
    return (c / root(mean(c * c))).astype(x.dtype) * g + b


LAYER = (centred, by_reciprocal, gain_with_reciprocal, rows_folded, affine_folded, affine_by_division, growing)
RMS = (rms, rms_by_reciprocal, rms_gain_first)


# -- numbers -----------------------------------------------------------------------------------------------------------
def numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """At random, with a huge mean, a tiny variance, an outlier, all but equal numbers, or numbers of many sizes."""
    x = rng.standard_normal(shape)
    return (
        x, x + 2.0 ** rng.integers(3, 22), x * 2.0 ** -rng.integers(4, 40), x + 1000.0 * (rng.random(shape) < 0.1),
        1.0 + rng.integers(-1, 2, shape) * 2.0**-20, x * 2.0 ** rng.integers(-30, 30, shape),
        rng.integers(-3, 4, shape),
    )[rng.integers(7)]  # fmt: skip


def ratio(spec: Any, program: Program, dtype: Any, precision: Precision, rng: np.random.Generator) -> float:
    """The largest |got − exact| / allowed of one call at random."""
    n, d = int(rng.integers(1, 4)), int(rng.choice([1, 2, 3, 5, 8, 17, 33, 65]))
    given = {"x": numbers(rng, (n, d)), "gain": rng.integers(1, 9, d) / 4.0, "bias": rng.integers(-8, 9, d) / 2.0}
    if rng.random() < 0.3:  # the bias takes away what is added
        given["bias"] = -np.rint(given["gain"] * 8 * np.sign(given["x"][0])) / 8
    names = list(given)[: 3 if isinstance(spec, LayerNorm) else 2]
    inputs = {name: np.asarray(given[name], dtype).astype(float) for name in names}
    with np.errstate(all="ignore"):
        got = np.asarray(program(*(a.astype(dtype) for a in inputs.values())), float)
    ready = subject(spec)
    right = expected(ready, inputs, precision, ready.ways)[0]
    return float(right.ratios(got).max()) if np.isfinite(got).all() else 0.0


def worst(spec: Any, program: Program, dtype: Any, precision: Precision, times: int) -> float:
    rng = np.random.default_rng(times)
    return max(ratio(spec, program, dtype, precision, rng) for _ in range(times))


CASES = [
    *((LayerNorm(eps=EPS), f, np.float32, Precision.of("float32")) for f in LAYER),
    *((RMSNorm(eps=EPS), f, np.float32, Precision.of("float32")) for f in RMS),
    (LayerNorm(eps=EPS), affine_folded, np.float64, Precision.of("float64")),
    *((LayerNorm(eps=EPS), wide(f), BF16, Precision.of("bfloat16", "fused")) for f in LAYER),
    *((RMSNorm(eps=EPS), f, BF16, Precision.of("bfloat16", "fused")) for f in (llama, wide(rms), wide(rms_gain_first))),
    (LayerNorm(eps=EPS), stored_before_gain, BF16, Precision.of("bfloat16", "fused")),
    (LayerNorm(eps=EPS), affine_folded, BF16, Precision.of("bfloat16")),
    (RMSNorm(eps=EPS), llama, BF16, Precision.of("bfloat16")),
]


@pytest.mark.deep
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[1].__name__} {c[3].name} {c[3].contract}")
def test_no_legal_form_is_accused(case: tuple[Any, ...]) -> None:
    assert worst(*case, 60) <= 1


# -- false twins -------------------------------------------------------------------------------------------------------
def twin_divisor(x: Array, g: Array, b: Array) -> Array:
    m, n = mean(x), x.dtype.type(x.shape[-1] - 1)
    with np.errstate(all="ignore"):
        s = g * (1 / root(((x - m) ** 2).sum(axis=-1, keepdims=True) / n))
        return x * s + (b - m * s)


def twin_outside(x: Array, g: Array, b: Array) -> Array:
    m = mean(x)
    s = g / (np.sqrt(mean((x - m) ** 2)) + x.dtype.type(EPS))
    return x * s + (b - m * s)


def twin_without_eps(x: Array, g: Array, b: Array) -> Array:
    m = mean(x)
    with np.errstate(all="ignore"):
        s = g / np.sqrt(mean((x - m) ** 2))
        return x * s + (b - m * s)


def twin_without_mean(x: Array, g: Array, b: Array) -> Array:
    return x * (g / root(mean((x - mean(x)) ** 2))) + b


def twin_bias_scaled(x: Array, g: Array, b: Array) -> Array:
    m = mean(x)
    s = g / root(mean((x - m) ** 2))
    return x * s + (b - m) * s


def twin_of_squares(x: Array, g: Array, b: Array) -> Array:
    m = mean(x)
    s = g / root(np.maximum(mean(x * x) - m * m, 0))
    return x * s + (b - m * s)


def twin_llama_stored_twice(x: Array, g: Array) -> Array:
    h = np.asarray(x, np.float32)
    r = (1 / root(mean(h * h))).astype(x.dtype)
    return g * (x * r)


TWINS = (
    (twin_divisor, "divisor d − 1"), (twin_outside, "outside the root"), (twin_without_eps, "ε is left out"),
    (twin_without_mean, "the mean is not subtracted from x"), (twin_bias_scaled, ""),
    (twin_of_squares, "mean(x²) − mean(x)², which cancels where the mean is large"),
)  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize(("program", "cause"), TWINS)
def test_false_twins_are_found(program: Program, cause: str) -> None:
    def norm(x: Array, weight: Array, bias: Array) -> Array:
        return program(x, weight, bias)

    report = verify(norm, LayerNorm(eps=EPS), framework="numpy", examples=0)
    assert report.verdict is Verdict.FAULT
    assert cause in (report.faults[0].cause or "")


@pytest.mark.deep
@pytest.mark.parametrize(("program", "right"), [(llama, True), (twin_llama_stored_twice, False)])
def test_what_may_be_stored_in_half_types(program: Program, right: bool) -> None:
    """N may be stored before it meets the gain, and nothing else where the contract is ``fused``."""

    def norm(x: Array, weight: Array) -> Array:
        return program(x, weight)

    told: dict[str, Any] = {"precision": "bfloat16", "framework": "numpy", "examples": 0}
    report = verify(norm, RMSNorm(eps=EPS), contract="fused", **told)
    assert (report.verdict is Verdict.NO_FAULT) is right
    assert any("stored as the inputs are" in note for note in report.notes)
