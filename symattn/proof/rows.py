"""Reciprocals under a sum: how far one must look where 1/Z · Z = 1 is needed for Z that differ from row to row.

Let N hold letters R = 1/Z, where Z has at most one free index of each sort, the *rows*. Let Z hold no such letter
itself and no sum over a sort of rows and no size of one, and no exponent of N or of any Z sum over such a sort.

1. Rows. Keep the other sizes fixed. Z does not depend on the numbers of rows, so that the lemma of ``counting`` with
a = 0 holds for N as it stands, with R Z = 1 wherever Z ≠ 0: the sizes 0, …, D of every sort of rows are enough.

2. The others. Keep the numbers of rows fixed. Let A_Z be the most letters of the form 1/Z in any term of N, and P_Z
the number of rows of Z, a product of sizes. Where no Z is zero, N = 0 iff N Π Z^{A_Z} = 0, the product running over
the forms and the rows of Z. Multiplied out, this is free of reciprocals, and has at most Σ A_Z P_Z b_s(Z) more bound
indices of a sort s than N, b_s(Z) being the most that are bound in a term of Z. The theorem of ``counting`` tells how
far to look, with these D and the exponents of N and all Z; sizes start at 1, where Z is not an empty sum: by the
lemma with a = max(T, 1), the sizes 1, …, a + D are enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from symattn.arrays.index.expressions import Canonical, Exponential, Expression, Index, Product, Sum, Total, canonical
from symattn.document.errors import Refused
from symattn.proof.clearing import is_reciprocal
from symattn.proof.counting import CutOff, Sizes, cut_off, most_bound, nodes


@dataclass(frozen=True)
class RowForm:
    """A divisor Z up to the names of its rows: one Z of it, and the most letters 1/Z in any term."""

    divisor: Expression
    times: int


def grids(numerator: Expression, free: Iterable[Index]) -> Iterator[tuple[CutOff, tuple[Sizes, ...]]]:
    """For each number of rows, the cut-off and the sizes that decide ``numerator`` = 0 with R Z = 1."""
    indices = tuple(free)
    forms = _forms(numerator)
    rows = {i.sort for form in forms for i in form.divisor.free}
    _check_rows(numerator, forms, rows)
    counted = cut_off(numerator, indices).counted
    for sizes in product(*[range(counted[r] + 1) for r in sorted(rows)]):
        there = dict(zip(sorted(rows), sizes, strict=True))
        limits = cut_off(numerator, indices, _more(forms, there), [f.divisor for f in forms])
        others = sorted(limits.top.keys() - rows)
        corners = [range(1, max(limits.stable[s], 1) + limits.counted[s] + 1) for s in others]
        yield limits, tuple({**there, **dict(zip(others, ns, strict=True))} for ns in product(*corners))


def _more(forms: Iterable[RowForm], rows: Sizes) -> Counter[str]:
    """The bound indices that multiplying by all Z^A adds."""
    more: Counter[str] = Counter()
    for form in forms:
        places = prod(rows[i.sort] for i in form.divisor.free)
        for sort, bound in most_bound(form.divisor).items():
            more[sort] += form.times * places * bound
    return more


def _forms(numerator: Expression) -> tuple[RowForm, ...]:
    result = {_key(x): x.children[0] for x in nodes(numerator) if is_reciprocal(x)}
    return tuple(RowForm(z, _most(numerator, key)) for key, z in result.items())


def _key(x: Expression) -> Canonical:
    """A reciprocal up to the names of its rows; each has one index of a sort at most, so their sorts name them."""
    return canonical(x.children[0], {i: ("row", i.sort, *i.image) for i in x.free})


def _most(x: Expression, key: Canonical) -> int:
    """The most reciprocals of one form in any term."""
    if is_reciprocal(x):
        return int(_key(x) == key)
    if isinstance(x, Sum):
        return max(_most(y, key) for y in x.children)
    if isinstance(x, Product):
        return sum(_most(y, key) for y in x.children)
    return _most(x.body, key) if isinstance(x, Total) else 0


def _check_rows(numerator: Expression, forms: tuple[RowForm, ...], rows: set[str]) -> None:
    """Raise Refused where the rows are not independent of each other."""
    for form in forms:
        if any(n > 1 for n in Counter(i.sort for i in form.divisor.free).values()):
            raise Refused("a divisor under a sum has two indices of one sort")
        if any(map(is_reciprocal, nodes(form.divisor))):
            raise Refused("a divisor under a sum holds such a divisor itself")
        if rows & most_bound(form.divisor).keys():
            raise Refused("it needs 1/Z · Z = 1 under a sum, and Z sums over rows itself")
    for x in (numerator, *[form.divisor for form in forms]):
        for y in nodes(x):
            if isinstance(y, Exponential) and rows & most_bound(y.children[0]).keys():
                raise Refused("it needs 1/Z · Z = 1 under a sum, and an exponent sums over rows")
