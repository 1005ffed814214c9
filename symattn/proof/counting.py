"""How far one must look: the cut-off of a cleared identity, sort by sort.

Theorem. Let N be a sum of terms, each a product of predicates, letters and exponentials under sums over bound indices,
with free indices f; exponents are polynomials in letters, hold no order predicate, and every index bound in an
exponent occurs in a letter of each of its monomials. For a sort s let

    D_s = free indices of s + the most bound ones of s in any term outside exponents (a size n_s counts as one),
    B_s = the most bound ones of s within one exponent.

(a) N = 0 at all sizes iff N = 0, as a polynomial in the letters and in one letter e^μ for each monomial μ of the
exponents, at every size of the box 0 ≤ n_s ≤ top_s, where top_s is D_s if B_s = 0, D_s + B_s if no exponent that sums
over s has another index of s free, and 3 D_s + B_s otherwise.
(b) If no predicate and no size occurs, and no index can cancel (each monomial signature has one sign in all
exponents), one size is enough: T_s = D_s if B_s = 0, max(D_s, B_s) in the middle case, 2 D_s + B_s otherwise.

Proof, for one sort and then by induction over sorts. Distinct monomials have exponentials that are algebraically
independent (Lindemann, Weierstrass), so at a given size N vanishes as a function iff it does as a Laurent polynomial.
Split the sums over all maps by the order type of the tuple of indices: sums over increasing tuples of at most D
elements. For n ≥ T the equality of two basis elements does not depend on n; so every basis element has a template on
r ≤ D indices, and its coefficient counts the placements of the other ≤ D − r indices, a polynomial of total degree
≤ D − r in the r + 1 gaps. Such a polynomial that vanishes at all gaps of sum ≤ D − r is zero, and those have
n = r + sum ≤ D; where templates are not yet stable below T the box starts there, hence top = T + D. For (b): if no
index can vanish, r is the number of variables, the coefficient is a constant, and every template is seen at n = T.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from symattn.arrays.index.canonical import canonical
from symattn.arrays.index.expressions import (
    Constant,
    Count,
    Exponential,
    Expression,
    Index,
    Letter,
    Opaque,
    Predicate,
    Product,
    Sum,
    Total,
)
from symattn.errors import Refused

Sizes = dict[str, int]


@dataclass(frozen=True)
class CutOff:
    """``counted`` is D, ``top`` the corner of the box, ``one_size`` T if (b) applies."""

    counted: Sizes
    top: Sizes
    one_size: Sizes | None


@dataclass(frozen=True)
class _Monomial:
    signature: tuple[str, ...]
    negative: bool
    indices: frozenset[Index]


def cut_off(numerator: Expression, free: Iterable[Index], more: Mapping[str, int] | None = None) -> CutOff:
    """The cut-off of ``numerator`` = 0 with the given free indices, and ``more`` bound ones that clearing will add."""
    counted = Counter(most_bound(numerator))
    counted.update(i.sort for i in free)
    counted.update(more or {})
    stable, top = Counter(counted), Counter(counted)
    signs: dict[tuple[str, ...], bool] = {}
    single = True
    for exponent in {x.children[0] for x in nodes(numerator) if isinstance(x, Exponential)}:
        bound, outside = most_bound(exponent), Counter(i.sort for i in exponent.free)
        for sort, b in bound.items():
            d = counted[sort]
            mixed = outside[sort] > 0
            stable[sort] = max(stable[sort], 2 * d + b if mixed else max(d, b))
            top[sort] = max(top[sort], 3 * d + b if mixed else d + b)
        for monomial in _monomials(exponent):
            if monomial.indices and signs.setdefault(monomial.signature, monomial.negative) != monomial.negative:
                single = False
    single = single and not any(isinstance(x, (Predicate, Count)) for x in nodes(numerator))
    return CutOff(dict(counted), dict(top), dict(stable) if single else None)


def nodes(x: Expression) -> Iterator[Expression]:
    """``x`` and all below, but not the arguments of opaque functions, which are letters."""
    yield x
    if not isinstance(x, Opaque):
        for y in x.children:
            yield from nodes(y)


@lru_cache(maxsize=100_000)
def most_bound(x: Expression) -> Counter[str]:
    """The most bound indices of each sort in any term, exponents left out."""
    found: Counter[str] = Counter()
    if isinstance(x, Sum):
        for y in x.children:
            found = found | most_bound(y)
    elif isinstance(x, Product):
        for y in x.children:
            found = found + most_bound(y)
    elif isinstance(x, Total):
        found = most_bound(x.body) + Counter({x.index.sort: 1})
    elif isinstance(x, Count):
        found = Counter({x.sort: 1})
    return found


def _monomials(x: Expression) -> list[_Monomial]:
    """The monomials of an exponent. Raises ``Refused`` where it is no polynomial in letters as the theorem needs."""
    if isinstance(x, Letter):
        return [_Monomial((x.name,), False, x.free)]
    if isinstance(x, Opaque):
        return [_Monomial((repr(canonical(x, {i: ("free", i.sort) for i in x.free})),), False, x.free)]
    if isinstance(x, Constant):
        return [_Monomial((), x.value < 0, frozenset())]
    if isinstance(x, Sum):
        return [m for y in x.children for m in _monomials(y)]
    if isinstance(x, Product):
        out = [_Monomial((), False, frozenset())]
        for y in x.children:
            out = [_times(a, b) for a in out for b in _monomials(y)]
        return out
    if isinstance(x, Total):
        inside = _monomials(x.body)
        if any(x.index not in m.indices for m in inside):
            raise Refused("a size in an exponent: an index is summed over that occurs in no letter")
        return inside
    if isinstance(x, Predicate) and x.relation == "=":
        return [_Monomial(("=",), False, frozenset())]
    raise Refused(f"{type(x).__name__.lower()} in an exponent")


def _times(a: _Monomial, b: _Monomial) -> _Monomial:
    signature = tuple(sorted(a.signature + b.signature))
    return _Monomial(signature, a.negative != b.negative, a.indices | b.indices)
