"""Sums Σ_j s_j |v_j| and Σ_j s_j |v_j − o| for many rows at once, rounded up: products of matrices, with s ≥ 0.

f(o) = Σ s|v − o| is convex in o, so between two places its values are below the chord. Where the outputs of a column
lie close together, f is computed at the least and the largest of them, and at c, the number between that is next to 0.
Fewer than 8 roundings make the chord f(c) + (f(b) − f(c))(o − c)/(b − c) of these values. They add a part of f, and at
most 8 w |o − c| Σ s, as f changes at most Σ s times as much as o, and |o − c| ≤ |o|: for that there is room in what is
added for |o − ô|, 2 (n + 20) w X, of which o takes half. Where outputs are far apart, as for weights that favour one
key, the chords are too, and f² ≤ Σ s · Q, Q = Σ s (v − o)², by Cauchy and Schwarz: with v' = v − a and o' = o − a for a
number a of the column, Q = Σ s v'² − 2 o' Σ s v' + o'² Σ s, to which, for roundings, 8 (n + 20) w (Σ s v'² + o'² Σ s)
is added, since 2 |o' Σ s v'| is at most that sum.

Assumed of BLAS: products of matrices are sums of products in any order, fused or not, in the type of the factors (not
Strassen's, and no factors cut short). w is the roundoff of the type that s has. A sum of n products of it is off by a
part of at most 2 (n + 4) w, factors that were rounded to it among them, and by 2²⁶ times the least normal number
times n max|v| for what underflows; ``up`` is the part that s itself may lack.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from symattn.arrays.enclosing.bounds import U
from symattn.arrays.enclosing.exponential import Floats


class ValueColumns:
    """The values of all keys, (…, n, d_v) in float64, including a sink's row of zeros, and results for them.

    ``kind`` is the type of the weights that multiply them. Values that are projections pass ``terms`` roundings and are
    off by at most ``radii``; ``monomials`` are the sums of the sizes of their monomials.

    n         number of keys
    roundoff  w
    sizes     |v|
    summed    |v|_j, the sums of the sizes of the values' monomials
    exact     v, rounded to ``kind``
    ends      the least and the largest value of each column, (…, 1, d_v)
    largest   max |v|_j of each column, (…, 1, d_v)
    total     Σ |v|_j of each column, (…, 1, d_v)
    """

    def __init__(
        self,
        v: Floats,
        kind: np.dtype[Any],
        terms: int = 0,
        radii: Floats | None = None,
        monomials: Floats | None = None,
    ) -> None:
        self.v = v
        self.kind = kind
        self.terms = terms
        self.radii = radii
        self.n = int(v.shape[-2])
        self.roundoff = float(np.finfo(kind).eps) / 2
        self.exact = v.astype(kind)
        of_values = np.abs(v)
        # A projected value may be larger by its radius; the factor covers the sum's rounding.
        self.sizes = (of_values + (0 if radii is None else radii * (1 + 4 * U))).astype(kind)
        self.summed = self.sizes if monomials is None else monomials.astype(kind)
        radius = None if radii is None else radii + 4 * U * self.sizes
        least = (v if radius is None else v - radius).min(axis=-2, keepdims=True)
        most = (v if radius is None else v + radius).max(axis=-2, keepdims=True)
        self.ends = least, most
        self.largest: Floats = (
            np.maximum(most, -least) if monomials is None else monomials.max(axis=-2, keepdims=True)
        )
        terms_of_total = of_values if monomials is None else monomials
        self.total = np.asarray(np.ones((1, self.n)) @ terms_of_total)
        # The part of sums of products that may underflow, (…, 1, 1): the least normal number times 2²⁶ for each term.
        least_number = 2.0**26 * float(np.finfo(kind).tiny) * self.n
        largest = self.largest.max(axis=-1, keepdims=True)
        self.underflow = np.asarray(least_number * largest).astype(kind)

    @cached_property
    def centre(self) -> Floats:
        """The mean of each column, (…, 1, d_v)."""
        return np.asarray(self.v.mean(axis=-2, keepdims=True))

    @cached_property
    def typical(self) -> Floats:
        """The mean distance from the centre, summed over the columns, (…, 1, 1)."""
        total = np.abs(self.v - self.centre).sum(axis=(-2, -1), keepdims=True)
        return np.asarray(total / self.n)

    def enlarged(self, product: np.ndarray, up: Floats, scale: Any = 1.0) -> Floats:
        """Return at least ``scale`` s @ values in float64, from that product as computed, which is overwritten."""
        product += self.underflow
        rounded_up = 1 + 2 * (self.n + 4) * self.roundoff + up
        return np.asarray(product * (rounded_up * scale))

    def unknown(self, s: np.ndarray, radii: Floats, up: Floats, scale: Floats) -> Floats:
        """Return at least ``scale`` Σ_j s_j ρ_j, the error of sums of enclosed values."""
        return self.enlarged(s @ radii.astype(self.kind), up, scale)

    def sums(self, s: np.ndarray, up: Floats) -> Floats:
        """Return at least Σ_j s_j for each row, (…, rows, 1)."""
        ones = np.ones((self.n, 1), self.kind)
        rounded_up = 1 + 2 * (self.n + 4) * self.roundoff + up
        return np.asarray((s @ ones) * rounded_up)

    def distances(
        self,
        s: np.ndarray,
        places: tuple[Floats, Floats],
        at_zero: np.ndarray | None,
        up: Floats,
        scale: Floats,
    ) -> Floats:
        """Return at least ``scale`` Σ_j s_j |v_j − o| for all o within ``off`` of ``places`` (o, off), for each row;
        ``at_zero``: Σ s|v| as computed, if known."""
        (o, off), total = places, self.sums(s, up)
        low, high = o.min(axis=-2, keepdims=True), o.max(axis=-2, keepdims=True)
        # Outputs near each other: chords between the ends are sharp.
        close = (high - low).sum(axis=-1, keepdims=True) <= 2 * self.typical
        result = (
            self.enlarged(self._chords_of_distance_sums(s, o, at_zero, low, high), up, scale)
            if close.any()
            else np.zeros_like(o)
        )
        if not close.all():
            by_squares = self._bound_by_mean_squares(s, o, total, up)
            result = np.where(close, result, by_squares * scale)
        # f changes at most Σ s times as much as o.
        result += off * (total * scale)
        if self.radii is not None:
            result = result + self.unknown(s, self.radii, up, scale)
        return np.asarray(result)

    def _chords_of_distance_sums(
        self, s: np.ndarray, o: Floats, at_zero: np.ndarray | None, *ends: Floats
    ) -> np.ndarray:
        """Return the chords of f as computed in ``kind``, between its values at three places of each column."""
        # c of the docstring: the number between the ends that is next to 0.
        middle = np.minimum(np.maximum(ends[0], 0.0), ends[1])
        d = o.shape[-1]
        # At 0 the sum Σ s|v| may be known already, which saves a third of the product.
        places = ends if at_zero is not None and not middle.any() else (*ends, middle)
        sides = np.concatenate(
            [self.v - place for place in places], axis=-1, dtype=self.kind, casting="same_kind"
        )
        values = s @ np.abs(sides, out=sides)
        first = values[..., 2 * d :] if len(places) > 2 else at_zero
        result, off = np.array(first), o - middle
        for k, width in enumerate(end - middle for end in ends):
            # An end that coincides with c: a nonzero width of the right sign avoids 0/0.
            width[width == 0] = 2 * k - 1.0  # then no o lies on this side
            slope = values[..., k * d : k * d + d] - first
            # On the other side of c the chord of this side has no part.
            slope *= np.maximum((off / width).astype(self.kind), 0)
            result += slope
        return result

    def _bound_by_mean_squares(self, s: np.ndarray, o: Floats, total: Floats, up: Floats) -> Floats:
        centred, near = self.v - self.centre, o - self.centre
        # Squares in units of the largest distance, so that none leaves the range of ``kind``.
        unit = np.abs(centred).max(axis=-2, keepdims=True)
        unit[unit == 0] = 1.0
        share = centred / unit
        squares = (share * share).astype(self.kind)
        weighed_squares = self.enlarged(s @ squares, up)
        positive = weighed_squares * unit * unit + near * near * total
        near *= s @ centred.astype(self.kind)
        # Q, with the room for roundings of the docstring; Q may come out negative.
        q = (
            np.maximum(positive - 2 * near, 0)
            + (8 * (self.n + 20) * self.roundoff + 2 * up) * positive
        )
        return np.asarray(np.sqrt(q * total))
