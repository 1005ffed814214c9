"""The representation of a description: only what is not as it is by default, and ``eval`` reads it back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def brief(self: Any) -> str:
    """Return ``Attention(causal=True)`` for what differs from ``Attention()`` in one field; a class's ``__repr__``.

    >>> from symattn import Attention, Rotary
    >>> Attention(heads=2, position=Rotary(base=500000))
    Attention(heads=2, position=Rotary(base=500000))
    """
    told = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
    inner = ", ".join(f"{name}={value!r}" for name, value, usual in told if not _same(value, usual))
    return f"{type(self).__name__}({inner})"


def _same(value: Any, usual: Any) -> bool:
    """Equal, and of one type: 0.0 for 0 is told, since it makes other numbers."""
    return type(value) is type(usual) and bool(value == usual)
