"""The numbers that a statement names, and those whose meaning is not what is written.

A window of 4 is no window at sizes up to 4: so sizes are tried beyond every whole number in the code of a statement. A
float stands for a number that it may not be: π, e and their simple multiples are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

from symattn.arrays.irrational import irrational

LARGEST = 2000  # a size that can still be gone beyond
_FLOAT = re.compile(r"the float (\S+) was taken")


def literals(*functions: Any) -> tuple[int, ...]:
    """The whole numbers above 1 in the code of functions, in what they hold, and in what they call of a user's."""
    seen: set[int] = set()
    found = {abs(n) for f in functions for n in _of(f, seen, 0)}
    return tuple(sorted(n for n in found if n > 1))


def meaningless(notes: Iterable[str]) -> str:
    """What in the notes of a run is no number that a float can be; empty if there is nothing."""
    floats = (float(found[1]) for note in notes if (found := _FLOAT.search(note)))
    return next((f"the float {x!r} is not {name}" for x in floats if (name := irrational(x))), "")


def _of(x: Any, seen: set[int], depth: int) -> Iterator[int]:
    if isinstance(x, bool) or x is None or depth > 12:
        return
    if isinstance(x, int):
        yield x
        return
    if id(x) in seen or isinstance(x, (str, bytes, float, ModuleType, type)):
        return
    seen.add(id(x))
    for y in _inside(x):
        yield from _of(y, seen, depth + 1)


def _inside(x: Any) -> Iterator[Any]:
    """What a value is made of, as far as whole numbers of the statement may be in it."""
    if isinstance(x, FunctionType):
        if not (x.__module__ or "").startswith("symattn.") or x.__module__.startswith("symattn.theorems"):
            names = _names(x.__code__)
            yield x.__code__
            yield from (x.__globals__[n] for n in names if n in x.__globals__)
            yield from (cell.cell_contents for cell in x.__closure__ or () if _filled(cell))
            yield from (x.__defaults__ or ())
            yield from (x.__kwdefaults__ or {}).values()
        elif x.__closure__:
            yield from (cell.cell_contents for cell in x.__closure__ if _filled(cell))
    elif isinstance(x, CodeType):
        yield from x.co_consts
    elif isinstance(x, (tuple, list, set, frozenset, range)):
        yield from (x if not isinstance(x, range) else (x.start, x.stop))
    elif isinstance(x, dict):
        yield from x.values()
    elif isinstance(x, partial):
        yield from (x.func, x.args, x.keywords)
    elif is_dataclass(x):
        yield from (getattr(x, f.name) for f in fields(x))


def _names(code: CodeType) -> set[str]:
    """The names that code and the code within it ask for."""
    return set(code.co_names).union(*[_names(c) for c in code.co_consts if isinstance(c, CodeType)])


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
