"""Sheets of fewer tokens: what texts call truncating an input that is too long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from symattn.attention.notation import ARRAYS
from symattn.derivations.sheets.numbers import shape_of
from symattn.derivations.sheets.sheet import Sheet
from symattn.errors import InputError

_TOKENS = ("n_q", "n_k")


def truncated(sheet: Sheet, tokens: int) -> Sheet:
    """The sheet with the first tokens of each of its sequences alone; what a text printed does not hold for it.

    Raises InputError for no whole number of tokens, or more than there are.
    """
    longest = max(length for name, entries in sheet.inputs.items() for length in _lengths(name, entries))
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= longest:
        raise InputError(f"tokens is {tokens!r}; {sheet.name} has 1 to {longest}")
    inputs = {name: _cut(entries, _axes(name, entries), tokens) for name, entries in sheet.inputs.items()}
    return replace(sheet, inputs=inputs, tokens=sheet.tokens[:tokens], printed=None)


def _axes(name: str, entries: Any) -> list[str]:
    """The letter of each axis, counted from the last."""
    letters = [letter.strip("[]()?") for letter in ARRAYS[name].shape.split()]
    depth = len(shape_of(entries))
    return ["…"] * (depth - len(letters)) + letters[-depth:]


def _lengths(name: str, entries: Any) -> list[int]:
    shape = shape_of(entries)
    return [n for n, letter in zip(shape, _axes(name, entries), strict=True) if letter in _TOKENS]


def _cut(entries: Any, axes: list[str], tokens: int) -> Any:
    if not axes:
        return entries
    kept = entries[:tokens] if axes[0] in _TOKENS else entries
    return [_cut(entry, axes[1:], tokens) for entry in kept]
