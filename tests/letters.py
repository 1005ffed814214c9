"""The letters of the derivations, and how they are written."""

from typing import Any

from symattn import Attention
from symattn import printing as pr
from symattn.attention.letters_of_attention import ARRAYS
from symattn.derivations import scaling
from symattn.derivations.derivation_texts import DerivationText
from symattn.derivations.scaling_numpy import ScalingSetting
from symattn.proof.relations.glossary import Glossary

E = pr.Name("e")
SIGMA, MU = pr.Name("σ"), pr.Name("μ")
ONES = pr.Name("1", bold=True)


def q(*index: pr.Node | str | int) -> pr.Name:
    """q, or q_i."""
    return pr.name("q", *index, role="query")


def k(*index: pr.Node | str | int) -> pr.Name:
    """k, k_i, or k_ji: component i of key j."""
    return pr.name("k", *index, role="key")


def s(*index: pr.Node | str | int) -> pr.Name:
    """s, or the score s_j of key j."""
    return pr.name("s", *index, role="score")


def p(*index: pr.Node | str | int) -> pr.Name:
    """p, or the weight p_j."""
    return pr.name("p", *index, role="weight")


def mean(x: pr.Node | str | int) -> pr.Call:
    """E[x]."""
    return pr.Call(pr.Name("E"), (pr.node(x),), square=True)


def var(x: pr.Node | str | int) -> pr.Call:
    """Var(x)."""
    return pr.call("Var", x)


def dot(x: pr.Node, y: pr.Node) -> pr.Product:
    """x · y."""
    return pr.Product((x, y), "·")


def letters_of(*setting: Any, section: str = "main") -> Glossary:
    """The letters of a section of ``scaling``."""
    text = DerivationText(mu=MU)
    text.blocks(scaling.assumed(ScalingSetting(*setting)) + scaling._ZERO)
    return text.sections[section].glossary


def needed_by(spec: Attention) -> set[str]:
    """The inputs beside tokens and projections that a specification needs, by what the rows of its arrays say."""
    wanted = {name: row.needed for name, row in ARRAYS.items() if row.needed}
    values = {name: getattr(spec, condition.field) for name, condition in wanted.items()}
    return {name for name, condition in wanted.items() if values[name] and condition.fits(values[name])}
