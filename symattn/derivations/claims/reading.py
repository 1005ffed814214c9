"""Read the numbers, vectors and matrices of a claim from the words of a command. Nothing is ever evaluated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from symattn.arrays.field.quotient import Quotient
from symattn.attention.codec.json_text import short
from symattn.document.errors import InputError, near

MOST = 4096  # entries
_DEPTH = 4
_LENGTH = 200_000  # characters
_PARTS = re.compile(r"[\[\],]|[^\[\],]+")


@dataclass(frozen=True)
class Vector:
    """Exact entries and, for a named token, its name."""

    entries: tuple[Quotient, ...]
    label: str = ""


def number(text: str) -> Quotient:
    """Read an exact number: .3 is 3/10."""
    return Quotient.of(text.strip())


def written(words: list[str]) -> list[str]:
    """Return the texts of numbers given one by one, or as one list ``[.3, .7]`` or ``.3,.7``."""
    if len(words) == 1 and ("," in words[0] or words[0].lstrip().startswith("[")):
        listed = words[0] if "[" in words[0] else f"[{words[0]}]"
        vector(listed)
        return [str(entry).strip() for entry in brackets(listed)]
    if len(words) > MOST:
        raise InputError(f"{len(words)} numbers: at most {MOST} are taken")
    return words


def half_unit(text: str) -> Fraction:
    """Return half a unit of the last digit of a decimal; 0 for exact numbers, such as 12 and 0.5.

    Decimals are those with a point, and two or more digits behind it or from the first that is not 0.
    """
    digits = text.strip().lower().lstrip("+-").partition("e")[0]
    whole, point, places = digits.partition(".")
    if not point or not (whole + places).isdigit() or max(len(places), len((whole + places).lstrip("0"))) < 2:
        return Fraction(0)
    return Fraction(10) ** -last_place(text) / 2


def last_place(text: str) -> int:
    """Return the place of the last digit behind the point: 2 of 0.25, 4 of 2.5e-3."""
    digits, _, power = text.strip().lower().partition("e")
    return len(digits.partition(".")[2]) - int(power or 0)


def vector(text: str) -> Vector:
    """Read ``[1, 1/2]``, ``1,1/2``, ``1 1/2``, or ``SHEET:TOKEN``, a token of an example or of a file."""
    if re.search(r":[^\\/\]]+$", text) and "[" not in text:
        return _token(text)
    if "[" not in text:
        text = "[" + ",".join(re.split(r"[\s,]+", text.strip())) + "]"
    entries = brackets(text)
    if not entries or any(isinstance(entry, list) for entry in entries):
        raise InputError(f"{short(text)!r} is not a vector; hint: [1, 1/2, .25], or EXAMPLE:TOKEN")
    return Vector(tuple(number(entry) for entry in entries))


def brackets(text: str) -> list[Any]:
    """Return nested lists of the texts between brackets and commas. Raises InputError."""
    if len(text) > _LENGTH:
        raise InputError(f"a list of {len(text)} characters: at most {_LENGTH} are read")
    stack: list[list[Any]] = [[]]
    after = count = 0  # after: whether an entry has just ended
    for part in _PARTS.findall(text):
        word = part.strip()
        if not word:
            continue
        if word == "[" and not after and len(stack) <= _DEPTH:
            stack.append([])
        elif word == "]" and len(stack) > 1 and (after or not stack[-1]):
            closed = stack.pop()
            stack[-1].append(closed)
            after = 1
        elif word == "," and after and len(stack) > 1:
            after = 0
        elif word not in "[]," and not after and len(stack) > 1:
            stack[-1].append(word)
            after, count = 1, count + 1
        else:
            wrong = f"{short(text)!r} is not a list: {short(word)!r} is not expected there"
            raise InputError(f"{wrong}; hint: [1, 2] or [[1], [2]]")
    if len(stack) != 1 or len(stack[0]) != 1 or count > MOST:
        raise InputError(f"{short(text)!r} is not a list of at most {MOST} entries; hint: [1, 2] or [[1], [2]]")
    result: list[Any] = stack[0][0]
    return result


def shape(entries: object, text: str) -> tuple[int, ...]:
    """Return the lengths of nested lists. Raises InputError if they are ragged."""
    if not isinstance(entries, list):
        return ()
    shapes = {shape(entry, text) for entry in entries}
    if len(shapes) > 1:
        raise InputError(f"{short(text)!r} is ragged: its rows have different lengths")
    return (len(entries), *(shapes.pop() if shapes else ()))


def _token(text: str) -> Vector:
    from symattn.derivations.walks import sheet_of

    source, _, token = text.rpartition(":")
    sheet = sheet_of(source)
    if "x" not in sheet.inputs or not sheet.tokens:
        raise InputError(f"{short(source)} names no tokens; hint: give the vector, [1, 1/2]")
    if token not in sheet.tokens:
        known = ", ".join(sheet.tokens)
        raise InputError(f"{short(source)} has no token {short(token)!r}.{near(token, sheet.tokens)} Known: {known}")
    return Vector(tuple(sheet.inputs["x"][sheet.tokens.index(token)]), token)
