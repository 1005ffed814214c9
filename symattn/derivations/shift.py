"""``shift``: softmax sees only the differences of its scores."""

from __future__ import annotations

from typing import Any

from symattn.arrays.exact import Exact
from symattn.attention.notation import N
from symattn.attention.softmax import softmax
from symattn.derivations.letters import ONES, E, Z, dot, k, p, q, s
from symattn.derivations.proving import cited, shown
from symattn.derivations.steps import checked, defined, hold, together
from symattn.document.model import Caveat, Document, Heading, Result, Step
from symattn.document.notation import Big, Name, Relation, Transposed, call, equals, name, node, total
from symattn.proof.theorem import Method
from symattn.proof.together import identity
from symattn.theorems.softmax import softmax_shift
from symattn.theorems.structure import key_bias_redundant
from symattn.theorems.sums import exp

_C, _B = Name("c"), Name("b")


def derivation() -> Document:
    """softmax(s + c1) = softmax(s), its two uses, and a shift that does change the weights."""
    shifted = call("softmax", s() + _C * ONES)
    result = cited(equals(shifted, call("softmax", s())), (E**_C, " cancels"), softmax_shift)
    steps = together(
        defined(equals(p("i"), E ** s("i") / Z), ("with ", equals(Z, total("ℓ", 1, N, E ** s("ℓ"))))),
        shown(equals(E ** (s("i") + _C), E**_C * E ** s("i")), ("for every ", Name("i")), common_factor()),
        result,
    )
    uses = together(
        shown(
            equals(call("softmax", s() - Big("max", node("ℓ"), None, None, s("ℓ")) * ONES), call("softmax", s())),
            "no exponent is positive, none overflows",
            stable(),
        ),
        cited(
            equals(call("attention", "Q", Name("K") + ONES * Transposed(_B), "V"), call("attention", "Q", "K", "V")),
            (equals(dot(q(), k("j") + _B), dot(q(), k("j")) + dot(q(), _B)),),
            key_bias_redundant,
        ),
    )
    assert result.evidence
    return Document(
        "derivation",
        "shift",
        ("Softmax sees only differences",),
        (
            Heading(("The shift",)),
            steps,
            Result("Result", (result.formula,), (result.evidence,)),
            Heading(("What it is good for",)),
            uses,
            Heading(("What does change the weights",)),
            together(_one_key()),
            Caveat(("A shift must be the same for all keys of a row; it may differ from row to row.",)),
        ),
        command="symattn derive shift",
        hints=("symattn derive scaling    why the differences must not grow",),
    )


def common_factor() -> Method:
    """e^{s_i + c} = e^c e^{s_i}."""
    return identity({"s": "n", "c": ""}, lambda s, c: (exp(s + c), exp(c) * exp(s)))


def stable() -> Method:
    """The weights with the maximum subtracted are those without, whichever way they are computed."""

    def sides(s: Any) -> Any:
        plain, xp = softmax(s, stabilised=False), s.__array_namespace__()
        return [
            (softmax(s, stabilised=True), plain),
            (softmax(s - xp.max(s, axis=-1, keepdims=True), stabilised=False), plain),
        ]

    return identity({"s": "n m"}, sides)


def _one_key() -> Step:
    """A shift of one key alone: the counterexample with two keys."""
    moved, kept = softmax(Exact.lift([1, 0])), softmax(Exact.lift([0, 0]))
    first = moved.tolist()[0], kept.tolist()[0]
    return hold(
        first[0] != first[1],
        Relation(
            call(name("softmax", 1), 1, 0),
            (("=", first[0].notation()), ("≠", first[1].notation()), ("=", call(name("softmax", 1), 0, 0))),
        ),
        "the first key alone is shifted by 1",
        checked("these scores"),
    )
