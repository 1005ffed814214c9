"""Elementwise operations of ``enclosure``, each with a radius that covers its rounding and the radii of its operands.

c and r are midpoints and radii, c̃ the computed midpoint of the result. u, η, UP and TINY are those of ``bounds``; the
right side of each ≤ is computed, inflated and stored.
"""

from __future__ import annotations

from math import prod
from typing import Any, Self

import numpy as np

from symattn.arrays.enclosing import work
from symattn.arrays.enclosing.array import Common, Core
from symattn.arrays.enclosing.bounds import DOWN, SMALL, TINY, UP, U, product_error
from symattn.arrays.enclosing.work import EnclosedWork, Parts, computed, masked, mended
from symattn.document.errors import Refused, Undecided

LATER = 1 << 15  # cheap work on arrays of at least this many elements is delayed until it is read
FEW = 16  # an array must have this many times the elements of its divisor for the division to be delayed
# The words for all products and quotients with −∞ whose sign is not known.
_REFUSED = (
    "-inf (a masked score) may only be added to, or multiplied by what is known to be positive"
)


class EnclosedElementwise(Core):
    """``+ × ÷``, the larger of two, comparisons."""

    # -- sums ---------------------------------------------------------------------------------------------------------
    @classmethod
    def _add(cls, a: Self, b: Self) -> Self:
        """|x + y − c̃| ≤ u|c̃| + r_a + r_b; for few elements the rounding error is computed.

        u|c̃| bounds the error of a sum even if the product u|c̃| underflows: the error is a multiple of η, and so is
        not above the computed product. A number added to a whole row becomes its common unknown, see ``Common``.
        """
        shape = np.broadcast_shapes(a.plain_shape, b.plain_shape)
        for x, y in ((a, b), (b, a)):
            # One number for each row, added to rows of several elements.
            same_rank = y.ndim == len(shape) > 0
            row = same_rank and y.plain_shape[-1] == 1 < shape[-1]
            # Exact numbers need no common unknown: adding them loses nothing.
            finite = np.isfinite(y.rad).all() and np.isfinite(y.mid).all()
            shift = row and y.rad.any() and finite
            if shift and x.plain_shape[-1] == shape[-1]:
                # A new object as source, so that only arrays from this addition share the unknown.
                common = Common(object(), y.rad.copy(), True)
                return cls._delay_enclosed_work(
                    work.shifted, shape, x, y.mid.copy(), forbidden=masked, common=common
                )
        kernel = work.exact_sum if prod(shape) <= SMALL else work.rounded_sum
        either = lambda x, y: (x.mid == -np.inf) | (y.mid == -np.inf)  # noqa: E731
        return cls.made(computed(kernel, shape, (a.parts, b.parts), forbidden=either))

    # -- products -----------------------------------------------------------------------------------------------------
    @classmethod
    def _mul(cls, a: Self, b: Self) -> Self:
        """|x y − c̃| ≤ |c_a| r_b + r_a |c_b| + r_a r_b + u|c̃|; multiplication by ±2^k only errs if it underflows."""
        shape = np.broadcast_shapes(a.plain_shape, b.plain_shape)
        # The single number comes second, so that one test serves both orders.
        x, y = (b, a) if a.size == 1 else (a, b)
        # Powers of two are common scales, and cost neither accuracy nor a radius.
        if y.size == 1 and _is_power(y.parts):
            return cls._times_power(x, y, shape)
        kernel = work.exact_product if prod(shape) <= SMALL else work.rounded_product
        return cls.made(
            computed(kernel, shape, (x.parts, y.parts), forbidden=_find_masked_products)
        )

    @classmethod
    def _negative(cls, a: Self) -> Self:
        if np.any(masked(a.raw)):
            raise Refused(_REFUSED)
        return cls.made(Parts(-a.mid, a.rad.copy(), a.raw.finite))

    @classmethod
    def _times_power(cls, x: Self, y: Self, shape: tuple[int, ...]) -> Self:
        """x·2^k: exact except for subnormal results, and always for ±1."""
        by, own = y.mid.item(), y.parts
        # Multiplying by ±1 cannot underflow.
        least = 0.0 if abs(by) == 1 else TINY
        stays_finite = isinstance(x._content, Parts) and x._content.finite and abs(by) <= 1
        kernel = work.times_power if stays_finite else work.times_power_anywhere
        out = cls._delay_enclosed_work(
            kernel, shape, x, by, abs(by), least, forbidden=lambda z: _find_masked_products(z, own)
        )
        # Only exact numbers in computed planes can stay exact.
        if not least or not isinstance(out._content, Parts) or x.rad.any():
            return out
        mid, rad, finite = out._content
        # Far above the subnormal range nothing underflows.
        large = np.abs(mid) >= 2.0**-1000
        exact = large | (np.broadcast_to(x.mid, shape) == 0)
        return cls.made(Parts(mid, np.where(exact, 0.0, rad), finite))

    @classmethod
    def _delay_enclosed_work(
        cls,
        kernel: Any,
        shape: tuple[int, ...],
        x: Self,
        *more: Any,
        forbidden: Any,
        common: Common | None = None,
    ) -> Self:
        """Return the result of cheap work, which is delayed for a large array; ``more`` are new arrays, or numbers."""
        # Work is delayed only where its operand cannot change and needs no broadcasting.
        if x.size < LATER or not x.own or x.plain_shape != shape or x.common is not None:
            return cls.made(computed(kernel, shape, (x.parts,), *more, forbidden=forbidden), common)
        return cls.made(
            EnclosedWork(kernel, shape, (x.source,), *more, forbidden=forbidden), common, of=x
        )

    # -- quotients ----------------------------------------------------------------------------------------------------
    @classmethod
    def _div(cls, a: Self, b: Self) -> Self:
        """|x/y − c̃| ≤ (r_a + |c_a/c_b| r_b)/l + u|c̃| for |y| ≥ l = |c_b| − r_b > 0.

        For x/y − c_a/c_b = ((x − c_a) c_b − c_a (y − c_b))/(y c_b). If l ≤ 0 the quotient is open; if y = 0 it is
        undefined. A factor common to numerator and denominator cancels.
        """
        shape = np.broadcast_shapes(a.plain_shape, b.plain_shape)
        cancels = a.common is not None and b.common is not None and a.common.cancels(b.common)
        y = b.raw if cancels else b.parts
        # Within this range the inverse is an exact power of two as well.
        if _is_power(y) and 2.0**-1022 <= abs(y.mid.item()) <= 2.0**1021:
            return cls._times_power(a, cls.lift(1 / y.mid.item()), shape)
        # An interval that may hold 0 leaves the quotient open; exactly 0 makes it undefined.
        zero = (y.mid == 0) & (y.rad == 0)
        open_ = ~(np.abs(y.mid) > y.rad) & np.isfinite(y.mid)
        later = a.size >= LATER and a.own and a.plain_shape == shape and y.mid.size * FEW <= a.size
        if later and (cancels or a.common is None) and not open_.any():
            # Copies, because the operand may be overwritten before the work is done.
            own = Parts(y.mid.copy(), y.rad.copy())
            return cls.made(_make_quotient_work(a.source, own, shape), of=a)
        x = a.raw if cancels else a.parts
        out = _make_quotient_work(x, y, shape).settled()
        # For few elements exact quotients are worth the test.
        if a.size <= SMALL:
            out = _sharpen_exact_quotients(out, x, y)
        if open_.any():
            mid = np.where(open_, np.nan, 0.0)
            bad = Parts(mid, np.where(zero, 0.0, np.inf))
            out = mended(out, (x, y, bad), _quotient_masked(x, y))
        return cls.made(out)

    # -- maximum, comparisons -----------------------------------------------------------------------------------------
    @classmethod
    def _maximum(cls, a: Self, b: Self) -> Self:
        """max(x, y) − c̃ for c̃ = max(c_a, c_b) is at most max(r_a − (c̃ − c_a), r_b − (c̃ − c_b)), and at least minus
        the radius of the one with midpoint c̃, which is among these."""
        shape = np.broadcast_shapes(a.plain_shape, b.plain_shape)
        both = lambda x, y: (x.mid == -np.inf) & (y.mid == -np.inf)  # noqa: E731
        return cls.made(computed(work.larger, shape, (a.parts, b.parts), forbidden=both))

    @classmethod
    def _less(cls, a: Self, b: Self) -> Any:
        """x < y if c_b − c_a > r_a + r_b, not if c_a − c_b ≥ r_a + r_b; differences of floats have the right sign, and
        are off by u of themselves."""
        # Undefined and open elements have no place in an order.
        undefined_a = np.isnan(a.mid).any()
        if undefined_a or np.isnan(b.mid).any():
            raise Undecided(f"{cls.name}: an order with undefined (0/0)")
        with np.errstate(all="ignore"):
            gap = b.mid - a.mid
            reach = (a.rad + b.rad) * UP
            below = a.mid == -np.inf
            above = b.mid == -np.inf
            yes = np.where(above, False, below | (gap > reach))
            finite = np.isfinite(reach)
            no = above | (~below & (-gap >= reach) & finite)
        return cls._check_comparison_is_decided(yes, no, a, b, "<")

    @classmethod
    def _equal(cls, a: Self, b: Self) -> Any:
        for x, y in ((a, b), (b, a)):
            # Sums of exponentials are compared with 0 in order not to divide by it.
            if x.positive and not (y.mid.any() or y.rad.any()):
                zero = (x.mid == 0) & (x.rad == 0)
                return np.array(
                    np.broadcast_to(zero, np.broadcast_shapes(x.plain_shape, y.plain_shape))
                )
        with np.errstate(all="ignore"):
            gap = np.abs(b.mid - a.mid)
            reach = (a.rad + b.rad) * UP
            both = (a.mid == -np.inf) & (b.mid == -np.inf)
            one = (a.mid == -np.inf) ^ (b.mid == -np.inf)
            # Equality is certain only between exact numbers.
            yes = both | ((gap == 0) & (reach == 0))
            # A middle that is no number stands for an undefined entry only with radius 0.
            undefined_a = np.isnan(a.mid) & (a.rad == 0)
            undefined = undefined_a | (np.isnan(b.mid) & (b.rad == 0))
            # 0/0 equals nothing, and −∞ no number.
            no = undefined | (one & ~np.isnan(gap)) | (gap > reach)
        return cls._check_comparison_is_decided(yes, no, a, b, "=")

    @classmethod
    def may_reach(cls, a: Self, b: Self) -> np.ndarray:
        """Return where x ≥ y is possible; True if that is not decided."""
        with np.errstate(all="ignore"):
            reach = (a.rad + b.rad) * UP
            return np.asarray(~(b.mid - a.mid > reach))

    @classmethod
    def _check_comparison_is_decided(
        cls, yes: object, no: object, a: Self, b: Self, sign: str
    ) -> Any:
        yes, no = np.asarray(yes), np.asarray(no)
        # Neither certain nor excluded: the intervals overlap.
        if not (yes | no).all():
            undecided = np.argwhere(~(yes | no))
            at = tuple(int(i) for i in undecided[0])
            words = []
            for z in (a, b):
                mid = np.broadcast_to(z.mid, yes.shape)[at]
                rad = np.broadcast_to(z.rad, yes.shape)[at]
                words.append(f"{mid} ± {rad:.2g}")
            x, y = words
            raise Undecided(f"{cls.name}: is {x} {sign} {y}?")
        return yes

    @classmethod
    def _undefined(cls, a: Self) -> Any:
        """Return where elements are undefined. Raises Undecided for open elements."""
        none = np.isnan(a.mid)
        if none.any() and (none & (a.rad > 0)).any():
            raise Undecided(f"{cls.name}: is a quotient whose divisor may be zero undefined?")
        return none


def _is_power(y: Parts) -> bool:
    """Return whether y is a single number ±2^k."""
    if y.mid.size != 1 or y.rad.item() != 0:
        return False
    mantissa, _ = np.frexp(y.mid.item())
    return bool(abs(mantissa) == 0.5)


def _find_masked_products(x: Parts, y: Parts) -> Any:
    """Return where a product is −∞. Raises Refused if −∞ is multiplied by a number not known to be positive."""
    return _find_masked_factors(x, y) | _find_masked_factors(y, x)


def _find_masked_factors(x: Parts, by: Parts) -> Any:
    result = x.mid == -np.inf
    not_positive = ~(by.mid > by.rad)
    if (result & not_positive & ~np.isnan(by.mid)).any():
        raise Refused(_REFUSED)
    return result


def _quotient_masked(x: Parts, y: Parts) -> Any:
    if np.any(y.mid == -np.inf):
        raise Refused(_REFUSED)
    return _find_masked_factors(x, y)


def _make_quotient_work(x: Parts | EnclosedWork, y: Parts, shape: tuple[int, ...]) -> EnclosedWork:
    """c̃ = fl(c_a/c_b), |c_a/c_b| ≤ |c̃|(1 + 2u) + η, so that with ρ = r_b/l the radius is at most
    r_a/l + |c̃|(ρ + u)(1 + 2u) + η(1 + ρ), whose last part is added as TINY(1 + ρ)."""
    with np.errstate(all="ignore"):
        low = (np.abs(y.mid) - y.rad) * DOWN
        # Whatever depends on the divisor alone is computed once for a whole row.
        inverse = UP / low
        share = y.rad * inverse * UP
        scaled_share = (share + U) * UP * UP
        more = inverse * UP, scaled_share, TINY * (1 + share)
    return EnclosedWork(work.divided, shape, (x, y), *more, forbidden=_quotient_masked)


def _sharpen_exact_quotients(out: Parts, x: Parts, y: Parts) -> Parts:
    """Set the radius to 0 where the quotient of exact numbers is exact, or its numerator 0."""
    with np.errstate(all="ignore"):
        exact_parts = (x.rad == 0) & (y.rad == 0)
        # A quotient is exact if multiplying it back gives the numerator without a rounding.
        exact = exact_parts & (out.mid * y.mid == x.mid)
        lost = product_error(out.mid, y.mid, out.mid * y.mid)
        exact = exact & (lost == 0)
        zero_above = (x.mid == 0) & (x.rad == 0)
        # 0 divided by what is certainly not 0 is 0.
        apart_from_zero = np.abs(y.mid) > y.rad
        zero = zero_above & apart_from_zero & np.isfinite(y.rad)
    return Parts(out.mid, np.where(exact | zero, 0.0, out.rad), out.finite)
