"""Random identities of index expressions, true by construction or mutated, and what they are at larger sizes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from itertools import product
from operator import mul
from random import Random
from typing import Any

from symattn import Refused, kinds
from symattn.arrays.index import building as build
from symattn.arrays.index.expressions import fresh
from symattn.proof.certificate import written
from symattn.proof.checker_reading import read
from symattn.proof.checker_values import Point, Retry
from symattn.proof.expectation import EntryLaw, Expectation

SORTS = ("n", "m")
PRIME = 2**61 - 1  # the ninth of Mersenne's


@dataclass
class Writer:
    """Random expressions over the sorts n and m. ``quotients``: with softmax-like divisors; ``opaque``: with maxima."""

    random: Random
    quotients: bool = False
    opaque: bool = False
    predicates: bool = True

    def expression(self, scope: tuple[kinds.Index, ...], depth: int) -> kinds.Expression:
        choice = self.random.random()
        if depth == 0 or choice < 0.1:
            return self.leaf(scope)
        if choice < 0.3:
            return build.add(*[self.expression(scope, depth - 1) for _ in range(2)])
        if choice < 0.5:
            return build.multiply(*[self.expression(scope, depth - 1) for _ in range(2)])
        if choice < 0.8:
            i = fresh(self.random.choice(SORTS))
            body = build.multiply(self.letter((*scope, i)), self.expression((*scope, i), depth - 1))
            return build.total(i, body if self.random.random() < 0.8 else self.expression((*scope, i), depth - 1))
        if choice < 0.9 or not self.quotients:
            return build.exponential(self.exponent(scope))
        return build.divide(self.expression(scope, depth - 1), self.normaliser(scope))

    def leaf(self, scope: tuple[kinds.Index, ...]) -> kinds.Expression:
        choice = self.random.random()
        same = [(i, j) for i, j in product(scope, scope) if i.sort == j.sort and i != j]
        if choice < 0.1:
            return build.constant(Fraction(self.random.choice((-2, -1, 1, 2, 3)), self.random.choice((1, 2))))
        if choice < 0.2 and self.predicates:
            return kinds.Count(self.random.choice(SORTS))
        if choice < 0.35 and same and self.predicates:
            return build.predicate(self.random.choice("=≤<"), *self.random.choice(same))
        if choice < 0.45 and scope and self.opaque:
            return kinds.Opaque("max", build.add(self.letter(scope), self.letter(scope)))
        return self.letter(scope)

    def letter(self, scope: tuple[kinds.Index, ...]) -> kinds.Expression:
        rank = min(len(scope), self.random.choice((0, 1, 1, 1, 2)))
        chosen = tuple(self.random.choice(scope) for _ in range(rank))
        return kinds.Letter(self.random.choice("xy") + "".join(i.sort for i in chosen), chosen)

    def exponent(self, scope: tuple[kinds.Index, ...]) -> kinds.Expression:
        parts = []
        for _ in range(self.random.choice((1, 1, 2))):
            i = fresh(self.random.choice(SORTS))
            plain = build.multiply(self.letter(scope), self.letter(scope))
            inner = (*scope, i)
            summed = build.total(i, build.multiply(kinds.Letter("z" + i.sort, (i,)), self.letter(inner)))
            part = self.random.choice((self.letter(scope), self.letter(scope), plain, summed))
            parts.append(build.multiply(build.constant(self.random.choice((-1, 1, 1, Fraction(1, 2)))), part))
        return build.add(*parts)

    def normaliser(self, scope: tuple[kinds.Index, ...]) -> kinds.Expression:
        i = fresh(self.random.choice(SORTS))
        return build.total(i, build.exponential(build.add(self.letter((*scope, i)), kinds.Letter("z" + i.sort, (i,)))))

    def rewritten(self, x: kinds.Expression, scope: tuple[kinds.Index, ...]) -> kinds.Expression:
        """An expression equal to ``x``, written in another way."""
        if self.random.random() < 0.15:
            more = self.letter(scope)
            return build.add(self.rewritten(x, scope), more, build.negate(more))
        if isinstance(x, kinds.Total):
            return self._total(x, scope)
        if isinstance(x, kinds.Count) and self.random.random() < 0.5:
            return build.total(fresh(x.sort), build.constant(1))
        if isinstance(x, kinds.Product):
            return self._product(x, scope)
        if isinstance(x, kinds.Exponential) and isinstance(x.children[0], kinds.Sum) and self.random.random() < 0.5:
            return build.multiply(*map(build.exponential, x.children[0].children))
        if isinstance(x, kinds.Sum):
            terms = [self.rewritten(y, scope) for y in x.children]
            self.random.shuffle(terms)
            return build.add(*terms)
        if isinstance(x, kinds.Ratio):
            return build.divide(self.rewritten(x.children[0], scope), x.children[1])
        return x

    def _total(self, x: kinds.Total, scope: tuple[kinds.Index, ...]) -> kinds.Expression:
        body = self.rewritten(x.body, (*scope, x.index))
        mates = [j for j in scope if j.sort == x.index.sort]
        if mates and self.predicates and self.random.random() < 0.3:
            j = self.random.choice(mates)
            below, above = build.predicate("≤", x.index, j), build.predicate("<", j, x.index)
            return build.add(*[build.total(x.index, build.multiply(p, body)) for p in (below, above)])
        return build.total(x.index, body)

    def _product(self, x: kinds.Product, scope: tuple[kinds.Index, ...]) -> kinds.Expression:
        factors = [self.rewritten(y, scope) for y in x.children]
        self.random.shuffle(factors)
        sums = [f for f in factors if isinstance(f, kinds.Sum)]
        if sums and self.random.random() < 0.7:
            rest = list(factors)
            rest.remove(sums[0])
            return build.add(*[build.multiply(term, *rest) for term in sums[0].children])
        totals = [f for f in factors if isinstance(f, kinds.Total)]
        if totals and self.random.random() < 0.7:
            rest = list(factors)
            rest.remove(totals[0])
            i = fresh(totals[0].index.sort)
            inside = build.substitute(totals[0].body, {totals[0].index: i})
            return build.total(i, build.multiply(*rest, inside))
        return build.multiply(*factors)

    def mutated(self, x: kinds.Expression) -> kinds.Expression:
        """``x`` with one small change somewhere, which may or may not matter."""
        below = [
            y
            for y in x.children
            if y.children or isinstance(y, (kinds.Letter, kinds.Constant, kinds.Predicate, kinds.Count))
        ]
        if below and self.random.random() < 0.75:
            chosen = self.random.choice(below)
            if isinstance(x, kinds.Total):
                return build.total(x.index, self.mutated(x.body))
            if not isinstance(x, kinds.Opaque):
                done = False
                children = []
                for y in x.children:
                    children.append(self.mutated(y) if y is chosen and not done else y)
                    done = done or y is chosen
                return build.rebuild(x, children)
        return self._changed(x)

    def _changed(self, x: kinds.Expression) -> kinds.Expression:
        if isinstance(x, kinds.Letter):
            swapped = "y" if x.name.startswith("x") else "x"
            if len(x.indices) == 2 and x.indices[0].sort == x.indices[1].sort and self.random.random() < 0.5:
                return kinds.Letter(x.name, x.indices[::-1])
            return kinds.Letter(swapped + x.name[1:], x.indices)
        if isinstance(x, kinds.Predicate):
            return build.predicate({"≤": "<", "<": "≤", "=": "≤"}[x.relation], *x.sides)
        if isinstance(x, kinds.Count):
            return self.random.choice((build.add(x, build.constant(-1)), build.constant(1)))
        if isinstance(x, kinds.Constant):
            return build.constant(x.value + 1)
        if isinstance(x, kinds.Sum) and self.random.random() < 0.5:
            return build.add(*x.children[1:])
        return build.negate(x)


@dataclass(frozen=True)
class Equation:
    """Two expressions with the same free indices, as arrays for the prover."""

    left: kinds.Expression
    right: kinds.Expression
    free: tuple[kinds.Index, ...]

    def arrays(self) -> tuple[kinds.Indexed, kinds.Indexed]:
        return self._array(self.left), self._array(self.right)

    def _array(self, x: kinds.Expression) -> kinds.Indexed:
        def at(places: Any) -> kinds.Expression:
            return build.substitute(x, {i: place[1][0] for i, place in zip(self.free, places, strict=True)})

        return kinds.Indexed([i.sort for i in self.free], at)

    def holds(self, sizes: Mapping[str, int], random: Random, inverses: bool = True) -> bool | None:
        """Whether it holds at these sizes at a random point modulo a prime; None where it has no value."""
        names = {i: f"f{k}" for k, i in enumerate(self.free)}
        scope = {names[i]: i.sort for i in self.free}
        left, right = (read(written(x, names), scope) for x in (self.left, self.right))
        for values in product(*[range(sizes[i.sort]) for i in self.free]):
            at = dict(zip(scope, values, strict=True))
            point = Point(sizes, PRIME, random, (), inverses)
            try:
                if point.value(left, at).value != point.value(right, at).value:
                    return False
            except Retry:
                return None
        return True


@dataclass
class Tally:
    """What became of the equations of a campaign."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def equation(writer: Writer, depth: int, mutate: bool) -> Equation:
    """A random equation, true unless ``mutate`` broke it."""
    free = tuple(fresh(writer.random.choice(SORTS)) for _ in range(writer.random.choice((0, 0, 1, 2))))
    left = writer.expression(free, depth)
    right = writer.rewritten(left, free)
    if mutate:
        with suppress(Refused):
            right = writer.mutated(right)
    return Equation(left, right, free)


# -- Expectations by going through all outcomes of a discrete law: nothing is shared with the proof --------------------
Outcomes = Mapping[Fraction, Fraction]
"""Value → probability."""

FLIP: Outcomes = {Fraction(-1): Fraction(1, 2), Fraction(1): Fraction(1, 2)}
SKEWED: Outcomes = {Fraction(0): Fraction(1, 2), Fraction(1): Fraction(1, 3), Fraction(3): Fraction(1, 6)}
LAWS = {"flip": FLIP, "skewed": SKEWED}


def moment(law: Outcomes, power: int) -> Fraction:
    return sum((p * x**power for x, p in law.items()), Fraction(0))


def expectation(law: Outcomes, letters: int, function: Callable[[Sequence[Fraction]], Fraction]) -> Fraction:
    """E of a function of so many independent letters."""
    total = Fraction(0)
    for outcome in product(law.items(), repeat=letters):
        weight = Fraction(1)
        for _, p in outcome:
            weight *= p
        total += weight * function([x for x, _ in outcome])
    return total


def variance(law: Outcomes, letters: int, function: Callable[[Sequence[Fraction]], Fraction]) -> Fraction:
    mean = expectation(law, letters, function)
    return expectation(law, letters, lambda x: (function(x) - mean) ** 2)


# -- Statements in code that ask for means: ``E`` beside the arrays that are declared ----------------------------------
class Averages(Expectation):
    """E with variances and covariances."""

    def __call__(self, *factors: Callable[..., Any]) -> Any:
        """Return the mean of a product of functions of the same random arrays, which they take by name."""
        names = inspect.signature(factors[0]).parameters
        return self.means(lambda x: [reduce(mul, [f(*map(x.get, names)) for f in factors])], [[*names]])[0]

    def variance(self, f: Callable[..., Any]) -> Any:
        """E[f²] − E[f]²."""
        return self.covariance(f, f)

    def covariance(self, f: Callable[..., Any], g: Callable[..., Any]) -> Any:
        """E[f g] − E[f] E[g]; f and g take the same arrays."""
        return self(f, g) - self(f) * self(g)


def averaged(sides: Callable[..., Any], laws: Mapping[str, EntryLaw]) -> Callable[..., Any]:
    """``sides``, which asks for ``E`` beside declared arrays, as a function of declared arrays alone.

    In numbers it is asked of two concrete laws of each array of which two cumulants are assumed alone.
    """
    requests = [name for name in inspect.signature(sides).parameters if name != "E"]
    needed = {parameter for law in laws.values() for parameter in law.parameters}
    names = [*requests, *sorted({*laws, *needed} - set(requests))]
    leaning = {name: _leaning(law) for name, law in laws.items()}

    def function(**given: Any) -> Any:
        said = {name: given[name] for name in requests}
        if any(isinstance(given[name], kinds.Indexed) for name in laws):
            return sides(**said, E=Averages(laws, given))
        every = [laws, leaning] if leaning != laws else [laws]
        results = [sides(**said, E=Averages(each, given)) for each in every]
        return [pair for result in results for pair in ([result] if isinstance(result, tuple) else result)]

    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.laws = laws  # type: ignore[attr-defined]
    return function


def _leaning(law: EntryLaw) -> EntryLaw:
    """For μ ± σ the law of μ − σ/2, four times of five, and μ + 2σ, which leans to one side; any other law as it is."""

    def outcomes(*parameters: Any) -> Any:
        values = [value for value, _ in law.outcomes(*parameters)]
        middle, half = (values[0] + values[1]) * Fraction(1, 2), (values[1] - values[0]) * Fraction(1, 4)
        return [(middle - half, Fraction(4, 5)), (middle + 4 * half, Fraction(1, 5))]

    return replace(law, outcomes=outcomes) if len(law.parameters) and law.finer is None and _is_even(law) else law


def _is_even(law: EntryLaw) -> bool:
    return len(law.cumulants(*[Fraction(1)] * len(law.parameters))) == 2
