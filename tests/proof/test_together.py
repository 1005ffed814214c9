"""Statements of several parts: the grade is the weakest, and every false variant must be refuted."""

from __future__ import annotations

from symattn.document.evidence import Grade
from symattn.proof.statement import Declared
from symattn.proof.together import Fails, Positive, Together, bound, identity

X = {"x": "n"}


def _max(x):
    return x.__array_namespace__().max(x)


GOOD = identity(X, lambda x: (2 * x, x + x), lambda x: (2 * x, 3 * x))
OPEN = identity(X, lambda x: (_max(x + 1), _max(x) + 1))
WRONG = identity(X, lambda x: (x, x * x))


def test_the_weakest_part_counts():
    assert Together((GOOD,)).decide().evidence.grade is Grade.PROVED
    assert Together((GOOD, OPEN)).decide().evidence.grade is Grade.CHECKED
    assert Together((GOOD, WRONG)).decide().evidence.grade is Grade.REFUTED


def test_every_false_variant_must_be_refuted():
    true_variant = identity(X, lambda x: (x, x), lambda x: (x + x, 2 * x))
    assert Together((GOOD,)).refute().refuted
    both = Together((GOOD, true_variant)).refute()
    assert not both.refuted
    assert both.accepted


def test_without_a_false_variant_nothing_is_refuted():
    assert not Together((identity(X, lambda x: (x, x)),)).refute().refuted


def test_a_part_without_a_witness_leaves_none():
    never = bound(X, lambda x: (0, 1 + x * x), lambda x: 1 + x * x, assumed={"y": ("n", lambda x: -1 - x * x)})
    assert Together((GOOD,)).witness()
    assert not Together((GOOD, never)).witness()


def test_no_parts_prove_nothing():
    assert Together(()).decide().evidence.grade is Grade.UNDECIDED


def test_positive_needs_a_form_that_shows_it():
    declared = Declared({**X, "p": "n"}, positive=("p",))
    assert Positive(declared, lambda x, p: p * x.__array_namespace__().exp(x)).decide().evidence.grade is Grade.PROVED
    for of in (lambda x: x, lambda x, p: p - x, lambda x, p: x * x * p):
        assert Positive(declared, of).decide().evidence.grade is Grade.UNDECIDED
    assert Positive(declared, lambda p: p, lambda x: x).refute().refuted
    assert not Positive(declared, lambda p: p, lambda p: p + 1).refute().refuted


def test_fails_needs_a_counterexample():
    assert Fails(Declared(X), lambda x: (x, x * x)).decide().evidence.grade is Grade.PROVED
    assert Fails(Declared(X), lambda x: (x, x)).decide().evidence.grade is Grade.UNDECIDED
