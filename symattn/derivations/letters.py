"""The letters of the derivations, and how they are written."""

from __future__ import annotations

from fractions import Fraction

from symattn.document import notation as nt
from symattn.document.characters import GREEK
from symattn.document.notation import Call, Like, Name, Node, Product, call, name, node

E = Name("e")
HALF = nt.Number(Fraction(1, 2))
SIGMA, MU, DELTA, EPSILON = Name("σ"), Name("μ"), Name("Δ"), Name("ε")
J, Z, X = Name("J"), Name("Z"), Name("x")
P = Name("p", role="weight")
ONES = Name("1", bold=True)


def q(*index: Like) -> Name:
    """q, or q_i."""
    return name("q", *index, role="query")


def k(*index: Like) -> Name:
    """k, k_i, or k_ji: component i of key j."""
    return name("k", *index, role="key")


def s(*index: Like) -> Name:
    """s, or the score s_j of key j."""
    return name("s", *index, role="score")


def p(*index: Like) -> Name:
    """p, or the weight p_j."""
    return name("p", *index, role="weight")


def mean(x: Like) -> Call:
    """E[x]."""
    return Call(Name("E"), (node(x),), square=True)


def var(x: Like) -> Call:
    """Var(x)."""
    return call("Var", x)


def cov(x: Like, y: Like) -> Call:
    """Cov(x, y)."""
    return call("Cov", x, y)


def dot(x: Node, y: Node) -> Product:
    """x · y."""
    return Product((x, y), "·")


def parameter(word: str) -> Name:
    """``mu`` as μ."""
    return Name(GREEK.get(word, word))
