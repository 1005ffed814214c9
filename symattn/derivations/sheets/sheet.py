"""Sheets, the inputs of walks: a shipped example or a user's own file, JSON or npz, read without trusting it.

    {"schema": 1, "title": "…", "attention": {"scale": "none"}, "inputs": {"x": [["1/3", 2], …], "w_q": …}}
    {"x": [["1/3", 2], …], "w_q": …, "scale": "none"}

``inputs`` are the arrays of ``Attention``: x (y, w_q, …) or q, k, v, and what else the specification takes. Numbers are
taken exactly as typed: .1 is 1/10. ``attention`` holds fields of ``Attention``, see ``fields``. Both may stand at the
top level. Tokens without any weights are parameter-free attention, whose scores are not scaled unless the sheet says
so. Optional: ``title``,
``source``, ``notes`` (texts), ``tokens`` (their names), ``printed`` (what a text printed, see ``Printed``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.plain import real
from symattn.attention.codec import npz_arrays as npz
from symattn.attention.codec.exact_arrays import INPUTS, Entries, called, input_name, shape_of, suggested
from symattn.attention.codec.json_text import MOST_BYTES, TypedNumber, content, decoded, short
from symattn.attention.fields import field_types
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.spec import Attention
from symattn.derivations.sheets.schema import Printed, attention_of, printed_of, words_of
from symattn.document.codec import Record
from symattn.document.errors import InputError

SCHEMA = 1
MOST_SCORES = 4096
_KEYS = ("schema", "title", "source", "notes", "aliases", "tokens", "attention", "inputs", "printed")


@dataclass(frozen=True)
class Sheet:
    """The exact inputs of a walk, with their descriptions."""

    name: str
    title: str
    attention: Attention
    inputs: Mapping[str, Entries]
    source: str = ""
    notes: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    printed: Printed | None = None
    remarks: tuple[str, ...] = field(default=())


def read(path: str, name: str | None = None) -> Sheet:
    """Read the sheet in a file. Raises InputError, in one line, for anything wrong with it."""
    file = content(path, MOST_BYTES, ", which is more than a walk can show")
    if not file:
        raise InputError(f"{path} is empty")
    if file[:4] == b"PK\x03\x04" or Path(path).suffix.lower() in (".npz", ".npy"):
        return _from_arrays(path, file)
    return from_text(file, path, name or path)


def from_text(content: bytes, where: str, name: str) -> Sheet:
    """Read a sheet from JSON text."""
    return from_data(decoded(content, where), where, name)


def from_data(data: Any, where: str, name: str, remarks: tuple[str, ...] = ()) -> Sheet:
    """Read a sheet from decoded JSON, and add ``remarks``. Raises InputError."""
    if not isinstance(data, dict):
        kind = {list: "list", bool: "truth value", type(None): "null"}.get(type(data), "single value")
        raise InputError(f'{where}: a sheet is an object, {{"inputs": {{"x": …}}}}, not a {kind}')
    if data.get("kind") == "listing" and isinstance(data.get("sheet"), dict):
        data = data["sheet"]  # what `symattn examples show NAME -f json` writes
    data = _nested(data)
    _check_names(data, where)
    if str(data.get("schema", SCHEMA)) != str(SCHEMA):
        raise InputError(f"{where}: schema is {data['schema']}; this version of symattn reads {SCHEMA}")
    given, typed_decimals = _inputs(data, where)
    attention, more = _attention(data.get("attention", {}), given, where)
    typed = ("Decimals in the sheet are taken exactly as typed: 0.1 is 1/10.",) if typed_decimals else ()
    return Sheet(
        name,
        words_of(data, "title", where) or Path(where).name,
        attention,
        given,
        words_of(data, "source", where),
        _texts(data, "notes", where),
        _tokens(data, given, where),
        printed_of(data.get("printed"), where),
        (*typed, *remarks, *more),
    )


def _check_names(data: Mapping[str, object], where: str) -> None:
    fields = tuple(field_types(Attention))
    for key in data:
        if key not in _KEYS:
            suggestion = suggested(key, (*_KEYS, *INPUTS, *fields))
            more = "the arrays, such as x and w_q, and the fields of the attention, such as causal"
            raise InputError(f"{where}: unknown name {short(key)!r}.{suggestion} Known: {', '.join(_KEYS)}, {more}")


def _nested(data: Record) -> Record:
    """Return the sheet with arrays and fields moved from the top level to where they belong."""
    flat = {key: x for key, x in data.items() if key not in _KEYS}
    known_fields = field_types(Attention)
    arrays = {key: x for key, x in flat.items() if input_name(key) and (isinstance(x, list) or key not in known_fields)}
    fields = {key: x for key, x in flat.items() if key not in arrays and key in known_fields}
    moved = {"inputs": arrays, "attention": fields}
    remaining = {key: x for key, x in data.items() if key not in arrays and key not in fields}
    for key, result in moved.items():
        there = remaining.get(key, {})
        if result and isinstance(there, dict):
            remaining[key] = {**there, **result}
    return remaining


def _attention(data: object, entries: Mapping[str, Entries], where: str) -> tuple[Attention, tuple[str, ...]]:
    """Return the specification, and a remark if tokens without weights imply that scores are not scaled."""
    alone = "x" in entries and not any(name.startswith("w_") for name in entries)
    if alone and isinstance(data, dict) and not {"scale", "score"} & set(data):
        remark = "There are no weights: this is parameter-free attention, and its scores are not scaled."
        return attention_of({**data, "scale": "none"}, dict(entries), where), (remark,)
    return attention_of(data, dict(entries), where), ()


def _inputs(data: Record, where: str) -> tuple[dict[str, Entries], bool]:
    inputs = data.get("inputs")
    if not isinstance(inputs, dict) or not inputs:
        raise InputError(f'{where}: "inputs" is missing; hint: "inputs": {{"x": [[1, "1/2"], …]}}')
    return _entries(called(inputs, f"{where}: inputs"), shape_of, where)


def _entries(
    values: Mapping[str, object], shape: Callable[[Any], tuple[int, ...]], where: str
) -> tuple[dict[str, Entries], bool]:
    """Return the arrays as exact numbers, after a check of their sizes, and whether a decimal was typed."""
    from symattn.attention.codec.exact_arrays import array_of

    check_size({name: shape(array) for name, array in values.items()}, where)
    for name, array in values.items():
        if isinstance(array, list) and (size := _count(array)) > MOST_SCORES:
            raise InputError(f"{where}: {name} has {size} entries; a walk takes at most {MOST_SCORES}")
    result = {name: array_of(name, entries, where) for name, entries in values.items()}
    return {name: entries for name, (entries, _) in result.items()}, any(decimals for _, decimals in result.values())


def _count(entries: object) -> int:
    """Return how many numbers nested lists contain, ragged or not."""
    return sum(map(_count, entries)) if isinstance(entries, list) else 1


def check_size(shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Raise InputError for more than ``MOST_SCORES`` scores, or entries of an array."""
    for name, shape in shapes.items():
        size = prod(shape)
        if size > MOST_SCORES:
            sides = " × ".join(map(str, shape))
            raise InputError(f"{where}: {name} is {sides}, {size} entries; a walk takes at most {MOST_SCORES}")
    queries = shapes.get("x", shapes.get("q"))
    keys = shapes.get("y", shapes.get("x", shapes.get("k")))
    if queries is None or keys is None or len(queries) < 2 or len(keys) < 2:
        return
    if prod(queries[:-1]) * keys[-2] > MOST_SCORES:
        raise InputError(f"{where}: {queries[-2]} queries × {keys[-2]} keys; a walk takes at most {MOST_SCORES} scores")


def _from_arrays(path: str, content: bytes) -> Sheet:
    from symattn.attention.codec import npz_arrays as npz

    arrays = called(npz.plain(path, content), path)
    check_size({name: array.shape for name, array in arrays.items()}, path)
    inputs, _ = _entries({name: npz.elements(a, f"{path}: {name}") for name, a in arrays.items()}, shape_of, path)
    attention, remarks = _attention({}, inputs, path)
    return Sheet(path, Path(path).name, attention, inputs, remarks=(FLOATS.format("the file"), *remarks))


FLOATS = "Floats of {} are taken at their exact binary value: 0.1 is 3602879701896397/36028797018963968."


def _texts(data: Record, key: str, where: str) -> tuple[str, ...]:
    result = data.get(key, [])
    if not isinstance(result, list) or not all(isinstance(text, str) for text in result):
        raise InputError(f"{where}: {key} is a list of texts")
    return tuple(str(text) for text in result)


def _tokens(data: Record, entries: Mapping[str, Entries], where: str) -> tuple[str, ...]:
    tokens = _texts(data, "tokens", where)
    rows = shape_of(entries["x"] if "x" in entries else entries.get("q", []))
    if tokens and (len(rows) < 2 or len(tokens) != rows[-2]):
        raise InputError(f"{where}: {len(tokens)} tokens are named; the queries are {rows[-2] if len(rows) > 1 else 0}")
    return tokens


# -- fewer tokens ------------------------------------------------------------------------------------------------------
_TOKENS = ("n_q", "n_k")


def truncated(sheet: Sheet, tokens: int) -> Sheet:
    """Return the sheet with only the first tokens of each sequence, and without printed numbers.

    Raises InputError unless ``tokens`` is an integer from 1 to the number of tokens.
    """
    longest = max(
        n
        for name, entries in sheet.inputs.items()
        for n, letter in zip(shape_of(entries), _axes(name, entries), strict=True)
        if letter in _TOKENS
    )
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= longest:
        raise InputError(f"tokens is {tokens!r}; {sheet.name} has 1 to {longest}")
    inputs = {name: _cut(entries, _axes(name, entries), tokens) for name, entries in sheet.inputs.items()}
    return replace(sheet, inputs=inputs, tokens=sheet.tokens[:tokens], printed=None)


def _axes(name: str, entries: object) -> list[str]:
    """Return the letter of each axis, aligned at the last."""
    letters = [letter.strip("[]()?") for letter in ARRAYS[name].shape.split()]
    depth = len(shape_of(entries))
    return ["…"] * (depth - len(letters)) + letters[-depth:]


def _cut(entries: Any, axes: list[str], tokens: int) -> Any:
    if not axes:
        return entries
    first = entries[:tokens] if axes[0] in _TOKENS else entries
    return [_cut(entry, axes[1:], tokens) for entry in first]


# -- sheets from Python: arrays by name, as nested lists of numbers or as arrays of NumPy or PyTorch -------------------
NAME = "the arrays"


def sheet_of(data: Mapping[str, object]) -> Sheet:
    """Read a sheet from ``{"x": …, "w_q": …}``, or from a whole sheet as in JSON. Raises InputError.

    Numbers in lists count as typed: 0.1 is 1/10. Floats of an array count at their binary value.
    """
    binary: list[bool] = []
    read = {str(key): _read(value, f"{NAME}: {key}", binary) for key, value in data.items()}
    return from_data(read, NAME, NAME, (FLOATS.format("an array"),) if any(binary) else ())


def _read(value: object, place: str, binary: list[bool]) -> Any:
    """Return the value in the types of JSON."""
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
