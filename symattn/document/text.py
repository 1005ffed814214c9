"""Formulas as one line of text: Unicode for people, or ASCII, which ``sympy.sympify`` reads back."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from textwrap import wrap
from typing import TYPE_CHECKING

from symattn.document import characters
from symattn.document import notation as nt
from symattn.document.precedence import Level, Printer

if TYPE_CHECKING:
    from symattn.document.model import Text

ANSI: dict[nt.Role, str] = {
    "input": "32",
    "query": "31",
    "key": "33",
    "value": "35",
    "score": "34",
    "weight": "36",
    "weighted": "33",
    "output": "32",
}
"""Role → its terminal colour under ``colours``."""

_OPERATORS = ("⊙", "⊗", "∘")  # names that stand between factors
_BIG = {"sum": "Σ", "prod": "Π", "max": "max", "min": "min"}
_BIG_ASCII = {"sum": "sum", "prod": "prod", "max": "max", "min": "min"}


@lru_cache(maxsize=4096)
def text(x: nt.Node, *, ascii: bool = False, colours: bool = False) -> str:
    """Return ``x`` on one line. ``ascii``: products are written ``*``, powers of e ``exp()``; ``colours``: ANSI."""
    return _Printer(ascii, colours).show(x, flat=True)


class _Printer(Printer):
    def __init__(self, ascii: bool, colours: bool) -> None:
        self.ascii = ascii
        self.colours = colours
        if ascii:
            self.dash, self.plus_minus, self.partial_sign = "-", "+-", "d "

    def operator(self, sign: str) -> str:
        return ", " if sign == "," else f" {self.dash if sign == '−' else sign} "

    def brackets(self, style: str, inner: str, flat: bool = True) -> str:
        if self.ascii and style in ("norm", "floor"):
            return f"||{inner}||" if style == "norm" else f"floor({inner})"
        return characters.FENCES[style][0] + inner + characters.FENCES[style][1]

    def number(self, x: nt.Number, _: bool) -> str:
        return str(x.value)

    def decimal(self, x: nt.Decimal, _: bool) -> str:
        return "∞" if x.digits == "inf" and not self.ascii else x.digits

    def words(self, x: nt.Words, _: bool) -> str:
        return characters.to_ascii(x.text) if self.ascii else x.text

    def root(self, x: nt.Root, flat: bool) -> str:
        return (
            f"sqrt({self.show(x.body, flat)})"
            if self.ascii
            else "√" + self.wrap(x.body, Level.ATOM, flat)
        )

    def transposed(self, x: nt.Transposed, flat: bool) -> str:
        return self.wrap(x.body, Level.ATOM, flat) + ("^T" if self.ascii else "ᵀ")

    def fence(self, x: nt.Fence, flat: bool) -> str:
        return self.brackets(x.style, self.show(x.body, flat)) + (
            self.sub((x.sub,)) if x.sub else ""
        )

    def at(self, x: nt.At, flat: bool) -> str:
        condition = _tighten_short_text(self.show(x.condition, flat))
        return f"{self.wrap(x.body, Level.BIG, flat)} |_{{{condition}}}"

    def link(self, sign: str, side: nt.Node, flat: bool) -> str:
        shown = characters.ASCII_SIGNS.get(sign, sign) if self.ascii else sign
        return f" {shown} {self.side(side, flat)}"

    def name(self, x: nt.Name, _: bool) -> str:
        base = characters.GREEK.get(x.base, x.base)
        if self.ascii and x == _E:
            return "exp(1)"
        if self.ascii:
            shown = characters.ASCII_OF_GREEK.get(base) or characters.to_ascii(base)
        else:
            shown = "𝟏" if x.bold and base == "1" else unicodedata.normalize("NFC", base)
            shown = shown.replace("''", "″").replace("'", "′")
        shown += self.sub(x.sub)
        if self.colours and x.role:
            return f"\x1b[{ANSI[x.role]}m{shown}\x1b[0m"
        return shown

    def sub(self, parts: tuple[nt.Node, ...]) -> str:
        if not parts:
            return ""
        shown = [_tighten_short_text(_Printer(self.ascii, False).show(p, flat=True)) for p in parts]
        # Without a comma, an index of two digits would read as two indices.
        joined = ("" if all(len(s) == 1 for s in shown) else ",").join(shown)
        if not self.ascii and (small := _translate_all_characters(joined, characters.SUBSCRIPTS)):
            return small
        bare = joined.isalnum() or len(joined) == 1
        return f"_{joined}" if bare else f"_{{{joined}}}"

    def between(self, sign: str, before: tuple[nt.Node, str], after: tuple[nt.Node, str]) -> str:
        # An operator among the factors separates its neighbours already.
        if not sign and any(
            isinstance(x, nt.Name) and x.base in _OPERATORS for x, _ in (before, after)
        ):
            return " "
        if self.ascii:
            return " x " if sign == "×" else "*"
        if sign:
            return " × " if sign == "×" else "·"
        left, right = plain(before[1]), plain(after[1])
        # A digit behind a factor would read as a longer number, and one behind a root as under it.
        if right[0] in "0123456789.∞" or "√" in left or "^" in left:
            return "·"
        if left[-1].isdigit() or right[0] == "(":
            return ""
        return (
            ""
            if _is_a_letter(left) and _is_a_letter(right) and left != right.removesuffix("ᵀ")
            else " "
        )

    def power(self, x: nt.Power, flat: bool) -> str:
        if self.ascii:
            if x.base == _E:
                return f"exp({self.show(x.exponent, flat)})"
            base = self.wrap(x.base, Level.ATOM, flat)
            return f"{base}^{self.wrap(x.exponent, Level.ATOM, flat)}"
        # Colours would add escapes, which have no superscript.
        shown = _Printer(False, False).show(x.exponent, flat)
        # Unicode lacks many superscripts, and half of an exponent raised would be misread.
        small = _translate_all_characters(shown, characters.SUPERSCRIPTS)
        simple = isinstance(x.exponent, nt.Name) and not x.exponent.sub
        exponent = small or (f"^{shown}" if simple else f"^({shown})")
        return self.wrap(x.base, Level.ATOM, flat) + exponent

    def big(self, x: nt.Big, flat: bool) -> str:
        operator = (_BIG_ASCII if self.ascii else _BIG)[x.operator]
        index = _tighten_short_text(self.show(x.index, flat))
        low = "" if x.low is None else f"={_tighten_short_text(self.show(x.low, flat))}"
        below = f"{index}{low}"
        short = x.low is None and isinstance(x.index, nt.Name)
        out = operator + (self.sub((x.index,)) if short else f"_{{{below}}}")
        if x.high is not None:
            out += f"^{{{_tighten_short_text(self.show(x.high, flat))}}}"
        return f"{out} {self.wrap(x.body, Level.BIG, flat)}"

    def matrix(self, x: nt.Matrix, flat: bool) -> str:
        rows = [[self.show(entry, flat) for entry in row] for row in x.rows]
        # In a row whose entries have spaces, a space would not separate the entries.
        gap = ", " if any(" " in entry for row in rows for entry in row) else " "
        return "[" + "; ".join(gap.join(row) for row in rows) + "]"

    def row(self, x: nt.Row, flat: bool) -> str:
        out = ""
        for i, part in enumerate(x.parts):
            gap = " " if i and isinstance(x.parts[i - 1], nt.Words) else "    "
            gap = "  " if isinstance(part, nt.Words) else gap
            out += (gap if i else "") + self.show(part, flat).strip()
        return out


_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_E = nt.Name("e")
_TIGHT = 12  # indices and limits shorter than this lose their spaces
_SMALL = frozenset((*characters.SUBSCRIPTS.values(), *characters.SUPERSCRIPTS.values(), "ᵀ"))


def plain_text(words: Text) -> str:
    """Return running text without markup and colours, its formulas in Unicode."""
    return "".join(
        text(w) if isinstance(w, nt.Node) else w if isinstance(w, str) else w.text for w in words
    )


def plain(shown: str) -> str:
    """Return ``shown`` without terminal colours."""
    return _ESCAPES.sub("", shown)


def _tighten_short_text(shown: str) -> str:
    return shown if len(shown) > _TIGHT else shown.replace(" ", "")


def _translate_all_characters(shown: str, table: dict[str, str]) -> str:
    if all(c in table for c in shown):
        return "".join(table[c] for c in shown)
    return ""


def _is_a_letter(shown: str) -> bool:
    """Return whether ``shown`` is one letter, with or without small indices and a small exponent."""
    return shown[0].isalpha() and all(c in _SMALL for c in shown[1:])


def equal_sizes(sizes: Mapping[str, object]) -> str:
    """Return sizes by their letters: n = 2, m = 3."""
    return ", ".join(f"{letter} = {n}" for letter, n in sizes.items())


_LISTING_WIDTH = 76  # columns of a listing, which is indented by 4


def assignment(letter: str, array: str) -> str:
    """Return ``q = [[0], [1]]`` for a listing, in lines of 76 columns; those after the first stand below the array.

    >>> assignment("k", "[[0]]")
    'k = [[0]]'
    """
    lead = f"{letter} = "
    lines = wrap(
        lead + array, _LISTING_WIDTH, subsequent_indent=" " * len(lead), break_long_words=False
    )
    return "\n".join(lines)
