"""``symbolic``: elements are SymPy expressions; sizes are numbers, entries may be letters.

Equality is SymPy's, then confirmed on balls at a rational point; ``max`` of letters is an opaque function, since
softmax does not depend on it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from typing import Any, Self

import flint
import numpy as np
import sympy

from symattn.arrays.ball import rising
from symattn.arrays.entries import Entries
from symattn.arrays.field.quotient import Quotient
from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.namespace import Namespace
from symattn.arrays.shown import element
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.model import Text
from symattn.document.sympify import from_sympy


class Symbolic(Entries):
    """Arrays of SymPy expressions."""

    name = "symbolic"
    holds = "SymPy's expressions"
    # As in ``exact``: large negative literals stand for −∞.
    sentinel = -1e4

    def printer(self) -> Callable[[tuple[int, ...]], Text]:
        return lambda at: (element(self.planes[0][at], from_sympy),)

    @classmethod
    def scalar(cls, value: object) -> Any:
        if isinstance(value, sympy.Expr):
            return _check_expression_is_real(value, lambda: f"{value} in the data")
        return (value if hasattr(value, "to_sympy") else Quotient.of(value)).to_sympy()

    @classmethod
    def function(cls, name: str, x: object) -> Any:
        if name not in FUNCTIONS:
            raise Refused(f"symbolic lacks {name}")
        return _check_expression_is_real(getattr(sympy, name)(x), lambda: f"{name} of {x}")

    @classmethod
    def divide(cls, x: Any, y: Any) -> Any:
        # SymPy would return an infinity.
        if y.is_zero:
            raise ZeroDivisionError
        return x / y

    @classmethod
    def less(cls, x: object, y: object) -> bool:
        verdict = sympy.sympify(x) < y
        if verdict in (sympy.true, sympy.false):
            return bool(verdict)
        raise Undecided(f"symbolic: is {verdict} true?")

    @classmethod
    def same(cls, x: Any, y: object) -> bool:
        """Return whether x = y: True if SymPy shows it and balls at a rational point overlap, False if disjoint."""
        if x == y:
            return True
        difference = x - y
        # Balls refute quickly what SymPy might simplify for long.
        if not overlap_at_a_point(difference):
            return False
        # Expanding comes first, as simplifying may take long.
        if sympy.expand(difference) == 0 or sympy.simplify(difference) == 0:
            return True
        raise Undecided(f"symbolic: {difference} = 0 was neither shown nor refuted")

    @classmethod
    def larger(cls, x: Any, y: Any) -> Any:
        if x == y:
            return x
        # Numbers have a true maximum.
        if x.is_number and y.is_number:
            return sympy.Max(x, y)
        # Sorted arguments of nested maxima: max(a, max(b, c)) is one expression in any order.
        arguments = {*_arguments_of_opaque_max(x), *_arguments_of_opaque_max(y)}
        return sympy.Function("max", real=True)(*sorted(arguments, key=_text_of_expression))

    @classmethod
    def letters(cls, name: str, *shape: int, start: int = 1) -> Self:
        """Return an array of letters with indices: ``letters("q", 2, 3)`` is q_11 … q_23 (``q_1_11`` from ten on)."""
        wide = max(shape, default=1) + start > 10
        entries = np.empty(shape, dtype=object)
        for index in np.ndindex(*shape):
            digits = ("_" if wide else "").join(str(i + start) for i in index)
            entries[index] = sympy.Symbol(f"{name}_{digits}" if digits else name, real=True)
        return cls(entries)


Symbolic.xp = Namespace(Symbolic)


def _check_expression_is_real(x: Any, what: Callable[[], str]) -> Any:
    if x.is_finite is False or x.is_extended_real is False or x is sympy.nan:
        # SymPy prints an expression more slowly than it makes it.
        raise InputError(f"symbolic: {what()} is not a real number")
    return x


# A maximum over a row sorts the same arguments once for each of them.
_text_of_expression = lru_cache(4096)(str)


def _arguments_of_opaque_max(x: Any) -> Any:
    opaque = isinstance(x, sympy.core.function.AppliedUndef) and x.func.__name__ == "max"
    return x.args if opaque else (x,)


def overlap_at_a_point(expression: Any) -> bool:
    """Return whether the ball of ``expression`` contains zero at fixed rational values of its letters."""
    unknowns = sorted(expression.free_symbols, key=str)

    def work() -> bool:
        # Fixed values that look random: (7 i² + 3) mod 101 / 37 are distinct for small i.
        values = {
            x: flint.arb(flint.fmpq((7 * i * i + 3) % 101 + 1, 37)) for i, x in enumerate(unknowns)
        }
        return bool(flint.arb(0).overlaps(ball_of(expression, values)))

    return rising(work, start=128)


def ball_of(expression: Any, values: Mapping[Any, Any]) -> Any:
    """Return the ball of a SymPy expression from the balls of its letters. Raises Refused for other functions."""
    # Letters first: they have no parts.
    if expression in values:
        return values[expression]
    if expression.is_Rational:
        return flint.arb(flint.fmpq(int(expression.p), int(expression.q)))
    parts = [ball_of(x, values) for x in expression.args]
    if expression.is_Add or expression.is_Mul:
        return reduce(operator.add if expression.is_Add else operator.mul, parts)
    if expression.is_Pow:
        exponent = expression.args[1]
        if exponent.is_Integer:
            return parts[0] ** int(exponent)
        # Half powers are integer powers of a root.
        return (
            parts[0].sqrt() ** int(2 * exponent)
            if (2 * exponent).is_Integer
            else parts[0] ** parts[1]
        )
    if expression is sympy.E:
        return flint.arb(1).exp()
    if expression is sympy.pi:
        return flint.arb.pi()
    name = type(expression).__name__
    if name in ("Max", "max"):
        return reduce(lambda x, y: x.max(y), parts)
    if name in FUNCTIONS:
        return getattr(parts[0], name)()
    raise Refused(f"symbolic: no ball for {expression}")
