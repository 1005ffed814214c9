"""Every form of attention on every kind of array: one definition, one meaning."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest
import sympy

from symattn.arrays import FLOATING, kind
from symattn.arrays.ball import precision
from symattn.document.errors import Refused, Undecided
from tests.attention.definitions import DEFINITIONS
from tests.bounded import bounded
from tests.lanes import one_in

NAMES = tuple(DEFINITIONS)
SMALL = ("float8_e4m3fn", "float8_e5m2")  # their rounding errors are as large as the weights: bounds say nothing


@cache
def truth(name: str) -> Any:
    """The output on exact arrays, as an array of exact numbers."""
    return DEFINITIONS[name].run(kind("exact").lift).entries


@cache
def nearest(name: str) -> np.ndarray:
    return np.vectorize(lambda x: x.to_float(), otypes=[float])(truth(name))


@pytest.mark.parametrize("name", NAMES)
def test_balls_hold_the_exact_output(name: str) -> None:
    with precision(128):
        balls = DEFINITIONS[name].run(kind("ball").lift).entries
    assert balls.shape == truth(name).shape
    for ball, x in zip(balls.flat, truth(name).flat, strict=True):
        assert ball.overlaps(x.arb(200))
        assert ball.rad() < 2.0**-100


@pytest.mark.parametrize("name", one_in(6, NAMES))
def test_sympy_numbers_are_the_exact_output(name: str) -> None:
    entries = DEFINITIONS[name].run(kind("symbolic").lift).entries
    assert entries.shape == truth(name).shape
    for expression, x in zip(entries.flat, truth(name).flat, strict=True):
        assert abs(sympy.N(expression, 40) - sympy.Float(x.decimal(40), 40)) < sympy.Float("1e-35")


@pytest.mark.parametrize("name", one_in(8, [n for n in NAMES if "batch" not in n]))
def test_letters_at_numbers_are_the_exact_output(name: str) -> None:
    """Run on letters; then numbers are put in, and the true maximum for the opaque one."""
    symbolic, values = kind("symbolic"), {}

    def lift(array: np.ndarray) -> Any:
        letters = symbolic.letters(f"t{len(values)}", *array.shape)
        values.update(zip(letters.entries.flat, map(mpmath.mpf, array.flat), strict=True))
        return letters

    entries = DEFINITIONS[name].run(lift).entries
    with mpmath.workdps(50):
        for expression, x in zip(entries.flat, truth(name).flat, strict=True):
            assert abs(evaluated(expression, values) - mpmath.mpf(x.decimal(40))) < mpmath.mpf("1e-35")


def evaluated(x: Any, values: dict[Any, Any]) -> Any:
    """An expression at the values of its letters, each part once; the opaque maximum is the true one."""
    if x not in values:
        parts = [evaluated(part, values) for part in x.args]
        if x.is_Rational:
            values[x] = mpmath.mpf(int(x.p)) / int(x.q)
        else:
            values[x] = FUNCTIONS[type(x).__name__](*parts)
    return values[x]


FUNCTIONS = {
    "Add": lambda *xs: mpmath.fsum(xs),
    "Mul": lambda *xs: mpmath.fprod(xs),
    "Pow": lambda x, y: x**y,
    "exp": mpmath.exp,
    "max": max,
    "Max": max,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FLOATING)
def test_floats_are_within_the_rounding_errors_of_their_operations(dtype: str, name: str) -> None:
    """|got − exact| ≤ the bound that follows from the operations, each rounded in the format; see ``tests.bounded``."""
    definition, target = DEFINITIONS[name], kind(dtype)
    if dtype == "float8_e4m3fn" and definition.spec.masks_anything:
        with pytest.raises(Refused, match="float8_e4m3fn has no infinity to write a mask with"):
            definition.run(target.lift)
        return
    with np.errstate(all="ignore"):
        got = definition.run(target.lift)
        plain = got if isinstance(got, np.ndarray) else got.numpy()
        radius = _radius(name, target.dtype)
    assert plain.dtype == target.dtype
    assert plain.shape == truth(name).shape
    told = np.isfinite(radius)
    assert told.all() or dtype in SMALL
    assert (np.abs(plain.astype(float) - nearest(name))[told] <= radius[told]).all()


def _radius(name: str, dtype: Any) -> Any:
    try:
        return DEFINITIONS[name].run(bounded(dtype).lift).planes[1]
    except Undecided:  # in a very small format it is open whether a sum of weights is zero: the bound says nothing
        return np.full(truth(name).shape, np.inf)


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_is_narrow_enough_to_see_a_wrong_scale(name: str) -> None:
    """In float64 the bound is some hundred units of the last place, so that it says no to 1/√(d_k + 1)."""
    with np.errstate(invalid="ignore"):
        radius = DEFINITIONS[name].run(bounded(np.float64).lift).planes[1]
    assert (radius < 2**10 * float(ml_dtypes.finfo(np.float64).eps)).all()


@pytest.mark.parametrize("name", [n for n in NAMES if "not stabilised" not in n])
def test_stabilised_and_plain_are_equal_exactly(name: str) -> None:
    definition = DEFINITIONS[name]
    other = replace(definition, spec=replace(definition.spec, stabilised=False)).run(kind("exact").lift).entries
    assert all(x.same(y) for x, y in zip(truth(name).flat, other.flat, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_weights_sum_to_one_or_are_empty(name: str) -> None:
    definition = DEFINITIONS[name]
    exact = kind("exact")
    inputs = {n: exact.lift(a) for n, a in definition.inputs.items()}
    weights = definition.spec.trace(**inputs, **definition.masks)["weights"]
    sums = exact.xp.sum(weights, axis=-1)
    empty = (weights == 0).all(axis=-1)
    assert ((sums == 1) | empty).all()
    assert empty.any() == (name in ("a row fully masked", "heads, mask for each head"))
    assert (weights >= 0).all()


@pytest.mark.parametrize("dtype", ["bfloat16", *SMALL])
@pytest.mark.parametrize("name", ["plain", "unscaled", "not stabilised", "causal", "causal, top-left"])
def test_stored_formats_round_each_step_once(dtype: str, name: str) -> None:
    """Bit for bit: float32 arithmetic, each result rounded; for fp8 the bound above says next to nothing."""
    definition, target = DEFINITIONS[name], kind(dtype)
    if dtype == "float8_e4m3fn" and definition.spec.masks_anything:
        return  # refused, see above

    def rounded(x: Any) -> np.ndarray:
        return np.asarray(x, dtype=np.float32).astype(target.dtype).astype(np.float32)

    q, k, v = (rounded(definition.inputs[n]) for n in "qkv")
    s = rounded(q @ k.T)
    if definition.spec.scale is None:
        s = rounded(s / rounded(np.sqrt(np.float32(q.shape[1]))))
    if definition.spec.causal:
        offset = len(k) - len(q) if definition.spec.alignment == "bottom-right" else 0
        s = np.where(np.tri(len(q), len(k), offset) > 0, s, -np.inf)
    if definition.spec.stabilised:
        s = rounded(s - s.max(axis=-1, keepdims=True))
    e = rounded(np.exp(s))
    weights = rounded(e / rounded(e.sum(axis=-1, keepdims=True)))
    assert np.array_equal(definition.run(target.lift).numpy().astype(np.float32), rounded(weights @ v))
