"""Decide with python-flint whether an index expression at given sizes, a polynomial in its letters, is zero.

e to the power of a monomial μ is a letter E_μ = e^{μ/12}, so that coefficients in twelfths are whole powers; e^{−μ/12}
is a letter too, and E_μ E_{−μ} = 1 is used at the end, as are R Z = 1 for reciprocals R that stand under a sum, and
cos² + sin² = 1 for the letters named in ``rules``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import add, mul
from typing import Any, TypeVar

import flint

from symattn.arrays.index import expressions as ex
from symattn.document.errors import Refused
from symattn.proof.clearing import is_reciprocal
from symattn.proof.counting import nodes

Monomial = tuple[tuple[int, int], ...]  # letters, which are numbers, with their powers, in order
Polynomial = dict[Monomial, flint.fmpq]  # in an exponent
Key = tuple[Any, ...]
Place = Mapping[ex.Index, int]
# (cos, sin): letters of these names satisfy cos² + sin² = 1 at every place
Rules = tuple[tuple[str, str], ...]
# The unit of exponents: coefficients are whole twelfths, or refused.
PARTS = 12
T = TypeVar("T")


class World:
    """An expression at places of given sizes, in the ring of the letters that it has there.

    Its letters are collected first, by evaluating it with 0 for each. Parts that places share are evaluated once.
    """

    def __init__(
        self,
        x: ex.Expression,
        places: Iterable[Place],
        sizes: Mapping[str, int],
        inverses: bool = False,
    ) -> None:
        self.x, self.places, self.sizes = x, list(places), sizes
        # whether R Z = 1 is to be used, so that the letters of every Z are needed
        self.inverses = inverses
        self.letters: dict[Key, int] = {}
        self.reciprocals: list[tuple[Key, ex.Expression, Place]] = []
        self._memo: dict[Any, Any] = {}
        self._powers: dict[Any, Polynomial] = {}
        self._exponentials: dict[Any, list[tuple[Key, int]]] = {}
        self._numbers: dict[Key, int] = {}  # of the letters that stand in exponents
        self.generators: Any = defaultdict(int)
        self.constant: Callable[[Any], Any] = lambda _: 0
        # With 0 for each letter, evaluating does nothing but collect letters.
        for at in self.places:
            self.polynomial(x, at)
        for _, below, there in self.reciprocals:  # more are found on the way
            self.polynomial(below, there)
        # A ring needs one letter at least.
        count = max(len(self.letters), 1)
        names = tuple(f"x{i}" for i in range(count))
        self.ring = flint.fmpq_mpoly_ctx.get(names, flint.Ordering.degrevlex)
        # The memo is emptied, as its values have 0 for each letter.
        self.generators = self.ring.gens()
        self.constant = self.ring.constant
        self._memo = {}

    def zero(self, at: Place, rules: Rules = ()) -> bool:
        """Return whether the expression is 0 at a place."""
        f = _with_rules(self, _inverse_free(self, self.polynomial(self.x, at)), rules)
        if f != 0 and self.reciprocals:
            # Powers of all Z remove the reciprocals R; the product is 0 iff f is with R Z = 1.
            for key, below, there in self.reciprocals:
                n = self.letters[key]
                # This reciprocal does not occur in f.
                if not f.degrees()[n]:
                    continue
                rows: dict[int, dict[tuple[int, ...], Any]] = {}
                # Terms are collected by their power of this reciprocal.
                for powers, c in f.to_dict().items():
                    without = (*powers[:n], 0, *powers[n + 1 :])
                    rows.setdefault(powers[n], {})[without] = c
                top, z = max(rows, default=0), self.polynomial(below, there)
                f = sum(
                    (self.ring.from_dict(row) * z ** (top - e) for e, row in rows.items()),
                    self.constant(0),
                )
                # The product may bring e^μ and e^{−μ} together again.
                f = _inverse_free(self, f)
            f = _with_rules(self, f, rules)
        return bool(f == 0)

    def exponentials(self, x: ex.Expression, at: Place) -> list[tuple[Key, int]]:
        """Return e^x as letters and their powers."""
        return _evaluate_once_per_place(self._exponentials, x, at, self._exponential_generators)

    def _exponential_generators(self, x: ex.Expression, at: Place) -> list[tuple[Key, int]]:
        scaled = self.power(x.children[0], at).items()
        powers = {m: c * PARTS for m, c in scaled}
        # Other fractions of a monomial would need another unit of exponents.
        if broken := next((c for c in powers.values() if c.q != 1), None):
            raise Refused(f"the coefficient {broken / PARTS} in an exponent")
        return [(("e", m, c > 0), abs(int(c.p))) for m, c in powers.items()]

    def power(self, x: ex.Expression, at: Place) -> Polynomial:
        """Return an exponent as a polynomial in letters."""
        return _evaluate_once_per_place(self._powers, x, at, self._expand_power_polynomial)

    def _expand_power_polynomial(self, x: ex.Expression, at: Place) -> Polynomial:
        if isinstance(x, (ex.Letter, ex.Opaque)):
            key = letter_of(x, at)
            # Letters in exponents are numbers, so that monomials are quick to sort and compare.
            number = self._numbers.setdefault(key, len(self._numbers))
            return {((number, 1),): flint.fmpq(1)}
        if isinstance(x, ex.Sum):
            return _add_rational_polynomials(self.power(y, at) for y in x.children)
        if isinstance(x, ex.Product):
            return reduce(_multiply_rational_polynomials, (self.power(y, at) for y in x.children))
        if isinstance(x, ex.Total):
            places = range(self.sizes[x.index.sort])
            return _add_rational_polynomials(self.power(x.body, {**at, x.index: a}) for a in places)
        value = self.value(x, at)
        return {(): value} if value else {}

    def value(self, x: ex.Expression, at: Place) -> flint.fmpq:
        """Return the value of a number, a size or a predicate."""
        if isinstance(x, ex.Constant):
            return flint.fmpq(x.value.numerator, x.value.denominator)
        if isinstance(x, ex.Count):
            return flint.fmpq(self.sizes[x.sort])
        if isinstance(x, ex.Predicate):
            return flint.fmpq(holds(x, at))
        raise Refused(f"no polynomial for {type(x).__name__.lower()}")

    def polynomial(self, x: ex.Expression, at: Place) -> Any:
        """Return ``x`` at a place, in the ring."""
        return _evaluate_once_per_place(self._memo, x, at, self._build_flint_polynomial)

    def _build_flint_polynomial(self, x: ex.Expression, at: Place) -> Any:
        if isinstance(x, (ex.Letter, ex.Opaque)):
            key = letter_of(x, at)
            # Each reciprocal is listed once, when its letter first occurs.
            if self.inverses and key not in self.letters and is_reciprocal(x):
                self.reciprocals.append((key, x.children[0], at))
            return self.generator(key)
        if isinstance(x, ex.Sum):
            return reduce(add, (self.polynomial(y, at) for y in x.children))
        if isinstance(x, ex.Total):
            places = ({**at, x.index: a} for a in range(self.sizes[x.index.sort]))
            return sum((self.polynomial(x.body, there) for there in places), self.constant(0))
        if isinstance(x, ex.Product):
            # A false predicate makes the product 0: the other factors need no letters.
            if any(isinstance(y, ex.Predicate) and not holds(y, at) for y in x.children):
                return self.constant(0)
            return reduce(mul, (self.polynomial(y, at) for y in x.children))
        if isinstance(x, ex.Exponential):
            exponentials = self.exponentials(x, at)
            powers = (self.generator(letter) ** times for letter, times in exponentials)
            return reduce(mul, powers, self.constant(1))
        return self.constant(self.value(x, at))

    def generator(self, key: Key) -> Any:
        """Return a letter in the ring."""
        return self.generators[self.letters.setdefault(key, len(self.letters))]


def letter_of(x: ex.Expression, at: Place) -> Key:
    """Return the key of the letter ``x`` at a place."""
    if isinstance(x, ex.Letter):
        return ("letter", x.name, *[_sort_and_index_value(i, at) for i in x.indices])
    numbered = {i: ("at", _sort_and_index_value(i, at)) for i in x.free}
    return ("opaque", ex.canonical(x, numbered))


def holds(x: ex.Predicate, at: Place) -> bool:
    """Return whether a predicate is true at a place. The values of permuted indices are unknown."""
    if any(side not in at for side in x.sides):
        raise Refused(
            "the order of permuted places (is there a causal mask, or are there positions?)"
        )
    i, j = (at[side] for side in x.sides)
    return {"=": i == j, "≤": i <= j, "<": i < j}[x.relation]


def _sort_and_index_value(i: ex.Index, at: Place) -> Any:
    """Return the sort and value of an index; under a permutation, a value of its own."""
    if i.image and i not in at:
        plain_index = i._replace(image=())
        return (i.sort, *i.image, at[plain_index])
    return (i.sort, at[i])


def _evaluate_once_per_place(
    known: dict[Any, T], x: ex.Expression, at: Place, work: Callable[[ex.Expression, Place], T]
) -> T:
    """Return ``work(x, at)``, computed once for each place."""
    # A place may name an index, or only its variable without the permutations.
    places = [at[i] if i in at else at.get(i._replace(image=())) for i in x.order]
    key = x, *places
    if key not in known:
        known[key] = work(x, at)
    return known[key]


@dataclass(frozen=True)
class _Question:
    """A question, up to names, and a function that answers it."""

    key: Any
    answer: Callable[[], bool] = field(compare=False)


# Expressions that are equal up to names have equal answers.
@lru_cache(maxsize=10_000)
def _answer_zero_question(question: _Question) -> bool:
    return question.answer()


def vanishes_at(
    x: ex.Expression,
    free: Iterable[ex.Index],
    sizes: Mapping[str, int],
    rules: Rules = (),
    inverses: bool = False,
) -> bool:
    """Return whether x = 0 at all places of these sizes, decided exactly.

    Every reciprocal under a sum is a free letter or, with ``inverses``, R with R Z = 1. Answers are cached.
    """
    indices = tuple(free)

    def answer() -> bool:
        world = World(x, _representative_places(x, indices, sizes), sizes, inverses)
        return all(world.zero(at, rules) for at in world.places)

    # Names of indices do not matter for the answer, only their order.
    seats = {i: n for n, i in enumerate(indices)}
    names = {i: ("free", seats.get(i._replace(image=()), i), *i.image) for i in x.free}
    form = ex.canonical(x, names), tuple(i.sort for i in indices)
    return _answer_zero_question(
        _Question((form, tuple(sorted(sizes.items())), rules, inverses), answer)
    )


def zero_somewhere(x: ex.Expression, free: Iterable[ex.Index], sizes: Mapping[str, int]) -> bool:
    """Return whether x = 0 whatever the letters are, at some place of these sizes."""
    world = World(x, _representative_places(x, free, sizes), sizes)
    return any(map(world.zero, world.places))


def _representative_places(
    x: ex.Expression, free: Iterable[ex.Index], sizes: Mapping[str, int]
) -> list[Place]:
    """Return one place of each kind: to rename the members of a sort that no order compares only renames letters."""
    orders = (
        y for y in nodes(x, arguments=True) if isinstance(y, ex.Predicate) and y.relation != "="
    )
    compared = {i.sort for y in orders for i in y.sides}
    places: list[dict[ex.Index, int]] = [{}]
    for i in free:
        every, longer = sizes[i.sort], []
        for at in places:
            # the members of a sort that a place names are 0, 1, …
            taken = (n for j, n in at.items() if j.sort == i.sort)
            fresh = 1 + max(taken, default=-1)
            # An order tells the members of its sort apart, so all places are needed.
            longer += [
                {**at, i: n} for n in range(every if i.sort in compared else min(every, fresh + 1))
            ]
        places = longer
    return list(places)


def _inverse_free(world: World, f: Any) -> Any:
    """Return f with E_μ E_{−μ} = 1 applied in every monomial."""
    # Only letters with both signs of an exponent can cancel.
    pairs = [
        (n, world.letters[("e", key[1], False)])
        for key, n in world.letters.items()
        if key[0] == "e" and key[2] and ("e", key[1], False) in world.letters
    ]
    if not pairs:
        return f
    out: dict[tuple[int, ...], Any] = {}
    for powers, c in f.to_dict().items():
        new = list(powers)
        for up, down in pairs:
            both = min(new[up], new[down])
            new[up] -= both
            new[down] -= both
        out[tuple(new)] = out.get(tuple(new), 0) + c
    return world.ring.from_dict({k: c for k, c in out.items() if c})


def _with_rules(world: World, f: Any, rules: Rules) -> Any:
    """Return f with cos² replaced by 1 − sin², so that each cosine has the power 0 or 1."""
    sine = dict(rules)
    for key, n in list(world.letters.items()):
        if (
            key[0] == "letter"
            and key[1] in sine
            # Without its sine, a cosine is a free letter.
            and ("letter", sine[key[1]], *key[2:]) in world.letters
        ):
            s = world.generator(("letter", sine[key[1]], *key[2:]))
            rest = world.constant(0)
            # cos² = 1 − sin² for each pair of powers of the cosine.
            for powers, c in f.to_dict().items():
                twice, once = divmod(powers[n], 2)
                reduced = (*powers[:n], once, *powers[n + 1 :])
                part = world.ring.from_dict({reduced: c})
                rest = rest + part * (1 - s * s) ** twice
            f = rest
    return f


def _add_rational_polynomials(fs: Iterable[Polynomial]) -> Polynomial:
    out: Polynomial = {}
    for f in fs:
        for m, c in f.items():
            out[m] = out[m] + c if m in out else c
    return {m: c for m, c in out.items() if c}


def _multiply_rational_polynomials(f: Polynomial, g: Polynomial) -> Polynomial:
    out: Polynomial = {}
    for m, a in f.items():
        for n, b in g.items():
            powers = dict(m)
            for letter, times in n:
                powers[letter] = powers.get(letter, 0) + times
            # Sorted pairs, so that equal monomials are one key.
            both = tuple(sorted(powers.items()))
            if both in out:
                out[both] = out[both] + a * b
            else:
                out[both] = a * b
    # Terms that cancel are left out, so that 0 is the empty polynomial.
    return {m: c for m, c in out.items() if c}
