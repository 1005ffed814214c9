"""``equivariance``: attention treats all tokens alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.exact import Exact
from symattn.attention.notation import D_K, SYMBOLS, N
from symattn.attention.spec import Attention
from symattn.derivations.steps import together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph, Step, Text
from symattn.document.notation import Name, Node, Relation, Root, Transposed, call, equals
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.section import Section
from symattn.proof.relations.values import Value

_P, _X = Name("P"), SYMBOLS["x"]
_Q, _K, _V = SYMBOLS["q"], SYMBOLS["k"], SYMBOLS["v"]
_WEIGHTS = (SYMBOLS["w_q"], SYMBOLS["w_k"], SYMBOLS["w_v"])
_TOKENS = {"X": "n d", "W_Q": "d d_k", "W_K": "d d_k", "W_V": "d d_v"}
_KEYS = {"Q": "n_q d_k", "K": "n_k d_k", "V": "n_k d_v"}
_EXCHANGED, _TWO = ((0, 1), (1, 0)), ((1,), (0,))

_PERMUTED: Text = ("Let ", _P, " permute the ", N, " tokens: ", _P * _X, " has the rows of ", _X, " in another order.")


def derivation() -> Document:
    """attention(PX) = P attention(X) for every permutation P of the tokens; a causal mask breaks it."""
    return Document(
        "derivation",
        "equivariance",
        ("Attention treats all tokens alike",),
        _blocks(),
        hints=("symattn derive matrix-form", "symattn derive attention --causal"),
    )


def _blocks() -> tuple[Block, ...]:
    functions = {"attention": _of_tokens(Attention())}
    tokens = Section(Glossary(given=_TOKENS, permutations={"P": "n"}, functions=functions))
    tokens.let(tuple(equals(x, _X * w) for x, w in zip((_Q, _K, _V), _WEIGHTS, strict=True)))
    keys = Section(Glossary(given=_KEYS, permutations={"P": "n_k"}))
    alike = equals(call("attention", _Q, _P * _K, _P * _V), call("attention", _Q, _K, _V))
    return (
        Paragraph(_PERMUTED),
        Heading(("The tokens change places",)),
        together(_steps(tokens)),
        tokens.result("Result", equals(call("attention", _P * _X), _P * call("attention", _X))),
        Heading(("Keys and values alone",)),
        together(keys.claim(alike, "a sum does not mind its order")),
        Heading(("A causal mask breaks it",)),
        *_causal(),
        Caveat(("Models know the order of their tokens all the same, by positions that are added or by a mask.",)),
    )


def _of_tokens(attention: Attention) -> Callable[[Reader, Value], Value]:
    """Attention of tokens, with the projections that are given."""

    def attend(reader: Reader, x: Value) -> Value:
        weights = (reader.arrays[key] for key in ("W_Q", "W_K", "W_V"))
        named: dict[str, Any] = dict(zip(("w_q", "w_k", "w_v"), weights, strict=True))
        return Value(attention(x=x.array, **named), (), 2)

    return attend


def _steps(section: Section) -> tuple[Step, ...]:
    """Scores, weights and output of the permuted tokens are the permuted ones."""
    permuted_q, permuted_k, back = _P * _Q, nt.Fence("round", _P * _K), Transposed(_P)
    scaled = nt.Over(_Q * Transposed(_K), Root(D_K))
    weights = call("softmax", scaled)
    return (
        section.claim(
            equals(nt.Over(permuted_q * Transposed(permuted_k), Root(D_K)), _P * scaled * back),
            "rows and columns change places",
        ),
        section.claim(equals(call("softmax", _P * scaled * back), _P * weights * back), "softmax is by row"),
        section.claim(equals(_P * weights * back * _P * _V, _P * weights * _V), ("the order is changed back",)),
    )


def _causal() -> tuple[Block, ...]:
    """The first output of the exchanged tokens is not the second output of the tokens."""
    causal = Attention(causal=True)
    functions = {"causal": _of_tokens(causal)}
    section = Section(Glossary(given={"P": "n n", **_TOKENS}, functions=functions, example=True))
    given = section.let(
        ("With ", equals(_X, nt.matrix(_TWO)), ", ", equals(*_WEIGHTS, nt.matrix([[1]])), " and ",
         equals(_P, nt.matrix(_EXCHANGED)), ", which exchanges the two tokens:")
    )  # fmt: skip
    one = Exact.lift([[1]])
    moved, kept = (causal(x=Exact.lift(x), w_q=one, w_k=one, w_v=one) for x in (_TWO[::-1], _TWO))
    first, second = moved.tolist()[0][0].notation(), kept.tolist()[1][0].notation()
    formula = Relation(
        _first(call("causal", _P * _X)), (("=", first), ("≠", second), ("=", _first(_P * call("causal", _X))))
    )
    return Paragraph(given), together(section.claim(formula, "the first token sees itself alone"))


def _first(x: Node) -> Node:
    return nt.Fence("round", x, nt.commas(1, 1))
