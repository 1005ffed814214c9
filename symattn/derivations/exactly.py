"""Small examples in exact numbers, and the notation of their entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.exact import Exact
from symattn.arrays.field.quotient import Quotient
from symattn.document import notation as nt
from symattn.document.notation import Node
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader


def value(x: Node, letters: Mapping[str, object]) -> Quotient:
    """Return the value of a printed formula, with a number for each of its letters: d_k → 64."""
    numbers = {key: Exact.lift(number) for key, number in letters.items()}
    glossary = Glossary(dict.fromkeys(numbers, ""), sizes={})
    reader = Reader(glossary, numbers or {"": Exact.lift(1)}, {})
    quotient: Quotient = reader.one(x).array.entries.item()
    return quotient


def exact(data: object) -> Exact:
    """Return numbers as an exact array."""
    return Exact.lift(data)


def entries(x: Any) -> Node:
    """Return the entries of an exact array as a matrix, or a single number."""
    result = x.tolist()
    if not isinstance(result, list):
        return _notation_of_quotient(result)
    rows = result if isinstance(result[0], list) else [result]
    return nt.matrix([[_notation_of_quotient(e) for e in row] for row in rows])


def _notation_of_quotient(x: Quotient) -> Node:
    shown: Node = x.notation()
    return shown


def same(x: Array, y: Array) -> bool:
    """Return whether two exact arrays are equal entry by entry."""
    same_shape = tuple(x.shape) == tuple(y.shape)
    return same_shape and bool((x == y).all())
