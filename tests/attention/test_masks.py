"""Masks in every combination against loops over plain numbers, which know nothing of arrays."""

import math
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest

from symattn import Attention, InputError, functional, kind
from tests.attention.definition import Definition, looped

pytestmark = pytest.mark.smoke

RNG = np.random.default_rng(5)
SIZES = [(3, 3), (2, 5), (5, 2), (1, 4), (4, 1)]


def arrays(n_q: int, n_k: int) -> tuple[np.ndarray, ...]:
    shapes = ((n_q, 3), (n_k, 3), (n_k, 2))
    return tuple(RNG.integers(-4, 5, shape) / 2 for shape in shapes)


COMBINATIONS = [*product((None, "bottom-right", "top-left"), (None, "boolean", "additive"), (False, True), SIZES)]


@pytest.mark.parametrize(("causal", "mask", "padding", "sizes"), COMBINATIONS)
@pytest.mark.parametrize("empty", ["zeros", "nan"])
def test_masks_mean_what_loops_say(causal: Any, mask: Any, padding: bool, sizes: tuple[int, int], empty: Any) -> None:
    given = dict(zip("qkv", arrays(*sizes), strict=True))
    seen = RNG.random(sizes) < 0.7
    if mask:
        given["mask"] = seen if mask == "boolean" else np.where(seen, RNG.integers(-4, 5, sizes) / 4, -math.inf)
    if padding:
        given["keep"] = RNG.random(sizes[1]) < 0.7
    alignment: Any = causal or "bottom-right"
    spec = Attention(causal=causal is not None, alignment=alignment, mask=mask, padding=padding, fully_masked=empty)
    definition = Definition(spec, given)
    got = definition.run(kind("exact").lift).entries.flat
    with mpmath.workdps(50):
        for x, value in zip(got, looped(definition), strict=True):
            if mpmath.isnan(value):
                assert spec.masks_anything
                assert "0/0" in x.why
            else:
                assert abs(mpmath.mpf(x.decimal(40)) - value) < mpmath.mpf("1e-35")


@pytest.mark.parametrize("name", ["exact", "ball", "symbolic", "float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("stabilised", [True, False])
def test_a_fully_masked_row_gives_zeros_nothing_or_an_error(name: str, stabilised: bool) -> None:
    lift = kind(name).lift
    q, k, v = (lift(a) for a in arrays(2, 3))
    mask = np.array([[False] * 3, [True] * 3])

    def run(empty: Any) -> Any:
        with np.errstate(invalid="ignore"):
            return Attention(mask="boolean", fully_masked=empty, stabilised=stabilised)(q, k, v, mask=mask)

    zeros, undefined = run("zeros"), run("nan")
    assert (zeros[0] == 0).all()
    assert np.isnan(undefined[0]).all()
    assert not np.isnan(undefined[1]).any()
    with pytest.raises(InputError, match="a row of scores is fully masked; hint: allow a key"):
        run("error")
    mask[0, 1] = True
    assert run("error").shape == (2, 2)


def test_without_a_mask_no_row_is_empty_and_no_guard_is_run() -> None:
    """Float16 weights that underflow are not taken for a masked row."""
    q = k = np.array([[8.0]], dtype=np.float16)
    with np.errstate(all="ignore"):
        far = Attention(scale=-1, stabilised=False)(q, k, k)
    assert np.isnan(far).all()


def test_nothing_leaks_from_a_forbidden_key_on_exact_arrays() -> None:
    exact = kind("exact")
    q, k, v = (exact.lift(a) for a in arrays(3, 4))
    spec = Attention(causal=True, alignment="top-left")
    changed = v.copy()
    changed[3] = 1000
    assert (spec(q, k, v) == spec(q, k, changed)).all()
    other = k.copy()
    other[3] = -1000
    assert (spec(q, k, v) == spec(q, other, v)).all()
    assert not (Attention()(q, k, v) == Attention()(q, k, changed)).any()


def test_the_largest_of_a_fully_masked_row_is_zero() -> None:
    s = np.array([[-np.inf, -np.inf], [1.0, 2.0]])
    assert functional.row_max(s).tolist() == [[0.0], [2.0]]
    assert functional.softmax(s, fully_masked="zeros")[0].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(functional.softmax(np.log([[1.0, 3.0]])), [[0.25, 0.75]], rtol=1e-15)
