"""The parts of a sheet other than arrays: the fields of ``Attention``, and the numbers that a text printed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from symattn.attention.codec.exact_arrays import Entries, array_of, flat
from symattn.attention.codec.field_values import field_of, made_of
from symattn.attention.codec.json_text import refuse_unknown, short
from symattn.attention.fields import field_types
from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from symattn.document.keywords import unknown

_MOST_PLACES = 12
_DIGITS_PRINTED = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_ROUNDED = ("weights", "weighted", "output")
_ASKED_FOR_BY = {"padding": ("keep",), "packed": ("w_in",), "documents": ("doc", "doc_q", "doc_k"), "bias": ("bias",)}
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
    rounded: dict[str, Entries] = field(default_factory=dict)


def words_of(data: dict[str, Any], key: str, where: str) -> str:
    """Return a text of the sheet, or ""."""
    text = data.get(key, "")
    if not isinstance(text, str):
        raise InputError(f"{where}: {key} is a text")
    return " ".join(text.split())


def attention_of(data: object, entries: dict[str, Entries], where: str) -> Attention:
    """Return the specification; mask, padding and the like are inferred from the inputs."""
    if not isinstance(data, dict):
        raise InputError(f'{where}: "attention" is an object of fields, {{"causal": true}}')
    refuse_unknown(data, field_types(Attention), f"{where}: attention")
    if "scale" in data and data["scale"] is None:
        raise InputError(f'{where}: scale is null; hint: "none" for no scaling, "1/sqrt(d_k)", or leave it out')
    inferred = {name: value for name, value in _seen(entries).items() if name not in data}
    if data.get("mask") and "mask" in entries and data["mask"] != _kind_of_mask(entries):
        kind = "truth values" if _kind_of_mask(entries) == "boolean" else "numbers"
        raise InputError(f"{where}: the mask is {data['mask']}, and its entries are {kind}")
    spec: Attention = made_of(Attention, {**data, **inferred}, where)
    return spec


def _seen(entries: dict[str, Entries]) -> dict[str, Any]:
    """Return the fields that are implied by inputs."""
    result: dict[str, Any] = {}
    if "mask" in entries:
        result["mask"] = _kind_of_mask(entries)
    for field_, names in _ASKED_FOR_BY.items():
        if field_ in field_types(Attention) and any(name in entries for name in names):
            result[field_] = True
    return result


def overridden(attention: Attention, wishes: dict[str, Any]) -> Attention:
    """Return the specification with other fields, each as a sheet or as Python writes it."""
    fields = field_types(Attention)
    for name in wishes:
        if name not in fields:
            raise unknown("Attention", short(name), fields)
    return replace(attention, **{name: field_of(Attention, name, value, name) for name, value in wishes.items()})


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
    places = _whole(data.get("places", 1), f"{place}.places")
    if places > _MOST_PLACES:
        raise InputError(f"{place}.places is at most {_MOST_PLACES}")
    for part, names in (("digits", _DIGITS), ("rounded", _ROUNDED)):
        refuse_unknown(data.get(part, {}), names, f"{place}.{part}")
    for name, entries in data.get("digits", {}).items():
        array_of(name, entries, f"{place}.digits")  # only a check of the shape: the digits are stored as text
        for digits in flat(entries):
            if not (isinstance(digits, str) and _DIGITS_PRINTED.fullmatch(digits)):
                raise InputError(f"{place}.digits.{name} holds digits, such as 6.3e-02, not {short(str(digits))!r}")
    rounded = {name: array_of(name, e, f"{place}.rounded")[0] for name, e in data.get("rounded", {}).items()}
    return Printed(data.get("digits", {}), places, rounded)


def _kind_of_mask(entries: dict[str, Entries]) -> str:
    return "boolean" if isinstance(flat(entries["mask"])[0], bool) else "additive"


def _whole(value: object, place: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or len(text) > 4:
        raise InputError(f"{place} must be an integer of at least 1, got {short(text)!r}")
    return int(text)
