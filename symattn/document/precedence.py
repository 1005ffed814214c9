"""The traversal of formulas, and which parts need brackets: shared by all printers, so that they agree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import IntEnum

from symattn.document import notation as nt


class Level(IntEnum):
    """How tightly a part binds; a part that binds less tightly than its place requires is bracketed."""

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
    """Return the level of ``x``; ``flat`` if fractions are written with a slash."""
    if minus(x) is not None:
        return Level.SUM
    if isinstance(x, nt.Sum):
        # A sum of one term is that term.
        return level(x.terms[0], flat) if len(x.terms) == 1 else Level.SUM
    if isinstance(x, nt.Product) and x.factors:
        if len(x.factors) == 1:
            return level(x.factors[0], flat)
        last = level(x.factors[-1], flat)
        # A large operator at the end takes all that follows.
        return Level.BIG if last is Level.BIG else Level.PRODUCT
    if isinstance(x, (nt.Over, nt.Partial)) or (
        isinstance(x, nt.Number) and x.value.denominator != 1
    ):
        # With a slash a fraction is a product, as a stack it stands by itself.
        return Level.PRODUCT if flat else Level.POWER
    if isinstance(x, nt.Decimal) and "e" in x.digits.lower():
        return Level.PRODUCT
    return _LEVELS.get(type(x), Level.ATOM)


def minus(x: nt.Node) -> nt.Node | None:
    """Return the body of a ``Neg``, a negative number, digits with a sign, or a part that begins with these; else None.

    (−2)x is written −2x, and (−a)/b as −a/b.
    """
    if isinstance(x, nt.Neg):
        return x.body
    if isinstance(x, nt.Number) and x.value < 0:
        return nt.Number(-x.value)
    # Both signs of minus occur in digits.
    if isinstance(x, nt.Decimal) and x.digits[:1] in ("-", "−"):
        return nt.Decimal(x.digits[1:])
    if isinstance(x, nt.Product) and x.factors and (body := minus(x.factors[0])) is not None:
        return nt.Product((body, *x.factors[1:]), x.sign)
    if isinstance(x, nt.Over) and (body := minus(x.numerator)) is not None:
        return nt.Over(body, x.denominator)
    return None


def digit(x: nt.Node) -> bool:
    """Return whether a node is a single digit."""
    return isinstance(x, nt.Number) and 0 <= x.value <= 9


def letters(parts: tuple[nt.Node, ...]) -> bool:
    """Return whether indices are single letters and digits, which need no commas between them."""
    return all((isinstance(p, nt.Name) and len(p.base) == 1) or digit(p) for p in parts)


_METHODS = {
    kind: kind.__name__.lower()
    for kind in vars(nt).values()
    if isinstance(kind, type) and issubclass(kind, nt.Node)
}


class Printer(ABC):
    """A printer of formulas: a method for each class of node, by its name, and the parts that all printers share."""

    dash, plus_minus, slash, partial_sign = "−", "±", "/", "∂"

    def joined(self, *parts: str) -> str:
        """Join parts of a line."""
        return "".join(parts)

    def fraction(self, above: str, below: str) -> str:
        """Return a fraction, with a bar if the printer has one."""
        return self.joined(above, self.slash, below)

    @abstractmethod
    def operator(self, sign: str) -> str:
        """Return +, − or a comma with the space around it."""

    @abstractmethod
    def brackets(self, style: str, inner: str, flat: bool) -> str:
        """Return a part in brackets."""

    @abstractmethod
    def between(self, sign: str, before: tuple[nt.Node, str], after: tuple[nt.Node, str]) -> str:
        """Return the separator of two factors; empty only if that cannot be misread."""

    @abstractmethod
    def link(self, sign: str, side: nt.Node, flat: bool) -> str:
        """Return a sign of a relation and the side after it."""

    def show(self, x: nt.Node, flat: bool) -> str:
        """Print a formula; ``flat`` if fractions are written with a slash."""
        if (body := minus(x)) is not None:
            return self.joined(self.dash, self.wrap(body, Level.BIG, flat))
        shown: str = getattr(self, _METHODS[type(x)])(x, flat)
        return shown

    def wrap(self, x: nt.Node, least: Level, flat: bool) -> str:
        """Print a part, in brackets if it binds less tightly than ``least``."""
        inner = self.show(x, flat)
        return inner if level(x, flat) >= least else self.brackets("round", inner, flat)

    def side(self, x: nt.Node, flat: bool) -> str:
        """Print a side of a relation, or a part between commas; only relations and rows get brackets."""
        inner = self.show(x, flat)
        return (
            self.brackets("round", inner, flat) if isinstance(x, (nt.Relation, nt.Row)) else inner
        )

    def separated(self, parts: Iterable[str]) -> str:
        """Join parts with commas."""
        with_commas = [p for part in parts for p in (self.operator(","), part)]
        return self.joined(*with_commas[1:])

    def sum(self, x: nt.Sum, flat: bool) -> str:
        first, *others = x.terms or (nt.node(0),)
        # Only later terms need brackets for their sign.
        parts = [
            self.show(first, flat)
            if minus(first) is not None
            else self.wrap(first, Level.BIG, flat)
        ]
        for term in others:
            body = minus(term)
            sign = self.operator("+" if body is None else "−")
            parts += [sign, self.wrap(term if body is None else body, Level.BIG, flat)]
        return self.joined(*parts)

    def product(self, x: nt.Product, flat: bool) -> str:
        factors = x.factors or (nt.node(1),)
        parts: list[str] = []
        for i, factor in enumerate(factors):
            # Only the last factor may be a large operator without brackets.
            last = i == len(factors) - 1
            shown = self.wrap(factor, Level.BIG if last and i else Level.PRODUCT, flat)
            if flat and not last and level(factor, flat) is Level.PRODUCT:
                shown = self.brackets("round", shown, flat)
            parts += (
                [self.between(x.sign, (factors[i - 1], parts[-1]), (factor, shown)), shown]
                if i
                else [shown]
            )
        return self.joined(*parts)

    def plusminus(self, x: nt.PlusMinus, flat: bool) -> str:
        return self.joined(self.plus_minus, self.wrap(x.body, Level.BIG, flat))

    def over(self, x: nt.Over, flat: bool) -> str:
        if not flat:
            return self.fraction(self.show(x.numerator, True), self.show(x.denominator, True))
        above, below = (
            self.wrap(x.numerator, Level.PRODUCT, True),
            self.wrap(x.denominator, Level.POWER, True),
        )
        return self.joined(above, self.slash, below)

    def partial(self, x: nt.Partial, flat: bool) -> str:
        of, by = (
            self.joined(self.partial_sign, self.wrap(part, Level.POWER, True))
            for part in (x.of, x.by)
        )
        return self.joined(of, self.slash, by) if flat else self.fraction(of, by)

    def call(self, x: nt.Call, flat: bool, exponent: str = "") -> str:
        inner = self.separated(self.side(a, flat) for a in x.arguments)
        arguments = self.brackets("square" if x.square else "round", inner, flat)
        return self.joined(self.function(x.function, flat) + exponent, arguments)

    def function(self, x: nt.Node, flat: bool) -> str:
        return self.wrap(x, Level.POWER, flat)

    def relation(self, x: nt.Relation, flat: bool) -> str:
        sides = (self.link(sign, side, flat) for sign, side in x.rest)
        return self.joined(self.side(x.first, flat), *sides)

    def commas(self, x: nt.Commas, flat: bool) -> str:
        return self.separated(self.side(p, flat) for p in x.parts)
