"""What becomes an exact number: Python's, NumPy's, flint's and SymPy's numbers, and text.

A float is taken at its exact dyadic value, a Decimal and a decimal in text at its decimal value.
"""

from __future__ import annotations

from fractions import Fraction
from numbers import Rational
from typing import Any

from symattn.arrays.field.parse import parse
from symattn.arrays.field.quotient import Quotient
from symattn.arrays.field.sums import ONE
from symattn.errors import InputError


def read(x: Any) -> Quotient:
    """x as an exact number. Raises InputError for NaN, infinities and what is no number."""
    if isinstance(x, str):
        return parse(x)
    if hasattr(x, "item") and not getattr(x, "shape", ()):
        x = x.item()  # NumPy's and ml_dtypes' scalars
    if isinstance(x, Rational):
        return _ratio(int(x.numerator), int(x.denominator))
    room = type(x).__module__.partition(".")[0]
    if room == "flint" and hasattr(x, "p") and hasattr(x, "q"):
        return _ratio(int(x.p), int(x.q))
    if room == "flint" and hasattr(x, "__int__") and not hasattr(x, "mid"):
        return _ratio(int(x), 1)
    if hasattr(x, "as_integer_ratio"):
        return _from_ratio(x)
    if room == "sympy":
        return parse(str(_without_floats(x)))
    raise InputError(f"exact: no exact number in a {type(x).__name__}; give an integer, fraction, float or text")


def _without_floats(x: Any) -> Any:
    """A SymPy expression with its floats as the rationals they are."""
    import sympy

    return x.xreplace({f: sympy.Rational(f) for f in x.atoms(sympy.Float)})


def _ratio(n: int, d: int) -> Quotient:
    return Quotient(None, {0: n} if n else {}, {0: d} if d != 1 else ONE)


def _from_ratio(x: Any) -> Quotient:
    try:
        value = Fraction(*(int(part) for part in x.as_integer_ratio()))
    except (ValueError, OverflowError):
        raise InputError(f"exact: {x} is no number that can be held; only masks may forbid an entry") from None
    return _ratio(value.numerator, value.denominator)
