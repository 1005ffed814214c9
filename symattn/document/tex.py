r"""Formulas in TeX that pdflatex (amsmath, amssymb), KaTeX, MathJax and GitHub all accept.

No ``\operatorname`` (GitHub bans it), no bare ``|`` (Markdown tables split at it), no environment but ``pmatrix`` and
``array``, and no macro of our own unless ``colours`` is set.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

from symattn.document import characters
from symattn.document import notation as nt
from symattn.document.precedence import Level, Printer, digit, letters

COLOURS: dict[nt.Role, tuple[str, str]] = {
    "input": ("SAi", "2E8B3D"),
    "query": ("SAq", "C62828"),
    "key": ("SAk", "C75B00"),
    "value": ("SAv", "6A1B9A"),
    "score": ("SAs", "1558B0"),
    "weight": ("SAw", "00788A"),
    "weighted": ("SAy", "9A7400"),
    "output": ("SAo", "1B6E2C"),
}
"""Role → the colour's name in our LaTeX preamble, and its value."""

_COMMAND = re.compile(r"\\[A-Za-z]+$")  # a letter after it would become part of it
_SQUARED_EARLY = frozenset(
    ("cos", "cosh", "cot", "coth", "csch", "sech", "sin", "sinh", "tan", "tanh")
)  # sech²(x)
# Commands of the operators with an index below.
_BIG = {"sum": r"\sum", "prod": r"\prod", "max": r"\max", "min": r"\min"}
_FENCES = {
    "abs": (r"\lvert", r"\rvert"),
    "norm": (r"\lVert", r"\rVert"),
    "round": ("(", ")"),
    "curly": (r"\{", r"\}"),
    "square": ("[", "]"),
    "floor": (r"\lfloor", r"\rfloor"),
}
_MAX_PMATRIX_COLUMNS = 10  # amsmath's MaxMatrixCols


def tex(x: nt.Node, *, colours: bool = False, inline: bool = False) -> str:
    """Return ``x`` as TeX without delimiters. ``inline`` writes fractions with a slash; ``colours`` uses our macros."""
    return _LatexPrinter(colours).show(x, inline)


def words(text: str) -> str:
    r"""Return words within a formula: ``\text{…}`` in pieces, with signs that text fonts lack set as mathematics."""
    pieces: list[str] = []
    plain = ""
    for c in unicodedata.normalize("NFC", text):
        sign = None if c.isascii() or c in "–—‘’“”" else letter_to_tex(c)
        if sign is None:
            plain += _TEXT.get(c, c)
            continue
        pieces += [rf"\text{{{plain}}}", "{}" + sign if sign[0] in "^_" else sign]
        plain = ""
    return " ".join(p for p in (*pieces, rf"\text{{{plain}}}") if p != r"\text{}")


# Within \text all four readers accept these; a backslash, tilde or caret has no common spelling, and does not occur.
_TEXT = {c: "\\" + c for c in "%&_#${}"} | {"\\": "/", "~": "-", "^": "'", "–": "--", "—": "---"}


class _LatexPrinter(Printer):
    dash, plus_minus, partial_sign = "-", r"\pm ", r"\partial "

    def __init__(self, colours: bool) -> None:
        self.colours = colours

    def operator(self, sign: str) -> str:
        return {"+": " + ", "−": " - ", ",": ", "}[sign]

    def brackets(self, style: str, inner: str, flat: bool) -> str:
        return _write_tex_brackets(style, inner, flat)

    def fraction(self, above: str, below: str) -> str:
        return rf"\frac{{{above}}}{{{below}}}"

    def decimal(self, x: nt.Decimal, _: bool) -> str:
        if x.digits.lower() in ("nan", "inf"):
            return r"\mathrm{NaN}" if x.digits.lower() == "nan" else r"\infty"
        mantissa, _sign, power = x.digits.lower().partition("e")
        return rf"{mantissa}\cdot 10^{{{int(power)}}}" if power else mantissa

    def words(self, x: nt.Words, _: bool) -> str:
        return words(x.text)

    def root(self, x: nt.Root, flat: bool) -> str:
        inline = flat or not isinstance(x.body, nt.Over)
        return rf"\sqrt{{{self.show(x.body, inline)}}}"

    def transposed(self, x: nt.Transposed, flat: bool) -> str:
        return rf"{self.wrap(x.body, Level.ATOM, flat)}^\top"

    def fence(self, x: nt.Fence, flat: bool) -> str:
        sub = "" if x.sub is None else self.sub((x.sub,))
        return _write_tex_brackets(x.style, self.show(x.body, flat), flat) + sub

    def at(self, x: nt.At, flat: bool) -> str:
        bar = r"\Big\vert" if not flat else r"\big\vert"
        body = self.wrap(x.body, Level.BIG, flat)
        return rf"{body}\,{bar}_{{{self.show(x.condition, True)}}}"

    def name(self, x: nt.Name, _: bool = True) -> str:
        letter = _write_tex_base(x.base)
        if x.bold:
            letter = (
                rf"\boldsymbol{{{letter}}}" if letter.startswith("\\") else rf"\mathbf{{{letter}}}"
            )
        if self.colours and x.role:
            letter = rf"{{\color{{{COLOURS[x.role][0]}}}{letter}}}"
        if x.sub and (x.base in characters.FUNCTIONS or re.search(r"\{\}[_^]", letter)):
            # cos_m is an array: as an operator it would change the space after it; qᵢ already has a script
            letter = f"{{{letter}}}"
        return letter + self.sub(x.sub)

    def sub(self, parts: tuple[nt.Node, ...]) -> str:
        if not parts:
            return ""
        pieces = [self.show(p, True) for p in parts]
        if not letters(parts):
            return _write_tex_script("_", ",".join(pieces))
        ended = [
            x + " " if _COMMAND.search(x) and y[:1].isalpha() else x
            for x, y in pairwise([*pieces, ""])
        ]
        return _write_tex_script("_", "".join(ended))

    def number(self, x: nt.Number, flat: bool) -> str:
        top, bottom = x.value.numerator, x.value.denominator
        if bottom == 1:
            return str(top)
        if flat:
            return f"{top}/{bottom}"
        return rf"\{'tfrac' if top < 10 and bottom < 10 else 'frac'}{{{top}}}{{{bottom}}}"

    def between(self, sign: str, before: tuple[nt.Node, str], after: tuple[nt.Node, str]) -> str:
        if sign:
            return r" \cdot " if sign == "·" else r" \times "
        shown = after[1]
        if shown[0].isdigit() or isinstance(after[0], nt.Decimal):
            return r" \cdot "
        upright = shown.lstrip("{").startswith(
            (
                r"\mathrm",
                r"\mathop",
                *("\\" + f for f in characters.FUNCTIONS),
                r"\text",
                r"\mathbb",
            )
        )
        separate = (
            upright
            or isinstance(before[0], (nt.Call, nt.Root))
            or isinstance(after[0], nt.Transposed)
        )
        return r"\, " if separate else " "

    def power(self, x: nt.Power, flat: bool) -> str:
        exponent = _write_tex_script("^", self.show(x.exponent, True))
        base = x.base
        if isinstance(base, nt.Call) and _squares_early(base.function, x.exponent):
            return self.call(base, flat, exponent)
        return self.wrap(base, Level.ATOM, flat) + exponent

    def function(self, x: nt.Node, flat: bool) -> str:
        if isinstance(x, nt.Name) and x.base == "E" and not x.bold:
            return r"\mathbb{E}" + self.sub(x.sub)
        return super().function(x, flat)

    def big(self, x: nt.Big, flat: bool) -> str:
        index = self.show(x.index, True)
        low = "" if x.low is None else f" = {self.show(x.low, True)}"
        below = f"{index}{low}"
        above = "" if x.high is None else _write_tex_script("^", self.show(x.high, True))
        body = self.wrap(x.body, Level.BIG, flat)
        space = r"\, " if body.startswith((r"\l", "(", r"\bigl", r"\Bigl")) else " "
        limits = _write_tex_script("_", below)
        return rf"{_BIG[x.operator]}{limits}{above}{space}{body}"

    def matrix(self, x: nt.Matrix, _: bool) -> str:
        rows = [" & ".join(self.show(entry, False) for entry in row) for row in x.rows]
        if tall := any(r"\frac" in row for row in rows):  # then all fractions get the same size
            rows = [row.replace(r"\frac", r"\dfrac").replace(r"\tfrac", r"\dfrac") for row in rows]
        body = (r" \\[9pt] " if tall else r" \\ ").join(rows)
        columns = max((len(row) for row in x.rows), default=0)
        if columns <= _MAX_PMATRIX_COLUMNS:
            return rf"\begin{{pmatrix}} {body} \end{{pmatrix}}"
        return rf"\left(\begin{{array}}{{{'c' * columns}}} {body} \end{{array}}\right)"

    def link(self, sign: str, side: nt.Node, flat: bool) -> str:
        return f" {relation_sign(sign)} {self.side(side, flat)}"

    def row(self, x: nt.Row, flat: bool) -> str:
        out = ""
        for i, part in enumerate(x.parts):
            gap = r"\ " if i and isinstance(x.parts[i - 1], nt.Words) else r",\qquad "
            gap = r"\quad " if isinstance(part, nt.Words) else gap
            shown = (
                words(part.text.strip()) if isinstance(part, nt.Words) else self.show(part, flat)
            )
            out += (gap if i else "") + shown
        return out


def relation_sign(sign: str) -> str:
    """Return a relation sign in TeX."""
    if sign not in characters.SIGNS:
        raise ValueError(f"no relation sign {sign!r}; known: {' '.join(characters.SIGNS)}")
    return characters.SIGNS[sign]


def _write_tex_base(base: str) -> str:
    base = characters.GREEK.get(base, base)
    letter = base.rstrip("'′")
    if letter and letter != base:
        primes = chr(39) * (len(base) - len(letter))
        return f"{{{_write_tex_base(letter)}{primes}}}"
    letters = unicodedata.normalize("NFD", base)
    if len(letters) == 2 and letters[1] in characters.MARKS:
        mark = characters.MARKS[letters[1]][0]
        return f"{mark}{{{letter_to_tex(letters[0]) or letters[0]}}}"
    if len(base) == 1:
        return letter_to_tex(base) or words(base)
    if base in characters.FUNCTIONS:
        return "\\" + base
    if base.isascii() and base.isalnum():
        return rf"\mathrm{{{base}}}"
    return words(base)


def _write_tex_script(mark: str, shown: str) -> str:
    if len(shown) == 1:
        return f"{mark}{shown}"
    return f"{mark}{{{shown}}}"


def _squares_early(function: nt.Node, exponent: nt.Node) -> bool:
    return isinstance(function, nt.Name) and function.base in _SQUARED_EARLY and digit(exponent)


def _write_tex_brackets(style: str, inner: str, flat: bool) -> str:
    """Return brackets as high as their contents, without the space that ``\\left`` adds before it."""
    left, right = _FENCES[style]
    if r"\begin" in inner:
        return rf"\left{left} {inner} \right{right}"
    if flat:
        size = ""
    elif r"\sum" in inner or r"\prod" in inner:
        size = "bigg"
    elif r"\frac" in inner or r"\dfrac" in inner or r"\Big" in inner:
        size = "Big"
    else:
        size = "big" if "(" in inner and style in ("round", "square") else ""
    opening = rf"\{size}l{left}" if size else left
    closing = rf"\{size}r{right}" if size else right
    if left[-1].isalpha():
        return f"{opening} {inner}{closing}"
    return f"{opening}{inner}{closing}"


# -- letters, and running text -----------------------------------------------------------------------------------------
# Letters that TeX lacks, or whose default shape is not used.
_TEX_GREEK = {"ε": r"\varepsilon", "φ": r"\varphi", "ο": "o"}
_HAVE_CAPITAL = set("ΓΔΘΛΞΠΣΥΦΨΩ")
_SPECIAL = {
    "%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
}  # fmt: skip
_TYPOGRAPHY = {
    "–": "--", "—": "---", "‘": "`", "’": "'", "“": "``", "”": "''", "„": ",,", "\u00a0": "~", "…": r"\dots{}",
    "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}",
    "œ": r"\oe{}", "Œ": r"\OE{}", "§": r"\S{}", "−": r"\ensuremath{-}", "<": r"\ensuremath{<}", ">": r"\ensuremath{>}",
    "|": r"\ensuremath{\vert}", "─": "--", "\u200b": "",
}  # fmt: skip


def letter_to_tex(c: str) -> str | None:
    """Return a letter or sign of a formula in TeX, or None if TeX has no command for it."""
    if c in characters.ASCII_OF_GREEK:
        if c.isupper() and c not in _HAVE_CAPITAL:
            return rf"\mathrm{{{unicodedata.normalize('NFKD', characters.ASCII_OF_GREEK[c])[0]}}}"
        return _TEX_GREEK.get(c, "\\" + characters.ASCII_OF_GREEK[c])
    if c in characters.SYMBOLS:
        return characters.SYMBOLS[c]
    if c in characters.SIGNS:
        return characters.SIGNS[c]
    if c in characters.RAISED:
        return "^{" + characters.RAISED[c] + "}"
    if c in characters.LOWERED:
        return "_{" + characters.LOWERED[c] + "}"
    return c if c.isascii() and c.isalnum() else None


def escape_text(text: str) -> str:
    """Return text for pdflatex: special characters escaped, signs as formulas, unknown ones as code points."""
    separated = re.sub("-(?=-)", "-\0", text)  # two hyphens would make a dash
    return "".join(
        _escape_tex_character(c) for c in unicodedata.normalize("NFC", separated)
    ).replace("\0", "{}")


def _escape_tex_character(c: str) -> str:
    if c in _SPECIAL:
        return _SPECIAL[c]
    if c in _TYPOGRAPHY:
        return _TYPOGRAPHY[c]
    if c.isascii():
        return c if c.isprintable() or c == "\0" else " "
    if "\u00a1" <= c <= "\u00ff" and c not in characters.SYMBOLS and c not in characters.RAISED:
        return c  # every font of pdflatex's T1 has Latin-1
    if tex := letter_to_tex(c):
        return rf"\ensuremath{{{{}}{tex}}}" if tex[0] in "^_" else rf"\ensuremath{{{tex}}}"
    base, *marks = list(unicodedata.normalize("NFD", c))
    if len(marks) == 1 and marks[0] in characters.MARKS and base.isascii():
        return f"{characters.MARKS[marks[0]][1]}{{{base}}}"
    plain = unicodedata.normalize("NFKD", c).encode("ascii", "ignore").decode()
    return escape_text(plain) if plain.strip() else rf"\texttt{{U+{ord(c):04X}}}"
