"""Signs of numbers, inequalities and their certificates: the checker encloses every value by itself.

Enclosures of normal means and quantiles are held against other programs."""

import copy
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from random import Random
from statistics import NormalDist
from typing import Any

import flint
import ml_dtypes
import mpmath
import numpy as np
import pytest

from symattn import Grade, Refused, kinds, proving, theorems
from symattn.arrays.formats import Format
from symattn.proof import gaussian
from symattn.proof.checker import FORMATS
from symattn.proof.checker_balls import _RISING
from symattn.proof.same_bits import Operations, RoundedTerm, SameBits
from symattn.proof.signs import never_negative
from tests.formats import NARROW


def _minus_one(xp: Any) -> Any:
    return xp.asarray(-1)


def _of(of: Callable[[Any, Any], Any]) -> Any:
    return proving.above_zero({}, lambda xp: of(xp, xp.asarray(2)), _minus_one)


def _shown(xp: Any, x: Any) -> Any:
    return xp.sqrt(x) + xp.log(x) + xp.erf(x) / xp.exp(x) - 2


SHOWN = _of(_shown)


def test_what_holds_in_numbers_is_proved():
    assert SHOWN.decide().evidence.grade is Grade.PROVED
    assert SHOWN.refute().refuted
    assert SHOWN.witness()
    assert not proving.above_zero({}, SHOWN.gap, SHOWN.gap).refute().refuted


def test_what_is_negative_is_refuted():
    assert _of(lambda xp, x: xp.sqrt(x) - x).decide().evidence.grade is Grade.REFUTED


def test_what_is_zero_or_has_no_value_is_not_proved():
    assert _of(lambda xp, x: xp.exp(xp.log(x)) - x).decide().evidence.grade is Grade.REFUTED
    for of in (
        lambda xp, x: xp.erf(x) - xp.erf(x),
        lambda xp, x: 1 / (xp.sqrt(x) * xp.sqrt(x) - x),
    ):
        assert _of(of).decide().evidence.grade is Grade.UNDECIDED


# -- the checker -------------------------------------------------------------------------------------------------------
def _certificate() -> dict[str, Any]:
    (record,) = proving.certificates((), SHOWN.decide().premises)
    return dict(copy.deepcopy(record))


ZERO = ["sum", ["number", "1"], ["number", "-1"]]
TAMPERED: dict[str, Callable[[dict[str, Any]], object]] = {
    "a number changed": lambda r: r["expression"].append(["number", "-1"]),
    "a letter": lambda r: r["expression"].append(["letter", "x", []]),
    "a size": lambda r: r["expression"].append(["size", "n"]),
    "a sum over a size": lambda r: r.update(expression=["total", "i", "n", r["expression"]]),
    "a function that the checker does not know": lambda r: r.update(expression=["function", "cos", r["expression"]]),
    "a mean": lambda r: r.update(expression=["function", "mean", r["expression"], ["function", "law of x"]]),
    "a divisor that is 0": lambda r: r.update(expression=["ratio", r["expression"], ZERO]),
    "a divisor that may be 0": lambda r: r.update(
        expression=["ratio", r["expression"], ["sum", ["function", "log", ["number", "1"]], ["number", "0"]]]
    ),
    "a logarithm of 0": lambda r: r["expression"].append(["function", "log", ZERO]),
    "the root of a negative number": lambda r: r["expression"].append(["function", "sqrt", ["number", "-1"]]),
    "a power beyond what is computed": lambda r: r["expression"].append(["exp", ["number", "10000"]]),
    "another relation": lambda r: r.update(relation="≥"),
    "no relation": lambda r: r.update(relation="="),
    "another rule": lambda r: r.update(kind="differing"),
    "what is equal to it": lambda r: r.update(equal=["number", "1"]),
    "a conclusion": lambda r: r.update(
        conclusions=[{"free": [], "smaller": ["number", "1"], "larger": r["expression"]}]
    ),
}  # fmt: skip


def test_the_checker_accepts_what_was_found():
    verdict = proving.check(_certificate())
    assert verdict.accepted, verdict.why
    assert not verdict.epsilon


@pytest.mark.parametrize("how", TAMPERED)
def test_what_is_tampered_with_is_refused(how: str):
    record = _certificate()
    TAMPERED[how](record)
    assert not proving.check(record).accepted


@pytest.mark.parametrize("name", _RISING)
def test_functions_of_the_checker_hold_those_of_arb(name: str):
    """Narrow, and around what Arb finds with many more bits; moved by its own width it does not hold the value."""
    random, before = Random(name), flint.ctx.prec
    flint.ctx.prec = 400
    try:
        for _ in range(200):
            x = Fraction(random.randint(-(10**6), 10**6), random.choice([10**3, 10**5, 10**6 + 3, 10**12]))
            x = abs(x) + Fraction(1, 10**9) if name in ("log", "sqrt") else x % 12 - 6 if name == "erf" else x
            low, high = _RISING[name](x)
            value = getattr(_arb(x), name)()
            assert not value < _arb(low)
            assert not value > _arb(high)
            assert high - low <= abs(high) * Fraction(1, 1 << 110)
            assert value < _arb(low + 2 * (high - low)) or low == high
    finally:
        flint.ctx.prec = before


def _arb(x: Fraction) -> Any:
    return flint.arb(flint.fmpq(x.numerator, x.denominator))


SIZES = [1, 4, 16, 256]


def holds(ball: flint.arb, value: float, relative: float) -> bool:
    return abs(float(ball.mid()) - value) <= relative * abs(value) + float(ball.rad())


def test_the_quartile() -> None:
    assert holds(gaussian.upper_quartile(), NormalDist().inv_cdf(0.75), 1e-14)


@pytest.mark.parametrize("d", SIZES)
def test_means_of_the_slope(d: int) -> None:
    deviation = mpmath.sqrt(2 * d)

    def integrand(x: mpmath.mpf) -> mpmath.mpf:
        return mpmath.sech(x / 2) ** 2 / 4 * mpmath.npdf(x, 0, deviation)

    with flint.ctx.workprec(128):
        found = gaussian.mean_slope(flint.arb(2 * d).sqrt())
    with mpmath.workdps(25):
        wanted = 2 * mpmath.quad(integrand, [0, 1, 3, 10, 30, 90])
    assert holds(found, float(wanted), 1e-13)
    assert not holds(found, float(wanted) * 1.001, 1e-13)
    assert float(found.rad()) < 1e-25


@pytest.mark.parametrize("d", SIZES)
def test_medians_of_the_slope(d: int) -> None:
    gap = NormalDist(0, (2 * d) ** 0.5).inv_cdf(0.75)
    wanted = float(mpmath.sech(gap / 2) ** 2 / 4)
    assert holds(gaussian.median_slope(flint.arb(2 * d).sqrt()), wanted, 1e-11)


def test_the_share_of_near_ties() -> None:
    law = NormalDist(0, 512**0.5)
    assert holds(gaussian.near_ties(flint.arb(512).sqrt()), law.cdf(1) - law.cdf(-1), 1e-12)


XY = proving.Declared({"x": "n", "y": "n"})


def method(sides, gap, declared=XY, **more):
    false = lambda x: (x * 0 + 1, x * 0)  # noqa: E731
    return replace(proving.bound(declared.arrays, sides, gap, false, **more), declared=declared)


def test_a_gap_that_is_the_difference_and_shows_its_sign_proves():
    found = method(lambda x, y: (2 * x * y, x * x + y * y), lambda x, y: (x - y) * (x - y)).decide()
    assert found.evidence.grade is Grade.PROVED


def test_a_gap_that_is_not_the_difference_does_not():
    found = method(lambda x, y: (x * y, x * x + y * y), lambda x, y: (x - y) * (x - y)).decide()
    assert found.evidence.grade is Grade.UNDECIDED


def test_a_gap_that_does_not_show_its_sign_does_not():
    found = method(lambda x, y: (2 * x * y, x * x + y * y), lambda x, y: x * x + y * y - 2 * x * y).decide()
    assert found.evidence.grade is Grade.UNDECIDED


def test_a_false_inequality_is_refuted_even_where_its_gap_is_the_difference():
    found = method(lambda x, y: (x * x, x * y), lambda x, y: x * y - x * x).decide()
    assert found.evidence.grade is Grade.REFUTED


def test_nothing_stated_is_not_proved():
    assert method(lambda x: [], lambda x: []).decide().evidence.grade is Grade.UNDECIDED


def test_hypotheses_may_be_used_and_are_looked_at_in_numbers():
    larger = {"gap": ("n", lambda x, y: y - x)}
    found = method(lambda x, y: (x, y), lambda gap: gap, assumed=larger)
    assert found.decide().evidence.grade is Grade.PROVED
    assert "n = " in found.witness()


def test_hypotheses_that_cannot_be_met_leave_no_witness():
    impossible = {"gap": ("n", lambda x: 0 * x - 1)}
    assert not method(lambda x: (x, x - 1), lambda gap: gap, assumed=impossible).witness()


def test_letters_declared_positive_count_and_others_do_not():
    assert method(
        lambda x: (0 * x, x), lambda x: x, proving.Declared({"x": "n"}, positive=("x",))
    ).decide().evidence.grade is (Grade.PROVED)
    assert method(lambda x: (0 * x, x), lambda x: x).decide().evidence.grade is Grade.REFUTED


def test_letters_that_are_not_negative_count_and_are_also_tried_at_0():
    declared = proving.Declared({"x": "n"}, nonnegative=("x",))
    assert method(lambda x: (0 * x, x), lambda x: x, declared).decide().evidence.grade is Grade.PROVED
    assert method(lambda x: (0 * x, x / x), lambda x: x / x, declared).decide().proofs[0].demands
    drawn = {entry for seed in range(9) for entry in proving.Numbers({"n": 3}, seed).array("x", "n", declared).tolist()}
    assert min(drawn) == 0


def test_of_several_false_variants_each_must_fail():
    def stated(*false):
        squares = proving.bound({"x": "n"}, lambda x: (0 * x, x * x), lambda x: x * x, false)
        return proving.decide(proving.Theorem("squares", "test", ("0 ≤ x²",), squares, "folklore", ("others",)))

    assert stated(lambda x: (x * x, 0 * x), lambda x: (x, x * x)).sound
    assert not stated(lambda x: (x * x, 0 * x), lambda x: (-(x * x), 0 * x)).sound


X, Y = kinds.Indexed.letters("x", "n"), kinds.Indexed.letters("y", "n")
XP = X.xp


def sign(x, *known):
    return all(never_negative(x.at(places), known) for places in x.places())


@pytest.mark.parametrize(
    "x",
    [
        X * X,
        X * X * X * X,
        XP.exp(X) / (1 + XP.exp(X)),
        XP.sum(X * X, axis=-1),
        XP.sqrt(X),
        XP.exp(X) - 1 - X,
        XP.exp(-X) - 1 + X,
        XP.exp(2 * X) - 1 - 2 * X,
        XP.exp(Y) - 1,
        XP.exp(Y) - 1 + Y,
        XP.exp(X * X) - 1,
        XP.sum(Y * (XP.exp(X) - 1 - X)),
        (X - XP.sum(X)) * (X - XP.sum(X)),
    ],
)
def test_what_is_never_negative(x):
    assert sign(x, "y")


@pytest.mark.parametrize(
    "x",
    [
        X,
        -X * X,
        X * X * X,
        X * X - 1,
        XP.exp(X) - 1,
        XP.exp(X) - 2 - X,
        XP.exp(X) - XP.exp(2 * X),
        XP.exp(X) / X,
        XP.max(X, axis=-1),
        XP.tanh(X),
        XP.sum(X, axis=-1),
        X * Y,
        XP.exp(Y) - 2,
        XP.exp(X) - 1 - 2 * X,
        XP.exp(X) - 1 + X,
        XP.exp(Y) - 1 - Y - Y,
        2 - XP.exp(Y),
        (X - XP.sum(X)) * (X + XP.sum(X)),
    ],
)
def test_what_the_form_does_not_show(x):
    assert not sign(x, "y")


def test_only_the_arrays_that_are_named_are_known():
    assert sign(X, "x")
    assert not sign(kinds.Indexed.letters("xy", "n"), "x")
    assert not sign(X * Y, "x")


# -- Statements about number formats, computations that give the same bits, and their certificates ---------------------
KNOWN = {  # digits, largest, smallest
    "float32": (24, Fraction(2**24 - 1) * 2**104, Fraction(1, 2**149)),
    "float16": (11, Fraction(65504), Fraction(1, 2**24)),
    "bfloat16": (8, Fraction(255) * 2**120, Fraction(1, 2**133)),
    "float8_e4m3fn": (4, Fraction(448), Fraction(1, 2**9)),
    "float8_e5m2": (3, Fraction(57344), Fraction(1, 2**16)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_formats_are_what_their_standards_say(name: str):
    f = Format(name)
    assert (f.digits, f.largest, f.smallest) == KNOWN[name]
    assert f.u == Fraction(1, 2**f.digits)
    assert f.power_beyond / 2 <= f.largest < f.power_beyond


@pytest.mark.parametrize("name", NARROW)
def test_numbers_are_all_finite_ones(name: str):
    f = Format(name)
    every = f.numbers().astype(np.float64)
    assert every.max() == float(f.largest)
    assert every[every > 0].min() == float(f.smallest)
    assert len(set(every)) == len(every) - 1  # two zeros


@pytest.mark.parametrize("name", KNOWN)
def test_neighbours_are_on_both_sides(name: str):
    f = Format(name)
    for x in (-17.3, -0.1, 0.3, 5.7, 11.09):
        low, high = f.neighbours(x)
        assert low < x < high
        assert float(f.cast((low + high) / 2)) in (low, high)


# -- the same bits -----------------------------------------------------------------------------------------------------


def _left(a, b, c):
    return [(a + b) + c]


def _right(a, b, c):
    return [a + (b + c)]


def _both(a, b, c):
    return _left(a, b, c), _right(a, b, c)


def _exchanged(a, b, c):
    return _left(a, b, c), [c + (b + a)]


def test_sums_commute_and_do_not_associate():
    found = SameBits(3, _exchanged, _both)
    assert found.decide().evidence.grade is Grade.PROVED
    assert found.refute().refuted
    assert not found.refute().accepted
    assert found.witness()


def test_other_operations_are_not_the_same():
    assert SameBits(3, _both, _both).decide().evidence.grade is Grade.UNDECIDED
    assert SameBits(3, lambda a, b, c: ([a - b], [b - a]), _both).decide().evidence.grade is Grade.UNDECIDED
    assert SameBits(3, lambda a, b, c: ([a / b], [b / a]), _both).decide().evidence.grade is Grade.UNDECIDED
    doubled = SameBits(3, lambda a, b, c: ([a * b + a * c], [a * (b + c)]), _both)
    assert doubled.decide().evidence.grade is Grade.UNDECIDED


def test_what_is_the_same_is_not_refuted():
    found = SameBits(3, _exchanged, _exchanged)
    assert not found.refute().refuted
    assert found.refute().accepted
    assert found.decide().evidence.grade is Grade.UNDECIDED


def test_terms_are_made_of_terms():
    a, b = RoundedTerm("a"), RoundedTerm("b")
    assert Operations.maximum(a, b) == Operations.maximum(b, a)
    assert Operations.exp(a) != Operations.exp(b)
    with pytest.raises(Refused):
        a + 1


KINDS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def _of_formats() -> dict[str, Any]:
    decision = theorems.theorem_of("rounding", "merge-rounding-commutes").method.decide()
    assert decision.evidence.grade is Grade.PROVED
    (record,) = proving.certificates((), decision.premises)
    return dict(copy.deepcopy(record))


def _another(r: dict[str, Any], old: str, new: str, n: int = 0) -> None:
    """The n-th operation of a kind is another one."""
    found = [term for term in r["terms"] if term[0] == old]
    found[n][0] = new


TAMPERED_FORMATS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a product for a sum": lambda r: _another(r, "+", "×"),
    "a difference for a sum": lambda r: _another(r, "+", "−"),
    "a difference turned round": lambda r: next(t for t in r["terms"] if t[0] == "−").reverse(),
    "an operand that comes later": lambda r: r["terms"][2].__setitem__(1, len(r["terms"]) - 1),
    "inputs changed": lambda r: r.update(inputs=["1/2"] * 9),
    "inputs that are zero": lambda r: r.update(inputs=["0"] * 9),
    "an input that is not a number of the format": lambda r: r["inputs"].__setitem__(4, "1/3"),
    "an input dropped": lambda r: r["inputs"].pop(),
    "a maximum of its own": lambda r: r["inputs"].__setitem__(0, "1"),
    "a format that is finer": lambda r: r.update(format="float64"),
    "a result dropped": lambda r: r["same"][0].pop(),
    "nothing stated": lambda r: r.update(same=[[], []]),
    "both bracketings called the same": lambda r: r.update(same=r["different"]),
    "the same called different": lambda r: r.update(different=r["same"]),
    "another rule": lambda r: r.update(kind="sign"),
    "a number for a truth": lambda r: next(t for t in r["terms"] if t[0] == "where").__setitem__(1, 0),
}


def test_the_checker_accepts_what_was_found_of_formats():
    verdict = proving.check(_of_formats())
    assert verdict.accepted, verdict.why


@pytest.mark.parametrize("how", TAMPERED_FORMATS)
def test_what_is_tampered_with_in_formats_is_refused(how: str):
    record = _of_formats()
    TAMPERED_FORMATS[how](record)
    assert not proving.check(record).accepted


def test_what_rests_on_another_exponential_than_that_of_zero_is_not_proved():
    merge_commutes = theorems.theorem_of("rounding", "merge-rounding-commutes").method
    untied = SameBits(merge_commutes.inputs, merge_commutes.same, merge_commutes.different)
    assert untied.decide().evidence.grade is Grade.UNDECIDED


@pytest.mark.parametrize("name", FORMATS)
def test_the_checker_rounds_as_formats_do(name: str):
    random = Random(name)
    for _ in range(500):
        x = float(np.float32(random.gauss(0, 1) * 2.0 ** random.randint(-30, 10)))
        assert FORMATS[name](Fraction(x)) == Fraction(float(KINDS[name](x)))
    ties = 1 + Fraction(1, 2 ** FORMATS[name].digits)
    assert FORMATS[name](ties) == 1
    assert FORMATS[name](ties + Fraction(1, 2**60)) > 1
