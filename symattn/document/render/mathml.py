"""Formulas as MathML Core, which browsers typeset themselves.

Source: W3C, MathML Core (https://www.w3.org/TR/mathml-core/). Other MathML is not used: ``mfenced``, ``menclose``,
``mathvariant`` except for upright letters, attributes of columns.
"""

from __future__ import annotations

import unicodedata
from html import escape
from itertools import pairwise

from symattn.document import characters
from symattn.document import notation as nt
from symattn.document.precedence import Level, Printer, letters
from symattn.document.text import text

ROLES: dict[nt.Role, tuple[str, str]] = {
    "input": ("#2E7D32", "#8FD19E"),
    "query": ("#C62828", "#FF8A80"),
    "key": ("#B45309", "#F2A65A"),
    "value": ("#6A1B9A", "#D09BE8"),
    "score": ("#1558B0", "#8AB4F8"),
    "weight": ("#00707A", "#5CC9D3"),
    "weighted": ("#7A5C00", "#E0C060"),
    "output": ("#1B6E2C", "#86CF96"),
}
"""Role → its colour on white and on black paper, each with a contrast of at least 4.5."""

_E = nt.Name("e")  # the number
_BIG = {"sum": "∑", "prod": "∏", "max": "max", "min": "min"}
_TIGHT = ' lspace="0" rspace="0"'
_TALL = ("mfrac", "munder", "mtable", "msqrt", "msup")  # brackets grow around these


def mathml(x: nt.Node, *, inline: bool = False, tall: bool = False) -> str:
    """Return a ``math`` element; ``inline`` writes fractions with a slash, ``tall`` with a bar within a line."""
    display = ' displaystyle="true"' if tall else "" if inline else ' display="block"'
    return f'<math{display} alttext="{escape(text(x), quote=True)}">{show(x, inline)}</math>'


class _MathmlPrinter(Printer):
    """A printer of each formula as one element."""

    def __init__(self) -> None:
        self.dash, self.plus_minus, self.partial_sign, self.slash = (
            _write_mathml_operator("−"),
            _write_mathml_operator("±"),
            _write_mathml_operator("∂"),
            _write_mathml_operator("/", _TIGHT),
        )

    def joined(self, *parts: str) -> str:
        return (
            parts[0]
            if len(parts) == 1
            else f"<mrow>{''.join(parts)}</mrow>"
            if parts
            else "<mrow/>"
        )

    def fraction(self, above: str, below: str) -> str:
        return f"<mfrac>{above}{below}</mfrac>"

    def operator(self, sign: str) -> str:
        return _write_mathml_operator(sign)

    def brackets(self, style: str, inner: str, flat: bool = True) -> str:
        """Return a part in brackets that grow with it."""
        left, right = characters.FENCES[style][0], characters.FENCES[style][1]
        # Brackets grow around fractions and matrices, and stay small around letters.
        tall = any(f"<{tag}" in inner for tag in _TALL)
        more = f' fence="true" stretchy="{str(tall).lower()}"{_TIGHT}'
        return self.joined(
            _write_mathml_operator(left, f' form="prefix"{more}'),
            inner,
            _write_mathml_operator(right, f' form="postfix"{more}'),
        )

    def between(self, sign: str, before: tuple[nt.Node, str], after: tuple[nt.Node, str]) -> str:
        left, right = before[0], after[0]
        if sign:
            return _write_mathml_operator(sign)
        if isinstance(right, (nt.Number, nt.Decimal)):
            return _write_mathml_operator("·")
        word = isinstance(right, nt.Name) and len(right.base) > 1
        separate = (
            word
            or isinstance(left, (nt.Call, nt.Root))
            or isinstance(right, (nt.Transposed, nt.Call))
        )
        # invisible times
        return _write_mathml_space(0.17) if separate else _write_mathml_operator("\u2062")

    def link(self, sign: str, side: nt.Node, flat: bool = False) -> str:
        return self.joined(_write_mathml_operator(sign), self.side(side, flat))

    def name(self, x: nt.Name, _: bool) -> str:
        if x == _E:
            return '<mi mathvariant="normal">e</mi>'
        result = _write_mathml_letter(x.base, x.bold)
        if x.sub:
            parts = [self.show(p, True) for p in x.sub]
            # Letters are set without commas, other indices with them.
            subscript = self.joined(*parts) if letters(x.sub) else self.separated(parts)
            result = f"<msub>{result}{subscript}</msub>"
        return f'<mrow class="r-{x.role}">{result}</mrow>' if x.role else result

    def number(self, x: nt.Number, flat: bool) -> str:
        fraction = x.value
        top, bottom = (f"<mn>{n}</mn>" for n in (fraction.numerator, fraction.denominator))
        if x.value.denominator == 1:
            return top
        return self.joined(top, self.slash, bottom) if flat else self.fraction(top, bottom)

    def decimal(self, x: nt.Decimal, _: bool) -> str:
        if x.digits.lower() in ("nan", "inf"):
            return "<mi>NaN</mi>" if x.digits.lower() == "nan" else "<mi>∞</mi>"
        mantissa, _sign, power = x.digits.lower().partition("e")
        if not power:
            return f"<mn>{escape(mantissa)}</mn>"
        exponent = self.show(nt.node(int(power)), True)
        return self.joined(
            f"<mn>{escape(mantissa)}</mn>",
            _write_mathml_operator("·"),
            f"<msup><mn>10</mn>{exponent}</msup>",
        )

    def words(self, x: nt.Words, _: bool) -> str:
        return f"<mtext>{escape(x.text)}</mtext>"

    def power(self, x: nt.Power, flat: bool) -> str:
        base = self.wrap(x.base, Level.ATOM, flat)
        return f"<msup>{base}{self.show(x.exponent, True)}</msup>"

    def root(self, x: nt.Root, flat: bool) -> str:
        inline = flat or not isinstance(x.body, nt.Over)
        return f"<msqrt>{self.show(x.body, inline)}</msqrt>"

    def transposed(self, x: nt.Transposed, flat: bool) -> str:
        return f"<msup>{self.wrap(x.body, Level.ATOM, flat)}{_write_mathml_operator('⊤')}</msup>"

    def function(self, x: nt.Node, flat: bool) -> str:
        if isinstance(x, nt.Name) and x.base == "E" and not x.bold:
            return self.show(nt.Name("𝔼", x.sub), flat)
        return super().function(x, flat)

    def fence(self, x: nt.Fence, flat: bool) -> str:
        inner = self.brackets(x.style, self.show(x.body, flat))
        return inner if x.sub is None else f"<msub>{inner}{self.show(x.sub, True)}</msub>"

    def at(self, x: nt.At, flat: bool) -> str:
        condition = f"<msub>{_write_mathml_operator('|')}{self.show(x.condition, True)}</msub>"
        return self.joined(self.wrap(x.body, Level.BIG, flat), condition)

    def big(self, x: nt.Big, flat: bool) -> str:
        index = self.show(x.index, True)
        below = (
            index
            if x.low is None
            else self.joined(index, _write_mathml_operator("="), self.show(x.low, True))
        )
        sign = _BIG[x.operator]
        operator = (
            _write_mathml_operator(sign, ' movablelimits="false"')
            if len(sign) == 1
            else f"<mi>{sign}</mi>"
        )
        # A sign with limits below needs the height of a displayed formula.
        as_scripts = flat and len(sign) == 1
        tag = "sub" if as_scripts else "under"
        above = ""
        if x.high is not None:
            tag, above = ("subsup" if as_scripts else "underover"), self.show(x.high, True)
        body = self.wrap(x.body, Level.BIG, flat)
        sign = f"<m{tag}>{operator}{below}{above}</m{tag}>"
        return self.joined(sign, body)

    def matrix(self, x: nt.Matrix, _: bool) -> str:
        rows = "".join(
            f"<mtr>{''.join(f'<mtd>{self.show(e, False)}</mtd>' for e in row)}</mtr>"
            for row in x.rows
        )
        return self.brackets("round", f'<mtable displaystyle="true">{rows}</mtable>')

    def row(self, x: nt.Row, flat: bool) -> str:
        parts: list[str] = []
        for before, part in pairwise((None, *x.parts)):
            assert part is not None
            if before is not None:
                # Words are set apart from formulas, formulas by a comma.
                words = isinstance(before, nt.Words)
                next_words = isinstance(part, nt.Words)
                parts += (
                    [_write_mathml_space(0.4)]
                    if words
                    else [_write_mathml_space(1)]
                    if next_words
                    else [_write_mathml_operator(","), _write_mathml_space(2)]
                )
            parts.append(self.show(part, flat))
        return self.joined(*parts)


def _write_mathml_operator(sign: str, more: str = "") -> str:
    return f"<mo{more}>{escape(sign)}</mo>"


def _write_mathml_space(em: float) -> str:
    return f'<mspace width="{em}em"/>'


def _write_mathml_letter(base: str, bold: bool) -> str:
    base = characters.GREEK.get(base, base)
    letter = base.rstrip("'′")
    if letter and letter != base:
        primes = "′" * (len(base) - len(letter))
        return f"<msup>{_write_mathml_letter(letter, bold)}{_write_mathml_operator(primes)}</msup>"
    shown = unicodedata.normalize("NFC", base)
    if bold and len(shown) == 1 and shown.isascii() and shown.isalpha():
        # mathematical bold: 𝐀 stands at 0x1D400, 𝐚 at 0x1D41A
        to_bold = 0x1D400 - ord("A") if shown.isupper() else 0x1D41A - ord("a")
        shown = chr(ord(shown) + to_bold)
    if len(shown) == 1 and not shown.isalpha() and not shown.isdigit():
        return _write_mathml_operator(shown)
    if bold and len(shown) == 1 and shown.isascii() and shown.isdigit():
        shown = chr(0x1D7CE + int(shown))
    return f"<mi>{escape(shown)}</mi>"


_PRINTER = _MathmlPrinter()
show, link, fence = _PRINTER.show, _PRINTER.link, _PRINTER.brackets
