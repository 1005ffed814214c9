"""Signs of numbers, and their certificates: the checker encloses every value by itself.

Enclosures of normal means and quantiles are held against other programs.
"""

import copy
from collections.abc import Callable
from fractions import Fraction
from random import Random
from statistics import NormalDist
from typing import Any

import flint
import mpmath
import pytest

from symattn.document.evidence import Grade
from symattn.proof import gaussian
from symattn.proof.certified import certificates
from symattn.proof.checker import check
from symattn.proof.checker_balls import _RISING
from symattn.proof.inequality import Certificate
from symattn.proof.together import above_zero


def _minus_one(xp: Any) -> Any:
    return xp.asarray(-1)


def _of(of: Callable[[Any, Any], Any]) -> Certificate:
    return above_zero({}, lambda xp: of(xp, xp.asarray(2)), _minus_one)


def _shown(xp: Any, x: Any) -> Any:
    return xp.sqrt(x) + xp.log(x) + xp.erf(x) / xp.exp(x) - 2


SHOWN = _of(_shown)


def test_what_holds_in_numbers_is_proved():
    assert SHOWN.decide().evidence.grade is Grade.PROVED
    assert SHOWN.refute().refuted
    assert SHOWN.witness()
    assert not above_zero({}, SHOWN.gap, SHOWN.gap).refute().refuted


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
    (record,) = certificates((), SHOWN.decide().premises)
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
    verdict = check(_certificate())
    assert verdict.accepted, verdict.why
    assert not verdict.epsilon


@pytest.mark.parametrize("how", TAMPERED)
def test_what_is_tampered_with_is_refused(how: str):
    record = _certificate()
    TAMPERED[how](record)
    assert not check(record).accepted


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
