"""Values as text: records of the JSON form, words and command lines.

A dataclass is recorded by its fields, or by the entries in its ``RECORD``: ``name``, ``key = path`` for another key,
``name?`` is left out if empty, ``name?other`` if ``other`` is empty, and ``*name`` stands for the entries of a mapping.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from math import isfinite
from typing import Any

from symattn.document import notation as nt

Record = dict[str, Any]
"""The JSON form of an object, by key."""


def record(x: object) -> Any:
    """Return the JSON form of a value: no bare NaN or infinity, exact numbers as strings; formulas as they are.

    >>> from symattn.document.evidence import Evidence, Grade

    >>> record(Evidence(Grade.PROVED, "for all n"))
    {'grade': 'proved', 'where': 'for all n'}
    """
    match x:
        case Enum():
            return x.value
        case None | bool() | int() | str() | nt.Node():
            return x
        case float():
            return x if isfinite(x) else str(x)
        case Mapping():
            return {str(key): record(value) for key, value in x.items()}
        case tuple() if hasattr(x, "_asdict"):
            return record(x._asdict())
        case list() | tuple():
            return [record(value) for value in x]
    if is_dataclass(x):
        return _record_object_fields(x)
    if isinstance(x, Fraction) or hasattr(x, "notation"):
        return str(x)
    raise TypeError(f"no JSON for {type(x).__name__}")


def _record_object_fields(x: Any) -> Record:
    """Return the entries in ``RECORD``, or all fields."""
    result: Record = {}
    entries = x.RECORD.split(", ") if hasattr(x, "RECORD") else [f.name for f in fields(x)]
    for entry in entries:
        name, optional, condition = entry.partition("?")
        key, _, path = name.partition(" = ")
        value = _follow_attribute_path(x, path or key.removeprefix("*"))
        if key.startswith("*"):
            result |= record(value)
        elif not optional or (_follow_attribute_path(x, condition) if condition else value):
            result[key] = record(value)
    return result


def _follow_attribute_path(x: object, path: str) -> Any:
    """Return the value at the end of a path of attributes, or None if one on the path is None."""
    for name in path.split("."):
        x = None if x is None else getattr(x, name)
    return x


# -- words -------------------------------------------------------------------------------------------------------------
def spelled(value: object, without: str = "") -> str:
    """Return a field's value for a command line, without fields of a dataclass that have defaults, or are ``without``.

    >>> from fractions import Fraction

    >>> from symattn.document.evidence import Evidence, Grade

    >>> spelled(Evidence(Grade.PROVED)), spelled(Fraction(1, 8)), spelled(None)
    ("Evidence(grade=<Grade.PROVED: 'proved'>)", '1/8', 'none')
    """
    if not is_dataclass(value) or isinstance(value, type):
        return (
            "none"
            if value is None
            else str(value)
            if isinstance(value, str | Fraction)
            else repr(value)
        )
    usual = {f.name: f.default for f in fields(value) if f.name != without}
    changed = {n: getattr(value, n) for n in usual if getattr(value, n) != usual[n]}
    name = type(value).__name__
    words = (f"{n}={inside(x)}" for n, x in changed.items())
    arguments = ", ".join(words)
    return f"{name}({arguments})" if changed else name.lower()


def inside(value: object) -> str:
    """Return a field's value in the notation used within the brackets of a description."""
    if is_dataclass(value):
        return spelled(value) if "(" in spelled(value) else f"{type(value).__name__}()"
    return str(value) if isinstance(value, Fraction) else repr(value)


def differing(spec: Any, base: object) -> dict[str, Any]:
    """Return the fields in which a specification differs from another, in order."""
    return {
        f.name: getattr(spec, f.name)
        for f in fields(spec)
        if getattr(spec, f.name) != getattr(base, f.name)
    }


def changed_fields(spec: object) -> dict[str, str]:
    """Return the fields of a specification that differ from their defaults, as text."""
    changed = differing(spec, type(spec)())
    return {name: spelled(value) for name, value in changed.items()}


def called(spec: object) -> str:
    """Return the name of a specification in reports: ``Rotary(base=500000, layout=interleaved)``."""
    changed = changed_fields(spec).items()
    arguments = ", ".join(f"{name}={value}" for name, value in changed)
    return f"{type(spec).__name__}({arguments})"


# -- command lines -----------------------------------------------------------------------------------------------------
def command(
    *words: object, options: Mapping[str, object] | Iterable[tuple[str, object]] = ()
) -> str:
    """Return the command line of symattn that reproduces a document.

    Options that are None are left out, booleans become flags, and lists repeat the option for each entry.

    >>> command("walk", "my sheet.json", options={"causal": True, "window": (2, None), "tokens": None, "scale": 0.25})
    "symattn walk 'my sheet.json' --causal --window 2,none --scale 0.25"
    """
    pairs = options.items() if isinstance(options, Mapping) else options
    options_in_order = (w for name, value in pairs for w in _yield_option_words(name, value))
    return join_words(["symattn", *map(str, words), *options_in_order])


def join_words(words: Iterable[str]) -> str:
    """Return a command line of these words, each quoted if a shell needs it.

    A word with apostrophes stands between double quotes, unless a shell would read more in it: ``shlex.quote`` ends and
    begins its quotes at each apostrophe, which nobody can read.

    >>> join_words(["symattn", "verify", "f.py:f", "--definition", "LinearAttention(gate='token')"])
    'symattn verify f.py:f --definition "LinearAttention(gate=\'token\')"'
    """
    return " ".join(map(quote_word, words))


# What shells replace, or end the quotes at, between double quotes.
_READ_IN_DOUBLE_QUOTES = frozenset('"$`\\!\n')


def quote_word(word: str) -> str:
    """Return a word as a shell needs it, see ``join_words``."""
    is_plain = _READ_IN_DOUBLE_QUOTES.isdisjoint(word)
    return f'"{word}"' if "'" in word and is_plain else shlex.quote(word)


def _yield_option_words(name: str, value: object) -> Iterator[str]:
    option = name.replace("_", "-")
    if isinstance(value, bool):
        yield f"--{option}" if value else f"--no-{option}"
    elif value is not None:
        for item in value if isinstance(value, list) else [value]:
            yield from (f"--{option}", typed(item))


def typed(value: object) -> str:
    """Return the value of an option as text: floats with as few digits as reproduce them."""
    if isinstance(value, float):
        # The short form only where it reads back as the same number.
        if float(f"{value:g}") == value:
            return f"{value:g}"
        return repr(value)
    if isinstance(value, tuple):
        return ",".join(map(typed, value))
    return spelled(value) if value is None or is_dataclass(value) else str(value)
