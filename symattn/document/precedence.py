"""Which parts of a formula need brackets: shared by the printers, so that they cannot disagree."""

from __future__ import annotations

from enum import IntEnum

from symattn.document import notation as nt


class Level(IntEnum):
    """How tightly a part holds together; a part looser than its place asks for is bracketed."""

    ROW = 0
    RELATION = 1
    SUM = 2
    BIG = 3  # Σ reaches as far to the right as it can
    PRODUCT = 4
    POWER = 5
    ATOM = 6


_LEVELS: dict[type[nt.Node], Level] = {
    nt.Row: Level.ROW,
    nt.Commas: Level.ROW,
    nt.Relation: Level.RELATION,
    nt.At: Level.SUM,
    nt.PlusMinus: Level.SUM,
    nt.Big: Level.BIG,
    nt.Power: Level.POWER,
    nt.Transposed: Level.POWER,
    nt.Root: Level.POWER,
}


def level(x: nt.Node, flat: bool) -> Level:
    """The level of ``x``; ``flat`` where fractions are written with a slash."""
    if minus(x) is not None:
        return Level.SUM
    if isinstance(x, nt.Sum):
        return level(x.terms[0], flat) if len(x.terms) == 1 else Level.SUM
    if isinstance(x, nt.Product) and x.factors:
        if len(x.factors) == 1:
            return level(x.factors[0], flat)
        return Level.BIG if level(x.factors[-1], flat) is Level.BIG else Level.PRODUCT
    if isinstance(x, (nt.Over, nt.Partial)) or (isinstance(x, nt.Number) and x.value.denominator != 1):
        return Level.PRODUCT if flat else Level.POWER
    if isinstance(x, nt.Decimal) and "e" in x.digits.lower():
        return Level.PRODUCT
    return _LEVELS.get(type(x), Level.ATOM)


def minus(x: nt.Node) -> nt.Node | None:
    """The body of a negative: of a ``Neg``, a number below zero, digits with a sign, or what begins with one of these.

    (−2)x is written −2x, and (−a)/b as −a/b.
    """
    if isinstance(x, nt.Neg):
        return x.body
    if isinstance(x, nt.Number) and x.value < 0:
        return nt.Number(-x.value)
    if isinstance(x, nt.Decimal) and x.digits[:1] in ("-", "−"):
        return nt.Decimal(x.digits[1:])
    if isinstance(x, nt.Product) and x.factors and (body := minus(x.factors[0])) is not None:
        return nt.Product((body, *x.factors[1:]), x.sign)
    if isinstance(x, nt.Over) and (body := minus(x.numerator)) is not None:
        return nt.Over(body, x.denominator)
    return None
