"""Values in a graph: arrays of a kind, and plain values, such as sizes, positions and masks of NumPy.

``lifted`` converts plain values to arrays of a kind. Three things that a graph can only write as floats are replaced by
what they stand for, and noted as hypotheses: a float next to √k or 1/√k for a whole k, the float32 of a short decimal,
such as ε = 10⁻⁶, and the least number of a format, or one below −10⁹, which forbids as −∞ does; residues try numbers
from −10⁴ down as −∞ too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from symattn.arrays.base import ArrayBase
from symattn.arrays.namespace import namespace_of
from symattn.arrays.notes import note
from symattn.arrays.residues.field import Work
from symattn.document.errors import InputError, Refused

#: A value of a graph: an array of a kind, or a plain value, such as a number, a size, or a NumPy mask.
Value = Any
#: The function of an operator: it takes the context, the operands in order, and the attributes by name.
Rule = Callable[..., Value]

# Roots of larger numbers stay floats: heads are less wide.
_LARGEST_ROOT = 4096
_FEW = 64  # elements that are lifted one by one, even if some are equal
_WIDEST = 1e38  # roughly the largest float32
#: The least number of each format, which code writes for −∞.
_LEAST = {float(np.finfo(t).min) for t in (np.float64, np.float32, np.float16)}
_LEAST.add(float(ml_dtypes.finfo(ml_dtypes.bfloat16).min))
_FORBIDS = -1e9  # numbers up to this one are written for −∞


class UnreadResult:
    """A result of an operator that its rule leaves out: no node can take it."""


#: None would mean an operand that is missing, such as a limit or an index.
NOT_READ = UnreadResult()


class Context:
    """The kind of array on which a graph is run: ``kind`` is None for NumPy's floats."""

    def __init__(self, like: Value) -> None:
        self.kind: Any = type(like) if isinstance(like, ArrayBase) else None
        self.xp: Any = like.__array_namespace__()
        self.dtype = None if self.kind else like.dtype
        # booleans are conditions on positions
        self.in_letters = self.kind is not None and like.dtype is None
        self.has_residues = hasattr(self.kind, "field")
        # plain numbers stay floats, since they lead to tables of angles
        self.in_floats = hasattr(self.kind, "tables")

    def lifted(self, x: Value) -> Value:
        """Return a value as an array of the kind; booleans stay as they are unless the kind has letters."""
        if isinstance(x, ArrayBase):
            return x
        if self.kind is None:
            x = np.asarray(x)
            return x.astype(self.dtype) if x.dtype.kind == "f" else x
        if isinstance(x, np.ndarray) and x.dtype == bool and not self.in_letters:
            return x
        # Elements are lifted one by one, so equal ones of a large array are lifted once.
        if (
            isinstance(x, np.ndarray)
            and x.size > _FEW
            and x.dtype.kind in "iuf"
            and self.has_residues
        ):
            # such as a matrix of zeros and ones, or a mask
            each, places = np.unique(x, return_inverse=True)
            if each.size < x.size:
                return self.lifted(each)[places.reshape(x.shape)]
        entries = np.asarray(x, dtype=object)
        values = np.empty(entries.shape, dtype=object)
        for at in np.ndindex(entries.shape):
            # a size, a whole number, or a float, which is replaced by what it stands for
            x_at = entries[at]
            values[at] = (
                self._interpret_forbidding_number(float(x_at))
                if isinstance(x_at, (float, np.floating))
                else self.kind.of(x_at)
            )
        if not entries.shape:
            return values[()]
        if self.in_letters:
            return self.kind.literal(values)
        elements = self.xp.stack([self.kind.of(x) for x in values.flat])
        return self.xp.reshape(elements, values.shape)

    def _interpret_forbidding_number(self, x: float) -> Value:
        if x == -np.inf:
            return self.kind.literal(np.asarray(-np.inf))
        if x in _LEAST or x <= _FORBIDS:
            note(
                f"hypothesis: {x:.4g} forbids as −∞ does, in every row in which some key is allowed"
            )
            if self.has_residues:
                return self.kind.forbidding(np.asarray(x), np.asarray(True))
            return self.kind.literal(np.asarray(-np.inf))
        if (
            self.has_residues and x <= self.kind.sentinel
        ):  # such as −10⁴: as −∞ only if it does not do as a number
            if self.kind.field.leveled:
                return self.kind.literal(np.asarray(x))
            self.kind.field.stand_ins = True
        k, inverse = root(x)
        if not k:
            return self.kind.of(decimal(x))
        note(f"hypothesis: {x:.9g} stands for {'1/' * inverse}√{k}")
        result = self.xp.sqrt(self.kind.of(k))
        return 1 / result if inverse else result


_LIGHTER = 16  # arrays of a loop over tiles that count as one


@contextmanager
def lighter(kind: Any) -> Iterator[None]:
    """Count the many small arrays of a loop over tiles as less work than the few of a function without loops."""
    # Only residues count work; floats do not.
    field = getattr(kind, "field", None)
    if field is None:
        yield
        return
    whole = field.work
    field.work = Work(_LIGHTER * whole.left)
    try:
        yield
    finally:
        # What was spent inside is taken from the whole, at its lighter weight.
        whole.left, field.work = field.work.left / _LIGHTER, whole


@dataclass(frozen=True)
class Joined:
    """Arrays side by side along the last axis, but stored separately; ``turned`` swaps the last two axes of the whole.

    Queries, keys and values from one matrix stay three arrays, so that a property of the entries of one, such as being
    whole numbers, is not lost among the others.
    """

    parts: tuple[Value, ...]
    turned: bool = False

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return int(self.parts[0].ndim)

    @property
    def shape(self) -> tuple[Value, ...]:
        """The shape of the whole, before it is turned."""
        columns = sum(int(part.shape[-1]) for part in self.parts)
        return (*self.parts[0].shape[:-1], columns)

    def whole(self, c: Context) -> Value:
        """Return the parts as one array."""
        result = c.xp.concat(self.parts, axis=-1)
        return c.xp.matrix_transpose(result) if self.turned else result

    def between(self, start: Value, stop: Value) -> Value:
        """Return the part that is the slice from ``start`` to ``stop``, or None."""
        at, n = 0, self.shape[-1]
        for p in self.parts:
            end = at + int(p.shape[-1])
            if (start, stop if stop is not None and stop < n else n) == (at, end):
                return p
            at = end
        return None


def root(x: float) -> tuple[int, bool]:
    """Return (k, False) if x is the float next to √k, (k, True) if next to 1/√k, and (0, False) for all other numbers.

    >>> root(0.3535533905932738), root(0.5), root(2.2250738585072014e-308)
    ((8, True), (0, False), (0, False))
    """
    # A dyadic number with a small denominator, such as 0.5, is exact as it stands.
    if not _LARGEST_ROOT**-0.5 < x < _LARGEST_ROOT**0.5 or x.as_integer_ratio()[1] <= 2**12:
        return 0, False
    for inverse in (False, True):
        k = round(x**-2 if inverse else x**2)
        # The root of a square is rational, and needs no stand-in.
        if math.isqrt(k) ** 2 != k:
            value = k**-0.5 if inverse else k**0.5
            # Code may have computed the root in float64, or in float32.
            if x in (value, float(np.float32(value))):
                return k, inverse
    return 0, False


def decimal(x: float) -> float:
    """Return the decimal of at most six digits whose float32 is x, noted as a hypothesis; x if there is none.

    >>> decimal(9.999999747378752e-06), decimal(0.25), decimal(0.1234567)
    (1e-05, 0.25, 0.1234567)
    """
    result = float(f"{x:.6g}")
    if result == x or not abs(x) < _WIDEST or float(np.float32(result)) != x:
        return x
    note(f"hypothesis: {x:.9g} stands for {result:.6g}, of which it is the float32")
    return result


def is_plain(x: object) -> bool:
    """Return whether a value is no array of a kind."""
    return not isinstance(x, ArrayBase)


def are_booleans(mask: Value) -> bool:
    """Return whether a mask says which scores are allowed, rather than being added to them.

    Letters have no type: conditions on positions are recognised by their form. Raises ``Refused`` for other letters,
    which may be either.
    """
    if mask.dtype is not None:
        return bool(namespace_of(mask).isdtype(mask.dtype, "bool"))
    return bool(mask.holds_conditions())


def length(x: Value) -> Value:
    """Return a size as an int if it is known, else as it is."""
    if isinstance(x, np.ndarray):
        x = x.reshape(-1)[0] if x.size == 1 else x
    if isinstance(x, (np.integer, int)):
        return int(x)
    # A symbolic size may turn out to be one number.
    try:
        return int(x)
    except (Refused, TypeError):
        return x


def place(axis: Value, axes: int) -> int:
    """Return an axis counted from the front. Raises ``InputError`` if there is no such axis."""
    k = int(axis)
    if not -axes <= k < axes:
        raise InputError(f"the axis {k} of an array of {axes} axes")
    return k % axes


def lengths(x: Value) -> tuple[Value, ...]:
    """Return the sizes in an array or a list."""
    entries = x.reshape(-1) if isinstance(x, np.ndarray) else x
    return tuple(length(n) for n in entries)


def whole(x: object, what: str) -> int:
    """Return a whole number that must be known. Raises ``InputError`` for an open size."""
    result = length(x)
    if not isinstance(result, int):
        raise InputError(f"{what} depends on a size that was left open: {result}")
    return result


# -- types and ranges --------------------------------------------------------------------------------------------------
# A whole number beyond the range of its type would wrap around in the graph. Here NumPy's whole numbers are int64
# whatever the name of their type, and a number that would wrap around is refused.

# NumPy's whole numbers are int64, which wrap around from here on.
_WIDE = 2**63
_SIZES = ("int32", "int64")  # the types of sizes and positions, which are assumed to hold open ones

UNKNOWN = "unknown"  # the type of a value that a typed language could not infer

#: Targets of a cast, by the kinds of NumPy's types.
_KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float"}


def type_name(dtype: object) -> str:
    """Return ``float`` for floats of any format, including those of ml_dtypes; else the name, such as ``uint8``."""
    name = str(dtype).removeprefix("torch.")
    return "float" if name.startswith(("float", "bfloat")) else name


def settled(x: Value, declared: str) -> Value:
    """Return a value of a node as one of its declared type; "" declares nothing.

    Plain numbers become arrays, of floats if the type is. Raises ``InputError`` for whole numbers that do not fit their
    type, ``Refused`` for computed ones of a type that may be too narrow for them.
    """
    computed = not is_plain(x) or isinstance(x, Joined)
    # What a type wraps around to is unknown if the type is.
    if declared == UNKNOWN and not computed and np.asarray(x).dtype.kind in "iuO":
        raise InputError("whole numbers of an unknown type are not read, as they may wrap around")
    if declared.startswith(("int", "uint")):
        # A size is an exact number here, which a narrow type might not hold.
        if computed or np.asarray(x).dtype == object:
            if declared not in _SIZES:
                raise Refused(
                    f"computed numbers of the type {declared} are not read, as they may wrap around"
                )
            return x
        check_range(x, declared)
        return np.asarray(x)
    if declared == "float" and not computed and np.asarray(x).dtype.kind in "iu":
        return np.asarray(x, dtype=np.float64)
    return x


def check_range(x: object, dtype: str) -> None:
    """Raise ``InputError`` for a plain number that is not in the range of a type such as ``uint8``."""
    bits, signed = int(dtype.lstrip("uint")), not dtype.startswith("u")
    half = 2 ** (bits - 1)
    low, high = (-half, half - 1) if signed else (0, 2**bits - 1)
    a = np.asarray(x)
    # The extremes decide for all entries.
    for n in (a.min(), a.max()) if a.size else ():
        if not low <= n <= high:
            raise InputError(
                f"{int(n)} does not fit {dtype}, and what it is cut to, or wraps around to, is not read"
            )


def as_int64(x: np.ndarray) -> np.ndarray:
    """Return whole numbers of any type as int64. Raises ``InputError`` for those beyond it."""
    if x.size and x.dtype.kind == "u":
        check_range(x, "int64")
    return x.astype(np.int64)


def _find_largest_magnitude(x: np.ndarray) -> int:
    return max(abs(int(x.min())), abs(int(x.max()))) if x.size else 0


def check_wide(name: str, a: Value, b: Value) -> None:
    """Raise ``InputError`` if NumPy's int64 may wrap around in a sum, a difference, a product or a power."""
    arrays = [np.asarray(n) for n in (a, b)]
    if not {n.dtype.kind for n in arrays} <= {"i", "u", "b"} or name not in (
        "add",
        "subtract",
        "multiply",
        "power",
    ):
        return
    x, y = (_find_largest_magnitude(n) for n in arrays)
    # 2⁶⁴ is beyond 64 bits already, and a larger power may take all memory
    largest = x ** min(y, 64) if name == "power" else x * y if name == "multiply" else x + y
    if largest >= _WIDE:
        raise InputError("whole numbers beyond 64 bits are not read")


def are_whole(*arrays: Value) -> bool:
    """Return whether values are plain booleans, whole numbers or ±∞, whose sums and products are exact in NumPy."""
    for a in arrays:
        if not is_plain(a) or isinstance(a, Joined) or np.asarray(a).dtype == object:
            return False
        with np.errstate(invalid="ignore"):
            finite = np.asarray(a)[np.isfinite(a)]
            # Beyond 2⁵³ sums of float64 are rounded.
            if (
                np.asarray(a).dtype.kind == "f"
                and ((finite % 1 != 0) | (abs(finite) > 2**53)).any()
            ):
                return False
    return True


def bits(rule: Rule) -> Rule:
    """Return a bitwise operator of whole numbers by NumPy's function; it raises ``Refused`` for computed numbers."""

    def run(c: Context, *arrays: Value) -> Value:
        if not all(map(is_plain, arrays)):
            raise Refused("bits of computed numbers are not read")
        return rule(*arrays)

    return run


# -- casts -------------------------------------------------------------------------------------------------------------
def cast(c: Context, x: Value, to: str) -> Value:
    """Cast to ``bool``, ``int`` or ``float``; floats are not rounded, so that exact numbers stay exact.

    Raises ``InputError`` for computed numbers that are cast to whole ones, since truncation is not supported.
    """
    if to not in ("bool", "int", "float"):
        raise InputError(f"a cast to {to} is not read")
    if not is_plain(x):
        if to == "int":
            raise InputError("a cast of computed numbers to whole ones is not read")
        return x != 0 if to == "bool" else x
    return _plainly_cast(c, np.asarray(x), to)


def _plainly_cast(c: Context, x: np.ndarray, to: str) -> Value:
    if x.dtype == object:  # open sizes
        if to == "bool":
            raise InputError("a cast of open sizes to booleans is not read")
        return c.lifted(x) if to == "float" else x
    if to == "int" and x.dtype.kind == "f":
        if not np.isfinite(x).all():
            raise InputError("a cast of an infinite number to a whole one is not read")
        if (abs(x) >= 2.0**63).any():
            raise InputError("a cast of a number beyond 64 bits to a whole one is not read")
        return np.trunc(x).astype(np.int64)
    if to == "int" and x.dtype.kind in "iu":
        return as_int64(x)
    if to == "float" and x.dtype == bool and c.kind is not None:
        return c.xp.where(x, c.lifted(1), c.lifted(0))
    wanted = {"bool": "b", "int": "iu", "float": "f"}[to]
    return (
        x
        if x.dtype.kind in wanted
        else x.astype({"bool": bool, "int": np.int64, "float": np.float64}[to])
    )


def cast_like(c: Context, x: object, like: Value) -> Value:
    """Cast to the type of another array; computed numbers are floats."""
    return cast(
        c,
        x,
        "float" if not is_plain(like) else _KINDS.get(np.asarray(like).dtype.kind, "another type"),
    )
