"""Sheets from Python: arrays by name, as nested lists of numbers or as arrays of NumPy or PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.plain import real
from symattn.attention.codec import npz_arrays as npz
from symattn.attention.codec.json_text import TypedNumber, short
from symattn.derivations.sheets.sheet import FLOATS, Sheet, check_size, from_data
from symattn.document.errors import InputError

NAME = "the arrays"


def sheet_of(data: Mapping[str, object]) -> Sheet:
    """The sheet of ``{"x": …, "w_q": …}``, or of a whole sheet as JSON has it. Raises InputError.

    Numbers in lists are taken as they are typed: 0.1 is 1/10. Floats of an array are taken at their binary value.
    """
    binary: list[bool] = []
    read = {str(key): _read(value, f"{NAME}: {key}", binary) for key, value in data.items()}
    return from_data(read, NAME, NAME, (FLOATS.format("an array"),) if any(binary) else ())


def _read(value: object, place: str, binary: list[bool]) -> Any:
    """Return the value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): _read(x, f"{place}: {key}", binary) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_read(x, place, binary) for x in value]
    if isinstance(value, str | Quotient) or value is None:
        return value
    if isinstance(value, np.generic | complex):
        value = real(value, place).item()
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        if value != value or value == math.inf:  # math.isnan refuses whole numbers that no float holds
            raise InputError(f"{place} holds {value}, which is not a number")
        return "-inf" if value == -math.inf else TypedNumber(repr(value))
    return _array(value, place, binary) if hasattr(value, "__array__") else TypedNumber(str(value))


def _array(value: Any, place: str, binary: list[bool]) -> Any:
    if hasattr(value, "detach"):  # of PyTorch, whose narrow types NumPy has not
        value = value.detach().cpu()
        value = value.double() if value.is_floating_point() else value
    array = real(value, place)
    check_size({place.rpartition(": ")[2]: array.shape}, NAME)
    if array.dtype.kind in "OU":
        return _read(array.tolist(), place, binary)
    if array.dtype.kind not in "biuf":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{place} has the type {short(str(array.dtype))}, which is not a number") from None
    whole = array.dtype.kind != "f" or bool((array == np.round(array)).all())
    binary.append(not whole)
    return npz.elements(array, place)
