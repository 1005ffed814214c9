"""``exact``: elements are quotients over K[e^K]; equality is decided, order is Arb's after equality is excluded."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import partial, reduce
from itertools import chain
from math import gcd, lcm, prod
from typing import Any, Self, cast

import numpy as np

from symattn.arrays.entries import Entries, _as_object_array
from symattn.arrays.field import sums, surds
from symattn.arrays.field.logarithm import Logarithm
from symattn.arrays.field.quotient import ONE_ELEMENT, ZERO_ELEMENT, Quotient
from symattn.arrays.namespace import Namespace
from symattn.arrays.notes import meet, note
from symattn.document.errors import Refused

# a float whose denominator is larger was computed or rounded, not typed as a dyadic number
_TYPED = 1 << 30


class Exact(Entries):
    """Arrays of exact numbers."""

    name = "exact"
    holds = "exact numbers"
    sentinel = -1e4

    @classmethod
    def scalar(cls, value: object) -> Any:
        if isinstance(value, (Quotient, Logarithm)):
            return value
        meet(value)
        if isinstance(value, float) and value.as_integer_ratio()[1] > _TYPED:
            note(f"the float {value!r} was taken at its dyadic value")
        return Quotient.of(value)

    @classmethod
    def function(cls, name: str, x: object) -> Any:
        method = getattr(x, name, None)
        if method is None:
            raise Refused(f"exact lacks {name} of {x}")
        return method()

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        values = (
            cls(cls.each(partial(cls.function, name), a))
            if cls._are_all_quotients(a)
            else super()._unary(name, a)
        )
        # Powers over one unit share denominators in all sums that follow.
        return cls(over_one_unit(values.entries)) if name == "exp" else values

    @classmethod
    def _subtract(cls, a: Self, b: Self) -> Self:
        return cls(_as_object_array(np.subtract(a.planes[0], b.planes[0])))

    @classmethod
    def _larger_of_two_entries(cls, x: object, y: object) -> Any:
        if x.__class__ is Quotient and y.__class__ is Quotient:
            return y if x.less(y) else x
        return super()._larger_of_two_entries(x, y)

    @classmethod
    def _div(cls, a: Self, b: Self) -> Self:
        if not (cls._are_all_quotients(a) and cls._are_all_quotients(b)):
            return super()._div(a, b)
        # Dividing by one rational number changes denominators alone.
        single = b.size == 1 < a.size and b.ndim <= a.ndim
        r = b.entries.item().rational() if single else None
        if r:
            p, whole = _clear_integer_denominators(a.entries)
            whole = whole if r.denominator == 1 else whole * r.denominator
            # Denominators stay positive, so the sign goes to the numerators.
            signed = -whole if r < 0 else whole
            return cls(_over(signed, p * abs(r.numerator)))
        # Zero divisors are rare, so quotients are formed first and named only if one fails.
        try:
            return cls(cls.each(operator.truediv, a, b))
        except ZeroDivisionError:
            return super()._div(a, b)

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        if a.plain_shape[axis] > 1 and (
            cls._are_all_quotients(a)
            or not (cls._forbidden(a).any() or cls._has_logarithm_entries(a))
        ):
            return cls(row_sums(np.moveaxis(a.entries, axis, -1)))
        return super()._sum(a, axis)

    @classmethod
    def _matmul(cls, a: Self, b: Self) -> Self:
        # Logarithms have no denominators to clear.
        if a.plain_shape[-1] < 2 or cls._has_logarithm_entries(a) or cls._has_logarithm_entries(b):
            return super()._matmul(a, b)
        return cls(products(a.entries, b.entries))

    @classmethod
    def _are_all_quotients(cls, a: Self) -> bool:
        """Return whether all elements are quotients: none is a logarithm, forbidden or undefined."""
        return {Quotient}.issuperset(map(type, a.entries.ravel().tolist()))

    @classmethod
    def _has_logarithm_entries(cls, a: Self) -> bool:
        """Return whether some element is a logarithm, whose denominator cannot be cleared and restored."""
        return Logarithm in set(map(type, a.entries.ravel().tolist()))


Exact.xp = Namespace(Exact)


# -- products and sums of whole arrays, arranged so that denominators are rarely multiplied ----------------------------
def over_one_unit(entries: np.ndarray) -> np.ndarray:
    """Return the elements with all exponents over one unit, so that results computed from them share denominators."""
    # Exponents of different units have no common keys.
    entries_of_array = entries.ravel().tolist()
    units = {x._unit for x in entries_of_array if x.__class__ is Quotient and x._unit}
    if len(units) < 2:
        return entries
    w = reduce(sums.joined, units)
    out = entries.copy()
    for i, x in enumerate(entries.flat):
        if isinstance(x, Quotient) and x._unit:
            u, n, d = x.parts
            numerator = sums.converted(n, u, w)
            out.flat[i] = Quotient(w, numerator, sums.converted(d, u, w))
    return out


def row_sums(rows: np.ndarray) -> np.ndarray:
    """Return sums over the last axis, which has two elements or more."""
    ones = np.full((rows.shape[-1], 1), ONE_ELEMENT, dtype=object)
    return products(rows[..., None, :], ones)[..., 0, 0]


def products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a @ b. Integer denominators are cleared first, and restored with one object for equal ones."""
    (p, a), (q, b) = _clear_integer_denominators(a), _clear_integer_denominators(b)
    left, right = (
        _make_lines_of_rows(a)[..., :, None],
        _make_lines_of_rows(b.swapaxes(-1, -2))[..., None, :],
    )
    return _over(np.frompyfunc(_Line.dot, 2, 1)(left, right), p * q)


def _make_lines_of_rows(rows: np.ndarray) -> np.ndarray:
    lines = rows.reshape(-1, rows.shape[-1]).tolist()
    return _fill_object_array(rows.shape[:-1], map(_Line, lines))


class _Line:
    """A row or a column, with the identities of its denominators, which are not compared: equal ones may appear twice.

    If all elements are quotients with one denominator and one unit, ``terms`` are those of their numerators, and
    ``numbers`` their coefficients if there is no exponential.
    """

    def __init__(self, entries: Sequence[Any]) -> None:
        self.entries = entries
        # Identities only: equal denominators that are two objects count as different.
        self.denominators = [id(x._d) if x.__class__ is Quotient else None for x in entries]
        self.uniform = len(set(self.denominators)) == 1
        plain = self.uniform and self.denominators[0]
        self.below: sums.Sum = entries[0]._d if plain else {}
        self.units: set[sums.Unit] = {x._unit for x in entries if x._unit} if plain else set()
        self.terms: list[Any] = (
            [x._n.items() for x in entries] if plain and len(self.units) < 2 else []
        )
        self.numbers: list[surds.K] = (
            [x._n.get(0, 0) for x in entries] if plain and not self.units else []
        )

    def dot(self, other: _Line) -> Any:
        """Return Σ x y: sum products with equal denominators first, then the sums, whose denominators may all differ.

        Added one by one, products with the denominators of h heads in turn would multiply these again and again.
        """
        # Without exponentials a dot product is one of integers and roots.
        if self.numbers and other.numbers:
            total = sum(map(operator.mul, self.numbers, other.numbers))
            return (
                Quotient(None, {0: total}, sums.times(self.below, other.below))
                if total
                else ZERO_ELEMENT
            )
        if self.terms and other.terms and len(units := self.units | other.units) < 2:
            out = self._multiply_line_numerators(other)
            return (
                Quotient(next(iter(units)), out, sums.times(self.below, other.below))
                if out
                else ZERO_ELEMENT
            )
        if self.uniform and other.uniform:
            return reduce(operator.add, map(operator.mul, self.entries, other.entries))
        # Products with equal denominators are added first, so that few denominators meet.
        groups: dict[Any, tuple[list[Any], list[Any]]] = {}
        lines = zip(self.denominators, other.denominators, self.entries, other.entries, strict=True)
        for d, e, x, y in lines:
            xs, ys = groups.setdefault((d, e), ([], []))
            xs.append(x)
            ys.append(y)
        return reduce(operator.add, (dot(*group) for group in groups.values()), ZERO_ELEMENT)

    def _multiply_line_numerators(self, other: _Line) -> sums.Sum:
        """Return Σ x y of the numerators."""
        out: sums.Sum = {}
        # Plain numbers have one term, which the general case would loop over.
        if other.numbers:
            for x, a in zip(self.terms, other.numbers, strict=True):
                for k, c in x:
                    out[k] = out.get(k, 0) + c * a
        else:
            for x, y in zip(self.terms, other.terms, strict=True):
                for k, c in x:
                    # e^k e^b = e^(k + b).
                    for b, a in y:
                        before = out.get(k + b, 0)
                        out[k + b] = before + c * a
        # Terms that cancel are dropped, so that 0 is the empty sum.
        if all(out.values()):
            return out
        return {k: c for k, c in out.items() if c}


def dot(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    """Return Σ x y, 0 for no elements. Elements other than quotients are combined by their own ``*`` and ``+``."""
    if len(xs) != len(ys):
        raise ValueError(f"dot: arguments of {len(xs)} and {len(ys)} elements")
    return _Line(xs).dot(_Line(ys))


def _clear_integer_denominators(entries: np.ndarray) -> tuple[int, np.ndarray]:
    """Return (p, p x) with the least common multiple p of the integer denominators."""
    elements = entries.ravel().tolist()
    denominators = [x._d for x in elements if x.__class__ is Quotient and x._d is not sums.ONE]
    # Denominators with exponentials stay: only integers are cleared.
    p = lcm(*(cast(int, d[0]) for d in denominators if len(d) == 1))
    if p == 1:
        return 1, entries
    inverse = Quotient.of(Fraction(1, p))
    scaled = (x / inverse if isinstance(x, Quotient) else x * p for x in elements)
    return p, _fill_object_array(entries.shape, scaled)


def _over(entries: np.ndarray, p: int) -> np.ndarray:
    """Return x/p; elements that share a denominator share one in the result, and integers get the smallest one."""
    if p == 1:
        return entries
    elements = entries.ravel().tolist()
    try:
        whole = [x._n.values() for x in elements if x.__class__ is Quotient and x._d is sums.ONE]
        g = gcd(p, *cast("Iterable[int]", chain.from_iterable(whole)))
    except TypeError:  # roots among the coefficients
        g = 0
    below: dict[int, tuple[sums.Sum, sums.Sum]] = {}
    lowest: sums.Sum = {0: p // g} if g and g != p else sums.ONE

    def divide(x: object) -> object:
        if x.__class__ is not Quotient:  # forbidden or undefined
            return x
        n, d = x._n, x._d
        if d is sums.ONE and g:
            numerator: sums.Sum = n
            if g != 1:
                numerator = {k: cast(int, c) // g for k, c in n.items()}
            return Quotient(x._unit, numerator, lowest)
        if len(d) == 1:
            return x / p
        # Elements that share a denominator share the new one, which ``is`` recognises.
        if id(d) not in below:
            below[id(d)] = d, sums.times(d, {0: p})
        return Quotient(x._unit, n, below[id(d)][1])

    return _fill_object_array(entries.shape, map(divide, elements))


def _fill_object_array(shape: tuple[int, ...], elements: Iterable[object]) -> np.ndarray:
    return np.fromiter(elements, object, prod(shape)).reshape(shape)
