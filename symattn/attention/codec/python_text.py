"""Descriptions as Python writes them: ``rotary``, ``Rotary(base=500000, layout='interleaved')``."""

from __future__ import annotations

import ast
from fractions import Fraction
from typing import Any, get_args

from symattn.attention.latent import Latent
from symattn.attention.positions.fields import Position
from symattn.attention.positions.rotary_fields import Scaling
from symattn.document.errors import InputError

#: What reading a text may raise beside InputError.
UNREADABLE = (SyntaxError, ValueError, TypeError, ZeroDivisionError, MemoryError, RecursionError)
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (*get_args(Position), Latent, Fraction, *get_args(Scaling))
}
_SMALL = {name.lower(): name for name in _KINDS}


def read(text: str, known: tuple[str, ...]) -> Any:
    """The position or latent that a text spells, None for ``none``. Raises InputError with one line."""
    if text.lower() == "none":
        return None
    word = _SMALL.get(text.lower(), text)
    try:
        found = value_of(ast.parse(word if "(" in word else f"{word}()", mode="eval").body)
    except InputError:
        raise
    except UNREADABLE as error:
        needs = f"; {error}" if isinstance(error, TypeError) else ""
        raise InputError(f"{text!r} is none of none, {', '.join(known)}{needs}") from None
    if type(found).__name__.lower() not in known:
        raise InputError(f"{text!r} is none of none, {', '.join(known)}")
    return found


def value_of(node: ast.expr) -> Any:
    """The value that an expression of literals, fractions and descriptions stands for. Raises what is UNREADABLE."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        kind = _KINDS.get(_SMALL.get(node.func.id.lower(), node.func.id))
        if kind is None or any(k.arg is None for k in node.keywords):
            raise ValueError(node.func.id)
        return kind(**{str(k.arg): value_of(k.value) for k in node.keywords})
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return Fraction(value_of(node.left)) / Fraction(value_of(node.right))
    if isinstance(node, ast.Tuple):
        return tuple(value_of(item) for item in node.elts)
    return ast.literal_eval(node)
