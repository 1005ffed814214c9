"""Fields of a specification as words: ``rotary``, ``Rotary(base=500000, layout='interleaved')``, and back."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from fractions import Fraction
from typing import Any

from symattn.attention.latent import Latent
from symattn.attention.positions.fields import Alibi, Buckets, Disentangled, Rotary, Shaw, TransformerXL
from symattn.attention.positions.rotary_fields import SCALINGS
from symattn.errors import InputError

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Rotary, Alibi, Buckets, Shaw, TransformerXL, Disentangled, Latent, Fraction, *SCALINGS)
}
#: What reading a text may raise beside InputError.
UNREADABLE = (SyntaxError, ValueError, TypeError, ZeroDivisionError, MemoryError, RecursionError)
_SMALL = {name.lower(): name for name in _KINDS}


def spelled(value: object) -> str:
    """A field's value as ``read`` takes it: what a dataclass has by default is left out.

    >>> spelled(Rotary(base=500000)), spelled(Rotary()), spelled(Fraction(1, 8))
    ('Rotary(base=500000)', 'rotary', '1/8')
    """
    if not is_dataclass(value) or isinstance(value, type):
        return "none" if value is None else str(value) if isinstance(value, str | Fraction) else repr(value)
    told = [(f.name, getattr(value, f.name)) for f in fields(value) if getattr(value, f.name) != f.default]
    name = type(value).__name__
    return f"{name}({', '.join(f'{n}={inside(x)}' for n, x in told)})" if told else name.lower()


def inside(value: object) -> str:
    """A field's value as it stands within the brackets of a description."""
    if is_dataclass(value):
        return spelled(value) if "(" in spelled(value) else f"{type(value).__name__}()"
    return str(value) if isinstance(value, Fraction) else repr(value)


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


def differing(spec: Any, base: object) -> dict[str, Any]:
    """The fields in which a specification differs from another one, in order."""
    return {f.name: getattr(spec, f.name) for f in fields(spec) if getattr(spec, f.name) != getattr(base, f.name)}


def changed_fields(spec: object) -> dict[str, str]:
    """The fields of a specification that are not the usual ones, as ``read`` takes them."""
    return {name: spelled(value) for name, value in differing(spec, type(spec)()).items()}


def called(spec: object) -> str:
    """A specification as reports name it.

    >>> called(Rotary(base=500000, layout="interleaved"))
    'Rotary(base=500000, layout=interleaved)'
    """
    return f"{type(spec).__name__}({', '.join(f'{name}={value}' for name, value in changed_fields(spec).items())})"


def options(values: Mapping[str, object]) -> Iterator[str]:
    """The words by which a command line tells values: ``--causal``, ``--no-stabilised``, ``--window 2,0``."""
    for name, value in values.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{option}" if value else f"--no-{option}"
        else:
            yield from (f"--{option}", str(value))


def default(name: str, kind: type[Any]) -> Any:
    """What a field is if nothing is said."""
    found = next(f.default for f in fields(kind) if f.name == name)
    return None if found is MISSING else found
