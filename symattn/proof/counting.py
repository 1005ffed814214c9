"""Cut-off theorems: the sizes at which a cleared identity must be checked, sort by sort.

Theorem. Let N be a sum of terms, each a product of numbers, sizes, predicates, letters and exponentials under sums over
bound indices, with free indices f. Exponents are polynomials in letters, hold no order predicate and no size, and every
index bound in an exponent occurs in a letter of each of its monomials. For a sort s let

    D = free indices of s + the most bound ones of s in any term, outside exponents (a size n_s counts as one),
    B = the most indices of s that are bound within one exponent,
    T = 0 if B = 0;  B if no exponent has an index of s from outside;  2 D + B otherwise.

(a) N = 0 at all sizes iff N = 0, as a polynomial in the letters and in one letter e^μ for each monomial μ of the
exponents, at every size of the box 0 ≤ n_s ≤ T + D, the sizes of the other sorts likewise.
(b) Suppose that no predicate and no size occurs, that every bound index occurs in a letter or an exponential of every
term into which its sum multiplies out, and that nothing cancels in exponents (the monomials made of the same letters
have one sign in all of them). Then the one size n_s = max(T, D, 1) is enough for all sizes from 1 on.

Proof for one sort, the sizes of the others being fixed (they only turn sums into more terms of the same D and B);
then for one sort after the other. Write E^p for e^p with p formal, so that all takes place in the ring of polynomials
in letters times the group ring of exponents; what is zero there is zero in numbers. (Distinct monomials of
independent letters have independent exponentials, by Lindemann and Weierstrass, so it is also zero only there.)

1. Lemma. Let B = 0. If N = 0 at n = a, …, a + D, then at all n ≥ a. For a finite ordered set S ⊇ f let N(S) be N with
the bound indices running over S: it is N at the size |S|, up to the names of indices. A map of the bound indices that
is met in N(S) has an image U ⊆ S, so N(S) = Σ_{U ⊆ S} h(U), with h(U) = 0 if U has more than D elements together with
f. Let S₀ ⊇ f have a elements (or be f, if f has more). For V outside of S₀, N(S₀ ∪ V) = Σ_{W ⊆ V} g(W), where g(W) is
the sum of all h(U) with U − S₀ = W; so g(W) = 0 for |W| > D, and g(W) = Σ_{V ⊆ W} ± N(S₀ ∪ V) = 0 for |W| ≤ D by
hypothesis. (The ring may have relations, such as cos² + sin² = 1 at each place, that renaming respects.)

2. When exponents are equal. Let p, p′ be the exponents of two terms at values τ, τ′ of their bound indices, A = f ∪ τ
∪ τ′. Nothing in p − p′ tells one index outside A from another, and each of its monomials has at most B such, with a
coefficient that does not depend on n, since the bound indices of an exponent all show in letters. So for n ≥ |A| + B,
hence for n ≥ 2 D + B, whether p = p′ depends on the order of A alone. If no exponent has an index of s from outside,
A may be taken empty, and n ≥ B is enough. Setting letters outside of [n] to zero shows that exponents equal at one
size are equal at all smaller ones.

3. The box. By 2. let N′ be N with every E^p replaced by a letter for the class of those exponents that are equal at
sizes ≥ T. N′ is a sum as in 1., defined for every S; it gives N at each size when the letters get their meaning, and
for n ≥ T it is zero where N is. By 1. with a = T, N′ = 0 at n = T, …, T + D makes N = 0 at all n ≥ T.

4. One size. Under (b) every bound index shows in the basis element of N′ in which it occurs: in a letter, or in the
exponent, where it occurs more often than indices outside A do, since nothing cancels. So the coefficient of a basis
element counts maps into a set that this element determines, and does not depend on n; all basis elements have copies
at n = max(T, D). So N′ = 0 at that one size makes N′ = 0 at all, and N with it. (Sizes from 1 on, since a sum over an
empty sort in an exponent hides the other indices in it.)

That sums in exponents meet exponents without is why T is 2 D + B as soon as indices come from outside:
2 e^{Σ x} − Σ_ij e^{x_i + x_j} + Σ_i e^{2 x_i} is zero at n = 2 and at no other size.

Reciprocals under a sum: the sizes to check if 1/Z · Z = 1 is needed for Z that differ from row to row.

Let N hold letters R = 1/Z, where Z has at most one free index of each sort, the *rows*. Let Z hold no such letter
itself and no sum over a sort of rows and no size of one, and no exponent of N or of any Z sum over such a sort.

1. Rows. Keep the other sizes fixed. Z does not depend on the numbers of rows, so that the lemma above with
a = 0 holds for N as it stands, with R Z = 1 wherever Z ≠ 0: the sizes 0, …, D of every sort of rows are enough.

2. The others. Keep the numbers of rows fixed. Let A_Z be the most letters of the form 1/Z in any term of N, and P_Z
the number of rows of Z, a product of sizes. Where no Z is zero, N = 0 iff N Π Z^{A_Z} = 0, the product running over
the forms and the rows of Z. Multiplied out, this is free of reciprocals, and has at most Σ A_Z P_Z b_s(Z) more bound
indices of a sort s than N, b_s(Z) being the most that are bound in a term of Z. The theorem above gives the
sizes, with these D and the exponents of N and all Z; sizes start at 1, where Z is not an empty sum: by the
lemma with a = max(T, 1), the sizes 1, …, a + D are enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from symattn.arrays.index import expressions
from symattn.arrays.index import expressions as ex
from symattn.document.errors import Refused
from symattn.proof.clearing import is_reciprocal

Sizes = dict[str, int]


@dataclass(frozen=True)
class CutOff:
    """The cut-off: ``counted`` is D, ``stable`` is T, ``top`` = T + D the corner of the box, ``one_size`` for (b)."""

    counted: Sizes
    stable: Sizes
    top: Sizes
    one_size: Sizes | None


@dataclass(frozen=True)
class _Monomial:
    signature: tuple[str, ...]
    negative: bool
    indices: frozenset[ex.Index]


def cut_off(
    numerator: ex.Expression,
    free: Iterable[ex.Index],
    more: Mapping[str, int] | None = None,
    multipliers: Iterable[ex.Expression] = (),
) -> CutOff:
    """Return the cut-off of ``numerator`` = 0 with the given free indices.

    Multiplying by the arguments of reciprocals adds ``more`` bound indices and the exponents in ``multipliers``.
    """
    counted = Counter(most_bound(numerator))
    counted.update(i.sort for i in free)
    counted.update(more or {})
    exponents = {
        y.children[0]
        for x in (numerator, *multipliers)
        for y in nodes(x)
        if isinstance(y, ex.Exponential)
    }
    bound: Counter[str] = Counter()
    for exponent in exponents:
        # B of the theorem: the most within one exponent, so those of two do not add up.
        bound |= most_bound(exponent)
    monomials = [m for exponent in exponents for m in _monomials_of_exponent(exponent)]
    outside = {i.sort for exponent in exponents for i in exponent.free}
    sorts = sorted(counted.keys() | bound.keys())
    # T of the theorem: 0, B, or 2 D + B.
    stable = {
        s: (2 * counted[s] if s in outside else 0) + bound[s] if bound[s] else 0 for s in sorts
    }
    # The conditions of part (b).
    single = _every_index_shows(numerator) and _nothing_cancels(monomials)
    return CutOff(
        {s: counted[s] for s in sorts},
        stable,
        {s: stable[s] + counted[s] for s in sorts},
        {s: max(stable[s], counted[s], 1) for s in sorts} if single else None,
    )


def nodes(x: ex.Expression, arguments: bool = False) -> list[ex.Expression]:
    """Return ``x`` and all different expressions below, in order; those in arguments of opaque functions, which count
    as letters, only with ``arguments``."""
    result, pending = dict[ex.Expression, None](), [x]
    while pending:
        y = pending.pop()
        if y not in result:
            result[y] = None
            # Arguments of an opaque function count as letters, unless they are asked for.
            followed = y.children[::-1] if arguments or not isinstance(y, ex.Opaque) else ()
            pending.extend(followed)
    return list(result)


@lru_cache(maxsize=100_000)
def most_bound(x: ex.Expression) -> Counter[str]:
    """Return the most bound indices of each sort in any term, outside exponents. The result must not be modified."""
    results: Counter[str] = Counter()
    # A sum has as many as its largest term, a product as many as all factors together.
    if isinstance(x, ex.Sum):
        for y in x.children:
            results = results | most_bound(y)
    elif isinstance(x, ex.Product):
        for y in x.children:
            results = results + most_bound(y)
    elif isinstance(x, ex.Total):
        results = most_bound(x.body) + Counter({x.index.sort: 1})
    elif isinstance(x, ex.Count):
        results = Counter({x.sort: 1})
    elif not isinstance(x, (ex.Constant, ex.Letter, ex.Predicate, ex.Opaque, ex.Exponential)):
        raise Refused(f"{type(x).__name__.lower()} in a numerator")
    return results


def _every_index_shows(numerator: ex.Expression) -> bool:
    """Return whether there is no predicate and no size, and each bound index occurs in every term of its sum."""
    for x in nodes(numerator):
        if isinstance(x, (ex.Predicate, ex.Count)) or (
            isinstance(x, ex.Total) and not _is_in_every_term(x.index, x.body)
        ):
            return False
    return True


def _is_in_every_term(i: ex.Index, x: ex.Expression) -> bool:
    """Return whether ``i`` occurs in a letter or an exponential of every term of ``x`` multiplied out."""
    if isinstance(x, ex.Sum):
        return all(_is_in_every_term(i, y) for y in x.children)
    if isinstance(x, ex.Product):
        return any(_is_in_every_term(i, y) for y in x.children)
    if isinstance(x, ex.Total):
        return _is_in_every_term(i, x.body)
    return i in x.free


def _nothing_cancels(monomials: Iterable[_Monomial]) -> bool:
    """Return whether monomials of the same letters have one sign; those without an index may have any."""
    signs: dict[tuple[str, ...], bool] = {}
    return all(
        signs.setdefault(m.signature, m.negative) == m.negative for m in monomials if m.indices
    )


def _monomials_of_exponent(x: ex.Expression) -> list[_Monomial]:
    """Return the monomials of an exponent. Raises ``Refused`` unless it is a polynomial as the theorem requires."""
    if isinstance(x, ex.Letter):
        return [_Monomial((x.name,), False, x.free)]
    if isinstance(x, ex.Opaque):
        by_sort = {i: ("free", i.sort) for i in x.free}
        return [_Monomial((repr(ex.canonical(x, by_sort)),), False, x.free)]
    if isinstance(x, ex.Constant):
        return [_Monomial((), x.value < 0, frozenset())]
    if isinstance(x, ex.Sum):
        return [m for y in x.children for m in _monomials_of_exponent(y)]
    if isinstance(x, ex.Product):
        out = []
        for parts in product(*map(_monomials_of_exponent, x.children)):
            signature = tuple(sorted(name for m in parts for name in m.signature))
            negative = sum(m.negative for m in parts) % 2 == 1
            out.append(
                _Monomial(signature, negative, frozenset().union(*[m.indices for m in parts]))
            )
        return out
    if isinstance(x, ex.Total):
        inside = _monomials_of_exponent(x.body)
        # Σ_i of a term without i is n times the term: a size in the exponent.
        if any(x.index not in m.indices for m in inside):
            raise Refused("a size in an exponent: an index is summed over that occurs in no letter")
        return inside
    if isinstance(x, ex.Predicate) and x.relation == "=":
        return [_Monomial(("=",), False, frozenset())]
    raise Refused(f"{type(x).__name__.lower()} in an exponent")


@dataclass(frozen=True)
class RowForm:
    """A divisor Z up to the names of its rows, and the most letters 1/Z in any term."""

    divisor: expressions.Expression
    times: int


def grids(
    numerator: expressions.Expression, free: Iterable[expressions.Index]
) -> Iterator[tuple[CutOff, tuple[Sizes, ...]]]:
    """Yield for each number of rows the cut-off and the sizes that decide ``numerator`` = 0 with R Z = 1."""
    indices = tuple(free)
    result = {_key_of_reciprocal(x): x.children[0] for x in nodes(numerator) if is_reciprocal(x)}
    divisors = result.items()
    forms = tuple(RowForm(z, _count_most_reciprocals(numerator, key)) for key, z in divisors)
    rows = {i.sort for form in forms for i in form.divisor.free}
    _check_rows(numerator, forms, rows)
    # By the lemma, 0 to D rows decide all numbers of rows.
    counted = cut_off(numerator, indices).counted
    ranges = [range(counted[r] + 1) for r in sorted(rows)]
    for sizes in product(*ranges):
        row_sizes = dict(zip(sorted(rows), sizes, strict=True))
        more: Counter[str] = Counter()
        for form in forms:
            places = prod(row_sizes[i.sort] for i in form.divisor.free)
            for sort, bound in most_bound(form.divisor).items():
                more[sort] += form.times * places * bound
        limits = cut_off(numerator, indices, more, [f.divisor for f in forms])
        others = sorted(limits.top.keys() - rows)
        # Sizes start at 1, where no Z is an empty sum.
        corners = [range(1, max(limits.stable[s], 1) + limits.counted[s] + 1) for s in others]
        yield (
            limits,
            tuple({**row_sizes, **dict(zip(others, ns, strict=True))} for ns in product(*corners)),
        )


def _key_of_reciprocal(x: expressions.Expression) -> expressions.Canonical:
    """Return the key of a reciprocal up to the names of its rows, which have different sorts."""
    rows = {i: ("row", i.sort, *i.image) for i in x.free}
    return expressions.canonical(x.children[0], rows)


def _count_most_reciprocals(x: expressions.Expression, key: expressions.Canonical) -> int:
    """Return the most reciprocals of one form in any term."""
    if is_reciprocal(x):
        return int(_key_of_reciprocal(x) == key)
    if isinstance(x, expressions.Sum):
        return max(_count_most_reciprocals(y, key) for y in x.children)
    if isinstance(x, expressions.Product):
        return sum(_count_most_reciprocals(y, key) for y in x.children)
    return _count_most_reciprocals(x.body, key) if isinstance(x, expressions.Total) else 0


def _check_rows(
    numerator: expressions.Expression, forms: tuple[RowForm, ...], rows: set[str]
) -> None:
    """Raise Refused unless the rows are independent of each other."""
    for form in forms:
        # Two indices of one sort in a divisor would not be counted by rows.
        of_sorts = Counter(i.sort for i in form.divisor.free)
        if any(n > 1 for n in of_sorts.values()):
            raise Refused("a divisor under a sum has two indices of one sort")
        # 1/Z inside Z would need another round.
        if any(map(is_reciprocal, nodes(form.divisor))):
            raise Refused("a divisor under a sum holds such a divisor itself")
        if rows & most_bound(form.divisor).keys():
            raise Refused("it needs 1/Z · Z = 1 under a sum, and Z sums over rows itself")
    for x in (numerator, *[form.divisor for form in forms]):
        for y in nodes(x):
            if isinstance(y, expressions.Exponential) and rows & most_bound(y.children[0]).keys():
                raise Refused("it needs 1/Z · Z = 1 under a sum, and an exponent sums over rows")
