"""Public names that are imported on first use, each from the module that a stub for type checkers names.

A public module has a stub beside it, with a line ``from MODULE import NAME as NAME`` for each name. So it can offer
names of many modules, and importing it imports none of these.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

# A line that is too long stands in brackets.
_IMPORT = re.compile(r"^from (symattn\.[\w.]+) import \(?\s*(\w+) as \2\b", re.MULTILINE)


def read_stub(file: str) -> dict[str, str]:
    """Return the module of each public name of the module in ``file``, by its stub."""
    with open(os.path.splitext(file)[0] + ".pyi", encoding="utf-8") as stub:
        return {name: module for module, name in _IMPORT.findall(stub.read())}


def import_name(module: str, places: Mapping[str, str], name: str) -> Any:
    """Return the value of a public name of ``module``. Raises AttributeError if it is not among ``places``."""
    if name not in places:
        raise AttributeError(
            f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module]
        )
    return getattr(import_module(places[name]), name)


def offer_names(
    module: str, file: str
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a public module, whose names its stub lists."""
    places = read_stub(file)
    names = sorted(places)
    return names, partial(import_name, module, places), lambda: names
