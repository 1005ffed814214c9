"""``exact``: elements are quotients over K[e^K]; equality is decided, order is Arb's after equality is excluded."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import reduce
from math import lcm
from typing import Any, Self, cast

import numpy as np

from symattn.arrays.entries import Entries
from symattn.arrays.field.logarithm import Logarithm
from symattn.arrays.field.quotient import ONE_ELEMENT, ZERO_ELEMENT, Quotient
from symattn.arrays.field.sums import ONE, Sum, Unit, converted, joined, times
from symattn.arrays.met import meet
from symattn.arrays.namespace import Namespace
from symattn.arrays.notes import note
from symattn.arrays.special import Forbidden, Undefined
from symattn.document.errors import Refused

_TYPED = 1 << 30  # a float whose denominator is larger was computed or rounded, not typed as a dyadic number


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
        values = super()._unary(name, a)
        return cls(over_one_unit(values.entries)) if name == "exp" else values

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        if a.plain_shape[axis] < 2 or cls._forbidden(a).any() or cls._logarithms(a):
            return super()._sum(a, axis)
        return cls(row_sums(np.moveaxis(a.entries, axis, -1)))

    @classmethod
    def _matmul(cls, a: Self, b: Self) -> Self:
        if a.plain_shape[-1] < 2 or cls._logarithms(a) or cls._logarithms(b):
            return super()._matmul(a, b)
        return cls(products(a.entries, b.entries))

    @classmethod
    def _logarithms(cls, a: Self) -> bool:
        """Return whether there are logarithms in it: with them no denominator can be cleared and put back."""
        return any(isinstance(x, Logarithm) for x in a.entries.flat)


Exact.xp = Namespace(Exact)


# -- products and sums of whole arrays, arranged so that denominators are met seldom -----------------------------------
def over_one_unit(entries: np.ndarray) -> np.ndarray:
    """The elements with all exponents over one unit: then what is computed of them shares its denominators."""
    powers = {i: x.parts for i, x in enumerate(entries.flat) if isinstance(x, Quotient) and any(map(any, x.parts[1:]))}
    units = {u for u, _, _ in powers.values()}
    if len(units) < 2:
        return entries
    w = reduce(joined, units)
    out = entries.copy()
    for i, (u, n, d) in powers.items():
        out.flat[i] = Quotient(w, converted(n, u, w), converted(d, u, w))
    return out


def row_sums(rows: np.ndarray) -> np.ndarray:
    """Sums over the last axis, which has two elements or more."""
    ones = np.full((rows.shape[-1], 1), ONE_ELEMENT, dtype=object)
    return products(rows[..., None, :], ones)[..., 0, 0]


def products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b. Denominators that are integers are cleared first, and put back with one object for equal ones."""
    (p, a), (q, b) = _whole(a), _whole(b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    (m, n), k = a.shape[-2:], b.shape[-1]
    left = [_Line(x) for x in np.broadcast_to(a, (*batch, m, n)).reshape(-1, n)]
    right = [_Line(y) for y in np.broadcast_to(b, (*batch, n, k)).swapaxes(-1, -2).reshape(-1, n)]
    divide = _division(p * q)
    sums = (divide(x.dot(y)) for i, x in enumerate(left) for y in right[i // m * k : (i // m + 1) * k])
    return _filled((*batch, m, k), sums)


class _Line:
    """A row or a column, and what tells its denominators apart without comparing them; equal ones may be kept twice."""

    def __init__(self, entries: np.ndarray) -> None:
        self.entries = entries.tolist()
        self.denominators = [id(x.parts[2]) if isinstance(x, Quotient) else None for x in self.entries]
        self.one = len(set(self.denominators)) == 1

    def dot(self, other: _Line) -> Any:
        """Σ x y: first the products over one denominator, then these sums, whose denominators may all differ.

        Added one by one, products over the denominators of h heads in turn would multiply them again and again.
        """
        if self.one and other.one:
            return dot(self.entries, other.entries)
        groups: dict[Any, tuple[list[Any], list[Any]]] = {}
        lines = zip(self.denominators, other.denominators, self.entries, other.entries, strict=True)
        for d, e, x, y in lines:
            xs, ys = groups.setdefault((d, e), ([], []))
            xs.append(x)
            ys.append(y)
        return reduce(operator.add, (dot(*group) for group in groups.values()))


def _whole(entries: np.ndarray) -> tuple[int, np.ndarray]:
    """(p, p x): p the least common multiple of the denominators that are integers."""
    denominators = [_denominator(x) for x in entries.flat]
    p = lcm(*(cast(int, d[0]) for d in denominators if d is not ONE and d is not None and len(d) == 1))
    if p == 1:
        return 1, entries
    inverse = Quotient.of(Fraction(1, p))
    return p, _filled(entries.shape, (x / inverse if isinstance(x, Quotient) else x * p for x in entries.flat))


def _denominator(x: object) -> Sum | None:
    return x.parts[2] if isinstance(x, Quotient) else None


def _division(p: int) -> Callable[[Any], Any]:
    """x ↦ x/p; of elements with one denominator the results have one denominator, too."""
    known: dict[int, tuple[Sum, Sum]] = {}

    def divide(x: Any) -> Any:
        d = _denominator(x)
        if p == 1 or isinstance(x, (Forbidden, Undefined)):
            return x
        if d is None or len(d) == 1:
            return x / p
        if id(d) not in known:
            known[id(d)] = d, times(d, {0: p})
        return Quotient(x.parts[0], x.parts[1], known[id(d)][1])

    return divide


def _filled(shape: tuple[int, ...], elements: Iterable[object]) -> np.ndarray:
    out = np.empty(shape, dtype=object)
    for i, x in enumerate(elements):
        out.flat[i] = x
    return out


def dot(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    """Σ x y, 0 for no x. Elements other than quotients take part by their own ``*`` and ``+``."""
    collected = _collected(xs, ys)
    if collected is not None:
        return collected
    out: Any = ZERO_ELEMENT
    for x, y in zip(xs, ys, strict=True):
        out = out + x * y
    return out


def _collected(xs: Sequence[object], ys: Sequence[object]) -> Quotient | None:
    """Σ x y over the product of one denominator of all x and one of all y; None where they or the units differ."""
    if not xs or len(xs) != len(ys) or xs[0].__class__ is not Quotient or ys[0].__class__ is not Quotient:
        return None
    d, e = xs[0]._d, ys[0]._d
    unit: Unit | None = None
    out: Sum = {}
    for x, y in zip(xs, ys, strict=True):
        if x.__class__ is not Quotient or y.__class__ is not Quotient:
            return None
        if (x._d is not d and x._d != d) or (y._d is not e and y._d != e):
            return None
        for u in (x._unit, y._unit):
            if u is not None and u is not unit:
                if unit is not None:
                    return None
                unit = u
        for k, c in x._n.items():
            for b, a in y._n.items():
                out[k + b] = out.get(k + b, 0) + c * a
    out = {k: c for k, c in out.items() if c}
    return Quotient(unit, out, times(d, e)) if out else ZERO_ELEMENT
