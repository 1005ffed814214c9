"""Means of polynomials in random letters, for ``checker``, which computes them again from the certificate.

``["function", "mean", x, ["function", "law of a", κ₁, κ₂, …], …]`` is E x. All entries of arrays with a law are
independent, and those of one array have its law, with these cumulants; an unknown cumulant is
``["function", "any", …]``. x is expanded into products under sums, and

    E[a_{i₁} ⋯ a_{i_r}] = Σ over partitions of {1, …, r}  Π over parts B  κ_{|B|} [all i_b with b in B are equal]

as joint cumulants of independent numbers are 0, so that only those of an entry with itself remain (V. P. Leonov,
A. N. Shiryaev, 1959). Entries of different arrays multiply.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, product

from symattn.proof import checker_clearing
from symattn.proof.checker_reading import (
    BINDERS,
    CheckedNode,
    Record,
    Rejected,
    array_of,
    expect,
    expect_few,
    node,
    number,
    read,
    renamed,
)

_NUMBERS = re.compile("[0-9]+")
_LAW, _OWN = "law of ", "in a mean "  # the second begins the names of the checker's own indices
_PARTITIONS = (1, 1, 2, 5, 15, 52, 203, 877, 4140)  # of 0, 1, 2, … letters
# The number of partitions grows fast, so the order is limited.
_HIGHEST = len(_PARTITIONS) - 1  # order of a moment
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
        return _Mean(laws, fresh).of(x.below[0])
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


class _Mean:
    """The operator E, with the laws of the random arrays by name."""

    def __init__(self, laws: Laws, fresh: Iterator[int]) -> None:
        self.laws, self.fresh = laws, fresh

    def of(self, x: CheckedNode) -> CheckedNode:
        result, every = [], self._expand_under_mean(x)
        # Partitions are counted first, since their number may be enormous.
        expect_few(
            sum(
                _PARTITIONS[min(len(same), _HIGHEST)]
                for _, fs in every
                for same in self._of_each(fs)
            )
        )
        for indices, factors in every:
            of_each = self._of_each(factors)
            random = [f for same in of_each for f in same]
            expect(
                # Under a permutation it is unknown which entries are the same.
                all(len(i) == 1 for f in random for i in f.indices),
                "random letters under a permutation",
            )
            fixed = [f for f in factors if f not in random]
            body = checker_clearing.product(
                [number(1), *fixed, *map(self._moment_of_one_array, of_each)]
            )
            # Outer sums come first in the list, so binders are added from the innermost on.
            for name, sort in reversed(indices):
                body = node("total", [body], name, (sort,))
            result.append(body)
        return checker_clearing.plus(result)

    def _is_random(self, x: CheckedNode) -> bool:
        return any(array_of(y.label) in self.laws for y in x.letters())

    def _expand_under_mean(self, x: CheckedNode) -> list[Term]:
        """Return ``x`` as a sum of products, each under sums over indices with fresh names."""
        # Nested means would need conditional laws.
        expect(not _is_mean(x), "a mean of a mean")
        if x.kind == "letter" or not self._is_random(x):
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
        # A divisor without random letters is a constant of the mean.
        if x.kind == "ratio" and not self._is_random(x.below[1]):
            over = x.of([number(1), x.below[1]])
            return [
                (indices, (*factors, over))
                for indices, factors in self._expand_under_mean(x.below[0])
            ]
        # Exponentials and other functions have no moments by cumulants of finite order.
        raise Rejected("a mean of what is not a polynomial in random letters")

    def _of_each(self, factors: Sequence[CheckedNode]) -> list[list[CheckedNode]]:
        """Return the random letters among the factors, grouped by array."""
        random = [f for f in factors if f.kind == "letter" and array_of(f.label) in self.laws]
        return [
            [f for f in random if f.label == name]
            for name in dict.fromkeys(f.label for f in random)
        ]

    def _moment_of_one_array(self, letters: Sequence[CheckedNode]) -> CheckedNode:
        """Return E of a product of entries of one array."""
        expect(len(letters) <= _HIGHEST, "a moment of an order that is too high")
        law = self.laws[array_of(letters[0].label)]
        terms = []
        for parts in _yield_list_partitions(letters):  # Π κ_{|B|} [all entries of B are the same]
            known = [law[len(part) - 1] if len(part) <= len(law) else _ANY for part in parts]
            # A vanishing cumulant removes the term, even if the others are unknown.
            if any(k.kind == "number" and k.label == 0 for k in known):
                continue
            expect(
                not any(k.kind == "function" and k.label == "any" for k in known),
                "a cumulant that is not assumed",
            )
            alone = (y for part in parts for y in _all_one(part))
            terms.append(checker_clearing.product([number(1), *known, *alone]))
        return checker_clearing.plus(terms or [number(0)])


def _all_one(part: Sequence[CheckedNode]) -> Iterator[CheckedNode]:
    """Yield the relations by which all entries are the same."""
    first = part[0]
    for other in part[1:]:
        expect(other.sorts == first.sorts, "entries of one array with indices of other sorts")
        # All indices of both entries must agree.
        for i, j, sort in zip(first.indices, other.indices, first.sorts, strict=True):
            yield node("is", (), "=", (sort, sort), (i, j))


def _yield_list_partitions(xs: Sequence[CheckedNode]) -> Iterator[list[list[CheckedNode]]]:
    """Yield all partitions of a list."""
    if not xs:
        yield []
        return
    for parts in _yield_list_partitions(xs[:-1]):
        # The last element joins each part in turn, or is a part of its own.
        for n, part in enumerate(parts):
            joined_part = [*part, xs[-1]]
            yield [*parts[:n], joined_part, *parts[n + 1 :]]
        yield [*parts, [xs[-1]]]
