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
from itertools import count, islice
from math import inf, isfinite
from typing import Any, NamedTuple

import flint
import numpy as np

from symattn.arrays.formats import Format

# Enlarges bounds by far more than the roundings of their own computation.
UP = 1 + 2.0**-40
# Far above what underflow of float64 loses, and far below any error of interest.
TINY = 1e-300


def up(x: Any) -> np.ndarray:
    """Return upper bounds of numbers x ≥ 0 computed in float64; zeros stay. The caller silences overflow."""
    return np.asarray(x * UP + np.sign(x) * TINY)


def growth(f: Format, n: object) -> np.ndarray:
    """g(n), rounded up."""
    if isinstance(n, int):
        return _growth_of_roundings(f, n)
    per_rounding = np.log1p(float(f.u))
    return up(np.expm1(np.asarray(n) * per_rounding))


# The same few formats and counts return in every operation.
@lru_cache(256)
def _growth_of_roundings(f: Format, n: int) -> np.ndarray:
    return growth(f, np.asarray(n))


def rounding(
    size: np.ndarray, low: np.ndarray, relative: np.ndarray, f: Format, small: int = 1
) -> np.ndarray:
    """Return the error of ``small`` roundings, in total ``relative``, of numbers x̂ with ``low`` ≤ |x̂| ≤ ``size``.

    None underflows if ``low`` is a normal number. The error is +∞ if the result may overflow; the caller silences that.
    """
    normal, eta, largest = _range_limits_of_format(f)
    underflow = small * eta * (1 + relative)
    error = relative * size + np.where(low >= normal, 0, underflow)
    # Zeros are exact in every format.
    finite_error = np.where(size + error <= largest, up(error), np.inf)
    return np.where(size == 0, 0.0, finite_error)


@lru_cache(64)
def _range_limits_of_format(f: Format) -> tuple[float, float, float]:
    return float(f.smallest_normal), float(f.eta), float(f.largest)


def product(c: Any, e: Any) -> np.ndarray:
    """Return c e, rounded up, for c, e ≥ 0; +∞ where e is."""
    values = up(c * e)
    if np.isfinite(values).all():
        return values
    # An unknown error stays unknown even times 0; an error of 0 stays 0.
    either_zero = (np.asarray(c) == 0) | (np.asarray(e) == 0)
    return np.where(np.isinf(e), np.inf, np.where(either_zero, 0.0, values))


class Floats(NamedTuple):
    """Exact numbers as float64: |x − ``near``| ≤ ``off``, 0 if float64 holds x; both are 0 if x is not a number."""

    near: np.ndarray
    off: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """An upper bound of |x|."""
        largest = up(np.abs(self.near) + self.off)
        return np.where(self.off == 0, np.abs(self.near), largest)

    @property
    def low(self) -> np.ndarray:
        """A lower bound of |x|."""
        smallest = np.abs(self.near) / UP - self.off * UP
        below = np.maximum(smallest, 0)
        size = np.abs(self.near)
        return np.asarray(np.where(self.off == 0, size, below))


# The coefficient of sums, recognised by identity.
ONE = Floats(np.ones(()), np.zeros(()))


def floats(balls: np.ndarray, data: object = None) -> Floats:
    """Return the numbers in an array of balls and special elements, which were made from ``data``."""
    # Floats are exact in float64, without a look at the balls.
    if isinstance(data, np.ndarray) and data.dtype.kind == "f":
        return Floats(data.astype(np.float64), np.zeros(data.shape))
    near, off = _FLOATS(balls)
    return Floats(np.array(near, dtype=np.float64), np.array(off, dtype=np.float64))


def _nearest_float_and_error(x: Any) -> tuple[float, float]:
    if type(x) is not flint.arb:
        return 0.0, 0.0
    near = float(x)  # its midpoint
    if x.is_exact() and flint.arb(near) == x:
        return near, 0.0
    of_rounding = abs(near) * 2.0**-52
    off = float(x.rad()) * UP + of_rounding + TINY
    return (near, off) if isfinite(near) and isfinite(off) else (0.0, inf)


# As a universal function, to apply to arrays of balls.
_FLOATS = np.frompyfunc(_nearest_float_and_error, 1, 2)


def times(x: Floats, y: Floats) -> Floats:
    """Return the products: |x y − ``near``| ≤ |x| y.off + |y| x.off + x.off y.off, plus half an ulp of float64."""
    near = x.near * y.near
    off = UP * (
        np.abs(x.near) * y.off
        + np.abs(y.near) * x.off
        + x.off * y.off
        + np.abs(near) * 2.0**-53
        + TINY
    )
    # A zero without an error stays zero.
    x_is_zero = (x.near == 0) & (x.off == 0)
    zero = x_is_zero | (y.near == 0) & (y.off == 0)
    # Overflow makes the bound infinite, and the number does not matter then.
    finite = np.isfinite(near) & np.isfinite(off)
    finite_off = np.where(finite, off, inf)
    near_or_zero = np.where(finite & ~zero, near, 0.0)
    return Floats(near_or_zero, np.where(zero, 0.0, finite_off))


def holds(f: Format, values: Floats) -> np.ndarray:
    """Return which numbers belong to the format."""
    unchanged = f.rounded(values.near) == values.near
    return np.asarray((values.off == 0) & unchanged)


# -- deviations --------------------------------------------------------------------------------------------------------
# An error that two numbers share may cancel in their difference, which bounds alone cannot express. Coefficients are
# float64; functions that combine them count their rounding (``SLACK``). An array has at most ``LIMIT`` of them: the
# smallest ones beyond are given up, that is, only bounded.
# Source: L. H. de Figueiredo, J. Stolfi, Affine arithmetic: concepts and applications, Numer. Algorithms 37 (2004).


# Coefficients of common errors in one array, which bounds memory and time.
LIMIT = 2**21
# relative error of c x + d y in float64, relative to |c x| + |d y|; of n terms, n/8 times it
SLACK = 2.0**-49

# Names of errors, for the whole process: an ε is never used twice.
_unused = count()


@dataclass(frozen=True, slots=True, eq=False)
class CommonErrors:
    """The sums Σ c_s ε_s of several numbers: the s in order, and a line of c_s for each number."""

    ids: np.ndarray
    coefficients: np.ndarray


class Errors(NamedTuple):
    """The error Σ c_s ε_s + r, |r| ≤ ``own``, of each number: in which ``line`` its c_s stand, and Σ|c_s|."""

    common: np.ndarray
    line: np.ndarray
    radius: np.ndarray
    own: np.ndarray

    def groups(self) -> list[tuple[CommonErrors, Any]]:
        """Return all common errors, each with the places of its numbers in a flat array."""
        members = self.common.ravel().tolist()
        if members and members.count(c := members[0]) == len(members):
            return [(c, slice(None))] if c.ids.size else []
        every = dict(zip(map(id, members), members, strict=True))
        keys = np.fromiter(map(id, members), dtype=np.int64, count=len(members))
        return [(c, np.flatnonzero(keys == key)) for key, c in every.items() if c.ids.size]


# The common errors of numbers that have none, one object for all.
NONE = CommonErrors(np.empty(0, dtype=np.int64), np.empty((1, 0)))


def negated(errors: Errors) -> Errors:
    """Return the errors of the negated numbers."""
    # Copies, because planes may be views of other arrays.
    result = Errors(*(p.copy() for p in errors))
    for c, at in errors.groups():
        line = result.line.reshape(-1)
        coefficients = -c.coefficients[line[at]]
        result.common.reshape(-1)[at] = CommonErrors(c.ids, coefficients)
        line[at] = np.arange(line[at].size)
    return result


def bounded(own: np.ndarray) -> Errors:
    """Return errors without common ones."""
    none = np.full(own.shape, NONE, dtype=object)
    no_lines = np.zeros(own.shape, dtype=np.int64)
    return Errors(none, no_lines, np.zeros(own.shape), own)


def common_ids(arrays: Iterable[Errors], size: int) -> np.ndarray:
    """Return the ids of all errors, in order; if they are too many for ``size`` rows, those of the largest weights."""
    parts = [(c, a.line.reshape(-1)[at]) for a in arrays for c, at in a.groups()]
    # Arrays of the same step share one list of ids, so identity removes most of them.
    by_identity = {id(c.ids): c.ids for c, _ in parts}
    result = list(by_identity.values())
    if not result:
        return NONE.ids
    ids = max(result, key=len)
    if len(result) > 1:
        every = np.sort(np.concatenate(result))
        every = every[np.diff(every, prepend=-1) > 0]
        ids = ids if ids.size == every.size else every
    # Beyond the limit only the errors with the largest weights stay shared.
    most = LIMIT // max(size, 1)
    if ids.size <= most:
        return ids
    weights = np.zeros(ids.size)
    for c, lines in parts:
        sizes = np.abs(c.coefficients[lines]).sum(axis=0)
        weights[np.searchsorted(ids, c.ids)] += sizes
    heaviest = np.argsort(weights)[::-1][:most]
    return ids[np.sort(heaviest)]


def table(
    errors: Errors, ids: np.ndarray, factor: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of an array for the given ids, (…) → (…, len(ids)), and a bound on what they leave out.

    They are multiplied by ``factor``, if there is one, which has the array's shape; the bound is not. Without a factor
    the table is read, not written: it may be that of the array.
    """
    shape = errors.own.shape
    groups = errors.groups()
    lines = errors.line.reshape(-1)
    if not groups or not ids.size:
        return np.zeros((*shape, ids.size)), errors.radius
    factors = None if factor is None else factor.reshape(-1, 1)
    c, left = groups[0][0], np.zeros(lines.size)
    # The stored table is the wanted one: no copy is needed.
    if (
        len(groups) == 1
        and c.ids is ids
        and len(lines) == len(c.coefficients)
        and (lines[1:] > lines[:-1]).all()
    ):
        stored = c.coefficients if factors is None else factors * c.coefficients
        return stored.reshape(*shape, ids.size), left.reshape(shape)
    out = np.zeros((lines.size, ids.size))
    for c, at in groups:
        part = c.coefficients[lines[at]]
        columns: Any = slice(None)
        if c.ids is not ids:
            columns = np.minimum(np.searchsorted(ids, c.ids), ids.size - 1)
            present = ids[columns] == c.ids
            # Errors without a column are bounded by what the radius leaves.
            if not present.all():
                columns, part = columns[present], part[:, present]
                shared = np.abs(part).sum(axis=-1)
                unshared = errors.radius.reshape(-1)[at]
                left[at] = np.maximum(unshared - shared * (1 - 2.0**-30), 0)
            columns = _slice_of_run(columns)
        # Few columns are multiplied here, all of the table later.
        if factors is not None:
            part *= factors[at]
        rows = at if isinstance(at, slice) or isinstance(columns, slice) else at[:, None]
        out[rows, columns] = part
    return out.reshape(*shape, ids.size), left.reshape(shape)


def _slice_of_run(columns: np.ndarray) -> Any:
    """Return ascending columns as a slice if none is left out between them: NumPy copies it without an index."""
    if columns.size and columns[-1] - columns[0] + 1 == columns.size:
        return slice(int(columns[0]), int(columns[-1]) + 1)
    return columns


def radii(coefficients: np.ndarray) -> np.ndarray:
    """Return Σ|c_s| of each line of a table, rounded up."""
    return np.asarray(np.abs(coefficients).sum(axis=-1) * (1 + 2.0**-30))


def errors_of(
    coefficients: np.ndarray, ids: np.ndarray, own: np.ndarray, radius: np.ndarray
) -> Errors:
    """Return a table and its ``radii`` as the errors of an array, without columns of zeros."""
    flat = coefficients.reshape(own.size, ids.size)
    # Columns of zeros cost memory in all later operations.
    used = flat.any(axis=0)
    if not used.all():
        flat, ids = flat[:, used], ids[used]
    if not ids.size:
        return bounded(own)
    own_lines = np.arange(own.size).reshape(own.shape)
    line = np.where(radius > 0, own_lines, 0)
    common = np.full(own.shape, NONE, dtype=object)
    common[radius > 0] = CommonErrors(ids, flat)
    return Errors(common, line, radius, own)


def named(errors: Errors) -> Errors:
    """Give each nonzero r an ε of its own; return the errors unchanged if there would be too many."""
    r = errors.own.reshape(-1)
    ids = common_ids([errors], errors.own.size)
    which = np.flatnonzero((r > 0) & np.isfinite(r))
    # Too many coefficients: the errors stay bounds, wider but right.
    if not which.size or r.size * (ids.size + which.size) > LIMIT:
        return errors
    fresh = np.fromiter(islice(_unused, which.size), dtype=np.int64, count=which.size)
    values, left = table(errors, ids)
    wide = np.zeros((r.size, ids.size + which.size))
    wide[:, : ids.size] = values.reshape(r.size, ids.size)
    wide[which, ids.size + np.arange(which.size)] = r[which]
    rest = np.where(np.isfinite(errors.own), 0, errors.own) + left
    every_id = np.concatenate([ids, fresh])
    own_radii = radii(wide).reshape(errors.own.shape)
    return errors_of(wide, every_id, rest, own_radii)
