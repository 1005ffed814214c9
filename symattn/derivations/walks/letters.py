"""The letters of entries and rows: S'' has the entries s''_ij and the rows s''_i, in the colour of its role."""

from __future__ import annotations

from collections.abc import Iterable

from symattn.attention.notation import SYMBOLS
from symattn.document.notation import Call, Like, Name, Node, Product, node


def entry_letter(array: str, index: Iterable[int]) -> Node:
    """The letter of an entry: s₁₂ of the scores."""
    return _indexed(SYMBOLS[array], tuple(index))


def product_letter(weights: str, values: str, index: Iterable[int]) -> Node:
    """The letters of an entry of weighted values, a₁₂v₂₁."""
    *front, i, j, c = index
    return Product((entry_letter(weights, (*front, i, j)), entry_letter(values, (*front, j, c))))


def row_symbol(array: str, *index: Like) -> Node:
    """The letter of a row: q₁, s₁, a₁, o₁."""
    return _indexed(SYMBOLS[array], index)


def head_symbol(array: str, head: int) -> Node:
    """The letter of a head of an array: K′₁."""
    symbol = SYMBOLS[array]
    assert isinstance(symbol, Name)
    return Name(symbol.base, (*symbol.sub, node(head)), symbol.role)


def _indexed(symbol: Node, index: tuple[Like, ...]) -> Node:
    if isinstance(symbol, Call):
        return Call(symbol.function, tuple(_indexed(part, index) for part in symbol.arguments))
    assert isinstance(symbol, Name)
    base = symbol.base if len(symbol.base.rstrip("'")) > 1 else symbol.base.lower()
    return Name(base, (*symbol.sub, *map(node, index)), symbol.role)
