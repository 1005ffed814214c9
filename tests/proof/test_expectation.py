"""Expectations of random letters: against running through every outcome, and what is refused."""

import inspect
from fractions import Fraction
from math import prod

import pytest

from symattn.arrays.index.expressions import Constant, Count, Letter, Predicate, Ratio, Sum, Total
from symattn.attention.scores import dot_scores
from symattn.document.errors import Refused
from symattn.proof.expectation import NORMAL, EntryLaw, law_with
from symattn.proof.statement import Declared, Letters, Numbers, pairs
from symattn.proof.theorem import Identity
from symattn.theorems.scaling import THREE_VALUES, UNIT
from tests.proof.averaging import averaged
from tests.refusals import refuses

SKEW = EntryLaw((), lambda: (0, 2, 2, -6), lambda: [(-1, Fraction(2, 3)), (2, Fraction(1, 3))])
ROWS = Declared({"x": "1 d", "y": "1 d", "c": "1 d"})


def _central(outcomes, order):
    mean = sum(v * p for v, p in outcomes)
    return sum((v - mean) ** order * p for v, p in outcomes)


@pytest.mark.parametrize(
    ("law", "parameters"),
    [
        (law_with("s", "m"), (Fraction(3), Fraction(2))),
        (law_with("s"), (Fraction(3),)),
        (UNIT, ()),
        (SKEW, ()),
        (THREE_VALUES, (Fraction(3), Fraction(2))),
    ],
)
def test_the_concrete_law_has_the_cumulants_that_are_assumed(law, parameters):
    outcomes, known = law.outcomes(*parameters), law.cumulants(*parameters)
    mean, variance, third = sum(v * p for v, p in outcomes), _central(outcomes, 2), _central(outcomes, 3)
    true = (mean, variance, third, _central(outcomes, 4) - 3 * variance**2)
    assert sum(p for _, p in outcomes) == 1
    assert all(k in (None, t) for k, t in zip(known, true, strict=False))


def test_the_normal_law_has_the_moments_of_its_concrete_law():
    for order, moment in enumerate((1, 0, 1, 0, 3, 0)):
        assert sum(value**order * p for value, p in NORMAL.outcomes()) == moment


STATEMENTS = [
    lambda E, x: (E(lambda x: dot_scores(x, x)[0, 0]), 0),
    lambda E, x: (E.variance(lambda x: dot_scores(x, x)[0, 0]), 0),
    lambda E, x, c: (E(lambda x: (dot_scores(x, c)[0, 0] + 1) ** 4), 0),
    lambda E, x, y: (E(lambda x, y: dot_scores(x, y)[0, 0] ** 2 * dot_scores(x, x)[0, 0]), 0),
    lambda E, x, y: (E.variance(lambda x, y: dot_scores(x, x + y)[0, 0]), 0),
]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("statement", range(len(STATEMENTS)))
def test_letters_and_outcomes_agree(statement, size):
    world, sides = Numbers({"d": size}, 1), averaged(STATEMENTS[statement], {"x": SKEW, "y": UNIT})
    c = world.array("c", "1 d", ROWS).tolist()[0]
    formal, exact = (pairs(sides, ROWS, w)[0][0] for w in (Letters(), world))
    assert exact.item() == _value(formal.at(()), size, c, {})


def _value(x, size, c, at):
    """A formula without random letters at one size."""
    if isinstance(x, Constant):
        return x.value
    if isinstance(x, Count):
        return size
    if isinstance(x, Letter):
        return c[at[x.indices[-1]]]
    if isinstance(x, Predicate):
        return int(at[x.sides[0]] == at[x.sides[1]])
    if isinstance(x, Total):
        return sum(_value(x.body, size, c, {**at, x.index: i}) for i in range(size))
    parts = [_value(y, size, c, at) for y in x.children]
    if isinstance(x, Ratio):
        return parts[0] / parts[1]
    return sum(parts) if isinstance(x, Sum) else prod(parts)


def _first(sides, declared):
    return pairs(sides, declared, Letters())[0][0].at(())


def test_a_moment_that_is_not_assumed_is_refused():
    sides = averaged(lambda E: (E(lambda x: x**3), 0), {"x": law_with("s", "m")})
    refuses(_first, sides, Declared({"x": "", "m": "", "s": ""}), kind=Refused, says="order 3 of x is not assumed")


def test_a_cumulant_left_open_is_refused_where_it_counts():
    law = EntryLaw((), lambda: (0, 1, None, 0), lambda: [(-1, Fraction(1, 2)), (1, Fraction(1, 2))])
    fourth = averaged(lambda E: (E(lambda x: x**4), 3), {"x": law})
    assert _first(fourth, Declared({"x": ""})).value == 3
    third = averaged(lambda E: (E(lambda x: x**3), 0), {"x": law})
    refuses(_first, third, Declared({"x": ""}), kind=Refused, says="order 3 of x is not assumed")


def test_what_is_no_polynomial_is_refused():
    sides = averaged(lambda E: (E(lambda x: x.__array_namespace__().exp(x)), 0), {"x": UNIT})
    refuses(_first, sides, Declared({"x": ""}), kind=Refused, says="exponential of random letters is not a polynomial")


def test_a_random_divisor_is_refused():
    sides = averaged(lambda E: (E(lambda x: 1 / (x + 3)), 0), {"x": UNIT})
    refuses(_first, sides, Declared({"x": ""}), kind=Refused, says="not a polynomial")


def test_fixed_letters_keep_their_indices():
    """Var(Σ p_j v_j) is σ² Σ p_j², not σ² (Σ p_j)²."""
    declared, laws = Declared({"p": "m", "v": "m", "s": ""}), {"v": law_with("s")}

    def total(x):
        return x.__array_namespace__().sum(x)

    def right(E, p, s):
        return E.variance(lambda v: total(p * v)), s**2 * total(p * p)

    def wrong(E, p, s):
        return E.variance(lambda v: total(p * v)), s**2 * total(p) ** 2

    method = Identity(declared, averaged(right, laws), averaged(wrong, laws))
    assert method.decide().evidence.grade.value == "proved"
    assert method.refute().refuted
    assert not method.refute().accepted


def test_a_statement_asks_for_what_its_laws_need():
    sides = averaged(lambda E, p: (E(lambda v: v * p), 0), {"v": law_with("s", "m")})
    assert set(inspect.signature(sides).parameters) == {"p", "v", "m", "s"}
