"""False statements that look true are refuted or undecided; what holds up to a computed number is not checked.

Beside identities there are inequalities, whose gap looks right. True statements: ``test_true_statements.py``.
"""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

import pytest

from symattn import Attention, Grade, proving
from symattn.proof.expectation import NORMAL, law_with
from symattn.proof.refuting import named
from symattn.proof.relations.glossary import Glossary
from symattn.theorems.texts import theorems
from tests.proof.identities import averaged
from tests.proof.stated import (
    abs_,
    before,
    centred,
    layer_norm,
    least,
    lse,
    neither_proved_nor_checked,
    norm,
    relu,
    rms,
    softmax,
    squares,
    top,
    total,
    xp,
)

Sides = Callable[..., Any]
Stated = dict[str, tuple[proving.Declared, Sides]]
PLAIN, CAUSAL = Attention(), Attention(causal=True)
VECTOR, ONE, PAIR, SCORES = {"x": "n"}, {"x": ""}, {"x": "n", "y": "n"}, {"s": "n m"}
QKV, SELF = {"q": "n d", "k": "m d", "v": "m e"}, {"q": "n d", "k": "n d", "v": "n e"}
ALONE = proving.Declared(VECTOR)


def power_sum(x: Any, k: int) -> Any:
    return xp(x).sum(x**k)


def fourth(x: Any) -> Any:
    p, q, r, s = (power_sum(x, k) for k in (1, 2, 3, 4))
    return p * p * p * p - 6 * p * p * q + 3 * q * q + 8 * p * r - 6 * s


def roots_of(x: Any, numbers: range) -> Any:
    product = 2 * x - numbers[0]
    for k in numbers[1:]:
        product = product * (2 * x - k)
    return product


def weights(f: Sides) -> Sides:
    """∂ Σ f(s) u / ∂ s."""
    return lambda s, u: proving.gradient(lambda s, u: xp(s).sum(f(s) * u), "s", s=s, u=u)


MANY: Stated = {
    "maximum of a sum": (proving.Declared(PAIR), lambda x, y: (top(x + y), top(x) + top(y))),
    "root of a square": (proving.Declared(VECTOR), lambda x: (xp(x).sqrt(x * x), x)),
    "layer norm of a multiple": (
        proving.Declared({"a": "", "x": "m n"}),
        lambda a, x: (layer_norm(a * x), layer_norm(x)),
    ),
    "cut off at 1000000": (proving.Declared(VECTOR), lambda x: (abs_(x), least(abs_(x), 1000000))),
    "of order six": (proving.Declared(VECTOR, {"pi": "n"}), lambda x, pi: (x[pi][pi][pi][pi][pi][pi], x)),
    "permutations commute": (
        proving.Declared(VECTOR, {"pi": "n", "rho": "n"}),
        lambda x, pi, rho: (x[pi][rho], x[rho][pi]),
    ),
    "the logarithm of a sum of powers": (
        proving.Declared(VECTOR),
        lambda x: (xp(x).log(xp(x).sum(xp(x).exp(x))), top(x)[0]),
    ),
    "a corner far away": (proving.Declared(ONE), lambda x: (xp(x).maximum(x, 0 * x + 12345) - 12345, relu(x - 12344))),
    "another value where the divisor is zero": (
        proving.Declared(VECTOR),
        lambda x: (xp(x).where(x != 0, x / xp(x).where(x != 0, x, 0 * x + 1), 0 * x), 0 * x + 1),
    ),
    "rows of length 1, even those of zeros": (
        proving.Declared({"x": "m n"}),
        lambda x: (squares(x) / xp(x).where(squares(x) == 0, 0 * squares(x) + 1, squares(x)), 0 * squares(x) + 1),
    ),
    "a cast to whole numbers": (proving.Declared(VECTOR), lambda x: (xp(x).astype(x, xp(x).int64), x)),
    "its double by name": (proving.Declared(VECTOR), lambda x: (x * xp(x).pi * 2**48, 884279719003555 * x)),
    "a unit of its own": (proving.Declared({"c": "n", "s": "n"}, units=(("c", "s"),)), lambda c, s: (c + s, 0 * s + 1)),
    "overlapping units": (
        proving.Declared({"c": "n", "s": "n", "t": "n"}, units=(("c", "s"), ("c", "t"))),
        lambda c, s, t: (s, t),
    ),
    "e4": (proving.Declared(VECTOR), lambda x: (fourth(x), 0)),
    "zero at halves, with a maximum": (proving.Declared(ONE), lambda x: (relu(x) * roots_of(x, range(-4, 5)), 0 * x)),
}
OF_ATTENTION: Stated = {
    "softcap": (proving.Declared(QKV), lambda q, k, v: (Attention(softcap=50)(q, k, v), PLAIN(q, k, v))),
    "a window of 40": (
        proving.Declared(SELF),
        lambda q, k, v: (Attention(causal=True, window=40)(q, k, v), CAUSAL(q, k, v)),
    ),
    "a prefix of 70": (
        proving.Declared(SELF),
        lambda q, k, v: (Attention(causal=True, prefix=70)(q, k, v), PLAIN(q, k, v)),
    ),
    "one more key": (
        proving.Declared({**QKV, "a": "1 d", "b": "1 e"}),
        lambda q, k, v, a, b: (
            PLAIN(q, xp(k).concat([k, a], axis=0), xp(v).concat([v, b], axis=0)),
            PLAIN(q, k, v) + b,
        ),
    ),
    "halves averaged": (
        proving.Declared({**QKV, "j": "p d", "w": "p e"}),
        lambda q, k, v, j, w: (
            PLAIN(q, xp(k).concat([k, j], axis=0), xp(v).concat([v, w], axis=0)),
            (PLAIN(q, k, v) + PLAIN(q, j, w)) / 2,
        ),
    ),
    "keys in another order": (
        proving.Declared(QKV, {"pi": "m"}),
        lambda q, k, v, pi: (PLAIN(q, k[pi], v), PLAIN(q, k, v)),
    ),
    "causal tokens in another order": (
        proving.Declared({"x": "n d"}, {"pi": "n"}),
        lambda x, pi: (CAUSAL(x[pi], x[pi], x[pi]), CAUSAL(x, x, x)[pi]),
    ),
    "a zero sink": (proving.Declared(QKV), lambda q, k, v: (Attention(sink="zero")(q, k, v), PLAIN(q, k, v))),
    "scaled by the size": (proving.Declared(QKV), lambda q, k, v: (Attention(scale="1/d_k")(q, k, v), PLAIN(q, k, v))),
    "values twice": (proving.Declared(SELF), lambda q, k, v: (PLAIN(q, k, PLAIN(q, k, v)), PLAIN(q, k, v))),
    "softmax twice": (proving.Declared(SCORES), lambda s: (softmax(softmax(s)), softmax(s))),
    "softmax of minus": (proving.Declared(SCORES), lambda s: (softmax(-s), 1 - softmax(s))),
    "softmax shifted by columns": (
        proving.Declared({"s": "n m", "t": "1 m"}),
        lambda s, t: (softmax(s + t), softmax(s)),
    ),
    "a sum of logarithms": (proving.Declared({"s": "n m", "t": "n m"}), lambda s, t: (lse(s + t), lse(s) + lse(t))),
    "rms of a multiple": (proving.Declared({"a": "", "x": "m n"}), lambda a, x: (rms(a * x), rms(x))),
    "queries mixed as values": (
        proving.Declared({**QKV, "w": "d d"}),
        lambda q, k, v, w: (PLAIN(q @ w, k, v), PLAIN(q, k @ w, v)),
    ),
}
OF_SUMS_SLOPES_AND_MEANS: Stated = {
    "columns sum to 1": (proving.Declared(SCORES), lambda s: (xp(s).sum(softmax(s), axis=0), 0 * s[0] + 1)),
    "variance by n − 1": (
        proving.Declared({"x": "m n"}),
        lambda x, n: (total(centred(x) ** 2) * n, (n - 1) * total(x * x)),
    ),
    "the norm adds": (proving.Declared(PAIR), lambda x, y: (norm(x + y), norm(x) + norm(y))),
    "the slope of softmax": (
        proving.Declared({"s": "m", "u": "m"}),
        lambda s, u: (weights(softmax)(s, u), softmax(s) * (1 - softmax(s)) * u),
    ),
    "the slope of relu": (proving.Declared({"s": "m", "u": "m"}), lambda s, u: (weights(relu)(s, u), u)),
    "the slope of a square": (
        proving.Declared({"s": "m", "u": "m"}),
        lambda s, u: (weights(lambda s: s * s)(s, u), s * u),
    ),
    "Gauss without one": (
        proving.Declared(VECTOR),
        lambda x, n: (2 * xp(x).sum(xp(x).where(before(x, n), 1, 0)), n * n),
    ),
    "what comes before": (
        proving.Declared({"x": "n"}),
        lambda x, n: (xp(x).sum(xp(x).where(before(x, n), x[None, :], 0), axis=1), xp(x).cumulative_sum(x) - x),
    ),
    "one size, by its square": (proving.Declared(VECTOR), lambda x, n: (x * (n * n == 6889), 0 * x)),
    "sizes up to 5": (
        proving.Declared(VECTOR),
        lambda x, n: (xp(x).sum(x) * ((n - 1) * (n - 2) * (n - 3) * (n - 4) * (n - 5)), 0 * xp(x).sum(x)),
    ),
    "a root of 2": (proving.Declared(VECTOR), lambda x: (x * xp(x).sqrt(xp(x).asarray(2)), x * Fraction(99, 70))),
    "a square of a mean": (
        proving.Declared({"x": "", "s": "", "m": ""}, positive=("s",)),
        averaged(lambda E, s, m: (E(lambda x: x * x), m * m), {"x": law_with("s", "m")}),
    ),
    "one letter twice": (
        proving.Declared({"x": "n", "s": ""}, positive=("s",)),
        averaged(lambda E, s, n: (E(lambda x: xp(x).sum(x) ** 4), n * s**4), {"x": law_with("s")}),
    ),
    "the third moment of any law": (
        proving.Declared({"x": "", "s": ""}, positive=("s",)),
        averaged(lambda E, s: (E(lambda x: x**3), 0 * s), {"x": law_with("s")}),
    ),
    "the fourth moment of the normal": (
        proving.Declared({"x": "n"}),
        averaged(lambda E, n: (E(lambda x: xp(x).sum(x * x) ** 2), n * n), {"x": NORMAL}),
    ),
    "the sixth moment": (proving.Declared({"x": ""}), averaged(lambda E: (E(lambda x: x**6), 9), {"x": NORMAL})),
}


#: Those that need not be refuted: no numbers tried show that they fail.
HARD = ("a cast to whole numbers", "its double by name", "the sixth moment")


@pytest.mark.parametrize("name", MANY)
def test_what_looks_true_is_neither_proved_nor_checked(name: str) -> None:
    neither_proved_nor_checked(*MANY[name], hard=name in HARD)


@pytest.mark.parametrize("name", OF_ATTENTION)
def test_a_false_statement_about_attention_is_neither_proved_nor_checked(name: str) -> None:
    neither_proved_nor_checked(*OF_ATTENTION[name], hard=name in HARD)


@pytest.mark.parametrize("name", OF_SUMS_SLOPES_AND_MEANS)
def test_a_false_statement_about_sums_slopes_or_means_is_neither_proved_nor_checked(name: str) -> None:
    neither_proved_nor_checked(*OF_SUMS_SLOPES_AND_MEANS[name], hard=name in HARD)


def test_a_size_that_no_square_meets_refutes_nothing() -> None:
    def sides(x: Any, n: Any) -> Any:
        return x * (n * n == 6890), 0 * x

    assert proving.Identity(proving.Declared(VECTOR), sides, sides).decide().evidence.grade is not Grade.REFUTED


def swallowed(x: Any, n: Any) -> Any:
    try:
        return x + (int(n) > 3), x
    except Exception:
        return x, x


@lru_cache
def looked_up(n: Any) -> int:
    return n == 33


def number_above(n: Any, least: int) -> bool:
    return type(n).__name__ == "int" and n > least


ASKED_OF_SIZES: dict[str, Callable[..., Any]] = {
    "a table": lambda x, n: (x + {101: 1}.get(n, 0), x),
    "a set of shapes": lambda x: (x + (x.shape in {(77,)}), x),
    "a cache": lambda x, n: (x + looked_up(n), x),
    "its text": lambda x, n: (x + (str(n) == "106"), x),
    "a text with it": lambda x, n: (x + (f"{n}" == "107"), x),
    "its type": lambda x, n: (x + (isinstance(n, int) and n > 70), x),
    "its own type": lambda x, n: (x + (type(n) is int and n > 70), x),
    "its own type, in a function": lambda x, n: (x + number_above(n, 70), x),
    "an attribute of numbers": lambda x, n: (x + (hasattr(n, "bit_length") and n > 70), x),
    "a number, and else it goes on": swallowed,
}


@pytest.mark.parametrize("name", ASKED_OF_SIZES)
def test_what_letters_for_sizes_cannot_answer_is_never_proved(name: str) -> None:
    sides = ASKED_OF_SIZES[name]
    evidence = proving.Identity(proving.Declared(VECTOR), sides, sides).decide().evidence
    assert evidence.grade in (Grade.REFUTED, Grade.UNDECIDED), evidence
    assert evidence.grade is Grade.REFUTED or re.search("the code asks for (types|.* of n)|n,", evidence.where)


def test_statements_may_take_parameters_by_place() -> None:
    def sides(x: Any, n: Any, /) -> Any:
        return x * n, n * x

    assert proving.Identity(proving.Declared(VECTOR), sides, sides).decide().evidence.grade is Grade.PROVED


UNLIKE = {"x": "n m", "y": "k m"}
ZEROS = (lambda x, y: (0 * x, 0 * y), lambda x, y: (0 * x + 0 * y, 0 * x), lambda x, y: (x - x, 0 * (x @ y.mT)))
(TYPED,) = theorems("any", "typed: T\n$0 x + 0 y = 0 x$\nfalse: $x = 2 x$", {"": Glossary(UNLIKE)})


@pytest.mark.parametrize(
    "method", [TYPED.method, *(proving.Identity(proving.Declared(UNLIKE), sides, ()) for sides in ZEROS)]
)
def test_shapes_that_fit_by_chance_alone_are_refused_in_a_line(method: Any) -> None:
    evidence = method.decide().evidence
    assert evidence.grade is Grade.UNDECIDED
    assert re.search("shapes do not fit at k = .*$", evidence.where)


def test_errors_of_a_statement_itself_are_raised() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        proving.Identity(proving.Declared({"x": "n"}), lambda x: float("x"), ()).decide()


class Cut:
    value = 54321


def first(x: Any, n: Any, below: Any) -> Any:
    """|x| at the places below a number, 0 elsewhere."""
    return xp(x).where(xp(x).arange(n) < below, abs_(x), 0 * x)


def windowed(width: int) -> Sides:
    return lambda q, k, v: (Attention(causal=True, window=width)(q, k, v), CAUSAL(q, k, v))


FALSE: Stated = {
    "cut at a float": (ALONE, lambda x: (abs_(x), least(abs_(x), 1e6))),
    "cut at 11!": (ALONE, lambda x: (abs_(x), least(abs_(x), math.factorial(11)))),
    "cut at a number of a class": (ALONE, lambda x: (abs_(x), least(abs_(x), Cut.value))),
    "cut at a number in a text": (ALONE, lambda x: (abs_(x), least(abs_(x), int("123456")))),
    "positive, cut at a float": (proving.Declared({"x": "n"}, positive=("x",)), lambda x: (least(x, 12345.678), x)),
    "0 below a tiny number": (ALONE, lambda x: (xp(x).where(abs_(x) < 1e-9, 0 * x, x), x)),
    "off by a tiny number": (ALONE, lambda x: (relu(x), relu(x - Fraction(1, 10**12)))),
    "0 at one float": (ALONE, lambda x: (xp(x).where(x == 12345.625, 0 * x, x), x)),
    "the first 8! places": (ALONE, lambda x, n: (first(x, n, math.factorial(8)), abs_(x))),
    "the places below a float": (ALONE, lambda x, n: (first(x, n, 40.5), abs_(x))),
    "a window of a text": (proving.Declared(SELF), lambda q, k, v: windowed(int("17"))(q, k, v)),
    "sizes up to 9": (ALONE, lambda x, n: (reduce(lambda a, k: a * (n - k), range(1, 10), 1) * top(x), 0 * top(x))),
    "of order 60": (
        proving.Declared({"x": "n"}, {"pi": "n"}),
        lambda x, pi: (reduce(lambda a, _: a[pi], range(60), x), x),
    ),
    "a cast to float32": (ALONE, lambda x: (xp(x).astype(x, xp(x).float32), x)),
    "hard weights": (
        proving.Declared({"s": "n m"}),
        lambda s: (softmax(1000 * s), xp(s).where(s == top(s), 0 * s + 1, 0 * s)),
    ),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_holds_up_to_a_number_is_not_checked(name: str) -> None:
    neither_proved_nor_checked(*FALSE[name])


TRUE: Stated = {
    "cut twice": (ALONE, lambda x: (least(least(x, 1e6), 2.5), least(x, 2.5))),
    "cut at the larger of two": (ALONE, lambda x: (relu(x - 1e-9) + least(x, 1e-9), x)),
    "a window of one": (
        proving.Declared(SELF),
        lambda q, k, v: (Attention(causal=True, window=1)(q, k, v), v + 0 * q[:, :1]),
    ),
}


@pytest.mark.parametrize("name", TRUE)
def test_true_statements_with_numbers_stay_checked(name: str) -> None:
    decision = proving.Identity(*TRUE[name], false=()).decide()
    assert decision.evidence.grade in (Grade.PROVED, Grade.CHECKED), decision


def test_numbers_are_met_where_a_statement_runs() -> None:
    found = named(lambda x, n: (first(x, n, math.factorial(4)), least(x, math.factorial(5) + 0.5)), ALONE)
    assert 24 in found.sizes
    assert Fraction(241, 2) in found.numbers
    assert not {0, 1} & {*found.numbers}


def test_what_is_drawn_is_not_met() -> None:
    assert named(lambda x: (x * x, x**2), ALONE).numbers in ((), (Fraction(2),))


@pytest.mark.parametrize("work", [lambda x: x % 2, lambda x: x // 2, lambda x: 7 % x])
def test_remainders_are_refused_by_name(work: Sides) -> None:
    decision = proving.Identity(ALONE, lambda x: (work(x), x), ()).decide()
    assert decision.evidence.grade is not Grade.PROVED
    assert "lacks" in str(decision)


# name: what is declared, (smaller, larger), a gap that is never negative, and what that takes for granted
WRONG: dict[str, tuple[proving.Declared, Sides, Sides, dict[str, Any]]] = {
    "a square is larger": (proving.Declared(VECTOR), lambda x: (x, x * x), lambda x: x * x, {}),
    "the gap of another pair": (
        proving.Declared(PAIR),
        lambda x, y: (3 * x * y, x * x + y * y),
        lambda x, y: (x - y) ** 2,
        {},
    ),
    "e^x is over x²": (proving.Declared(VECTOR), lambda x: (x * x, xp(x).exp(x)), lambda x: xp(x).exp(x) - 1 - x, {}),
    "positive by name": (
        proving.Declared(VECTOR),
        lambda x: (0 * x, -x * x),
        lambda x, h: h,
        {"assumed": {"h": ("n", lambda x: -x * x)}},
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_false_inequality_is_not_proved(name: str) -> None:
    declared, sides, gap, more = WRONG[name]
    method = proving.bound(declared.arrays, sides, gap, lambda **_: None, positive=declared.positive, **more)
    decision = method.decide()
    granted = bool(more)  # under what is never met; there is no witness, so the theorem is undecided
    assert decision.evidence.grade in (Grade.REFUTED, Grade.UNDECIDED) or (granted and not method.witness())
