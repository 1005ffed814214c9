"""False statements that look true are refuted or undecided; what holds up to a computed number is not checked."""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

import pytest

from symattn import Attention
from symattn.document.evidence import Grade
from symattn.proof.expectation import NORMAL, law_with
from symattn.proof.refuting import named
from symattn.proof.relations.glossary import Glossary
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity
from symattn.theorems.texts import theorems
from tests.proof.identities import averaged


def xp(x: Any) -> Any:
    return x.__array_namespace__()


def top(x: Any) -> Any:
    return xp(x).max(x, axis=-1, keepdims=True)


def least(x: Any, y: Any) -> Any:
    return -xp(x).maximum(-x, 0 * x - y)


def relu(x: Any) -> Any:
    return xp(x).maximum(x, 0 * x)


def softmax(x: Any) -> Any:
    weights = xp(x).exp(x)
    return weights / xp(x).sum(weights, axis=-1, keepdims=True)


def centred(x: Any) -> Any:
    return x - xp(x).mean(x, axis=-1, keepdims=True)


def layer_norm(x: Any) -> Any:
    c = centred(x)
    return c / xp(x).sqrt(xp(x).mean(c * c, axis=-1, keepdims=True))


def power_sum(x: Any, k: int) -> Any:
    return xp(x).sum(x**k)


def third(x: Any) -> Any:
    p, q, r = (power_sum(x, k) for k in (1, 2, 3))
    return p * p * p - 3 * p * q + 2 * r


def fourth(x: Any) -> Any:
    p, q, r, s = (power_sum(x, k) for k in (1, 2, 3, 4))
    return p * p * p * p - 6 * p * p * q + 3 * q * q + 8 * p * r - 6 * s


def roots_of(x: Any, numbers: range) -> Any:
    product = 2 * x - numbers[0]
    for k in numbers[1:]:
        product = product * (2 * x - k)
    return product


def causal(window: int | None = None) -> Attention:
    return Attention(causal=True, window=window)


VECTOR, ONE, PAIR, TWO = {"x": "n"}, {"x": ""}, {"x": "n", "y": "n"}, {"a": "", "x": "n"}
QKV = {"q": "n d", "k": "n d", "v": "n e"}
MANY: dict[str, tuple[Declared, Callable[..., Any]]] = {
    "maximum of a sum": (Declared(PAIR), lambda x, y: (top(x + y), top(x) + top(y))),
    "root of a square": (Declared(VECTOR), lambda x: (xp(x).sqrt(x * x), x)),
    "root of a scalar square": (Declared(ONE), lambda x: (xp(x).sqrt(x * x), x)),
    "maximum of a multiple": (Declared(TWO), lambda a, x: (top(a * x), a * top(x))),
    "relu of a multiple": (Declared(TWO), lambda a, x: (relu(a * x), a * relu(x))),
    "layer norm of a multiple": (Declared({"a": "", "x": "m n"}), lambda a, x: (layer_norm(a * x), layer_norm(x))),
    "cut off at 2": (Declared(VECTOR), lambda x: (abs_(x), least(abs_(x), 2))),
    "cut off at 1000000": (Declared(VECTOR), lambda x: (abs_(x), least(abs_(x), 1000000))),
    "an involution": (Declared(VECTOR, {"pi": "n"}), lambda x, pi: (x[pi][pi], x)),
    "of order six": (Declared(VECTOR, {"pi": "n"}), lambda x, pi: (x[pi][pi][pi][pi][pi][pi], x)),
    "permutations commute": (Declared(VECTOR, {"pi": "n", "rho": "n"}), lambda x, pi, rho: (x[pi][rho], x[rho][pi])),
    "softmax of softmax": (Declared({"x": "m n"}), lambda x: (softmax(softmax(x)), softmax(x))),
    "the logarithm of a sum of powers": (Declared(VECTOR), lambda x: (xp(x).log(xp(x).sum(xp(x).exp(x))), top(x)[0])),
    "the larger of two and their distance": (
        Declared(PAIR),
        lambda x, y: (xp(x).maximum(x, y) - xp(x).maximum(-x, -y), x + y + abs_(x - y)),
    ),
    "a product transposed": (Declared({"a": "n n", "b": "n n"}), lambda a, b: ((a @ b).mT, a.mT @ b.mT)),
    "sizes up to 5": (
        Declared(VECTOR),
        lambda x, n: (xp(x).sum(x) * ((n - 1) * (n - 2) * (n - 3) * (n - 4) * (n - 5)), 0 * xp(x).sum(x)),
    ),
    "a corner far away": (Declared(ONE), lambda x: (xp(x).maximum(x, 0 * x + 12345) - 12345, relu(x - 12344))),
    "a window of 4": (Declared(QKV), lambda q, k, v: (causal(4)(q, k, v), causal()(q, k, v))),
    "a window of 40": (Declared(QKV), lambda q, k, v: (causal(40)(q, k, v), causal()(q, k, v))),
    "one size, by its square": (Declared(VECTOR), lambda x, n: (x * (n * n == 6889), 0 * x)),
    "a prefix of 70": (
        Declared(QKV),
        lambda q, k, v: (Attention(causal=True, prefix=70)(q, k, v), Attention()(q, k, v)),
    ),
    "e3": (Declared(VECTOR), lambda x: (third(x), 0)),
    "e4": (Declared(VECTOR), lambda x: (fourth(x), 0)),
    "e4 with a maximum": (Declared(VECTOR), lambda x: (fourth(x) * top(x), 0 * top(x))),
    "zero at halves": (Declared(ONE), lambda x: (roots_of(x, range(-4, 5)), 0 * x)),
    "zero at halves, with a maximum": (Declared(ONE), lambda x: (relu(x) * roots_of(x, range(-4, 5)), 0 * x)),
    "sizes up to 3": (Declared(VECTOR), lambda x, n: ((n - 1) * (n - 2) * (n - 3) * top(x), 0 * top(x))),
    "the norm adds": (Declared(PAIR), lambda x, y: (norm(x + y), norm(x) + norm(y))),
    "a maximum of absolutes": (Declared(VECTOR), lambda x: (top(abs_(x)), abs_(top(x)))),
    "the larger comes first": (Declared({"x": "", "y": ""}), lambda x, y: (xp(x).maximum(x, y), x)),
    "softmax of a multiple": (Declared(TWO), lambda a, x: (softmax(a * top(x) + x * a), softmax(x))),
    "the product of maxima": (Declared(PAIR), lambda x, y: (top(x * y), top(x) * top(y))),
    "no ties": (Declared(PAIR), lambda x, y: (xp(x).where(x == y, 0 * x, x - x + 1), x - x + 1)),
    "another value where the divisor is zero": (
        Declared(VECTOR),
        lambda x: (xp(x).where(x != 0, x / xp(x).where(x != 0, x, 0 * x + 1), 0 * x), 0 * x + 1),
    ),
    "rows of length 1, even those of zeros": (
        Declared({"x": "m n"}),
        lambda x: (squares(x) / xp(x).where(squares(x) == 0, 0 * squares(x) + 1, squares(x)), 0 * squares(x) + 1),
    ),
    "never zero": (Declared(VECTOR), lambda x: (xp(x).where(x == 0, 0 * x, x - x + 1), x - x + 1)),
    "a cast to whole numbers": (Declared(VECTOR), lambda x: (xp(x).astype(x, xp(x).int64), x)),
    "a cast to truth values": (Declared(VECTOR), lambda x: (xp(x).astype(x, xp(x).bool), x)),
    "the double of pi": (Declared(VECTOR), lambda x: (x * math.pi * 2**48, 884279719003555 * x)),
    "the double of half pi": (Declared(VECTOR), lambda x: (x * (math.pi / 2) * 2**49, 884279719003555 * x)),
    "its double by name": (Declared(VECTOR), lambda x: (x * xp(x).pi * 2**48, 884279719003555 * x)),
    "pi is 22/7": (Declared(VECTOR), lambda x: (7 * x * xp(x).pi, 22 * x)),
    "a unit of its own": (Declared({"c": "n", "s": "n"}, units=(("c", "s"),)), lambda c, s: (c + s, 0 * s + 1)),
    "overlapping units": (
        Declared({"c": "n", "s": "n", "t": "n"}, units=(("c", "s"), ("c", "t"))),
        lambda c, s, t: (s, t),
    ),
    "the sixth moment": (Declared({"x": ""}), averaged(lambda E: (E(lambda x: x**6), 9), {"x": NORMAL})),
    "the third moment of any law": (
        Declared({"x": "", "s": ""}, positive=("s",)),
        averaged(lambda E, s: (E(lambda x: x**3), 0 * s), {"x": law_with("s")}),
    ),
    "the fourth moment of any law": (
        Declared({"x": "", "s": ""}, positive=("s",)),
        averaged(lambda E, s: (E(lambda x: x**4), s**4), {"x": law_with("s")}),
    ),
}


def abs_(x: Any) -> Any:
    return xp(x).maximum(x, -x)


def squares(x: Any) -> Any:
    return xp(x).sum(x * x, axis=-1, keepdims=True)


def norm(x: Any) -> Any:
    return xp(x).sqrt(xp(x).sum(x * x))


def neither_proved_nor_checked(declared: Declared, sides: Callable[..., Any], hard: bool = True) -> None:
    """A false statement is refuted, or undecided where that is ``hard``, and it is said where."""
    decision = Identity(declared, sides, sides).decide()
    assert decision.evidence.grade in (Grade.REFUTED, Grade.UNDECIDED), decision
    assert decision.evidence.where
    assert hard or decision.evidence.grade is Grade.REFUTED


#: Words in the names of those that need not be refuted.
HARD = ("a cast", "double", "pi is", "sixth moment", "a window of 40")


@pytest.mark.parametrize("name", MANY)
def test_a_false_statement_is_neither_proved_nor_checked(name: str):
    neither_proved_nor_checked(*MANY[name], hard=any(words in name for words in HARD))


def test_a_size_that_no_square_meets_refutes_nothing() -> None:
    def sides(x: Any, n: Any) -> Any:
        return x * (n * n == 6890), 0 * x

    assert Identity(Declared(VECTOR), sides, sides).decide().evidence.grade is not Grade.REFUTED


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
    evidence = Identity(Declared(VECTOR), sides, sides).decide().evidence
    assert evidence.grade in (Grade.REFUTED, Grade.UNDECIDED), evidence
    assert evidence.grade is Grade.REFUTED or re.search("the code asks for (types|.* of n)|n,", evidence.where)


def test_statements_may_take_parameters_by_place() -> None:
    def sides(x: Any, n: Any, /) -> Any:
        return x * n, n * x

    assert Identity(Declared(VECTOR), sides, sides).decide().evidence.grade is Grade.PROVED


UNLIKE = {"x": "n m", "y": "k m"}
ZEROS = (lambda x, y: (0 * x, 0 * y), lambda x, y: (0 * x + 0 * y, 0 * x), lambda x, y: (x - x, 0 * (x @ y.mT)))
(TYPED,) = theorems("any", "typed: T\n$0 x + 0 y = 0 x$\nfalse: $x = 2 x$", {"": Glossary(UNLIKE)})


@pytest.mark.parametrize("method", [TYPED.method, *(Identity(Declared(UNLIKE), sides, ()) for sides in ZEROS)])
def test_shapes_that_fit_by_chance_alone_are_refused_in_a_line(method: Any) -> None:
    evidence = method.decide().evidence
    assert evidence.grade is Grade.UNDECIDED
    assert re.search("shapes do not fit at k = .*$", evidence.where)


def test_errors_of_a_statement_itself_are_raised() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        Identity(Declared({"x": "n"}), lambda x: float("x"), ()).decide()


Sides = Callable[..., Any]
ALONE, SELF = Declared({"x": "n"}), Declared({"q": "n d", "k": "n d", "v": "n e"})
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
    "cut at a float": (ALONE, lambda x: (abs_(x), least(abs_(x), 1e6))),
    "cut at a fraction": (ALONE, lambda x: (abs_(x), least(abs_(x), Fraction(10**7, 3)))),
    "cut at 11!": (ALONE, lambda x: (abs_(x), least(abs_(x), math.factorial(11)))),
    "cut at a number of a class": (ALONE, lambda x: (abs_(x), least(abs_(x), Cut.value))),
    "cut at a number in a text": (ALONE, lambda x: (abs_(x), least(abs_(x), int("123456")))),
    "cut at a float of the module": (ALONE, lambda x: (abs_(x), least(abs_(x), LIMITS[0]))),
    "positive, cut at a float": (Declared({"x": "n"}, positive=("x",)), lambda x: (least(x, 12345.678), x)),
    "0 below a tiny number": (ALONE, lambda x: (xp(x).where(abs_(x) < 1e-9, 0 * x, x), x)),
    "off by a tiny number": (ALONE, lambda x: (relu(x), relu(x - Fraction(1, 10**12)))),
    "0 at one number": (ALONE, lambda x: (xp(x).where(x == Fraction(12345, 7), 0 * x, x), x)),
    "0 at one float": (ALONE, lambda x: (xp(x).where(x == 12345.625, 0 * x, x), x)),
    "the first 4! places": (ALONE, lambda x, n: (first(x, n, math.factorial(4)), abs_(x))),
    "the first 8! places": (ALONE, lambda x, n: (first(x, n, math.factorial(8)), abs_(x))),
    "the places below a float": (ALONE, lambda x, n: (first(x, n, 40.5), abs_(x))),
    "a window of a text": (SELF, lambda q, k, v: windowed(int("17"))(q, k, v)),
    "sizes up to 9": (ALONE, lambda x, n: (reduce(lambda a, k: a * (n - k), range(1, 10), 1) * top(x), 0 * top(x))),
    "of order 60": (Declared({"x": "n"}, {"pi": "n"}), lambda x, pi: (reduce(lambda a, _: a[pi], range(60), x), x)),
    "a cast to float32": (ALONE, lambda x: (xp(x).astype(x, xp(x).float32), x)),
    "a cast there and back": (ALONE, lambda x: (xp(x).astype(x, xp(x).float32).astype(xp(x).float64), x)),
    "hard weights": (Declared({"s": "n m"}), lambda s: (softmax(1000 * s), xp(s).where(s == top(s), 0 * s + 1, 0 * s))),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_holds_up_to_a_number_is_not_checked(name: str) -> None:
    neither_proved_nor_checked(*FALSE[name])


TRUE: dict[str, tuple[Declared, Sides]] = {
    "cut twice": (ALONE, lambda x: (least(least(x, 1e6), 2.5), least(x, 2.5))),
    "cut at the larger of two": (ALONE, lambda x: (relu(x - 1e-9) + least(x, 1e-9), x)),
    "a window of one": (SELF, lambda q, k, v: (Attention(causal=True, window=1)(q, k, v), v + 0 * q[:, :1])),
}


@pytest.mark.parametrize("name", TRUE)
def test_true_statements_with_numbers_stay_checked(name: str) -> None:
    decision = Identity(*TRUE[name], false=()).decide()
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
    decision = Identity(ALONE, lambda x: (work(x), x), ()).decide()
    assert decision.evidence.grade is not Grade.PROVED
    assert "lacks" in str(decision)
