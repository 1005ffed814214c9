"""Sums Σ_j s_j |v_j| and Σ_j s_j |v_j − o| for many rows at once, rounded up: products of matrices, with s ≥ 0.

f(o) = Σ s|v − o| is convex in o, so between two places its values are below the chord. Where the outputs of a column
lie close together, f is computed at the least and the largest of them, and at 0 if that is between. Where they are
far apart, as for weights that favour one key, the chords are too, and f² ≤ Σ s · Q, Q = Σ s (v − o)², by Cauchy and
Schwarz: with v' = v − c and o' = o − c for a number c of the column, Q = Σ s v'² − 2 o' Σ s v' + o'² Σ s, to which,
for roundings, 8 (n + 20) w (Σ s v'² + o'² Σ s) is added, since 2 |o' Σ s v'| is at most that sum.

Assumed of BLAS: products of matrices are sums of products in any order, fused or not, in the type of the factors (not
Strassen's, and no factors cut short). w is the roundoff of the type that s has. A sum of n products of it is off by a
part of at most 2 (n + 4) w, factors that were rounded to it among them, and by 2²⁶ times the least normal number
times n max|v| for what underflows; ``up`` is the part that s itself may lack.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.enclosing.bounds import U
from symattn.arrays.enclosing.exponential import Floats


@dataclass(frozen=True)
class ValueColumns:
    """The values of all keys, (…, n, d_v) in float64, including a sink's row of zeros, and cached results for them.

    ``kind`` is the type of the weights that multiply them. Values that are projections pass ``terms`` roundings and are
    off by at most ``radii``; ``monomials`` are the sums of the sizes of their monomials.
    """

    v: Floats
    kind: np.dtype[Any]
    terms: int = 0
    radii: Floats | None = None
    monomials: Floats | None = None

    @cached_property
    def sizes(self) -> np.ndarray:
        """|v|."""
        return (np.abs(self.v) + (0 if self.radii is None else self.radii * (1 + 4 * U))).astype(self.kind)

    @cached_property
    def summed(self) -> np.ndarray:
        """|v|_j, the sums of the sizes of the values' monomials."""
        return self.sizes if self.monomials is None else self.monomials.astype(self.kind)

    @cached_property
    def exact(self) -> np.ndarray:
        """v, rounded to ``kind``."""
        return self.v.astype(self.kind)

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """The least and the largest value of each column, (…, 1, d_v)."""
        if self.radii is None:
            return self.v.min(axis=-2, keepdims=True), self.v.max(axis=-2, keepdims=True)
        radius = self.radii + 4 * U * self.sizes
        return (self.v - radius).min(axis=-2, keepdims=True), (self.v + radius).max(axis=-2, keepdims=True)

    @cached_property
    def largest(self) -> Floats:
        """max |v|_j of each column, (…, 1, d_v)."""
        return np.asarray((np.abs(self.v) if self.monomials is None else self.monomials).max(axis=-2, keepdims=True))

    @cached_property
    def total(self) -> Floats:
        """Σ |v|_j of each column, (…, 1, d_v)."""
        return np.asarray((np.abs(self.v) if self.monomials is None else self.monomials).sum(axis=-2, keepdims=True))

    @cached_property
    def centre(self) -> Floats:
        """The mean of each column, (…, 1, d_v)."""
        return np.asarray(self.v.mean(axis=-2, keepdims=True))

    @cached_property
    def typical(self) -> Floats:
        """The mean distance from the centre, summed over the columns, (…, 1, 1)."""
        return np.asarray(np.abs(self.v - self.centre).mean(axis=-2, keepdims=True).sum(axis=-1, keepdims=True))

    @property
    def n(self) -> int:
        """The number of keys."""
        return int(self.v.shape[-2])

    @property
    def roundoff(self) -> float:
        """w."""
        return float(np.finfo(self.kind).eps) / 2

    def weighed(self, s: np.ndarray, values: np.ndarray, up: Floats) -> Floats:
        """Return at least s @ values, for nonnegative values of ``kind``, in float64."""
        result: Floats = (s @ values).astype(np.float64)
        result *= 1 + 2 * (self.n + 4) * self.roundoff + up
        result += 2.0**26 * float(np.finfo(self.kind).tiny) * self.n * self.largest.max(axis=-1, keepdims=True)
        return result

    def unknown(self, s: np.ndarray, up: Floats) -> Any:
        """Return at least Σ_j s_j ρ_j, the error of sums of enclosed values; 0 if values are inputs."""
        return 0.0 if self.radii is None else self.weighed(s, self.radii.astype(self.kind), up)

    def sums(self, s: np.ndarray, up: Floats) -> Floats:
        """Return at least Σ_j s_j for each row, (…, rows, 1)."""
        result = s.sum(axis=-1, keepdims=True).astype(np.float64)
        return np.asarray(result * (1 + 2 * (self.n + 4) * self.roundoff + up))


class Around(NamedTuple):
    """The values, seen from the outputs o (…, rows, d_v) of some rows."""

    values: ValueColumns
    o: Floats

    def distances(self, s: np.ndarray, total: Floats, at_zero: Floats | None, up: Floats) -> Floats:
        """Return at least Σ_j s_j |v_j − o| for each row and column; ``total``: Σ s; ``at_zero``: Σ s|v|, if known."""
        low, high = self.o.min(axis=-2, keepdims=True), self.o.max(axis=-2, keepdims=True)
        close = (high - low).sum(axis=-1, keepdims=True) <= 2 * self.values.typical
        chords = self._chords(s, low, high, at_zero, up) if close.any() else 0.0
        return np.asarray(chords if close.all() else np.where(close, chords, self._squares(s, total, up)))

    def _chords(self, s: np.ndarray, low: Floats, high: Floats, at_zero: Floats | None, up: Floats) -> Floats:
        v, o = self.values, self.o
        sides = np.concatenate([np.abs(v.v - low), np.abs(v.v - high)], axis=-1).astype(v.kind)
        values, d = v.weighed(s, sides, up), v.v.shape[-1]
        middle = v.weighed(s, v.sizes, up) if at_zero is None else at_zero
        between = (low < 0) & (high > 0)
        above, below = between & (o > 0), between & (o <= 0)
        left, right = np.where(above, 0.0, low), np.where(below, 0.0, high)
        first, last = np.where(above, middle, values[..., :d]), np.where(below, middle, values[..., d:])
        width = right - left
        width[width == 0] = 1.0  # then o is at the left
        share = (o - left) / width
        return np.asarray(first * (1 - share) + last * share + 8 * U * (first + last))

    def _squares(self, s: np.ndarray, total: Floats, up: Floats) -> Floats:
        v, n = self.values, self.values.n
        centred = v.v - v.centre
        squares = v.weighed(s, (centred * centred).astype(v.kind), up)
        near = self.o - v.centre
        first = (s @ centred.astype(v.kind)).astype(np.float64)
        positive = squares + near * near * total
        q = np.maximum(positive - 2 * near * first, 0) + (8 * (n + 20) * v.roundoff + 2 * up) * positive
        return np.asarray(np.sqrt(q * total))
