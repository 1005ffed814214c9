"""Estimates of the width of a formula in TeX, accurate enough to decide where a line breaks."""

from __future__ import annotations

from symattn.document import characters
from symattn.document import notation as nt
from symattn.document.precedence import Level, level, minus

_SCRIPT = 0.68  # size of indices and exponents
_LETTER = 0.5  # about the mean width of a letter
_BINARY = 1.2  # a sign with the space around it
_BRACKETS = 0.76  # both of them


def width(x: nt.Node, flat: bool = False) -> float:
    """Return the width of ``x`` in em, in a displayed formula (``flat``: with slashes for fractions)."""
    if (body := minus(x)) is not None:
        return 0.8 + _measure_bracketed_width(body, Level.BIG, flat)
    match x:
        case nt.Name():
            base = characters.GREEK.get(x.base, x.base)
            scripts = sum(width(s, True) for s in x.sub)
            return _LETTER * len(base) + _SCRIPT * scripts
        case nt.Number():
            # A fraction is as wide as the longer of both numbers.
            top = len(str(x.value.numerator))
            bottom = len(str(x.value.denominator))
            return 0.5 * (
                max(top, bottom) + 0.3
                if x.value.denominator > 1 and not flat
                else len(str(x.value))
            )
        case nt.Decimal():
            return 0.5 * len(x.digits) + (1.2 if "e" in x.digits else 0)
        case nt.Words():
            return 0.48 * len(x.text)
        case nt.Sum():
            terms = sum(_measure_bracketed_width(t, Level.BIG, flat) for t in x.terms)
            return terms + _BINARY * (len(x.terms) - 1)
        case nt.Product():
            # Factors stand close together unless a sign is written.
            gap = 0.08 if not x.sign else 1.0
            return sum(
                _measure_bracketed_width(f, Level.PRODUCT, flat) for f in x.factors
            ) + gap * (len(x.factors) - 1)
        case nt.Over() | nt.Partial():
            return _measure_fraction_width(x, flat)
        case nt.Matrix():
            columns = [max(map(width, column), default=0) for column in zip(*x.rows, strict=True)]
            return sum(columns) + max(len(columns) - 1, 0) + 1.3
        case _:
            return _measure_composite_width(x, flat)


def _measure_composite_width(x: nt.Node, flat: bool) -> float:
    match x:
        case nt.Power():
            over = _SCRIPT * (
                sum(width(i, True) for i in x.base.sub) if isinstance(x.base, nt.Name) else 0
            )
            return _measure_bracketed_width(x.base, Level.ATOM, flat) + max(
                _SCRIPT * width(x.exponent, True) - over, 0
            )
        case nt.Root():
            return 0.9 + width(x.body, flat)
        case nt.Transposed():
            return 0.6 + _measure_bracketed_width(x.body, Level.ATOM, flat)
        case nt.PlusMinus():
            return 0.8 + width(x.body, flat)
        case nt.Call():
            return (
                width(x.function)
                + _BRACKETS
                + sum(width(a, flat) + 0.45 for a in x.arguments)
                - 0.45
            )
        case nt.Big():
            of_low = 0 if x.low is None else 0.8 + width(x.low, True)
            limits = width(x.index, True) + of_low
            sign = 1.9 if x.operator in ("max", "min") else 1.1 if flat else 1.5
            # beside or below it
            sign = sign + _SCRIPT * limits if flat else max(sign, _SCRIPT * limits)
            return sign + _measure_bracketed_width(x.body, Level.BIG, flat) + 0.2
        case nt.Fence():
            of_index = _SCRIPT * width(x.sub, True) if x.sub else 0
            return _BRACKETS + width(x.body, flat) + of_index
        case nt.Relation():
            return width(x.first, flat) + sum(
                _BINARY + 0.2 + width(side, flat) for _, side in x.rest
            )
        case nt.At():
            return (
                _measure_bracketed_width(x.body, Level.BIG, flat)
                + 0.5
                + _SCRIPT * width(x.condition, True)
            )
        case nt.Commas():
            return sum(width(p, flat) + 0.45 for p in x.parts)
        case nt.Row():
            words = sum(isinstance(p, nt.Words) for p in x.parts)
            gap_count = max(len(x.parts) - 1 - 2 * words, 0)
            gaps = 2.6 * gap_count + 1.4 * words
            return sum(width(p, flat) for p in x.parts) + gaps
    raise TypeError(f"no width for {type(x).__name__}")


def _measure_fraction_width(x: nt.Over | nt.Partial, flat: bool) -> float:
    parts = (x.numerator, x.denominator) if isinstance(x, nt.Over) else (x.of, x.by)
    sign = 0.0 if isinstance(x, nt.Over) else 0.6
    widths = [
        sign + _measure_bracketed_width(p, Level.PRODUCT if flat else Level.ROW, True)
        for p in parts
    ]
    return sum(widths) + 0.5 if flat else max(widths) + 0.3


def _measure_bracketed_width(x: nt.Node, least: Level, flat: bool) -> float:
    return width(x, flat) + (0 if level(x, flat) >= least else _BRACKETS)
