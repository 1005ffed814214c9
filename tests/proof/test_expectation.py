"""Laws, and moments that are not assumed; means in certificates; equality of exponential quotients."""

import copy
from fractions import Fraction
from random import Random
from typing import Any

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from symattn import Refused, Undecided, proving, theorems
from symattn.derivations.attention.expressions import Ring, all_equal
from symattn.proof.coq.inferences import lemmas
from symattn.proof.expectation import NORMAL, EntryLaw, law_with
from tests.proof.identities import averaged
from tests.refusals import refuses

SKEW = EntryLaw((), lambda: (0, 2, 2, -6), lambda: [(-1, Fraction(2, 3)), (2, Fraction(1, 3))])


def _central(outcomes, order):
    mean = sum(v * p for v, p in outcomes)
    return sum((v - mean) ** order * p for v, p in outcomes)


def _laws():
    """The laws of the catalogue's theorems, and others."""
    catalogued = {id(t.letters): t.letters.laws.values() for t in theorems.of_topic("scaling")}
    every = [law_with("s", "m"), law_with("s"), SKEW, *(law for laws in catalogued.values() for law in laws)]
    return list({id(law): law for law in every}.values())


@pytest.mark.parametrize("law", _laws())
def test_the_concrete_law_has_the_cumulants_that_are_assumed(law):
    parameters = [Fraction(3), Fraction(2)][: len(law.parameters)]
    outcomes, known = law.outcomes(*parameters), law.cumulants(*parameters)
    mean, variance, third = sum(v * p for v, p in outcomes), _central(outcomes, 2), _central(outcomes, 3)
    true = (mean, variance, third, _central(outcomes, 4) - 3 * variance**2)
    assert sum(p for _, p in outcomes) == 1
    assert all(k in (None, t) for k, t in zip(known, true, strict=False))


def test_the_normal_law_has_the_moments_of_its_concrete_law():
    for order, moment in enumerate((1, 0, 1, 0, 3, 0)):
        assert sum(value**order * p for value, p in NORMAL.outcomes()) == moment


def _first(sides, declared):
    return proving.pairs(sides, declared, proving.Letters())[0][0].at(())


def test_a_moment_that_is_not_assumed_is_refused():
    sides = averaged(lambda E: (E(lambda x: x**3), 0), {"x": law_with("s", "m")})
    refuses(
        _first, sides, proving.Declared({"x": "", "m": "", "s": ""}), kind=Refused, says="order 3 of x is not assumed"
    )


def test_a_cumulant_left_open_is_refused_where_it_counts():
    law = EntryLaw((), lambda: (0, 1, None, 0), lambda: [(-1, Fraction(1, 2)), (1, Fraction(1, 2))])
    fourth = averaged(lambda E: (E(lambda x: x**4), 3), {"x": law})
    assert _first(fourth, proving.Declared({"x": ""})).value == 3
    third = averaged(lambda E: (E(lambda x: x**3), 0), {"x": law})
    refuses(_first, third, proving.Declared({"x": ""}), kind=Refused, says="order 3 of x is not assumed")


def test_what_is_no_polynomial_is_refused():
    sides = averaged(lambda E: (E(lambda x: x.__array_namespace__().exp(x)), 0), {"x": SKEW})
    refuses(
        _first,
        sides,
        proving.Declared({"x": ""}),
        kind=Refused,
        says="exponential of random letters is not a polynomial",
    )


def test_a_random_divisor_is_refused():
    sides = averaged(lambda E: (E(lambda x: 1 / (x + 3)), 0), {"x": SKEW})
    refuses(_first, sides, proving.Declared({"x": ""}), kind=Refused, says="not a polynomial")


def test_fixed_letters_keep_their_indices():
    """Var(Σ p_j v_j) is σ² Σ p_j², not σ² (Σ p_j)²."""
    declared, laws = proving.Declared({"p": "m", "v": "m", "s": ""}), {"v": law_with("s")}

    def total(x):
        return x.__array_namespace__().sum(x)

    def right(E, p, s):
        return E.variance(lambda v: total(p * v)), s**2 * total(p * p)

    def wrong(E, p, s):
        return E.variance(lambda v: total(p * v)), s**2 * total(p) ** 2

    method = proving.Identity(declared, averaged(right, laws), averaged(wrong, laws))
    assert method.decide().evidence.grade.value == "proved"
    assert method.refute().refuted
    assert not method.refute().accepted


X, Y, C = sympy.symbols("x y c", real=True)
E = sympy.exp
ROOT = sympy.sqrt(2)


def equal(x: object, y: object) -> bool:
    return all_equal([(sympy.sympify(x), sympy.sympify(y))])


TRUE = [
    (E(X + C) / (E(X + C) + E(Y + C)), E(X) / (E(X) + E(Y))),
    (E(X / 2) ** 2, E(X)),
    (E(ROOT * X / 2) ** 2, E(ROOT * X)),
    (E(X * (Y + 1)), E(X * Y) * E(X)),
    (1 / (1 + E(-X)), E(X) / (1 + E(X))),
    (E(2), E(1) ** 2),
    (E(0), 1),
    ((X**2 - Y**2) / (X - Y), X + Y),
    (E(X) * E(-X), 1),
]
FALSE = [
    (E(X + C) / (E(X + C) + E(Y)), E(X) / (E(X) + E(Y))),
    (E(ROOT * X), E(X)),
    (E(X * Y), E(X) * E(Y)),
    (X, X + sympy.Rational(1, 10**30)),
    (E(X), 1 + X),
]


@pytest.mark.parametrize(("x", "y"), TRUE)
def test_true_equalities(x: object, y: object) -> None:
    assert equal(x, y)


@pytest.mark.parametrize(("x", "y"), FALSE)
def test_false_equalities(x: object, y: object) -> None:
    assert not equal(x, y)


def test_opaque_letters_say_yes_or_nothing() -> None:
    largest = sympy.Function("max", real=True)(X, Y)
    assert equal(E(X - largest) / (E(X - largest) + E(Y - largest)), E(X) / (E(X) + E(Y)))
    with pytest.raises(Undecided):
        equal(largest, X)
    with pytest.raises(Undecided):
        equal(E(X - largest), E(X))


def test_balls_say_no_where_normal_forms_may_miss_a_yes() -> None:
    assert not equal(ROOT * sympy.sqrt(3), sympy.sqrt(6) + 1)
    assert not equal(E(1 / X), E(X))


def test_what_has_no_normal_form_is_refused() -> None:
    with pytest.raises(Refused):
        equal(sympy.pi, X)


def test_a_vanishing_denominator_is_no_equality() -> None:
    ring = Ring([X])
    with pytest.raises(Undecided):
        (ring.of(0) ** -1).equals(ring.of(0) ** -1)


leaves = st.sampled_from([X, Y, E(X), E(Y - X), E(X * Y / 2), sympy.Integer(2), sympy.Rational(-1, 3)])
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda t: t[0] + t[1]),
        st.tuples(inner, inner).map(lambda t: t[0] * t[1]),
        inner.map(lambda t: 1 / (3 + t**2)),
    ),
    max_leaves=6,
)


@pytest.mark.deep
@given(trees, trees)
def test_equality_agrees_with_numbers(x: sympy.Expr, y: sympy.Expr) -> None:
    point = {X: sympy.Rational(7, 10), Y: sympy.Rational(-13, 10)}
    gap = abs(sympy.N((x - y).subs(point), 30))
    assert equal(x, y) == (gap < sympy.Float("1e-20"))


Parts = list[Any]
ANY = ["function", "any", ["number", "0"]]
NOUGHT, ONE, TWO = (["number", n] for n in "012")


def letter(name: str, *indices: str) -> Parts:
    return ["letter", name, [[i] for i in indices]]


S = letter("s")
VARIANCE = ["product", S, S]
LAW = ["function", "law of x", NOUGHT, VARIANCE]
XI, XJ, X0, YI = letter("x", "i"), letter("x", "j"), letter("x[0]"), letter("y")
SAME = ["is", "=", ["i"], ["j"]]


def mean(of: Parts, *laws: Parts) -> Parts:
    return ["function", "mean", of, *(laws or (LAW,))]


def equation(left: Parts, right: Parts = NOUGHT, free: tuple[str, ...] = ("i", "j"), **more: Any) -> dict[str, Any]:
    """A certificate of left = right by their normal forms."""
    e = {"free": [[i, "n"] for i in free], "left": left, "right": right, "how": "normal form"}
    lists: dict[str, Any] = {"rules": [], "positive": [], "assumed": [], "hypotheses": []}
    return {"schema": 1, "kind": "certificate", **lists, "equations": [e], **more}


def accepted(record: dict[str, Any]) -> bool:
    return proving.check(record, Random(0)).accepted


def total(name: str, body: Parts) -> Parts:
    return ["total", name, "n", body]


def permuted(x: Parts) -> Parts:
    return ["letter", x[1], [[*x[2][0], "π"]]]


PRODUCT, CUBE = ["product", XI, XJ], ["product", XI, XI, XI]
TRUE_MEANS = {
    "a mean": equation(mean(XI), NOUGHT),
    "a product": equation(mean(PRODUCT), ["product", VARIANCE, SAME]),
    "a sum": equation(mean(total("k", ["product", letter("x", "k"), XJ])), VARIANCE),
    "what is fixed": equation(mean(["ratio", ["product", letter("a", "i"), XI, XI], S]),
                              ["product", letter("a", "i"), VARIANCE, ["ratio", ONE, S]],
                              hypotheses=[{"relation": "≠", "free": [], "expression": S}]),
    "two entries": equation(mean(["product", X0, letter("x[1]")])),
    "entries of two columns": equation(mean(["product", letter("x[·,0]", "i"), letter("x[·,1]", "j")])),
    "a cube": equation(mean(CUBE, ["function", "law of x", NOUGHT, ANY, TWO]), TWO),
}  # fmt: skip
FALSE_MEANS = {
    "entries that are two": equation(mean(PRODUCT), NOUGHT),
    "a cumulant that is not there": equation(mean(CUBE), NOUGHT),
    "no law": equation(["function", "mean", XI], NOUGHT),
    "the law of another array": equation(mean(XI, ["function", "law of y", NOUGHT]), NOUGHT),
    "two laws in one mean": equation(mean(XI, LAW, ["function", "law of x", ONE]), ONE),
    "a law that is random": equation(mean(XI, ["function", "law of x", S], ["function", "law of s", ONE]), S),
    "no polynomial": equation(mean(["exp", XI]), ["exp", NOUGHT]),
    "no polynomial beside a mean of 0": equation(
        mean(["product", XI, ["exp", YI]], LAW, ["function", "law of y", NOUGHT, ONE]), NOUGHT
    ),
    "a moment that need not exist beside a mean of 0": equation(
        mean(["product", *CUBE[1:], YI], ["function", "law of y", NOUGHT, ONE], LAW), NOUGHT
    ),
    "in a permutation": equation(mean(["product", permuted(XI), XI]), VARIANCE),
    "a mean of a mean": equation(mean(["product", mean(XI), XI]), NOUGHT),
    "a positive letter": equation(mean(XI), NOUGHT, positive=["x"]),
    "a letter on a circle": equation(mean(XI), NOUGHT, rules=[["x", "y"]]),
    "the name of an index": equation(mean(total("in a mean 0", letter("x", "in a mean 0"))), NOUGHT),
    "a division that is kept": equation(mean(["ratio", XI, S]), NOUGHT),
    "a law of one entry": equation(
        mean(["product", X0, X0], ["function", "law of x[0]", NOUGHT, ONE]), ["product", X0, X0], ()
    ),
    "an entry and all": equation(mean(["product", X0, XI])),
    "what is random elsewhere": equation(
        [
            "sum",
            mean(["product", XI, YI], ["function", "law of x", ONE]),
            mean(YI, ["function", "law of y", ONE]),
        ],
        ["sum", YI, ONE],
    ),
}


@pytest.mark.parametrize("name", TRUE_MEANS)
def test_true_means_are_accepted(name: str) -> None:
    assert accepted(TRUE_MEANS[name])


@pytest.mark.parametrize("name", FALSE_MEANS)
def test_false_means_are_refused(name: str) -> None:
    assert not accepted(FALSE_MEANS[name])


def test_moments_are_in_certificates_as_they_are_written() -> None:
    (record,) = proving.certificates(proving.decide(theorems.catalogue()["score-variance"]).decision.proofs)
    (e,) = record["equations"]
    assert [x[1] for x in e["left"][1:2]] == ["mean"]
    assert accepted(dict(record))
    law = e["left"][1][3]
    assert law[:2] == ["function", "law of q"] or law[:2] == ["function", "law of k"]
    for cumulant in (ONE, ANY):
        wrong = copy.deepcopy(record)
        wrong["equations"][0]["left"][1][3][2] = cumulant
        assert not accepted(wrong)


def test_what_coq_is_given_says_that_means_were_taken_before() -> None:
    (taken,) = lemmas("so", [equation(mean(XI, ["function", "law of x", S]), S, ("i",))])
    (plain,) = lemmas("so", [equation(["sum", S, S], ["product", TWO, S], ())])
    assert taken.readable
    assert taken.readable.words[0].startswith("Coq is given no expectations")
    assert plain.readable
    assert not plain.readable.words
