"""Arrays of a sheet, by the names people use: nested lists of exact numbers, booleans, integers, or −∞ in a mask."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.special import FORBIDDEN
from symattn.attention.codec.json_text import TypedNumber, short, shown
from symattn.attention.inputs import NEEDED, OPTIONAL, TOKENS
from symattn.attention.letters_of_attention import ARRAYS
from symattn.document.errors import InputError
from symattn.document.keywords import plain

Entries = list[Any]
# the largest absolute value; larger ones could need decimals of a thousand billion digits
MOST = 10**12
# Batch, head, row and column.
_AXES = 4
INFINITE = ("mask",)
"""Arrays that may hold −∞."""
# What true and false mean, for errors.
_MEANING = {
    "keep": ": true for real keys, false for padding",
    "drop": ": true for weights that are kept",
}
# A number typed with a point or an exponent.
_DECIMAL = re.compile(r"[.eE]")


def array_of(name: str, entries: object, where: str) -> tuple[Entries, bool]:
    """Return the array as nested lists, and whether some number was typed as a decimal. Raises InputError."""
    place = f"{where}: {name}"
    if not isinstance(entries, list):
        raise InputError(f"{place} is not a list of rows but {shown(entries)}")
    decimals: list[bool] = []
    result = _read_nested_exact_entries(entries, place, name, decimals, 1)
    shape = shape_of(result)
    _check_rows(result, shape, place)
    if 0 in shape:
        raise InputError(f"{place} is empty: an empty array has no attention")
    kinds = {isinstance(x, bool) for x in flat(result)}
    if len(kinds) > 1:
        raise InputError(f"{place} mixes truth values and numbers")
    if _entry_kind_of_array(name) == "booleans" and kinds != {True}:
        raise InputError(f"{place} holds truth values{_MEANING.get(name, '')}")
    _check_axes(name, len(shape), place)
    return result, any(decimals)


def axes_of(name: str) -> tuple[int, int]:
    """Return the least and the largest number of axes that an array of attention may have."""
    letters = ARRAYS[name].shape.split() if name in ARRAYS else ["…", "rows", "columns"]
    least = sum(letter[0] not in "…[(" for letter in letters)
    return least, _AXES if letters[0] == "…" else len(letters)


def _check_axes(name: str, axes: int, place: str) -> None:
    least, most = axes_of(name)
    words = f"{axes} {'axis' if axes == 1 else 'axes'}"
    if axes > most == 1:
        raise InputError(f"{place} is one row, [1, 2, …], and has {words}")
    if not least <= axes <= most:
        example = "a matrix, [[1, 2], [3, 4]]" if least < 3 else f"an array of {least} axes"
        raise InputError(f"{place} is {example}, and has {words}")


def shape_of(entries: object) -> tuple[int, ...]:
    """Return the lengths of nested lists, along their first entries."""
    shape = []
    while isinstance(entries, (list, tuple)):
        shape.append(len(entries))
        entries = entries[0] if entries else None
    return tuple(shape)


def number(text: object, place: str) -> Quotient:
    """Return a number exactly as typed. Raises InputError that names ``place``."""
    try:
        value = Quotient.of(text)
    except InputError as error:
        raise InputError(f"{place}: {short(str(error), 160)}") from None
    # Comparing may need more precision than there is for extreme numbers.
    try:
        too_large = abs(value) > MOST
    except ArithmeticError:
        too_large = True
    if too_large:
        raise InputError(
            f"{place}: {shown(text)} is larger than 10^{len(str(MOST)) - 1}, the largest number that is read"
        )
    return value


def _read_nested_exact_entries(
    entries: object, place: str, name: str, decimals: list[bool], depth: int
) -> Any:
    if isinstance(entries, list):
        if depth > _AXES:
            raise InputError(f"{place} has more than {_AXES} axes")
        return [
            _read_nested_exact_entries(e, f"{place}[{i}]", name, decimals, depth + 1)
            for i, e in enumerate(entries, 1)
        ]
    if isinstance(entries, bool):
        if name != "mask" and _entry_kind_of_array(name) != "booleans":
            raise InputError(f"{place} is {shown(entries)}; only mask and keep hold truth values")
        return entries
    # Only masks forbid; elsewhere −∞ would be a slip.
    if name in INFINITE and (entries is FORBIDDEN or entries in ("-inf", "-oo", "-∞", "-Infinity")):
        return FORBIDDEN
    if not isinstance(entries, (str, Quotient)):
        raise InputError(f"{place} is {shown(entries)}, which is not a number")
    if isinstance(entries, TypedNumber) and _DECIMAL.search(entries):
        decimals.append(True)
    value = number(entries, place)
    if _entry_kind_of_array(name) != "whole numbers":
        return value
    r = value.rational()
    if r is None or r.denominator != 1:
        raise InputError(f"{place} must be an integer, got {short(str(value))}")
    return int(r)


def _entry_kind_of_array(name: str) -> str:
    return ARRAYS[name].holds if name in ARRAYS else "numbers"


def _check_rows(entries: object, shape: tuple[int, ...], place: str) -> None:
    """Raise InputError unless every row is as long as the first one."""
    if not shape:
        if isinstance(entries, list):
            raise InputError(f"{place} is a list where other rows have a number")
        return
    if not isinstance(entries, list) or len(entries) != shape[0]:
        result = "a single number"
        if isinstance(entries, list):
            result = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
        raise InputError(f"{place} is ragged: it has {result} where the first row has {shape[0]}")
    for i, entry in enumerate(entries, 1):
        _check_rows(entry, shape[1:], f"{place}[{i}]")


def flat(entries: object) -> list[Any]:
    """Return the entries of nested lists in order."""
    if isinstance(entries, (list, tuple)):
        return [x for entry in entries for x in flat(entry)]
    return [entries]


# -- names of arrays ---------------------------------------------------------------------------------------------------
# Names in the order in which people write them; duplicates are dropped.
INPUTS = tuple(
    dict.fromkeys((*TOKENS, *(f"{a}_{b}" for b in "qkvo" for a in "wb"), *NEEDED, *OPTIONAL))
)
# Names without case, hyphens and underscores, as they are compared.
_INPUT_NAMES = {plain(name): name for name in INPUTS}


def input_name(name: str) -> str | None:
    """Return the array that a name stands for, or None."""
    return _INPUT_NAMES.get(plain(name))


# Words that people use in place of letters: ``query`` for q, ``w_query`` and ``query_weight`` for w_q.
_WORDS = {"query": "q", "queries": "q", "key": "k", "keys": "k", "value": "v", "values": "v"}
_WORDS |= {
    start + word: "w" + letter for word, letter in _WORDS.items() for start in ("w", "weight")
} | {
    word + end: "w" + letter
    for word, letter in _WORDS.items()
    for end in ("w", "weight", "weights", "proj")
}
_WORDS |= {letter + "proj": "w" + letter for letter in "qkvo"} | {
    "embedding": "x",
    "embeddings": "x",
    "input": "x",
}


def suggested(word: str, names: Iterable[str]) -> str:
    """Return `` Did you mean 'w_q'?`` or ""; case and hyphens are ignored, and words may stand for letters."""
    bares = {plain(name): name for name in names}
    letter = _WORDS.get(plain(word))
    # ``input`` is corrected to ``inputs`` first, if that is known
    nearly = get_close_matches(plain(word), bares, n=1, cutoff=0.9)
    result = nearly or ([letter] if letter in bares else get_close_matches(plain(word), bares, n=1))
    return f" Did you mean {bares[result[0]]!r}?" if result else ""


def called(arrays: Mapping[str, object], where: str) -> dict[str, Any]:
    """Return the arrays by symattn's names. Raises InputError for an unknown name, or an array given twice."""
    result: dict[str, Any] = {}
    for name, array in arrays.items():
        own = input_name(name)
        if own is None:
            raise InputError(
                f"{where}: unknown name {short(name)!r}.{suggested(name, INPUTS)} Known: {', '.join(INPUTS)}"
            )
        if own in result:
            raise InputError(f"{where}: {own} is given twice, once as {short(name)!r}")
        result[own] = array
    return result
