"""A kind of array in one short file: centre and radius in float64, for whatever arithmetic the radius is told to bear.

Around the centre, which is the value up to its own rounding, the radius holds what any arithmetic with unit roundoff u,
in any order of its sums, can give, and the true value too. Twice the true u is taken: that pays for the products of
errors, for the centre's own rounding and for rounding in the radius itself, as long as radii are small beside 1. Sums
and e^−∞ = 0 do not underflow. An infinite radius says nothing.
Formulas: Higham, Accuracy and Stability of Numerical Algorithms (2002), §2.2, §3.1, §3.5; η: half the least subnormal.
"""

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from symattn import InputError, Refused, Undecided
from symattn.arrays.namespace import Namespace
from symattn.arrays.planes import Planes

LIPSCHITZ = {"exp": np.exp, "log": lambda x: 1 / x, "sqrt": lambda x: 0.5 / np.sqrt(x), "tanh": np.ones_like}
LIPSCHITZ |= {"cos": np.ones_like, "sin": np.ones_like}


class Bounded(Planes):
    name, u, eta = "bounded", 2.0**-52, 2.0**-1074

    @classmethod
    def made(cls, c: Any, r: Any, roundings: int = 1, eta: float = 0) -> Any:
        return cls(np.asarray(c), np.asarray(np.where(np.isfinite(c), r + roundings * (cls.u * abs(c) + eta), 0)))

    @classmethod
    def lift(cls, data: Any) -> Any:
        if not np.isfinite(wide := np.array(data, dtype=np.float64)).all():
            raise InputError("bounded: NaN or infinity in the data")
        return cls(wide, 0 * wide)

    @classmethod
    def literal(cls, value: Any) -> Any:
        return cls(wide := np.array(value, dtype=np.float64), np.zeros(wide.shape))

    @classmethod
    def _add(cls, a: Any, b: Any) -> Any:
        return cls.made(a.planes[0] + b.planes[0], a.planes[1] + b.planes[1])

    @classmethod
    def _mul(cls, a: Any, b: Any) -> Any:
        (c, r), (d, s) = a.planes, b.planes
        return cls.made(c * d, abs(c) * s + abs(d) * r + r * s, eta=cls.eta)

    @classmethod
    def _div(cls, a: Any, b: Any) -> Any:
        (c, r), (d, s) = a.planes, b.planes
        return cls.made(c / d, np.where(abs(d) > s, (r + abs(c / d) * s) / (abs(d) - s), np.inf), eta=cls.eta)

    @classmethod
    def _maximum(cls, a: Any, b: Any) -> Any:
        return cls._max(cls(*[np.stack(np.broadcast_arrays(p, q)) for p, q in zip(a.planes, b.planes, strict=True)]), 0)

    @classmethod
    def _unary(cls, name: str, a: Any) -> Any:
        if name not in LIPSCHITZ:
            raise Refused(f"bounded lacks {name}")
        c, r = a.planes
        slope = LIPSCHITZ[name](c + (r if name == "exp" else -r))
        return cls.made(getattr(np, name)(c), np.where(r > 0, slope * r, 0), roundings=8, eta=cls.eta * np.isfinite(c))

    @classmethod
    def _sum(cls, a: Any, axis: int) -> Any:
        c, r = a.planes
        spread = a.plain_shape[axis] * cls.u * (abs(c) + r)
        return cls.made(c.sum(axis), (r + spread).sum(axis))

    @classmethod
    def _max(cls, a: Any, axis: int) -> Any:
        c, r = a.planes
        top = np.asarray(c.max(axis))
        return cls(
            top, np.asarray(np.where(np.isneginf(top), 0, np.maximum((c + r).max(axis) - top, top - (c - r).max(axis))))
        )

    @classmethod
    def _less(cls, a: Any, b: Any) -> Any:
        (c, r), (d, s) = a.planes, b.planes
        if np.any((c != d) & (abs(c - d) <= r + s)) or np.any((c == d) & (r + s > 0)):
            raise Undecided("bounded: the intervals overlap")
        return c < d

    @classmethod
    def _equal(cls, a: Any, b: Any) -> Any:
        return ~(cls._less(a, b) | cls._less(b, a) | cls._undefined(a) | cls._undefined(b))

    @classmethod
    def _forbidden(cls, a: Any) -> Any:
        return a.planes[0] == -np.inf

    @classmethod
    def _undefined(cls, a: Any) -> Any:
        return np.isnan(a.planes[0])


Bounded.xp = Namespace(Bounded)


@cache
def bounded(dtype: Any) -> type[Bounded]:
    """The kind for arithmetic in the format ``dtype``: centres stay float64, the radius bears the format's errors."""
    info = ml_dtypes.finfo(dtype)
    fields = {"u": float(info.eps), "eta": float(info.smallest_subnormal)}
    made: type[Bounded] = type(f"bounded {info.dtype}", (Bounded,), fields)
    made.xp = Namespace(made)
    return made
