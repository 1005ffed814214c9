"""NumPy's own floating arrays, as a kind: the arithmetic that is being looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.document.errors import InputError

FORMATS = ("float64", "float32", "float16")
# What a cast to float64 would cut off, or take for a number.
_BEYOND = (complex, np.complexfloating, np.longdouble, np.datetime64, np.timedelta64)


@dataclass(frozen=True)
class Plain:
    """float64, float32 or float16 arrays; the namespace is NumPy."""

    name: str
    xp = np

    @property
    def dtype(self) -> Any:
        return np.dtype(self.name)

    def lift(self, data: object) -> np.ndarray:
        """Data rounded to the format; NaN and infinity are refused."""
        wide = numbers(self.name, data)
        with np.errstate(over="ignore"):
            return wide.astype(self.dtype)


def numbers(name: str, data: object) -> np.ndarray:
    """Data as float64, for the format ``name``; what NumPy does not read, such as "1/3", by way of exact numbers."""
    try:
        wide = np.asarray(real(data, name), dtype=np.float64)
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError):
        from symattn.arrays.exact import Exact

        double = np.vectorize(lambda x: x.to_float() if hasattr(x, "to_float") else np.nan, otypes=[float])
        wide = np.asarray(double(Exact.lift(data).entries))
    if not np.isfinite(wide).all():
        raise InputError(f"{name}: NaN or infinity in the data; only a mask may hold -inf")
    return wide


def real(data: object, place: str) -> np.ndarray:
    """Return ``data`` as an array of NumPy. Raises InputError for entries that float64 would cut off."""
    plain = np.asarray(data)
    for entry in map(type, plain.flat) if plain.dtype == object else (plain.dtype.type,):
        if issubclass(entry, _BEYOND):
            raise InputError(f"{place} holds {entry.__name__}; give real numbers, at most as wide as float64")
    return plain
