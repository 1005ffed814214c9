"""Inputs that a user gives in a file of arrays: q, k, v and what else the specification has."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from symattn.arrays.plain import real
from symattn.arrays.precision import Precision
from symattn.attention import inputs, letters_of_attention
from symattn.attention.codec.json_text import called, content
from symattn.attention.codec.npz_arrays import plain
from symattn.attention.spec import Attention
from symattn.document.errors import InputError

MOST_BYTES = 2**28  # of the file, and of each array


def read(path: str, spec: Attention, precision: Precision) -> dict[str, np.ndarray]:
    """The arrays of an npz file as float64, each number one of the precision's input format.

    Raises ``InputError``, in one line, where the file cannot be read, lacks an input of the specification, or holds
    numbers that the format does not. Nothing is unpickled, and no more is read than the header declares.
    """
    return _checked(
        called(plain(path, content(path, MOST_BYTES, "; hint: fewer rows"), MOST_BYTES), path), path, spec, precision
    )


def checked(arrays: Mapping[str, object], spec: Attention, precision: Precision) -> dict[str, np.ndarray]:
    """Check arrays by name. Raises ``InputError``."""
    try:
        result = {name: real(array, f"inputs: {name}") for name, array in called(arrays, "inputs").items()}
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"inputs: no array can be made: {error}") from None
    return _checked(result, "inputs", spec, precision)


def _checked(
    results: Mapping[str, np.ndarray], where: str, spec: Attention, precision: Precision
) -> dict[str, np.ndarray]:
    wanted = ("q", "k", "v", *inputs.required(spec))
    for name in wanted:
        if name not in results:
            raise InputError(f"{where} has no array {name}; it holds {', '.join(results) or 'nothing'}")
    for name in results:
        if name not in wanted:
            raise InputError(f"{where}: {name} is not an input of this attention; it takes {', '.join(wanted)}")
    return {name: _numbers(name, results[name], f"{where}: {name}", precision) for name in wanted}


def _numbers(name: str, a: np.ndarray, place: str, precision: Precision) -> np.ndarray:
    """Whole numbers as floats where numbers are meant, and not positions or labels."""
    if a.dtype.kind == "b" or (a.dtype.kind in "iu" and letters_of_attention.ARRAYS[name].holds != "numbers"):
        return a
    wide = a.astype(np.float64)
    if np.isnan(wide).any() or np.isposinf(wide).any():
        raise InputError(f"{place} must hold finite numbers (a mask also −inf), but holds NaN or infinity")
    if not np.array_equal(precision.input.rounded(wide), wide):
        raise InputError(f"{place} holds numbers that {precision.input.name} does not; hint: round them, or --dtype")
    return wide
