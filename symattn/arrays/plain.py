"""NumPy's own floating-point arrays as a kind: the arithmetic that is examined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.document.errors import InputError

# Formats that NumPy computes in itself.
FORMATS = ("float64", "float32", "float16")
# Types that a cast to float64 would truncate, or take for numbers.
_BEYOND = (
    complex,
    np.complexfloating,
    np.longdouble,
    np.datetime64,
    np.timedelta64,
    bytes,
    np.void,
)


@dataclass(frozen=True)
class Plain:
    """float64, float32 or float16 arrays; the namespace is NumPy."""

    name: str
    xp = np

    @property
    def dtype(self) -> Any:
        return np.dtype(self.name)

    def lift(self, data: object) -> np.ndarray:
        """Return data rounded to the format. Raises InputError for NaN and infinity."""
        wide = numbers(self.name, data)
        # Overflow to infinity is part of the arithmetic that is examined.
        with np.errstate(over="ignore"):
            return wide.astype(self.dtype)


def numbers(name: str, data: object) -> np.ndarray:
    """Return data as float64, for the format ``name``; text such as "1/3" is read as exact numbers first."""
    try:
        wide = np.asarray(real(data, name), dtype=np.float64)
    except InputError:
        raise
    # Fractions, texts and SymPy numbers are rounded once, from their exact values.
    except (TypeError, ValueError, OverflowError):
        from symattn.arrays.exact import Exact

        double = np.vectorize(
            lambda x: x.to_float() if hasattr(x, "to_float") else np.nan, otypes=[float]
        )
        wide = np.asarray(double(Exact.lift(data).entries))
    if not np.isfinite(wide).all():
        raise InputError(f"{name}: NaN or infinity in the data; only a mask may hold -inf")
    return wide


def of_tensor(data: Any, place: str) -> Any:
    """Return a tensor of PyTorch as an array of NumPy, narrow formats in float64, and anything else as it is.

    Raises InputError for a tensor without numbers, such as one on the device meta.
    """
    if type(data).__module__.partition(".")[0] != "torch" or not hasattr(data, "detach"):
        return data
    try:
        data = data.detach().cpu()
        # NumPy has no bfloat16, and float64 holds every narrower number.
        return (data.double() if data.is_floating_point() and data.itemsize < 4 else data).numpy()
    except (NotImplementedError, RuntimeError, TypeError) as error:
        raise InputError(
            f"{place} is a tensor without numbers to read: {str(error).splitlines()[0]}"
        ) from None


def of_tensors(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays by name, each as ``of_tensor`` does."""
    return {name: of_tensor(array, name) for name, array in arrays.items()}


def is_masked(data: object) -> bool:
    """Return whether an array has masked entries."""
    # Arrays of NumPy's own class have none, and the module of masked ones is slow to import.
    if not isinstance(data, np.ndarray) or type(data) is np.ndarray:
        return False
    return bool(np.ma.is_masked(data))


def real(data: object, place: str) -> np.ndarray:
    """Return ``data`` as a NumPy array. Raises InputError for entries that float64 would truncate, and masked ones."""
    plain = np.asarray(of_tensor(data, place))
    types = map(type, plain.flat) if plain.dtype == object else (plain.dtype.type,)
    beyond = [entry.__name__ for entry in types if issubclass(entry, _BEYOND)]
    for what in (*beyond, *["masked entries"] * is_masked(data)):
        raise InputError(f"{place} holds {what}; give real numbers, at most as wide as float64")
    return plain
