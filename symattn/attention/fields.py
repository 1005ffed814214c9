"""What a field of a description may be: words, truth values, whole numbers, finite numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from math import isfinite
from numbers import Rational, Real
from typing import Any

from symattn.errors import InputError


def check_words(spec: object, words: Mapping[str, tuple[str | None, ...]]) -> None:
    """Raise InputError unless each field is one of its words."""
    for field, allowed in words.items():
        value = getattr(spec, field)
        if (value is not None and not isinstance(value, str)) or value not in allowed:
            raise refusal(spec, field, f"must be one of {', '.join(map(str, allowed))}")


def check_flags(spec: object, fields: Iterable[str]) -> None:
    """Raise InputError unless the fields are True or False."""
    for field in fields:
        if not isinstance(getattr(spec, field), bool):
            raise refusal(spec, field, "must be True or False")


def check_whole(spec: object, least: Mapping[str, int], optional: Iterable[str] = ()) -> None:
    """Raise InputError unless each field is a whole number and at least so much; those ``optional`` may be None."""
    for field, lowest in least.items():
        value = getattr(spec, field)
        if value is None and field in optional:
            continue
        if not whole(value, lowest):
            raise refusal(spec, field, f"must be an integer of at least {lowest}")


def whole(value: object, lowest: int) -> bool:
    """Whether a value is a whole number and at least so much, and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest


def finite(value: Any) -> bool:
    """Whether a value is a finite number, and no truth value."""
    if isinstance(value, Rational):
        return not isinstance(value, bool)
    return isinstance(value, Real) and isfinite(value)


def refusal(spec: object, field: str, rule: str) -> InputError:
    """Return the error for a field that breaks a rule, such as "must be an integer"."""
    return InputError(f"{type(spec).__name__}: {field} {rule}, got {getattr(spec, field)!r}")


# -- representations ---------------------------------------------------------------------------------------------------
def brief(self: Any) -> str:
    """Return ``Attention(causal=True)`` for what differs from ``Attention()`` in one field; a class's ``__repr__``.

    >>> from symattn import Attention, Rotary
    >>> Attention(heads=2, position=Rotary(base=500000))
    Attention(heads=2, position=Rotary(base=500000))
    """
    told = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
    inner = ", ".join(f"{name}={value!r}" for name, value, usual in told if not _same(value, usual))
    return f"{type(self).__name__}({inner})"


def _same(value: object, usual: object) -> bool:
    """Equal, and of one type: 0.0 for 0 is told, since it makes other numbers."""
    return type(value) is type(usual) and bool(value == usual)
