"""The planes of a ``rounded`` array, and how operations compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import flint
import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.formats import Format
from symattn.arrays.planes import Planes
from symattn.arrays.precision import Precision
from symattn.arrays.rounding import bounds
from symattn.arrays.special import Forbidden, Undefined

F = TypeVar("F", bound=Callable[..., Any])
SPECIAL = (Forbidden, Undefined)


def sharply(method: F) -> F:
    """Run a class method with balls much sharper than the roundings that it bounds."""

    @wraps(method)
    def run(cls: type[ComputedNumber], *args: object, **kwargs: object) -> Any:
        with flint.ctx.workprec(max(flint.ctx.prec, cls.bits)), np.errstate(all="ignore"):
            return method(cls, *args, **kwargs)

    return run  # type: ignore[return-value]


class LinearErrors(NamedTuple):
    """x̃ − x of numbers before they are rounded: coefficients of common errors, and a bound on the rest.

    ``last`` is the contribution of the last roundings of the operands.
    """

    shared: np.ndarray
    ids: np.ndarray
    rest: np.ndarray
    last: np.ndarray


def _plane(k: int) -> Any:
    return property(lambda self: self.planes[k])


class ComputedNumber(Planes):
    """An exact number x with bounds on x̃ − x and x̂ − x̃: x̃ is the computed number, x̂ the number that is read.

    Planes: x, in balls; ``rows``, four planes: x̃ − x = Σ c_s ε_s + r with |r| ≤ own; ``last``, |x̂ − x̃| ≤ last, the
    rounding that each reader may see or not; ``terms``, Σ|x_l y_l| if x is a sum of products, else 0; ``count``, the
    number of these; and ``near``, two planes: x in float64, which every operation reads several times.
    """

    holds = "exact numbers, each with how far correct code may be from it"
    precision: ClassVar[Precision]
    bits: ClassVar[int]

    # -- lifting and reading ------------------------------------------------------------------------------------------
    @classmethod
    @sharply
    def lift(cls, data: object) -> Self:
        """Return data, exact if the input's format holds it, else rounded to that.

        Single numbers and integers are constants of the program, in the format ``score``.
        """
        value, whole = Ball.lift(data), isinstance(data, np.ndarray) and data.dtype.kind in "biu"
        return cls._read(value, cls.precision.score if whole or not value.ndim else cls.precision.input, data)

    @classmethod
    @sharply
    def literal(cls, value: object) -> Self:
        return cls._read(Ball.literal(value), cls.precision.score)

    @classmethod
    def _read(cls, value: Ball, f: Format, data: object = None) -> Self:
        x = bounds.floats(value.entries, data)
        read = np.where(bounds.holds(f, x), 0.0, bounds.rounding(x.size, x.low, bounds.growth(f, 1), f))
        return cls(value.entries, *bounds.bounded(read), *np.zeros((3, *value.plain_shape)), *x)

    @property
    def value(self) -> Ball:
        """The exact values, in balls."""
        return Ball(self.planes[0])

    @property
    def rows(self) -> bounds.Errors:
        """The errors before the last rounding."""
        return bounds.Errors(*self.planes[1:5])

    last, terms, count = map(_plane, range(5, 8))

    @property
    def error(self) -> np.ndarray:
        """e: |x̂ − x| ≤ e, as float64 rounded up; +∞ if nothing is known."""
        return bounds.up(self.planes[3] + self.planes[4] + self.planes[5])

    @property
    def near(self) -> bounds.Floats:
        """The exact values in float64."""
        return bounds.Floats(*self.planes[8:])

    @property
    def reach(self) -> np.ndarray:
        """An upper bound of |x̂|."""
        return bounds.up(self.near.size + self.error)

    # -- building blocks of operations --------------------------------------------------------------------------------
    def name_errors(self) -> Self:
        """Name each own error as an ε, here and in views, so that all later readers share it."""
        before = self.rows
        rows = bounds.named(before)
        repeated = any(n > 1 and not step for n, step in zip(self.plain_shape, before.own.strides, strict=True))
        if repeated or not before.own.flags.writeable:
            return type(self)(self.planes[0], *rows, *self.planes[5:])
        for mine, new in zip(before, rows, strict=True):
            mine[...] = new
        return self

    @staticmethod
    def linear(shape: tuple[int, ...], parts: Iterable[tuple[bounds.Floats, ComputedNumber]]) -> LinearErrors:
        """Return Σ c_i (x̂_i − x_i) for the (c_i, x_i) in ``parts``."""
        parts = list(parts)
        ids = bounds.common_ids([x.rows for _, x in parts], int(np.prod(shape)))
        shared: Any = None
        rest, last = np.zeros(shape), np.zeros(shape)
        for c, x in parts:
            rows = x.rows
            part, left = bounds.table(rows, ids)
            more, its_last = rows.own + left + bounds.SLACK * rows.radius, x.last
            if c.off.any():
                rest = rest + bounds.product(c.off, x.error)
            if c is not bounds.ONE:
                size, part = np.abs(c.near), c.near[..., None] * part
                more, its_last = bounds.product(size, more), bounds.product(size, its_last)
            shared = part if shared is None else shared + part
            rest, last = rest + more, last + its_last
        return LinearErrors(np.broadcast_to(shared, (*shape, ids.size)), ids, rest, last)

    @classmethod
    def made(
        cls,
        value: Ball,
        errors: LinearErrors,
        *,
        times: Any = 0.0,
        more: Any = 0.0,
        relative: Any = 0.0,
        small: int = 1,
        same: Any = False,
        terms: Any = 0.0,
        count: Any = 0.0,
        near: bounds.Floats | None = None,
    ) -> Self:
        """Return numbers with these errors before they are rounded.

        times     factor by which the errors are increased
        more      other errors before rounding
        relative  the total relative error of rounding, and ``small`` the number of roundings, see ``bounds.rounding``
        same      where the operand is returned unchanged, with its last rounding still open
        near      the numbers in float64, if they are known
        """
        shared, ids, rest, last = errors
        radius, unchanged = bounds.radii(shared), np.any(same)
        if np.any(times):
            rest = rest + times * (radius + rest + last)
        rest = bounds.up(rest + more + (np.where(same, 0, last) if unchanged else last))
        x = bounds.floats(value.entries) if near is None else near
        last = np.where(same, last, 0.0) if unchanged else np.zeros(())
        e = bounds.up(radius + rest + last)
        fresh = bounds.rounding(bounds.up(x.size + e), x.low - e, relative, cls.precision.score, small)
        last = last + np.where(same, 0.0, fresh) if unchanged else fresh
        odd = special(value.entries)
        gone = ~np.isfinite(radius + rest + last) | odd
        if gone.any():
            shared, radius = np.where(gone[..., None], 0, shared), np.where(gone, 0, radius)
            rest = np.where(odd, 0, np.where(gone, np.inf, rest))
        rows = bounds.errors_of(shared, ids, rest, radius)
        return cls(value.entries, *rows, *[np.where(gone, 0.0, p) for p in (last, terms, count)], *x)

    @classmethod
    def rounded_once(cls) -> np.ndarray:
        """Return the relative error of one rounding."""
        return bounds.growth(cls.precision.score, 1)

    @classmethod
    def _forbidden(cls, a: Self) -> np.ndarray:
        return Ball._forbidden(a.value)

    @classmethod
    def _undefined(cls, a: Self) -> np.ndarray:
        return Ball._undefined(a.value)


def special(values: np.ndarray) -> np.ndarray:
    """Return where −∞ and undefined elements are."""
    types = list(map(type, values.ravel().tolist()))
    if types.count(flint.arb) == len(types):
        return np.zeros(values.shape, dtype=bool)
    return np.array([issubclass(t, SPECIAL) for t in types]).reshape(values.shape)
