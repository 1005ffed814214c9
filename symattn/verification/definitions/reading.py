"""Definitions as words: ``LayerNorm(eps=1e-6)``, ``Block(norm='rms')``, ``gradient``, and back."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from dataclasses import fields, replace
from importlib import import_module
from typing import Any

from symattn.attention.codec.python_text import UNREADABLE, value_of
from symattn.attention.spec import Attention
from symattn.document.codec import spelled
from symattn.document.errors import InputError
from symattn.verification.definitions.registry import Specification

_ROOM = "symattn.verification.definitions."
_WHERE = {
    "Block": "symattn.attention.layers.block",
    "Cached": _ROOM + "caches",
    "Gradient": _ROOM + "gradients",
    "LayerNorm": _ROOM + "norms",
    "LinearAttention": _ROOM + "linear",
    "Merge": _ROOM + "merging",
    "RMSNorm": _ROOM + "norms",
    "Rotary": "symattn.attention.positions.fields",
    "Softmax": _ROOM + "weights",
}
LSE = "lse"  # an Attention with lse=True
#: The words for definitions.
KNOWN = (LSE, *(name.lower() if name in ("Cached", "Gradient", "Merge", "Softmax") else name for name in _WHERE))
_SMALL = {name.lower(): name for name in (LSE, *_WHERE)}


def read(text: str, attention: Attention | None = None) -> Specification:
    """The definition that a text spells; ``attention`` is the one that it is made of, None where none was told.

    Nothing is evaluated: fields are literals, fractions such as 1/8, and descriptions. Raises InputError with one line.

    >>> read("rmsnorm(eps=0)"), read("lse", Attention(causal=True)).lse
    (RMSNorm(eps=0), True)
    """
    name, node = _parsed(text)
    if name == LSE:
        if node.keywords:
            raise InputError(f"{text!r}: lse has no fields; hint: tell those of the attention by their options")
        return replace(attention or Attention(), lse=True)
    kind: Any = getattr(import_module(_WHERE[name]), name)
    names = [f.name for f in fields(kind)]
    told = _told(text, name, node, [n for n in names if n != "attention"])
    if "attention" in names:
        return kind(attention=attention or Attention(), **told)  # type: ignore[no-any-return]
    if attention is not None:
        raise InputError(f"{name} is made of no attention; hint: leave out its options, or write {name}(FIELD=VALUE)")
    return kind(**told)  # type: ignore[no-any-return]


def written(spec: Specification) -> str:
    """The words that ``read`` takes; the fields of an attention that it is made of are told beside.

    >>> from symattn import LayerNorm
    >>> written(LayerNorm(eps=0.5)), written(Attention(lse=True))
    ('LayerNorm(eps=0.5)', 'lse')
    """
    if isinstance(spec, Attention):
        return LSE
    words = spelled(spec, without="attention")
    return words if "(" in words else next(word for word in KNOWN if word.lower() == words)


def attention_of(spec: Specification) -> Attention | None:
    """The attention that a definition is made of, as options tell it."""
    return replace(spec, lse=False) if isinstance(spec, Attention) else getattr(spec, "attention", None)


def _parsed(text: str) -> tuple[str, ast.Call]:
    """The definition's name, and the call that spells it."""
    try:
        node = ast.parse(text if "(" in text else f"{text}()", mode="eval").body
    except UNREADABLE:
        node = None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise InputError(
            f"{text!r} is not a definition; hint: NAME, or NAME(FIELD=VALUE, ...); known: {', '.join(KNOWN)}"
        )
    if node.func.id.lower() not in _SMALL:
        mean = _near(node.func.id.lower(), map(str.lower, KNOWN))
        raise InputError(f"no definition is called {node.func.id!r}; known: {', '.join(KNOWN)}{mean}")
    return _SMALL[node.func.id.lower()], node


def _told(text: str, name: str, node: ast.Call, names: list[str]) -> dict[str, Any]:
    """The fields' values."""
    told: dict[str, Any] = {}
    for k in node.keywords:
        if k.arg not in names:
            listed = f"; its fields: {', '.join(names)}" if names else "; tell those of the attention by their options"
            raise InputError(f"{text!r}: {name} has no field {k.arg or '**'}{listed}{_near(k.arg or '', names)}")
        try:
            told[k.arg] = value_of(k.value)
        except InputError:
            raise
        except UNREADABLE:
            raise InputError(f"{text!r}: the value of {k.arg} is not a number and no word in quotes") from None
    if node.args:
        raise InputError(f"{text!r}: tell the fields by their names; those of {name}: {', '.join(names)}")
    return told


def _near(word: str, known: Iterable[str]) -> str:
    """``; did you mean LayerNorm?``, or nothing."""
    spelling = {k.lower(): k for k in KNOWN}
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {spelling.get(near[0], near[0])}?" if near else ""
