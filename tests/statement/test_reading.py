"""What can be read of a formula, and what is refused."""

from __future__ import annotations

import pytest

from symattn.attention.notation import D_K, N_K
from symattn.document import notation as nt
from symattn.document.notation import Name, Node, Relation, Transposed, call, equals, name, node, relation, total
from symattn.document.text import text
from symattn.evidence import Grade
from symattn.statement.comparing import FalseStep
from symattn.statement.glossary import Glossary
from symattn.statement.section import Section

Q, K, V, S, A, ONES = (Name(x) for x in ("Q", "K", "V", "S", "A", "𝟏"))
e, s, t = Name("e"), Name("s"), Name("t")
GIVEN = {"Q": "n_q d_k", "K": "n_k d_k", "V": "n_k d_v", "s": "n_k", "t": ""}


def section() -> Section:
    made = Section(Glossary(given=GIVEN, index={"i": "n_q", "j": "n_k", "l": "n_k"}))
    made.define(equals(S, Q * Transposed(K)))
    made.define(equals(A, call("softmax", S)))
    return made


PROVED: list[Node] = [
    equals(name("S", "i", "j"), nt.Product((name("q", "i"), name("k", "j")), "·")),
    equals(A * ONES, ONES),
    equals(total("j", 1, N_K, name("a", "i", "j")), 1),
    equals(Transposed(S), K * Transposed(Q)),
    equals(call("softmax", s + t * ONES), call("softmax", s)),
    equals(call("attention", Q, K, V), call("softmax", Q * Transposed(K) / nt.Root(D_K)) * V),
    equals(nt.Partial(name("s", "j") ** 2, name("s", "l")), 2 * name("δ", "j", "l") * name("s", "j")),
]


@pytest.mark.parametrize("formula", PROVED, ids=text)
def test_read_and_proved(formula: Node) -> None:
    step = section().claim(formula, "")
    assert step.evidence is not None
    assert step.evidence.grade is Grade.PROVED


REFUSED: list[tuple[Node, str]] = [
    (equals(A * ONES, 2 * ONES), "false"),
    (equals(name("S", "i", "j"), name("S", "i", "l")), "free indices"),
    (equals(Name("y"), s), "no meaning"),
    (equals(call("f", s), s), "the function f"),
    (equals(total("h", 1, Name("h"), s), s), "range|meaning"),
    (equals(total("j", 1, name("n", "q"), name("s", "j")), 0), "false|different lengths"),
    (equals(s + t, s), "a number is added"),
    (equals(Transposed(s), s), "a row"),
    (equals(s, t), "one side is a number"),
    (relation(name("s", "j"), "∈", 1), "the sign"),
    (equals(name("s", 3), 0), "false|IndexError|refuse"),
    (relation(e**t, "≤", e ** (2 * t)), "false"),
    (equals(t / (t - t), 1), "Zero|zero"),
    (call("softmax", s), "no relation"),
]


@pytest.mark.parametrize(("formula", "why"), REFUSED, ids=[text(f) for f, _ in REFUSED])
def test_refused(formula: Node, why: str) -> None:
    with pytest.raises(FalseStep, match=why):
        section().claim(formula, "")


def test_a_bound_is_proved_by_its_gap_alone() -> None:
    row = total("j", 1, N_K, e ** name("s", "j"))
    twice = row + e**t
    gap = {row: e**t}
    step = section().claim(relation(row, "<", twice), "", gaps=gap)
    assert step.evidence is not None
    assert step.evidence.grade is Grade.PROVED
    for wrong in (relation(row, "<", twice + e**t), relation(row, ">", twice), relation(row, "<", 2 * row)):
        with pytest.raises(FalseStep):
            section().claim(wrong, "", gaps=gap)


def test_a_bound_without_a_gap_is_checked() -> None:
    step = section().claim(relation(t, "<", e**t), "")
    assert step.evidence is not None
    assert step.evidence.grade is Grade.CHECKED


def test_a_letter_is_defined_once() -> None:
    with pytest.raises(ValueError, match="has a meaning already"):
        section().define(equals(A, call("softmax", 2 * S)))


def test_written_out_for_a_size() -> None:
    formula = equals(total("j", 1, N_K, name("s", "j")), name("s", 1) + name("s", 2))
    step = section().claim(formula, (equals(N_K, 2),))
    assert step.evidence is not None
    assert step.evidence.where == "n_k = 2, all entries"
    for reason in ((equals(N_K, 3),), ()):
        with pytest.raises(FalseStep):
            section().claim(formula, reason)


def example() -> Section:
    made = Section(Glossary(given={"x": "n", "c": ""}, sizes={"n": "n"}, index={"i": "n"}, example=True))
    made.let(("With ", equals("x", nt.matrix([[1, 2]])), " and ", equals("c", 3)))
    return made


def test_an_example_is_decided_in_its_numbers() -> None:
    sum_ = total("i", 1, Name("n"), name("x", "i"))
    step = example().claim(equals(sum_, Name("c"), 3), "")
    assert step.evidence is not None
    assert step.evidence.where == "this example"
    assert example().claim(Relation(sum_ / 7, (("≈", nt.Decimal("0.429")),)), "")
    for wrong in (
        equals(sum_, 4),
        Relation(sum_ / 7, (("≈", nt.Decimal("0.428")),)),
        Relation(sum_, (("≠", node(3)),)),
        Relation(sum_, (("≠", node(5)),)),
        equals(name("x", 3), 0),
    ):
        with pytest.raises(FalseStep):
            example().claim(wrong, "")


def test_numbers_that_do_not_fit_are_refused() -> None:
    made = Section(Glossary(given={"x": "n", "y": "n"}, sizes={"n": "n"}, index={"i": "n"}, example=True))
    made.let((equals("x", nt.matrix([[1, 2]])),))
    with pytest.raises(FalseStep, match="y has no numbers"):
        made.claim(equals(name("x", 1), 1), "")
    made.let((equals("y", nt.matrix([[1, 2, 3]])),))
    with pytest.raises(FalseStep, match="another length"):
        made.claim(equals(name("x", 1), 1), "")
