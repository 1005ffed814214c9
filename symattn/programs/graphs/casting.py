"""Casts: which types there are, and what a cast does to numbers that are known, and to those that are computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.document.errors import InputError
from symattn.programs.graphs.ranges import whole
from symattn.programs.graphs.values import Context, is_plain

_KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float"}


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
