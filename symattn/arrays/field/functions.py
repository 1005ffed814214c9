"""Functions of exact numbers, where the value stays in the decided field."""

from __future__ import annotations

from fractions import Fraction

from symattn.arrays.field.logarithm import Logarithm, constant, logarithm, rational_times_power
from symattn.arrays.field.quotient import ONE_ELEMENT, ZERO_ELEMENT, Quotient, brief
from symattn.arrays.field.surds import root
from symattn.errors import Refused


def sqrt(x: Quotient) -> Quotient:
    """√x for a rational x ≥ 0; √(r e^k) = √r e^{k/2} for a rational r ≥ 0."""
    r, k = rational_times_power(x)
    if r is None:
        raise Refused(f"exact: sqrt({brief(x)}) is not in the decided field; use ball")
    if r < 0:
        raise Refused(f"exact: sqrt({brief(x)}): the square root of a negative number")
    return constant(root(r)) * constant(k * Fraction(1, 2)).exp()


def log(x: Quotient) -> Quotient | Logarithm:
    """log(r e^k) = k + log r, a plain number where r = 1; of any other x > 0 a ``Logarithm``."""
    if x.sign() <= 0:
        raise Refused(f"exact: log({brief(x)}): the logarithm of a number that is not positive")
    return logarithm(ZERO_ELEMENT, x)


def tanh(x: Quotient) -> Quotient:
    """(e^{2x} − 1) / (e^{2x} + 1) for x in K."""
    if x.constant() is None:
        raise Refused(f"exact: tanh({brief(x)}) is not in the decided field; use ball")
    e = (x + x).exp()
    return (e - ONE_ELEMENT) / (e + ONE_ELEMENT)
