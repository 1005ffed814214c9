"""Formulas as data: small trees that print as TeX and as text (see ``tex`` and ``text``).

A node describes how a formula is *written*; it computes nothing. ``a + b``, ``a - b``, ``a * b``, ``a / b``, ``a**b``
and ``-a`` build trees that keep the order of their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, Union

Role = Literal["input", "query", "key", "value", "score", "weight", "weighted", "output"]
Like = Union["Node", int, Fraction, str]


class Node:
    """A part of a formula."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __add__(self, other: Like) -> Node:
        return Sum(
            (*_split_terms_or_factors(Sum, self), *_split_terms_or_factors(Sum, node(other)))
        )

    def __radd__(self, other: Like) -> Node:
        return node(other) + self

    def __sub__(self, other: Like) -> Node:
        return self + Neg(node(other))

    def __rsub__(self, other: Like) -> Node:
        return node(other) - self

    def __neg__(self) -> Node:
        return Neg(self)

    def __mul__(self, other: Like) -> Node:
        return Product(
            (
                *_split_terms_or_factors(Product, self),
                *_split_terms_or_factors(Product, node(other)),
            )
        )

    def __rmul__(self, other: Like) -> Node:
        return node(other) * self

    def __truediv__(self, other: Like) -> Node:
        return Over(self, node(other))

    def __rtruediv__(self, other: Like) -> Node:
        return Over(node(other), self)

    def __pow__(self, other: Like) -> Node:
        return Power(self, node(other))


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A letter or a word: q, d_k, μ, softmax. ``sub`` are its indices; words of several letters are printed upright."""

    base: str
    sub: tuple[Node, ...] = ()
    role: Role | None = None
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Number(Node):
    """An exact rational number."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Decimal(Node):
    """A rounded number as its digits, ``0.0634`` or ``1.5e-10``; ``nan`` and ``inf`` are words."""

    digits: str


@dataclass(frozen=True, slots=True)
class Sum(Node):
    """A sum with its terms in the given order; a ``Neg`` term is printed with a minus."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Product(Node):
    """A product with its factors in the given order, and the ``sign`` between them: nothing, ``·`` or ``×``."""

    factors: tuple[Node, ...]
    sign: Literal["", "·", "×"] = ""


@dataclass(frozen=True, slots=True)
class Neg(Node):
    """−body."""

    body: Node


@dataclass(frozen=True, slots=True)
class PlusMinus(Node):
    """±body."""

    body: Node


@dataclass(frozen=True, slots=True)
class Over(Node):
    """numerator / denominator."""

    numerator: Node
    denominator: Node


@dataclass(frozen=True, slots=True)
class Power(Node):
    """base ** exponent; ``e`` to a power is ``Power(Name("e"), …)``."""

    base: Node
    exponent: Node


@dataclass(frozen=True, slots=True)
class Root(Node):
    """√body."""

    body: Node


@dataclass(frozen=True, slots=True)
class Transposed(Node):
    """bodyᵀ."""

    body: Node


@dataclass(frozen=True, slots=True)
class Call(Node):
    """function(arguments): softmax(s), Var(x), E[x] (``square`` brackets)."""

    function: Node
    arguments: tuple[Node, ...]
    square: bool = False


@dataclass(frozen=True, slots=True)
class Big(Node):
    """Σ, Π, max or min over an index: ``Big("sum", i, 1, d_k, body)``. Without ``low``, only the index is below."""

    operator: Literal["sum", "prod", "max", "min"]
    index: Node
    low: Node | None
    high: Node | None
    body: Node


@dataclass(frozen=True, slots=True)
class Fence(Node):
    """|body|, ‖body‖, (body), {body} or ⌊body⌋. Round brackets that precedence requires are added by printers."""

    style: Literal["abs", "norm", "round", "curly", "floor"]
    body: Node
    sub: Node | None = None


@dataclass(frozen=True, slots=True)
class Partial(Node):
    """∂ of / ∂ by."""

    of: Node
    by: Node


@dataclass(frozen=True, slots=True)
class Matrix(Node):
    """Rows of entries, in round brackets."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Relation(Node):
    """A chain: ``first``, then pairs of a sign (=, ≤, <, ≥, >, ≈, ≠, ∈, ∼, →, …) and a side."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class At(Node):
    """body, evaluated at ``condition``: body |_{d_k = 4}."""

    body: Node
    condition: Node


@dataclass(frozen=True, slots=True)
class Words(Node):
    """Words within a formula, upright: "for every"."""

    text: str


@dataclass(frozen=True, slots=True)
class Row(Node):
    """Several statements on one line, separated by wide spaces; ``Words`` stay close to the part after them."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Commas(Node):
    """Parts separated by commas: the i, j under a maximum, the entries of (1, 2, 3), q₁, …, q_n."""

    parts: tuple[Node, ...]


class WrittenNumber(Fraction):
    """The exact value of a number in a definition, printed as it was written: 0.3, not 5404319552844595/2⁵⁴.

    Sums and comparisons are those of fractions. A float is printed by its shortest digits, unless its quotient is as
    short: 1/4.

    >>> WrittenNumber(0.3).typed, WrittenNumber(1e-6).typed, WrittenNumber(0.25).typed
    ('0.3', '10^{−6}', '1/4')
    >>> WrittenNumber(0.3) == Fraction(0.3)
    True
    """

    __slots__ = ()

    @property
    def typed(self) -> str:
        """The number as the text of a formula."""
        mantissa, power = self._split_decimal
        raised = f"10^{{{power}}}" if power else ""
        return " · ".join(filter(None, (mantissa, raised))).replace("-", "−")

    @property
    def node(self) -> Node:
        """The number as a node."""
        mantissa, power = self._split_decimal
        # Without a point, and without a power, the digits are those of a quotient.
        is_quotient = not power and "." not in mantissa
        size: Node = Number(abs(self)) if is_quotient else Decimal(mantissa.removeprefix("-"))
        if power:
            raised = Power(Number(Fraction(10)), node(power))
            size = Product((size, raised), "·") if mantissa else raised
        return Neg(size) if self < 0 else size

    @property
    def _split_decimal(self) -> tuple[str, int]:
        """The digits, "" if they are 1, and the power of ten that multiplies them, or the quotient and 0."""
        rounded, quotient = float(self), str(Fraction(self))
        digits = repr(rounded).removesuffix(".0")
        if Fraction(rounded) != self or len(quotient) <= len(digits):
            return quotient, 0
        mantissa, _, power = digits.partition("e")
        return ("" if power and mantissa == "1" else mantissa), int(power or 0)


def node(x: Like) -> Node:
    """Return an ``int``, ``Fraction`` or name as a node; a node is returned unchanged."""
    if isinstance(x, WrittenNumber):
        return x.node
    if isinstance(x, Node):
        return x
    if isinstance(x, str):
        return Name(x)
    # bool is a subclass of int, and no number of a formula.
    if isinstance(x, bool) or not isinstance(x, (int, Fraction)):
        raise TypeError(f"no notation for {type(x).__name__}")
    if x < 0:
        return Neg(Number(Fraction(-x)))
    return Number(Fraction(x))


def name(base: str, *sub: Like, role: Role | None = None, bold: bool = False) -> Name:
    """Return a name: ``name("q", 1, role="query")`` is q₁ in the colour of queries."""
    return Name(base, tuple(node(s) for s in sub), role, bold)


def equals(first: Like, *sides: Like) -> Relation:
    """first = side = side …"""
    return Relation(node(first), tuple(("=", node(s)) for s in sides))


def relation(first: Like, sign: str, second: Like) -> Relation:
    """Return first sign second, such as ``relation(x, "≤", y)``."""
    return Relation(node(first), ((sign, node(second)),))


def call(function: Like, *arguments: Like) -> Call:
    """Return a call: ``call("softmax", s)`` is softmax(s)."""
    return Call(node(function), tuple(node(a) for a in arguments))


def matrix(rows: Sequence[Sequence[Like]]) -> Matrix:
    """Return a matrix of nodes or numbers."""
    nodes = (tuple(node(x) for x in row) for row in rows)
    return Matrix(tuple(nodes))


def commas(*parts: Like) -> Commas:
    """a, b, c."""
    return Commas(tuple(node(p) for p in parts))


def total(index: Like, low: Like, high: Like, body: Like) -> Big:
    """Σ_{index=low}^{high} body."""
    return Big("sum", node(index), node(low), node(high), node(body))


def _split_terms_or_factors(kind: type[Sum] | type[Product], x: Node) -> tuple[Node, ...]:
    if isinstance(x, Sum) and kind is Sum:
        return x.terms
    if isinstance(x, Product) and kind is Product and not x.sign:
        return x.factors
    return (x,)


def replaced(formula: object, letters: Mapping[Node, Node]) -> Any:
    """Replace parts of a formula by others."""

    def meaning(x: Node) -> Node:
        return letters[x] if x in letters else mapped(x, meaning)

    return _change_nested_nodes(formula, meaning) if letters else formula


def mapped(x: Node, change: Callable[[Node], Node]) -> Node:
    """Return ``x`` with every direct part changed."""
    changed = [_change_nested_nodes(getattr(x, name), change) for name in x.__match_args__]
    return type(x)(*changed)


def _change_nested_nodes(part: object, change: Callable[[Node], Node]) -> Any:
    if isinstance(part, Node):
        return change(part)
    if isinstance(part, tuple):
        return tuple(_change_nested_nodes(p, change) for p in part)
    return part


def parts(x: Any) -> Iterator[Node]:
    """Yield the direct parts of a formula, or of a tuple of formulas."""
    below = [getattr(x, name) for name in x.__match_args__] if isinstance(x, Node) else x
    for part in below:
        if isinstance(part, Node):
            yield part
        elif isinstance(part, tuple):
            yield from parts(part)


def within(*formulas: Node) -> Iterator[Node]:
    """Yield formulas and all their parts, from the outside in."""
    for x in formulas:
        yield x
        yield from within(*parts(x))
