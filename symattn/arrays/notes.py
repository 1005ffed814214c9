"""Notes for a report on what a function of arrays does while it runs, and the constants that it uses.

Notes are, for example, of a float made from a shape, or a cast that was not made. Constants are the numbers that it
lifts, and those that it compares positions with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite, prod
from numbers import Rational, Real
from typing import Any, TypeVar

from symattn.document.errors import Refused

T = TypeVar("T")
# None outside of ``listening``, where notes are dropped.
_listening: ContextVar[list[str] | None] = ContextVar("symattn_notes", default=None)


def note(message: str) -> None:
    """Add ``message`` to the notes being collected, once."""
    notes = _listening.get()
    # A loop repeats its notes, of which one is enough.
    if notes is not None and message not in notes:
        notes.append(message)


def listening() -> AbstractContextManager[list[str]]:
    """Collect the notes of the block: ``with listening() as notes: …``"""
    return assigned(_listening, [])


@contextmanager
def assigned(variable: ContextVar[Any], value: T) -> Iterator[T]:
    """Set a context variable within the block."""
    # The former value returns afterwards, also after an error.
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


# -- numbers and places ------------------------------------------------------------------------------------------------
# a polynomial in sizes: product of letters → coefficient
Polynomial = Mapping[tuple[str, ...], Fraction | int]


@dataclass
class Met:
    """The constants of a run: ``numbers`` became elements of arrays, ``places`` were compared with positions or sizes.

    ``branches`` are the polynomials in sizes that the code compared with 0, if ``sizes`` decide which branch it takes;
    ``remainders`` are (polynomial, divisor, number that the remainder was compared with).
    """

    numbers: set[Fraction] = field(default_factory=set)
    places: set[int] = field(default_factory=set)
    branches: list[Polynomial] = field(default_factory=list)
    remainders: list[tuple[Polynomial, int, int]] = field(default_factory=list)
    sizes: Mapping[str, int] | None = None


# None outside of ``meeting``, where constants are not recorded.
_meeting: ContextVar[Met | None] = ContextVar("symattn_met", default=None)


def meet(number: object) -> None:
    """Record that ``number`` became an element."""
    result = _meeting.get()
    # Infinities are masks, not constants that sizes could meet.
    if result is not None and isinstance(number, Real) and isfinite(number):
        result.numbers.add(
            Fraction(number) if isinstance(number, Rational) else Fraction(float(number))
        )


def meet_place(number: int) -> None:
    """Record that a position was compared with ``number``."""
    result = _meeting.get()
    if result is not None:
        result.places.add(number)


def meet_branch(gap: Polynomial) -> Fraction | None:
    """Record that the code asks for the sign of ``gap``; return its value if sizes are set, else None."""
    result = _meeting.get()
    if result is None or result.sizes is None:
        return None
    result.branches.append(gap)
    return value_at(gap, result.sizes)


def meet_remainder(length: Polynomial, modulus: int, compared: int) -> int:
    """Record what the remainder of a length is compared with, and return it. Raises Refused if no sizes are set."""
    result = _meeting.get()
    if result is None or result.sizes is None:
        raise Refused("indexed: a remainder of a length in letters")
    result.remainders.append((length, modulus, compared % modulus))
    return int(value_at(length, result.sizes) % modulus)


def meet_quotient(length: Polynomial, divisor: int) -> int:
    """Record where the quotient of a length, rounded down, changes; return it. Raises Refused if no sizes are set."""
    # The quotient changes where the remainder becomes 0, so the proof must try these sizes.
    remainder = meet_remainder(length, divisor, 0)
    return int((value_at(length, _meeting.get().sizes) - remainder) / divisor)  # type: ignore[union-attr, arg-type]


def any_way() -> bool:
    """Return whether only the sizes that the code asks for matter, not how its letters compare."""
    result = _meeting.get()
    return result is not None and result.sizes is not None


def value_at(x: Polynomial, sizes: Mapping[str, int]) -> Fraction:
    """Return the value of a polynomial in sizes."""
    terms = (Fraction(c) * prod(sizes[s] for s in letters) for letters, c in x.items())
    return sum(terms, Fraction(0))


def meeting(sizes: Mapping[str, int] | None = None) -> AbstractContextManager[Met]:
    """Collect the constants of the block; an outer block does not see them."""
    return assigned(_meeting, Met(sizes=sizes))
