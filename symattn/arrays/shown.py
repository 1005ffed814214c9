"""Arrays as notebooks show them: what they hold, in a sentence, and a small table of their elements."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.base import ArrayBase
from symattn.arrays.special import Forbidden, Undefined
from symattn.document.errors import Undecided
from symattn.document.model import Block, Code, Column, Document, Inline, Paragraph, Table, Text
from symattn.document.notation import Name, Neg, Node, Words
from symattn.document.notation import node as node_of
from symattn.document.text import text

Place = tuple[int, ...]
_MOST, _FIRST, _LAST = 8, 4, 3  # rows or columns that are all shown; of more, so many at the ends
_WIDE = 32  # characters of an element, beyond which digits stand for it
_DIGITS = 6
_LONG = 40  # characters of what has no digits


def document(array: Array) -> Document:
    """An array of any kind, without a title."""
    return Document("listing", _name(array), (), blocks(array))


def blocks(array: Array) -> tuple[Block, ...]:
    """The sentence and the table of an array of any kind, or of NumPy's."""
    shape: Place = tuple(map(int, array.shape)) if isinstance(array, ArrayBase) else np.shape(array)
    result = teller(array)
    if not shape:
        value: Text = (" It is ", *result(()), ".") if result else ()
        return (Paragraph((*sentence(array, shape), *value)),)
    shown = (table(shape, result),) if result and prod(shape) else ()
    return Paragraph((*sentence(array, shape), left_out(shape) if shown else "")), *shown


def _name(array: object) -> str:
    return array.name if isinstance(array, ArrayBase) else str(np.asarray(array).dtype)


def sentence(array: object, shape: tuple[object, ...]) -> Text:
    """The kind, the shape, what is held, and the dtype where that is another word."""
    name = _name(array)
    size = f", {' × '.join(map(str, shape))}," if len(shape) > 1 else f" of length {shape[0]}" if shape else ""
    holds = array.holds if isinstance(array, ArrayBase) else "NumPy's own numbers"
    dtype = getattr(array, "dtype", None)
    said = "" if dtype is None or str(dtype) == name else f"; its dtype reads {dtype}"
    return "This ", Code(name), f" array{size} holds {holds}{said}."


def left_out(shape: Place) -> str:
    """How many elements a table of this shape does not show; nothing where it shows all."""
    rows, columns = len(_kept(prod(shape[:-1]))), len(_kept(shape[-1]))
    missing = prod(shape) - rows * columns
    return f" Of its {prod(shape)} elements {missing} are left out." if missing else ""


# -- the table ---------------------------------------------------------------------------------------------------------
def table(shape: Place, told: Callable[[Place], Text]) -> Table:
    """The elements in rows along the last axis, each row with its place in the other axes."""
    lead, columns = shape[:-1], _kept(shape[-1])
    heads = [Column((str(c),)) for c in columns]
    rows = [[told((*_unravelled(row, lead), c)) for c in columns] for row in _kept(prod(lead))]
    if len(columns) < shape[-1]:
        heads.insert(_FIRST, Column(("⋯",), "centre"))
        rows = [[*row[:_FIRST], ("⋯",), *row[_FIRST:]] for row in rows]
    if lead:
        heads.insert(0, Column(("",)))
        places = (_unravelled(row, lead) for row in _kept(prod(lead)))
        rows = [[(", ".join(map(str, at)),), *row] for at, row in zip(places, rows, strict=True)]
    if len(rows) < prod(lead):
        rows.insert(_FIRST, [("⋮",)] * len(heads))
    return Table(tuple(heads), tuple(map(tuple, rows)))


def _kept(count: int) -> list[int]:
    """The numbers of the rows or columns that are shown."""
    if count <= _MOST:
        return list(range(count))
    return [*range(_FIRST), *range(count - _LAST, count)]


def _unravelled(row: int, lead: Place) -> Place:
    return tuple(map(int, np.unravel_index(row, lead))) if lead else ()


def teller(array: object) -> Callable[[Place], Text] | None:
    """How an element of an array of any kind, or of NumPy's, is printed; None where there is none to be printed."""
    if isinstance(array, ArrayBase):
        return array.told()
    plain = np.asarray(array)
    return lambda at: (element(plain[at]),)


# -- elements ----------------------------------------------------------------------------------------------------------
def element(x: object, written: Callable[[object], Node] | None = None) -> Inline:
    """One element of any kind: a formula, digits where that is wide, or as the element itself is printed.

    Elements that have no notation of their own have that of ``written``, which raises TypeError for what has none.
    """
    if isinstance(x, (Forbidden, Undefined)) or hasattr(x, "notation"):
        return _short(x, formula(x))
    if isinstance(x, (float, np.floating)) and np.isinf(x):
        return Name("∞") if x > 0 else Neg(Name("∞"))
    with suppress(TypeError):
        return _short(x, written(x)) if written else _cut(str(x))
    return _cut(str(x))


def formula(x: Any) -> Node:
    """The element as it is written: (1 + 4e²)/(1 + 2e²), −∞ for a forbidden score."""
    if isinstance(x, int):
        return Words("true" if x else "false") if isinstance(x, bool) else node_of(x)
    if isinstance(x, Forbidden):
        return Neg(Name("∞"))
    if isinstance(x, Undefined):
        return Words("undefined")
    node: Node = x.notation()
    return node


def _short(x: Any, shown: Node) -> Inline:
    if len(text(shown)) <= _WIDE:
        return shown
    if not hasattr(x, "decimal"):
        return _cut(str(x))
    try:
        digits = x.decimal(_DIGITS)
    except Undecided:  # so near to a round number that no ball tells which side it is on
        digits = f"{x.to_float():.{_DIGITS}g}"
    return f"≈ {digits}"


def _cut(words: str) -> str:
    return words if len(words) <= _LONG else f"{words[:_LONG]} …"
