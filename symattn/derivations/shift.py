"""``shift``: softmax sees only the differences of its scores."""

from __future__ import annotations

from typing import Any

from symattn.arrays.exact import Exact
from symattn.arrays.symbolic import Symbolic
from symattn.attention.notation import N
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.derivations.inputs import same, whole_numbers
from symattn.derivations.letters import ONES, E, Z, dot, k, p, q, s
from symattn.derivations.parameters import whole
from symattn.derivations.steps import checked, defined, hold, together
from symattn.document.model import Caveat, Document, Heading, Result, Step
from symattn.document.notation import Big, Name, Relation, Transposed, call, equals, name, node, total

_MOST = 12
_C, _B = Name("c"), Name("b")
_KEY_SIZES = ((2, 3, 1), (3, 4, 2), (4, 5, 3))  # n_q, n_k, d_k of the check with whole numbers


def derivation(tokens: int = 6) -> Document:
    """softmax(s + c1) = softmax(s), its two uses, and a shift that does change the weights."""
    whole("tokens", tokens, _MOST, 2)
    where = checked("n = 2, all scores" if tokens == 2 else f"n = 2, …, {tokens}, all scores")
    shifted = call("softmax", s() + _C * ONES)
    sizes = range(2, tokens + 1)
    steps = together(
        defined(equals(p("i"), E ** s("i") / Z), ("with ", equals(Z, total("ℓ", 1, N, E ** s("ℓ"))))),
        hold(
            all(map(_common_factor, sizes)),
            equals(E ** (s("i") + _C), E**_C * E ** s("i")),
            ("for every ", Name("i")),
            where,
        ),
        hold(all(map(_cancels, sizes)), equals(shifted, call("softmax", s())), (E**_C, " cancels"), where),
    )
    uses = together(
        hold(
            all(map(_stable, sizes)),
            equals(call("softmax", s() - Big("max", node("ℓ"), None, None, s("ℓ")) * ONES), call("softmax", s())),
            ("no exponent is positive, none overflows",),
            where,
        ),
        _key_bias(),
    )
    return Document(
        "derivation",
        "shift",
        ("Softmax sees only differences",),
        (
            Heading(("The shift",)),
            steps,
            Result("Result", (equals(shifted, call("softmax", s())),), (where,)),
            Heading(("What it is good for",)),
            uses,
            Heading(("What does change the weights",)),
            together(_one_key()),
            Caveat(("A shift must be the same for all keys of a row; it may differ from row to row.",)),
        ),
        command=f"symattn derive shift --tokens {tokens}",
        parameters={"tokens": tokens},
        hints=("symattn derive scaling    why the differences must not grow",),
    )


def _scores(n: int) -> tuple[Any, Any]:
    return Symbolic.letters("s", n), Symbolic.letters("c")


def _common_factor(n: int) -> bool:
    scores, c = _scores(n)
    return same(scores.xp.exp(scores + c), scores.xp.exp(scores) * c.xp.exp(c))


def _cancels(n: int) -> bool:
    scores, c = _scores(n)
    return same(softmax(scores + c, stabilised=False), softmax(scores, stabilised=False))


def _stable(n: int) -> bool:
    scores, _ = _scores(n)
    return same(softmax(scores, stabilised=True), softmax(scores, stabilised=False))


def _key_bias() -> Step:
    """A vector added to every key adds q·b to all scores of a row."""
    holds = True
    for n_q, n_k, d in _KEY_SIZES:
        given = whole_numbers({"q": (n_q, d), "k": (n_k, d), "v": (n_k, d + 1), "b": (d,)})
        b = given.pop("b")
        holds &= same(Attention()(**{**given, "k": given["k"] + b}), Attention()(**given))
    where = checked("whole numbers, (n_q, n_k, d_k) = " + ", ".join(map(str, _KEY_SIZES)))
    return hold(
        holds,
        equals(call("attention", "Q", Name("K") + ONES * Transposed(_B), "V"), call("attention", "Q", "K", "V")),
        (equals(dot(q(), k("j") + _B), dot(q(), k("j")) + dot(q(), _B)),),
        where,
    )


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
