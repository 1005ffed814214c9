"""The planes of ``enclosure``, how numbers become elements, and unknown numbers that are common to a row.

An element is a pair (c, r) of floats:

    c finite           the number x is in [c − r, c + r]; r = +∞ says only that it is a number
    c = −∞, r = 0      forbidden: −∞, which only masks make
    c = NaN, r = 0     undefined: 0/0 and everything computed from it
    c = NaN, r = +∞    open: nothing is known, not even that there is a value, as after a division by a possible zero
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any, ClassVar, Self
from weakref import WeakSet

import flint
import numpy as np

from symattn.arrays import structure
from symattn.arrays.ball import Ball
from symattn.arrays.enclosing.bounds import TINY, UP, U
from symattn.arrays.enclosing.exponential import check_arithmetic
from symattn.arrays.enclosing.work import EnclosedWork, Parts
from symattn.arrays.planes import Planes
from symattn.arrays.special import FORBIDDEN, Forbidden, Undefined
from symattn.document.errors import InputError, Refused
from symattn.document.model import Text

_BITS = 128  # of the balls through which numbers other than floats are read
_READS = 2  # delayed work is repeated for this many readers before its result is stored


@dataclass(frozen=True, eq=False)
class Common:
    """An unknown number t per row, |t| ≤ ``reach``, common to all elements along the last axis.

    Arrays with it enclose not their elements x but x − t (a ``shift``) or x e^{−t}, so that t need not be known where
    it cancels: the largest score is subtracted from a row and e/Σe does not depend on it, so its radius is not added.
    ``reach`` has length 1 along the last axis; ``source`` is the same object for all arrays that share t.
    """

    source: object
    reach: np.ndarray
    shift: bool

    def cancels(self, other: Common) -> bool:
        """Return whether both are the same factor e^t."""
        return self.source is other.source and not self.shift and not other.shift

    def widened(self, mid: np.ndarray, rad: np.ndarray) -> np.ndarray:
        """Return radii of x: r + ρ, or r + (|c| + r)(e^ρ − 1), with e^ρ − 1 ≤ ρ + ρ² for ρ ≤ 1."""
        if self.shift:
            wide = (rad + self.reach) * UP
        else:
            squared = self.reach * self.reach
            grown = np.where(self.reach <= 1, self.reach + squared, np.inf)
            largest = np.abs(mid) + rad
            wide = (largest * grown + rad) * UP + TINY
            # An exact zero times e^t stays 0; where a factor is unbounded so is the radius.
            exact_zero = (mid == 0) & (rad == 0)
            known = np.where(np.isnan(wide), np.inf, wide)
            wide = np.where(exact_zero, 0.0, known)
        # Forbidden, undefined and open elements have radii with meanings of their own.
        return np.where(np.isfinite(mid), wide, rad)


class Core(Planes):
    """Arrays of midpoints and radii, perhaps with a ``common`` unknown per row."""

    name: ClassVar[str] = "enclosure"
    holds = "balls of a midpoint and a radius, in each of which its number lies"
    common: Common | None = None
    own: bool = False  # whether no other array shares the memory
    positive: bool = False  # whether all numbers are known to be positive, except exact zeros
    _settled: np.ndarray | None = None
    _readers: WeakSet[EnclosedWork] | None = None

    def __init__(self, mid: np.ndarray, rad: np.ndarray) -> None:
        self._content: Parts | EnclosedWork = Parts(mid, rad)

    @classmethod
    def made(
        cls, out: Parts | EnclosedWork, common: Common | None = None, of: Core | None = None
    ) -> Self:
        """Return a new array of computed parts, or of work that is still to be done and reads the array ``of``."""
        array = cls.__new__(cls)
        array._content, array.common, array.own = out, common, True
        if of is not None and isinstance(out, EnclosedWork):
            # Weak, so that work that nobody reads does not keep its operands alive.
            of._readers = of._readers or WeakSet()
            of._readers.add(out)
        return array

    # -- reading ------------------------------------------------------------------------------------------------------
    @property
    def planes(self) -> tuple[np.ndarray, ...]:  # type: ignore[override]
        """Midpoints and radii, which may be overwritten: the common unknown is merged into the radii, and pending work
        that reads them is done first."""
        # A copy, because settling work changes the set.
        for work in list(self._readers or ()):
            work.settled()
        mid, rad = self.parts.pair
        self._content, self.common, self._settled, self._readers = Parts(mid, rad), None, None, None
        self.own = self.positive = False
        return mid, rad

    @property
    def plain_shape(self) -> tuple[int, ...]:
        return (
            self._content.shape
            if isinstance(self._content, EnclosedWork)
            else self._content.mid.shape
        )

    @property
    def size(self) -> int:
        return prod(self.plain_shape)

    @property
    def mid(self) -> np.ndarray:
        """Midpoints, read-only."""
        return self.raw.mid

    @property
    def rad(self) -> np.ndarray:
        """Radii, read-only."""
        if self.common is None:
            return self.raw.rad
        if self._settled is None:
            with np.errstate(all="ignore"):
                wide = self.common.widened(*self.raw.pair)
                # Radii of rows broadcast; the copy has memory of its own.
                self._settled = np.broadcast_to(wide, self.plain_shape).copy()
        return self._settled

    @property
    def raw(self) -> Parts:
        """Midpoints and radii without the common unknown."""
        if isinstance(self._content, EnclosedWork):
            self._content = self._content.settled()
        return self._content

    @property
    def parts(self) -> Parts:
        if self.common is None:
            return self.raw
        return Parts(self.raw.mid, self.rad, self.raw.finite)

    @property
    def source(self) -> Parts | EnclosedWork:
        """``raw``, or the work that computes it, which is cheap enough to be repeated rather than stored."""
        work = self._content
        if not isinstance(work, EnclosedWork) or work.reads >= _READS:
            return self.raw
        work.reads += 1
        return work

    # -- lifting ------------------------------------------------------------------------------------------------------
    @classmethod
    def lift(cls, data: object) -> Self:
        """Return an array of the data: floats and integers that float64 holds are exact, others are enclosed.

        Raises Refused for arrays if the processor is set to another rounding mode, or flushes subnormal numbers.
        """
        if isinstance(data, (list, tuple)) and structure._has_nested_arrays(data):
            stacked: Self = cls.xp.stack([cls.of(x) for x in data])
            return stacked
        # Most constants are single numbers that need no checks of arrays.
        if _is_short(data):
            data_copy = np.array(data, dtype=np.float64)
            return cls.made(Parts(data_copy, np.zeros(()), True))
        plain = _as_floats(data)
        if plain is None:
            return cls.of_balls(data)
        if not np.isfinite(plain).all():
            bad = plain[~np.isfinite(plain)].flat[0]
            raise InputError(
                f"{cls.name}: {bad} in the data; only a mask may hold -inf, and nothing may hold NaN"
            )
        # Checked for each array, since a library may change the rounding mode at any time.
        if plain.ndim:
            check_arithmetic()
        return cls.made(Parts(plain, np.zeros(plain.shape), True))

    @classmethod
    def literal(cls, value: object) -> Self:
        plain = None if _is_short(value) else _as_floats(value)
        # Only −∞ is a literal here: large negative numbers are numbers.
        if plain is None or not (forbidden := np.isneginf(plain)).any():
            return cls.lift(value)
        numbers = cls.lift(np.where(forbidden, 0.0, plain))
        return cls(np.where(forbidden, -np.inf, numbers.mid), numbers.rad)

    @classmethod
    def of_balls(cls, data: object) -> Self:
        """Return an enclosure of other numbers, or balls: midpoints are rounded, and radii enlarged by the error."""
        # Never fewer bits than the caller works with.
        with flint.ctx.workprec(max(_BITS, flint.ctx.prec)):
            entries = (data if isinstance(data, Ball) else Ball.lift(data)).entries
            mid = np.empty(entries.shape)
            rad = np.empty(entries.shape)
            for index, x in np.ndenumerate(entries):
                mid[index], rad[index] = _split_ball_into_floats(x)
        return cls(mid, rad)

    @classmethod
    def in_balls(cls, make: Callable[[Ball], Ball]) -> Self:
        """Return an enclosure of constants that ``make`` computes in balls, from a ball."""
        with flint.ctx.workprec(max(_BITS, flint.ctx.prec)):
            return cls.of_balls(make(Ball.lift(0)))

    def printer(self) -> Callable[[tuple[int, ...]], Text]:
        from symattn.arrays.shown import element

        mid, rad = self.mid, self.rad
        return lambda at: (element(_make_ball_from_floats(float(mid[at]), float(rad[at]))),)

    def balls(self) -> Ball:
        """Return the elements as balls; −∞ and undefined elements as in every kind, open ones as undefined."""
        out = np.empty(self.plain_shape, dtype=object)
        for index, c in np.ndenumerate(self.mid):
            out[index] = _make_ball_from_floats(float(c), float(self.rad[index]))
        return Ball(out)

    @classmethod
    def _forbidden(cls, a: Self) -> np.ndarray:
        return np.isneginf(a.mid)

    @classmethod
    def like(cls, a: Self) -> Self:
        """Return a new array with the same elements and the same common unknown."""
        copied = Parts(a.raw.mid.copy(), a.raw.rad.copy(), a.raw.finite)
        return cls.made(copied, a.common)


def _as_floats(data: object) -> np.ndarray | None:
    """Return a new float64 array of the same numbers, if they are floats or integers that float64 holds, else None."""
    try:
        plain = np.asarray(data)
    except (TypeError, ValueError, Refused):
        return None
    if plain.dtype.kind == "f" and plain.dtype.itemsize <= 8:
        return np.array(plain, dtype=np.float64, order="C")
    if plain.dtype.kind == "b" or plain.dtype.name.startswith(("bfloat", "float8")):
        return plain.astype(np.float64)
    # Larger integers are not all floats.
    if plain.dtype.kind in "iu" and not ((plain > 2**53) | (plain < -(2**53))).any():
        return plain.astype(np.float64)
    return None


def _is_short(data: Any) -> bool:
    """Return whether it is a number of Python that float64 holds, as most constants are."""
    return data.__class__ in (int, float) and -(2**53) <= data <= 2**53


def _split_ball_into_floats(x: Any) -> tuple[float, float]:
    """Return midpoint and radius of a ball, or of an element that is not a number."""
    if isinstance(x, Forbidden):
        return -np.inf, 0.0
    if isinstance(x, Undefined):
        return np.nan, 0.0
    c = float(x)  # its midpoint
    # A midpoint beyond the floats leaves a number of which nothing is known.
    if not isfinite(c) or not x.is_finite():
        return 0.0, np.inf
    # The exact difference, enclosed: the midpoint may be rounded and the ball has a radius.
    off = abs(x - c)
    return c, 0.0 if off == 0 else float(off.upper()) * (1 + 4 * U) + 2.0**-1074


def _make_ball_from_floats(c: float, r: float) -> Any:
    if c == -np.inf:
        return FORBIDDEN
    # A radius of 0 marks certain 0/0, any other an open element.
    return Undefined("0/0" if r == 0 else "perhaps 0/0") if c != c else flint.arb(c, r)
