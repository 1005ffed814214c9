"""Exact numbers as formulas, as text and as SymPy expressions, all in one normal form,

    ± p N / (q D)     p, q coprime positive integers; N, D sums with coprime integer coefficients

D is 1, or it has several terms, the highest coefficient of them positive, and the lowest exponent in N and D is 0.
If exponents are multiples of one unit and coefficients are integers, N and D have no common factor. Terms are sorted by
ascending exponent, or by descending exponent if only that begins with a positive term: 1+4e², 5−e², 5e⁴−1. If neither
does, a minus is printed first.

A single root whose radicand divides the denominator is printed in the denominator: 4/√3, 157/√30378. Any other is in
the numerator: √3/2, 11√1830/610.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar, cast

from symattn.arrays.field import sums, surds
from symattn.arrays.field.quotient import Quotient
from symattn.document import notation as nt
from symattn.document.text import text as line

# Euler's number.
_E = nt.Name("e")


def notation(x: Quotient) -> nt.Node:
    """Return x as a formula."""
    # A number without exponentials is written as such.
    c = x.constant()
    if c is not None:
        return constant(c)
    form = normal(x)
    p, q = form.ratio.numerator, form.ratio.denominator
    # A denominator of e⁰ alone is 1.
    whole = form.denominator == [(0, 1)]
    above = _multiple_of_exponentials(p, form.numerator, distribute=whole and q == 1)
    below = (
        None
        if whole and q == 1
        else nt.node(q)
        if whole
        else _multiple_of_exponentials(q, form.denominator, distribute=False)
    )
    return _apply_sign_to_node(form.sign, _over(above, below))


def text(formula: nt.Node) -> str:
    """Return the formula on one line without spaces, for ``sympy.sympify``: (1+4*exp(2))/(1+2*exp(2))."""
    return line(formula, ascii=True).replace(" ", "")


def to_sympy(x: Quotient) -> Any:
    """Return x as a SymPy expression."""
    return _convert_node_to_sympy(notation(x))


def constant(c: surds.K) -> nt.Node:
    """Return an element of K as a formula."""
    if not isinstance(c, surds.Surd):
        return nt.node(c if c.denominator != 1 else c.numerator)
    terms, den = surds.integer_terms(c)
    below = nt.node(den) if den != 1 else None
    if len(terms) > 1:
        sign, ordered = leading_positive(sorted(terms.items()), lambda term: term[1])
        return _apply_sign_to_node(
            sign,
            _over(
                _sum((n * sign, _square_root_node(a) if a > 1 else None) for a, n in ordered), below
            ),
        )
    ((a, n),) = terms.items()
    sign, n = (1, n) if n > 0 else (-1, -n)
    # 1/√a is shorter than √a/a.
    if den % a == 0:
        root = _square_root_node(a)
        return _apply_sign_to_node(sign, nt.Over(nt.node(n), _integer_times_node(den // a, root)))
    return _apply_sign_to_node(sign, _over(_integer_times_node(n, _square_root_node(a)), below))


def _multiple_of_exponentials(p: int, terms: Terms, *, distribute: bool) -> nt.Node:
    """Return p times a sum of exponentials, with p multiplied out or as a factor."""
    if distribute or len(terms) == 1:
        return _sum_of_exponentials([(k, c * p) for k, c in terms])
    return _integer_times_node(p, _sum_of_exponentials(terms))


def _sum_of_exponentials(terms: Terms) -> nt.Node:
    parts: list[tuple[int, nt.Node | None]] = []
    for k, c in terms:
        power = None if not k else _E if k == 1 else nt.Power(_E, constant(k))
        # The sign stands before the term, so that no brackets are needed.
        if isinstance(c, surds.Surd):
            sign = leading_sign(c)
            head = constant(c if sign > 0 else -c)
            parts.append((sign, nt.Product((head, power)) if power else head))
        else:
            parts.append((int(c), power))
    return _sum(parts)


def _sum(parts: Iterable[tuple[int, nt.Node | None]]) -> nt.Node:
    """Return Σ n · node; None stands for 1."""
    terms = [
        _apply_sign_to_node(n, _integer_times_node(abs(n), part) if part else nt.node(abs(n)))
        for n, part in parts
    ]
    return terms[0] if len(terms) == 1 else nt.Sum(tuple(terms))


def _integer_times_node(n: int, x: nt.Node) -> nt.Node:
    if n == 1:
        return x
    return nt.Product((nt.node(n), *(x.factors if isinstance(x, nt.Product) else (x,))))


def _over(above: nt.Node, below: nt.Node | None) -> nt.Node:
    return above if below is None else nt.Over(above, below)


def _square_root_node(a: int) -> nt.Node:
    return nt.Root(nt.node(a))


def _apply_sign_to_node(sign: int, x: nt.Node) -> nt.Node:
    return nt.Neg(x) if sign < 0 else x


def _convert_node_to_sympy(x: nt.Node) -> Any:
    import sympy

    match x:
        case nt.Number(value):
            return sympy.Rational(value.numerator, value.denominator)
        case nt.Name("e"):
            return sympy.E
        case nt.Neg(body):
            return -_convert_node_to_sympy(body)
        case nt.Sum(terms):
            return sympy.Add(*map(_convert_node_to_sympy, terms))
        case nt.Product(factors):
            return sympy.Mul(*map(_convert_node_to_sympy, factors))
        case nt.Over(numerator, denominator):
            return _convert_node_to_sympy(numerator) / _convert_node_to_sympy(denominator)
        case nt.Power(_, exponent):
            return sympy.exp(_convert_node_to_sympy(exponent))
        case nt.Root(body):
            return sympy.sqrt(_convert_node_to_sympy(body))
    raise TypeError(f"no exact number is written with {type(x).__name__}")


# -- the normal form ---------------------------------------------------------------------------------------------------
Terms = list[tuple[surds.K, surds.K]]  # exponents and coefficients
T = TypeVar("T")


class Form(NamedTuple):
    """The normal form: sign · ratio · numerator / denominator; ``denominator`` may be the single term 1."""

    sign: int
    ratio: Fraction
    numerator: Terms
    denominator: Terms


def normal(x: Quotient) -> Form:
    """Return the normal form of x ≠ 0."""
    unit, n, d = x.parts
    # Common factors first, then the content of each side.
    n, d = _cancel_common_factors(*_rational_below(n, d))
    above = sums.content(n)
    below = sums.content(d)
    # The last term of the denominator becomes positive.
    flip = surds.sign(_sort_terms_by_exponent(d)[-1][1])
    # The first term of each side is positive; the signs stand in front.
    s, numerator = leading_positive(
        _sort_terms_by_exponent(sums.scaled(n, flip / above)), _sign_of_term
    )
    t, denominator = leading_positive(
        _sort_terms_by_exponent(sums.scaled(d, flip / below)), _sign_of_term
    )
    above_terms = [(sums.exponent(unit, k), c if s > 0 else -c) for k, c in numerator]
    below_terms = [(sums.exponent(unit, k), c if t > 0 else -c) for k, c in denominator]
    return Form(
        s * t,
        above / below,
        above_terms,
        below_terms,
    )


def leading_positive(terms: list[T], sign_of: Callable[[T], int]) -> tuple[int, list[T]]:
    """Return 1 and the terms, reversed if needed so that the first is positive; −1 if neither end is: negate them."""
    if sign_of(terms[0]) > 0:
        return 1, terms
    if sign_of(terms[-1]) > 0:
        return (1, terms[::-1])
    return (-1, terms)


def leading_sign(c: surds.K) -> int:
    """Return the sign printed before a coefficient: for one with several terms, +1 if either end is positive."""
    terms = sorted(surds.integer_terms(c)[0].items())
    return leading_positive(terms, lambda term: surds.sign(term[1]))[0]


def _sign_of_term(term: tuple[surds.K, surds.K]) -> int:
    return leading_sign(term[1])


def _sort_terms_by_exponent(f: sums.Sum) -> Terms:
    return [(k, f[k]) for k in sorted(cast("dict[int, surds.K]", f))]


def _rational_below(n: sums.Sum, d: sums.Sum) -> tuple[sums.Sum, sums.Sum]:
    """Return n/d with rational coefficients in d, if one factor makes all of them rational."""
    # One coefficient suffices: if any factor works, its inverse does.
    c = next(iter(d.values()))
    if not isinstance(c, surds.Surd):
        return n, d
    factor: sums.Sum = {0: surds.inverse(c)}
    below = sums.times(d, factor)
    has_roots = any(isinstance(c, surds.Surd) for c in below.values())
    return (n, d) if has_roots else (sums.times(n, factor), below)


def _cancel_common_factors(n: sums.Sum, d: sums.Sum) -> tuple[sums.Sum, sums.Sum]:
    """Return n/d without common factors as far as the module says, with lowest exponent 0 unless d has one term."""
    # One term divides nothing but itself, so there is nothing to cancel.
    results = sums.polynomials(n, d) if len(n) > 1 and len(d) > 1 else None
    if results is not None:
        (p, q), (low, also), step = results
        g = p.gcd(q)
        if g.degree() > 0:
            n = sums.from_polynomial(p // g, low, step)
            d = sums.from_polynomial(q // g, also, step)
    lowest = min(cast("dict[int, surds.K]", d if len(d) == 1 else {**n, **d}))
    return sums.shifted(n, -lowest), sums.shifted(d, -lowest)
