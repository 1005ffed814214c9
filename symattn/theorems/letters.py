"""What the statements of the catalogue are written with, and the functions that they are about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.masks import forbid
from symattn.attention.notation import D_K, N_K, SYMBOLS
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.document.model import Inline, Text
from symattn.document.notation import (
    Big,
    Call,
    Fence,
    Like,
    Node,
    Over,
    Power,
    Product,
    Role,
    Root,
    Transposed,
    call,
    commas,
    equals,
    matrix,
    name,
    node,
    total,
)
from symattn.proof.relations.glossary import Definition, Glossary

ATTENTION = Attention()  # softmax(Q Kᵀ / √d_k) V, of which most statements speak
CAUSAL = Attention(causal=True, fully_masked="nan")

Q, K, V, X = SYMBOLS["q"], SYMBOLS["k"], SYMBOLS["v"], SYMBOLS["x"]
OUT, P, S = SYMBOLS["output"], name("P", role="weight"), SYMBOLS["scores"]
W_Q, W_K, W_V, W_O = SYMBOLS["w_q"], SYMBOLS["w_k"], SYMBOLS["w_v"], SYMBOLS["w_o"]
I_, J_, T_ = name("i"), name("j"), name("t")
M, G, PI = name("M"), name("G"), name("Π")
ONES = name("1", bold=True)
ATTENDING = Glossary(
    given={"Q": "n_q d_k", "K": "n_k d_k", "V": "n_k d_v", "V′": "n_k d_v", "G": "n_q d_v"},
    index={"i": "n_q", "j": "n_k", "l": "n_k", "c": "d_v"},
    defined={
        "S": Definition((), Over(Q * Transposed(K), Root(D_K))),
        "P": Definition((), call("softmax", "S")),
        "O": Definition((), P * V),
    },
    sharp="attained",
)
"""What the letters of attention stand for in most statements."""


def eye(sort: str) -> Callable[[Any], Any]:
    """What I stands for: the identity matrix of a size."""

    def made(reader: Any) -> Any:
        places = reader.xp.arange(reader.length(sort))
        return reader.xp.where(places[:, None] == places[None, :], reader.xp.asarray(1), reader.xp.asarray(0))

    return made


def attention(q: Like = Q, k: Like = K, v: Like = V) -> Call:
    """Attention(Q, K, V)."""
    return call("Attention", q, k, v)


def causal(q: Like = Q, k: Like = K, v: Like = V) -> Call:
    """Causal(Q, K, V): the same with the causal mask."""
    return call("Causal", q, k, v)


def softmax(s: Like) -> Call:
    """softmax(s)."""
    return call("softmax", s)


_ROLES: dict[str, Role] = {"q": "query", "k": "key", "v": "value", "o": "output"}


def row(letter: str, i: Like) -> Node:
    """A row of an array: q_i."""
    return name(letter, i, role=_ROLES.get(letter))


def power_of_e(x: Like) -> Node:
    """e^x."""
    return Power(name("e"), node(x))


def dot(i: Like, j: Like) -> Node:
    """q_i · k_j / √d_k."""
    return Over(Product((row("q", i), row("k", j)), "·"), Root(D_K))


def over_keys(body: Node) -> Node:
    """Σ_j body, over all keys."""
    return total(J_, 1, N_K, body)


def stack(*blocks: Like) -> Node:
    """Blocks of rows, one above the other."""
    return matrix([[b] for b in blocks])


def beside(*parts: Like) -> Node:
    """(x, y): numbers and vectors one after the other."""
    return Fence("round", commas(*parts))


def t(x: Node) -> Node:
    """xᵀ."""
    return Transposed(x)


def norm(x: Node, kind: Like | None = None) -> Node:
    """‖x‖, of the kind in the subscript."""
    return Fence("norm", x, None if kind is None else node(kind))


def largest(index: Like, body: Node) -> Node:
    """max_j body."""
    return Big("max", node(index), None, None, body)


def smallest(index: Like, body: Node) -> Node:
    """min_j body."""
    return Big("min", node(index), None, None, body)


def magnitude(x: Node) -> Node:
    """|x|."""
    return Fence("abs", x)


def said(word: str, *of: Like) -> Node:
    """A function with a name of several letters: rank(P)."""
    return call(word, *of)


def told(words: str, *formulas: Like) -> Text:
    """``words`` with a formula in the place of each {}."""
    first, *rest = words.split("{}")
    found: list[Inline] = [first]
    for formula, piece in zip(formulas, rest, strict=True):
        found += [node(formula), piece]
    return tuple(x for x in found if x != "")


def rows(*arrays: Any) -> Any:
    """Blocks of rows one above the other, as arrays."""
    return arrays[0].__array_namespace__().concat(list(arrays), axis=-2)


def textbook(q: Array, k: Array, v: Array, allowed: Array | None = None) -> Any:
    """Σ_j e^{s_ij} v_j / Σ_j e^{s_ij} over the allowed keys, with S = Q Kᵀ / √d_k: no maximum is subtracted.

    A statement about how arrays are laid out compares attention with this, so that its sides are written apart.
    """
    s = scale_by_root(dot_scores(q, k), q)
    return soft(s if allowed is None else forbid(s, allowed), stabilised=False) @ v


def weights(q: Array, k: Array) -> Any:
    """softmax(Q Kᵀ / √d_k), as an array."""
    return ATTENTION.trace(q, k, k)["weights"]


def same(first: Like, *sides: Like) -> tuple[Node, ...]:
    """The statement first = side = …"""
    return (equals(first, *sides),)
