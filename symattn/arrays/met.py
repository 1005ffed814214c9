"""Which numbers a function of arrays brings with it: those that it lifts, and those that it compares places with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite
from numbers import Rational, Real
from typing import Any


@dataclass
class Met:
    """``numbers`` became elements of arrays, ``places`` were compared with positions or sizes."""

    numbers: set[Fraction] = field(default_factory=set)
    places: set[int] = field(default_factory=set)


_meeting: ContextVar[Met | None] = ContextVar("symattn_met", default=None)


def meet(number: Any) -> None:
    """Tell whoever collects that ``number`` became an element."""
    found = _meeting.get()
    if found is not None and isinstance(number, Real) and isfinite(number):
        found.numbers.add(Fraction(number) if isinstance(number, Rational) else Fraction(float(number)))


def meet_place(number: int) -> None:
    """Tell whoever collects that a position was compared with ``number``."""
    found = _meeting.get()
    if found is not None:
        found.places.add(number)


@contextmanager
def meeting() -> Iterator[Met]:
    """Collect the numbers that are met in the block; an outer block does not see them."""
    found = Met()
    token = _meeting.set(found)
    try:
        yield found
    finally:
        _meeting.reset(token)
