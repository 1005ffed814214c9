"""Hints for Coq: what they put in the place of quotients. That they hold is for Coq to decide (``test_coq.py``)."""

from __future__ import annotations

from symattn.proof.coq.steps import CoqStep, steps
from symattn.proof.coq.terms import Term, joined, number

SCOPE = (0, 1)  # j, i


def _entry(i: int) -> Term:
    """s_ij, where j is bound innermost."""
    return Term("Letter", (0, i, 0))


def _softmax(above: Term, below: Term) -> Term:
    return Term("Div", (), (Term("Exp", (), (above,)), Term("Sum", (0,), (Term("Exp", (), (below,)),))))


def _less_the_largest(i: int) -> Term:
    largest = Term("Fun", (1,), (Term("Over", (0,), (_entry(i + 1),)),))
    return joined("Add", [_entry(i), joined("Mul", [number(-1), largest])])


PLAIN = _softmax(_entry(1), _entry(2))
SHIFTED = _softmax(_less_the_largest(1), _less_the_largest(2))


def test_a_maximum_that_the_other_side_lacks_is_cancelled() -> None:
    assert steps(SCOPE, (SHIFTED, PLAIN), frozenset())[-1] == CoqStep(SCOPE, SHIFTED, PLAIN)


def test_a_maximum_of_both_sides_stays() -> None:
    twice = Term("Mul", (), (number(2), SHIFTED))
    assert all(step.old.head != "Div" for step in steps(SCOPE, (SHIFTED, twice), frozenset()))


def test_what_depends_on_the_index_of_the_sum_stays() -> None:
    def with_its_own(i: int) -> Term:
        return joined("Add", [_entry(i), Term("Fun", (1,), (Term("One", (), (_entry(i),)),))])

    other = _softmax(with_its_own(1), with_its_own(2))
    assert all(step.old.head != "Div" for step in steps(SCOPE, (other, PLAIN), frozenset()))
