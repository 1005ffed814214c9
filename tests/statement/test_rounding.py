"""Results of rounding, as they are printed and read."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from symattn.arrays.formats import FORMATS, Format
from symattn.document.evidence import Grade
from symattn.document.notation import Node, Power, Relation, equals, name, node, relation
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.judging import Question, judged
from symattn.proof.relations.rounding import fl
from symattn.theorems.letters import magnitude, power_of_e, said
from symattn.theorems.rounding_formats import FORMAT_LETTERS, INFINITY, U

X, Y = name("x"), name("y")
LETTERS = FORMAT_LETTERS.also({"y": ""}, formats=("float16", "bfloat16"))
MODEL = LETTERS.also({"w": ""}, formats=(), defined={"u": 1 / (2 + power_of_e("w"))}, families={"fl": fl})
SUM, TRIPLE = said("fl", X + Y), said("fl", said("fl", X + Y) + X)
OVERFLOW = relation(X, "≥", (2 - U) * Power(node(2), name("e", "max")))
LARGE = equals(said("fl", X), INFINITY)

TRUE: list[tuple[Relation, tuple[Relation, ...]]] = [
    (equals(SUM, said("fl", Y + X)), ()),
    (equals(said("fl", SUM), SUM), ()),
    (equals(said("fl", X - X), 0), ()),
    (LARGE, (OVERFLOW,)),
]
FALSE: list[tuple[Relation, tuple[Relation, ...]]] = [
    (equals(SUM, X + Y), ()),
    (equals(TRIPLE, said("fl", X + Y + X)), ()),
    (equals(said("fl", X * Y), X * Y), ()),
    (LARGE, (relation(X, "≥", 2 * Power(node(2), name("e", "max"))),)),
    (LARGE, (relation(X, "≥", Power(node(2), name("e", "max"))),)),
]


def asked(formula: Relation, where: tuple[Relation, ...]) -> Question:
    return Question(formula, LETTERS, where=where, only=bool(where))


@pytest.mark.parametrize(("formula", "where"), TRUE)
def test_what_is_so_in_every_format(formula: Relation, where: tuple[Relation, ...]) -> None:
    found = judged(asked(formula, where))
    assert found.grade is Grade.CHECKED
    assert "float16, bfloat16" in found.where


@pytest.mark.parametrize(("formula", "where"), FALSE)
def test_what_is_not_so_in_some_format(formula: Relation, where: tuple[Relation, ...]) -> None:
    with pytest.raises(FalseStep):
        judged(asked(formula, where))


def off(by: Node) -> Relation:
    """The error of a product of three is at most ``by`` times its size."""
    return relation(magnitude(said("fl", X * Y * X) - X * Y * X), "≤", by * magnitude(X * Y * X))


def test_the_model_of_rounding_errs_as_much_as_it_may() -> None:
    assert judged(Question(off(2 * U + U**2), MODEL)).grade is Grade.CHECKED
    with pytest.raises(FalseStep):
        judged(Question(off(2 * U), MODEL))


@pytest.mark.parametrize("format_name", FORMATS)
def test_nearest_is_what_the_formats_do(format_name: str) -> None:
    f, dice = Format(format_name), np.random.default_rng(0)
    for x in np.concatenate([dice.normal(size=50), 10.0 ** dice.uniform(-9, 5, 50), [0.0, float(f.smallest) / 2]]):
        c = float(f.rounded(x))
        assert f.nearest(Fraction(float(x))) == (np.inf if np.isnan(c) else c)
