"""Descriptions as Python writes them: ``rotary``, ``Rotary(base=500000, layout='interleaved')``."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, get_args

from symattn.attention.positions.rotary_fields import Scaling
from symattn.document.errors import InputError, perhaps
from symattn.document.keywords import plain

_UNREADABLE = (SyntaxError, ValueError, TypeError, KeyError, ZeroDivisionError, MemoryError, RecursionError)
_WITHIN: dict[str, type[Any]] = {plain(kind.__name__): kind for kind in get_args(Scaling)}


def parsed(text: str, known: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """Return which of the ``known`` names a text has, and the fields that it gives; nothing is evaluated.

    Raises InputError with one line.

    >>> parsed("rotary(base=100, width=None)", ["Alibi", "Rotary"])
    ('Rotary', {'base': 100, 'width': None})
    """
    names = {plain(name): name for name in known}
    listed = ", ".join(names.values())
    try:
        node: Any = ast.parse(text if "(" in text else f"{text}()", mode="eval").body
    except _UNREADABLE:
        node = None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise InputError(f"{text!r} is no definition; hint: NAME, or NAME(FIELD=VALUE, ...); known: {listed}")
    if plain(node.func.id) not in names:
        raise InputError(f"{node.func.id!r} is not one of {listed}{perhaps(node.func.id, names.values())}")
    if node.args:
        raise InputError(f"{text!r}: fields are given by their names")
    return names[plain(node.func.id)], {k.arg or "**": _field(k, text) for k in node.keywords}


def _field(keyword: ast.keyword, text: str) -> Any:
    try:
        return _value(keyword.value)
    except InputError:
        raise
    except _UNREADABLE:
        raise InputError(f"{text!r}: the value of {keyword.arg} is not a number and no word in quotes") from None


def _value(node: ast.expr) -> Any:
    """Return what an expression of literals, fractions and descriptions stands for. Raises what is unreadable."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        return _WITHIN[plain(node.func.id)](**{str(k.arg): _value(k.value) for k in node.keywords})
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return Fraction(_value(node.left)) / Fraction(_value(node.right))
    if isinstance(node, ast.Tuple):
        return tuple(_value(item) for item in node.elts)
    return ast.literal_eval(node)
