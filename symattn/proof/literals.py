"""The numbers that a statement names: numbers and sizes are tried beyond and around them.

They are read from its code, and recorded while it runs: a number that it computes (11!), or takes from a class or a
text, is no literal in the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from symattn.arrays.notes import Met, Polynomial, listening, meet_place, meeting, value_at
from symattn.document.errors import SymattnError
from symattn.proof.code import reached
from symattn.proof.statement import Declared, Letters, Numbers, Sides, pairs

LARGEST = 2000  # the largest size at which the sign of a length is evaluated
_BRANCHES = 64  # the most sizes at which branches of the code are searched for
_RUN_AT = 2  # the length of every axis when a statement is run to record its numbers


@dataclass(frozen=True)
class NamedNumbers:
    """The numbers of a statement. ``sizes``: integers above 1, to take sizes around; ``numbers``: for entries.

    ``branches`` are sizes at or next to which the code branches; ``doubt`` says that there are more.
    """

    sizes: tuple[int, ...]
    numbers: tuple[Fraction, ...]
    branches: tuple[Mapping[str, int], ...] = ()
    doubt: str = ""


def _recording(name: str) -> Callable[[int, object], Any]:
    def compared(self: int, other: object) -> Any:
        if isinstance(other, int):
            meet_place(int(other))
        return getattr(int, name)(self, other)

    return compared


class _Length(int):
    """A length that records the whole numbers with which it is compared, where code needs it as a number."""

    __lt__, __le__, __gt__ = _recording("__lt__"), _recording("__le__"), _recording("__gt__")
    __ge__, __eq__, __ne__ = _recording("__ge__"), _recording("__eq__"), _recording("__ne__")
    __hash__ = int.__hash__


class _Numbers(Numbers):
    def length(self, sort: str) -> int:
        return _Length(super().length(sort))


def named(sides: Sides, declared: Declared) -> NamedNumbers:
    """Return the numbers in the code of a statement, and those recorded when it runs on letters and on numbers."""
    written = literals(sides)
    in_letters = _met(sides, declared, Letters())
    in_numbers = _met(sides, declared, _Numbers(dict.fromkeys(declared.sorts(), _RUN_AT)))
    sizes = {*written, *(abs(n) for n in in_letters.places | in_numbers.places)}
    met = in_letters.numbers | in_numbers.numbers | {Fraction(n) for n in written}
    numbers = {abs(x) for x in met} - {0, 1}
    return NamedNumbers(tuple(sorted(n for n in sizes if n > 1)), tuple(sorted(numbers)), *_branches(sides, declared))


def _branches(sides: Sides, declared: Declared) -> tuple[tuple[Mapping[str, int], ...], str]:
    """Return the sizes at and next to which a condition on sizes in the code changes, and a doubt if there may be more.

    The next sizes that leave a remainder are added after each size, except sizes that were added for a remainder.
    """
    pending: list[dict[str, int]] = [dict.fromkeys(declared.sorts(), n) for n in (1, 2, 3, 4)]
    result: list[dict[str, int]] = []
    periodic: list[dict[str, int]] = []
    while pending:
        sizes = pending.pop()
        met = _met(sides, declared, Letters(), sizes)
        gaps = {tuple(sorted(gap.items())): gap for gap in met.branches}
        turns = [(sort, *_turns(gap, sort, sizes)) for gap in gaps.values() for sort in _letters(gap, sizes)]
        repeated = [] if sizes in periodic else [
            (sort, _next(*one, sort, sizes), False) for one in met.remainders for sort in _letters(one[0], sizes)
        ]  # fmt: skip
        for n, (sort, lengths, far) in enumerate([*turns, *repeated]):
            fresh = [new for new in ({**sizes, sort: length} for length in lengths) if new not in result]
            result, pending = result + fresh, pending + fresh
            periodic += fresh if n >= len(turns) else []
            if far or len(result) > _BRANCHES:
                return tuple(result), "the code branches on sizes, and not all of its ways were tried"
    return tuple(result), ""


def _letters(length: Polynomial, sizes: Mapping[str, int]) -> list[str]:
    return [sort for sort in sizes if any(sort in letters for letters in length)]


def _next(length: Polynomial, modulus: int, remainder: int, sort: str, sizes: Mapping[str, int]) -> list[int]:
    """Return the next size of ``sort`` at which the length leaves the remainder, and its neighbours, or []."""
    after = range(sizes[sort] + 1, sizes[sort] + modulus + 1)
    fitting = (n for n in after if value_at(length, {**sizes, sort: n}) % modulus == remainder)
    return next(([n, n + 1] if n == after[0] else [n - 1, n, n + 1] for n in fitting), [])


def _turns(gap: Polynomial, sort: str, sizes: Mapping[str, int]) -> tuple[list[int], bool]:
    """Return the sizes of ``sort`` at and next to which the sign changes, and whether it may change beyond LARGEST."""
    powers: dict[int, Fraction] = {}
    for letters, c in gap.items():
        others = prod(sizes[s] for s in letters if s != sort)
        powers[letters.count(sort)] = powers.get(letters.count(sort), Fraction(0)) + Fraction(c) * others
    top = max((p for p, c in powers.items() if c), default=0)
    signs = [0, *(_sign(sum((c * n**p for p, c in powers.items()), Fraction(0))) for n in range(1, LARGEST + 1))]
    turns = {m for n in range(2, LARGEST + 1) if signs[n] != signs[n - 1] for m in (n - 1, n)}
    bound = 1 + max((abs(c / powers[top]) for p, c in powers.items() if p < top), default=Fraction(0))
    return sorted(turns), bound > LARGEST and (top > 1 or signs[-1] != _sign(powers[top]))


def _sign(x: Fraction) -> int:
    return (x > 0) - (x < 0)


def _met(sides: Sides, declared: Declared, world: Letters | Numbers, sizes: Mapping[str, int] | None = None) -> Met:
    """Run the statement until it ends or is refused, and record its numbers; ``sizes`` decide comparisons."""
    with meeting(sizes) as result, listening():
        try:
            for pair in pairs(sides, declared, world):
                for side in pair:
                    for place in side.places() if hasattr(side, "places") else ():
                        side.at(place)
        except (SymattnError, ArithmeticError, TypeError, IndexError):
            pass  # a number that only some sizes give, say a remainder, can only be compared
    return result


def literals(*functions: object) -> tuple[int, ...]:
    """Return the integers above 1 in the code of functions, in values they hold, and in user code they call."""
    result = {abs(x) for x in reached(*functions) if isinstance(x, int)}
    return tuple(sorted(n for n in result if n > 1))
