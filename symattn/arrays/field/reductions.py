"""Sums and dot products of many exact numbers at once: what adding one by one gives, without the steps between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symattn.arrays.field.quotient import ONE_ELEMENT, ZERO_ELEMENT, Quotient
from symattn.arrays.field.sums import Sum, Unit, times


def total(xs: Sequence[Any]) -> Any:
    """Σ x, 0 for no x. Elements other than quotients take part by their own ``+``."""
    return dot(xs, (ONE_ELEMENT,) * len(xs))


def dot(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    """Σ x y, 0 for no x. Elements other than quotients take part by their own ``*`` and ``+``."""
    collected = _collected(xs, ys)
    if collected is not None:
        return collected
    out: Any = ZERO_ELEMENT
    for x, y in zip(xs, ys, strict=True):
        out = out + x * y
    return out


def _collected(xs: Sequence[Any], ys: Sequence[Any]) -> Quotient | None:
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
