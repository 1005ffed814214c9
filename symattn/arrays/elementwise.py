"""Elementwise functions of the namespace, by a table over the primitives of a kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import reduce, wraps
from typing import Any

import numpy as np

from symattn.arrays.base import ArrayBase, any_array, offer_all
from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.planes import Planes, typed_numbers
from symattn.document.errors import Refused

_LONG = 64  # factors of a power that are multiplied one by one
# Of literals alone these are computed by NumPy, so that (1 - mask) * -1e9 is a literal mask and not 0 · −∞.
_PLAIN = (
    *("add", "subtract", "multiply", "negative"),
    *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
)


def _unary(name: str) -> Callable[..., Any]:
    def run(self: Elementwise, a: object) -> Planes:
        return self.kind._unary(name, self.kind.of(a))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"{name} of each element; refused where the kind cannot hold it."
    return run


class Composed:
    """Elementwise functions that are composed of others."""

    kind: type[Any]
    multiply: Callable[..., Any]
    divide: Callable[..., Any]
    less: Callable[..., Any]
    less_equal: Callable[..., Any]
    sqrt: Callable[..., Any]

    def square(self, a: object) -> Any:
        return self.multiply(a, a)

    def reciprocal(self, a: object) -> Any:
        return self.divide(1, a)

    def greater(self, a: object, b: object) -> Any:
        return self.less(b, a)

    def greater_equal(self, a: object, b: object) -> Any:
        return self.less_equal(b, a)

    def pow(self, a: object, b: object) -> Any:
        """Return a**b for a multiple b of 1/2, by products and a root."""
        # Scalars of NumPy are numbers as well.
        if isinstance(b, np.generic) or (isinstance(b, np.ndarray) and not b.ndim):
            b = b.item()
        exponent = b if isinstance(b, (int, float, Fraction)) and math.isfinite(b) else None
        if exponent is None:
            raise Refused(f"{self.kind.name}: a power with an array in the exponent")
        twice = 2 * Fraction(exponent)
        if twice.denominator != 1:
            raise Refused(f"{self.kind.name}: the power {b}")
        if twice < 0:
            return self.divide(1, self.pow(a, -exponent))
        whole, half = divmod(int(twice), 2)
        if whole > _LONG:  # one product of so many would nest too deeply
            root = self.pow(a, whole // 2)
            return self.multiply(
                self.multiply(root, root), self.pow(a, whole % 2 + Fraction(half, 2))
            )
        base = self.kind.of(a)
        factors = [base] * whole + ([self.sqrt(base)] if half else [])
        return reduce(self.multiply, factors, self.kind.offer("full")(base.shape, 1))


offer_all(Composed)


class Elementwise(Composed):
    """``FUNCTIONS``, and ``add`` to ``where``: functions that act on each element alone.

    Operands are lifted; comparisons give boolean arrays.
    """

    kind: type[Planes]
    exp: Callable[..., Any]
    log: Callable[..., Any]

    def add(self, a: object, b: object) -> Planes:
        return self.kind._add(self.kind.written(a), self.kind.written(b))

    def subtract(self, a: object, b: object) -> Planes:
        """Return a − b; a plain +inf or 1e9 is negated before it is read, so that ``s - 1e9`` masks."""
        plain = b.origin if isinstance(b, Planes) else b
        # Computed arrays hold no literal that could be read as a mask.
        if plain is None or isinstance(plain, ArrayBase):
            return self.kind._subtract(self.kind.written(a), self.kind.of(b))
        negated = np.negative(np.asarray(plain) * 1)
        return self.kind._add(self.kind.written(a), self.kind.literal(negated))

    def multiply(self, a: object, b: object) -> Planes:
        return self.kind._mul(self.kind.of(a), self.kind.of(b))

    def divide(self, a: object, b: object) -> Planes:
        return self.kind._div(self.kind.of(a), self.kind.of(b))

    def negative(self, a: object) -> Planes:
        return self.kind._negative(self.kind.of(a))

    def positive(self, a: Any) -> Any:
        return a.copy()

    def maximum(self, a: object, b: object) -> Planes:
        return self.kind._maximum(self.kind.written(a), self.kind.written(b))

    def minimum(self, a: object, b: object) -> Planes:
        negative_a = self.negative(self.kind.of(a))
        largest_negative = self.kind._maximum(negative_a, self.negative(self.kind.of(b)))
        return self.negative(largest_negative)

    def abs(self, a: object) -> Planes:
        return self.maximum(a, self.negative(a))

    def sign(self, a: Any) -> Any:
        apart = self.where(self.less(0, a), 1, -1)
        undefined = self.isnan(a)
        sign = self.where(self.equal(a, 0), 0, apart)
        return self.where(undefined, a, sign)

    def exp2(self, a: object) -> Any:
        """2^a = e^(a log 2)."""
        # The refusal names exp2, as the user knows nothing of the logarithm.
        try:
            return self.exp(self.multiply(a, self.log(self.kind.lift(2))))
        except Refused as refusal:
            raise Refused(f"{self.kind.name}: exp2 is e^(a log 2): {refusal}") from None

    def log2(self, a: object) -> Any:
        """log₂ a = log a / log 2."""
        return self.divide(self.log(a), self.log(self.kind.lift(2)))

    def expm1(self, a: object) -> Planes:
        return self.subtract(self.exp(a), 1)

    def log1p(self, a: object) -> Any:
        return self.log(self.add(a, 1))

    def clip(self, a: object, min: object = None, max: object = None) -> Any:
        low = a if min is None else self.maximum(a, min)
        return low if max is None else self.minimum(low, max)

    def less(self, a: object, b: object) -> np.ndarray:
        return self.kind._less(self.kind.written(a), self.kind.written(b))

    def less_equal(self, a: object, b: object) -> Any:
        # Undefined elements are in no order, so neither side of a comparison holds.
        greater = self.less(b, a)
        return ~(greater | self.isnan(a) | self.isnan(b))

    def equal(self, a: object, b: object) -> np.ndarray:
        return self.kind._equal(self.kind.written(a), self.kind.written(b))

    def not_equal(self, a: object, b: object) -> Any:
        return np.logical_not(self.equal(a, b))

    def isfinite(self, a: object) -> Any:
        return ~(self.isinf(a) | self.isnan(a))

    def isinf(self, a: Any) -> np.ndarray:
        return self.kind._forbidden(a)

    def isneginf(self, a: Any) -> np.ndarray:
        return self.kind._forbidden(a)

    def isnan(self, a: Any) -> np.ndarray:
        return self.kind._undefined(a)

    def where(self, condition: Any, a: object, b: object) -> Planes:
        # Which element is taken must be decided.
        if isinstance(condition, ArrayBase):
            raise Refused(f"{self.kind.name}: where needs a boolean condition")
        x = self.kind.written(a)
        y = self.kind.written(b)
        planes = zip(x.planes, y.planes, strict=True)
        chosen = [np.where(condition, p, q) for p, q in planes]
        return self.kind(*chosen)

    def logical_not(self, a: object) -> np.ndarray:
        return self.equal(a, 0)

    def logical_and(self, a: object, b: object) -> Any:
        return self.not_equal(a, 0) & self.not_equal(b, 0)

    def logical_or(self, a: object, b: object) -> Any:
        return self.not_equal(a, 0) | self.not_equal(b, 0)


def _plain_between_literals(name: str, function: Callable[..., object]) -> Callable[..., Any]:
    bare: Callable[..., Any] = vars(function)["__wrapped__"]  # before ``offered`` wrapped it

    @wraps(function)
    def run(self: Elementwise, *operands: Any, **keywords: object) -> Any:
        # A computed first operand excludes that all are literals.
        if (
            operands
            and operands[0].__class__ is self.kind
            and operands[0].typed is None
            and not keywords
        ):
            return bare(self, *operands)
        plain = []
        for x in operands:
            plain.append(typed_numbers(x))
            if plain[-1] is None:
                return function(self, *operands, **keywords)
        if not any_array(operands):
            return function(self, *operands, **keywords)
        result = getattr(np, name)(*plain)
        return result if result.dtype.kind == "b" else self.kind.literal_array(result)

    return run


for _name in FUNCTIONS:
    setattr(Elementwise, _name, _unary(_name))
offer_all(Elementwise)
for _name in _PLAIN:
    setattr(Elementwise, _name, _plain_between_literals(_name, getattr(Elementwise, _name)))
