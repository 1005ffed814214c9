"""Hints for Coq: exponents and arguments of functions, written as sums of terms in one order.

Two ways to write an exponent make two letters of it in Coq. So each gets a step to the form of this module, which Coq
decides as it decides equations; nothing here is believed. Exponents are whole multiples of terms over one common
denominator, so that e^(x/2) e^(x/2) = e^x is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from math import lcm

from symattn.errors import Refused
from symattn.proof.coq.terms import Term, joined, number

_MANY = 300  # terms of a sum
_DEEP = 4  # sums within each other, of which every order is tried


@dataclass(frozen=True)
class Step:
    """In a scope of sorts, the innermost first, ``old`` is ``new``."""

    scope: tuple[int, ...]
    old: Term
    new: Term

    def __str__(self) -> str:
        return f"Step [{'; '.join(map(str, self.scope))}] {self.old} {self.new}"


@dataclass(frozen=True)
class _Monomial:
    """A number times Σ over ``sorts``, the outermost first, of a product."""

    sorts: tuple[int, ...]
    factors: tuple[Term, ...]


_Sum = dict[_Monomial, Fraction]


def steps(sides: Sequence[tuple[tuple[int, ...], Term]], positive: frozenset[int]) -> list[Step]:
    """The steps for these sides, each in its scope; ``positive`` numbers the arrays that are positive."""
    found = [place for scope, side in sides for place in _places(scope, side)]
    sums = []
    for scope, x, exponent in found:
        try:
            sums.append((scope, x, _expanded(x), exponent))
        except Refused:
            continue
    common = lcm(*[c.denominator for _, _, terms, exponent in sums if exponent for c in terms.values()])
    made: dict[tuple[tuple[int, ...], Term], Step] = {}
    for scope, x, terms, exponent in sums:
        new = _written(terms, common if exponent else 1)
        if new != x and _sure(new, positive):
            made.setdefault((scope, x), Step(scope, x, new))
    return list(made.values())


def _places(scope: tuple[int, ...], x: Term) -> Iterator[tuple[tuple[int, ...], Term, bool]]:
    """Exponents and arguments, the innermost first, and whether it is an exponent."""
    for y in x.below:
        inside = (x.numbers[0], *scope) if x.binds() else scope
        yield from _places(inside, y)
        if x.head in ("Exp", "One", "Over"):
            yield inside, y, x.head == "Exp"


def canonical(x: Term) -> Term:
    """A term with sums of terms in one order; itself where these are too many."""
    try:
        return _written(_expanded(x), 1)
    except Refused:
        return x


def _expanded(x: Term) -> _Sum:
    if x.head == "Num":
        return _times(Fraction(x.numbers[0]), {_Monomial((), ()): Fraction(1)})
    if x.head == "Add":
        out: _Sum = {}
        for y in x.below:
            for m, c in _expanded(y).items():
                out[m] = out.get(m, Fraction(0)) + c
        return _few({m: c for m, c in out.items() if c})
    if x.head == "Mul":
        return _product(*map(_expanded, x.below))
    if x.head == "Div":
        return _product(_expanded(x.below[0]), _inverse(x.below[1]))
    if x.head == "Sum":
        return _summed(x.numbers[0], _expanded(x.below[0]))
    below = tuple(canonical(y) if y.head not in ("One", "Over") else _in_argument(y) for y in x.below)
    return {_Monomial((), (Term(x.head, x.numbers, below),)): Fraction(1)}


def _in_argument(x: Term) -> Term:
    return Term(x.head, x.numbers, tuple(map(canonical, x.below)))


def _inverse(x: Term) -> _Sum:
    """1/x, where x may be a number times a product."""
    terms = _expanded(x)
    if len(terms) == 1:
        ((m, c),) = terms.items()
        if not m.sorts:
            factors = tuple(Term("Div", (), (number(1), f)) for f in m.factors)
            return {_Monomial((), factors): 1 / c}
    return {_Monomial((), (Term("Div", (), (number(1), _written(terms, 1))),)): Fraction(1)}


def _times(c: Fraction, x: _Sum) -> _Sum:
    return {m: c * d for m, d in x.items()} if c else {}


def _few(x: _Sum) -> _Sum:
    if len(x) > _MANY:
        raise Refused("too many terms")
    return x


def _product(a: _Sum, b: _Sum) -> _Sum:
    if len(a) * len(b) > _MANY:
        raise Refused("too many terms")
    out: _Sum = {}
    for m, c in a.items():
        for n, d in b.items():
            p = _multiplied(m, n)
            out[p] = out.get(p, Fraction(0)) + c * d
    return {m: c for m, c in out.items() if c}


def _multiplied(m: _Monomial, n: _Monomial) -> _Monomial:
    """The sums of ``n`` stand within those of ``m``."""
    left = [moved(f, len(n.sorts)) for f in m.factors]
    right = [moved(f, len(m.sorts), len(n.sorts)) for f in n.factors]
    return _ordered((*m.sorts, *n.sorts), (*left, *right))


def moved(x: Term, by: int, above: int = 0) -> Term:
    """A term with its indices from ``above`` on moved."""
    if x.head == "Letter" or x.head.startswith("Is"):
        at = 1 if x.head == "Letter" else 0
        seats = tuple(i + by if i >= above else i for i in x.numbers[at:])
        return Term(x.head, (*x.numbers[:at], *seats))
    return Term(x.head, x.numbers, tuple(moved(y, by, above + x.binds()) for y in x.below))


def _summed(sort: int, x: _Sum) -> _Sum:
    out: _Sum = {}
    for m, c in x.items():
        bound = len(m.sorts)
        if any(_holds(f, bound) for f in m.factors):
            new = _ordered((sort, *m.sorts), m.factors)
        else:
            new = _ordered(m.sorts, (*[moved(f, -1, bound) for f in m.factors], Term("Size", (sort,))))
        out[new] = out.get(new, Fraction(0)) + c
    return {m: c for m, c in out.items() if c}


def _holds(x: Term, index: int) -> bool:
    if x.head == "Letter" or x.head.startswith("Is"):
        return index in x.numbers[1 if x.head == "Letter" else 0 :]
    return any(_holds(y, index + x.binds()) for y in x.below)


def _ordered(sorts: tuple[int, ...], factors: Sequence[Term]) -> _Monomial:
    """The same with the sums and the factors in one order."""
    if len(sorts) > _DEEP:
        raise Refused("too many sums within each other")
    many = len(sorts)
    choices = []
    for order in permutations(range(many)):  # the new place of each sum, counted outside in
        to = {many - 1 - old: many - 1 - new for new, old in enumerate(order)}
        placed = sorted((_renamed(f, to) for f in factors), key=str)
        choices.append((tuple(sorts[old] for old in order), tuple(placed)))
    return _Monomial(*min(choices, key=str))


def _renamed(x: Term, to: dict[int, int], depth: int = 0) -> Term:
    if x.head == "Letter" or x.head.startswith("Is"):
        at = 1 if x.head == "Letter" else 0
        seats = tuple(to.get(i - depth, i - depth) + depth if i >= depth else i for i in x.numbers[at:])
        return Term(x.head, (*x.numbers[:at], *(sorted(seats) if x.head == "Is Equal" else seats)))
    return Term(x.head, x.numbers, tuple(_renamed(y, to, depth + x.binds()) for y in x.below))


def _written(x: _Sum, common: int) -> Term:
    """The sum, every coefficient a whole number over ``common``."""
    parts = []
    for m, c in sorted(x.items(), key=str):
        inner = joined("Mul", m.factors)
        for sort in reversed(m.sorts):
            inner = Term("Sum", (sort,), (inner,))
        unit = number(Fraction(1, common))
        inner = (Term("Mul", (), (unit, inner)) if common > 1 else inner) if m.factors else unit
        whole = c * common
        parts.append(inner if whole == 1 else Term("Mul", (), (number(whole), inner)))
    return joined("Add", parts)


def is_positive(x: Term, positive: frozenset[int]) -> bool:
    """As ``positive`` in ``Meaning.v``."""
    if x.head == "Num":
        return x.numbers[0] > 0
    if x.head == "Letter":
        return x.numbers[0] in positive
    return x.head in ("Size", "Exp") or (
        x.head in ("Add", "Mul", "Div", "Sum") and all(is_positive(y, positive) for y in x.below)
    )


def _sure(x: Term, positive: frozenset[int]) -> bool:
    """As ``sure`` in ``Accepting.v``: all divisors are positive by their form."""
    return (x.head != "Div" or is_positive(x.below[1], positive)) and all(_sure(y, positive) for y in x.below)
