"""Files of safetensors: 8 bytes with the length of a header, the header in JSON, and the numbers behind it.

The header is believed in nothing: it must be as long as it says, name types that are known, and divide what is behind
it into ranges that neither overlap nor leave anything out, each as long as its shape needs.
Source: the format's description in the repository of Hugging Face's safetensors, "Format".
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from symattn.document.errors import InputError

MOST_HEADER = 2**22  # bytes: some ten thousand arrays
_MOST_AXES = 16
_MOST_ENTRIES = 2**60  # by the lengths other than 0: NumPy makes no array beyond
_LENGTH = 8  # bytes of the number in front
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "I16": np.dtype(np.int16),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
}


class TensorRange(NamedTuple):
    """Where an array stands: its type, its shape, and its first byte and the one after its last behind the header."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    end: int


def read(path: Path) -> dict[str, np.ndarray]:
    """Name → array, mapped from the file: nothing but the header is read. Raises ``InputError``."""
    entries, start = _header(path)
    if not entries:
        raise InputError(f"{path} holds no array")
    if not any(e.end for e in entries.values()):
        return {name: np.zeros(e.shape, e.dtype) for name, e in entries.items()}
    whole = np.memmap(path, dtype=np.uint8, mode="r", offset=start)
    return {name: whole[e.start : e.end].view(e.dtype).reshape(e.shape) for name, e in entries.items()}


def _header(path: Path) -> tuple[dict[str, TensorRange], int]:
    """The arrays, and where the numbers begin."""
    size = path.stat().st_size
    with path.open("rb") as opened:
        first = opened.read(_LENGTH)
        length = int.from_bytes(first, "little")
        if len(first) < _LENGTH or length > size - _LENGTH:
            what = f"a header of {length} bytes is declared, and {max(size - _LENGTH, 0)} bytes follow"
            raise InputError(f"{path} is not a safetensors file, or is cut off: {what}")
        if length > MOST_HEADER:
            raise InputError(f"{path}: its header has {length} bytes; at most {MOST_HEADER} are read")
        result = _parsed(path, opened.read(length))
    result.pop("__metadata__", None)
    entries = {name: _entry(f"{path}: {name[:40]!r}", result[name]) for name in result}
    _check_ranges(path, entries, size - _LENGTH - length)
    return entries, _LENGTH + length


def _parsed(path: Path, header: bytes) -> dict[str, Any]:
    try:
        result = json.loads(header.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: its header cannot be read: {str(error)[:100]}") from None
    if not isinstance(result, dict):
        raise InputError(f"{path}: its header is not a JSON object")
    return result


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a name occurs in it twice")
    return result


def _entry(place: str, result: Any) -> TensorRange:
    result = result if isinstance(result, dict) else {}
    name, shape, ends = (result.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(name, str) or name not in DTYPES:
        raise InputError(f"{place} has the type {str(name)[:20]!r}; known: {', '.join(DTYPES)}")
    if not _whole(shape) or len(shape) > _MOST_AXES or not _whole(ends) or len(ends) != 2:
        raise InputError(f"{place}: shape and data_offsets must be lists of whole numbers from 0 on")
    if 0 in shape and math.prod(n for n in shape if n) >= _MOST_ENTRIES:
        raise InputError(f"{place} declares the shape {shape}, which no array has")
    needed = math.prod(shape) * DTYPES[name].itemsize
    if ends[1] - ends[0] != needed:
        raise InputError(f"{place} has the shape {tuple(shape)}, {needed} bytes, and its range is {ends}")
    return TensorRange(DTYPES[name], tuple(shape), *ends)


def _whole(x: object) -> bool:
    return isinstance(x, list) and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**60 for n in x)


def _check_ranges(path: Path, entries: dict[str, TensorRange], there: int) -> None:
    """The ranges, one after another, are all that is behind the header."""
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.start != at:
            word = "overlaps the one before" if entry.start < at else "leaves bytes out before it"
            raise InputError(f"{path}: the range of {name[:40]!r} {word}, {entry.start}, expected {at}")
        at = entry.end
    if at != there:
        raise InputError(f"{path}: its arrays need {at} bytes, and it has {there}; the file is damaged")
