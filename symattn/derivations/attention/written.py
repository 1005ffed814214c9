"""Matrices of entries, where they fit a line: sums of letters, cut with a word where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays.special import FORBIDDEN, Undefined
from symattn.attention.letters_of_attention import ARRAYS, SYMBOLS
from symattn.derivations.attention.entry_formulas import by_stem, indexed
from symattn.derivations.attention.inputs import DerivationRequest
from symattn.document import notation as nt
from symattn.document.notation import Matrix, Name, Node, Words, name, node
from symattn.document.sympify import from_sympy
from symattn.document.text import text

_WIDEST = 62  # columns of the matrices that are written out
_MOST = 36  # entries of them
_ORDER: tuple[nt.Role, ...] = ("query", "key", "weight", "value")
TOO_LARGE = "cut"
"""What stands in the place of a matrix that is too large to be written out."""


def written_out(request: DerivationRequest, array: Any) -> tuple[Matrix, str] | str:
    """The matrix of entries and which heads it is of, or ``TOO_LARGE``."""
    sheets = [array.entries[front] for front in np.ndindex(*array.shape[: max(array.ndim - 2, 0)])]
    if array.ndim < 2:
        sheets = [array.entries[None, :]]
    if any(sheet.size > _MOST for sheet in sheets[:1]):
        return TOO_LARGE
    headed = request.spec.heads > 1 and array.ndim > 2
    sheets = sheets if headed else sheets[:1]
    shown = [nt.matrix([[_entry(x, headed) for x in row] for row in sheet]) for sheet in sheets]
    if max(sum(len(text(x)) + 2 for x in row) for row in shown[0].rows) > _WIDEST:
        return TOO_LARGE
    if not headed:
        return shown[0], "written out"
    return shown[0], "in every head alike" if all(sheet == shown[0] for sheet in shown) else "in the first head"


def _entry(x: object, headed: bool) -> Node:
    """An entry with the letters of the formulas; the index of the head is left out."""
    if x is FORBIDDEN:
        return nt.Neg(Name("∞"))
    if isinstance(x, Undefined):
        return Words("undefined")
    return _relettered(from_sympy(x, {}), headed)


def _relettered(x: Node, headed: bool) -> Node:
    if isinstance(x, Name) and x.base in _STEMS:
        array = _STEMS[x.base]
        index = _indices(x)
        own = headed and "[" in ARRAYS[array].shape
        return indexed(SYMBOLS[array], index[1:] if own else index, plain=array.startswith(("w_", "b_")))
    if isinstance(x, nt.Call):  # its name is no letter
        return nt.Call(x.function, tuple(_relettered(part, headed) for part in x.arguments))
    if isinstance(x, nt.Product):
        factors = [_relettered(f, headed) for f in x.factors]
        return nt.Product(tuple(sorted(factors, key=_place)), x.sign)
    return nt.mapped(x, lambda part: _relettered(part, headed))


_STEMS = by_stem()


def _indices(x: Name) -> tuple[Node, ...]:
    """The indices one by one: 123 is 1, 2, 3 unless they are apart already."""
    if len(x.sub) == 1 and isinstance(x.sub[0], nt.Number):
        return tuple(node(int(digit)) for digit in str(x.sub[0].value))
    return x.sub


def _place(x: Node) -> int:
    """Queries before keys, weights before values; other factors keep their places at the front."""
    return _ORDER.index(x.role) if isinstance(x, Name) and x.role in _ORDER else -1


def pattern(weights: Any, allowed: np.ndarray) -> Matrix:
    """Letters where a weight is not 0."""
    sheet = weights.entries[(0,) * (weights.entries.ndim - 2)]
    indices = np.ndindex(*sheet.shape)
    cells = {(i, j): node(0) if sheet[i, j] == 0 else name("a", i + 1, j + 1, role="weight") for i, j in indices}
    return nt.matrix([[cells[i, j] for j in range(sheet.shape[1])] for i in range(sheet.shape[0])])
