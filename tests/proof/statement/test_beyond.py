"""Bounds that hold of few keys and small numbers alone are not printed with a grade; certificates and demands."""

from fractions import Fraction
from typing import Any

import pytest

from symattn.attention.letters_of_attention import D_K, N_K
from symattn.document import notation as nt
from symattn.document.evidence import Evidence, Grade
from symattn.document.notation import Name, Node, Relation, Transposed, call, equals, name, node, relation, total
from symattn.document.text import text
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.compiling import Link
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import DecidedRelation, RelationQuestion, decided
from symattn.proof.relations.section import Section
from tests.proof.statement.certified import NONE, by, counted
from tests.proof.statement.falsify import DOCUMENTS, questions

e, s, t, B, S, A = (Name(x) for x in ("e", "s", "t", "B", "S", "A"))
Q, K = Name("Q"), Name("K")
p_j, s_j, r_j = name("p", "j"), name("s", "j"), name("r", "j")
GIVEN = {"Q": "n_q d_k", "K": "n_k d_k", "s": "n_k", "r": "n_k", "t": "", "a": "", "b": "", "B": "n_k n_k"}


def section() -> Section:
    made = Section(Glossary(given=GIVEN, index={"i": "n_q", "j": "n_k", "l": "n_k"}))
    made.define(equals(S, Q * Transposed(K)))
    made.define(equals(A, call("softmax", S)))
    made.define(equals(Name("p"), call("softmax", s)))
    return made


def norm(x: Node, kind: str = "") -> Node:
    return nt.Fence("norm", x, Name(kind) if kind else None)


def over(operator: str, body: Node) -> Node:
    return nt.Big(operator, Name("j"), None, None, body)


def size(x: Node) -> Node:
    return nt.Fence("abs", x)


FALSE = [
    # entries past the numbers that are printed
    relation(s_j, "≤", 35), relation(s_j, "<", 41), relation(t, "≥", -100), relation(t * t, "≤", 1600),
    relation(t * t, "≤", 10**7), relation(over("max", size(s_j)), "≤", 10**4), relation(t, "≤", e ** node(8)),
    relation(e**t, "≤", e ** node(40)), relation(e**t, "≥", t**3),
    # weights that are as small, or as near to 1, as one likes
    relation(p_j, "≥", Fraction(1, 10**40)), relation(p_j, "≥", e ** node(-2000)),
    relation(p_j, "≤", Fraction(999, 1000)), relation(p_j, "<", 1), relation(p_j, "≤", 1 / N_K),
    relation(call("tanh", t), "≤", 1 - Fraction(1, 10**25)), relation(call("sigmoid", t), ">", Fraction(1, 10**17)),
    relation(e**t * (1 + Fraction(1, 10**45)), "≤", e**t),
    # more keys than are named
    relation(N_K, "≤", 5), relation(N_K, "<", 6), relation(N_K, "≤", 200), relation(N_K * N_K, "≤", 64),
    relation(D_K, "≤", 100), relation(N_K, "≤", nt.Root(node(40))), relation(N_K, "≤", e ** node(2)),
    relation(call("log", N_K), "≤", 2), relation(call("log", N_K), "<", 4),
    relation(total("j", 1, N_K, p_j * p_j), "≥", Fraction(1, 6)), relation(over("max", p_j), "≥", Fraction(1, 9)),
    relation(call("lse", s), "≤", call("max", s) + 2), relation(call("lse", s), "≤", call("max", s) + 7),
    # norms of the wrong kind
    relation(norm(s, "1"), "≤", norm(s)), relation(norm(s, "1"), "≤", nt.Root(node(5)) * norm(s)),
    relation(norm(s, "1"), "≤", 3 * norm(s)), relation(norm(s), "≤", 3 * norm(s, "∞")),
    relation(norm(B, "F"), "≤", norm(B, "∞")), relation(norm(B, "∞"), "≤", 3 * norm(B, "F")),
    equals(norm(B, "∞"), norm(Transposed(B), "∞")),
    # strict where both sides meet: zeros, ties, one key
    relation(norm(s), ">", 0), relation(norm(s), "<", norm(s, "1")), relation(size(t), ">", 0),
    relation(over("min", s_j), "<", over("max", s_j)), relation(call("lse", s), ">", call("max", s)),
    relation(call("lse", s), "<", call("max", s) + call("log", N_K)), relation(e**t, ">", 1 + t),
    relation(size(call("tanh", t)), "<", size(t)), relation(N_K, "≥", 2), relation(call("log", N_K), ">", 0),
    relation(over("max", s_j + r_j), "<", over("max", s_j) + over("max", r_j)),
    # signs, axes, numbers that are nearly right
    equals(over("max", Name("a") * s_j), Name("a") * over("max", s_j)), equals(size(s_j), s_j),
    equals(call("softmax", Transposed(S)), Transposed(A)), equals(B, Transposed(B)),
    equals(nt.Root(node(2)), Fraction(31850540110485283520417, 22521731009553022305776)),
    equals(Name("π"), Fraction(355, 113)), equals(e, Fraction(2718281828459045, 10**15)),
    equals(t, t + Fraction(1, 10**60)), equals(call("tanh", t), call("tanh", t) + Fraction(1, 10**50)),
    equals(nt.Partial(p_j, name("s", "l")), p_j * (1 - name("p", "l"))),
    relation(nt.Partial(p_j, name("s", "l")), "≤", Fraction(1, 5)),
]  # fmt: skip

u = t + Name("a") - Name("b")
THIN = [
    equals(size(u - 37) + size(38 - u), size(2 * u - 75)), equals(call("relu", u - 37) * call("relu", 38 - u), 0),
    relation(size(u - 37) + size(38 - u), "≤", size(2 * u - 75)),
    equals(call("relu", t**3 - 37) * call("relu", 38 - t**3), 0),
    equals(call("relu", call("max", s) - 37) * call("relu", 38 - call("max", s)), 0),
    relation(call("relu", t**2 - 37) * call("relu", 38 - t**2), "≤", 0),
    relation(call("relu", s_j * r_j - 37) * call("relu", 38 - s_j * r_j), "≤", 0),
    relation(call("relu", e**t - 37) * call("relu", 38 - e**t), "≤", 0),
]  # fmt: skip
"""False between 37 and 38 alone, where no number that is drawn falls."""

CELL = [
    relation(call("max", t, -(10**6)), "≤", 10**7),
    relation(call("relu", u - 37) * call("relu", 38 - u), "<", Fraction(1, 4)),
    relation(
        over("max", size(s_j)), "≤", total("j", 1, N_K, size(s_j)) - call("relu", total("j", 1, N_K, size(s_j)) - 50)
    ),
]
"""False in a cell that is wide, or at one of its points alone."""

TRUE = [
    relation(e**t, "≥", t), relation(norm(s), "≤", norm(s, "1")), relation(N_K**2, "≥", 2 * N_K - 1),
    relation(norm(s, "∞"), "≤", norm(s)), relation(call("lse", s), "≤", call("max", s) + call("log", N_K)),
    relation(nt.Partial(p_j, name("s", "l")), "≤", Fraction(1, 4)), relation(size(call("tanh", t)), "≤", 1),
    relation(total("j", 1, N_K, p_j * p_j), "≥", 1 / N_K), relation(over("max", p_j), "≤", 1),
    relation(call("relu", t - 37) * call("relu", 38 - t), "≤", Fraction(1, 4)),
    equals(call("relu", t) - call("relu", -t), t), equals(size(t) * size(Name("a")), size(t * Name("a"))),
]  # fmt: skip


@pytest.mark.parametrize("formula", [*FALSE, *THIN, *CELL], ids=text)
def test_a_false_bound_is_not_printed_with_a_grade(formula: Node) -> None:
    with pytest.raises(FalseStep):
        section().claim(formula, "")


@pytest.mark.parametrize("formula", TRUE, ids=text)
def test_a_true_bound_keeps_its_grade(formula: Node) -> None:
    assert section().claim(formula, "").evidence is not None


@pytest.mark.deep
@pytest.mark.parametrize(("name", "parameters"), DOCUMENTS)
def test_what_derivations_call_proved_is_certified(name: str, parameters: dict[str, Any]) -> None:
    found, without = counted(questions(name, parameters))
    assert not without
    assert found.total() > 0


def test_a_grade_without_a_certificate_is_seen() -> None:
    relation = nt.equals(nt.name("x"), nt.name("x"))
    assert by(DecidedRelation(relation, lambda _: Evidence(Grade.PROVED, "all sizes"))) == NONE


X, Y, POSITIVE = nt.Name("x"), nt.Name("y"), nt.Name("z")
CANCELLED = nt.equals(nt.Product((nt.Over(X, Y), Y)), X)


def where(relation: Relation, *conditions: Relation, gaps: dict[Node, Node] | None = None) -> str:
    glossary = Glossary(given={"x": "", "y": "", "z": ""}, sizes={}, positive=("z",))
    evidence = decided(RelationQuestion(relation, glossary, gaps=gaps or {}, where=conditions))
    assert evidence.grade.value == "proved"
    return evidence.where


def test_what_an_equation_divides_by_is_told() -> None:
    assert where(CANCELLED) == "all sizes; y ≠ 0"
    assert where(nt.equals(nt.Product((nt.Over(X, POSITIVE), POSITIVE)), X)) == "all sizes"


def test_what_a_bound_divides_by_is_told() -> None:
    square = nt.Over(X * X, Y)
    assert where(nt.relation(square * square, "≥", 0)) == "all sizes; y ≠ 0"
    assert where(nt.relation(X * X, "≥", 0)) == "all sizes"


def test_what_is_divided_by_is_told_where_conditions_are_not_needed() -> None:
    assert where(CANCELLED, nt.relation(X, ">", 0)) == "all sizes; y ≠ 0"


def test_a_chain_of_what_is_known_needs_what_each_link_does() -> None:
    one, other = nt.Over(X, Y), nt.Over(X * X, X * Y)
    chain = Relation(X, (("=", one), ("=", other)))
    known = {
        Link(X, "=", one): Evidence(Grade.PROVED, "all sizes; y ≠ 0"),
        Link(one, "=", other): Evidence(Grade.PROVED, "all sizes; x y ≠ 0"),
    }
    question = RelationQuestion(chain, Glossary(given={"x": "", "y": ""}, sizes={}))
    assert decided(question, known) == Evidence(Grade.PROVED, "all sizes; y ≠ 0; x y ≠ 0")
