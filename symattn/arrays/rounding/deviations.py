"""Errors that numbers have in common: sums Σ c_s ε_s over unknown ε_s in [−1, 1], the same for every number.

An error that two numbers share may cancel in what is made of them, which bounds alone cannot know. Coefficients are
float64; what their own rounding changes is counted by who combines them (``SLACK``). An array has at most ``LIMIT`` of
them: the smallest beyond are given up, that is, only bounded.
Source: L. H. de Figueiredo, J. Stolfi, Affine arithmetic: concepts and applications, Numer. Algorithms 37 (2004).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from operator import attrgetter

import numpy as np

LIMIT = 2**21
SLACK = 2.0**-49  # relative error of c x + d y in float64, relative to |c x| + |d y|; of n terms, n/8 times it

_unused = count()


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Σ c_s ε_s + r, |r| ≤ ``own``: which s, in order, their c_s, and Σ|c_s|."""

    ids: np.ndarray
    coefficients: np.ndarray
    radius: float
    own: float


NONE = Row(np.empty(0, dtype=np.int64), np.empty(0), 0.0, 0.0)
_RADIUS, _OWN = (np.frompyfunc(attrgetter(name), 1, 1) for name in ("radius", "own"))
_BOUNDED = np.frompyfunc(lambda r: Row(NONE.ids, NONE.coefficients, 0.0, r) if r else NONE, 1, 1)


def bounded(own: np.ndarray) -> np.ndarray:
    """Rows that have nothing in common."""
    return np.asarray(_BOUNDED(own), dtype=object)


def radii(rows: np.ndarray) -> np.ndarray:
    """Σ|c_s| of each row."""
    return np.asarray(_RADIUS(rows), dtype=np.float64)


def own(rows: np.ndarray) -> np.ndarray:
    """The bound on r of each row."""
    return np.asarray(_OWN(rows), dtype=np.float64)


def common_ids(arrays: Iterable[np.ndarray], size: int) -> np.ndarray:
    """The ids of all rows, in order; if an array of ``size`` rows could not hold them, those that weigh most."""
    rows = [row for a in arrays for row in a.flat if row.ids.size]
    found = list({id(row.ids): row.ids for row in rows}.values())
    if not found:
        return NONE.ids
    ids = found[0] if len(found) == 1 else np.unique(np.concatenate(found))
    most = LIMIT // max(size, 1)
    if ids.size <= most:
        return ids
    weights = np.zeros(ids.size)
    for row in rows:
        weights[np.searchsorted(ids, row.ids)] += np.abs(row.coefficients)
    return ids[np.sort(np.argsort(weights)[::-1][:most])]


def table(rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The coefficients of an array of rows for the given ids: (…) → (…, len(ids))."""
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
            there = ids[at] == columns
            out[np.ix_(group, at[there])] = block[:, there]
    return out.reshape(*rows.shape, ids.size)


def rows_of(coefficients: np.ndarray, ids: np.ndarray, own: np.ndarray) -> np.ndarray:
    """A table as an array of rows; columns of zeros are left out."""
    flat = coefficients.reshape(own.size, ids.size)
    sizes = np.abs(flat)
    some = sizes.any(axis=0)
    if not some.all():
        flat, sizes, ids = flat[:, some], sizes[:, some], ids[some]
    if not ids.size:
        return bounded(own)
    out = np.empty(own.size, dtype=object)
    enlarged = (sizes.sum(axis=1) * (1 + 2.0**-30)).tolist()
    for k, (radius, r) in enumerate(zip(enlarged, own.reshape(-1).tolist(), strict=True)):
        out[k] = Row(ids, flat[k], radius, r) if radius or r else NONE
    return out.reshape(own.shape)


def given_up(rows: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """A bound on what a table of the rows does not hold."""
    return np.asarray(np.maximum(radii(rows) - np.abs(coefficients).sum(axis=-1) * (1 - 2.0**-30), 0))


def named(rows: np.ndarray) -> np.ndarray:
    """The same with an ε for each r that is not zero; as they are, if that would be too much."""
    flat, r = rows.reshape(-1), own(rows).reshape(-1)
    which = np.flatnonzero((r > 0) & np.isfinite(r))
    ids = common_ids([rows], rows.size)
    if not which.size or rows.size * (ids.size + which.size) > LIMIT:
        return rows
    fresh = np.fromiter((next(_unused) for _ in which), dtype=np.int64, count=which.size)
    held = table(flat, ids)
    wide = np.zeros((rows.size, ids.size + which.size))
    wide[:, : ids.size] = held
    wide[which, ids.size + np.arange(which.size)] = r[which]
    left = np.where(np.isfinite(r), 0, r) + given_up(flat, held)
    return rows_of(wide, np.concatenate([ids, fresh]), left).reshape(rows.shape)
