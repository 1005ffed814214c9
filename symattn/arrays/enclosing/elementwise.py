"""Elementwise operations of ``enclosure``, each with the radius that its rounding and those of its operands need.

c and r are midpoints and radii, c̃ the computed midpoint of the result. u, η, UP and TINY are those of ``bounds``; what
is written on the right of ≤ is computed, inflated and kept.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from symattn.arrays.enclosing import kernels
from symattn.arrays.enclosing.array import Common, Core, Parts
from symattn.arrays.enclosing.bounds import DOWN, SMALL, TINY, UP, U, product_error
from symattn.arrays.enclosing.kernels import computed, mended
from symattn.errors import Refused, Undecided

_REFUSED = "-inf (a masked score) may only be added to, or multiplied by what is known to be positive"


class Elementwise(Core):
    """``+ × ÷``, the larger of two, comparisons."""

    # -- sums ---------------------------------------------------------------------------------------------------------
    @classmethod
    def _add(cls, a: Self, b: Self) -> Self:
        """|x + y − c̃| ≤ u|c̃| + r_a + r_b; of few elements the rounding error is computed.

        u|c̃| bounds the error of a sum also where the product u|c̃| underflows: the error is a multiple of η, and so is
        not above the computed product. What is added to a whole row is left in common, see ``Common``.
        """
        shape = np.broadcast_shapes(a.plain_shape, b.plain_shape)
        for x, y in ((a, b), (b, a)):
            if _is_shift(y, shape) and x.plain_shape[-1] == shape[-1]:
                sum_ = computed(kernels.shifted, shape, (x.parts,), y.mid, forbidden=lambda z: z.mid == -np.inf)
                return cls(*sum_, common=Common(object(), y.rad, True))
        kernel = kernels.exact_sum if int(np.prod(shape, dtype=int)) <= SMALL else kernels.sum
        return cls(*computed(kernel, shape, (a.parts, b.parts), forbidden=_either))

    # -- products -----------------------------------------------------------------------------------------------------
    @classmethod
    def _mul(cls, a: Self, b: Self) -> Self:
        """|x y − c̃| ≤ |c_a| r_b + r_a |c_b| + r_a r_b + u|c̃|; by ±2^k only what underflows."""
        shape = np.broadcast_shapes(a.plain_shape, b.plain_shape)
        x, y = a.parts, b.parts
        if a.size == 1:
            x, y = y, x
        if _is_power(y):
            return cls(*_times_power(x, y, shape))
        kernel = kernels.exact_product if int(np.prod(shape, dtype=int)) <= SMALL else kernels.product
        return cls(*computed(kernel, shape, (x, y), forbidden=_product))

    # -- quotients ----------------------------------------------------------------------------------------------------
    @classmethod
    def _div(cls, a: Self, b: Self) -> Self:
        """|x/y − c̃| ≤ (r_a + |c_a/c_b| r_b)/l + u|c̃| for |y| ≥ l = |c_b| − r_b > 0.

        For x/y − c_a/c_b = ((x − c_a) c_b − c_a (y − c_b))/(y c_b). Where l ≤ 0 nothing is said; where y = 0 the
        quotient is undefined. What numerator and denominator have in common cancels.
        """
        shape = np.broadcast_shapes(a.plain_shape, b.plain_shape)
        cancels = a.common and b.common and a.common.source is b.common.source and not a.common.shift
        x, y = (a.raw, b.raw) if cancels else (a.parts, b.parts)
        if _is_power(y) and 2.0**-1022 <= abs(y.mid.item()) <= 2.0**1021:
            return cls._mul(cls(*x), cls.lift(1 / y.mid.item()))
        with np.errstate(all="ignore"):
            out = _quotient(x, y, shape)
        zero, open_ = (y.mid == 0) & (y.rad == 0), ~(np.abs(y.mid) > y.rad) & np.isfinite(y.mid)
        if open_.any():
            bad = Parts(np.where(open_, np.nan, 0.0), np.where(zero, 0.0, np.inf))
            out = mended(out, (x, y, bad), _quotient_masked(x, y))
        return cls(*out)

    # -- the larger one, comparisons ----------------------------------------------------------------------------------
    @classmethod
    def _maximum(cls, a: Self, b: Self) -> Self:
        """max(x, y) − c̃ for c̃ = max(c_a, c_b) is at most max(r_a − (c̃ − c_a), r_b − (c̃ − c_b)), and not below
        minus the radius of the one with c̃, which is among these."""
        shape = np.broadcast_shapes(a.plain_shape, b.plain_shape)
        return cls(*computed(kernels.larger, shape, (a.parts, b.parts), forbidden=_both))

    @classmethod
    def _less(cls, a: Self, b: Self) -> Any:
        """x < y if c_b − c_a > r_a + r_b, not if c_a − c_b ≥ r_a + r_b; differences of floats have the right sign, and
        are off by u of themselves."""
        cls._numbers(a, b, "an order")
        with np.errstate(all="ignore"):
            gap, reach = b.mid - a.mid, (a.rad + b.rad) * UP
            below, above = (a.mid == -np.inf), (b.mid == -np.inf)
            yes = np.where(above, False, below | (gap > reach))
            no = above | (~below & (-gap >= reach) & np.isfinite(reach))
        return cls._decided(yes, no, a, b, "<")

    @classmethod
    def _equal(cls, a: Self, b: Self) -> Any:
        with np.errstate(all="ignore"):
            gap, reach = np.abs(b.mid - a.mid), (a.rad + b.rad) * UP
            both = (a.mid == -np.inf) & (b.mid == -np.inf)
            one = (a.mid == -np.inf) ^ (b.mid == -np.inf)
            yes = both | ((gap == 0) & (reach == 0))
            undefined = (np.isnan(a.mid) & (a.rad == 0)) | (np.isnan(b.mid) & (b.rad == 0))
            no = undefined | (one & ~np.isnan(gap)) | (gap > reach)
        return cls._decided(yes, no, a, b, "=")

    @classmethod
    def may_reach(cls, a: Self, b: Self) -> np.ndarray:
        """Where x ≥ y is possible; True where that is not decided."""
        with np.errstate(all="ignore"):
            return np.asarray(~(b.mid - a.mid > (a.rad + b.rad) * UP))

    @classmethod
    def _numbers(cls, a: Self, b: Self, what: str) -> None:
        for x in (a, b):
            if np.isnan(x.mid).any():
                raise Undecided(f"{cls.name}: {what} with undefined (0/0)")

    @classmethod
    def _decided(cls, yes: Any, no: Any, a: Self, b: Self, sign: str) -> Any:
        yes, no = np.asarray(yes), np.asarray(no)
        if not (yes | no).all():
            at = tuple(int(i) for i in np.argwhere(~(yes | no))[0])
            x, y = (
                f"{np.broadcast_to(z.mid, yes.shape)[at]} ± {np.broadcast_to(z.rad, yes.shape)[at]:.2g}" for z in (a, b)
            )
            raise Undecided(f"{cls.name}: is {x} {sign} {y}?")
        return yes

    @classmethod
    def _undefined(cls, a: Self) -> Any:
        """Where elements are undefined. Raises Undecided where that is open."""
        none = np.isnan(a.mid)
        if none.any() and (none & (a.rad > 0)).any():
            raise Undecided(f"{cls.name}: is a quotient whose divisor may be zero undefined?")
        return none


def _is_shift(y: Core, shape: tuple[int, ...]) -> bool:
    row = y.ndim == len(shape) > 0 and y.plain_shape[-1] == 1 < shape[-1]
    return bool(row and y.rad.any() and np.isfinite(y.rad).all() and np.isfinite(y.mid).all())


def _is_power(y: Parts) -> bool:
    """Whether it is one number, ±2^k."""
    return bool(y.mid.size == 1 and y.rad.item() == 0 and abs(np.frexp(y.mid.item())[0]) == 0.5)


def _times_power(x: Parts, y: Parts, shape: tuple[int, ...]) -> Parts:
    """x·2^k: exact but for what is subnormal; ±1 changes nothing."""
    by = y.mid.item()
    least = 0.0 if abs(by) == 1 else TINY
    kernel = kernels.times_power if x.finite and abs(by) <= 1 else kernels.times_power_anywhere
    out = computed(kernel, shape, (x,), by, abs(by), least, forbidden=lambda z: _product(z, y))
    if least and not x.rad.any():
        out.rad[(np.abs(out.mid) >= 2.0**-1000) | (np.broadcast_to(x.mid, shape) == 0)] = 0.0
    return out


def _either(x: Parts, y: Parts) -> Any:
    return (x.mid == -np.inf) | (y.mid == -np.inf)


def _both(x: Parts, y: Parts) -> Any:
    return (x.mid == -np.inf) & (y.mid == -np.inf)


def _product(x: Parts, y: Parts) -> Any:
    """Where a product is −∞. Raises Refused where −∞ meets what may not be positive."""
    return _scaled(x, y) | _scaled(y, x)


def _scaled(x: Parts, by: Parts) -> Any:
    found = x.mid == -np.inf
    if (found & ~(by.mid > by.rad) & ~np.isnan(by.mid)).any():
        raise Refused(_REFUSED)
    return found


def _quotient_masked(x: Parts, y: Parts) -> Any:
    if np.any(y.mid == -np.inf):
        raise Refused(_REFUSED)
    return _scaled(x, y)


def _quotient(x: Parts, y: Parts, shape: tuple[int, ...]) -> Parts:
    """c̃ = fl(c_a/c_b), |c_a/c_b| ≤ |c̃|(1 + 2u) + η, so that with ρ = r_b/l the radius is at most
    r_a/l + |c̃|(ρ + u)(1 + 2u) + η(1 + ρ), whose last part is added as TINY(1 + ρ)."""
    low = (np.abs(y.mid) - y.rad) * DOWN
    inverse = UP / low
    share = y.rad * inverse * UP
    more = inverse * UP, (share + U) * UP * UP, TINY * (1 + share)
    out = computed(kernels.divided, shape, (x, y), *more, forbidden=_quotient_masked)
    if out.mid.size <= SMALL:
        exact = (x.rad == 0) & (y.rad == 0) & (out.mid * y.mid == x.mid)
        exact = exact & (product_error(out.mid, y.mid, out.mid * y.mid) == 0)
        zero = (x.mid == 0) & (x.rad == 0) & (low > 0) & np.isfinite(y.rad)
        out.rad[np.broadcast_to(exact | zero, shape)] = 0.0
    return out
