"""Coincidences at small sizes, sought on purpose: are the sizes that the cut-off asks for enough?

A family of terms has, at given sizes, linear relations between them. The cut-off claims that relations which hold at
the sizes it asks for hold at all. So the space of relations must not get smaller when larger sizes are added. Terms are
made of few letters and of exponents that coincide easily, so that small sizes have many more relations.
"""

import json
from collections.abc import Callable, Iterable
from itertools import combinations_with_replacement, product
from math import prod
from random import Random
from typing import Any

import pytest

from symattn import Refused, kinds, proving
from symattn.proof.certificate import written
from symattn.proof.checker_reading import read
from symattn.proof.checker_values import Point, Retry
from symattn.proof.clearing import cleared
from symattn.proof.counting import cut_off, grids
from tests.lanes import one_in
from tests.proof.identities import PRIME, SORTS, Equation, Tally, Writer, equation

Sizes = dict[str, int]


#: A number that is an expression: an array without axes.
Number = kinds.Indexed
number, exp = kinds.Indexed.lift, kinds.Indexed.xp.exp


def x(*indices: kinds.Index) -> Number:
    return number(kinds.Letter("x" * len(indices), indices))


def multiply(*factors: Number) -> Number:
    return prod(factors, start=number(1))


def summed(body: Callable[..., Number], *sorts: str) -> Number:
    """Σ over all indices of these sorts of a number, which is computed once."""

    def at(places: Any) -> kinds.Expression:
        return body(*(entry for _, (entry,) in places)).at(())

    return number(kinds.Indexed.xp.sum(kinds.Indexed(sorts, at)).at(()))


def everywhere(body: Callable[..., Number], count: int) -> Number:
    return summed(body, *["n"] * count)


def weighted(terms: Iterable[Number]) -> kinds.Expression:
    """Σ_k c_k term_k."""
    return sum((number(kinds.Letter(f"c{k}", ())) * t for k, t in enumerate(terms)), number(0)).at(())


SUM = everywhere(x, 1)
PLAIN = [lambda *i: sum(map(x, i)), lambda *i: multiply(*map(x, i)), lambda *i: x(i[0]) + x(i[-1])]
WITH_SUMS = [
    lambda *i: SUM,
    lambda *i: x(i[0]) * SUM,
    lambda *i: SUM + x(i[-1]),
    lambda *i: SUM * SUM,
    lambda *i: everywhere(lambda k: x(i[0]) * x(k) * x(k), 1),
]


FAMILIES = {
    "plain": (PLAIN, 2),
    "one sum": (WITH_SUMS[:1], 2),
    "one sum beside plain": (WITH_SUMS[:1] + PLAIN, 1),
    "sums times letters": (WITH_SUMS, 1),
}


def family(random: Random, name: str, predicates: bool) -> list[Number]:
    """Terms Σ_{i…} [predicates] letters e^{…}."""
    exponents, most = FAMILIES[name]
    terms = []
    for _ in range(random.randint(5, 9)):
        count = random.choice((0, *[1, most] * 2))
        powers = [random.choice(exponents) for _ in range(random.choice((0, 1, 1, 2)))]
        letters = random.choice((0, 0, 1))

        def body(*i: kinds.Index, powers: list[Callable[..., Number]] = powers, letters: int = letters) -> Number:
            parts = [exp(p(*i)) for p in powers if i or p is WITH_SUMS[0] or p is WITH_SUMS[3]]
            parts += [x(k) for k in i[:letters]]
            if predicates and len(i) > 1 and random.random() < 0.5:
                parts.append(number(kinds.Predicate(random.choice("=≤<"), i[0], i[1])))
            return multiply(*parts)

        term = everywhere(body, count)
        terms.append(term * number(kinds.Count("n")) if predicates and random.random() < 0.2 else term)
    return terms


class Relations:
    """The relations between terms modulo a prime that hold at all points seen: an echelon form of their values."""

    def __init__(self, prime: int) -> None:
        self.prime = prime
        self.rows: dict[int, list[int]] = {}

    def see(self, row: list[int]) -> bool:
        """Add the values at a point; whether some relation does not hold there."""
        row = list(row)
        for lead in sorted(self.rows):
            factor = row[lead]
            if factor:
                row = [(a - factor * b) % self.prime for a, b in zip(row, self.rows[lead], strict=True)]
        lead = next((k for k, a in enumerate(row) if a), None)
        if lead is None:
            return False
        inverse = pow(row[lead], -1, self.prime)
        new = [a * inverse % self.prime for a in row]
        for other, old in self.rows.items():
            if old[lead]:
                self.rows[other] = [(a - old[lead] * b) % self.prime for a, b in zip(old, new, strict=True)]
        self.rows[lead] = new
        return True


def look(relations: Relations, terms: list[Any], sizes: Iterable[Sizes], random: Random, inverses: bool) -> bool:
    """Look at random points of these sizes; whether a relation that held so far fails at one."""
    fails = False
    for there in sizes:
        for _ in range(len(terms) + 1):
            point = Point(there, relations.prime, random, (), inverses)
            try:
                fails |= relations.see([point.value(t, {}).value for t in terms])
            except Retry:
                continue
    return fails


def relations_are_kept(
    terms: list[Number], asked: list[Sizes], larger: list[Sizes], random: Random, **how: bool
) -> bool:
    """Whether what holds at the sizes ``asked`` for holds at ``larger`` ones."""
    read_terms = [read(written(t.at(()), {}), {}) for t in terms]
    relations = Relations(PRIME)
    look(relations, read_terms, asked, random, how.get("inverses", False))
    return not look(relations, read_terms, larger, random, how.get("inverses", False))


@pytest.mark.parametrize("predicates", [False, True])
@pytest.mark.parametrize("name", one_in(6, FAMILIES))
def test_relations_that_hold_in_the_box_hold_beyond(name: str, predicates: bool) -> None:
    for seed in range(12):
        random = Random(seed)
        terms = family(random, name, predicates)
        found = cut_off(weighted(terms), ())
        top = found.top.get("n", 0)
        asked = [{"n": n} for n in range(top + 1)]
        assert relations_are_kept(terms, asked, [{"n": top + 1}, {"n": top + 2}], random), terms


@pytest.mark.deep
def test_one_size_is_enough_where_it_is_taken() -> None:
    taken = 0
    for seed in range(150):
        random = Random(seed)
        every = family(random, random.choice(list(FAMILIES)), False)
        terms = [t for t in every if not isinstance(t.at(()), (kinds.Count, kinds.Constant))]
        one = cut_off(weighted(terms), ()).one_size
        if one and one.get("n", 0) <= 7:
            taken += 1
            larger = [{"n": n} for n in (1, 2, one.get("n", 1) + 1, one.get("n", 1) + 2)]
            assert relations_are_kept(terms, [{"n": one.get("n", 1)}], larger, random), terms
    assert taken > 20


@pytest.mark.deep
def test_fewer_sizes_are_not_enough() -> None:
    """The campaign can fail: with one size less than D, relations are lost, as with Newton's e₃."""
    lost = 0
    for seed in range(40):
        random = Random(seed)
        terms = family(random, "plain", True)
        found = cut_off(weighted(terms), ())
        asked = [{"n": n} for n in range(found.top.get("n", 0))]
        lost += not relations_are_kept(terms, asked, [{"n": found.top.get("n", 0) + 1}], random)
    assert lost > 5


def test_an_exponent_with_a_sum_meets_one_without_at_small_sizes() -> None:
    """2 e^{Σ x} = Σ_ij e^{x_i + x_j} − Σ_i e^{2 x_i} at n = 2: the size max(D, B) = 2 is not enough."""
    terms = [
        exp(SUM),
        everywhere(lambda i, j: exp(x(i) + x(j)), 2),
        everywhere(lambda i: exp(x(i) + x(i)), 1),
    ]
    assert not relations_are_kept(terms, [{"n": 2}], [{"n": 3}], Random(0))
    one = cut_off(sum(terms, number(0)).at(()), ()).one_size
    assert one is not None
    assert relations_are_kept(terms, [one], [{"n": n} for n in (1, 2, 3, 4, 6, 7)], Random(0))


def quotients(random: Random) -> list[Number]:
    """Terms Σ_i Π of letters and of Σ_j e^{s_ij} (…) / Z_i, which only 1/Z · Z = 1 relates."""
    terms = []
    for _ in range(random.randint(4, 6)):

        def letter(j: kinds.Index) -> Number:
            return number(kinds.Letter("v", (j,)))

        def one(j: kinds.Index) -> Number:
            return number(1)

        def body(i: kinds.Index) -> Number:
            def z(column: Callable[[kinds.Index], Number]) -> Number:
                return summed(lambda j: exp(number(kinds.Letter("s", (i, j)))) * column(j), "m")

            times = random.choice((0, 1, 1))
            parts = [z(random.choice((one, letter, one))) for _ in range(random.choice((0, 1, times)))]
            parts += [number(kinds.Letter("g", (i,)))] * random.choice((0, 1))
            quotient = multiply(*parts)
            for _ in range(times):
                quotient = quotient / z(one)
            return quotient

        term = everywhere(body, 1)
        terms.append(term * number(kinds.Count(random.choice("nm"))) if random.random() < 0.3 else term)
    return terms


def test_relations_by_rows_hold_beyond() -> None:
    for seed in range(12):
        random = Random(seed)
        terms = quotients(random)
        numerators = [number(cleared(t.at(())).numerator) for t in terms]
        whole = weighted(numerators)
        asked = [there for _, sizes in grids(whole, ()) for there in sizes]
        tops = {s: max(there[s] for there in asked) for s in ("n", "m") if s in asked[0]}
        full = [{"n": 1, "m": 1, **there} for there in asked]
        larger = [{"n": a + tops.get("n", 1), "m": b + tops.get("m", 1)} for a, b in product((0, 1), (0, 1))]
        assert relations_are_kept(numerators, full, larger, random, inverses=True), terms


def test_all_short_products_of_power_sums() -> None:
    """p_a p_b … with a + b + … ≤ 4, one letter: independent from n = 4 on, and not before."""
    sums = {a: everywhere(lambda i, a=a: multiply(*[x(i)] * a), 1) for a in range(1, 5)}
    chosen = [c for r in range(1, 5) for c in combinations_with_replacement(range(1, 5), r) if sum(c) == 4]
    terms = [multiply(*[sums[a] for a in c]) for c in chosen]
    assert cut_off(sum(terms, number(0)).at(()), ()).counted == {"n": 4}
    read_terms = [read(written(t.at(()), {}), {}) for t in terms]
    ranks = []
    for n in range(1, 7):
        relations = Relations(PRIME)
        look(relations, read_terms, [{"n": n}], Random(n), False)
        ranks.append(len(relations.rows))
    assert ranks == [1, 3, 4, 5, 5, 5]


COSTLY = 60  # sizes in a box, beyond which an equation is left out
LARGEST = 7
DEEP = 1  # parts of the long campaign, of ten: the others are run by hand


def limits(e: Equation) -> Any:
    """The cut-off of an equation; None where the method does not apply, or too many sizes are asked for."""
    try:
        found = cut_off(cleared((number(e.left) - number(e.right)).at(())).numerator, e.free)
    except Refused:
        return None
    many = 1
    for top in found.top.values():
        many *= top + 1
    return found if many <= COSTLY and max(found.top.values(), default=0) <= LARGEST else None


def judged(e: Equation, found: Any, random: Random, tally: Tally, complete: bool) -> None:
    proof = proving.prove_equal(*e.arrays())
    if proof.proved:
        tally.add("proved by " + "/".join(sorted({case.how for case in proof.cases})))
        for more in (0, 1, 2):
            sizes = {s: found.top.get(s, 1) + more + random.randrange(2) for s in SORTS}
            assert e.holds({s: max(n, 1) for s, n in sizes.items()}, random) is not False, (e, sizes)
        verdict = proving.check(json.loads(json.dumps(proving.certificate(proof))), random)
        assert verdict.accepted, (verdict, e)
        assert verdict.epsilon < 1e-20
    elif proof.open_at is not None:
        tally.add("not shown")
        sizes = {**dict.fromkeys(SORTS, 1), **proof.open_at}
        if complete:
            assert e.holds(sizes, random) is False, (e, sizes)
    else:
        tally.add("refused")


def campaign(seeds: range, **options: bool) -> Tally:
    tally = Tally()
    complete = not options.get("quotients") and not options.get("opaque")
    for seed in seeds:
        random = Random(seed)
        e = equation(Writer(random, **options), random.choice((1, 2, 2, 3)), mutate=seed % 2 == 1)
        found = limits(e)
        if found is None:
            tally.add("left out")
            continue
        judged(e, found, random, tally, complete)
        if seed % 2 == 0 and complete:
            assert proving.prove_equal(*e.arrays()).proved, e
    return tally


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"predicates": False}, marks=pytest.mark.deep),
        pytest.param({"quotients": True}, marks=pytest.mark.deep),
        pytest.param({"quotients": True, "predicates": False}, marks=pytest.mark.deep),
        pytest.param({"opaque": True}, marks=pytest.mark.deep),
    ],
    ids=str,
)
def test_no_falsehood_is_proved_and_no_truth_denied(options: dict[str, bool]) -> None:
    tally = campaign(range(160), **options)
    assert sum(n for what, n in tally.counts.items() if what.startswith("proved")) > 40
    assert tally.counts.get("not shown", 0) > 10


@pytest.mark.parametrize(
    "part", [pytest.param(n, marks=pytest.mark.deep if n < DEEP else pytest.mark.exhaustive) for n in range(10)]
)
@pytest.mark.parametrize("quotients", [False, True])
def test_no_falsehood_is_proved_in_a_long_campaign(part: int, quotients: bool) -> None:
    campaign(range(1000 + 1000 * part, 2000 + 1000 * part), quotients=quotients, predicates=part % 3 > 0)
