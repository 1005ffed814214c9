"""The letters of the derivations, and how they are written."""

from typing import Any

from symattn.derivations import scaling
from symattn.derivations.derivation_texts import DerivationText
from symattn.derivations.scaling_numpy import ScalingSetting
from symattn.document.notation import Call, Like, Name, Node, Product, call, name, node
from symattn.proof.relations.glossary import Glossary

E = Name("e")
SIGMA, MU = Name("σ"), Name("μ")
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


def dot(x: Node, y: Node) -> Product:
    """x · y."""
    return Product((x, y), "·")


def letters_of(*setting: Any, section: str = "main") -> Glossary:
    """The letters of a section of ``scaling``."""
    text = DerivationText(mu=MU)
    text.blocks(scaling.assumed(ScalingSetting(*setting)) + scaling._ZERO)
    return text.sections[section].glossary
