"""Formulas as MathML Core, which browsers set themselves.

Source: W3C, MathML Core (https://www.w3.org/TR/mathml-core/). What it leaves out is not used: ``mfenced``,
``menclose``, ``mathvariant`` but for upright letters, attributes of columns.
"""

from __future__ import annotations

import unicodedata
from html import escape
from itertools import pairwise

from symattn.document import notation as nt
from symattn.document.characters import GREEK
from symattn.document.precedence import Level, level, minus
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
_FENCES = {
    "abs": "||", "norm": "‖‖", "round": "()", "curly": "{}", "square": "[]", "floor": "⌊⌋",
}  # fmt: skip


def mathml(x: nt.Node, *, inline: bool = False, tall: bool = False) -> str:
    """``x`` as an element ``math``; ``inline`` writes fractions with a slash, ``tall`` with a bar within a line."""
    display = ' displaystyle="true"' if tall else "" if inline else ' display="block"'
    return f'<math{display} alttext="{escape(text(x), quote=True)}">{show(x, inline)}</math>'


def show(x: nt.Node, flat: bool) -> str:
    """``x`` as one element."""
    if (body := minus(x)) is not None:
        return _row(_mo("−"), _wrap(body, Level.BIG, flat))
    match x:
        case nt.Name():
            return _name(x)
        case nt.Number():
            return _number(x, flat)
        case nt.Decimal():
            return _decimal(x.digits)
        case nt.Words():
            return f"<mtext>{escape(x.text)}</mtext>"
        case nt.Sum():
            return _sum(x, flat)
        case nt.Product():
            return _product(x, flat)
        case nt.PlusMinus():
            return _row(_mo("±"), _wrap(x.body, Level.BIG, flat))
        case nt.Over():
            return _over(x, flat)
        case nt.Power():
            return f"<msup>{_wrap(x.base, Level.ATOM, flat)}{show(x.exponent, True)}</msup>"
        case nt.Root():
            return f"<msqrt>{show(x.body, flat or not isinstance(x.body, nt.Over))}</msqrt>"
        case nt.Transposed():
            return f"<msup>{_wrap(x.body, Level.ATOM, flat)}{_mo('⊤')}</msup>"
        case _:
            return _wide(x, flat)


def _wide(x: nt.Node, flat: bool) -> str:
    match x:
        case nt.Call():
            inner = _commas([_side(a, flat) for a in x.arguments])
            return _row(_function(x.function, flat), fence("square" if x.square else "round", inner))
        case nt.Big():
            return _big(x, flat)
        case nt.Fence():
            inner = fence(x.style, show(x.body, flat))
            return inner if x.sub is None else f"<msub>{inner}{show(x.sub, True)}</msub>"
        case nt.Partial():
            return _partial(x, flat)
        case nt.Matrix():
            return _matrix(x)
        case nt.Relation():
            return _row(_side(x.first, flat), *(link(sign, side, flat) for sign, side in x.rest))
        case nt.At():
            return _row(_wrap(x.body, Level.BIG, flat), f"<msub>{_mo('|')}{show(x.condition, True)}</msub>")
        case nt.Commas():
            return _commas([_side(p, flat) for p in x.parts])
        case nt.Row():
            return _statements(x, flat)
    raise TypeError(f"no MathML for {type(x).__name__}")


def link(sign: str, side: nt.Node, flat: bool = False) -> str:
    """A sign of a relation and the side after it."""
    return _row(_mo(sign), _side(side, flat))


def _row(*parts: str) -> str:
    return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"


def _mo(sign: str, more: str = "") -> str:
    return f"<mo{more}>{escape(sign)}</mo>"


def _space(em: float) -> str:
    return f'<mspace width="{em}em"/>'


def _wrap(x: nt.Node, least: Level, flat: bool) -> str:
    inner = show(x, flat)
    return inner if level(x, flat) >= least else fence("round", inner)


def _side(x: nt.Node, flat: bool) -> str:
    inner = show(x, flat)
    return fence("round", inner) if isinstance(x, (nt.Relation, nt.Row)) else inner


def fence(style: str, inner: str) -> str:
    """What is within brackets that grow with it."""
    left, right = _FENCES[style][0], _FENCES[style][1]
    tall = any(f"<{tag}" in inner for tag in _TALL)
    more = f' fence="true" stretchy="{str(tall).lower()}"{_TIGHT}'
    return _row(_mo(left, f' form="prefix"{more}'), inner, _mo(right, f' form="postfix"{more}'))


def _commas(parts: list[str]) -> str:
    return (
        _row(*(p for i, part in enumerate(parts) for p in ((_mo(","), part) if i else (part,)))) if parts else "<mrow/>"
    )


def _name(x: nt.Name) -> str:
    if x == _E:
        return '<mi mathvariant="normal">e</mi>'
    found = _letter(x.base, x.bold)
    if x.sub:
        short = all((isinstance(p, nt.Name) and len(p.base) == 1) or _digit(p) for p in x.sub)
        parts = [show(p, True) for p in x.sub]
        found = f"<msub>{found}{_row(*parts) if short else _commas(parts)}</msub>"
    return f'<mrow class="r-{x.role}">{found}</mrow>' if x.role else found


def _letter(base: str, bold: bool) -> str:
    base = GREEK.get(base, base)
    letter = base.rstrip("'′")
    if letter and letter != base:
        return f"<msup>{_letter(letter, bold)}{_mo('′' * (len(base) - len(letter)))}</msup>"
    shown = unicodedata.normalize("NFC", base)
    if bold and len(shown) == 1 and shown.isascii() and shown.isalpha():
        shown = chr(0x1D400 + ord(shown) - 65) if shown.isupper() else chr(0x1D41A + ord(shown) - 97)
    if len(shown) == 1 and not shown.isalpha() and not shown.isdigit():
        return _mo(shown)
    if bold and len(shown) == 1 and shown.isascii() and shown.isdigit():
        shown = chr(0x1D7CE + int(shown))
    return f"<mi>{escape(shown)}</mi>"


def _function(x: nt.Node, flat: bool) -> str:
    if isinstance(x, nt.Name) and x.base == "E" and not x.bold:
        return show(nt.Name("𝔼", x.sub), flat)
    return _wrap(x, Level.POWER, flat)


def _digit(x: nt.Node) -> bool:
    return isinstance(x, nt.Number) and 0 <= x.value <= 9


def _number(x: nt.Number, flat: bool) -> str:
    top, bottom = (f"<mn>{n}</mn>" for n in (x.value.numerator, x.value.denominator))
    if x.value.denominator == 1:
        return top
    return _row(top, _mo("/", _TIGHT), bottom) if flat else f"<mfrac>{top}{bottom}</mfrac>"


def _decimal(digits: str) -> str:
    if digits.lower() in ("nan", "inf"):
        return "<mi>NaN</mi>" if digits.lower() == "nan" else "<mi>∞</mi>"
    mantissa, _, power = digits.lower().partition("e")
    if not power:
        return f"<mn>{escape(mantissa)}</mn>"
    exponent = show(nt.node(int(power)), True)
    return _row(f"<mn>{escape(mantissa)}</mn>", _mo("·"), f"<msup><mn>10</mn>{exponent}</msup>")


def _sum(x: nt.Sum, flat: bool) -> str:
    first, *others = x.terms or (nt.node(0),)
    parts = [show(first, flat) if minus(first) is not None else _wrap(first, Level.BIG, flat)]
    for term in others:
        body = minus(term)
        parts += [_mo("−" if body else "+"), _wrap(body or term, Level.BIG, flat)]
    return _row(*parts)


def _product(x: nt.Product, flat: bool) -> str:
    factors = x.factors or (nt.node(1),)
    parts: list[str] = []
    for i, factor in enumerate(factors):
        last = i == len(factors) - 1
        shown = _wrap(factor, Level.BIG if last and i else Level.PRODUCT, flat)
        if flat and not last and level(factor, flat) is Level.PRODUCT:
            shown = fence("round", shown)
        parts += [_between(x, factors[i - 1], factor), shown] if i else [shown]
    return _row(*parts)


def _between(x: nt.Product, before: nt.Node, after: nt.Node) -> str:
    if x.sign:
        return _mo(x.sign)
    if isinstance(after, (nt.Number, nt.Decimal)):
        return _mo("·")
    word = isinstance(after, nt.Name) and len(after.base) > 1
    apart = word or isinstance(before, (nt.Call, nt.Root)) or isinstance(after, (nt.Transposed, nt.Call))
    return _space(0.17) if apart else _mo("\u2062")  # invisible times


def _over(x: nt.Over, flat: bool) -> str:
    if not flat:
        return f"<mfrac>{show(x.numerator, True)}{show(x.denominator, True)}</mfrac>"
    return _row(_wrap(x.numerator, Level.PRODUCT, True), _mo("/", _TIGHT), _wrap(x.denominator, Level.POWER, True))


def _partial(x: nt.Partial, flat: bool) -> str:
    of, by = (_row(_mo("∂"), _wrap(part, Level.POWER, True)) for part in (x.of, x.by))
    return _row(of, _mo("/", _TIGHT), by) if flat else f"<mfrac>{of}{by}</mfrac>"


def _big(x: nt.Big, flat: bool) -> str:
    index = show(x.index, True)
    below = index if x.low is None else _row(index, _mo("="), show(x.low, True))
    sign = _BIG[x.operator]
    operator = _mo(sign, ' movablelimits="false"') if len(sign) == 1 else f"<mi>{sign}</mi>"
    beside = flat and len(sign) == 1
    tag = "sub" if beside else "under"
    above = ""
    if x.high is not None:
        tag, above = ("subsup" if beside else "underover"), show(x.high, True)
    return _row(f"<m{tag}>{operator}{below}{above}</m{tag}>", _wrap(x.body, Level.BIG, flat))


def _matrix(x: nt.Matrix) -> str:
    rows = "".join(f"<mtr>{''.join(f'<mtd>{show(e, False)}</mtd>' for e in row)}</mtr>" for row in x.rows)
    return fence("round", f'<mtable displaystyle="true">{rows}</mtable>')


def _statements(x: nt.Row, flat: bool) -> str:
    parts: list[str] = []
    for before, part in pairwise((None, *x.parts)):
        assert part is not None
        if before is not None:
            words = isinstance(before, nt.Words)
            parts += [_space(0.4)] if words else [_space(1)] if isinstance(part, nt.Words) else [_mo(","), _space(2)]
        parts.append(show(part, flat))
    return _row(*parts)
