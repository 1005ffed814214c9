"""Kinds keep to themselves, and what they cannot decide they say."""

import itertools
import threading
import time
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest
import sympy

from symattn import Refused, Undecided, arrays, kind, kinds
from symattn.arrays.symbolic import ball_of
from tests.refusals import refuses

Ball = kind("ball")

#: Those with a class of their own; arrays of NumPy and tensors of torch are what others lift.
DISPATCHED = [name for name in arrays.KINDS if name not in ("float64", "float32", "float16", "torch")]


# -- mixed kinds ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("left", "right"), tuple(itertools.permutations(DISPATCHED, 2)))
def test_mixed_kinds_are_refused_by_name(left: str, right: str) -> None:
    a, b = kind(left).lift([[1.0, 2.0]]), kind(right).lift([[3.0], [1.0]])
    programs = [
        lambda: a + b, lambda: a * b, lambda: a / b, lambda: a @ b, lambda: a < b, lambda: a == b,
        lambda: np.maximum(a, b), lambda: np.stack([a, b.T]), lambda: a.xp.asarray(b),
        lambda: a.xp.where(True, a, b), lambda: a.xp.concat([a, b.T]),
        lambda: np.einsum("ij,jk->ik", a, b), lambda: a.copy().__setitem__(0, b[0]), lambda: a.__iadd__(b),
        lambda: a.xp.full((1, 2), b[0]), lambda: a / b.shape[0] - b,
    ]  # fmt: skip
    for program in programs:
        with pytest.raises(Refused, match=r"mixed kinds: .* with .*; convert one of them first") as refusal:
            program()
        assert left in str(refusal.value)
        assert right in str(refusal.value)


@pytest.mark.parametrize("name", DISPATCHED)
def test_nothing_becomes_a_plain_array_unseen(name: str) -> None:
    a = kind(name).lift([1.0, 2.0])
    for make in (
        lambda: np.asarray(a),
        lambda: np.array([a, a]),
        lambda: float(a[0]),
        lambda: np.zeros(2) + np.array(a),
    ):
        with pytest.raises(Refused, match=name):
            make()
    plain = np.zeros(2)
    with pytest.raises((Refused, TypeError, ValueError)):
        plain[0] = a[0]
    with pytest.raises(Refused, match=r"plain array|NumPy array"):
        plain += a
    refuses(a.xp.where, a, a, 0, kind=Refused, says="where needs a boolean condition")


@pytest.mark.parametrize("name", DISPATCHED)
def test_plain_arrays_beside_arrays_of_a_kind_are_lifted(name: str) -> None:
    a = kind(name).lift([1.0, 2.0])
    for result in (np.ones(2) + a, np.float64(1) + a, a + np.array([1.0, 1.0]), np.ones(2).astype(np.float16) + a):
        assert isinstance(result, kind(name))
        assert (result == [2, 3]).all()
    assert (np.eye(2) @ a == [1, 2]).all()
    assert (np.arange(2) * a == [0, 2]).all()


@pytest.mark.parametrize("name", DISPATCHED)
def test_an_array_has_no_truth_value(name: str) -> None:
    with pytest.raises(Undecided, match=f"{name}: an array has no truth value"):
        bool(kind(name).lift([1.0]))


# -- balls ------------------------------------------------------------------------------------------------------------
def test_overlapping_balls_are_not_ordered_and_not_compared() -> None:
    third = Ball.lift([Fraction(1, 3)])
    again = 1 - Ball.lift([Fraction(2, 3)])
    for compare in (
        lambda: third < again, lambda: third <= again, lambda: third == again, lambda: third != again,
        lambda: Ball.xp.argmax(Ball.xp.concat([third, again])),
    ):  # fmt: skip
        with pytest.raises(Undecided, match=r"ball: is .*\? \(53 bits\)"):
            compare()


def test_sorted_balls_enclose_the_sorted_numbers_whichever_is_the_larger() -> None:
    x, y = flint.arb(1, 0.5), flint.arb(2, 0.75)
    low, high = Ball.xp.sort(Ball.lift([y, x])).entries
    for a in (0.5, 1, 1.5):
        for b in (1.25, 2, 2.75):
            assert low.contains(min(a, b))
            assert high.contains(max(a, b))
    assert not high.contains(1)


def test_the_largest_of_overlapping_balls_encloses_it_without_deciding() -> None:
    x = Ball.lift([Fraction(1, 3)])
    largest = Ball.xp.max(Ball.xp.concat([x, 1 - Ball.lift([Fraction(2, 3)])])).item()
    assert largest.overlaps(x.item())


def test_a_divisor_that_may_be_zero_is_undecided_and_zero_is_undefined() -> None:
    x = Ball.lift([1])
    doubtful = Ball.lift([Fraction(1, 3)]) - (1 - Ball.lift([Fraction(2, 3)]))
    with pytest.raises(Undecided, match=r"is the divisor .* zero"):
        x / doubtful
    assert np.isnan(x / Ball.lift([0])).all()


def test_rising_raises_the_precision_until_all_is_decided() -> None:
    close = Fraction(1, 3) + Fraction(1, 10**60)
    seen = []

    def work() -> Any:
        seen.append(flint.ctx.prec)
        return (Ball.lift([Fraction(1, 3)]) < Ball.lift([close])).item()

    assert kinds.rising(work) is True
    assert seen == [64, 128, 256]


def test_rising_ends_undecided_at_the_limit() -> None:
    def work() -> Any:
        return Ball.lift([Fraction(1, 3)]) < 1 - Ball.lift([Fraction(2, 3)])

    refuses(kinds.rising, work, limit=1024, kind=Undecided, says="still undecided at 1024 bits: ball: is")


def test_precision_is_restored_also_after_an_error() -> None:
    before = flint.ctx.prec
    with pytest.raises(ZeroDivisionError), kinds.precision(200):
        Fraction(1, flint.ctx.prec - 200)
    assert flint.ctx.prec == before
    with pytest.raises(Undecided):
        kinds.rising(lambda: Ball.divide(flint.arb(1), flint.arb(0, 1)), limit=256)
    assert flint.ctx.prec == before
    with kinds.precision(100), kinds.precision(300):
        assert flint.ctx.prec == 300
    assert flint.ctx.prec == before


def test_other_kinds_leave_the_precision_as_it_is() -> None:
    before = flint.ctx.prec
    exact = kind("exact")
    s = exact.xp.exp(exact.lift([1, 2]))
    assert (s[0] < s[1]).item()
    x = kind("symbolic").letters("x")
    assert not (x == x + 1).item()
    assert flint.ctx.prec == before


def test_data_are_as_sharp_as_the_precision_and_floats_are_exact() -> None:
    with kinds.precision(300):
        assert Ball.lift([Fraction(1, 3)]).item().rel_accuracy_bits() > 290
        assert Ball.lift([0.1]).item().is_exact()
        assert Ball.lift([10**400 + 1]).item().is_exact()


# -- letters ----------------------------------------------------------------------------------------------------------
def test_an_order_of_letters_is_undecided() -> None:
    x = kind("symbolic").letters("x", 2)
    refuses(lambda: bool(x[0] < x[1]), kind=Undecided, says="symbolic: is x_1 < x_2 true")
    assert (x[0] - x[0] < 1).item()


def test_equality_of_letters_is_shown_refuted_or_undecided() -> None:
    symbolic = kind("symbolic")
    x = symbolic.letters("x", 2)
    assert (symbolic.xp.exp(x[0] + x[1]) == symbolic.xp.exp(x[0]) * symbolic.xp.exp(x[1])).item()
    assert not (x[0] == x[1]).item()
    almost = x[0] + Fraction(1, 10**40)
    assert not (x[0] == almost).item()


def test_the_largest_of_letters_is_opaque_and_never_one_of_them() -> None:
    """With "the first" for the largest, a rescale that is missing would pass as equal."""
    symbolic = kind("symbolic")
    xp, x = symbolic.xp, symbolic.letters("x", 3)
    m = xp.max(x)
    assert m.item() not in x.tolist()
    assert (m == xp.max(x[::-1])).item()
    assert (m == xp.maximum(x[0], xp.max(x[1:]))).item()
    shifted, plain = xp.exp(x - m), xp.exp(x)
    assert (shifted / xp.sum(shifted) == plain / xp.sum(plain)).all()
    assert _not_equal(xp.exp(x[0] - xp.max(x[:2])), shifted[0])
    assert _not_equal(shifted[0], plain[0])


def test_a_missing_rescale_is_seen_on_letters() -> None:
    symbolic = kind("symbolic")
    xp, s, v = symbolic.xp, symbolic.letters("s", 3), symbolic.letters("v", 3)
    m1, m = xp.max(s[:2]), xp.max(s)
    tail = xp.exp(s[2:] - m)
    e1 = xp.exp(s[:2] - m1)
    direct = xp.sum(xp.exp(s) * v) / xp.sum(xp.exp(s))
    r = xp.exp(m1 - m)
    online = (xp.sum(e1 * v[:2]) * r + xp.sum(tail * v[2:])) / (xp.sum(e1) * r + xp.sum(tail))
    assert (online == direct).item()
    missing = (xp.sum(e1 * v[:2]) + xp.sum(tail * v[2:])) / (xp.sum(e1) + xp.sum(tail))
    assert _not_equal(missing, direct)


def _not_equal(a: Any, b: Any) -> bool:
    try:
        return not (a == b).item()
    except Undecided:
        return True


def test_what_holds_of_the_true_maximum_is_never_refuted() -> None:
    """max(2a, 2b) = 2 max(a, b) holds, and cannot be seen with an opaque maximum: undecided, not false."""
    symbolic = kind("symbolic")
    xp, x = symbolic.xp, symbolic.letters("x", 2)
    refuses(lambda: bool(xp.max(2 * x) == 2 * xp.max(x)), kind=Undecided, says="neither shown nor refuted")
    assert not (xp.max(x) + 1 == xp.max(x)).item()
    assert not (xp.max(2 * x) == 3 * xp.max(x)).item()


def test_letters_are_named_by_their_indices() -> None:
    symbolic = kind("symbolic")
    assert [str(x) for x in symbolic.letters("q", 2, 2).entries.flat] == ["q_11", "q_12", "q_21", "q_22"]
    assert str(symbolic.letters("q", 2, 12).entries[1, 11]) == "q_2_12"
    assert str(symbolic.letters("c").item()) == "c"
    assert str(symbolic.letters("q", 1, start=0).entries[0]) == "q_0"


def test_the_ball_of_an_expression_holds_its_value() -> None:
    x, y = sympy.symbols("x y", real=True)
    values = {x: flint.arb(0.5), y: flint.arb(2)}
    largest = sympy.Function("max", real=True)
    expressions = [
        sympy.exp(x) / (1 + y),
        x ** sympy.Rational(3, 2) - y**-2,
        sympy.sqrt(2) * sympy.E - sympy.Rational(1, 3) * sympy.pi,
        sympy.Max(x, y) + 3,
        sympy.log(y) + sympy.tanh(x) + sympy.erf(x) + sympy.cos(x) + sympy.sin(x),
        y**x,
    ]
    for expression in expressions:
        value = sympy.N(expression.subs({x: sympy.Rational(1, 2), y: 2}), 40)
        assert ball_of(expression, values).overlaps(flint.arb(str(value), 1e-38))
    assert ball_of(largest(x, y, 1), values) == 2
    refuses(ball_of, sympy.gamma(x), values, kind=Refused, says="no ball for")


def test_threads_do_not_change_each_others() -> None:
    before, seen = flint.ctx.prec, list[int]()
    inside = threading.Event()

    def other() -> None:
        inside.set()
        with kinds.precision(100):
            seen.append(flint.ctx.prec)

    thread = threading.Thread(target=other)
    with kinds.precision(200):
        thread.start()
        assert inside.wait(5)
        time.sleep(0.05)  # in which the other thread would set its own
        assert (flint.ctx.prec, seen) == (200, [])
    thread.join(5)
    assert (flint.ctx.prec, seen) == (before, [100])
