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
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.plain import real
from symattn.attention.codec import exact_arrays
from symattn.attention.codec import npz_arrays as npz
from symattn.attention.codec.field_values import field_of, made_of
from symattn.attention.codec.json_text import TypedNumber, content, decoded, refuse_unknown, short
from symattn.attention.fields import field_types
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.spec import Attention
from symattn.document.codec import Record
from symattn.document.errors import InputError
from symattn.document.keywords import is_integer_within, unknown

# Of a sheet: far more than a description with its arrays needs.
_MOST_BYTES = 8 * 2**20


# The version of the form of sheets; others are refused.
SCHEMA = 1
# Scores, or entries of an array: exact arithmetic on more would take too long for a walk.
MOST_SCORES = 4096
_KEYS = (
    "schema",
    "title",
    "source",
    "notes",
    "aliases",
    "tokens",
    "attention",
    "inputs",
    "printed",
)


@dataclass(frozen=True)
class Sheet:
    """The exact inputs of a walk, with their descriptions."""

    name: str
    title: str
    attention: Attention
    inputs: Mapping[str, exact_arrays.Entries]
    source: str = ""
    notes: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    printed: Printed | None = None
    remarks: tuple[str, ...] = field(default=())


def read(path: str, name: str | None = None) -> Sheet:
    """Read the sheet in a file. Raises InputError, in one line, for anything wrong with it."""
    file = content(path, _MOST_BYTES, ", which is more than a walk can show")
    if not file:
        raise InputError(f"{path} is empty")
    # By its first bytes, or by its name: an archive of NumPy arrays.
    if file[:4] == b"PK\x03\x04" or Path(path).suffix.lower() in (".npz", ".npy"):
        from symattn.attention.codec import npz_arrays as npz

        arrays = exact_arrays.called(npz.plain(path, file), path)
        check_size({name: array.shape for name, array in arrays.items()}, path)
        elements = {name: npz.elements(a, f"{path}: {name}") for name, a in arrays.items()}
        inputs, _ = _read_exact_entries(elements, exact_arrays.shape_of, path)
        attention, remarks = _read_sheet_attention({}, inputs, path)
        return Sheet(
            path, Path(path).name, attention, inputs, remarks=(FLOATS.format("the file"), *remarks)
        )
    return from_text(file, path, name or path)


def from_text(content: bytes, where: str, name: str) -> Sheet:
    """Read a sheet from JSON text."""
    return from_data(decoded(content, where), where, name)


def from_data(data: Any, where: str, name: str, remarks: tuple[str, ...] = ()) -> Sheet:
    """Read a sheet from decoded JSON, and add ``remarks``. Raises InputError."""
    if not isinstance(data, dict):
        kind = {list: "list", bool: "truth value", type(None): "null"}.get(
            type(data), "single value"
        )
        raise InputError(f'{where}: a sheet is an object, {{"inputs": {{"x": …}}}}, not a {kind}')
    if data.get("kind") == "listing" and isinstance(data.get("sheet"), dict):
        data = data["sheet"]  # what `symattn examples show NAME -f json` writes
    data = _nest_flat_sheet(data)
    _check_names(data, where)
    if str(data.get("schema", SCHEMA)) != str(SCHEMA):
        raise InputError(
            f"{where}: schema is {data['schema']}; this version of symattn reads {SCHEMA}"
        )
    inputs, typed_decimals = _read_sheet_inputs(data, where)
    attention, more = _read_sheet_attention(data.get("attention", {}), inputs, where)
    typed = (
        ("Decimals in the sheet are taken exactly as typed: 0.1 is 1/10.",)
        if typed_decimals
        else ()
    )
    return Sheet(
        name,
        words_of(data, "title", where) or Path(where).name,
        attention,
        inputs,
        words_of(data, "source", where),
        _read_sheet_texts(data, "notes", where),
        _read_sheet_tokens(data, inputs, where),
        printed_of(data.get("printed"), where),
        (*typed, *remarks, *more),
    )


def _check_names(data: Mapping[str, object], where: str) -> None:
    fields = tuple(field_types(Attention))
    for key in data:
        if key not in _KEYS:
            suggestion = exact_arrays.suggested(key, (*_KEYS, *exact_arrays.INPUTS, *fields))
            more = "the arrays, such as x and w_q, and the fields of the attention, such as causal"
            raise InputError(
                f"{where}: unknown name {short(key)!r}.{suggestion} Known: {', '.join(_KEYS)}, {more}"
            )


def _nest_flat_sheet(data: Record) -> Record:
    """Return the sheet with arrays and fields moved from the top level to where they belong."""
    flat = {key: x for key, x in data.items() if key not in _KEYS}
    known_fields = field_types(Attention)
    arrays = {
        key: x
        # A list is an array even where a field of the attention has the same name.
        for key, x in flat.items()
        if exact_arrays.input_name(key) and (isinstance(x, list) or key not in known_fields)
    }
    fields = {key: x for key, x in flat.items() if key not in arrays and key in known_fields}
    moved = {"inputs": arrays, "attention": fields}
    remaining = {key: x for key, x in data.items() if key not in arrays and key not in fields}
    for key, result in moved.items():
        there = remaining.get(key, {})
        if result and isinstance(there, dict):
            remaining[key] = {**there, **result}
    return remaining


def _read_sheet_attention(
    data: object, entries: Mapping[str, exact_arrays.Entries], where: str
) -> tuple[Attention, tuple[str, ...]]:
    """Return the specification, and a remark if tokens without weights imply that scores are not scaled."""
    alone = "x" in entries and not any(name.startswith("w_") for name in entries)
    # Without weights, a scale is a choice that the sheet must state, so none is assumed.
    if alone and isinstance(data, dict) and not {"scale", "score"} & set(data):
        remark = (
            "There are no weights: this is parameter-free attention, and its scores are not scaled."
        )
        return attention_of({**data, "scale": "none"}, dict(entries), where), (remark,)
    return attention_of(data, dict(entries), where), ()


def _read_sheet_inputs(data: Record, where: str) -> tuple[dict[str, exact_arrays.Entries], bool]:
    inputs = data.get("inputs")
    if not isinstance(inputs, dict) or not inputs:
        raise InputError(f'{where}: "inputs" is missing; hint: "inputs": {{"x": [[1, "1/2"], …]}}')
    return _read_exact_entries(
        exact_arrays.called(inputs, f"{where}: inputs"), exact_arrays.shape_of, where
    )


def _read_exact_entries(
    values: Mapping[str, object], shape: Callable[[Any], tuple[int, ...]], where: str
) -> tuple[dict[str, exact_arrays.Entries], bool]:
    """Return the arrays as exact numbers, after a check of their sizes, and whether a decimal was typed."""
    from symattn.attention.codec import exact_arrays

    # Sizes first, since reading exact numbers takes time.
    check_size({name: shape(array) for name, array in values.items()}, where)
    for name, array in values.items():
        if isinstance(array, list) and (size := _count_nested_numbers(array)) > MOST_SCORES:
            raise InputError(
                f"{where}: {name} has {size} entries; a walk takes at most {MOST_SCORES}"
            )
    result = {name: exact_arrays.array_of(name, entries, where) for name, entries in values.items()}
    named_entries = {name: entries for name, (entries, _) in result.items()}
    return named_entries, any(decimals for _, decimals in result.values())


def _count_nested_numbers(entries: object) -> int:
    """Return how many numbers nested lists contain, ragged or not."""
    return sum(map(_count_nested_numbers, entries)) if isinstance(entries, list) else 1


def check_size(shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Raise InputError for more than ``MOST_SCORES`` scores, or entries of an array."""
    for name, shape in shapes.items():
        size = prod(shape)
        if size > MOST_SCORES:
            sides = " × ".join(map(str, shape))
            raise InputError(
                f"{where}: {name} is {sides}, {size} entries; a walk takes at most {MOST_SCORES}"
            )
    queries = shapes.get("x", shapes.get("q"))
    keys = shapes.get("y", shapes.get("x", shapes.get("k")))
    # Shapes that do not fit are refused later, with a better message.
    if queries is None or keys is None or len(queries) < 2 or len(keys) < 2:
        return
    if prod(queries[:-1]) * keys[-2] > MOST_SCORES:
        raise InputError(
            f"{where}: {queries[-2]} queries × {keys[-2]} keys; a walk takes at most {MOST_SCORES} scores"
        )


FLOATS = (
    "Floats of {} are taken at their exact binary value: 0.1 is 3602879701896397/36028797018963968."
)


def _read_sheet_texts(data: Record, key: str, where: str) -> tuple[str, ...]:
    result = data.get(key, [])
    if not isinstance(result, list) or not all(isinstance(text, str) for text in result):
        raise InputError(f"{where}: {key} is a list of texts")
    return tuple(str(text) for text in result)


def _read_sheet_tokens(
    data: Record, entries: Mapping[str, exact_arrays.Entries], where: str
) -> tuple[str, ...]:
    tokens = _read_sheet_texts(data, "tokens", where)
    rows = exact_arrays.shape_of(entries["x"] if "x" in entries else entries.get("q", []))
    if tokens and (len(rows) < 2 or len(tokens) != rows[-2]):
        query_count = rows[-2] if len(rows) > 1 else 0
        raise InputError(f"{where}: {len(tokens)} tokens are named; the queries are {query_count}")
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
        for n, letter in zip(
            exact_arrays.shape_of(entries), _label_sheet_axes(name, entries), strict=True
        )
        if letter in _TOKENS
    )
    if not is_integer_within(tokens, 1, longest):
        raise InputError(f"tokens is {tokens!r}; {sheet.name} has 1 to {longest}")
    inputs = {
        name: _truncate_to_tokens(entries, _label_sheet_axes(name, entries), tokens)
        for name, entries in sheet.inputs.items()
    }
    return replace(sheet, inputs=inputs, tokens=sheet.tokens[:tokens], printed=None)


def _label_sheet_axes(name: str, entries: object) -> list[str]:
    """Return the letter of each axis, aligned at the last."""
    letters = [letter.strip("[]()?") for letter in ARRAYS[name].shape.split()]
    # Batches and heads before the named axes carry no letter.
    depth = len(exact_arrays.shape_of(entries))
    return ["…"] * (depth - len(letters)) + letters[-depth:]


def _truncate_to_tokens(entries: Any, axes: list[str], tokens: int) -> Any:
    if not axes:
        return entries
    first = entries[:tokens] if axes[0] in _TOKENS else entries
    return [_truncate_to_tokens(entry, axes[1:], tokens) for entry in first]


# -- sheets from Python: arrays by name, as nested lists of numbers or as arrays of NumPy or PyTorch -------------------
NAME = "the arrays"


def sheet_of(data: Mapping[str, object]) -> Sheet:
    """Read a sheet from ``{"x": …, "w_q": …}``, or from a whole sheet as in JSON. Raises InputError.

    Numbers in lists count as typed: 0.1 is 1/10. Floats of an array count at their binary value.
    """
    binary: list[bool] = []
    read = {
        str(key): _convert_to_json_types(value, f"{NAME}: {key}", binary)
        for key, value in data.items()
    }
    return from_data(read, NAME, NAME, (FLOATS.format("an array"),) if any(binary) else ())


def _convert_to_json_types(value: object, place: str, binary: list[bool]) -> Any:
    """Return the value in the types of JSON."""
    if isinstance(value, Mapping):
        return {
            str(key): _convert_to_json_types(x, f"{place}: {key}", binary)
            for key, x in value.items()
        }
    if isinstance(value, list | tuple):
        return [_convert_to_json_types(x, place, binary) for x in value]
    if isinstance(value, str | Quotient) or value is None:
        return value
    if isinstance(value, np.generic | complex):
        value = real(value, place).item()
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        if (
            value != value or value == math.inf
        ):  # math.isnan refuses whole numbers that no float holds
            raise InputError(f"{place} holds {value}, which is not a number")
        return "-inf" if value == -math.inf else TypedNumber(repr(value))
    return (
        _convert_sheet_array(value, place, binary)
        if hasattr(value, "__array__")
        else TypedNumber(str(value))
    )


def _convert_sheet_array(value: Any, place: str, binary: list[bool]) -> Any:
    array = real(value, place)
    # Before any conversion: a large array would take time and memory.
    check_size({place.rpartition(": ")[2]: array.shape}, NAME)
    if array.dtype.kind in "OU":
        return _convert_to_json_types(array.tolist(), place, binary)
    if array.dtype.kind not in "biuf":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError(
                f"{place} has the type {short(str(array.dtype))}, which is not a number"
            ) from None
    # Whole numbers are the same in decimal and binary, and need no remark.
    whole = array.dtype.kind != "f" or bool((array == np.round(array)).all())
    binary.append(not whole)
    return npz.elements(array, place)


# -- the parts of a sheet other than arrays: the fields of the attention, and the numbers that a text printed ----------
_MOST_PLACES = 12
# Exponents of four digits at most: longer ones would make huge numbers.
_DIGITS_PRINTED = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_ROUNDED = ("weights", "weighted", "output")
# Fields that follow from the inputs that a sheet has.
_ASKED_FOR_BY = {
    "padding": ("keep",),
    "packed": ("w_in",),
    "documents": ("doc", "doc_q", "doc_k"),
    "bias": ("bias",),
}
_DIGITS = ("q", "k", "v", "scores", "scaled", *_ROUNDED)


@dataclass(frozen=True)
class Printed:
    """The numbers that a text printed, for comparison with exact ones.

    digits    array of the walk → the digits printed for it, ``"6.3379e-02"``
    places    decimals to which the text rounded its weights before it continued, if it did
    rounded   weights, weighted and output (if present) in the text after that rounding
    """

    digits: dict[str, Any] = field(default_factory=dict)
    places: int = 1
    rounded: dict[str, exact_arrays.Entries] = field(default_factory=dict)


def words_of(data: dict[str, Any], key: str, where: str) -> str:
    """Return a text of the sheet, or ""."""
    text = data.get(key, "")
    if not isinstance(text, str):
        raise InputError(f"{where}: {key} is a text")
    return " ".join(text.split())


def attention_of(data: object, entries: dict[str, exact_arrays.Entries], where: str) -> Attention:
    """Return the specification; mask, padding and the like are inferred from the inputs."""
    if not isinstance(data, dict):
        raise InputError(f'{where}: "attention" is an object of fields, {{"causal": true}}')
    refuse_unknown(data, field_types(Attention), f"{where}: attention")
    if "scale" in data and data["scale"] is None:
        raise InputError(
            f'{where}: scale is null; hint: "none" for no scaling, "1/sqrt(d_k)", or leave it out'
        )
    result: dict[str, Any] = {}
    if "mask" in entries:
        result["mask"] = _kind_of_mask(entries)
    for field_, names in _ASKED_FOR_BY.items():
        if field_ in field_types(Attention) and any(name in entries for name in names):
            result[field_] = True
    # Fields in the sheet take precedence over inferred ones.
    inferred = {name: value for name, value in result.items() if name not in data}
    if data.get("mask") and "mask" in entries and data["mask"] != _kind_of_mask(entries):
        boolean = _kind_of_mask(entries) == "boolean"
        kind, hint = ("truth values", "numbers") if boolean else ("numbers", "true and false")
        raise InputError(
            f"{where}: the mask is {data['mask']}, and its entries are {kind}; hint: write {hint}"
        )
    # Zeros and ones are most likely truth values of a boolean mask.
    if inferred.get("mask") == "additive" and {"1"} <= {
        *map(str, exact_arrays.flat(entries["mask"]))
    } <= {
        "0",
        "1",
    }:
        words = "mask holds 0 and 1 alone, which would be added to the scores"
        raise InputError(
            f'{where}: {words}; hint: true where a query may attend, or "mask": "additive" in "attention"'
        )
    spec: Attention = made_of(Attention, {**data, **inferred}, where)
    return spec


def overridden(attention: Attention, wishes: dict[str, Any]) -> Attention:
    """Return the specification with other fields, each as a sheet or as Python writes it."""
    fields = field_types(Attention)
    for name in wishes:
        if name not in fields:
            raise unknown("Attention", short(name), fields)
    return replace(
        attention,
        **{name: field_of(Attention, name, value, name) for name, value in wishes.items()},
    )


def printed_of(data: object, where: str) -> Printed | None:
    """Read the numbers that a text printed."""
    if data is None:
        return None
    place = f"{where}: printed"
    if not isinstance(data, dict):
        raise InputError(f"{place} is an object")
    refuse_unknown(data, ("digits", "places", "rounded"), place)
    for part in ("digits", "rounded"):
        if not isinstance(data.get(part, {}), dict):
            raise InputError(f"{place}.{part} is an object of arrays")
    places = _parse_whole_number(data.get("places", 1), f"{place}.places")
    if places > _MOST_PLACES:
        raise InputError(f"{place}.places is at most {_MOST_PLACES}")
    for part, names in (("digits", _DIGITS), ("rounded", _ROUNDED)):
        refuse_unknown(data.get(part, {}), names, f"{place}.{part}")
    for name, entries in data.get("digits", {}).items():
        # only a check of the shape: the digits are stored as text
        exact_arrays.array_of(name, entries, f"{place}.digits")
        for digits in exact_arrays.flat(entries):
            if not (isinstance(digits, str) and _DIGITS_PRINTED.fullmatch(digits)):
                raise InputError(
                    f"{place}.digits.{name} holds digits, such as 6.3e-02, not {short(str(digits))!r}"
                )
    rounded = {
        name: exact_arrays.array_of(name, e, f"{place}.rounded")[0]
        for name, e in data.get("rounded", {}).items()
    }
    return Printed(data.get("digits", {}), places, rounded)


def _kind_of_mask(entries: dict[str, exact_arrays.Entries]) -> str:
    return "boolean" if isinstance(exact_arrays.flat(entries["mask"])[0], bool) else "additive"


def _parse_whole_number(value: object, place: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or len(text) > 4:
        raise InputError(f"{place} must be an integer of at least 1, got {short(text)!r}")
    return int(text)
