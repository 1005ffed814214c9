"""The planes of a ``rounded`` array, and how operations compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from math import prod
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import flint
import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.formats import Format
from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.planes import Planes
from symattn.arrays.precision import Precision
from symattn.arrays.rounding import bounds
from symattn.arrays.special import Forbidden, Undefined
from symattn.document.errors import Undecided

F = TypeVar("F", bound=Callable[..., Any])
# The types of elements that are no numbers.
SPECIAL = (Forbidden, Undefined)


def sharply(method: F) -> F:
    """Run a class method with balls much sharper than the roundings that it bounds."""

    @wraps(method)
    def run(cls: type[ComputedNumber], *args: object, **kwargs: object) -> Any:
        # Sharper balls make the bound depend on the roundings alone.
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


class MovedByRounding(Undecided):
    """Raised if roundings can change the order of two numbers, however sharply these are known."""


def _make_plane_property(k: int) -> Any:
    return property(lambda self: self.planes[k])


class ComputedNumber(Planes):
    """An exact number x with bounds on x̃ − x and x̂ − x̃: x̃ is the computed number, x̂ the number that is read.

    Planes: x, in the kind ``values``; ``rows``, four planes: x̃ − x = Σ c_s ε_s + r with |r| ≤ own; ``last``,
    |x̂ − x̃| ≤ last, the rounding that each reader may see or not; ``terms``, Σ|x_l y_l| if x is a sum of products, else
    0; ``count``, the number of these; and ``near``, two planes: x in float64, which every operation reads several
    times.

    ``values`` is the kind that encloses x, balls here. Only the methods under "the exact numbers" read or write it.
    """

    holds = "exact numbers, each with how far correct code may be from it"
    values: ClassVar[type[Any]] = Ball
    precision: ClassVar[Precision]
    bits: ClassVar[int]

    # -- the exact numbers --------------------------------------------------------------------------------------------
    @property
    def value(self) -> Any:
        """The exact values, in balls."""
        return Ball(self.planes[0])

    @classmethod
    def write_plane(cls, value: Any) -> np.ndarray:
        """Return the plane in which exact values stand."""
        entries: np.ndarray = value.entries
        return entries

    @classmethod
    def read_floats(cls, value: Any, data: object = None) -> bounds.Floats:
        """Return exact values, which were made from ``data``, as float64."""
        return bounds.floats(value.entries, data)

    @classmethod
    def find_special(cls, plane: np.ndarray) -> np.ndarray:
        """Return where −∞ and undefined elements are."""
        types = list(map(type, plane.ravel().tolist()))
        # Usually all are balls, which one count shows.
        if types.count(flint.arb) == len(types):
            return np.zeros(plane.shape, dtype=bool)
        return np.array([issubclass(t, SPECIAL) for t in types]).reshape(plane.shape)

    @classmethod
    def invert_divisor(cls, b: Self, undefined: np.ndarray) -> Any:
        """Return 1/y, and any number where the quotient is undefined."""
        # The placeholder 1 keeps balls from dividing by 0; these quotients are undefined anyway.
        return 1 / Ball(np.where(undefined, flint.arb(1), b.planes[0]))

    @classmethod
    def find_slopes(cls, name: str, x: Self, y: Any) -> bounds.Floats:
        """Return f'(x) for y = f(x) as float64, 0 where x is no number."""
        of_balls = np.frompyfunc(
            lambda s, t: flint.arb(0) if isinstance(s, SPECIAL) else _slope_of_ball(name, s, t),
            2,
            1,
        )
        return bounds.floats(of_balls(x.planes[0], y.entries))

    @classmethod
    def multiply_matrices(cls, a: Self, b: Self, shape: tuple[int, ...]) -> Any:
        """Return the product of matrices, of this shape."""
        value = np.empty(shape, dtype=object)
        leading = shape[:-2]
        x, y = (np.broadcast_to(z.planes[0], (*leading, *z.plain_shape[-2:])) for z in (a, b))
        for i in np.ndindex(*leading):
            product = Ball._matmul(Ball(x[i]), Ball(y[i]))
            value[i] = product.entries
        return Ball(value)

    @classmethod
    def check_decided(cls, words: str, a: Self, b: Self) -> None:
        """Raise ``MovedByRounding`` if roundings can change whether a is less than, or equal to, b."""

        def check(x: Any, y: Any, e: float) -> None:
            # Numbers without an error are decided even if they are equal.
            if (
                e > 0
                and not isinstance(x, SPECIAL)
                and not isinstance(y, SPECIAL)
                and not abs(x - y) > e
            ):
                numbers = f"{x.str(6)} {words} {y.str(6)}"
                raise MovedByRounding(
                    f"{cls.name}: is {numbers}, when rounding moves them by {e:.2g}?"
                )

        errors = bounds.up(a.error + b.error)
        np.frompyfunc(check, 3, 1)(a.planes[0], b.planes[0], errors)

    # -- lifting and reading ------------------------------------------------------------------------------------------
    @classmethod
    @sharply
    def lift(cls, data: object) -> Self:
        """Return data, exact if the input's format holds it, else rounded to that.

        Single numbers and integers are constants of the program, in the format ``score``.
        """
        # Integers of NumPy are indices and sizes, which programs do not round like data.
        value, whole = (
            cls.values.lift(data),
            isinstance(data, np.ndarray) and data.dtype.kind in "biu",
        )
        return cls._read_value_rounded(
            value, cls.precision.score if whole or not value.ndim else cls.precision.input, data
        )

    @classmethod
    @sharply
    def literal(cls, value: object) -> Self:
        return cls._read_value_rounded(cls.values.literal(value), cls.precision.score)

    @classmethod
    @sharply
    def near_to(cls, value: Any, errors: np.ndarray) -> Self:
        """Return numbers x̂ that are off by at most ``errors`` from exact numbers, in the kind ``values``."""
        off = np.broadcast_to(errors, value.plain_shape)
        nothing = np.zeros(0, dtype=int)
        shared = np.zeros((*value.plain_shape, 0))
        return cls.made(value, LinearErrors(shared, nothing, off, np.zeros(off.shape)))

    @classmethod
    def _read_value_rounded(cls, value: Any, f: Format, data: object = None) -> Self:
        x = cls.read_floats(value, data)
        # Data that the format holds are not rounded, and most inputs are such data.
        held = bounds.holds(f, x)
        read = np.zeros(held.shape)
        if not held.all():
            read = np.where(held, 0.0, bounds.rounding(x.size, x.low, bounds.growth(f, 1), f))
        zeros = np.zeros((3, *value.plain_shape))
        value_plane = cls.write_plane(value)
        return cls(value_plane, *bounds.bounded(read), *zeros, *x)

    @property
    def rows(self) -> bounds.Errors:
        """The errors before the last rounding."""
        return bounds.Errors(*self.planes[1:5])

    last, terms, count = map(_make_plane_property, range(5, 8))

    @property
    def error(self) -> np.ndarray:
        """e: |x̂ − x| ≤ e, as float64 rounded up; +∞ if nothing is known."""
        return bounds.up(self.planes[3] + self.planes[4] + self.planes[5])

    @property
    def near(self) -> bounds.Floats:
        """The exact values in float64."""
        return bounds.Floats(*self.planes[8:])

    def exact_floats(self) -> np.ndarray:
        """Return the numbers as float64. Raises ``Undecided`` if one is none, or was rounded before."""
        near = self.near
        if near.off.any() or self.error.any() or self.find_special(self.planes[0]).any():
            raise Undecided(
                f"{self.name}: numbers that were computed before are enclosed, not exact"
            )
        return near.near

    @property
    def reach(self) -> np.ndarray:
        """An upper bound of |x̂|."""
        return bounds.up(self.near.size + self.error)

    # -- building blocks of operations --------------------------------------------------------------------------------
    def name_errors(self) -> Self:
        """Name each own error as an ε, here and in views, so that all later readers share it."""
        before = self.rows
        rows = bounds.named(before)
        # A broadcast array repeats its memory, which must not be written to in place.
        repeated = any(
            n > 1 and not step for n, step in zip(self.plain_shape, before.own.strides, strict=True)
        )
        # Read-only or repeated planes get new arrays; then only this array knows the names.
        if repeated or not before.own.flags.writeable:
            return type(self)(self.planes[0], *rows, *self.planes[5:])
        for mine, new in zip(before, rows, strict=True):
            mine[...] = new
        return self

    @staticmethod
    def linear(
        shape: tuple[int, ...], parts: Iterable[tuple[bounds.Floats, ComputedNumber]]
    ) -> LinearErrors:
        """Return Σ c_i (x̂_i − x_i) for the (c_i, x_i) in ``parts``."""
        parts = list(parts)
        every_row = [x.rows for _, x in parts]
        ids = bounds.common_ids(every_row, prod(shape))
        shared: Any = None
        # Whether ``shared`` is an array of this function, to which more can be added in place.
        own = False
        rest, last = np.zeros(shape), np.zeros(shape)
        for c, x in parts:
            rows = x.rows
            one = c is bounds.ONE
            # A coefficient of more entries repeats the table, which has to be there first.
            repeated = not one and c.near.shape != rows.own.shape
            # What the table leaves out is bounded instead of shared.
            part, left = bounds.table(rows, ids, None if one or repeated else c.near)
            more = rows.own + left + bounds.SLACK * rows.radius
            its_last = x.last
            # The coefficient itself is known up to ``off`` only.
            if c.off.any():
                rest = rest + bounds.product(c.off, x.error)
            # Sums need no product with 1.
            if not one:
                size = np.abs(c.near)
                part = c.near[..., None] * part if repeated else part
                more = bounds.product(size, more)
                its_last = bounds.product(size, its_last)
            if own and shared.shape[:-1] == shape:
                shared += part
            else:
                own = shared is not None or not one
                shared = part if shared is None else shared + part
            rest, last = rest + more, last + its_last
        if shared.shape[:-1] != shape:
            shared = np.broadcast_to(shared, (*shape, ids.size))
        return LinearErrors(shared, ids, rest, last)

    @classmethod
    def made(
        cls,
        value: Any,
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
        # Where the operand passes unchanged, its last rounding stays the reader's choice.
        radius, unchanged = bounds.radii(shared), np.any(same)
        if np.any(times):
            rest = rest + times * (radius + rest + last)
        of_last = np.where(same, 0, last) if unchanged else last
        rest = bounds.up(rest + more + of_last)
        x = cls.read_floats(value) if near is None else near
        last = np.where(same, last, 0.0) if unchanged else np.zeros(())
        e = bounds.up(radius + rest + last)
        # The rounding applies to the computed number, so its errors count in the size.
        largest = bounds.up(x.size + e)
        fresh = bounds.rounding(largest, x.low - e, relative, cls.precision.score, small)
        last = last + np.where(same, 0.0, fresh) if unchanged else fresh
        plane = cls.write_plane(value)
        odd = cls.find_special(plane)
        # Without a finite bound nothing is shared; what is no number has no error.
        gone = ~np.isfinite(radius + rest + last) | odd
        is_any_gone = gone.any()
        if is_any_gone:
            shared = np.where(gone[..., None], 0, shared)
            radius = np.where(gone, 0, radius)
            rest = np.where(odd, 0, np.where(gone, np.inf, rest))
        rows = bounds.errors_of(shared, ids, rest, radius)
        remaining = [
            # A single number fills a plane of its own.
            np.where(gone, 0.0, p) if is_any_gone or np.shape(p) != gone.shape else np.asarray(p)
            for p in (last, terms, count)
        ]
        return cls(plane, *rows, *remaining, *x)

    @classmethod
    def rounded_once(cls) -> np.ndarray:
        """Return the relative error of one rounding."""
        return bounds.growth(cls.precision.score, 1)

    @classmethod
    def _forbidden(cls, a: Self) -> np.ndarray:
        forbidden: np.ndarray = cls.values._forbidden(a.value)
        return forbidden

    @classmethod
    def _undefined(cls, a: Self) -> np.ndarray:
        undefined: np.ndarray = cls.values._undefined(a.value)
        return undefined


class _OfBalls:
    """Functions of single balls, not arrays, for slopes."""

    def __getattr__(self, name: str) -> Any:
        return lambda x: getattr(x, name)()

    class kind:
        name = "ball"
        lift = staticmethod(lambda x: x)


def _slope_of_ball(name: str, x: object, y: object) -> Any:
    """f'(x) from balls x and y = f(x)."""
    return FUNCTIONS[name].slope(_OfBalls(), x, y)
