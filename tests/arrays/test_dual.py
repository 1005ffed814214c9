"""Dual numbers: derivatives of what can be written, against slopes of polynomials and of balls."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from symattn.arrays.dual import dual
from symattn.arrays.exact import Exact
from symattn.arrays.floats import Float64
from symattn.arrays.indexed import Indexed
from symattn.attention.softmax import softmax
from symattn.document.errors import Refused, Undecided
from symattn.proof.gradients import gradient
from tests.arrays.evaluating import Numbers
from tests.refusals import refuses

DUAL: Any = dual(Exact)
xp = DUAL.xp


def at(value: Any, slope: Any = 1) -> Any:
    return DUAL.made(Exact.lift(value), Exact.lift(slope))


def slope(x: Any) -> Any:
    return x.derivative.item()


HALF = Fraction(1, 2)
RULES: dict[str, tuple[Any, Any]] = {
    "sum": (lambda x: x + x + 3, lambda x: 2),
    "difference": (lambda x: 1 - x, lambda x: -1),
    "product": (lambda x: x * x * x, lambda x: 3 * x * x),
    "quotient": (lambda x: (1 + x) / (2 - x), lambda x: 3 / (2 - x) ** 2),
    "power": (lambda x: x**4, lambda x: 4 * x**3),
    "where": (lambda x: xp.where(x > 0, x * x, 5 * x), lambda x: 2 * x if x > 0 else 5),
    "maximum": (lambda x: xp.maximum(x * x, x), lambda x: 2 * x if x * x >= x else 1),
}


@pytest.mark.parametrize("value", [HALF, Fraction(-3, 2), Fraction(5)])
@pytest.mark.parametrize("name", RULES)
def test_a_rational_function_has_its_derivative(name: str, value: Fraction) -> None:
    function, expected = RULES[name]
    assert slope(function(at(value))) == expected(value)


def test_exponentials_differentiate_to_themselves() -> None:
    x = at(HALF)
    assert slope(xp.exp(x * x)) == xp.exp(x * x).value.item()  # 2x = 1 at 1/2
    assert slope(xp.log(xp.exp(x) * xp.exp(x))) == 2


def test_a_constant_has_no_slope_even_where_the_function_has_none() -> None:
    assert slope(xp.sqrt(at(0, 0))) == 0
    assert slope(DUAL.lift(3) * at(2)) == 3


def test_equals_have_no_larger_one() -> None:
    refuses(xp.maximum, at(0), 0, kind=Undecided, says="equals with different slopes")
    assert slope(xp.maximum(at(2, 3), at(2, 3))) == 3
    assert slope(xp.max(DUAL.made(Exact.lift([1, 1]), Exact.lift([5, 7])))) == 5


def test_over_floats() -> None:
    of: Any = dual(Float64)
    x = of.made(Float64.lift([0.5, 2.0]), Float64.lift([1.0, -1.0]))
    moved = of.xp.exp(x) @ x
    assert moved.derivative.planes[0] == pytest.approx(1.5 * np.exp(0.5) - 3 * np.exp(2))
    assert of.xp.erf(x).derivative.planes[0][0] == pytest.approx(2 / np.sqrt(np.pi) * np.exp(-0.25))
    refuses(Float64._unary, "gamma", Float64.lift(1), kind=Refused, says="float64 lacks gamma")


def test_a_forbidden_score_has_no_derivative() -> None:
    masked = xp.where(np.array([True, False]), DUAL.made(Exact.lift([1, 2]), Exact.lift([1, 1])), -np.inf)
    weights = softmax(masked)
    assert [e.derivative.item() for e in (weights[0], weights[1])] == [0, 0]
    assert slope(xp.sum(xp.exp(masked), axis=-1)) == xp.exp(at(1)).value.item()


def test_what_is_not_differentiated_is_refused() -> None:
    with pytest.raises(Refused):
        xp.erf(at(1))


@pytest.mark.parametrize("stabilised", [True, False])
@pytest.mark.parametrize("sizes", [{"n": 1, "m": 2}, {"n": 2, "m": 3}])
def test_formal_and_dual_gradients_agree(stabilised: bool, sizes: dict[str, int]) -> None:
    """The derivative of index expressions, at numbers, is what dual numbers give."""

    def loss(s: Any, v: Any) -> Any:
        p = softmax(s, stabilised)
        return (p * p * v).sum()

    s = np.array([[Fraction((3 * i + 2 * j) % 5, 2) for j in range(sizes["m"])] for i in range(sizes["n"])])
    v = np.array([[Fraction(i - 2 * j, 3) for j in range(sizes["m"])] for i in range(sizes["n"])])
    along = gradient(loss, "s", s=Exact.lift(s), v=Exact.lift(v))
    letters = {name: Indexed.letters(name, "n", "m") for name in ("s", "v")}
    numbers = Numbers({"s": (s, "n m"), "v": (v, "n m")}, sizes, weights=True)
    formal = numbers.everywhere(gradient(loss, "s", **letters))
    for place in np.ndindex(*along.shape):
        assert formal[place].item() == along.entries[place]


def test_a_wrong_slope_would_be_seen() -> None:
    assert slope(at(3) ** 2) != slope(at(3) * 5)
