"""The kinds under test, and what it means that an array of a kind agrees with exactly known values.

A reference value is a ``Fraction``, an mpmath number at 60 digits, −inf (forbidden) or NaN (undefined). What counts as
agreement is stated once, here: nothing is "close".

    exact      rational values are equal; others agree with 50 digits
    ball       the ball contains the reference and has lost at most ten of its bits
    enclosure  the interval contains the reference, and its radius is that of 8 k roundings at most
    symbolic   equal if rational, else 50 digits of the expression; so too with letters, once numbers are put in
    rounded    the ball of its exact value contains the reference, and the bound is that of 8 k roundings at most
    floats     within (1 + u)^k − 1 of the row's magnitude, k the roundings stated in the row
    stored     bit for bit what float32 gives, rounded to the format; or as floats where a row rounds more than once"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import flint
import ml_dtypes
import mpmath
import numpy as np
import sympy

from symattn import Refused, Undecided, kind, kinds
from symattn import rounded as rounding_kind

Ball = kind("ball")
Enclosure = kind("enclosure")

DIGITS = 60  # of the reference
FORMATS = {
    name: np.dtype(getattr(ml_dtypes, name, name))
    for name in ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
}


def rational(x: Any) -> Fraction | None:
    """The reference as a fraction; None if it is an mpmath number."""
    return None if isinstance(x, mpmath.mpf) else Fraction(x)


def enclosed(x: Any) -> Any:
    """A ball around the reference, as sharp as the reference is."""
    with flint.ctx.workprec(256):
        exact = rational(x)
        if exact is not None:
            return flint.arb(flint.fmpq(exact.numerator, exact.denominator))
        negative, mantissa, exponent, _ = x._mpf_
        mid = flint.arb(flint.fmpz(int(mantissa))) * flint.arb(2) ** int(exponent) * (-1) ** negative
        return mid + flint.arb(0, 1e-55) * (1 + abs(mid))


@dataclass(frozen=True)
class Specimen:
    """A kind under test. ``agrees`` compares one element with its reference; specials are compared before."""

    name: str
    kind: Any
    once: bool = False  # whether a row that rounds once is compared bit for bit with ``rounded``

    def lift(self, data: Any) -> Any:
        return self.kind.lift(data)

    @property
    def xp(self) -> Any:
        return self.kind.xp

    def elements(self, array: Any) -> np.ndarray:
        """The elements of a result, as an array of objects."""
        assert isinstance(array, self.kind), f"a result of type {type(array).__name__}"
        return array.entries

    def special(self, x: Any) -> str:
        return "forbidden" if isinstance(x, kinds.Forbidden) else "undefined" if isinstance(x, kinds.Undefined) else ""

    def agrees(self, x: Any, value: Any, roundings: int, magnitude: Any) -> bool:
        raise NotImplementedError


class ExactSpecimen(Specimen):
    def agrees(self, x: Any, value: Any, roundings: int, magnitude: Any) -> bool:
        if rational(value) is not None and x.rational() is not None:
            return x.rational() == rational(value)
        with flint.ctx.workprec(256):
            difference = abs(x.arb(220) - enclosed(value))
            return bool(difference < flint.arb("1e-50") * (1 + abs(enclosed(value))))


class BallSpecimen(Specimen):
    def agrees(self, x: Any, value: Any, roundings: int, magnitude: Any) -> bool:
        narrow = float(x.rad()) <= 2.0 ** (10 - flint.ctx.prec) * max(1.0, abs(float(magnitude)))
        return narrow and bool(x.overlaps(enclosed(value)))


class EnclosureSpecimen(Specimen):
    def elements(self, array: Any) -> np.ndarray:
        assert isinstance(array, self.kind), f"a result of type {type(array).__name__}"
        return array.balls().entries

    def agrees(self, x: Any, value: Any, roundings: int, magnitude: Any) -> bool:
        with flint.ctx.workprec(256):
            share = (1 + Fraction(1, 2**53)) ** (8 * roundings) - 1
            large = bool(x.rad() > abs(enclosed(magnitude)) * enclosed(share) + flint.arb(2) ** -1000)
            return not large and bool(x.overlaps(enclosed(value)))


class Bounded(NamedTuple):
    """An exact value and a bound."""

    value: Any
    error: float


class RoundedSpecimen(Specimen):
    def elements(self, array: Any) -> np.ndarray:
        assert isinstance(array, self.kind), f"a result of type {type(array).__name__}"
        values, errors = array.value.entries, array.error
        out = np.empty(values.shape, dtype=object)
        for index, x in np.ndenumerate(values):
            out[index] = Bounded(x, errors[index]) if isinstance(x, flint.arb) else x
        return out

    def agrees(self, x: Any, value: Any, roundings: int, magnitude: Any) -> bool:
        with flint.ctx.workprec(256):
            share = enclosed((1 + self.kind.precision.score.u) ** (8 * roundings or 2) - 1)
            large = bool(x.error > abs(enclosed(magnitude)) * share)
            return not large and bool(x.value.overlaps(enclosed(value)))


class SymbolicSpecimen(Specimen):
    def agrees(self, x: Any, value: Any, roundings: int, magnitude: Any) -> bool:
        if rational(value) is not None and x.is_Rational:
            return Fraction(int(x.p), int(x.q)) == rational(value)
        number = mpmath.mpf(str(sympy.N(x, DIGITS)))
        wanted = value if isinstance(value, mpmath.mpf) else mpmath.mpf(value.numerator) / value.denominator
        return bool(abs(number - wanted) <= mpmath.mpf("1e-50") * (1 + abs(wanted)))


class LettersSpecimen(SymbolicSpecimen):
    """Letters for entries; in the results the numbers that they stand for are put back, and ``max`` is evaluated."""

    def lift(self, data: Any) -> Any:
        numbers = self.kind.lift(data)
        return self.kind(numbers.each(_letter_for, numbers))

    def elements(self, array: Any) -> np.ndarray:
        return array.each(_numbers_for_letters, array)


_letters: dict[Any, Any] = {}


def _letter_for(number: Any) -> Any:
    letter = sympy.Symbol(f"t_{len(_letters)}", real=True)
    _letters[letter] = number
    return letter


def _numbers_for_letters(x: Any) -> Any:
    if not isinstance(x, sympy.Basic):
        return x
    opaque = sympy.Function("max", real=True)
    return x.xreplace({s: _letters[s] for s in x.free_symbols}).replace(opaque, lambda *xs: sympy.Max(*xs))


@dataclass(frozen=True)
class FloatSpecimen(Specimen):
    """NumPy's arrays, or a stored format."""

    dtype: Any = field(default=None)

    @property
    def unit_roundoff(self) -> Fraction:
        return Fraction(float(ml_dtypes.finfo(self.dtype).eps)) / 2

    def elements(self, array: Any) -> np.ndarray:
        plain = np.asarray(array if isinstance(array, (np.ndarray, np.generic)) else array.numpy())
        assert plain.dtype == self.dtype, f"a result of type {plain.dtype}"
        return plain.astype(np.float64).astype(object)

    def special(self, x: Any) -> str:
        return "undefined" if x != x else "forbidden" if x == -np.inf else ""

    def agrees(self, x: Any, value: Any, roundings: int, magnitude: Any) -> bool:
        if not np.isfinite(x):
            return False
        share = (1 + self.unit_roundoff) ** roundings - 1
        with flint.ctx.workprec(256):
            difference = abs(enclosed(Fraction(x)) - enclosed(value))
            return bool(difference <= abs(enclosed(magnitude)) * enclosed(share) + flint.arb("1e-50"))


def rounded(result: Any, dtype: Any) -> np.ndarray:
    """What float32 gives, rounded once to the format."""
    return np.asarray(result, dtype=np.float32).astype(dtype)


@cache
def specimens() -> dict[str, Specimen]:
    """Every kind, by name; ``letters`` is ``symbolic`` with letters for entries."""
    found: list[Specimen] = [
        ExactSpecimen("exact", kind("exact")),
        BallSpecimen("ball", kind("ball")),
        EnclosureSpecimen("enclosure", kind("enclosure")),
        SymbolicSpecimen("symbolic", kind("symbolic")),
        LettersSpecimen("letters", kind("symbolic")),
        RoundedSpecimen("rounded", rounding_kind("float32")),
    ]
    for name, dtype in FORMATS.items():
        found.append(FloatSpecimen(name, kind(name), once=not hasattr(np, name), dtype=dtype))
    return {s.name: s for s in found}


def flat(array: np.ndarray) -> list[Any]:
    return list(itertools.chain(np.asarray(array, dtype=object).flat))


# -- Enclosures held against balls: which elements are outside, and hostile numbers to try them with -------------------
BITS = 200
NARROW = 1000  # intervals that are so much narrower must miss values


class Count(NamedTuple):
    """Elements compared, those whose interval misses the value, those that a narrower one would miss, those of which
    nothing is said, and those whose ball is too wide to tell."""

    compared: int = 0
    outside: int = 0
    missed: int = 0
    open: int = 0
    untold: int = 0

    def __add__(self, other: Any) -> Count:  # type: ignore[override]
        return Count(*map(sum, zip(self, other, strict=True)))


def outside(enclosures: Any, balls: Any) -> Count:
    """Every element of an array, or of several, against that of balls at the same place."""
    if isinstance(enclosures, (list, tuple)):
        pairs = zip(enclosures, balls, strict=True)
        return sum((outside(x, y) for x, y in pairs), Count())
    assert isinstance(enclosures, Enclosure)
    assert enclosures.plain_shape == balls.plain_shape
    mid, rad = enclosures.mid, enclosures.rad
    assert not np.isnan(rad).any()
    assert (rad >= 0).all()
    found = (_one(float(mid[i]), float(rad[i]), y) for i, y in np.ndenumerate(balls.entries))
    return sum(found, Count())


def _one(c: float, r: float, y: Any) -> Count:
    if r == np.inf:
        return Count(open=1)
    if isinstance(y, (kinds.Forbidden, kinds.Undefined)):
        special = c == -np.inf if isinstance(y, kinds.Forbidden) else c != c
        return Count(compared=1, outside=int(not special))
    if not np.isfinite(c):
        return Count(compared=1, outside=1)
    off = abs(y - flint.arb(c))
    if y.rad() > max(r, 2.0**-1074) / 16:
        return Count(untold=1, outside=int(bool(off > r)))
    return Count(1, int(bool(off > r)), int(bool(off > flint.arb(r) / NARROW)))


def compared(work: Callable[..., Any], *inputs: Any, bits: int = BITS) -> Count:
    """``work`` on enclosures against ``work`` on balls; nothing to count where balls refuse it or do not decide."""
    with kinds.precision(bits):
        try:
            wanted = work(*map(Ball.literal, inputs))
        except (Refused, Undecided):
            return Count()
        try:
            got = work(*map(Enclosure.literal, inputs))
        except Undecided:
            return Count(open=1)
        return outside(got, wanted)


SIZES = (0.0, 5e-324, 1e-310, 1e-200, 1e-30, 0.3, 1.0, 3.0, 40.0, 1e3, 1e20, 1e150, 1e300)


def hostile(rng: np.random.Generator, *shape: int, sizes: Iterable[float] = SIZES) -> np.ndarray:
    """Numbers of all magnitudes, among them equal ones, opposite ones, and short ones."""
    sizes = np.array(list(sizes))
    x = rng.standard_normal(shape) * rng.choice(sizes, shape)
    short = rng.random(shape) < 0.3
    x[short] = np.round(x[short] / np.maximum(np.abs(x[short]), 1e-300) * 8) / 8
    if x.size > 1:
        flat = x.reshape(-1)
        flat[rng.integers(x.size)] = -flat[rng.integers(x.size)]
        flat[rng.integers(x.size)] = np.nextafter(flat[rng.integers(x.size)], np.inf)
    return np.clip(x, -1e301, 1e301)
