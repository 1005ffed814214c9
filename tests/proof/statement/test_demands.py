"""A printed relation that is proved says what must hold for both sides to have a value."""

from symattn.document import notation as nt
from symattn.document.evidence import Evidence, Grade
from symattn.document.notation import Node, Relation
from symattn.proof.relations.compiling import Link
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import RelationQuestion, decided

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
