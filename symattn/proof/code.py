"""The code of a statement, the whole numbers and code that it reaches, and whose code raised an exception."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from symattn.document.stored_results import ROOT
from symattn.document.values_in_use import values_in_use


def reached(*functions: object) -> Iterator[int | CodeType]:
    """Yield integers and code in functions, in values they hold, and in user functions that they call."""
    visited: set[int] = set()
    for f in functions:
        yield from _yield_integers_and_code(f, visited, 0)


def raised_in_symattn(error: BaseException) -> bool:
    """Return whether symattn's own code, or a library that it called, raised ``error``, rather than a user's."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).resolve().is_relative_to(ROOT):
            return True
        if "site-packages" not in frame.filename and not frame.filename.startswith("<frozen"):
            return False
    return False


def _yield_integers_and_code(x: object, visited: set[int], depth: int) -> Iterator[int | CodeType]:
    # The depth is limited, as values may refer to each other through globals.
    if isinstance(x, bool) or x is None or depth > 12:
        return
    if isinstance(x, int):
        yield x
        return
    # Parts of modules and classes are not parts of the statement.
    without_code = isinstance(x, (str, bytes, float, ModuleType, type))
    if id(x) in visited or without_code:
        return
    visited.add(id(x))
    if isinstance(x, CodeType):
        yield x
    for y in _yield_inner_values(x):
        yield from _yield_integers_and_code(y, visited, depth + 1)


def _yield_inner_values(x: object) -> Iterator[Any]:
    """Yield the parts of a value in which integers of the statement may occur."""
    if isinstance(x, FunctionType):
        # The engine's own code holds integers that say nothing about the statement.
        if not (x.__module__ or "").startswith("symattn.") or x.__module__.startswith(
            "symattn.theorems"
        ):
            yield x.__code__
            yield from (x.__globals__[n] for n in names(x.__code__) if n in x.__globals__)
            yield from (cell.cell_contents for cell in x.__closure__ or () if is_cell_filled(cell))
            yield from (x.__defaults__ or ())
            yield from (x.__kwdefaults__ or {}).values()
        # A wrapper of the engine holds the statement's functions in its closure.
        elif x.__closure__:
            yield from (cell.cell_contents for cell in x.__closure__ if is_cell_filled(cell))
    elif isinstance(x, CodeType):
        yield from x.co_consts
    elif isinstance(x, (tuple, list, set, frozenset, range)):
        # The items of a range are not integers that somebody wrote.
        yield from (x if not isinstance(x, range) else (x.start, x.stop))
    elif isinstance(x, dict):
        yield from x.values()
    elif isinstance(x, partial):
        yield from (x.func, x.args, x.keywords)
    elif is_dataclass(x):
        yield from values_in_use(x)


def names(code: CodeType) -> set[str]:
    """Return the names that code, and code nested in it, looks up."""
    inner = [names(c) for c in code.co_consts if isinstance(c, CodeType)]
    return set(code.co_names).union(*inner)


def is_cell_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
