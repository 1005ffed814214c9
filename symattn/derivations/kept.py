"""Derivations that were told before are not told again: the document is kept, under all that it rests on.

A document is made of decided claims, so what is kept of it is what was decided: formula, reason and grade together.
"""

from __future__ import annotations

import contextlib
from fractions import Fraction
from typing import Any

from symattn import derivations
from symattn.document import cache
from symattn.document.codec import read, written
from symattn.document.model import Document

_PLAIN = (bool, int, str, Fraction, type(None))


def kept(name: str, **parameters: Any) -> Document:
    """``derive(name, **parameters)``, from the user's cache folder if the same source of symattn told it before."""
    key = _key(name, parameters)
    told = key and cache.get("derivations", key)
    if told:
        with contextlib.suppress(ValueError):
            return read(told, Document)
    document = derivations.derive(name, **parameters)
    if key:
        with contextlib.suppress(TypeError, ValueError):  # holds more than documents do, or too long a number
            cache.put("derivations", key, written(document))
    return document


def _key(name: str, parameters: dict[str, Any]) -> str | None:
    """None if the parameters are more than numbers and words, or the source cannot be read."""
    words = [f"{parameter} {type(value).__name__} {value!r}" for parameter, value in sorted(parameters.items())]
    if not all(isinstance(value, _PLAIN) for value in parameters.values()):
        return None
    try:
        return cache.digest([cache.ground(), name, *words])
    except OSError:
        return None
