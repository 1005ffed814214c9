"""The effect of rounding on numbers with known bounds: the rules of ``rounded`` for one operation.

The arithmetic of an implementation is that of a ``Precision``:

  A1  an operation gives (its exact result)(1 + δ) + η', |δ| ≤ u, and η' = 0 unless the result is below the normal
      numbers, then |η'| ≤ η; u and η are those of ``score``, in sums of ``accumulate``. Numbers of the format are
      not changed.
  A2  a function has a relative error of at most ε = 2·exp_ulps·u, besides η'; at 0 it has none, and nor has √ if the
      root is a number of the format.
  A3  nothing overflows. If it might, the bound is +∞.

g(n) = (1 + u)^n − 1: a product of n factors 1 + δ is within g(n) of 1. Bounds are float64, each computed by far fewer
than 2^12 operations and then enlarged by ``UP`` = 1 + 2^−40 and by ``TINY``, which exceed float64's own rounding and
underflow.
Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms (2002), §2.2, §3.1 and §3.3 (running errors).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import inf, isfinite
from operator import attrgetter
from typing import Any, NamedTuple

import flint
import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.special import Forbidden, Undefined

UP = 1 + 2.0**-40
TINY = 1e-300


def up(x: Any) -> np.ndarray:
    """Return upper bounds of numbers x ≥ 0 computed in float64; zeros stay. The caller silences overflow."""
    return np.asarray(x * UP + np.sign(x) * TINY)


def growth(f: Format, n: object) -> np.ndarray:
    """g(n), rounded up."""
    return _growth(f, n) if isinstance(n, int) else up(np.expm1(np.asarray(n) * np.log1p(float(f.u))))


@lru_cache(256)
def _growth(f: Format, n: int) -> np.ndarray:
    return growth(f, np.asarray(n))


def rounding(size: np.ndarray, low: np.ndarray, relative: np.ndarray, f: Format, small: int = 1) -> np.ndarray:
    """Return the error of ``small`` roundings, in total ``relative``, of numbers x̂ with ``low`` ≤ |x̂| ≤ ``size``.

    None underflows if ``low`` is a normal number. The error is +∞ if the result may overflow.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        error = relative * size + np.where(low >= float(f.smallest_normal), 0, small * float(f.eta) * (1 + relative))
        return np.where(size == 0, 0.0, np.where(size + error <= float(f.largest), up(error), np.inf))


def product(c: Any, e: Any) -> np.ndarray:
    """Return c e, rounded up, for c, e ≥ 0; +∞ where e is."""
    values = np.where((np.asarray(c) == 0) | (np.asarray(e) == 0), 0.0, up(c * e))
    return np.where(np.isinf(e), np.inf, values)


class Floats(NamedTuple):
    """Exact numbers as float64: |x − ``near``| ≤ ``off``, 0 if float64 holds x; both are 0 if x is not a number."""

    near: np.ndarray
    off: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """An upper bound of |x|."""
        return np.where(self.off == 0, np.abs(self.near), up(np.abs(self.near) + self.off))

    @property
    def low(self) -> np.ndarray:
        """A lower bound of |x|."""
        below = np.maximum(np.abs(self.near) / UP - self.off * UP, 0)
        return np.asarray(np.where(self.off == 0, np.abs(self.near), below))


def floats(balls: np.ndarray, data: object = None) -> Floats:
    """Return the numbers in an array of balls and special elements, which were made from ``data``."""
    if isinstance(data, np.ndarray) and data.dtype.kind == "f":
        return Floats(data.astype(np.float64), np.zeros(data.shape))
    near, off = _FLOATS(balls)
    return Floats(np.array(near, dtype=np.float64), np.array(off, dtype=np.float64))


def _float(x: Any) -> tuple[float, float]:
    if isinstance(x, (Forbidden, Undefined)):
        return 0.0, 0.0
    near = float(x.mid())
    if x.is_exact() and flint.arb(near) == x:
        return near, 0.0
    off = float(x.rad()) * UP + abs(near) * 2.0**-52 + TINY
    return (near, off) if isfinite(near) and isfinite(off) else (0.0, inf)


_FLOATS = np.frompyfunc(_float, 1, 2)


def times(x: Floats, y: Floats) -> Floats:
    """Return the products: |x y − ``near``| ≤ |x| y.off + |y| x.off + x.off y.off, plus half an ulp of float64."""
    near = x.near * y.near
    off = UP * (np.abs(x.near) * y.off + np.abs(y.near) * x.off + x.off * y.off + np.abs(near) * 2.0**-53 + TINY)
    zero = (x.near == 0) & (x.off == 0) | (y.near == 0) & (y.off == 0)
    finite = np.isfinite(near) & np.isfinite(off)
    return Floats(np.where(finite & ~zero, near, 0.0), np.where(zero, 0.0, np.where(finite, off, inf)))


def holds(f: Format, values: Floats) -> np.ndarray:
    """Return which numbers belong to the format."""
    return np.asarray((values.off == 0) & (f.rounded(values.near) == values.near))


# -- deviations --------------------------------------------------------------------------------------------------------
# An error that two numbers share may cancel in their difference, which bounds alone cannot express. Coefficients are
# float64; functions that combine them count their rounding (``SLACK``). An array has at most ``LIMIT`` of them: the
# smallest ones beyond are given up, that is, only bounded.
# Source: L. H. de Figueiredo, J. Stolfi, Affine arithmetic: concepts and applications, Numer. Algorithms 37 (2004).


LIMIT = 2**21
SLACK = 2.0**-49  # relative error of c x + d y in float64, relative to |c x| + |d y|; of n terms, n/8 times it

_unused = count()


@dataclass(frozen=True, slots=True, eq=False)
class RowErrors:
    """The error Σ c_s ε_s + r, |r| ≤ ``own``, of a number: the s in order, their c_s, and Σ|c_s|."""

    ids: np.ndarray
    coefficients: np.ndarray
    radius: float
    own: float


NONE = RowErrors(np.empty(0, dtype=np.int64), np.empty(0), 0.0, 0.0)
_RADIUS, _OWN = (np.frompyfunc(attrgetter(name), 1, 1) for name in ("radius", "own"))
_BOUNDED = np.frompyfunc(lambda r: RowErrors(NONE.ids, NONE.coefficients, 0.0, r) if r else NONE, 1, 1)


_NEGATED = np.frompyfunc(lambda r: RowErrors(r.ids, -r.coefficients, r.radius, r.own) if r.ids.size else r, 1, 1)


def negated(rows: np.ndarray) -> np.ndarray:
    """Return the errors of the negated numbers."""
    return np.asarray(_NEGATED(rows), dtype=object)


def bounded(own: np.ndarray) -> np.ndarray:
    """Return rows without common errors."""
    return np.asarray(_BOUNDED(own), dtype=object)


def radii(rows: np.ndarray) -> np.ndarray:
    """Return Σ|c_s| of each row."""
    return np.asarray(_RADIUS(rows), dtype=np.float64)


def own(rows: np.ndarray) -> np.ndarray:
    """Return the bound on r of each row."""
    return np.asarray(_OWN(rows), dtype=np.float64)


def common_ids(arrays: Iterable[np.ndarray], size: int) -> np.ndarray:
    """Return the ids of all rows, in order; if they are too many for ``size`` rows, those with the largest weights."""
    rows = [row for a in arrays for row in a.flat if row.ids.size]
    result = list({id(row.ids): row.ids for row in rows}.values())
    if not result:
        return NONE.ids
    ids = result[0] if len(result) == 1 else np.unique(np.concatenate(result))
    most = LIMIT // max(size, 1)
    if ids.size <= most:
        return ids
    weights = np.zeros(ids.size)
    for row in rows:
        weights[np.searchsorted(ids, row.ids)] += np.abs(row.coefficients)
    return ids[np.sort(np.argsort(weights)[::-1][:most])]


def table(rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the coefficients of an array of rows for the given ids: (…) → (…, len(ids))."""
    out = np.zeros((rows.size, ids.size))
    places: dict[int, list[int]] = {}
    members = list(rows.flat)
    for k, row in enumerate(members):
        if row.ids.size and ids.size:
            places.setdefault(id(row.ids), []).append(k)
    for group in places.values():
        block = np.array([members[k].coefficients for k in group])
        columns = members[group[0]].ids
        if columns is ids:
            out[group] = block
        else:
            at = np.minimum(np.searchsorted(ids, columns), ids.size - 1)
            present = ids[at] == columns
            out[np.ix_(group, at[present])] = block[:, present]
    return out.reshape(*rows.shape, ids.size)


def rows_of(coefficients: np.ndarray, ids: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return a table as an array of rows, without columns of zeros."""
    flat = coefficients.reshape(own.size, ids.size)
    sizes = np.abs(flat)
    used = sizes.any(axis=0)
    if not used.all():
        flat, sizes, ids = flat[:, used], sizes[:, used], ids[used]
    if not ids.size:
        return bounded(own)
    out = np.empty(own.size, dtype=object)
    enlarged = (sizes.sum(axis=1) * (1 + 2.0**-30)).tolist()
    for k, (radius, r) in enumerate(zip(enlarged, own.reshape(-1).tolist(), strict=True)):
        out[k] = RowErrors(ids, flat[k], radius, r) if radius or r else NONE
    return out.reshape(own.shape)


def given_up(rows: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Return a bound on the errors of the rows that a table of them leaves out."""
    return np.asarray(np.maximum(radii(rows) - np.abs(coefficients).sum(axis=-1) * (1 - 2.0**-30), 0))


def named(rows: np.ndarray) -> np.ndarray:
    """Give each nonzero r an ε of its own; return the rows unchanged if there would be too many."""
    flat, r = rows.reshape(-1), own(rows).reshape(-1)
    which = np.flatnonzero((r > 0) & np.isfinite(r))
    ids = common_ids([rows], rows.size)
    if not which.size or rows.size * (ids.size + which.size) > LIMIT:
        return rows
    fresh = np.fromiter((next(_unused) for _ in which), dtype=np.int64, count=which.size)
    values = table(flat, ids)
    wide = np.zeros((rows.size, ids.size + which.size))
    wide[:, : ids.size] = values
    wide[which, ids.size + np.arange(which.size)] = r[which]
    left = np.where(np.isfinite(r), 0, r) + given_up(flat, values)
    return rows_of(wide, np.concatenate([ids, fresh]), left).reshape(rows.shape)
