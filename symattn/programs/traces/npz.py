"""Files of ``numpy.savez``: arrays that are stored as they are, are mapped; compressed ones are read, if small.

Source: NumPy, ``numpy.lib.format``; PKWARE, APPNOTE.TXT, §4.3.7, the header in front of a file's bytes.
"""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from symattn.attention.codec.npz_arrays import described, plain
from symattn.document.errors import InputError

MOST_BYTES = 2**28  # of a compressed file, and of each array in it
_MOST_ARRAYS = 32
_LOCAL = 30  # bytes in front of the name


def read(path: Path) -> dict[str, np.ndarray]:
    """Name → array. Nothing is unpickled. Raises ``InputError``."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            packed = any(m.compress_type != zipfile.ZIP_STORED for m in members)
            if len(members) <= _MOST_ARRAYS and not packed:
                names = [m.filename for m in members]
                if len(set(names)) < len(names):
                    raise InputError(f"{path} holds {names[0][:40]!r} twice, or another name")
                return {m.filename.removesuffix(".npy"): _mapped(path, m) for m in members}
        return plain(str(path), _content(path), MOST_BYTES)
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a readable npz file: {str(error)[:100]}") from None


def _content(path: Path) -> bytes:
    if path.stat().st_size > MOST_BYTES:
        raise InputError(
            f"{path} is compressed and larger than {MOST_BYTES >> 20} MiB; hint: numpy.savez, uncompressed"
        )
    return path.read_bytes()


def _mapped(path: Path, member: zipfile.ZipInfo) -> np.ndarray:
    """An array that stands in the file as it is."""
    place = f"{path}: {member.filename[:40]!r}"
    with path.open("rb") as opened:
        opened.seek(member.header_offset)
        local = opened.read(_LOCAL)
        if len(local) < _LOCAL or local[:4] != b"PK\x03\x04":
            raise InputError(f"{place} is not where the file says; the file is damaged")
        lengths = (int.from_bytes(local[at : at + 2], "little") for at in (26, 28))
        start = member.header_offset + _LOCAL + sum(lengths)
        opened.seek(start)
        shape, fortran, dtype = described(opened, place)
        first = opened.tell()
    _check(place, dtype, math.prod(shape) * dtype.itemsize, member.file_size - (first - start))
    if first + math.prod(shape) * dtype.itemsize > path.stat().st_size:
        raise InputError(f"{place} ends behind the file's end; the file is cut off")
    if not math.prod(shape):
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=first, shape=shape, order="F" if fortran else "C")


def _check(place: str, dtype: np.dtype[Any], needed: int, there: int) -> None:
    if dtype.hasobject:
        raise InputError(f"{place} holds pickled objects, which are never loaded; hint: save an array of numbers")
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise InputError(f"{place} has the type {dtype}; hint: float64, float32, float16, or a safetensors file")
    if needed != there:
        raise InputError(f"{place} declares {needed} bytes, and holds {there}: the file is damaged")
