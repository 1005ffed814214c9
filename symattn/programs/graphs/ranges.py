"""Types, and casts to them; whole numbers in so many bits: one beyond the range of its type would wrap around there.

Here whole numbers of NumPy are int64 whatever their type is called, and none wraps around: it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from symattn.document.errors import InputError, Refused
from symattn.programs.graphs.values import Context, Joined, is_plain

_WIDE = 2**63
_SIZES = ("int32", "int64")  # the types of sizes and positions, which are taken to hold those that were left open

_KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float"}


def type_name(dtype: object) -> str:
    """Return ``float`` for floats of any format, those of ml_dtypes as well; else the name, such as ``uint8``."""
    name = str(dtype).removeprefix("torch.")
    return "float" if name.startswith(("float", "bfloat")) else name


def settled(x: Any, told: str) -> Any:
    """A value of a node as one of the type ``told``; an empty word says nothing of it.

    Plain numbers are made arrays, those of a floating type floats. Raises ``InputError`` for whole numbers that do not
    fit their type, ``Refused`` for computed ones of a type that may be too narrow for them.
    """
    computed = not is_plain(x) or isinstance(x, Joined)
    if told.startswith(("int", "uint")):
        if computed or np.asarray(x).dtype == object:
            if told not in _SIZES:
                raise Refused(f"computed numbers of the type {told} are not read, as they may wrap around")
            return x
        check_range(x, told)
        return np.asarray(x)
    if told == "float" and not computed and np.asarray(x).dtype.kind in "iu":
        return np.asarray(x, dtype=np.float64)
    return x


def check_range(x: object, told: str) -> None:
    """Raise InputError for a plain number that is not in the range of a type such as ``uint8``."""
    bits, signed = int(told.lstrip("uint")), not told.startswith("u")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    a = np.asarray(x)
    for n in (a.min(), a.max()) if a.size else ():
        if not low <= n <= high:
            raise InputError(f"{int(n)} does not fit {told}, and what it is cut to, or wraps around to, is not read")


def whole(x: np.ndarray) -> np.ndarray:
    """Whole numbers of any type as int64. Raises InputError for those beyond it."""
    if x.size and x.dtype.kind == "u":
        check_range(x, "int64")
    return x.astype(np.int64)


def check_wide(name: str, a: Any, b: Any) -> None:
    """Raise InputError where NumPy's int64 may wrap around in a sum, a difference, a product or a power."""
    kinds = [np.asarray(x).dtype.kind for x in (a, b)]
    if not set(kinds) <= {"i", "u", "b"} or name not in ("add", "subtract", "multiply", "power"):
        return
    x, y = (_largest(n) for n in (a, b))
    # 2⁶⁴ is beyond 64 bits already, and a larger power may take all memory
    if (x ** min(y, 64) if name == "power" else x * y if name == "multiply" else x + y) >= _WIDE:
        raise InputError("whole numbers beyond 64 bits are not read")


def _largest(x: object) -> int:
    a = np.asarray(x)
    return max(abs(int(a.min())), abs(int(a.max()))) if a.size else 0


def are_whole(*arrays: Any) -> bool:
    """Return whether plain values are booleans, whole numbers or ±∞, of which NumPy's sums and products are exact."""
    for a in arrays:
        if not is_plain(a) or isinstance(a, Joined) or np.asarray(a).dtype == object:
            return False
        with np.errstate(invalid="ignore"):
            finite = np.asarray(a)[np.isfinite(a)]
            if np.asarray(a).dtype.kind == "f" and ((finite % 1 != 0) | (abs(finite) > 2**53)).any():
                return False
    return True


def bits(rule: Callable[..., Any]) -> Callable[..., Any]:
    """An operator of whole numbers bit by bit, by the function of NumPy. It raises Refused for computed numbers."""

    def run(c: Context, *arrays: Any) -> Any:
        if not all(map(is_plain, arrays)):
            raise Refused("bits of computed numbers are not read")
        return rule(*arrays)

    return run


# -- casts -------------------------------------------------------------------------------------------------------------
def cast(c: Context, x: Any, to: str) -> Any:
    """To ``bool``, ``int`` or ``float``; from float to float nothing is rounded, so that exact numbers stay so.

    Raises ``InputError`` for numbers that are computed and cast to whole ones: what is cut off is not followed.
    """
    if to not in ("bool", "int", "float"):
        raise InputError(f"a cast to {to} is not read")
    if not is_plain(x):
        if to == "int":
            raise InputError("a cast of computed numbers to whole ones is not read")
        return x != 0 if to == "bool" else x
    return _plainly_cast(c, np.asarray(x), to)


def _plainly_cast(c: Context, x: np.ndarray, to: str) -> Any:
    if x.dtype == object:  # sizes that were left open
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
        return whole(x)
    if to == "float" and x.dtype == bool and c.kind is not None:
        return c.xp.where(x, c.lifted(1), c.lifted(0))
    wanted = {"bool": "b", "int": "iu", "float": "f"}[to]
    return x if x.dtype.kind in wanted else x.astype({"bool": bool, "int": np.int64, "float": np.float64}[to])


def cast_like(c: Context, x: object, like: Any) -> Any:
    """To the type of another array; numbers that are computed are floats."""
    return cast(c, x, "float" if not is_plain(like) else _KINDS.get(np.asarray(like).dtype.kind, "another type"))
