"""Strict inequalities on boxes, and their certificates: the checker encloses every value by itself.

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
from symattn.proof.boxes import EnclosedOverBox
from symattn.proof.certified import certificates
from symattn.proof.checker import check
from symattn.proof.checker_balls import _RISING

SIDE = (Fraction(-1), Fraction(1))
BOX = {"x": SIDE, "y": SIDE}
NAUGHT = Fraction(1, 100)


def _above(xp: Any, x: Any, y: Any) -> Any:
    return x * x + y * y - x * y + NAUGHT


def _minus_one(xp: Any, **_: Any) -> Any:
    return xp.asarray(-1)


def test_what_holds_everywhere_is_proved():
    method = EnclosedOverBox(_above, BOX, lambda xp, x, y: x + y)
    decision = method.decide()
    assert decision.evidence.grade is Grade.PROVED
    assert "[-1, 1] × [-1, 1]" in decision.evidence.where
    assert method.refute().refuted
    assert method.witness()


@pytest.mark.parametrize("least", [Fraction(-1, 1000), Fraction(-1)])
def test_what_fails_somewhere_is_refuted(least: Fraction):
    method = EnclosedOverBox(lambda xp, x: x * x + least, {"x": SIDE}, lambda xp, x: x)
    assert method.decide().evidence.grade is Grade.REFUTED


def test_what_is_zero_at_a_point_stays_open():
    box = {"x": (Fraction(-1, 3), Fraction(1))}
    method = EnclosedOverBox(lambda xp, x: x * x, box, lambda xp, x: x, pieces=200)
    assert method.decide().evidence.grade is Grade.UNDECIDED


def test_the_ends_of_the_box_belong_to_it():
    method = EnclosedOverBox(lambda xp, x: 1 - x * x, {"x": SIDE}, lambda xp, x: x, pieces=400)
    assert method.decide().evidence.grade not in (Grade.PROVED, Grade.ARGUED)


def test_a_true_variant_is_not_refuted():
    assert not EnclosedOverBox(lambda xp, x: x + 2, {"x": SIDE}, lambda xp, x: x + 2).refute().refuted


def test_a_statement_in_numbers_has_no_box():
    decision = EnclosedOverBox(lambda xp: xp.sqrt(xp.asarray(2)) - 1, {}, _minus_one).decide()
    assert decision.evidence.grade is Grade.PROVED
    open_one = EnclosedOverBox(lambda xp: xp.exp(xp.log(xp.asarray(2))) - 2, {}, _minus_one)
    assert open_one.decide().evidence.grade is Grade.UNDECIDED


def test_a_piece_where_a_function_has_no_value_is_cut():
    box = {"x": (Fraction(1, 100), Fraction(1))}
    method = EnclosedOverBox(lambda xp, x: 1 / x + xp.log(x) + xp.erf(x) - x, box, _minus_one)
    assert method.decide().evidence.grade is Grade.PROVED


# -- the checker -------------------------------------------------------------------------------------------------------
def _certificate() -> dict[str, Any]:
    (record,) = certificates((), EnclosedOverBox(_above, BOX, _minus_one).decide().premises)
    return dict(copy.deepcopy(record))


def _first_ball(tree: list[Any]) -> list[Any]:
    return tree if tree[0] == "ball" else _first_ball(tree[3])


def _smaller_radius(r: dict[str, Any]) -> None:
    ball = _first_ball(r["pieces"])
    ball[2] = str(Fraction(ball[2]) / 3)


def _moved(r: dict[str, Any]) -> None:
    ball = _first_ball(r["pieces"])
    ball[1] = str(Fraction(ball[1]) + 2 * Fraction(ball[2]))


def _whole(r: dict[str, Any]) -> None:
    """One ball in the place of all pieces."""
    r["pieces"] = _first_ball(r["pieces"])


def _wide(r: dict[str, Any]) -> None:
    ball = _first_ball(r["pieces"])
    ball[2] = str(Fraction(ball[1]) * 2)


TAMPERED: dict[str, Callable[[dict[str, Any]], object]] = {
    "a radius made smaller": _smaller_radius,
    "a middle that is moved": _moved,
    "a ball that holds negative numbers": _wide,
    "pieces left out": _whole,
    "a piece put in the place of another": lambda r: r["pieces"].__setitem__(3, r["pieces"][4]),
    "a larger box": lambda r: r["box"][0].__setitem__(2, "2"),
    "a letter without an interval": lambda r: r["box"].pop(),
    "a number changed": lambda r: r["expression"].__setitem__(1, ["number", "-1/100"]),
    "a function that the checker does not know": lambda r: r.update(expression=["function", "cos", r["expression"]]),
    "a divisor that may be 0": lambda r: r.update(expression=["ratio", ["number", "1"], ["letter", "x", []]]),
    "a cut outside": lambda r: r["pieces"].__setitem__(2, "3"),
    "another relation": lambda r: r.update(relation="≥"),
    "another rule": lambda r: r.update(kind="sign"),
    "an interval turned round": lambda r: r["box"].__setitem__(0, ["x", "1", "-1"]),
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
