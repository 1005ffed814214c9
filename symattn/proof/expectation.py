"""Expectations of polynomials in random letters, for all sizes.

An array of random letters holds independent entries of one law, and different arrays are independent. For such entries
the joint cumulants are 0 unless all entries are the same one, so that

    E[x_{i₁} ⋯ x_{i_r}] = Σ over set partitions of {1, …, r}  Π over blocks B  κ_{|B|} [all i_b with b in B are equal]

with the cumulants κ₁ (mean), κ₂ (variance), … of the law. The predicates then select terms of sums, and the result
contains no random letter. Letters that are not random keep their indices. Source of the formula: V. P. Leonov,
A. N. Shiryaev, On a method of calculation of semi-invariants (1959).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial
from itertools import chain, combinations, islice, product
from math import prod
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.index import expressions as ex
from symattn.arrays.index.building import (
    add,
    as_written,
    constant,
    divide,
    factors,
    kept,
    multiply,
    predicate,
    substitute,
    terms,
    total,
)
from symattn.arrays.index.positions import as_number, in_sizes
from symattn.arrays.indexed import Indexed
from symattn.document.errors import Refused, Undecided
from symattn.document.model import Text
from symattn.proof.signs import array_of

Cumulants = tuple[Any | None, ...]
Drawn = Callable[[Mapping[str, Any]], Sequence[Any]]
Outcomes = Callable[..., Sequence[tuple[Any, Any]]]
TERMS = 20_000  # the most terms of a moment of one array, multiplied out
OUTCOMES = 150  # the most outcomes that an expectation in numbers enumerates


@dataclass(frozen=True)
class EntryLaw:
    """The assumptions about the entries of a random array, as functions of the arrays named in ``parameters``.

    cumulants  κ₁, κ₂, … as far as they are assumed, None if unknown; a moment that needs others is refused by name
    outcomes   a concrete law with these cumulants, as pairs (value, probability), by which statements are refuted
    said       the law in words, if its cumulants do not determine it
    finer      for a fully known law, a second concrete law with more correct moments than ``outcomes``; a mean that
               differs between the two is undecided
    """

    parameters: tuple[str, ...]
    cumulants: Callable[..., Cumulants]
    outcomes: Outcomes
    finer: Outcomes | None = None
    said: Text = ()

    @property
    def assumes(self) -> tuple[str, ...]:
        """The names of its assumptions: independence, common moments and, if they hold, a mean of 0 and a shape."""
        # Distinct numbers for the parameters, so that only a mean of 0 is 0.
        mean = self.cumulants(*map(Fraction, range(2, 2 + len(self.parameters))))[0]
        return ("independent", "moments", *["centred"] * (mean == 0), *["shape"] * bool(self.said))


@dataclass(frozen=True)
class Expectation:
    """Means over the random arrays, which have ``laws``: by cumulants for letters, by all outcomes for numbers."""

    laws: Mapping[str, EntryLaw]
    given: Mapping[str, Any]
    cumulants: dict[str, tuple[ex.Expression | None, ...]] = field(default_factory=dict)

    def means(self, f: Drawn, named: Sequence[Sequence[str]]) -> list[Any]:
        """Return the mean of each result of ``f``, which takes arrays by name, over the arrays ``named`` for it."""
        names = list(dict.fromkeys(chain.from_iterable(named)))
        # Letters need cumulants; numbers allow all outcomes to be enumerated.
        if all(isinstance(self.given[name], Indexed) for name in names):
            return [
                self._mean_of_indexed_array(x, own)
                for x, own in zip(f(self.given), named, strict=True)
            ]
        # Enumeration takes any function, moments take polynomials alone.
        try:
            return self._by_outcomes(f, names)
        except Undecided:
            return self._by_moments(f, names)

    def _by_outcomes(self, f: Drawn, names: Sequence[str]) -> list[Any]:
        """Return means over all outcomes of a concrete law. Raises Undecided if they are too many, or the law lacks
        moments that the means need."""
        concrete = {name: self.laws[name].outcomes for name in names}
        mean = self._mean_over_outcomes(f, concrete)
        finer = {name: law for name in names if (law := self.laws[name].finer)}
        # If the mean differs between two laws for the same assumptions, it needs further moments.
        if finer and not all(
            bool((a == b).all())
            for a, b in zip(mean, self._mean_over_outcomes(f, concrete | finer), strict=True)
        ):
            raise Undecided(
                "moments: the numbers that stand for the law lack moments that this mean needs"
            )
        return mean

    def _by_moments(self, f: Drawn, names: Sequence[str]) -> list[Any]:
        """Return means of polynomials in random entries, by the moments of their laws. Raises Undecided."""
        from symattn.arrays.exact import Exact
        from symattn.proof.random_polynomials import Moments, RandomPolynomial

        moments: list[Moments] = []
        arrays: dict[str, Any] = {}
        for name in names:
            # The parameters of a law may be arrays of the statement.
            shape, parameters = (
                self.given[name].plain_shape,
                (self.given[p] for p in self.laws[name].parameters),
            )
            cumulants = self.laws[name].cumulants(*parameters)
            exact = (None if k is None else Exact.lift(k).item() for k in cumulants)
            own = Moments(name, exact)
            # Each entry is a random variable of its own, with the law of its array.
            entries = np.empty(prod(shape), object)
            for place in range(len(entries)):
                entries[place] = RandomPolynomial.entry(len(moments))
                moments.append(own)
            arrays[name] = Exact(entries.reshape(shape))

        def mean(entry: Any) -> Any:
            return entry.mean(moments) if isinstance(entry, RandomPolynomial) else entry

        results = []
        for array in f({**self.given, **arrays}):
            # A number without random entries is its own mean.
            means = np.frompyfunc(mean, 1, 1)(array.entries)
            results.append(Exact(np.array(means, dtype=object)))
        return results

    def _mean_of_indexed_array(self, x: Indexed, names: Sequence[str]) -> Indexed:
        def at(places: Any) -> ex.Expression:
            # As written, a mean stays a function with its laws: the checker computes it by itself.
            if kept():
                return ex.Opaque(
                    "mean", as_number(x.at(places)), *map(self._write_law_of_array, names)
                )
            with as_written(False):
                element = x.at(places)
            return self.of(element)

        return Indexed(x.shape, at)

    def _write_law_of_array(self, name: str) -> ex.Expression:
        """Return the law of an array, for a certificate."""
        with as_written(False):
            known = self._cumulants_of_array(name)
        unknown = ex.Opaque("any", ex.ZERO)
        shown = (unknown if k is None else k for k in known)
        return ex.Opaque(f"law of {name}", *shown)

    def of(self, x: ex.Expression) -> ex.Expression:
        """Return E of an index expression that is a polynomial in random letters."""
        # Of all letters at once: a quotient q / k has no mean, although that of q is 0.
        _check_polynomial(x, self._has_random_letter)
        for name in self.laws:
            self._check_moments(x, name)
        # By independence the mean over all arrays is the mean over one after the other. Like terms
        # join in between, so that a power of q·k takes few partitions.
        for name in self.laws:
            x = self._mean_over_array(x, name)
        return x

    def _check_moments(self, x: ex.Expression, name: str) -> None:
        """Raise Refused if the degree in an array is above its moments: E[a³ b] need not exist, although E b = 0."""
        degree = _degree(x, name)
        if not degree:
            return
        known = self._cumulants_of_array(name)
        if degree > len(known) or known[degree - 1] is None:
            raise Refused(f"moments: the moment of order {degree} of {name} is not assumed")

    def _has_random_letter(self, x: ex.Expression) -> bool:
        if isinstance(x, ex.Letter):
            return array_of(x) in self.laws
        return any(map(self._has_random_letter, x.children))

    def _mean_over_array(self, x: ex.Expression, name: str) -> ex.Expression:
        """Return E over the entries of one array, the letters of other arrays being fixed."""

        def is_random(y: ex.Expression) -> bool:
            if isinstance(y, ex.Letter):
                return array_of(y) == name
            return any(map(is_random, y.children))

        if not is_random(x):
            return x
        means = []
        for bound, parts in _expand_random_products(x, is_random):
            letters: dict[str, list[ex.Letter]] = defaultdict(list)
            fixed = []
            for y in parts:
                if isinstance(y, ex.Letter) and is_random(y):
                    letters[y.name].append(y)
                else:
                    fixed.append(y)
            # Blocks of one array have no entry in common. Each term is summed by itself: there its
            # predicates remove indices.
            for choice in product(*map(self._terms_of_moment, letters.values())):
                means.append(_sum_over_bound_indices(bound, multiply(*fixed, *choice)))
        return _join_like_terms(add(*means))

    def _terms_of_moment(self, letters: Sequence[ex.Letter]) -> list[ex.Expression]:
        """Return terms, without sums of predicates, that add up to E of a product of entries."""
        # Under a permutation it is unknown which entries are the same.
        if any(i.image for x in letters for i in x.indices):
            raise Refused("moments: random letters under a permutation")
        name = array_of(letters[0])
        cumulants = self._cumulants_of_array(name)

        @cache
        def moment(entries: tuple[ex.Letter, ...]) -> list[ex.Expression]:
            if not entries:
                return [ex.ONE]
            # The block of the first entry, in all ways, times the moment of the other entries.
            first, others = entries[0], entries[1:]
            result: list[ex.Expression] = []
            for order in range(1, len(entries) + 1):
                cumulant = cumulants[order - 1] if order <= len(cumulants) else None
                # A vanishing cumulant removes the term, even if others are unknown.
                if cumulant is ex.ZERO:
                    continue
                for block, times in Counter(combinations(others, order - 1)).items():
                    rest = moment(_without(others, block))
                    # Where the rest has a mean of 0, even an unknown cumulant does not count.
                    if not rest:
                        continue
                    if cumulant is None:
                        raise Refused(
                            f"moments: the moment of order {order} of {name} is not assumed"
                        )
                    factor = multiply(constant(times), cumulant, *_all_equal(first, block))
                    result += [multiply(factor, x) for x in rest]
                    if len(result) > TERMS:
                        raise Refused(f"moments: a moment of more than {TERMS} terms")
            return result

        # Equal letters stand together, so that equal choices of them are equal tuples.
        together = (x for kind in dict.fromkeys(letters) for x in letters if x == kind)
        return moment(tuple(together))

    def _cumulants_of_array(self, name: str) -> tuple[ex.Expression | None, ...]:
        # Cumulants are lifted once for each array.
        if name not in self.cumulants:
            law = self.laws[name]
            values = law.cumulants(*[self.given[p] for p in law.parameters])
            self.cumulants[name] = tuple(
                None if k is None else Indexed.lift(k).at(()) for k in values
            )
        return self.cumulants[name]

    def _mean_over_outcomes(self, f: Drawn, laws: Mapping[str, Outcomes]) -> list[Any]:
        from symattn.arrays.exact import Exact

        entries = []
        for name, law in laws.items():
            outcomes = law(*[self.given[p] for p in self.laws[name].parameters])
            exact = [(Exact.lift(value).item(), probability) for value, probability in outcomes]
            entries += [exact] * prod(self.given[name].plain_shape)
        if prod(map(len, entries)) > OUTCOMES:
            raise Undecided("moments: too many outcomes to run through")
        shapes = {name: self.given[name].plain_shape for name in laws}
        results = []
        for outcome in product(*entries):
            values = (value for value, _ in outcome)
            arrays = {
                name: np.fromiter(islice(values, prod(shape)), object)
                for name, shape in shapes.items()
            }
            shaped = {name: Exact(array.reshape(shapes[name])) for name, array in arrays.items()}
            results.append(f(shaped))
        # Weights in the order of the outcomes above.
        weights = Exact.lift(
            [prod(probability for _, probability in outcome) for outcome in product(*entries)]
        )
        return [
            Exact.xp.moveaxis(Exact.xp.stack(every), 0, -1) @ weights
            for every in zip(*results, strict=True)
        ]


def multiplied_out(x: ex.Expression) -> ex.Expression:
    """Return a polynomial as a sum of products, with like terms collected."""
    return add(
        *[
            _sum_over_bound_indices(bound, multiply(*parts))
            for bound, parts in _expand_random_products(x, lambda y: in_sizes(y) is None)
        ]
    )


def _check_polynomial(x: ex.Expression, random: Callable[[ex.Expression], bool]) -> None:
    """Raise Refused unless ``x`` is a polynomial in random letters."""
    if not random(x) or isinstance(x, ex.Letter):
        return
    if not isinstance(x, (ex.Sum, ex.Product, ex.Total, ex.Ratio)) or (
        isinstance(x, ex.Ratio) and random(x.children[1])
    ):
        raise Refused(f"moments: {type(x).__name__.lower()} of random letters is not a polynomial")
    for y in x.children:
        _check_polynomial(y, random)


def _degree(x: ex.Expression, name: str) -> int:
    """Return the degree of a polynomial in the letters of an array."""
    if isinstance(x, ex.Letter):
        return int(array_of(x) == name)
    # A divisor is a constant of the mean.
    degrees = [_degree(y, name) for y in x.children]
    return sum(degrees) if isinstance(x, ex.Product) else max(degrees, default=0)


def _expand_random_products(
    x: ex.Expression, random: Callable[[ex.Expression], bool]
) -> list[tuple[tuple[ex.Index, ...], tuple[ex.Expression, ...]]]:
    """Return ``x`` as a sum of products under sums over fresh indices; parts that are not random stay unexpanded."""
    if not x.children or not random(x):
        return [((), (x,))]
    if isinstance(x, ex.Sum):
        return [term for y in x.children for term in _expand_random_products(y, random)]
    if isinstance(x, ex.Product):
        choices = product(*[_expand_random_products(y, random) for y in x.children])
        return [
            (sum((bound for bound, _ in choice), ()), sum((factors for _, factors in choice), ()))
            for choice in choices
        ]
    if isinstance(x, ex.Total):
        # Fresh indices keep the sums of two factors apart in a product.
        new = ex.fresh(x.index.sort)
        inner = _expand_random_products(substitute(x.body, {x.index: new}), random)
        return [((new, *bound), parts) for bound, parts in inner]
    if isinstance(x, ex.Ratio) and not random(x.children[1]):
        below = divide(ex.ONE, x.children[1])
        return [
            (bound, (*parts, below))
            for bound, parts in _expand_random_products(x.children[0], random)
        ]
    raise Refused(f"moments: {type(x).__name__.lower()} of random letters is not a polynomial")


def _sum_over_bound_indices(bound: Sequence[ex.Index], x: ex.Expression) -> ex.Expression:
    for i in reversed(bound):
        x = total(i, x)
    return x


def _without(xs: Sequence[ex.Letter], taken: Sequence[ex.Letter]) -> tuple[ex.Letter, ...]:
    rest = list(xs)
    for x in taken:
        rest.remove(x)
    return tuple(rest)


def _all_equal(first: ex.Letter, others: Sequence[ex.Letter]) -> Iterator[ex.Expression]:
    """Yield the predicates by which entries of one array are the same one."""
    for x in others:
        yield from map(partial(predicate, "="), first.indices, x.indices)


def _join_like_terms(x: ex.Expression) -> ex.Expression:
    """Return a sum with the coefficients of like terms added up."""
    free = {i: ("free", n) for n, i in enumerate(sorted(x.free))}
    coefficients: defaultdict[ex.Canonical, Fraction] = defaultdict(Fraction)
    terms_by_form: dict[ex.Canonical, ex.Expression] = {}
    for term in terms(x):
        numbers = [f.value for f in factors(term) if isinstance(f, ex.Constant)]
        rest = multiply(*[f for f in factors(term) if not isinstance(f, ex.Constant)])
        form = ex.canonical(rest, free)
        coefficients[form] += prod(numbers)
        terms_by_form.setdefault(form, rest)
    return add(*[multiply(constant(coefficients[form]), y) for form, y in terms_by_form.items()])


HALF = Fraction(1, 2)


def law_with(deviation: str, mean: str | None = None) -> EntryLaw:
    """Return the assumption of mean μ (0 if not given) and standard deviation σ; its concrete law is μ ± σ."""
    if mean is None:
        return EntryLaw((deviation,), lambda s: (0, s * s), lambda s: _two_point_outcomes(0 * s, s))
    return EntryLaw((mean, deviation), lambda m, s: (m, s * s), _two_point_outcomes)


def _two_point_outcomes(m: Array, s: Array) -> list[tuple[Any, Fraction]]:
    return [(m - s, HALF), (m + s, HALF)]


NORMAL = EntryLaw(
    (),
    lambda: (0, 1, *[0] * 22),
    lambda: [
        (-_root_of_three(), Fraction(1, 6)),
        (0, Fraction(2, 3)),
        (_root_of_three(), Fraction(1, 6)),
    ],
    finer=lambda: _SEVEN,
    said=("are N(0, 1)",),
)
"""N(0, 1), with cumulants up to order 24; the concrete law has three values and the moments up to the fifth, the finer
one up to the seventh."""

# Of 180, at −3 to 3: their moments up to the seventh are 0, 1, 0, 3, 0, 15, 0.
_WEIGHTS = (1, 9, 45, 70, 45, 9, 1)
_SEVEN: list[tuple[Any, Fraction]] = [
    (n, Fraction(w, 180)) for n, w in zip(range(-3, 4), _WEIGHTS, strict=True)
]


def _root_of_three() -> Any:
    from symattn.arrays.exact import Exact

    return Exact.xp.sqrt(Exact.lift(3))
