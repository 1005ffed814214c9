"""Numbers typed into a program, and sizes: what stays plain, what is read as a mask, what stays exact and is noted."""

import copy
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sympy

from symattn import Refused, kind, kinds
from tests.refusals import refuses

pytestmark = pytest.mark.smoke

INF = np.inf
ALLOWED = np.array([[1.0, 0.0], [1.0, 1.0]])


@pytest.fixture(params=["exact", "ball", "symbolic"])
def k(request: pytest.FixtureRequest) -> Any:
    return kind(request.param)


@pytest.fixture(params=["exact", "symbolic"])
def reading(request: pytest.FixtureRequest) -> Any:
    """The kinds that read −1e9 as −∞; balls hold −1e9 as the number it is."""
    return kind(request.param)


def forbidden(array: Any) -> Any:
    return np.isneginf(array).tolist()


MASK = [[False, True], [False, False]]


# -- sentinels --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "mask",
    [
        lambda xp, s, m: s + (1 - m) * -1e9,
        lambda xp, s, m: s + (1.0 - m) * -1e9 / 1,
        lambda xp, s, m: s - 1e9 * (1 - m),
        lambda xp, s, m: xp.where(m == 0, -1e9, s),
        lambda xp, s, m: xp.where(m == 0, -10000.0, s),
        lambda xp, s, m: np.where(m, s, np.finfo(np.float32).min),
        lambda xp, s, m: xp.where(m == 0, xp.full(s.shape, -1e9), s),
        lambda xp, s, m: s + xp.triu(xp.full(s.shape, -1e9), 1),
        lambda xp, s, m: s + xp.triu(xp.ones(s.shape), 1) * -1e9,
        lambda xp, s, m: s + (1 - xp.tril(xp.ones(s.shape)))[None, :][0] * -1e9,
        lambda xp, s, m: s + xp.permute_dims((1 - xp.triu(xp.ones(s.shape))), (1, 0)) * -1e9,
        lambda xp, s, m: (
            s + xp.concat([xp.zeros((2, 1)), xp.asarray([[1], [0]]) * 0 + ((1 - m) * -1e9)[:, 1:]], axis=1)
        ),
        lambda xp, s, m: put(s, m == 0, -1e9),
        lambda xp, s, m: put(s, (0, 1), -1e9),
        lambda xp, s, m: s + put(xp.zeros(s.shape), m == 0, -1e9),
        lambda xp, s, m: s + put(xp.zeros(s.shape).T, (1, 0), -1e9).T,
        lambda xp, s, m: xp.maximum(xp.where(m == 0, -1e9, s), xp.full(s.shape, -1e30)),
        lambda xp, s, m: s + np.triu(np.full((2, 2), -INF), 1),
        lambda xp, s, m: s + np.where(m == 1, 0, -INF),
    ],
)
def test_a_mask_written_with_plain_numbers_forbids(reading: Any, mask: Any) -> None:
    s = reading.lift([[1, 2], [3, 4]])
    with np.errstate(invalid="ignore"):
        assert forbidden(mask(reading.xp, s, ALLOWED)) == MASK


def put(a: Any, index: Any, value: Any) -> Any:
    a[index] = value
    return a


def test_a_sentinel_that_was_read_is_noted(reading: Any) -> None:
    with kinds.listening() as notes:
        reading.xp.where([True, False], reading.lift([1, 2]), -1e9)
    assert notes == ["the literal -1000000000.0 was read as -inf"]
    with kinds.listening() as notes:
        reading.xp.where([True, False], reading.lift([1, 2]), -INF)
    assert notes == []


def test_between_literals_arithmetic_stays_plain(k: Any) -> None:
    """(1 − mask) · −1e9 must not become 0 · −∞."""
    xp = k.xp
    literal = (1 - xp.tril(xp.ones((2, 2)))) * -1e9
    assert literal.origin is not None
    assert literal.origin.tolist() == [[0, -1e9], [0, 0]]
    assert (xp.ones((2,)) < 2).tolist() == [True, True]


def test_a_sentinel_is_read_only_where_masks_are_written(reading: Any) -> None:
    data = reading.lift([[-1e9, -20000.0], [1, 2]])
    xp = reading.xp
    arrays = [data, data + 1, data * 1, xp.where(ALLOWED > 0, data, 0), xp.maximum(data, data), -1 * data, data @ data]
    arrays += [xp.full((2, 2), -1e9) * data, xp.concat([data, data]), data.copy(), data[:, ::-1]]
    for array in arrays:
        assert not np.isneginf(array).any()
    assert (xp.full((2,), -1e9) * 2 == -2e9).all()
    assert (data * -1e9 < 0).tolist() == [[False, False], [True, True]]


def test_balls_hold_large_negative_numbers_as_they_are() -> None:
    ball = kind("ball")
    assert not np.isneginf(ball.lift([0.0]) + -1e9).any()
    assert np.isneginf(ball.lift([0.0]) + -INF).all()


# -- what is no longer a literal --------------------------------------------------------------------------------------


def test_full_keeps_exact_numbers_exact(k: Any) -> None:
    third = k.lift([Fraction(1, 3)])
    for filled in (k.xp.full((1,), Fraction(1, 3)), k.xp.full((1,), third), k.xp.full_like(third, Fraction(1, 3))):
        assert filled.item().overlaps(third.item()) if k.name == "ball" else (filled == third).all()
    big = 2**60 + 1
    assert (k.xp.full((2,), big) == k.lift([big, big])).all()
    with kinds.precision(100):
        assert (k.xp.full((1,), 0) + big == k.lift([big])).all()


# -- notes ------------------------------------------------------------------------------------------------------------
def test_a_cast_is_noted_and_makes_another_array(k: Any) -> None:
    a = k.lift([1, 2])
    with kinds.listening() as notes:
        b = a.astype(np.float32)
        k.xp.sum(a, dtype=np.float64)
    assert notes == [f"astype(float32) kept {k.name}", f"sum(dtype=float64) kept {k.name}"]
    b[...] = 0
    assert (a == [1, 2]).all()
    refuses(a.astype, np.int32, kind=Refused, says="would round")
    assert a.astype(bool).tolist() == [True, True]


def test_a_computed_float_is_noted_and_taken_at_its_dyadic_value() -> None:
    exact = kind("exact")
    with kinds.listening() as notes:
        third = exact.lift([1]) * (1 / 3)
        exact.lift([0.5, -2.25])
    assert notes == ["the float 0.3333333333333333 was taken at its dyadic value"]
    assert third.entries[0].rational() == Fraction(1 / 3) != Fraction(1, 3)


def test_notes_are_heard_once_and_only_inside() -> None:
    a = kind("exact").lift([1])
    a.astype(np.float32)
    with kinds.listening() as outer:
        a.astype(np.float32)
        with kinds.listening() as inner:
            a.astype(np.float32)
            a.astype(np.float32)
    assert len(inner) == len(outer) == 1
    with pytest.raises(RuntimeError), kinds.listening() as left:
        raise RuntimeError
    a.astype(np.float32)
    assert left == []


# -- sizes ------------------------------------------------------------------------------------------------------------
def test_roots_and_quotients_of_sizes_are_exact() -> None:
    d = kind("exact").lift(np.zeros((2, 3))).shape[-1]
    third = kind("exact").lift(Fraction(1, 3))
    for root in (np.sqrt(d), d**0.5, 1 / d**-0.5, np.power(d, 0.5), 3 / np.sqrt(d), 1 / (1 / np.sqrt(d))):
        assert root.item() ** 2 == 3
    for quotient in (
        1 / d,
        d**-1,
        np.divide(1, d),
        np.reciprocal(d),
        2 / (2 * d),
        1 / (d * 1),
        d / 9,
        np.true_divide(d, 9),
    ):
        assert quotient.item() == third.item()
    assert np.exp(np.log(d)).item() == 3


@pytest.mark.parametrize("name", ["exact", "ball", "symbolic", "bfloat16"])
def test_sizes_are_integers_where_integers_are_needed(name: str) -> None:
    a = kind(name).lift(np.zeros((6, 4)))
    n, d = a.shape
    assert (n, d) == (6, 4)
    assert list(range(d)) == [0, 1, 2, 3]
    assert np.zeros((n, d)).shape == (6, 4)
    assert np.arange(n - d).tolist() == [0, 1]
    assert np.tril(np.ones((d, d))).sum() == 10
    assert a.reshape(n * 2, d // 2).shape == (12, 2)
    assert d**2 == 16
    assert type(d**2) is int
    assert {d: "four"}[4] == "four"
    assert (n > d, n % d, n // d, -d, n - d) == (True, 2, 1, -4, 2)
    assert np.eye(d, dtype=bool).shape == (4, 4)


def test_products_and_whole_quotients_of_sizes_stay_sizes_and_differences_do_not() -> None:
    d = kind("exact").lift(np.zeros((2, 6))).shape[-1]
    for size in (d * 2, 2 * d, d // 2, d * d):
        assert type(size) is type(d)
    assert np.sqrt(d // 3).item() ** 2 == 2
    assert type(d - 1) is int


def test_a_float_made_from_a_size_is_noted() -> None:
    d = kind("exact").lift(np.zeros((2, 3))).shape[-1]
    for make in (lambda: math.sqrt(d), lambda: float(d)):
        with kinds.listening() as notes:
            make()
        assert notes == ["a float was made from the size 3"]


def test_a_copy_of_a_size_is_a_plain_integer() -> None:
    d = kind("exact").lift(np.zeros((2, 3))).shape[-1]
    for other in (copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        assert other == 3


def test_a_power_that_leaves_the_kind_is_refused(k: Any) -> None:
    a = k.lift([2, 3])
    with pytest.raises(Refused, match="power"):
        a ** Fraction(1, 3)
    with pytest.raises(Refused, match="exponent"):
        2**a


# -- data -------------------------------------------------------------------------------------------------------------
def test_numbers_of_every_sort_are_taken_exactly() -> None:
    third, tenth = Fraction(1, 3), Fraction(1, 10)
    data: list[Any] = [
        1,
        True,
        0.1,
        np.float32(0.1),
        np.int8(-3),
        third,
        "1/3",
        "-2.5e1",
        Decimal("0.1"),
        sympy.Rational(1, 3),
    ]
    wanted = [1, 1, Fraction(0.1), Fraction(float(np.float32(0.1))), -3, third, third, -25, tenth, third]
    assert [x.rational() for x in kind("exact").lift(data).entries] == wanted
    assert [Fraction(int(x.p), int(x.q)) for x in kind("symbolic").lift(data).entries] == wanted
    for x, value in zip(kind("ball").lift(data).entries, kind("exact").lift(wanted).entries, strict=True):
        assert x.overlaps(value.arb(200))
        assert not (x + 1e-12).overlaps(value.arb(200))
    assert kind("exact").lift(np.array([1.5], dtype=ml_dtypes.bfloat16)).entries[0] == Fraction(3, 2)


def test_elements_of_one_kind_are_lifted_into_another() -> None:
    exact = kind("exact")
    weights = exact.xp.exp(exact.lift([1, Fraction(1, 2)]))
    assert kind("ball").lift(weights).entries[0].overlaps(weights.entries[0].arb(100))
    assert str(kind("symbolic").lift(weights).entries[1]) == "exp(1/2)"
    assert kind("float64").lift(weights).tolist() == [math.e, math.exp(0.5)]
    assert kind("bfloat16").lift(weights).shape == (2,)
    assert exact.lift([weights[0], weights[1]]).shape == (2,)


@pytest.mark.parametrize("name", ["exact", "ball", "symbolic", "float64", "bfloat16"])
@pytest.mark.parametrize(
    "data", [[[1, 2], [3]], ["a"], [1, None], [1j], ["__import__('os')"], [object()], [[1, 2], 3], ["nan"], ["x_1"]]
)
def test_data_that_is_no_array_of_numbers_is_refused_in_one_line(name: str, data: Any) -> None:
    refuses(kind(name).lift, data, says="")


def test_an_unknown_kind_is_refused_with_those_known() -> None:
    refuses(kind, "quaternion", says="unknown kind of array 'quaternion'; known: exact, ball")


# -- formats ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_data_are_rounded_once_to_a_stored_format(name: str) -> None:
    """Not first to float32: what lies just above the middle of two neighbours goes up."""
    stored = kind(name)
    eps = float(ml_dtypes.finfo(stored.dtype).eps)
    middle = 1 + eps / 2
    for value, wanted in ((middle, 1), (middle + 2**-40, 1 + eps), (middle - 2**-40, 1), (-middle - 2**-40, -1 - eps)):
        assert stored.lift([value]).numpy().astype(float).tolist() == [wanted]
    assert stored.lift([[0.0, -0.0]]).numpy().astype(float).tolist() == [[0, 0]]


def test_a_format_overflows_as_floating_arithmetic_does() -> None:
    assert kind("float16").lift([1e6]).tolist() == [INF]
    assert kind("bfloat16").lift([3.4e38, 1e300]).numpy().astype(float)[1] == INF
    assert np.isnan(kind("float8_e4m3fn").lift([1000]).numpy().astype(float)).all()
    large = kind("float8_e5m2").lift([50000]) * 2
    assert np.isinf(large).all()
    assert not np.isneginf(large).any()
    assert not np.isfinite(large).any()


def test_nan_of_a_stored_format_compares_as_nan() -> None:
    zero = kind("bfloat16").lift([0.0])
    with np.errstate(invalid="ignore"):
        nan = zero / zero
    comparisons = (nan < 1, nan <= 1, nan > 1, nan >= 1, nan == nan, nan >= 1, nan <= 1)
    assert not any(c.any() for c in comparisons)
    assert (nan != nan).all()


@pytest.mark.parametrize("name", ["log", "exp", "sqrt", "divide", "mean"])
def test_what_numpy_would_round_is_computed_by_the_kind_of_plain_numbers_too(name: str) -> None:
    """Positions are whole numbers of NumPy's; their logarithms and thirds are not."""
    balls, exact = kind("ball"), kind("exact")
    more = (3,) if name == "divide" else ()

    def run(of: Any) -> Any:
        whole = of.xp.astype(of.xp.arange(2) + 3, of.lift([1]).dtype)
        return getattr(of.xp, name)(whole, *more)

    assert isinstance(run(exact), exact)
    with kinds.precision(128):
        enclosed = run(balls)
    for x, ball in zip(run(exact).entries.flat, enclosed.entries.flat, strict=True):
        assert x.arb(200).overlaps(ball)
        assert float(ball.rad()) < 1e-30
    assert getattr(np, name)(np.array([3.0, 4.0]), *more).dtype == np.float64
