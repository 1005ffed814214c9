"""Values in a graph: arrays of a kind, and plain values, such as sizes, positions and masks of NumPy.

Plain values meet arrays of a kind by ``lifted``. Three things that a graph can only write as floats are taken for what
they stand for, and noted as hypotheses: a float next to √k or 1/√k for a whole k, the float32 of a short decimal, such
as ε = 10⁻⁶, and the least number of a format, or one from −10⁹ on, which forbids as −∞ does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from symattn.arrays.base import ArrayBase
from symattn.arrays.indexed import Indexed
from symattn.arrays.namespace import namespace_of
from symattn.arrays.notes import note
from symattn.document.errors import InputError, Refused

_LARGEST_ROOT = 4096
_WIDEST = 1e38  # what float32 holds
_LEAST = {float(np.finfo(t).min) for t in (np.float64, np.float32, np.float16)}
_LEAST.add(float(ml_dtypes.finfo(ml_dtypes.bfloat16).min))
_FORBIDS = -1e9  # what people write for −∞, from here on


class Context:
    """The kind of array that a graph is run on: ``kind`` is None for NumPy's floats."""

    def __init__(self, like: Any) -> None:
        self.kind: Any = type(like) if isinstance(like, ArrayBase) else None
        self.xp: Any = like.__array_namespace__()
        self.dtype = None if self.kind else like.dtype

    def lifted(self, x: Any) -> Any:
        """A value as an array of the kind; booleans and whole numbers that a condition may hold stay as they are."""
        if isinstance(x, ArrayBase):
            return x
        if self.kind is None:
            x = np.asarray(x)
            return x.astype(self.dtype) if x.dtype.kind == "f" else x
        if isinstance(x, np.ndarray) and x.dtype == bool:
            return x if self.kind is not Indexed else _indexed(x)
        entries = np.asarray(x, dtype=object)
        values = np.empty(entries.shape, dtype=object)
        for at in np.ndindex(entries.shape):
            x_at = entries[at]  # a size, a whole number, or a float as what it stands for
            values[at] = self._meant(float(x_at)) if isinstance(x_at, (float, np.floating)) else self.kind.of(x_at)
        return values[()] if not entries.shape else self._joined(values)

    def _joined(self, entries: np.ndarray) -> Any:
        """An array of numbers."""
        if self.kind is Indexed:
            return _indexed(entries)
        flat = [entries[at] for at in np.ndindex(entries.shape)]
        return self.xp.reshape(self.xp.stack([self.kind.of(x) for x in flat]), entries.shape)

    def _forbidden(self) -> Any:
        return self.kind.of(-np.inf) if self.kind is Indexed else self.kind.literal(np.asarray(-np.inf))

    def _meant(self, x: float) -> Any:
        if x == -np.inf:
            return self._forbidden()
        if x in _LEAST or x <= _FORBIDS:
            note(f"hypothesis: {x:.4g} forbids as −∞ does, in every row in which some key is allowed")
            return self._forbidden()
        k, inverse = root(x)
        if not k:
            return self.kind.of(decimal(x))
        note(f"hypothesis: {x:.9g} stands for {'1/' * inverse}√{k}")
        result = self.xp.sqrt(self.kind.of(k))
        return 1 / result if inverse else result


@dataclass(frozen=True)
class Joined:
    """Arrays side by side along the last axis, kept apart; ``turned`` swaps the last two axes of the whole.

    Queries, keys and values that one matrix makes stay three arrays: what is known of the entries of each, such as that
    they are whole numbers, is not lost in those of the others.
    """

    parts: tuple[Any, ...]
    turned: bool = False

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return int(self.parts[0].ndim)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The lengths of the whole, not turned."""
        return (*self.parts[0].shape[:-1], sum(int(p.shape[-1]) for p in self.parts))

    def whole(self, c: Context) -> Any:
        """One array."""
        result = c.xp.concat(self.parts, axis=-1)
        return c.xp.matrix_transpose(result) if self.turned else result

    def between(self, start: Any, stop: Any) -> Any:
        """The part from ``start`` to ``stop``, if it is one; else None."""
        at, n = 0, self.shape[-1]
        for p in self.parts:
            end = at + int(p.shape[-1])
            if (start, stop if stop is not None and stop < n else n) == (at, end):
                return p
            at = end
        return None


def root(x: float) -> tuple[int, bool]:
    """(k, whether it is the reciprocal) where x is a float next to √k or 1/√k and no number that was meant; else 0.

    >>> root(0.3535533905932738), root(0.5)
    ((8, True), (0, False))
    """
    if not 0 < abs(x) < math.inf or abs(x).as_integer_ratio()[1] <= 2**12:
        return 0, False
    for inverse in (False, True):
        k = round(x**-2 if inverse else x**2)
        if x > 0 and 1 < k <= _LARGEST_ROOT and math.isqrt(k) ** 2 != k:
            value = k**-0.5 if inverse else k**0.5
            if x in (value, float(np.float32(value))):
                return k, inverse
    return 0, False


def decimal(x: float) -> float:
    """The decimal of at most six digits that a float32 is nearest to, noted as a hypothesis; x where there is none.

    >>> decimal(9.999999747378752e-06), decimal(0.25), decimal(0.1234567)
    (1e-05, 0.25, 0.1234567)
    """
    result = float(f"{x:.6g}")
    if result == x or not abs(x) < _WIDEST or float(np.float32(result)) != x:
        return x
    note(f"hypothesis: {x:.9g} stands for {result:.6g}, of which it is the float32")
    return result


def _indexed(entries: np.ndarray) -> Indexed:
    """Numbers as an array of ``indexed`` whose lengths are numbers."""

    def at(places: Any) -> Any:
        index = tuple(int(np.ravel_multi_index(t, [int(n)] if n != 1 else [])) if t else 0
                      for (_, t), n in zip(places, entries.shape, strict=True))  # fmt: skip
        return Indexed.lift(entries[index]).at(())

    return Indexed([int(n) for n in entries.shape], at)


def is_plain(x: object) -> bool:
    """Return whether a value is no array of a kind."""
    return not isinstance(x, ArrayBase)


def are_booleans(mask: Any) -> bool:
    """Return whether a mask says which scores are allowed, and is no number to add to them.

    Letters have no type: conditions on places are told by their form. Raises ``Refused`` for other letters, which may
    be either.
    """
    if mask.dtype is not None:
        return bool(namespace_of(mask).isdtype(mask.dtype, "bool"))
    from symattn.arrays.index.building import is_truth
    from symattn.arrays.index.expressions import Letter

    elements = [mask.at(places) for places in mask.places()]
    if all(map(is_truth, elements)):
        return True
    pending = list(elements)
    while pending:
        result = pending.pop()
        if isinstance(result, Letter):
            raise Refused("a mask of letters may be of booleans or of numbers: that is undecided for all sizes")
        pending += result.children
    return False


def length(x: Any) -> Any:
    """A size as it was found: a plain number as such, a letter as it is."""
    if isinstance(x, np.ndarray):
        x = x.reshape(-1)[0] if x.size == 1 else x
    if isinstance(x, (np.integer, int)):
        return int(x)
    try:
        return int(x)
    except (Refused, TypeError):
        return x


def place(axis: Any, axes: int) -> int:
    """An axis counted from the front. Raises InputError where there is no such axis."""
    k = int(axis)
    if not -axes <= k < axes:
        raise InputError(f"the axis {k} of an array of {axes} axes")
    return k % axes


def lengths(x: Any) -> tuple[Any, ...]:
    """A list of sizes, from an array of them or a list."""
    return tuple(length(n) for n in (x.reshape(-1) if isinstance(x, np.ndarray) else x))


def sizes(shape: Any) -> np.ndarray:
    """Lengths as a plain array: whole numbers, or objects where there are letters among them."""
    result = [length(n) for n in shape]
    if all(isinstance(n, int) for n in result):
        return np.array(result, dtype=np.int64)
    values = np.empty(len(result), dtype=object)
    for at, n in enumerate(result):
        values[at] = n
    return values


def whole(x: object, what: str) -> int:
    """A whole number that must be known. Raises InputError for a letter."""
    result = length(x)
    if not isinstance(result, int):
        raise InputError(f"{what} depends on a size that was left open: {result}")
    return result
