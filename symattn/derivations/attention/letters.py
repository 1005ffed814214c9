"""The letters that entries of arrays are written with: q_il, s'_ij, w_{DKV,ml}, cos(θ_il)."""

from __future__ import annotations

from symattn.attention.notation import ARRAYS, SYMBOLS
from symattn.document.notation import Call, Like, Name, Node, node

_PLAIN = {"w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o"}  # whose colour says which they are


def entry(array: str, *index: Like) -> Node:
    """The letter of an entry."""
    return indexed(SYMBOLS[array], index, plain=array in _PLAIN)


def indexed(symbol: Node, index: tuple[Like, ...], plain: bool = False) -> Node:
    """A letter of an array in small print, with indices; ``plain`` without the subscript that it has."""
    if isinstance(symbol, Call):
        return Call(symbol.function, tuple(indexed(part, index) for part in symbol.arguments))
    assert isinstance(symbol, Name)
    base = symbol.base if len(symbol.base.rstrip("'")) > 1 else symbol.base.lower()
    return Name(base, (*(() if plain else symbol.sub), *map(node, index)), symbol.role)


def by_stem() -> dict[str, str]:
    """The name of an array by the word that its letters begin with."""
    return {name.replace("_", ""): name for name in ARRAYS}
