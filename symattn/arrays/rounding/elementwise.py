"""The elementwise operations and comparisons of ``rounded``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.rounding.array import ComputedNumber, sharply
from symattn.arrays.rounding.bounds import (
    ONE,
    SLACK,
    Floats,
    bounded,
    growth,
    holds,
    negated,
    product,
    rounding,
    times,
    up,
)


def _exp_rest(x: Floats, y: Floats, e: np.ndarray) -> np.ndarray:
    """e^x (e^e − 1 − e) ≤ e^x e² e^e / 2, by Taylor."""
    second_order = y.size * e * e * np.exp(e) / 2
    return np.asarray(second_order)


def _log_rest(x: Floats, y: Floats, e: np.ndarray) -> np.ndarray:
    """Σ_{k ≥ 2} t^k/k ≤ t²/(2(1 − t)), t = e/x < 1."""
    t = _relative_error_share(e, x.low)
    quotient = t * t / (2 * np.maximum(1 - t, 0))
    return np.where(t < 1, quotient, np.inf)


def _sqrt_rest(x: Floats, y: Floats, e: np.ndarray) -> np.ndarray:
    """(√x̂ − √x)²/(2√x), and |√x̂ − √x| ≤ e/√x for e ≤ x."""
    t = _relative_error_share(e, x.low)
    far = np.where(e == 0, 0, np.inf)
    return np.where(t < 1, t * t * y.size / 2, far)


def _relative_error_share(e: np.ndarray, x: np.ndarray) -> np.ndarray:
    """e/x, rounded up; 0/0 is 0."""
    unknown = np.full(np.shape(e), np.inf)
    relative = np.divide(e, x, out=unknown, where=x > 0)
    return np.where(e == 0, 0.0, up(relative))


# Functions whose second derivative has no bound, with remainders of their own.
_RESTS = {"exp": _exp_rest, "log": _log_rest, "sqrt": _sqrt_rest}


def beyond_tangent(name: str, x: Floats, y: Floats, e: np.ndarray) -> np.ndarray:
    """Return an upper bound of |f(x̂) − y − f'(x)(x̂ − x)|: e² max|f''|/2 if f'' has a bound."""
    if name in _RESTS:
        return _RESTS[name](x, y, e)
    of_bend: np.ndarray = FUNCTIONS[name].bend * e * e / 2
    return of_bend


def steepest(name: str, x: Floats, e: np.ndarray) -> np.ndarray:
    """Return an upper bound of |f'| between x and x̂, as |x̂| ≥ |x| − e."""
    nearest_to_zero = np.maximum(x.low - e, 0)
    return FUNCTIONS[name].steepest(np.asarray(nearest_to_zero))


# -- arrays ------------------------------------------------------------------------------------------------------------
# The roundings that a scale on the factors may add, see ``_bound_scaling_of_factors``.
SCALE_ROUNDINGS = 6


class RoundedElementwise(ComputedNumber):
    """+ × ÷, functions, maxima, order and equality."""

    @classmethod
    @sharply
    def _add(cls, a: Self, b: Self) -> Self:
        """x + y, rounded once. Adding 0 is exact.

        If x is a sum of m products, y may be one more term of it, or n more: then the m products pass m + n roundings
        in ``accumulate`` instead of m, and those of y as many instead of none or n.
        """
        value = a.value + b.value
        reach = a.reach, b.reach
        pairs = zip((a, b), reach, strict=True)
        # A number that is no sum counts as one term.
        x, y = (np.where(z.terms > 0, z.terms, most) for z, most in pairs)
        m = a.count
        n = b.count
        # Adding an exact 0 changes nothing, and counts as no rounding.
        zero = (reach[0] == 0) | (reach[1] == 0)
        joined = (m + n > 0) & ~zero
        more = np.zeros(())
        count = m + n
        f = cls.precision.accumulate
        if joined.any():
            # The terms of both sums pass the roundings of the joint sum.
            together = np.maximum(m, 1) + np.maximum(n, 1)
            grown = (growth(f, together) - growth(f, m)) * x + (
                growth(f, together) - growth(f, n)
            ) * y
            more = np.where(joined, up(grown), 0)
            count = np.where(joined, together, m + n)
        return cls.made(
            value,
            cls.linear(value.plain_shape, [(ONE, a), (ONE, b)]),
            more=more,
            relative=cls.rounded_once(),
            same=zero,
            terms=np.where((a.terms > 0) | (b.terms > 0), x + y, 0),
            count=count,
        )

    @classmethod
    @sharply
    def _negative(cls, a: Self) -> Self:
        """−x, with the errors of x negated."""
        *bounds, near, off = a.planes[5:]
        plane = cls.write_plane(-a.value)
        rows = negated(a.rows)
        # Copies, so that later names of errors do not reach the operand.
        error_planes = (p.copy() for p in bounds)
        middle = np.asarray(-near)
        return cls(plane, *rows, *error_planes, middle, off.copy())

    def as_input(self) -> Self:
        """Return these numbers stored in the input's format: rounded once more if the arithmetic is wider."""
        return (
            self._round_to_input_format(self)
            if self.precision.input != self.precision.score
            else self
        )

    @classmethod
    @sharply
    def _round_to_input_format(cls, a: Self) -> Self:
        """Round x to the input's format; all readers read the stored number."""
        f, e, x = cls.precision.input, a.error, a.near
        largest = up(x.size + e)
        array = rounding(largest, x.low - e, growth(f, 1), f)
        # Numbers that are exact in the format are stored as they are.
        more = np.where((e == 0) & holds(f, x), 0.0, array)
        errors = cls.linear(a.value.plain_shape, [(ONE, a)])
        return cls.made(a.value, errors, more=more, small=0)

    @classmethod
    @sharply
    def _mul(cls, a: Self, b: Self) -> Self:
        """x y, rounded once: x̂ŷ − xy = y (x̂ − x) + x (ŷ − y) + (x̂ − x)(ŷ − y). Multiplying by ±2^k is exact."""
        value = a.value * b.value
        x = a.near
        y = b.near
        e = a.error
        f = b.error
        ones = _is_one(x, e), _is_one(y, f)
        # Multiplying by 1 changes nothing, by a power of 2 only the exponent.
        one = ones[0] | ones[1]
        power = _is_power(x, e) | _is_power(y, f)
        terms = _scaled_sums_of_terms(a, b) + _scaled_sums_of_terms(b, a)
        return cls.made(
            value,
            # First order in the errors of both factors; the product of errors is added.
            cls.linear(value.plain_shape, [(y, a), (x, b)]),
            more=product(e, f) + np.where(one, 0, cls._bound_scaling_of_factors(terms)),
            relative=np.where(power, 0, cls.rounded_once()),
            same=one,
            terms=terms,
            count=np.where(ones[1], a.count, np.where(ones[0], b.count, 0)),
        )

    @classmethod
    def _bound_scaling_of_factors(cls, terms: np.ndarray) -> np.ndarray:
        """Return the error if the scale c of c Σ x_l y_l, common to a matrix, is applied to the factors, as c or √|c|.

        Then each product passes at most six more roundings: two of c = 1/√d, or twice half of these and one for √|c|,
        and two products. ``terms`` is |c| Σ|x_l y_l|.
        """
        return up(terms * growth(cls.precision.score, SCALE_ROUNDINGS))

    @classmethod
    @sharply
    def _div(cls, a: Self, b: Self) -> Self:
        """x / y, or x (1/y) with two roundings. Dividing by ±2^k is exact.

        With X = x̂ − x, Y = ŷ − y: x̂/ŷ − x/y = Z/(1 + Y/y), Z = (X − (x/y) Y)/y, so Z and |Z| t/(1 − t), t = e_y/|y|.
        The reciprocal underflows, by η, only where |ŷ| exceeds the reciprocal of the smallest normal number.
        """
        value = a.value / b.value
        e = b.error
        y = b.near
        f = cls.precision.score
        # Division may multiply by a reciprocal that is rounded itself.
        inverse = cls.invert_divisor(b, cls.find_special(cls.write_plane(value)))
        one, power = _is_one(y, e), _is_power(y, e)
        share = np.where(e == 0, 0.0, up(e / y.low))
        terms = _scaled_sums_of_terms(a, b, lambda: up(1 / np.maximum(y.low - e, 0)))
        # A large divisor has a reciprocal below the normal numbers.
        underflows = b.reach * float(f.smallest_normal) > 1
        lost = np.where(underflows, a.reach * float(f.eta), 0)
        of_a, near = cls.read_floats(inverse), cls.read_floats(value)
        by_b = times(near, of_a)
        # d(x/y) = dx/y − (x/y) dy/y.
        slopes = [(of_a, a), (Floats(-by_b.near, by_b.off), b)]
        return cls.made(
            value,
            cls.linear(value.plain_shape, slopes),
            # From 100 % on the divisor may be 0.
            times=np.where(share < 1, up(share / (1 - share)), np.inf),
            more=lost + np.where(one, 0, cls._bound_scaling_of_factors(terms)),
            # Two roundings: the reciprocal and the product.
            relative=np.where(power, 0, growth(f, 2)),
            small=2,
            same=one,
            terms=terms,
            count=np.where(one, a.count, 0),
            near=near,
        )

    @classmethod
    @sharply
    def _unary(cls, name: str, a: Self) -> Self:
        """f(x), within ε of f(x̂)."""
        value = cls.values._unary(name, a.value)
        x, y, e = a.near, cls.read_floats(value), a.error
        tangent = cls.find_slopes(name, a, value)
        rest = up(beyond_tangent(name, x, y, e))
        flat = up(steepest(name, x, e) * e)
        # Far from the tangent the mean value bound is the smaller one.
        bounded = flat < up(tangent.size * e + rest)
        near = np.where(bounded, 0, tangent.near)
        tangent = Floats(near, np.where(bounded, 0, tangent.off))
        # Functions at 0 and exact roots have no error, see A2.
        exact = (
            (e == 0)
            & (x.off == 0)
            & ((x.near == 0) | ((name == "sqrt") & holds(cls.precision.score, y)))
        )
        return cls.made(
            value,
            cls.linear(value.plain_shape, [(tangent, a)]),
            more=np.where(bounded, flat, rest),
            relative=np.where(exact, 0, 2 * cls.precision.exp_ulps * float(cls.precision.score.u)),
            near=y,
        )

    @classmethod
    @sharply
    def _maximum(cls, a: Self, b: Self) -> Self:
        """Return the larger one if that is decided; else |max(x̂, ŷ) − max(x, y)| ≤ max(e_x, e_y)."""
        value = cls.values._maximum(a.value, b.value)
        x = a.near
        y = b.near
        e = (a.error, b.error)
        gap = x.near - y.near
        unsure = up(x.off + y.off + e[0] + e[1])
        sizes = np.abs(x.near) + np.abs(y.near)
        unsure = unsure + np.where(unsure > 0, SLACK * sizes, 0)
        # Against −∞ the other operand is the maximum without doubt.
        none = cls.find_special(a.planes[0])
        other = cls.find_special(b.planes[0])
        first = np.where(none | other, other, gap >= unsure)
        second = np.where(none | other, none, -gap >= unsure)
        either: list[Any] = [*bounded(np.maximum(*e)), 0.0, 0.0, 0.0]
        planes = zip(a.planes[1:8], b.planes[1:8], either, strict=True)
        result = [np.where(first, p, np.where(second, q, r)) for p, q, r in planes]
        return cls(cls.write_plane(value), *result, *cls.read_floats(value))

    @classmethod
    @sharply
    def _max(cls, a: Self, axis: int) -> Self:
        """Return the largest number x_t if that is decided; else |max x̂_j − max x_j| ≤ max e_j over all j in doubt.

        A number is in doubt unless x_t − x_j ≥ e_t + e_j. If it is not, x̂_j ≤ x̂_t and x_j ≤ x_t, so that both maxima
        are those of t and the numbers in doubt.
        """
        value = cls.values._max(a.value, axis)
        lines = a.map(lambda p: np.moveaxis(p, axis, 0))
        x = lines.near
        e = lines.error
        # −∞ is never the largest, unless there is nothing else.
        none = cls.find_special(lines.planes[0])
        at = np.where(none, -np.inf, x.near).argmax(axis=0)[None]
        top = cls(*(np.take_along_axis(p, at, 0)[0, ...] for p in lines.planes))
        reach = up(top.near.off + x.off + top.error + e)
        sizes = np.abs(top.near.near) + np.abs(x.near)
        reach = reach + np.where(reach > 0, SLACK * sizes, 0)
        in_doubt = ~none & (top.near.near - x.near < reach)
        np.put_along_axis(in_doubt, at, False, 0)
        decided = ~in_doubt.any(axis=0)
        largest_error = np.maximum(top.error, np.where(in_doubt, e, 0.0).max(axis=0))
        either: list[Any] = [*bounded(largest_error), 0.0, 0.0, 0.0]
        planes = zip(top.planes[1:8], either, strict=True)
        result = [np.where(decided, p, q) for p, q in planes]
        return cls(cls.write_plane(value), *result, *cls.read_floats(value))

    @classmethod
    @sharply
    def _less(cls, a: Self, b: Self) -> Any:
        return cls._compare_exact_values(cls.values._less, "less than", a, b)

    @classmethod
    @sharply
    def _equal(cls, a: Self, b: Self) -> Any:
        return cls._compare_exact_values(cls.values._equal, "equal to", a, b)

    @classmethod
    def _compare_exact_values(
        cls, of: Callable[[Any, Any], object], words: str, a: Self, b: Self
    ) -> Any:
        """Return the order or equality of the exact numbers. Raises Undecided if roundings can change it."""
        cls.check_decided(words, a, b)
        return of(a.value, b.value)


def _is_one(x: Floats, e: np.ndarray) -> np.ndarray:
    """Return where a number is 1 or −1 without error."""
    exact = (e == 0) & (x.off == 0)
    return np.asarray(exact & (np.abs(x.near) == 1))


def _is_power(x: Floats, e: np.ndarray) -> np.ndarray:
    """Return where a number is ±2^k without error."""
    exact = (e == 0) & (x.off == 0)
    mantissa = np.abs(np.frexp(x.near)[0])
    return np.asarray(exact & (mantissa == 0.5))


def _scaled_sums_of_terms(
    x: ComputedNumber, c: ComputedNumber, by: Callable[[], np.ndarray] | None = None
) -> np.ndarray:
    """Return Σ|x_l y_l| after multiplication by at most ``by()`` (None: |ĉ|), if c is common to matrices; else 0."""
    # Only a factor common to whole matrices is a scale in the sense of R4.
    inner_lengths = c.plain_shape[-2:]
    if any(n != 1 for n in inner_lengths) or not x.terms.any():
        return np.zeros(())
    return product(c.reach if by is None else by(), x.terms)
