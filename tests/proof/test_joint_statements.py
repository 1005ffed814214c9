"""Statements of several parts, of several false variants, with declared hypotheses, or that compare no elements."""

from typing import Any

import pytest

from symattn import Grade, functional, kind, printing, prove, proving, theorem
from symattn.proof.expectation import NORMAL, law_with
from symattn.proof.refuting import spread_sizes
from tests.proof.identities import averaged

Exact = kind("exact")

X = {"x": "n"}


def _max(x):
    return x.__array_namespace__().max(x)


def _identity(sides: Any, false: Any = lambda: []) -> proving.Identity:
    return proving.Identity(proving.Declared(X), sides, false)


GOOD = _identity(lambda x: (2 * x, x + x), lambda x: (2 * x, 3 * x))
OPEN = _identity(lambda x: (_max(x + 1), _max(x) + 1))
WRONG = _identity(lambda x: (x, x * x))


def test_the_weakest_part_counts():
    assert proving.Together((GOOD,)).decide().evidence.grade is Grade.PROVED
    assert proving.Together((GOOD, OPEN)).decide().evidence.grade is Grade.CHECKED
    assert proving.Together((GOOD, WRONG)).decide().evidence.grade is Grade.REFUTED


def test_every_false_variant_must_be_refuted():
    true_variant = _identity(lambda x: (x, x), lambda x: (x + x, 2 * x))
    assert proving.Together((GOOD,)).refute().refuted
    both = proving.Together((GOOD, true_variant)).refute()
    assert not both.refuted
    assert both.accepted


def test_without_a_false_variant_nothing_is_refuted():
    assert not proving.Together((_identity(lambda x: (x, x)),)).refute().refuted


def test_a_part_without_a_witness_leaves_none():
    never = proving.bound(X, lambda x: (0, 1 + x * x), lambda x: 1 + x * x, assumed={"y": ("n", lambda x: -1 - x * x)})
    assert proving.Together((GOOD,)).witness()
    assert not proving.Together((GOOD, never)).witness()


def test_no_parts_prove_nothing():
    assert proving.Together(()).decide().evidence.grade is Grade.UNDECIDED


def test_positive_needs_a_form_that_shows_it():
    def grade(of):
        return proving.above_zero({**X, "p": "n"}, of, positive=("p",)).decide().evidence.grade

    assert grade(lambda x, p, xp: p * xp.exp(x)) is Grade.PROVED
    assert {grade(of) for of in (lambda x: x, lambda x, p: p - x)} == {Grade.REFUTED}
    assert {grade(of) for of in (lambda x, p: x * x * p, lambda x: x * x - x + 1)} == {Grade.UNDECIDED}
    for false, refuted in ((lambda x: x, True), (lambda p: p + 1, False)):
        assert proving.above_zero({**X, "p": "n"}, lambda p: p, false, positive=("p",)).refute().refuted is refuted


def test_fails_needs_a_counterexample():
    assert proving.Fails(proving.Declared(X), lambda x: (x, x * x)).decide().evidence.grade is Grade.PROVED
    assert proving.Fails(proving.Declared(X), lambda x: (x, x)).decide().evidence.grade is Grade.UNDECIDED


S = proving.Declared({"s": "n m", "t": "n 1"})


def shift(s, t):
    return functional.softmax(s + t), functional.softmax(s)


@pytest.mark.deep
def test_of_several_false_variants_each_must_be_refuted():
    wrong, right = (
        (lambda s, t: (functional.softmax(t * s), functional.softmax(s))),
        (lambda s, t: (functional.softmax(s - t), functional.softmax(s))),
    )
    both = proving.Identity(S, shift, (wrong, lambda s, t: (functional.softmax(s) + t, functional.softmax(s)))).refute()
    assert both.refuted
    assert not both.accepted
    assert "; " in both.counterexample
    one = proving.Identity(S, shift, (wrong, right)).refute()
    assert not one.refuted
    assert one.accepted


def test_nothing_stated_is_not_proved():
    assert proving.Identity(S, lambda s: [], shift).decide().evidence.grade is Grade.UNDECIDED


def test_what_numbers_contradict_is_refuted():
    assert proving.Identity(S, lambda s: (functional.softmax(s), s), shift).decide().evidence.grade is Grade.REFUTED


def test_a_jacobian_has_the_axes_of_the_value_and_then_those_of_the_array():
    x, w = Exact.lift([1, 2]), Exact.lift([[1, 2, 3], [4, 5, 6]])
    found = proving.gradient(lambda x, w: (x[None, :] @ w)[0], "x", x=x, w=w)
    assert found.shape == (3, 2)
    assert bool((found == w.mT).all())
    by_matrix = proving.gradient(lambda x, w: (x[None, :] @ w)[0], "w", x=x, w=w)
    assert by_matrix.shape == (3, 2, 3)
    for a in range(3):
        for j in range(3):
            assert bool((by_matrix[a, :, j] == (x if a == j else 0 * x)).all())


@pytest.mark.parametrize("by", ["x", "w"])
def test_the_gradient_is_the_jacobian_of_a_value_without_axes(by):
    given = {"x": Exact.lift([1, 2]), "w": Exact.lift([3, 4])}
    other = given["w" if by == "x" else "x"]
    assert bool((proving.gradient(lambda x, w: (x * w).sum(), by, **given) == other).all())


def hypotheses(method: Any) -> list[str]:
    found = method.decide()
    return [printing.plain_text(h) for h in (*found.declared, *found.hypotheses)]


DECLARED = {
    "positive numbers": (proving.Declared({"a": ""}, positive=("a",)), ["a > 0"]),
    "positive entries": (proving.Declared({"a": "n"}, positive=("a",)), ["all entries of a are positive"]),
    "others": (proving.Declared({"a": "n"}, nonnegative=("a",)), ["all entries of a are not negative"]),
    "units": (proving.Declared({"a": "n", "s": "n"}, units=(("a", "s"),)), ["a² + s² = 1, place by place"]),
    "a permutation": (proving.Declared({"a": "n"}, {"pi": "n"}), ["π is a permutation of the n places"]),
    "a size above 1": (proving.Declared({"a": "n+1 d"}), ["a has the shape (n + 1) × d"]),
    "a number of entries": (proving.Declared({"a": "2"}), ["a has 2 entries"]),
    "nothing": (proving.Declared({"a": "n d"}), []),
}


@pytest.mark.parametrize("name", DECLARED)
def test_what_is_declared_is_printed(name: str):
    declared, expected = DECLARED[name]
    assert hypotheses(proving.Identity(declared, lambda a: (a + a, 2 * a), ())) == expected


def test_what_is_assumed_is_printed_as_a_formula():
    stated = proving.bound(
        {"x": "n", "b": ""},
        lambda x, b: (x, b + 0 * x),
        lambda below: below,
        assumed={"below": ("n", lambda x, b: b - x)},
    )
    assert hypotheses(stated) == ["xᵢ ≤ b"]


def test_laws_are_printed():
    normal = averaged(lambda E: (E(lambda x: x * x), 1), {"x": NORMAL})
    assert hypotheses(proving.Identity(proving.Declared({"x": ""}), normal, ()))[-1] == "those of x are N(0, 1)"
    both = {"x": law_with("s", "m"), "y": law_with("s")}
    anything = averaged(lambda E, s: (E(lambda x, y: x * y), 0 * s), both)
    found = hypotheses(proving.Identity(proving.Declared({"x": "", "y": "", "s": "", "m": ""}), anything, ()))
    assert "all entries of x and y are independent" in found
    assert "those of x have the mean m, the variance s², and any further moments" in found


def test_no_divisor_is_spoken_of_where_nothing_is_divided():
    @theorem("tested", "mine", "…", arrays={"x": "n"}, false=lambda x: (x, 2 * x), false_says="…")
    def tested(x: Any) -> Any:
        return x.__array_namespace__().where(x == 0, 1 + x, 1 + x), 1 + x

    (found,) = prove(tested, cached=False).record["theorems"]
    assert (found["grade"], found["hypotheses"]) == (Grade.CHECKED, [])


def test_spread_sizes_tell_sorts_apart():
    found = spread_sizes(["d", "m", "n"], 3)
    assert any(s["m"] != s["n"] for s in found)
    assert max(max(s.values()) for s in found) == 3
    assert max(max(s.values()) for s in spread_sizes(["d", "m"], 2)) == 2


COLUMN = proving.Declared({"x": "n 1"})


def test_an_identity_of_empty_arrays():
    stated = proving.Identity(COLUMN, lambda x: (x[:, :0], 2 * x[:, :0]), lambda x: (x, 2 * x))
    assert stated.decide().evidence.grade is Grade.UNDECIDED
    assert not stated.witness()


def test_a_gap_without_elements_shows_no_inequality():
    def empty(x):
        return (x * x)[:, :0]

    # True, but not shown: an empty gap would show x ≤ 0 as well as 0 ≤ x².
    stated = proving.bound(COLUMN.arrays, lambda x: (0 * x, x * x), empty, lambda x: (x * x, 0 * x))
    assert stated.decide().evidence.grade is Grade.UNDECIDED
    stated = proving.bound(COLUMN.arrays, lambda x: (empty(x), -1 - empty(x)), empty, lambda x: (x * x, 0 * x))
    assert stated.decide().evidence.grade is Grade.UNDECIDED
    assert not stated.witness()


def test_no_element_is_positive():
    assert proving.above_zero({"x": "n 1"}, lambda x: x[:, :0]).decide().evidence.grade is Grade.UNDECIDED
