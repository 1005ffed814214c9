"""A whole made of steps of its parts, whose names get a prefix and whose letters may get an index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from symattn.document.model import Text
from symattn.document.notation import Node


@dataclass(frozen=True)
class Part:
    """``name`` is computed by ``run`` from the arrays named in ``of``, and written as ``symbol`` = ``formula``."""

    name: str
    of: tuple[str, ...]
    run: Callable[..., Any]
    symbol: Node
    formula: Node
    reason: Text = ()


def below(prefix: str, names: Iterable[str]) -> dict[str, str]:
    """The names that begin with ``prefix``, by what comes after it."""
    return {name.removeprefix(prefix): name for name in names if name.startswith(prefix)}


def run_parts(parts: Iterable[Part], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given arrays and those that the parts compute, in order."""
    values = dict(given)
    for part in parts:
        values[part.name] = part.run(*[values[name] for name in part.of])
    return values
