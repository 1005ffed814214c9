"""Exact numbers as formulas, as text and as SymPy expressions: three writers of the one form in ``normal``.

A single root whose radicand divides the denominator stands in the denominator: 4/√3, 157/√30378. Any other stands
above: √3/2, 11√1830/610.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from symattn.arrays.field.normal import Terms, leading_positive, leading_sign, normal
from symattn.arrays.field.quotient import Quotient
from symattn.arrays.field.surds import K, Surd, integer_terms
from symattn.document import notation as nt
from symattn.document.text import text as line

_E = nt.Name("e")


def notation(x: Quotient) -> nt.Node:
    """x as a formula."""
    c = x.constant()
    if c is not None:
        return constant(c)
    form = normal(x)
    p, q = form.ratio.numerator, form.ratio.denominator
    whole = form.denominator == [(0, 1)]
    above = _multiple(p, form.numerator, distribute=whole and q == 1)
    if whole:
        return _signed(form.sign, _over(above, nt.node(q) if q != 1 else None))
    return _signed(form.sign, _over(above, _multiple(q, form.denominator, distribute=False)))


def text(formula: nt.Node) -> str:
    """The formula on one line without spaces, as ``sympy.sympify`` reads it: (1+4*exp(2))/(1+2*exp(2))."""
    return line(formula, ascii=True).replace(" ", "")


def to_sympy(x: Quotient) -> Any:
    """x as a SymPy expression."""
    return _sympy(notation(x))


def constant(c: K) -> nt.Node:
    """An element of K as a formula."""
    if not isinstance(c, Surd):
        return nt.node(c if c.denominator != 1 else c.numerator)
    terms, den = integer_terms(c)
    if len(terms) == 1:
        return _single_root(*next(iter(terms.items())), den)
    sign, ordered = leading_positive(sorted(terms.items()), lambda term: term[1])
    above = _sum((n * sign, _root(a) if a > 1 else None) for a, n in ordered)
    return _signed(sign, _over(above, nt.node(den) if den != 1 else None))


def _single_root(a: int, n: int, den: int) -> nt.Node:
    """n√a / den."""
    sign, n = (1, n) if n > 0 else (-1, -n)
    if den % a == 0:
        return _signed(sign, nt.Over(nt.node(n), _times(den // a, _root(a))))
    return _signed(sign, _over(_times(n, _root(a)), nt.node(den) if den != 1 else None))


def _multiple(p: int, terms: Terms, *, distribute: bool) -> nt.Node:
    """p times a sum of exponentials, with p multiplied out or in front."""
    if distribute or len(terms) == 1:
        return _exponentials([(k, c * p) for k, c in terms])
    return _times(p, _exponentials(terms))


def _exponentials(terms: Terms) -> nt.Node:
    parts: list[tuple[int, nt.Node | None]] = []
    for k, c in terms:
        power = None if not k else _E if k == 1 else nt.Power(_E, constant(k))
        if isinstance(c, Surd):
            sign = leading_sign(c)
            head = constant(c if sign > 0 else -c)
            parts.append((sign, nt.Product((head, power)) if power else head))
        else:
            parts.append((int(c), power))
    return _sum(parts)


def _sum(parts: Iterable[tuple[int, nt.Node | None]]) -> nt.Node:
    """Σ n · node, a node of None being 1."""
    terms = [_signed(n, _times(abs(n), part) if part else nt.node(abs(n))) for n, part in parts]
    return terms[0] if len(terms) == 1 else nt.Sum(tuple(terms))


def _times(n: int, x: nt.Node) -> nt.Node:
    if n == 1:
        return x
    return nt.Product((nt.node(n), *(x.factors if isinstance(x, nt.Product) else (x,))))


def _over(above: nt.Node, below: nt.Node | None) -> nt.Node:
    return above if below is None else nt.Over(above, below)


def _root(a: int) -> nt.Node:
    return nt.Root(nt.node(a))


def _signed(sign: int, x: nt.Node) -> nt.Node:
    return nt.Neg(x) if sign < 0 else x


def _sympy(x: nt.Node) -> Any:
    import sympy

    match x:
        case nt.Number(value):
            return sympy.Rational(value.numerator, value.denominator)
        case nt.Name("e"):
            return sympy.E
        case nt.Neg(body):
            return -_sympy(body)
        case nt.Sum(terms):
            return sympy.Add(*map(_sympy, terms))
        case nt.Product(factors):
            return sympy.Mul(*map(_sympy, factors))
        case nt.Over(numerator, denominator):
            return _sympy(numerator) / _sympy(denominator)
        case nt.Power(_, exponent):
            return sympy.exp(_sympy(exponent))
        case nt.Root(body):
            return sympy.sqrt(_sympy(body))
    raise TypeError(f"no exact number is written with {type(x).__name__}")
