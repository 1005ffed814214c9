"""Formulas as one line of text: Unicode for people, or ASCII, which ``sympy.sympify`` reads back."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from symattn.document import notation as nt
from symattn.document.characters import (
    ASCII_OF_GREEK,
    ASCII_SIGNS,
    GREEK,
    SUBSCRIPTS,
    SUPERSCRIPTS,
    to_ascii,
)
from symattn.document.precedence import Level, level, minus

if TYPE_CHECKING:
    from symattn.document.model import Text

ANSI: dict[nt.Role, str] = {
    "input": "32", "query": "31", "key": "33", "value": "35", "score": "34", "weight": "36", "weighted": "33",
    "output": "32",
}  # fmt: skip
"""Role → the terminal colour it has under ``colours``."""

_BIG = {"sum": "Σ", "prod": "Π", "max": "max", "min": "min"}
_BIG_ASCII = {"sum": "sum", "prod": "prod", "max": "max", "min": "min"}
_FENCES = {"abs": "||", "norm": "‖‖", "round": "()", "curly": "{}", "square": "[]", "floor": "⌊⌋"}


def text(x: nt.Node, *, ascii: bool = False, colours: bool = False) -> str:
    """``x`` on one line. ``ascii``: every product has its ``*``, e to a power is ``exp()``; ``colours``: ANSI."""
    return _Printer(ascii, colours).show(x)


class _Printer:
    def __init__(self, ascii: bool, colours: bool) -> None:
        self.ascii = ascii
        self.colours = colours

    def show(self, x: nt.Node) -> str:
        if (body := minus(x)) is not None:
            return self.dash + self.wrap(body, Level.BIG)
        match x:
            case nt.Name():
                return self.name(x)
            case nt.Number():
                return str(x.value)
            case nt.Decimal():
                return "∞" if x.digits == "inf" and not self.ascii else x.digits
            case nt.Words():
                return to_ascii(x.text) if self.ascii else x.text
            case nt.Sum():
                return self.sum(x)
            case nt.Product():
                return self.product(x)
            case nt.PlusMinus():
                return ("+-" if self.ascii else "±") + self.wrap(x.body, Level.BIG)
            case nt.Over():
                return self.wrap(x.numerator, Level.PRODUCT) + "/" + self.wrap(x.denominator, Level.POWER)
            case nt.Power():
                return self.power(x)
            case nt.Root():
                return f"sqrt({self.show(x.body)})" if self.ascii else "√" + self.wrap(x.body, Level.ATOM)
            case nt.Transposed():
                return self.wrap(x.body, Level.ATOM) + ("^T" if self.ascii else "ᵀ")
            case _:
                return self.show_wide(x)

    def show_wide(self, x: nt.Node) -> str:
        match x:
            case nt.Call():
                return self.call(x, "")
            case nt.Big():
                return self.big(x)
            case nt.Fence():
                return self.fence(x.style, self.show(x.body)) + (self.sub((x.sub,)) if x.sub else "")
            case nt.Partial():
                sign = "d " if self.ascii else "∂"
                return f"{sign}{self.wrap(x.of, Level.POWER)}/{sign}{self.wrap(x.by, Level.POWER)}"
            case nt.Matrix():
                return self.matrix(x)
            case nt.Relation():
                return self.side(x.first) + "".join(self.link(sign, side) for sign, side in x.rest)
            case nt.At():
                return f"{self.wrap(x.body, Level.BIG)} |_{{{_tight(self.show(x.condition))}}}"
            case nt.Commas():
                return ", ".join(self.side(p) for p in x.parts)
            case nt.Row():
                return self.row(x)
        raise TypeError(f"no text for {type(x).__name__}")

    @property
    def dash(self) -> str:
        return "-" if self.ascii else "−"

    def wrap(self, x: nt.Node, least: Level) -> str:
        return self.show(x) if level(x, flat=True) >= least else f"({self.show(x)})"

    def side(self, x: nt.Node) -> str:
        return f"({self.show(x)})" if isinstance(x, (nt.Relation, nt.Row)) else self.show(x)

    def link(self, sign: str, side: nt.Node) -> str:
        """`` = side``: a sign with what follows it."""
        return f" {ASCII_SIGNS.get(sign, sign) if self.ascii else sign} {self.side(side)}"

    def name(self, x: nt.Name) -> str:
        base = GREEK.get(x.base, x.base)
        if self.ascii and x == _E:
            return "exp(1)"
        if self.ascii:
            shown = ASCII_OF_GREEK.get(base) or to_ascii(base)
        else:
            shown = "𝟏" if x.bold and base == "1" else unicodedata.normalize("NFC", base).replace("'", "′")
        shown += self.sub(x.sub)
        return f"\x1b[{ANSI[x.role]}m{shown}\x1b[0m" if self.colours and x.role else shown

    def sub(self, parts: tuple[nt.Node, ...]) -> str:
        if not parts:
            return ""
        shown = [_tight(_Printer(self.ascii, False).show(p)) for p in parts]
        joined = ("" if all(len(s) == 1 for s in shown) else ",").join(shown)
        if not self.ascii and (small := _translate(joined, SUBSCRIPTS)):
            return small
        return f"_{joined}" if joined.isalnum() or len(joined) == 1 else f"_{{{joined}}}"

    def sum(self, x: nt.Sum) -> str:
        first, *others = x.terms or (nt.node(0),)
        out = self.show(first) if minus(first) is not None else self.wrap(first, Level.BIG)
        for term in others:
            body = minus(term)
            sign = self.dash if body is not None else "+"
            out += f" {sign} {self.wrap(body if body is not None else term, Level.BIG)}"
        return out

    def product(self, x: nt.Product) -> str:
        out = before = ""
        for i, factor in enumerate(x.factors or (nt.node(1),)):
            last = i == len(x.factors) - 1
            shown = self.wrap(factor, Level.BIG if last and i else Level.PRODUCT)
            if not last and level(factor, flat=True) is Level.PRODUCT:
                shown = f"({shown})"
            out += (self.join(x.sign, before, shown) if i else "") + shown
            before = shown
        return out

    def join(self, sign: str, before: str, after: str) -> str:
        """What stands between two factors; nothing only where that cannot be misread."""
        if self.ascii:
            return " x " if sign == "×" else "*"
        if sign:
            return " × " if sign == "×" else "·"
        before, after = plain(before), plain(after)
        if after[0] in "0123456789.∞" or "√" in before or "^" in before:
            return "·"
        if before[-1].isdigit() or after[0] == "(":
            return ""
        return "" if _is_a_letter(before) and _is_a_letter(after) and before != after.removesuffix("ᵀ") else " "

    def power(self, x: nt.Power) -> str:
        if self.ascii:
            if x.base == _E:
                return f"exp({self.show(x.exponent)})"
            return f"{self.wrap(x.base, Level.ATOM)}^{self.wrap(x.exponent, Level.ATOM)}"
        shown = _Printer(False, False).show(x.exponent)
        small = _translate(shown, SUPERSCRIPTS)
        simple = isinstance(x.exponent, nt.Name) and not x.exponent.sub
        exponent = small or (f"^{shown}" if simple else f"^({shown})")
        return self.wrap(x.base, Level.ATOM) + exponent

    def call(self, x: nt.Call, exponent: str) -> str:
        arguments = ", ".join(self.side(a) for a in x.arguments)
        return self.wrap(x.function, Level.POWER) + exponent + self.fence("square" if x.square else "round", arguments)

    def fence(self, style: str, inner: str) -> str:
        if self.ascii and style in ("norm", "floor"):
            return f"||{inner}||" if style == "norm" else f"floor({inner})"
        return _FENCES[style][0] + inner + _FENCES[style][1]

    def big(self, x: nt.Big) -> str:
        operator = (_BIG_ASCII if self.ascii else _BIG)[x.operator]
        index = _tight(self.show(x.index))
        below = index if x.low is None else f"{index}={_tight(self.show(x.low))}"
        short = x.low is None and isinstance(x.index, nt.Name)
        out = operator + (self.sub((x.index,)) if short else f"_{{{below}}}")
        if x.high is not None:
            out += f"^{{{_tight(self.show(x.high))}}}"
        return f"{out} {self.wrap(x.body, Level.BIG)}"

    def matrix(self, x: nt.Matrix) -> str:
        rows = [[self.show(entry) for entry in row] for row in x.rows]
        gap = ", " if any(" " in entry for row in rows for entry in row) else " "
        return "[" + "; ".join(gap.join(row) for row in rows) + "]"

    def row(self, x: nt.Row) -> str:
        out = ""
        for i, part in enumerate(x.parts):
            gap = " " if i and isinstance(x.parts[i - 1], nt.Words) else "    "
            gap = "  " if isinstance(part, nt.Words) else gap
            out += (gap if i else "") + self.show(part).strip()
        return out


_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_E = nt.Name("e")
_TIGHT = 12  # indices and limits shorter than this lose their spaces
_SMALL = frozenset((*SUBSCRIPTS.values(), *SUPERSCRIPTS.values(), "ᵀ"))


def plain_text(words: Text) -> str:
    """Running text without markup and colours, its formulas in Unicode."""
    return "".join(text(w) if isinstance(w, nt.Node) else w if isinstance(w, str) else w.text for w in words)


def plain(shown: str) -> str:
    """``shown`` without terminal colours."""
    return _ESCAPES.sub("", shown)


def _tight(shown: str) -> str:
    return shown if len(shown) > _TIGHT else shown.replace(" ", "")


def _translate(shown: str, table: dict[str, str]) -> str:
    return "".join(table[c] for c in shown) if all(c in table for c in shown) else ""


def _is_a_letter(shown: str) -> bool:
    """Whether ``shown`` is one letter, with or without small indices and a small exponent."""
    return shown[0].isalpha() and all(c in _SMALL for c in shown[1:])
