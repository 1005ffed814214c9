"""Functions of ``enclosure``: exp, √ and tanh at the speed of NumPy, the others element by element by Arb.

NumPy's own exp, tanh, log, … are not used: their errors are not guaranteed. √ is rounded correctly (IEEE 754).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

import flint
import numpy as np

from symattn.arrays.enclosing.array import Common, Core, _split_ball_into_floats
from symattn.arrays.enclosing.bounds import DOWN, SMALL, TINY, UP, U, product_error
from symattn.arrays.enclosing.exponential import EPSILON, MOST_MODERATE, exp_moderate
from symattn.arrays.enclosing.work import Parts, computed, masked
from symattn.arrays.functions import FUNCTIONS
from symattn.document.errors import Refused

_LOW, _HIGH = -MOST_MODERATE, MOST_MODERATE  # the range of ``exp_moderate``
_LEAST = 2.0**-1009  # more than e^−700
# 1/(k+1)!, the coefficients of (e^z − 1)/z.
_SHARES = [1 / math.factorial(k + 1) for k in range(14)]
_WIDE = 0.5  # for larger radii the result is computed from the ends of the interval


class EnclosedFunctions(Core):
    """``_unary``."""

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        if name == "exp":
            return cls._enclose_exponential(a)
        if name not in FUNCTIONS:
            raise Refused(f"{cls.name} lacks {name}")
        # Only exp takes −∞.
        if np.any(masked(a.raw)):
            raise Refused(f"{cls.name}: {name}(-inf)")
        if name in ("sqrt", "tanh"):
            parts = a.parts
            tanh = name == "tanh"
            return cls.made(
                computed(_tanh_block, parts.mid.shape, (parts,))
                if tanh
                else _enclose_square_root(cls.name, parts)
            )
        return cls.made(_by_arb(cls.name, name, a.parts))

    @classmethod
    def _enclose_exponential(cls, a: Self) -> Self:
        """Return e^x; for x = y + t with a common shift t, return e^y with the common factor e^t."""
        shift = a.common if a.common is not None and a.common.shift else None
        x = a.source if a.common is None or shift is not None else a.parts
        common = Common(shift.source, shift.reach, False) if shift is not None else None
        result = cls.made(computed(_exp_block, a.plain_shape, (x,)), common)
        # This decides later comparisons of row sums with 0.
        result.positive = True
        return result


# -- exp --------------------------------------------------------------------------------------------------------------
def _exp_block(c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray) -> None:
    """With v = e^c (1 + δ), |δ| ≤ ε, and r ≤ ½: |e^x − v| ≤ v (e^r − 1 + ε)/(1 − ε), and e^r − 1 ≤ r + ¾ r².

    For e^x − e^c is at most e^c (e^r − 1) in size, and e^r − 1 = r + r²/2 + r³/6 + … ≤ r + (e − 2) r² for r ≤ 1.
    e^−∞ = 0. Outside of [−700, 700], and for wide intervals, see ``_enclose_exp_by_ends``.
    """
    np.copyto(c, a)
    low, widest = (a.min(), ra.max()) if a.size else (0.0, 0.0)
    inside = low >= _LOW and (not a.size or a.max() <= _HIGH)
    _to_powers_of_e(c) if not inside else exp_moderate(c)
    # Small radii share one factor, which saves a pass over the array.
    if widest <= 2.0**-10:
        np.multiply(ra, (1 + 0.75 * widest) * UP, out=r)
    else:
        np.multiply(ra, 0.75 * UP, out=r)
        r += UP
        r *= ra
    r += EPSILON * UP
    r *= c
    if not low >= -600:  # the product may underflow
        r += TINY
    if not inside:
        # Forbidden scores weigh exactly nothing.
        forbidden = a == -np.inf
        c[forbidden], r[forbidden] = 0.0, 0.0
    if not (inside and widest <= _WIDE):
        # The bound e^r − 1 ≤ r + ¾ r² needs small radii, and the kernel the range.
        narrow = (ra <= _WIDE) & (a >= _LOW) & (a <= _HIGH)
        odd = ~narrow & (a != -np.inf)
        c[odd], r[odd] = _enclose_exp_by_ends(a[odd], ra[odd])


def _to_powers_of_e(y: np.ndarray) -> np.ndarray:
    """Overwrite y with e^y within ε e^y; outside [−700, 700] with that of the nearer end, NaN with any number."""
    np.fmax(y, _LOW, out=y)
    np.minimum(y, _HIGH, out=y)
    return exp_moderate(y)


def _enclose_exp_by_ends(c: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """e^x from the ends, [e^low, e^high]: e^low ≥ 0, e^high < 2⁻¹⁰⁰⁹ for high ≤ −700, not bounded for high > 700."""
    high, low = c + r, c - r
    # The ends are widened by their own rounding.
    high = high + np.abs(high) * 2 * U
    low = low - np.abs(low) * 2 * U
    tops = _to_powers_of_e(high.copy())
    bottoms = _to_powers_of_e(low.copy())
    finite_tops = np.where(high <= _HIGH, tops * UP, np.inf)
    above = np.where(high <= _LOW, _LEAST, finite_tops)
    below = np.where(low < _LOW, 0.0, bottoms * DOWN)
    mid = np.where(np.isfinite(above), above / 2 + below / 2, 0.0)
    farther = np.maximum(above - mid, mid - below)
    outer = farther * UP + TINY
    rad = np.where(np.isfinite(above), outer, np.inf)
    none = np.isnan(c)
    # Undefined and open elements keep their radius, which tells them apart.
    return np.where(none, np.nan, mid), np.where(none, r, rad)


# -- square roots -----------------------------------------------------------------------------------------------------
def _enclose_square_root(kind: str, a: Parts) -> Parts:
    """|√x − √c| = |x − c|/(√x + √c) ≤ r/(√l + √c) for x ≥ l = c − r ≥ 0; the computed root is off by u √c.

    If l < 0 ≤ c + r, the root is open. Raises Refused for numbers below 0.
    """
    # The whole interval lies below 0.
    if (a.mid + a.rad < 0).any():
        at = float(a.mid[a.mid + a.rad < 0].flat[0])
        raise Refused(f"{kind}: sqrt of the negative number {at}")
    with np.errstate(all="ignore"):
        c = np.maximum(a.mid, 0.0)
        root = np.sqrt(c)
        low = np.maximum(c - a.rad, 0.0) * DOWN
        sum_of_roots = np.sqrt(low) + root
        of_radius = np.where(a.rad == 0, 0.0, a.rad / sum_of_roots)
        rad = of_radius * UP + root * (U * UP) + TINY
        # Roots of squares stay exact, such as √d_k.
        if root.size <= SMALL:
            lost = product_error(root, root, root * root)
            exact = (a.rad == 0) & (root * root == c) & (lost == 0)
            rad = np.where(exact, 0.0, rad)
        # An interval that reaches below 0 may have no root.
        open_ = a.rad > a.mid
        unknown = open_ | ~np.isfinite(rad)
        open_rad = np.where(unknown, np.inf, rad)
        rad = np.where(np.isnan(a.mid), a.rad, open_rad)
    mid = np.where(open_, np.nan, root + 0 * a.mid)
    return Parts(np.asarray(mid), np.asarray(rad))


# -- tanh -------------------------------------------------------------------------------------------------------------
def _tanh_block(c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray) -> None:
    """tanh x, off by r·max sech² + 8u|t| for the computed t = tanh c (``_tanh_of``).

    The slope sech² = 1 − tanh² changes by the factor e^{2r} at most within r, since (log sech²)' = −2 tanh, and
    e^{2r} ≤ 1 + 2r + 3r² for r ≤ ½; it is at most 1. Since |tanh| < 1, intervals that reach further become [−1, 1].
    """
    t = _tanh_of(np.abs(a))
    np.copysign(t, a, out=c)
    slope = 1 - t
    slope *= 1 + t
    # Covers the error of t, at most 8 u, and the roundings of 1 − t².
    slope += 32 * U
    widest = ra.max() if ra.size else 0.0
    growth = 1 + 2 * widest + 3 * widest * widest if widest <= _WIDE else np.inf
    slope *= growth
    np.minimum(slope, 1.0, out=slope)
    np.multiply(slope, ra, out=r)
    t *= 8 * U
    r += t
    r *= UP
    # As tanh 0 = 0, exact zeros stay exact.
    r += TINY if widest else np.where(a == 0, 0.0, TINY)
    # Otherwise no interval reaches beyond ±1 by more than rounding.
    if widest > 2.0**-20 or np.isnan(a.max(initial=0)):
        cut = np.abs(c) + r > 1
        c[cut], r[cut] = 0.0, 1.0
        none = np.isnan(a)
        c[none], r[none] = np.nan, ra[none]


def _tanh_of(x: np.ndarray) -> np.ndarray:
    """tanh x for x ≥ 0, with a relative error of at most 8u (and η).

    x ≥ ¼: (1 − E)/(1 + E) with E = e^{−2x}(1 + δ), |δ| ≤ ε = 2.4u, is off by three roundings, and by
    ε E (1/(1 − E) + 1/(1 + E)) = 2εE/(1 − E²) < 1.93 ε, as E is at most e^{−½}: by 7.7u. (Above x = 350, E < e^{−700}.)
    x < ¼: e/(2 + e) for e = e^z − 1, z = 2x < ½, which is z p_0 with p_k = 1/(k+1)! + z p_{k+1} up to k = 13. The
    remainder is below 1.1 z^14/15! < ½u, relative to e. z p_{k+1} is less than 0.23 of p_k, so that if p_{k+1} is off
    by 3u then p_k by the rounding u of the sum, by u of its first term, and by 0.23 (3u + u): less than 3u. So e is off
    by less than 4½u with the last product and the remainder, and e/(2 + e) in relative terms by no more than e and two
    roundings: 6½u.
    """
    # Below ¼ the quotient of 1 ∓ E would cancel.
    near = x < 0.25
    out = np.empty_like(x)
    if not near.all():
        big = _to_powers_of_e(-2 * x)
        np.divide(1 - big, 1 + big, out=out)
    if near.any():
        z = np.where(near, 2 * x, 0.0)
        p = np.full_like(z, _SHARES[-1])
        for share in _SHARES[-2::-1]:
            p *= z
            p += share
        p *= z
        np.copyto(out, p / (2 + p), where=near)
    return out


# -- the others -------------------------------------------------------------------------------------------------------
def _by_arb(kind: str, name: str, a: Parts) -> Parts:
    """Compute by Arb, element by element, in a few microseconds each."""
    of_ball: Callable[[flint.arb], flint.arb] = getattr(flint.arb, name)

    def result(c: float, r: float) -> tuple[float, float]:
        if c != c:
            return c, r
        x = flint.arb(c, r)
        # An interval that reaches 0 may have no logarithm: it is open.
        if name == "log" and not x > 0:
            if x < 0:
                raise Refused(f"{kind}: log of the negative number {c}")
            return math.nan, math.inf
        # The functions left to Arb, but log, lie between −1 and 1.
        if r == math.inf:
            return 0.0, 1.0
        return _split_ball_into_floats(of_ball(x))

    # More bits than float64 has, so that Arb's own error is far below an ulp.
    with flint.ctx.workprec(96):
        middles = a.mid.reshape(-1).tolist()
        pairs = list(map(result, middles, a.rad.reshape(-1).tolist()))
    columns = np.array(pairs).reshape(-1, 2).T
    mid, rad = columns.reshape(2, *a.mid.shape)
    return Parts(mid, rad)
