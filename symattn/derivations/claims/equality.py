"""Decide whether two expressions are equal: in exact numbers or, with letters, at points and by SymPy.

A refutation is an exact point where both sides are defined and their values differ, by exact numbers or disjoint balls.
Letters stand for real numbers, and equality means: wherever both sides are defined.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from symattn.arrays.field.quotient import Quotient
from symattn.derivations.claims.expressions import ClaimExpression
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Evidence, Grade

_PRECISIONS = (64, 256, 1024)
_VALUES = tuple(Fraction(*x) for x in ((1, 2), (2, 1), (-1, 3), (3, 1), (5, 7), (-2, 1), (7, 5), (-3, 4)))
_POINTS = 6


@dataclass(frozen=True)
class Equality:
    """The answer: equal, not equal, or None for undecided; with values (at ``point``) if they differ."""

    holds: bool | None
    evidence: Evidence
    a: Quotient | None = None
    b: Quotient | None = None
    point: dict[str, Fraction] = field(default_factory=dict)
    near: tuple[str, str] | None = None  # digits of values that are known by balls only

    @property
    def difference(self) -> Quotient | None:
        """The difference a − b if both are exact, else None."""
        return None if self.a is None or self.b is None else self.a - self.b


def compare(left: str, right: str) -> Equality:
    """Return whether two expressions are equal. Raises InputError for a text that is not an expression."""
    x, y = _exact_number(left), _exact_number(right)
    if x is not None and y is not None:
        return _numbers(x, y, {})
    a, b = ClaimExpression(left), ClaimExpression(right)
    letters = sorted({*a.letters, *b.letters})
    exactly = 0
    for point in _points(letters):
        equality = _at(a, b, point)
        if equality is None:
            continue
        if equality.holds is False:
            return equality
        exactly += equality.holds is True
    if not letters and exactly:
        return _numbers(a.exact({}), b.exact({}), {})
    if _sympy_says_zero(a, b):
        where = f"; equal in exact numbers at {exactly} point{'s' if exactly != 1 else ''}" if exactly else ""
        return Equality(True, Evidence(Grade.CHECKED, f"SymPy reduces the difference to 0{where}"))
    why = "no point that was tried refutes it, and SymPy does not reduce the difference to 0"
    return Equality(None, Evidence(Grade.UNDECIDED, why))


def _exact_number(text: str) -> Quotient | None:
    try:
        return Quotient.of(text.strip())
    except InputError:
        return None  # perhaps an expression with letters; if not, that is said there


def _numbers(a: Quotient, b: Quotient, point: dict[str, Fraction]) -> Equality:
    if a == b:
        return Equality(True, Evidence(Grade.CHECKED, "exact numbers"), a, b, point)
    return Equality(False, Evidence(Grade.REFUTED, "exact numbers"), a, b, point)


def _points(letters: list[str]) -> list[dict[str, Fraction]]:
    if not letters:
        return [{}]
    count = len(_VALUES)
    return [{x: _VALUES[(i + j * (1 + i)) % count] for j, x in enumerate(letters)} for i in range(_POINTS)]


def _at(a: ClaimExpression, b: ClaimExpression, point: dict[str, Fraction]) -> Equality | None:
    """Compare both sides at a point; return None if a side has no value there, or balls cannot decide."""
    try:
        return _numbers(a.exact(point), b.exact(point), point)
    except ZeroDivisionError:
        return None
    except (Refused, Undecided, InputError):
        return _by_balls(a, b, point)


def _by_balls(a: ClaimExpression, b: ClaimExpression, point: dict[str, Fraction]) -> Equality | None:
    import flint

    for precision in _PRECISIONS:
        with flint.ctx.workprec(precision):
            x, y = a.ball(point), b.ball(point)
            if not (x.is_finite() and y.is_finite()):
                continue
            if not x.overlaps(y):
                where = f"disjoint balls at {precision} bits"
                shown = tuple(z.str(9, radius=False) for z in (x, y))
                return Equality(False, Evidence(Grade.REFUTED, where), None, None, point, (shown[0], shown[1]))
    return None


def _sympy_says_zero(a: ClaimExpression, b: ClaimExpression) -> bool:
    import sympy

    try:
        gap: Any = a.sympy() - b.sympy()
        return any(sympy.simplify(x) == 0 for x in (gap, gap.rewrite(sympy.exp)))
    except (RecursionError, ArithmeticError, TypeError, ValueError, NotImplementedError):
        return False
