"""The theorems on rounding."""

from fractions import Fraction
from itertools import permutations
from math import exp, log, log1p

import flint
import numpy as np
import pytest

from symattn.arrays.formats import NARROW, Format
from symattn.document.errors import Undecided
from symattn.document.notation import Decimal
from symattn.theorems.rounding import nearest, underflow
from symattn.theorems.rounding_formats import overflow

# -- the statements in real formats ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_dot_products_in_any_order_are_within_the_bound(name: str):
    f = Format(name)
    rng = np.random.default_rng(0)
    gamma = 4 * f.u / (1 - 4 * f.u)
    beyond_the_false_one = False
    for _ in range(20):
        q, k = (f.cast(rng.normal(size=4).astype(f.wider)) for _ in range(2))
        exact = [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(q, k, strict=True)]
        products = q * k
        for order in permutations(range(4)):
            a, b, c, d = (products[i] for i in order)
            for total in (((a + b) + c) + d, (a + b) + (c + d)):
                error = abs(Fraction(float(total)) - sum(exact))
                assert error <= gamma * sum(map(abs, exact))
                beyond_the_false_one |= error > gamma * abs(sum(exact))
    assert beyond_the_false_one


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_exponential_is_on_the_side_of_the_threshold_that_its_argument_is_on(name: str):
    f = Format(name)
    high, low = overflow(f), underflow(f)
    for x in f.numbers().astype(np.float64)[::17]:
        y = flint.arb(float(x)).exp()
        assert bool(y >= _ball(high)) == (x >= log(high))
        assert bool(y <= _ball(low)) == (x <= log(low))


def _ball(x: Fraction) -> flint.arb:
    return flint.arb(flint.fmpq(x.numerator, x.denominator))


def test_the_threshold_of_float16_is_not_its_largest_number():
    assert overflow(Format("float16")) == 65520
    assert np.isfinite(np.float16(65519.99))
    with np.errstate(over="ignore"):
        assert np.isinf(np.float16(65520.0))


@pytest.mark.parametrize("keys", [2, 3, 100])
def test_weights_saturate_from_the_gap_on_and_not_much_before(keys: int):
    gap = 25 * log(2) + log(keys - 1)
    assert np.float32(1 / (1 + (keys - 1) * exp(-gap * 1.0001))) == 1
    assert np.float32(1 / (1 + (keys - 1) * exp(-gap * 0.95))) < 1


@pytest.mark.parametrize(("name", "kappa"), [("float32", 4), ("float16", 2)])
def test_computed_weights_are_within_the_bound(name: str, kappa: int):
    f = Format(name)
    u = float(f.u)
    rng = np.random.default_rng(1)
    for n in (2, 5, 30):
        s = f.cast((rng.normal(size=n) * 2).astype(np.float32))
        e = np.exp(s - s.max())
        total = e[0]
        for x in e[1:]:
            total = total + x
        got = (e / total).astype(np.float64)
        x = s.astype(np.float64) - float(s.max())
        true = np.exp(x) / np.exp(x).sum()
        limit = (abs(x) + abs(x).max()) * u - (n + 2 * kappa) * log1p(-u)
        assert (abs(np.log(got / true)) <= limit + 1e-12).all()


@pytest.mark.parametrize("seed", range(30))
def test_outputs_move_no_further_than_said(seed: int):
    rng = np.random.default_rng(seed)
    n, eta = int(rng.integers(2, 6)), float(rng.uniform(0.01, 3))
    s, v = rng.normal(size=n) * 2, rng.normal(size=n)
    e = eta * rng.choice([-1.0, 1.0], size=n)
    a, b = np.exp(s), np.exp(s + e)
    moved = abs(b @ v / b.sum() - a @ v / a.sum())
    assert moved <= np.tanh(eta / 2) * (v.max() - v.min()) + 1e-12


@pytest.mark.parametrize("name", NARROW)
def test_sums_products_and_maxima_commute(name: str):
    """The hypothesis of merge-rounding-commutes, on every pair of an 8-bit format and on many of a wider one."""
    every = Format(name).numbers()
    some = every if every.size <= 256 else every[:: every.size // 300]
    a, b = some[:, None], some[None, :]
    with np.errstate(all="ignore"):
        for x, y in ((a + b, b + a), (a * b, b * a), (np.maximum(a, b), np.maximum(b, a))):
            assert np.array_equal(x.astype(np.float64), y.astype(np.float64), equal_nan=True)


# -- digits ------------------------------------------------------------------------------------------------------------


def test_digits_are_rounded_correctly():
    assert nearest(lambda: flint.arb(2).log(), 5) == Decimal("0.69315")
    assert nearest(lambda: -(flint.arb(2).log()), 2) == Decimal("-0.69")
    assert nearest(lambda: flint.arb(100) / 3, 1) == Decimal("33.3")


def test_digits_that_cannot_be_told_are_not_invented():
    with pytest.raises(Undecided):
        nearest(lambda: flint.arb("0.15 +/- 0.001"), 1)
