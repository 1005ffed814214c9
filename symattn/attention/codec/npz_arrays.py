"""Arrays of an untrusted npz file: nothing is unpickled, and no more is read than the header declares."""

from __future__ import annotations

import io
import lzma
import math
import zipfile
import zlib
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.special import FORBIDDEN
from symattn.attention.codec import exact_arrays
from symattn.attention.codec.json_text import short
from symattn.document.errors import InputError

MOST_BYTES = 2**20  # per array: far more than a walk can show
# More arrays than attention has inputs.
_MOST_ARRAYS = 32
# Versions of the npy format with readers that unpickle nothing.
_VERSIONS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
# The most axes that all versions of NumPy allow.
_MOST_AXES = 32
_MOST_ENTRIES = 2**60  # the product of the lengths other than 0; NumPy makes no larger array
# What readers raise on damaged archives.
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
    ValueError,
)


def plain(path: str, content: bytes, most: int = MOST_BYTES) -> dict[str, np.ndarray]:
    """Return the stored arrays by name, each of at most ``most`` bytes. Raises InputError."""
    # numpy.save writes an array without the name that it should have here.
    if content[:6] == npy.MAGIC_PREFIX:
        raise InputError(f"{path} is a single array; hint: numpy.savez(file, x=…, w_q=…, …)")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if len(members) > _MOST_ARRAYS:
                raise InputError(
                    f"{path} holds {len(members)} files; at most {_MOST_ARRAYS} arrays are read"
                )
            names = [_name_of_npz_array(member, path) for member in members]
            # A zip file may hold a name twice, and programs differ in which of the two they read.
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise InputError(f"{path} holds {short(twice)!r} twice")
            return {
                name: _read_npz_array(archive, member, path, most)
                for name, member in zip(names, members, strict=True)
            }
    except InputError:
        raise
    except _BROKEN as error:
        what = short(str(error) or type(error).__name__)
        raise InputError(f"{path} is not a readable npz file: {what}") from None


def _name_of_npz_array(member: zipfile.ZipInfo, path: str) -> str:
    if not member.filename.endswith(".npy"):
        raise InputError(f"{path} holds {short(member.filename)!r}, which is not an array")
    return member.filename.removesuffix(".npy")


def _read_npz_array(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: str, most: int
) -> np.ndarray:
    place = f"{path}: {short(_name_of_npz_array(member, path))}"
    # The declared size is checked first; a false one is caught by the limit on reading.
    if member.file_size > most:
        raise InputError(f"{place} unpacks to {member.file_size} bytes; at most {most} are read")
    with archive.open(member) as opened:
        stream = io.BytesIO(opened.read(most + 1))
    length = len(stream.getvalue())
    shape, _, dtype = described(stream, place)
    # Before NumPy allocates what the header declares.
    check_declared(shape, dtype, length - stream.tell(), place)
    stream.seek(0)
    return np.asarray(npy.read_array(stream, allow_pickle=False))


def described(stream: BinaryIO, place: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether the order is Fortran's, and dtype, as the header of an array declares them.

    Raises ValueError for a header that cannot be read, and InputError for impossible lengths.
    """
    version = npy.read_magic(stream)
    if version not in _VERSIONS:
        raise InputError(
            f"{place} is written in version {version} of the npy format; 1.0 and 2.0 are read"
        )
    try:
        shape, fortran, dtype = _VERSIONS[version](stream)
    except Exception as error:  # its type depends on where NumPy's parser of literals gives up
        raise ValueError(f"the header of an array: {str(error) or type(error).__name__}") from None
    if not all(type(n) is int and n >= 0 for n in shape):
        raise InputError(
            f"{place} declares the shape {short(str(shape))}; lengths are whole numbers from 0 on"
        )
    if len(shape) > _MOST_AXES or (
        0 in shape and math.prod(n for n in shape if n) >= _MOST_ENTRIES
    ):
        raise InputError(f"{place} declares the shape {short(str(shape))}, which no array has")
    return shape, fortran, dtype


def check_declared(shape: tuple[int, ...], dtype: np.dtype[Any], there: int, place: str) -> None:
    """Check the declared dtype and size, before any memory is allocated. Raises InputError."""
    if dtype.hasobject:
        raise InputError(
            f"{place} holds pickled objects, which are never loaded; hint: save an array of numbers"
        )
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise InputError(
            f"{place} has the type {dtype}; hint: save float64, float32, float16, integers or booleans"
        )
    declared = math.prod(shape) * dtype.itemsize
    if declared != there:
        raise InputError(
            f"{place} declares {declared} bytes, shape {shape}, and holds {there}: the file is damaged"
        )


def elements(array: np.ndarray, place: str) -> Any:
    """Return the array as nested lists of exact numbers. Raises InputError."""
    if array.ndim == 0:
        raise InputError(f"{place} must be a matrix, got a single number")
    if array.dtype.kind == "f":
        minus_infinity_too = place.endswith(tuple(f": {name}" for name in exact_arrays.INFINITE))
        bad = ~(np.isfinite(array) | (np.isneginf(array) if minus_infinity_too else False))
        if bad.any():
            index = [int(i) for i in np.argwhere(bad)[0]]
            at = "".join(f"[{i + 1}]" for i in index)
            raise InputError(f"{place}{at} is {array[tuple(index)]}, which is not a number")
    result = array.tolist()
    return result if array.dtype.kind == "b" else _convert_floats_to_quotients(result)


def _convert_floats_to_quotients(x: object) -> Any:
    if isinstance(x, list):
        return [_convert_floats_to_quotients(entry) for entry in x]
    return FORBIDDEN if x == -math.inf else Quotient.of(x)
