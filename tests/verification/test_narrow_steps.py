"""A number on the way of a step that is computed in a narrower format than the contract's is named."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn import Attention, Gradient, LayerNorm, Precision, RMSNorm, Verdict, verify
from tests.faults.programs import softmax

Array = Any
#: From rows to the mean of their squares in float32.
Measure = Callable[[Array], Array]


def _narrow(dtype: Any, squares: bool = False, total: bool = False, mean: bool = False) -> Measure:
    """Squares, their sum or their mean are rounded to a format, or none of them."""

    def measure(x: Array) -> Array:
        store = lambda a, is_rounded: a.astype(dtype if is_rounded else a.dtype).astype(np.float32)  # noqa: E731
        with np.errstate(over="ignore"):
            added = store(store(np.square(x), squares).sum(axis=-1, keepdims=True), total)
            return store(added / np.float32(x.shape[-1]), mean)

    return measure


def _added_in(dtype: Any) -> Measure:
    """Squares are added one by one in a format."""

    def measure(x: Array) -> Array:
        squares = np.square(x)
        total = np.zeros((*x.shape[:-1], 1), dtype)
        with np.errstate(over="ignore"):
            for column in range(x.shape[-1]):
                total = (total + squares[..., column : column + 1]).astype(dtype)
        return total.astype(np.float32) / np.float32(x.shape[-1])

    return measure


def _divide(x: Array, measure: Measure, eps: float) -> Array:
    return x / np.sqrt(measure(x) + np.float32(eps))


def _rms(measure: Measure) -> Callable[..., Array]:
    def program(x: Array, weight: Array) -> Array:
        rows = _divide(x.astype(np.float32), measure, 1e-6)
        return (rows * weight.astype(np.float32)).astype(x.dtype)

    return program


def _layer(measure: Measure) -> Callable[..., Array]:
    def program(x: Array, weight: Array, bias: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        return _divide(centred, measure, 1e-5) * weight + bias

    return program


def _normed_keys(measure: Measure) -> Callable[..., Array]:
    def program(q: Array, k: Array, v: Array) -> Array:
        wide = (a.astype(np.float32) for a in (q, k, v))
        queries, keys, values = wide
        queries, keys = (_divide(a, measure, 1e-6) for a in (queries, keys))
        weights = softmax(queries @ keys.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1])))
        return (weights @ values).astype(q.dtype)

    return program


_HALF, _BFLOAT = np.float16, ml_dtypes.bfloat16
_RMS, _NORMED = RMSNorm(eps=1e-6), Attention(qk_norm="rms", eps=1e-6)
_FUSED = Precision.of("float16", "fused")


@pytest.mark.parametrize(
    ("make", "measure", "definition", "precision", "words"),
    [
        (_rms, _narrow(_HALF, squares=True), _RMS, "float32", "the squares are rounded to float16"),
        (_rms, _narrow(_HALF, squares=True), _RMS, _FUSED, "the squares are rounded to float16"),
        (_rms, _narrow(_BFLOAT, total=True), _RMS, _FUSED, "the sum of squares is rounded to bfl"),
        (_rms, _narrow(_HALF, mean=True), _RMS, "float32", "the mean of squares is rounded to flo"),
        (
            _rms,
            _narrow(_HALF, True, False, True),
            _RMS,
            "float32",
            "the squares and the mean of squares are rounded to float16",
        ),
        (
            _rms,
            _added_in(_BFLOAT),
            _RMS,
            "float32",
            "every partial sum of squares is rounded to bfloat16",
        ),
        (_layer, _narrow(_HALF, squares=True), LayerNorm(), "float32", "the squares are rounded"),
        (_layer, _narrow(_BFLOAT, mean=True), LayerNorm(), "float32", "the mean of squares is roun"),
        pytest.param(
            _normed_keys,
            _narrow(_BFLOAT, squares=True),
            _NORMED,
            "float32",
            "the squares are rounded to bfloat16",
            marks=pytest.mark.deep,
        ),
    ],
)
def test_a_number_of_a_norm_in_a_narrower_format_is_named(
    make: Any, measure: Measure, definition: Any, precision: Any, words: str
) -> None:
    (fault,) = verify(make(measure), definition, precision=precision, examples=0).faults
    assert fault.step == "norm"
    assert (fault.cause or "").startswith(words), fault.message


@pytest.mark.deep
@pytest.mark.parametrize(
    ("measure", "words"),
    [
        (_narrow(_HALF, squares=True), "the squares are rounded to float16"),
        (_narrow(_HALF, total=True), "the sum of squares is rounded to float16"),
    ],
)
def test_rows_of_one_column_do_not_decide_which_number_is_rounded(measure: Measure, words: str) -> None:
    """They show both mistakes alike; what confirms a cause has wider rows of large numbers."""
    (fault,) = verify(_normed_keys(measure), _NORMED, precision=_FUSED).faults
    assert fault.cause == words, fault.message


@pytest.mark.parametrize("make", [_rms, _layer, _normed_keys])
def test_norms_without_any_narrow_number_are_right(make: Any) -> None:
    definition = {_rms: _RMS, _layer: LayerNorm(), _normed_keys: _NORMED}[make]
    report = verify(make(_narrow(np.float32)), definition, examples=0)
    assert report.verdict is Verdict.NO_FAULT


def _differentiate(q: Array, k: Array, v: Array, grad: Array) -> tuple[Array, ...]:
    """The gradients of attention, of which those of the weights are stored in float16."""
    scale = 1 / np.sqrt(np.float32(q.shape[-1]))
    weights = softmax(q @ k.swapaxes(-1, -2) * scale)
    of_weights = (grad @ v.swapaxes(-1, -2)).astype(_HALF).astype(np.float32)
    total = (of_weights * weights).sum(axis=-1, keepdims=True)
    of_scores = weights * (of_weights - total) * scale
    return of_scores @ k, of_scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ grad


@pytest.mark.deep
def test_a_step_of_a_backward_pass_in_a_narrower_format_is_named() -> None:
    faults = verify(_differentiate, Gradient(Attention()), examples=0).faults
    assert {fault.cause for fault in faults} == {"entries of dP are rounded to float16"}
