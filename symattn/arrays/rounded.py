"""``rounded``: elements are exact numbers with a bound on what rounding may do to them; see ``rounding`` for the rules.

Any definition run on this kind says how far a legal implementation of it in a ``Precision`` may be from the exact
values. It speaks for implementations that

  R1  compute what is written, each operation rounded at most once (twice for a quotient), or any part of it in a finer
      format, rounded once at its end; with products fused into sums;
  R2  take sums, means, products of matrices and cumulative sums in any order and in tiles, over several axes at once;
  R3  divide by a number or multiply by its reciprocal, compute x/√y as x·(1/√y), with 1/√y one function of A2;
  R4  apply a scale (a factor common to a matrix) to a sum of products, to one of the factors, or its root to both;
  R5  divide e/Σe by its sum before or after the product with the values;
  R6  subtract the maximum of a row as computed, or none where no maximum is negative, or no exponential underflows, and
      none overflows;
  R7  ``fused`` only: round what a product of matrices reads to ``stored``, and the result to ``input``. ``eager``
      stores everything in the input's format.

Not covered are other formulas for the same value (a variance as E x² − (E x)², a product of three matrices from the
other side, a running maximum, Strassen's products); run those as definitions of their own.

Proof. R1, R2: by induction over the definition with the rules of ``rounding``, since fewer or finer roundings are held
by the same bound. R3 and R4 are in the rules. R5: e_j v_j/Σe is, monomial by monomial, the same product of numbers and
of factors 1 + δ in either order: the two roundings of the quotient, those of the sums, of e_j and of one array stored
in between. R6: without the maximum each e^{s_j} has the relative error that s_j brings, and no more; with it,
those of the maximum and of the difference besides; and a common factor of a row does not change quotients.

Comparisons are decided where the balls, widened by the bounds, lie apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, wraps
from typing import Any, ClassVar, Self, TypeVar

import flint
import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.calls import offer_all
from symattn.arrays.entries import Entries, _object
from symattn.arrays.formats import Format
from symattn.arrays.namespace import Namespace
from symattn.arrays.precision import Contract, Precision
from symattn.arrays.reductions import _axes
from symattn.arrays.rounding import ZERO, Element, Rules, constant, rounding
from symattn.arrays.rounding_products import product
from symattn.arrays.special import Forbidden, Undefined
from symattn.errors import Refused, Undecided

F = TypeVar("F", bound=Callable[..., Any])


def _sharply(method: F) -> F:
    """A class method that works with balls much sharper than the roundings that it bounds."""

    @wraps(method)
    def run(cls: type[Rounded], *args: Any) -> Any:
        with flint.ctx.workprec(max(flint.ctx.prec, cls.bits)):
            return method(cls, *args)

    return run  # type: ignore[return-value]


class Rounded(Entries):
    """Arrays of numbers and bounds, for one precision: ``rounded("float32")``."""

    precision: ClassVar[Precision]
    rules: ClassVar[Rules]
    bits: ClassVar[int]

    # -- numbers in ---------------------------------------------------------------------------------------------------
    @classmethod
    @_sharply
    def lift(cls, data: Any) -> Self:
        """Data, exact where the input's format holds it, else rounded to that; a number alone is held in ``score``."""
        f = cls.precision.input if _object(data).ndim else cls.precision.score
        return cls._made(data, lambda x: cls._read(x, f))

    @classmethod
    @_sharply
    def scalar(cls, value: Any) -> Any:
        return cls._read(value, cls.precision.score)

    @classmethod
    def _read(cls, value: Any, f: Format) -> Any:
        if isinstance(value, (Element, Forbidden, Undefined)):
            return value
        if isinstance(value, (float, np.floating)) and not np.isfinite(value):
            return cls._finite(value)
        x = constant(value)
        return Element(x, ZERO if _holds(f, x) else rounding(x, ZERO, 1, f))

    # -- numbers out --------------------------------------------------------------------------------------------------
    @property
    def value(self) -> Ball:
        """The exact values, in balls."""
        return Ball(self.each(lambda x: x.value if isinstance(x, Element) else x, self))

    @property
    def bound(self) -> np.ndarray:
        """The largest legal |x̂ − x|, x̂ given out in the input's format, as float64 rounded up; +∞ says nothing."""
        return self.each(self._given_out, self).astype(np.float64)

    @classmethod
    @_sharply
    def _given_out(cls, x: Any) -> float:
        if not isinstance(x, Element) or x.error == 0:
            return 0.0
        p = cls.precision
        error = x.error if p.input == p.score else rounding(x.value, x.error, 1, p.input)
        return float(np.nextafter(float(error.upper()), np.inf)) if error.is_finite() else np.inf

    def within(self, got: Any) -> np.ndarray:
        """Where floats that were computed are no further from the exact values than the bound allows."""
        legal = np.frompyfunc(self._legal, 2, 1)(self.entries, np.asarray(got, dtype=np.float64))
        return np.asarray(legal, dtype=bool)

    @classmethod
    @_sharply
    def _legal(cls, x: Any, got: float) -> bool:
        if not isinstance(x, Element):
            return bool(np.isneginf(got) if isinstance(x, Forbidden) else np.isnan(got))
        bound = cls._given_out(x)
        if np.isinf(bound) or not np.isfinite(got):
            return bool(np.isinf(bound))
        return not abs(flint.arb(float(got)) - x.value) > bound

    # -- primitives ---------------------------------------------------------------------------------------------------
    @classmethod
    @_sharply
    def _add(cls, a: Self, b: Self) -> Self:
        return cls(cls.each(_or_special(cls.rules.plus, lambda x, y: x + y), a, b))

    @classmethod
    @_sharply
    def _mul(cls, a: Self, b: Self) -> Self:
        return cls(cls.each(_or_special(cls.rules.times, lambda x, y: x * y), a._as_factor(), b._as_factor()))

    @classmethod
    @_sharply
    def _div(cls, a: Self, b: Self) -> Self:
        return super()._div(a, b._as_factor())

    def _as_factor(self) -> Self:
        """The same; if it is common to matrices, each element says so."""
        if any(n != 1 for n in self.plain_shape[-2:]):
            return self
        return type(self)(self.each(lambda x: replace(x, scale=True) if isinstance(x, Element) else x, self))

    @classmethod
    def divide(cls, x: Any, y: Any) -> Any:
        return cls.rules.over(x, y)

    @classmethod
    @_sharply
    def _sum(cls, a: Self, axis: int) -> Self:
        if cls._forbidden(a).any():
            raise Refused(f"{cls.name}: a sum over -inf (masked scores are only exponentiated)")
        return cls(_along(cls._total, a.entries, axis))

    @classmethod
    def _total(cls, xs: np.ndarray) -> Any:
        undefined = next((x for x in xs if isinstance(x, Undefined)), None)
        return undefined or cls.rules.total(xs.tolist())

    @classmethod
    @_sharply
    def _matmul(cls, a: Self, b: Self) -> Self:
        batch = np.broadcast_shapes(a.plain_shape[:-2], b.plain_shape[:-2])
        x = np.broadcast_to(a.entries, (*batch, *a.plain_shape[-2:]))
        y = np.broadcast_to(b.entries, (*batch, *b.plain_shape[-2:]))
        out = np.empty((*batch, x.shape[-2], y.shape[-1]), dtype=object)
        for index in np.ndindex(*batch):
            out[index] = product(cls.rules, x[index], y[index])
        return cls(out)

    @classmethod
    @_sharply
    def function(cls, name: str, x: Any) -> Any:
        return cls.rules.function(name, x)

    @classmethod
    @_sharply
    def larger(cls, x: Any, y: Any) -> Any:
        return cls.rules.larger(x, y)

    @classmethod
    @_sharply
    def less(cls, x: Any, y: Any) -> bool:
        apart, errors = y.value - x.value, x.error + y.error
        if apart > errors:
            return True
        if -apart > errors or (x.is_exact and y.is_exact):
            return False
        raise Undecided(f"{cls.name}: is {x} < {y}, as they are computed?")

    @classmethod
    @_sharply
    def same(cls, x: Any, y: Any) -> bool:
        if abs(x.value - y.value) > x.error + y.error:
            return False
        if x.is_exact and y.is_exact:
            return bool(x.value == y.value)
        raise Undecided(f"{cls.name}: is {x} = {y}, as they are computed?")


def rounded(
    precision: str | Precision, contract: Contract | None = None, accumulate: str | None = None
) -> type[Rounded]:
    """The kind for a precision: ``rounded("float32")``, ``rounded("bfloat16", "fused")``, or any ``Precision``.

    >>> kind = rounded("float16")
    >>> mean = kind.xp.mean(kind.lift([1.0, 2.0, 4.0]))
    >>> mean.within(2.334).item(), mean.within(2.35).item()
    (True, False)
    """
    return _kind(Precision.of(precision, contract, accumulate))


@cache
def _kind(p: Precision) -> type[Rounded]:
    bits = 2 * max(f.digits for f in (p.input, p.score, p.accumulate, p.stored)) + 32
    fields = {"name": f"rounded {p.name}", "precision": p, "rules": Rules(p), "bits": bits}
    made: type[Rounded] = type("Rounded", (Rounded,), fields)
    made.xp = RoundedNamespace(made)
    return made


class _Sums:
    """Sums that elsewhere are made one after another, here in any order."""

    kind: type[Any]

    def sum(self, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Over all the axes at once."""
        axes = _axes(a, axis)
        kept = [k for k in range(a.ndim) if k not in axes]
        lines = np.transpose(a.entries, (*kept, *axes)).reshape([a.plain_shape[k] for k in kept] + [-1])
        total = self.kind._sum(self.kind(lines), len(kept)) if axes else a.copy()
        return self.kind.xp.expand_dims(total, tuple(sorted(axes))) if keepdims and axes else total

    def cumulative_sum(self, a: Any, axis: int | None = None) -> Any:
        """Each partial sum as a sum of its own."""
        x, k = (a.reshape(-1), 0) if axis is None else (a, axis)
        rows = self.kind.xp.moveaxis(x, k, 0)
        sums = [self.kind._sum(rows[: i + 1], 0) for i in range(len(rows))]
        return self.kind.xp.moveaxis(self.kind.xp.stack(sums), 0, k) if sums else x.copy()

    cumsum = cumulative_sum


offer_all(_Sums)


class RoundedNamespace(_Sums, Namespace):
    """The namespace of a rounded kind."""


def _or_special(rule: Callable[[Any, Any], Any], special: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def run(x: Any, y: Any) -> Any:
        return rule(x, y) if isinstance(x, Element) and isinstance(y, Element) else special(x, y)

    return run


def _along(function: Callable[[np.ndarray], Any], a: np.ndarray, axis: int) -> np.ndarray:
    lines = np.moveaxis(a, axis, -1)
    out = np.empty(lines.shape[:-1], dtype=object)
    for index in np.ndindex(out.shape):
        out[index] = function(lines[index])
    return out


def _holds(f: Format, x: flint.arb) -> bool:
    """Whether the number is one of the format."""
    return bool(x.is_exact() and flint.arb(float(f.rounded(float(x.mid())))) == x)
