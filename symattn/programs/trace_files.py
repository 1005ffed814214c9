"""Traces: files of safetensors or ``numpy.savez``, with arrays renamed to the inputs of a specification."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from symattn.attention.codec.npz_arrays import check_declared, described
from symattn.attention.codec.npz_arrays import plain as unpacked
from symattn.attention.inputs import accepted, check_inputs, required
from symattn.attention.spec import Attention
from symattn.bounds.judgement import element
from symattn.document.errors import InputError
from symattn.document.keywords import plain
from symattn.programs.frameworks import read as numbers
from symattn.programs.names import TRACES, is_trace, meaning

# -- safetensors -------------------------------------------------------------------------------------------------------
# 8 bytes with the length of a header, the header in JSON, and the numbers after it. Everything in the header is
# checked: its length, its types, and that its ranges cover all that follows without gaps or overlaps, each as long as
# its shape needs.
#
# Source: the format's description in the repository of Hugging Face's safetensors, "Format".
MOST_HEADER = 2**22  # bytes: some ten thousand arrays
# More axes than this are taken for a damaged file.
_MOST_AXES = 16
_MOST_ENTRIES = 2**60  # product of the lengths other than 0; NumPy makes no larger array
_LENGTH = 8  # bytes of the leading number
#: Types of safetensors that are read.
DTYPES: dict[str, np.dtype] = {
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
    """The place of an array: its type, its shape, and its byte range after the header."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    end: int


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays by name, mapped from the file: only the header is read. Raises ``InputError``."""
    entries, start = _read_safetensors_header(path)
    if not entries:
        raise InputError(f"{path} holds no array")
    # No bytes follow the header, and nothing can be mapped.
    if not any(e.end for e in entries.values()):
        return {name: np.zeros(e.shape, e.dtype) for name, e in entries.items()}
    whole = np.memmap(path, dtype=np.uint8, mode="r", offset=start)
    return {
        name: whole[e.start : e.end].view(e.dtype).reshape(e.shape) for name, e in entries.items()
    }


def _read_safetensors_header(path: Path) -> tuple[dict[str, TensorRange], int]:
    """Return the ranges of the arrays, and the offset of the numbers."""
    size = path.stat().st_size
    with path.open("rb") as opened:
        first = opened.read(_LENGTH)
        length = int.from_bytes(first, "little")
        # Checked before the header is read, since the number may be anything.
        if len(first) < _LENGTH or length > size - _LENGTH:
            what = (
                f"a header of {length} bytes is declared, and {max(size - _LENGTH, 0)} bytes follow"
            )
            raise InputError(f"{path} is not a safetensors file, or is cut off: {what}")
        if length > MOST_HEADER:
            raise InputError(
                f"{path}: its header has {length} bytes; at most {MOST_HEADER} are read"
            )
        result = _parse_header_json(path, opened.read(length))
    result.pop("__metadata__", None)
    entries = {name: _parse_tensor_range(f"{path}: {name[:40]!r}", result[name]) for name in result}
    _check_ranges(path, entries, size - _LENGTH - length)
    return entries, _LENGTH + length


def _parse_header_json(path: Path, header: bytes) -> dict[str, object]:
    try:
        result = json.loads(header.decode("utf-8"), object_pairs_hook=_refuse_repeated_json_names)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: its header cannot be read: {str(error)[:100]}") from None
    if not isinstance(result, dict):
        raise InputError(f"{path}: its header is not a JSON object")
    return result


def _refuse_repeated_json_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a name occurs in it twice")
    return result


def _parse_tensor_range(place: str, result: Any) -> TensorRange:
    result = result if isinstance(result, dict) else {}
    name, shape, ends = (result.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(name, str) or name not in DTYPES:
        raise InputError(f"{place} has the type {str(name)[:20]!r}; known: {', '.join(DTYPES)}")
    if (
        not _is_whole_number_list(shape)
        or len(shape) > _MOST_AXES
        or not _is_whole_number_list(ends)
        or len(ends) != 2
    ):
        raise InputError(
            f"{place}: shape and data_offsets must be lists of whole numbers from 0 on"
        )
    # Without entries no bytes are needed, so the other lengths have a limit of their own.
    if 0 in shape and math.prod(n for n in shape if n) >= _MOST_ENTRIES:
        raise InputError(f"{place} declares the shape {shape}, which no array has")
    needed = math.prod(shape) * DTYPES[name].itemsize
    if ends[1] - ends[0] != needed:
        raise InputError(
            f"{place} has the shape {tuple(shape)}, {needed} bytes, and its range is {ends}"
        )
    return TensorRange(DTYPES[name], tuple(shape), *ends)


def _is_whole_number_list(x: object) -> bool:
    return isinstance(x, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**60 for n in x
    )


def _check_ranges(path: Path, entries: dict[str, TensorRange], there: int) -> None:
    """Raise ``InputError`` unless the ranges exactly cover what follows the header."""
    at = 0
    # In the order of the ranges; names may have another order.
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.start != at:
            word = "overlaps the one before" if entry.start < at else "leaves a gap before it"
            raise InputError(
                f"{path}: the range of {name[:40]!r} {word}, {entry.start}, expected {at}"
            )
        at = entry.end
    if at != there:
        raise InputError(
            f"{path}: its arrays need {at} bytes, and it has {there}; the file is damaged"
        )


# -- npz ---------------------------------------------------------------------------------------------------------------
# Files of ``numpy.savez``: uncompressed arrays are mapped; compressed ones are read, if small.
#
# Source: NumPy, ``numpy.lib.format``; PKWARE, APPNOTE.TXT, §4.3.7, local file header.

MOST_BYTES = 2**28  # of a compressed file, and of each array in it
# Archives of more arrays are unpacked within a limit of bytes.
_MOST_ARRAYS = 32
_LOCAL = 30  # bytes before the name


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays by name. Nothing is unpickled. Raises ``InputError``."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            # Stored members can be mapped; compressed ones must be read.
            packed = any(m.compress_type != zipfile.ZIP_STORED for m in members)
            if len(members) <= _MOST_ARRAYS and not packed:
                names = [m.filename for m in members]
                if len(set(names)) < len(names):
                    raise InputError(f"{path} holds {names[0][:40]!r} twice, or another name")
                return {
                    m.filename.removesuffix(".npy"): _map_array_from_archive(path, m)
                    for m in members
                }
        if path.stat().st_size > MOST_BYTES:
            most = f"{MOST_BYTES >> 20} MiB"
            raise InputError(
                f"{path} is compressed and larger than {most}; hint: numpy.savez, uncompressed"
            )
        return unpacked(str(path), path.read_bytes(), MOST_BYTES)
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a readable npz file: {str(error)[:100]}") from None


def _map_array_from_archive(path: Path, member: zipfile.ZipInfo) -> np.ndarray:
    """Map an uncompressed array from the file."""
    place = f"{path}: {member.filename[:40]!r}"
    with path.open("rb") as opened:
        opened.seek(member.header_offset)
        local = opened.read(_LOCAL)
        if len(local) < _LOCAL or local[:4] != b"PK\x03\x04":
            raise InputError(f"{place} is not where the file says; the file is damaged")
        # The local header has a name and an extra field of its own, whose lengths are these.
        lengths = (int.from_bytes(local[at : at + 2], "little") for at in (26, 28))
        start = member.header_offset + _LOCAL + sum(lengths)
        opened.seek(start)
        shape, fortran, dtype = described(opened, place)
        first = opened.tell()
    check_declared(shape, dtype, member.file_size - (first - start), place)
    if first + math.prod(shape) * dtype.itemsize > path.stat().st_size:
        raise InputError(f"{place} ends beyond the end of the file; the file is cut off")
    # An array without entries cannot be mapped.
    if not math.prod(shape):
        return np.zeros(shape, dtype)
    return np.memmap(
        path, dtype=dtype, mode="r", offset=first, shape=shape, order="F" if fortran else "C"
    )


# -- a trace: the arrays of a file under the names of a specification, not yet read ------------------------------------
#: The reader of files with each suffix.
_READERS = dict(zip(TRACES, (read_safetensors, read_npz), strict=True))
#: Names of results in a trace.
_MADE = {
    "o": "o out output attn_output attention_output",
    "lse": "lse logsumexp softmax_lse",
    "weights": "weights attn_weights attention_weights probs attn_probs",
    "scores": "scores attn_scores",
}
#: The result that a name stands for.
_WORDS = {plain(word): name for name, words in _MADE.items() for word in words.split()}
#: Orders of axes that a trace may have.
LAYOUTS = ("nd", "bnd", "nhd", "bhnd", "bnhd")


def read(path: str, spec: Attention, layout: str | None = None) -> dict[str, np.ndarray]:
    """Return q, k, v, o, other inputs of ``spec``, and lse, weights and scores if the file has them; arrays (…, n, d).

    Common names (``query``, ``attn_output``) are understood; ``layout`` is the order of the axes if it is not
    (…, heads, n, d). Arrays are mapped, not read. Raises ``InputError`` for a file that cannot be read or is damaged,
    for missing arrays, and for arrays whose meaning is unclear.
    """
    # The suffix says how the file is read.
    file = Path(path)
    if not is_trace(path):
        raise InputError(f"{path} is not named like a trace; names end in {' or '.join(_READERS)}")
    try:
        result = _READERS[file.suffix.lower()](file)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    named = _rename_trace_arrays(path, result)
    for name in ("q", "k", "v", "o", *required(spec)):
        if name not in named:
            raise InputError(
                f"{path} has no array {name}; it holds {', '.join(sorted(result))[:200] or 'nothing'}"
            )
    # An array that is not used may be a mistake in the command.
    for name in named:
        if name not in {*"qkv", *_MADE, *accepted(spec)}:
            raise InputError(
                f"{path} holds {name}, which this attention does not take; hint: ask for it (--{name} …)"
            )
    return {name: _in_order(f"{path}: {name}", a, name, layout) for name, a in named.items()}


def _rename_trace_arrays(path: str, results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    named: dict[str, np.ndarray] = {}
    for name, array in results.items():
        # Names of traces come first, then those of parameters.
        known = _WORDS.get(plain(name)) or meaning(name)
        if known is None:
            raise InputError(
                f"{path}: nothing says what the array {name[:40]!r} is; hint: call it q, k, v, mask, {', '.join(_MADE)}"
            )
        # Two arrays with one meaning: neither can be chosen.
        if known in named:
            raise InputError(
                f"{path} holds two arrays that may be {known}, one of them {name[:40]!r}"
            )
        named[known] = array
    return named


def _in_order(place: str, a: np.ndarray, name: str, layout: str | None) -> np.ndarray:
    # Other inputs and results have one order of axes.
    if name not in {*"qkvo"}:
        return a
    if layout not in (None, *LAYOUTS):
        raise InputError(f"the layout {layout} is not one of a trace; known: {', '.join(LAYOUTS)}")
    if a.ndim < 2 or (layout and a.ndim != len(layout)):
        raise InputError(
            f"{place} has {a.ndim} axes; the layout {layout or '(…, n, d)'} is expected"
        )
    # Heads are moved before the tokens.
    return a.swapaxes(-2, -3) if layout in ("nhd", "bnhd") else a


# -- the pieces in which a large trace is judged: one element of the batch, and one head if heads are independent ------
#: Results in a trace, which are judged.
MADE = ("o", "lse", "weights", "scores")
MOST = 2**26  # entries of a piece: half a GiB in float64


class TracePiece(NamedTuple):
    """A specification, its inputs, the results in the trace, and their place in the trace."""

    spec: Attention
    inputs: dict[str, np.ndarray]
    made: dict[str, np.ndarray]
    place: tuple[int, ...]
    whole: TracePiece | None = None  # all heads, if this is one of them


def floats(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return inputs with floats of any format as float64, and masks and whole numbers as they are."""
    return {name: a if a.dtype.kind in "biu" else numbers(a)[0] for name, a in inputs.items()}


def count(spec: Attention, arrays: Mapping[str, np.ndarray]) -> int:
    """Return the number of pieces."""
    front = arrays["q"].shape[: -2 - (spec.heads > 1)]
    return int(np.prod(front, dtype=int)) * (spec.heads if _are_heads_independent(spec) else 1)


def pieces(spec: Attention, arrays: Mapping[str, np.ndarray]) -> Iterator[TracePiece]:
    """Yield all pieces, reading each only when it is needed.

    Raises ``InputError`` for arrays that do not fit the specification or each other, and for pieces of more than
    ``MOST`` entries.
    """
    inputs = {name: a for name, a in arrays.items() if name not in MADE}
    # Single zeros are broadcast, so that shapes are checked without reading numbers.
    zeros = {
        name: np.zeros((), a.dtype if a.dtype.kind in "biu" else np.float64)
        for name, a in inputs.items()
    }
    # needs no memory
    check_inputs(spec, {name: np.broadcast_to(zeros[name], a.shape) for name, a in inputs.items()})
    own = 2 + (spec.heads > 1)
    front = arrays["q"].shape[: arrays["q"].ndim - own]
    _check_made(spec, arrays, front)
    for index in np.ndindex(front):
        element_inputs = element(spec, inputs, index)
        result = {name: arrays[name][index] for name in MADE if name in arrays}
        whole = TracePiece(spec, element_inputs, result, index)
        for piece in _yield_heads_of_piece(whole) if _are_heads_independent(spec) else (whole,):
            size = max(a.size for a in (*piece.inputs.values(), piece.made["o"]))
            if size > MOST:
                words = f"an array of {size} entries; at most {MOST} are judged at once"
                raise InputError(f"one head of the trace has {words}")
            yield piece


def _are_heads_independent(spec: Attention) -> bool:
    """Return whether each head by itself is an attention with one head."""
    apart = spec.sink is None and spec.scale != "given" and spec.qk_norm_over == "head"
    return spec.heads > 1 and spec.position is None and apart


def _yield_heads_of_piece(piece: TracePiece) -> Iterator[TracePiece]:
    spec = piece.spec
    alone = replace(spec, heads=1, kv_heads=None)
    masks = [n for n, a in piece.inputs.items() if n in ("mask", "bias") and a.ndim == 3]
    for head in range(spec.heads):
        at = {"q": head, "k": head // spec.group, "v": head // spec.group}
        # A mask with one head applies to all heads.
        at |= {n: min(head, piece.inputs[n].shape[0] - 1) for n in masks}
        inputs = {n: np.asarray(a[at[n]]) if n in at else a for n, a in piece.inputs.items()}
        result = {name: a[head] for name, a in piece.made.items()}
        yield TracePiece(alone, inputs, result, (*piece.place, head), piece)


def _check_made(spec: Attention, arrays: Mapping[str, np.ndarray], front: tuple[int, ...]) -> None:
    """Raise ``InputError`` if a result has another shape than the specification gives."""
    heads = (spec.heads,) if spec.heads > 1 else ()
    n_q = arrays["q"].shape[-2]
    n_k = arrays["k"].shape[-2]
    d_v = arrays["v"].shape[-1]
    # Logarithms and weights have no axis of columns.
    own = {"o": (n_q, d_v), "lse": (n_q,), "weights": (n_q, n_k), "scores": (n_q, n_k)}
    for name in MADE:
        wanted = (*front, *heads, *own[name])
        if name in arrays and arrays[name].shape != wanted:
            raise InputError(
                f"{name} has the shape {arrays[name].shape}, expected {wanted}; hint: --heads, --layout"
            )
