"""Arrays as notebooks show them: a sentence on what they hold, and a small table of their elements."""

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
# up to ``_MOST`` rows or columns are shown, else the first and the last ones
_MOST = 8
_FIRST = 4
_LAST = 3
_WIDE = 32  # characters of a formula; a longer one is replaced by digits
# Significant digits of an element whose formula is too wide.
_DIGITS = 6
_LONG = 40  # characters of an element without digits


def document(array: Array) -> Document:
    """Return an array of any kind as a document without a title."""
    return Document("listing", _name_of_array_kind(array), (), blocks(array))


def blocks(array: Array) -> tuple[Block, ...]:
    """Return the sentence and the table of an array of any kind, or of NumPy."""
    shape: Place = tuple(map(int, array.shape)) if isinstance(array, ArrayBase) else np.shape(array)
    printer = printer_of(array)
    # An array without axes is one element, shown in the sentence.
    if not shape:
        value: Text = (" It is ", *printer(()), ".") if printer else ()
        return (Paragraph((*sentence(array, shape), *value)),)
    shown = (table(shape, printer),) if printer and prod(shape) else ()
    remark = left_out(shape) if shown else ""
    return Paragraph((*sentence(array, shape), remark)), *shown


def _name_of_array_kind(array: object) -> str:
    return array.name if isinstance(array, ArrayBase) else str(np.asarray(array).dtype)


def sentence(array: object, shape: tuple[object, ...]) -> Text:
    """Return the sentence on an array: its kind, shape and elements, and its dtype if that differs from the kind."""
    name = _name_of_array_kind(array)
    size = (
        f", {' × '.join(map(str, shape))},"
        if len(shape) > 1
        else f" of length {shape[0]}"
        if shape
        else ""
    )
    holds = array.holds if isinstance(array, ArrayBase) else "NumPy's own numbers"
    dtype = getattr(array, "dtype", None)
    # A dtype that is the kind's own name says nothing new.
    dtype_words = "" if dtype is None or str(dtype) == name else f"; its dtype reads {dtype}"
    return "This ", Code(name), f" array{size} holds {holds}{dtype_words}."


def left_out(shape: Place) -> str:
    """Return the sentence on the elements that a table of this shape leaves out, or "" if it shows all."""
    rows = len(_shown_places(prod(shape[:-1])))
    columns = len(_shown_places(shape[-1]))
    missing = prod(shape) - rows * columns
    return f" Of its {prod(shape)} elements {missing} are left out." if missing else ""


# -- the table ---------------------------------------------------------------------------------------------------------
def table(shape: Place, printer: Callable[[Place], Text]) -> Table:
    """Return the elements in rows along the last axis, each row with its index in the other axes."""
    lead, columns = shape[:-1], _shown_places(shape[-1])
    heads = [Column((str(c),)) for c in columns]
    rows = [
        [printer((*_unravel_row_number(row, lead), c)) for c in columns]
        for row in _shown_places(prod(lead))
    ]
    # The gap stands where elements are left out.
    if len(columns) < shape[-1]:
        heads.insert(_FIRST, Column(("⋯",), "centre"))
        rows = [[*row[:_FIRST], ("⋯",), *row[_FIRST:]] for row in rows]
    if lead:
        heads.insert(0, Column(("",)))
        places = (_unravel_row_number(row, lead) for row in _shown_places(prod(lead)))
        rows = [[(", ".join(map(str, at)),), *row] for at, row in zip(places, rows, strict=True)]
    if len(rows) < prod(lead):
        rows.insert(_FIRST, [("⋮",)] * len(heads))
    return Table(tuple(heads), tuple(map(tuple, rows)))


def _shown_places(count: int) -> list[int]:
    """Return the indices of the rows or columns that are shown."""
    if count <= _MOST:
        return list(range(count))
    return [*range(_FIRST), *range(count - _LAST, count)]


def _unravel_row_number(row: int, lead: Place) -> Place:
    return tuple(map(int, np.unravel_index(row, lead))) if lead else ()


def printer_of(array: object) -> Callable[[Place], Text] | None:
    """Return the function from an index to the element as text, for any array; None if elements cannot be printed."""
    if isinstance(array, ArrayBase):
        return array.printer()
    plain = np.asarray(array)
    return lambda at: (element(plain[at]),)


# -- elements ----------------------------------------------------------------------------------------------------------
def element(x: object, written: Callable[[object], Node] | None = None) -> Inline:
    """Return an element of any kind as a formula, as digits if that is wide, or as ``str`` prints it.

    ``written`` gives the notation of elements without one of their own, or raises TypeError.
    """
    if isinstance(x, (Forbidden, Undefined)) or hasattr(x, "notation"):
        return _shorten_element_text(x, formula(x))
    if isinstance(x, (float, np.floating)) and np.isinf(x):
        return Name("∞") if x > 0 else Neg(Name("∞"))
    # Elements without a notation are printed as text.
    with suppress(TypeError):
        return _shorten_element_text(x, written(x)) if written else _cut_long_words(str(x))
    return _cut_long_words(str(x))


def formula(x: Any) -> Node:
    """Return the element as a formula: (1 + 4e²)/(1 + 2e²), −∞ for a forbidden score."""
    # bool is a subclass of int.
    if isinstance(x, int):
        return Words("true" if x else "false") if isinstance(x, bool) else node_of(x)
    if isinstance(x, Forbidden):
        return Neg(Name("∞"))
    if isinstance(x, Undefined):
        return Words("undefined")
    node: Node = x.notation()
    return node


def _shorten_element_text(x: Any, shown: Node) -> Inline:
    if len(text(shown)) <= _WIDE:
        return shown
    if not hasattr(x, "decimal"):
        return _cut_long_words(str(x))
    try:
        digits = x.decimal(_DIGITS)
    except Undecided:  # too close to a rounding boundary for balls to decide
        digits = f"{x.to_float():.{_DIGITS}g}"
    return f"≈ {digits}"


def _cut_long_words(words: str) -> str:
    return words if len(words) <= _LONG else f"{words[:_LONG]} …"
