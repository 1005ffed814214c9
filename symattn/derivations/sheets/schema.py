"""The parts of a sheet that are no arrays: the fields of ``Attention``, and what a text printed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any

from symattn.attention.spec import Attention
from symattn.derivations.elements import flat
from symattn.derivations.sheets.numbers import Entries, array_of, number
from symattn.derivations.sheets.text import Typed, known, near, short
from symattn.errors import InputError

_FIELDS = tuple(f.name for f in fields(Attention))
_TRUTH = ("causal", "padding", "stabilised")
ROOT = "1/sqrt(d_k)"
_MOST_PLACES = 12
_DIGITS_PRINTED = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_ROUNDED = ("weights", "weighted", "output")
_DIGITS = ("q", "k", "v", "scores", "scaled", *_ROUNDED)


@dataclass(frozen=True)
class Printed:
    """What a text printed, for comparison with what is exact.

    digits    array of the walk → the digits printed for it, ``"6.3379e-02"``
    places    decimals to which the text rounded its weights before it went on, if it did
    rounded   weights, weighted and output (what there is) as the text has them after that
    """

    digits: dict[str, Any] = field(default_factory=dict)
    places: int = 1
    rounded: dict[str, Entries] = field(default_factory=dict)


def words_of(data: dict[str, Any], key: str, where: str) -> str:
    """A text of the sheet, "" where there is none."""
    text = data.get(key, "")
    if not isinstance(text, str):
        raise InputError(f"{where}: {key} is a text")
    return " ".join(text.split())


def attention_of(data: Any, given: dict[str, Entries], where: str) -> Attention:
    """The specification; a mask and padding are seen from the inputs."""
    if not isinstance(data, dict):
        raise InputError(f'{where}: "attention" is an object of fields, {{"causal": true}}')
    known(data, _FIELDS, f"{where}: attention")
    values = {name: field_of(name, value, f"{where}: {name}") for name, value in data.items()}
    if "mask" in given and "mask" not in values:
        values["mask"] = "boolean" if isinstance(_first(given["mask"]), bool) else "additive"
    if values.get("mask") and "mask" in given:
        boolean = isinstance(_first(given["mask"]), bool)
        if boolean != (values["mask"] == "boolean"):
            raise InputError(f"{where}: the mask is {values['mask']}, and its entries are {_kind(boolean)}")
    values.setdefault("padding", "keep" in given)
    return Attention(**values)


def overridden(attention: Attention, wishes: dict[str, Any]) -> Attention:
    """The specification with other fields, each as it may stand in a sheet or as Python has it."""
    from dataclasses import replace

    for name in wishes:
        if name not in _FIELDS:
            raise InputError(f"unknown field {short(name)!r}.{near(name, _FIELDS)} Known: {', '.join(_FIELDS)}")
    return replace(attention, **{name: field_of(name, value, name) for name, value in wishes.items()})


def field_of(name: str, value: Any, place: str) -> Any:
    """The value of one field, read from JSON or given as it is. Raises InputError."""
    if name in _TRUTH:
        if not isinstance(value, bool):
            raise InputError(f"{place} is true or false, not {value!r}")
        return value
    if name == "scale":
        return _scale(value, place)
    if name == "heads":
        return _whole(value, place)
    return None if value is None else str(value) if isinstance(value, str) else value


def _scale(value: Any, place: str) -> Fraction | None:
    if value is None or value == ROOT:
        return None
    if value == "none":
        return Fraction(1)
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Fraction)):
        raise InputError(f"{place} is a number, none or {ROOT}, not {short(repr(value))}")
    try:
        factor = number(value, place).rational()
    except InputError as error:
        raise InputError(f"{error}; known words: none, {ROOT}") from None
    if factor is None:
        raise InputError(f"{place} is {short(str(value))}; it must be rational, none or {ROOT}")
    return factor


def _whole(value: Any, place: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or len(text) > 4:
        raise InputError(f"{place} is {short(text)!r}; it must be a whole number from 1 on")
    return int(text)


def printed_of(data: Any, where: str) -> Printed | None:
    """What a text printed."""
    if data is None:
        return None
    place = f"{where}: printed"
    if not isinstance(data, dict):
        raise InputError(f"{place} is an object")
    known(data, ("digits", "places", "rounded"), place)
    for part in ("digits", "rounded"):
        if not isinstance(data.get(part, {}), dict):
            raise InputError(f"{place}.{part} is an object of arrays")
    places = _whole(data.get("places", 1), f"{place}.places")
    if places > _MOST_PLACES:
        raise InputError(f"{place}.places is at most {_MOST_PLACES}")
    for part, names in (("digits", _DIGITS), ("rounded", _ROUNDED)):
        known(data.get(part, {}), names, f"{place}.{part}")
    for name, entries in data.get("digits", {}).items():
        array_of(name, entries, f"{place}.digits")  # only the shape is taken from it: the digits are kept
        for digits in flat(entries):
            if not (isinstance(digits, str) and _DIGITS_PRINTED.fullmatch(digits)):
                raise InputError(f"{place}.digits.{name} holds digits, such as 6.3e-02, not {short(str(digits))!r}")
    rounded = {name: array_of(name, e, f"{place}.rounded")[0] for name, e in data.get("rounded", {}).items()}
    return Printed(data.get("digits", {}), places, rounded)


def _first(entries: Any) -> Any:
    while isinstance(entries, list):
        entries = entries[0]
    return entries


def _kind(boolean: bool) -> str:
    return "truth values" if boolean else "numbers"


__all__ = ["Printed", "Typed", "attention_of", "field_of", "overridden", "printed_of", "words_of"]
