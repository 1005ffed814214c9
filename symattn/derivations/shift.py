"""``shift``: softmax sees only the differences of its scores."""

from __future__ import annotations

from symattn.attention.notation import N
from symattn.derivations.letters import HALF, ONES, E, Z, dot, k, p, q, s
from symattn.derivations.steps import together
from symattn.document.model import Caveat, Document, Heading, Paragraph, Step
from symattn.document.notation import Big, Name, Relation, Transposed, call, equals, name, node, total
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.section import Section

_C, _B = Name("c"), Name("b")


def derivation() -> Document:
    """softmax(s + c1) = softmax(s), its two uses, and a shift that does change the weights."""
    section = Section(Glossary(given={"s": "n", "c": ""}, index={"i": "n", "ℓ": "n"}))
    introduced = section.let(("Let ", equals(p(), call("softmax", s())), " be the weights of ", N, " scores."))
    z = equals(Z, total("ℓ", 1, N, E ** s("ℓ")))
    shifted = equals(call("softmax", s() + _C * ONES), call("softmax", s()))
    steps = together(
        section.claim(equals(p("i"), E ** s("i") / Z), ("with ", z)),
        section.claim(equals(E ** (s("i") + _C), E**_C * E ** s("i")), ("for every ", Name("i"))),
        section.claim(shifted, (E**_C, " cancels")),
    )
    return Document(
        "derivation",
        "shift",
        ("Softmax sees only differences",),
        (
            Heading(("The shift",)),
            Paragraph(introduced),
            steps,
            section.result("Result", shifted),
            Heading(("What it is good for",)),
            together(_stable(section), _bias()),
            Heading(("What does change the weights",)),
            together(_one_key()),
            Caveat(("A shift must be the same for all keys of a row; it may differ from row to row.",)),
        ),
        hints=("symattn derive scaling    why the differences must not grow",),
    )


def _stable(section: Section) -> Step:
    largest = Big("max", node("ℓ"), None, None, s("ℓ"))
    formula = equals(call("softmax", s() - largest * ONES), call("softmax", s()))
    return section.claim(formula, "no exponent is positive, none overflows")


def _bias() -> Step:
    """A vector added to all keys changes nothing."""
    section = Section(Glossary(given={"Q": "n_q d_k", "K": "n_k d_k", "V": "n_k d_v", "b": "d_k"}))
    formula = equals(call("attention", "Q", Name("K") + ONES * Transposed(_B), "V"), call("attention", "Q", "K", "V"))
    return section.claim(formula, (equals(dot(q(), k("j") + _B), dot(q(), k("j")) + dot(q(), _B)),))


def _one_key() -> Step:
    """A shift of one key alone: the counterexample with two keys."""
    moved, kept = call(name("softmax", 1), 1, 0), call(name("softmax", 1), 0, 0)
    formula = Relation(moved, (("=", E / (1 + E)), ("≠", HALF), ("=", kept)))
    return Section(Glossary(example=True)).claim(formula, "the first key alone is shifted")
