"""The entries of each array of attention by their textbook sums, one by one, and whether the array code gives them.

They use no array code but plain loops on elements, so that their agreement says something. An element is whatever an
``Algebra`` computes with: SymPy expressions in a derivation, exact numbers and balls in a walk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from symattn.arrays.special import Undefined
from symattn.attention.flow import Step
from symattn.attention.spec import Attention
from symattn.derivations.attention.place import Algebra, NoTextbook, Place

Entry = Callable[[Place, tuple[int, ...]], Any]
_MODULES = ("tokens", "positions", "scores", "weights")


def entries() -> dict[str, Entry]:
    """Name of a step → its entry at an index."""
    if not _FOUND:
        for module in _MODULES:
            _FOUND.update(import_module(f"symattn.derivations.attention.{module}").ENTRIES)
    return _FOUND


_FOUND: dict[str, Entry] = {}


def expected(
    spec: Attention, step: Step, arrays: Mapping[str, Any], shape: tuple[int, ...], algebra: Algebra
) -> Any | None:
    """Every entry of a step, as an array of objects; None for a step that has no textbook entries here."""
    entry = entries().get(step.name)
    if entry is None:
        return None
    place = Place(spec, step, arrays, shape, algebra)
    found = np.empty(shape, dtype=object)
    try:
        for index in np.ndindex(*shape):
            found[index] = _at(entry, place, index)
    except NoTextbook:
        return None
    return found


def _at(entry: Entry, place: Place, index: tuple[int, ...]) -> Any:
    """The entry, undefined where it is divided by 0."""
    try:
        return entry(place, index)
    except ZeroDivisionError:
        return Undefined(f"{place.step.name} is divided by 0")
