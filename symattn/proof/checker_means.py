"""Means of polynomials in random letters, for ``checker``, which computes them again from the certificate.

``["function", "mean", x, ["function", "law of a", κ₁, κ₂, …], …]`` is E x. All entries of arrays with a law are
independent, and those of one array have its law, with these cumulants; an unknown cumulant is
``["function", "any", …]``. x is expanded into products under sums, and

    E[a_{i₁} ⋯ a_{i_r}] = Σ over partitions of {1, …, r}  Π over parts B  κ_{|B|} [all i_b with b in B are equal]

as joint cumulants of independent numbers are 0, so that only those of an entry with itself remain (V. P. Leonov,
A. N. Shiryaev, 1959). The mean over several arrays is the mean over one after the other, as they are independent.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, count, product
from math import comb, prod

from symattn.proof import checker_clearing
from symattn.proof.checker_reading import (
    BINDERS,
    CheckedNode,
    Record,
    array_of,
    expect,
    expect_few,
    node,
    number,
    read,
    renamed,
)
from symattn.proof.checker_simplifying import Simplifying

_NUMBERS = re.compile("[0-9]+")
_LAW, _OWN = "law of ", "in a mean "  # the second begins the names of the checker's own indices
# An unknown cumulant, which no moment may use.
_ANY = node("function", [number(0)], "any")
Laws = Mapping[str, tuple[CheckedNode, ...]]
# indices with their sorts, and factors
Term = tuple[tuple[tuple[str, str], ...], tuple[CheckedNode, ...]]


def read_means(data: object, scope: Mapping[str, str]) -> CheckedNode:
    """Return the expression in ``data`` with every mean replaced by its value."""
    return without_means(read(data, scope), scope)


def without_means(x: CheckedNode, scope: Mapping[str, str]) -> CheckedNode:
    """Return ``x`` with every mean replaced by its value."""
    every = x.all(into_functions=True)
    # Most expressions have no mean, and need no copy.
    if not any(_is_mean(y) for y in every):
        return x
    names = {*scope, *(y.label for y in every if y.kind in BINDERS)}
    # Fresh names of the expansion must not meet names of the certificate.
    expect(
        not any(name.startswith(_OWN) for name in names),
        "an index with a name that the checker keeps for itself",
    )
    return _replace_means_by_moments(x, count())


def expect_laws(sides: Iterable[CheckedNode], assumed: Iterable[str]) -> None:
    """Reject unless each random array has one law on all sides and in all means, and is not in ``assumed``."""
    laws: dict[str, str] = {}
    every = dict.fromkeys(y for x in sides for y in x.all(into_functions=True))
    for law in (y for y in every if y.kind == "function" and y.label.startswith(_LAW)):
        expect(laws.setdefault(law.label, law.own_form) == law.own_form, "two laws of one array")
    names = {name.removeprefix(_LAW) for name in laws}
    for mean in filter(_is_mean, every):
        arrays = {array_of(y.label) for y in mean.below[0].letters()}
        own = {x.label.removeprefix(_LAW) for x in mean.below[1:]}
        # Inside a mean, an array that is random elsewhere must be averaged as well.
        expect(not arrays & (names - own), "a mean in which what is random elsewhere is not")
    # Cumulants with a sign or a circle assumed besides would be another law.
    expect(not names & set(map(array_of, assumed)), "more is said of a random array than its law")


def assumed_letters(record: Record) -> list[str]:
    """Return the letters that are declared positive, or on a circle."""
    return [
        str(x)
        for x in (
            *record.get("positive", ()),
            *(y for pair in record.get("rules", ()) for y in pair),
        )
    ]


def bodies(x: CheckedNode) -> list[CheckedNode]:
    """Return the arguments of the means in ``x``."""
    return [y.below[0] for y in x.all(into_functions=True) if _is_mean(y)]


def _is_mean(x: CheckedNode) -> bool:
    return x.kind == "function" and x.label == "mean"


def _replace_means_by_moments(x: CheckedNode, fresh: Iterator[int]) -> CheckedNode:
    if _is_mean(x):
        laws = _read_laws_of_mean(x.below[1:])
        _expect_apart(x.below[0], laws)
        # Of all letters at once: a quotient q / k has no mean, although that of q is 0.
        _expect_polynomial(x.below[0], laws)
        for name, law in laws.items():
            _expect_moments(x.below[0], name, law)
        result = x.below[0]
        for name, law in laws.items():
            result = _MeanOverArray(name, law, fresh).of(result)
        return result
    if not x.below:
        return x
    return x.of(_replace_means_by_moments(y, fresh) for y in x.below)


def _read_laws_of_mean(every: Sequence[CheckedNode]) -> Laws:
    lawful = all(x.kind == "function" and x.label.startswith(_LAW) for x in every)
    expect(bool(every) and lawful, "a mean without laws")
    result = {x.label.removeprefix(_LAW): x.below for x in every}
    expect(len(result) == len(every), "two laws of one array")
    # Entries of one array have one law, whatever its block.
    expect(all(name == array_of(name) for name in result), "a law of a part of an array")
    for cumulant in (y for x in every for y in x.below):
        random = any(array_of(y.label) in result for y in cumulant.letters())
        # Laws are the same for all entries and do not depend on what is averaged.
        expect(not random and not cumulant.free, "a cumulant that is random, or is not one number")
    return result


def _expect_apart(x: CheckedNode, laws: Laws) -> None:
    """Reject letters that may be the same entry under two names: x[0] and x[1] differ, x[0] and x_i need not.
    So within a block of an array, fixed numbers must be at the same indices."""
    patterns: dict[str, str] = {}
    for y in x.letters():
        if array_of(y.label) in laws:
            block, _, numbers = y.label.partition("[")
            # Indices under letters run over all places, fixed numbers stand for one place alone.
            pattern = _NUMBERS.sub("0", numbers)
            expect(
                patterns.setdefault(block, pattern) == pattern,
                "entries of one array that may be one",
            )


def _expect_polynomial(x: CheckedNode, laws: Laws) -> None:
    """Reject what is not a polynomial in the letters of arrays with a law."""
    # Nested means would need conditional laws.
    expect(not _is_mean(x), "a mean of a mean")
    if x.kind == "letter" or not _is_random(x, laws):
        return
    # Exponentials and other functions have no moments by cumulants of finite order, and a divisor
    # must be a constant of the mean.
    polynomial = x.kind in ("sum", "product", "total") or (
        x.kind == "ratio" and not _is_random(x.below[1], laws)
    )
    expect(polynomial, "a mean of what is not a polynomial in random letters")
    for y in x.below:
        _expect_polynomial(y, laws)


def _expect_moments(x: CheckedNode, array: str, law: Sequence[CheckedNode]) -> None:
    """Reject a polynomial of a higher degree in an array than its law has moments for: E[a³ b] need not exist, although
    E b = 0."""
    degree = _degree(x, array)
    known = degree <= len(law) and not _is_unknown(law[degree - 1])
    expect(not degree or known, "a cumulant that is not assumed")


def _degree(x: CheckedNode, array: str) -> int:
    """Return the degree of a polynomial in the letters of an array."""
    if x.kind == "letter":
        return int(array_of(x.label) == array)
    if not _is_random(x, (array,)):
        return 0
    degrees = [_degree(y, array) for y in x.below]
    return sum(degrees) if x.kind == "product" else max(degrees)


def _is_unknown(cumulant: CheckedNode) -> bool:
    return cumulant.kind == "function" and cumulant.label == "any"


def _is_random(x: CheckedNode, arrays: Container[str]) -> bool:
    return any(array_of(y.label) in arrays for y in x.letters())


class _MeanOverArray:
    """The operator E over the entries of one array, the letters of other arrays being fixed."""

    def __init__(self, array: str, law: Sequence[CheckedNode], fresh: Iterator[int]) -> None:
        self.array, self.law, self.fresh = array, law, fresh
        self.count = 0

    def of(self, x: CheckedNode) -> CheckedNode:
        simplify = Simplifying(frozenset())
        result: list[CheckedNode] = []
        for indices, factors in self._expand_under_mean(x):
            random = [f for f in factors if self._is_entry(f)]
            expect(
                # Under a permutation it is unknown which entries are the same.
                all(len(i) == 1 for f in random for i in f.indices),
                "random letters under a permutation",
            )
            fixed = [f for f in factors if not self._is_entry(f)]
            labels = dict.fromkeys(f.label for f in random)
            moments = [self._moment([f for f in random if f.label == label]) for label in labels]
            expect_few(len(result) + prod(map(len, moments)))
            for choice in product(*moments):
                body = checker_clearing.product([number(1), *fixed, *choice])
                # Outer sums come first in the list, so binders are added from the innermost on.
                # Each is simplified at once, which lets the relations remove indices.
                for name, sort in reversed(indices):
                    body = simplify(node("total", [body], name, (sort,)))
                result.append(body)
        return _join_like_terms(result)

    def _is_entry(self, x: CheckedNode) -> bool:
        return x.kind == "letter" and array_of(x.label) == self.array

    def _expand_under_mean(self, x: CheckedNode) -> list[Term]:
        """Return ``x`` as a sum of products, each under sums over indices with fresh names."""
        if x.kind == "letter" or not _is_random(x, (self.array,)):
            return [((), (x,))]
        if x.kind == "sum":
            return [term for y in x.below for term in self._expand_under_mean(y)]
        if x.kind == "product":
            parts = [self._expand_under_mean(y) for y in x.below]
            many = 1
            for part in parts:
                many *= len(part)
                expect_few(many)
            return [
                (
                    sum((names for names, _ in choice), ()),
                    sum((factors for _, factors in choice), ()),
                )
                for choice in product(*parts)
            ]
        if x.kind == "total":
            # Fresh names keep the indices of two factors apart when their sums are multiplied.
            name = f"{_OWN}{next(self.fresh)}"
            inner = self._expand_under_mean(renamed(x.below[0], x.label, name))
            return [(((name, x.sorts[0]), *indices), factors) for indices, factors in inner]
        # Of a polynomial, what is left is a quotient by a constant of the mean.
        over = x.of([number(1), x.below[1]])
        return [
            (indices, (*factors, over)) for indices, factors in self._expand_under_mean(x.below[0])
        ]

    def _moment(self, letters: Sequence[CheckedNode]) -> list[CheckedNode]:
        """Return terms that add up to E of a product of entries."""
        known: dict[tuple[CheckedNode, ...], list[CheckedNode]] = {(): [number(1)]}

        def moment(entries: tuple[CheckedNode, ...]) -> list[CheckedNode]:
            if entries not in known:
                known[entries] = list(self._split_off_first_part(entries, moment))
            return known[entries]

        # Equal letters stand together, so that equal parts are found together.
        return moment(tuple(sorted(letters, key=lambda y: y.own_form)))

    def _split_off_first_part(
        self,
        entries: tuple[CheckedNode, ...],
        moment: Callable[[tuple[CheckedNode, ...]], list[CheckedNode]],
    ) -> Iterator[CheckedNode]:
        """Yield κ_{|B|} [all entries of B are the same], for each part B with the first entry, times the terms of the
        moment of the entries outside of B."""
        first, others = entries[0], entries[1:]
        for order in range(1, len(entries) + 1):
            cumulant = self.law[order - 1] if order <= len(self.law) else _ANY
            # A vanishing cumulant removes the term, even if the others are unknown.
            if cumulant.kind == "number" and cumulant.label == 0:
                continue
            # Parts are counted before they are formed, since their number may be enormous.
            self._expect_few_more(comb(len(others), order - 1))
            for part, times in Counter(combinations(others, order - 1)).items():
                rest = moment(tuple((Counter(others) - Counter(part)).elements()))
                expect(
                    not (rest and _is_unknown(cumulant)),
                    "a cumulant that is not assumed",
                )
                self._expect_few_more(len(rest))
                factors = [number(times), cumulant, *_all_one((first, *part))]
                yield from (checker_clearing.product([*factors, term]) for term in rest)

    def _expect_few_more(self, more: int) -> None:
        self.count += more
        expect_few(self.count)


def _join_like_terms(xs: Iterable[CheckedNode]) -> CheckedNode:
    """Return the sum of ``xs``, with the coefficients of like terms added up."""
    coefficients: defaultdict[str, Fraction] = defaultdict(Fraction)
    terms: dict[str, CheckedNode] = {}
    for term in (t for x in xs for t in (x.below if x.kind == "sum" else (x,))):
        parts = checker_clearing.factors(term)
        rest = checker_clearing.product(f for f in parts if f.kind != "number")
        coefficients[rest.own_form] += prod(f.label for f in parts if f.kind == "number")
        terms.setdefault(rest.own_form, rest)
    joined = [checker_clearing.times(number(coefficients[f]), y) for f, y in terms.items()]
    return checker_clearing.plus(joined or [number(0)])


def _all_one(part: Sequence[CheckedNode]) -> Iterator[CheckedNode]:
    """Yield the relations by which all entries are the same."""
    first = part[0]
    for other in part[1:]:
        expect(other.sorts == first.sorts, "entries of one array with indices of other sorts")
        # All indices of both entries must agree.
        for i, j, sort in zip(first.indices, other.indices, first.sorts, strict=True):
            yield node("is", (), "=", (sort, sort), (i, j))
