"""What holds up to a number that a statement computes, or from one on, is not checked; no cast is taken for nothing."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any

import pytest

from symattn import Attention
from symattn.document.evidence import Grade
from symattn.proof.literals import named
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity
from tests.proof.test_false_statements import abs_, least, relu, softmax, top, xp

Sides = Callable[..., Any]
VECTOR, SELF = Declared({"x": "n"}), Declared({"q": "n d", "k": "n d", "v": "n e"})
CAUSAL = Attention(causal=True)


class Cut:
    value = 54321


LIMITS = [7.5e5]


def first(x: Any, n: Any, below: Any) -> Any:
    """|x| at the places below a number, 0 elsewhere."""
    return xp(x).where(xp(x).arange(n) < below, abs_(x), 0 * x)


def windowed(width: int) -> Sides:
    return lambda q, k, v: (Attention(causal=True, window=width)(q, k, v), CAUSAL(q, k, v))


FALSE: dict[str, tuple[Declared, Sides]] = {
    "cut at a float": (VECTOR, lambda x: (abs_(x), least(abs_(x), 1e6))),
    "cut at a fraction": (VECTOR, lambda x: (abs_(x), least(abs_(x), Fraction(10**7, 3)))),
    "cut at 11!": (VECTOR, lambda x: (abs_(x), least(abs_(x), math.factorial(11)))),
    "cut at a number of a class": (VECTOR, lambda x: (abs_(x), least(abs_(x), Cut.value))),
    "cut at a number in a text": (VECTOR, lambda x: (abs_(x), least(abs_(x), int("123456")))),
    "cut at a float of the module": (VECTOR, lambda x: (abs_(x), least(abs_(x), LIMITS[0]))),
    "positive, cut at a float": (Declared({"x": "n"}, positive=("x",)), lambda x: (least(x, 12345.678), x)),
    "0 below a tiny number": (VECTOR, lambda x: (xp(x).where(abs_(x) < 1e-9, 0 * x, x), x)),
    "off by a tiny number": (VECTOR, lambda x: (relu(x), relu(x - Fraction(1, 10**12)))),
    "0 at one number": (VECTOR, lambda x: (xp(x).where(x == Fraction(12345, 7), 0 * x, x), x)),
    "0 at one float": (VECTOR, lambda x: (xp(x).where(x == 12345.625, 0 * x, x), x)),
    "the first 4! places": (VECTOR, lambda x, n: (first(x, n, math.factorial(4)), abs_(x))),
    "the first 8! places": (VECTOR, lambda x, n: (first(x, n, math.factorial(8)), abs_(x))),
    "the places below a float": (VECTOR, lambda x, n: (first(x, n, 40.5), abs_(x))),
    "a window of a text": (SELF, lambda q, k, v: windowed(int("17"))(q, k, v)),
    "sizes up to 9": (VECTOR, lambda x, n: (reduce(lambda a, k: a * (n - k), range(1, 10), 1) * top(x), 0 * top(x))),
    "of order 60": (Declared({"x": "n"}, {"pi": "n"}), lambda x, pi: (reduce(lambda a, _: a[pi], range(60), x), x)),
    "a cast to float32": (VECTOR, lambda x: (xp(x).astype(x, xp(x).float32), x)),
    "a cast there and back": (VECTOR, lambda x: (xp(x).astype(x, xp(x).float32).astype(xp(x).float64), x)),
    "hard weights": (Declared({"s": "n m"}), lambda s: (softmax(1000 * s), xp(s).where(s == top(s), 0 * s + 1, 0 * s))),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_holds_up_to_a_number_is_not_checked(name: str) -> None:
    declared, sides = FALSE[name]
    decision = Identity(declared, sides, sides).decide()
    assert decision.evidence.grade in (Grade.REFUTED, Grade.UNDECIDED), decision
    assert decision.evidence.where


TRUE: dict[str, tuple[Declared, Sides]] = {
    "cut twice": (VECTOR, lambda x: (least(least(x, 1e6), 2.5), least(x, 2.5))),
    "cut at the larger of two": (VECTOR, lambda x: (relu(x - 1e-9) + least(x, 1e-9), x)),
    "a window of one": (SELF, lambda q, k, v: (Attention(causal=True, window=1)(q, k, v), v + 0 * q[:, :1])),
}


@pytest.mark.parametrize("name", TRUE)
def test_true_statements_with_numbers_stay_checked(name: str) -> None:
    decision = Identity(*TRUE[name], false=()).decide()
    assert decision.evidence.grade in (Grade.PROVED, Grade.CHECKED), decision


def test_numbers_are_met_where_a_statement_runs() -> None:
    found = named(lambda x, n: (first(x, n, math.factorial(4)), least(x, math.factorial(5) + 0.5)), VECTOR)
    assert 24 in found.sizes
    assert Fraction(241, 2) in found.numbers
    assert not {0, 1} & {*found.numbers}


def test_what_is_drawn_is_not_met() -> None:
    assert named(lambda x: (x * x, x**2), VECTOR).numbers in ((), (Fraction(2),))


@pytest.mark.parametrize("work", [lambda x: x % 2, lambda x: x // 2, lambda x: 7 % x])
def test_remainders_are_refused_by_name(work: Sides) -> None:
    decision = Identity(VECTOR, lambda x: (work(x), x), ()).decide()
    assert decision.evidence.grade is not Grade.PROVED
    assert "lacks" in str(decision)
