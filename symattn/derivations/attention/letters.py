"""The letters that entries of arrays are written with: q_il, s'_ij, w_{DKV,ml}, cos(θ_il)."""

from __future__ import annotations

from collections.abc import Iterable

from symattn.attention.notation import ARRAYS, SYMBOLS
from symattn.document.notation import Call, Like, Name, Node, Product, node

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


# -- with numbers for indices ------------------------------------------------------------------------------------------
def entry_letter(array: str, index: Iterable[int]) -> Node:
    """The letter of an entry: s₁₂ of the scores."""
    return indexed(SYMBOLS[array], tuple(index))


def product_letter(weights: str, values: str, index: Iterable[int]) -> Node:
    """The letters of an entry of weighted values, a₁₂v₂₁."""
    *front, i, j, c = index
    return Product((entry_letter(weights, (*front, i, j)), entry_letter(values, (*front, j, c))))


def row_symbol(array: str, *index: Like) -> Node:
    """The letter of a row: q₁, s₁, a₁, o₁."""
    return indexed(SYMBOLS[array], index)


def head_symbol(array: str, head: int) -> Node:
    """The letter of a head of an array: K′₁."""
    symbol = SYMBOLS[array]
    assert isinstance(symbol, Name)
    return Name(symbol.base, (*symbol.sub, node(head)), symbol.role)
