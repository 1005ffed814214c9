"""Arrays of many kinds, which all implement the same part of the Python array API standard.

``kind("exact").lift([[1, "1/3"]])`` makes an array; ``array.xp`` is its namespace. See ``planes`` for the primitives of
a kind, and ``namespace`` for the functions derived from them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from symattn.arrays import plain
from symattn.arrays.formats import FORMATS
from symattn.document.errors import InputError, among, named
from symattn.document.keywords import format_name

FLOATING = FORMATS
# The names that ``kind`` takes.
KINDS = ("exact", "ball", "enclosure", "symbolic", *FLOATING, "torch")


def kind(name: str) -> Any:
    """Return the kind of array called ``name``, one of ``KINDS``.

    >>> kind("exact").lift([[1, "1/2"]]) / 3
    exact([[1/3, 1/6]])
    """
    name = format_name(named("kind()", name, KINDS))
    if name in plain.FORMATS:
        return plain.Plain(name)
    if name in FLOATING:
        return import_module("symattn.arrays.floats").stored(name)
    if name == "torch":
        return import_module("symattn.arrays.tensors").TensorKind()
    if name in KINDS:  # each is a class of its name in a module of its name
        return getattr(import_module(f"symattn.arrays.{name}"), name.capitalize())
    raise InputError(f"unknown kind of array {name!r}{among(name, KINDS)}")
