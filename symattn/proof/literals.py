"""The numbers that a statement names: beyond them, and around them, numbers are tried and sizes are taken.

They are read off its code, and met where it runs: what it computes (11!), or takes from a class or a text, stands in no
code as a literal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

from symattn.arrays.met import Met, meeting
from symattn.arrays.notes import listening
from symattn.errors import SymattnError
from symattn.proof.statement import Declared, Letters, Numbers, Sides, pairs

_RUN_AT = 2  # the length of every axis where a statement is run to see which numbers it meets


@dataclass(frozen=True)
class Named:
    """``sizes``: whole numbers above 1, which sizes are taken beyond; ``numbers``: what entries are drawn around."""

    sizes: tuple[int, ...]
    numbers: tuple[Fraction, ...]


def named(sides: Sides, declared: Declared) -> Named:
    """The numbers in the code of a statement, and those that it meets in letters and in exact numbers."""
    written = literals(sides)
    in_letters = _met(sides, declared, Letters())
    in_numbers = _met(sides, declared, Numbers(dict.fromkeys(declared.sorts(), _RUN_AT)))
    sizes = {*written, *(abs(n) for n in in_letters.places)}
    met = in_letters.numbers | in_numbers.numbers | {Fraction(n) for n in written}
    numbers = {abs(x) for x in met} - {0, 1}
    return Named(tuple(sorted(n for n in sizes if n > 1)), tuple(sorted(numbers)))


def _met(sides: Sides, declared: Declared, world: Letters | Numbers) -> Met:
    """What is met until the statement ends, or is refused."""
    with meeting() as found, listening():
        try:
            for pair in pairs(sides, declared, world):
                for side in pair:
                    _look_at(side)
        except (SymattnError, ArithmeticError):
            pass
    return found


def _look_at(x: Any) -> None:
    """Compute every element of an array of letters."""
    for place in x.places() if hasattr(x, "places") else ():
        x.at(place)


def literals(*functions: Any) -> tuple[int, ...]:
    """The whole numbers above 1 in the code of functions, in what they hold, and in what they call of a user's."""
    seen: set[int] = set()
    found = {abs(n) for f in functions for n in _of(f, seen, 0)}
    return tuple(sorted(n for n in found if n > 1))


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
