"""Test whether expressions are equal for all sizes, by random points at sizes that decide it, for ``checker``.

The sizes that are needed follow from the theorems of ``counting``, implemented here a second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from symattn.proof import checker_clearing
from symattn.proof.checker_reading import (
    CheckedNode,
    Record,
    Rejected,
    expect,
    expect_few,
    form,
    read,
    scope_of,
)
from symattn.proof.checker_values import CheckedValue, Dice, Point, Retry

TRIES = 8  # points drawn until no divisor is zero
Scope = Mapping[str, str]
Rules = Sequence[tuple[str, ...]]
# Other kinds, such as a ratio or a root, must be cleared before a numerator is tested.
_NUMERATOR = frozenset(
    {"number", "size", "letter", "is", "sum", "product", "exp", "total", "function"}
)
# An exponential within an exponent is not covered by the theorem.
_EXPONENT = frozenset({"number", "letter", "is", "sum", "product", "total", "function"})
# letters, whether the sign is −, indices in letters
Monomial = tuple[tuple[str, ...], bool, frozenset[str]]


def expect_same(
    left: CheckedNode, right: CheckedNode, scope: Scope, dice: Dice, rules: Rules = ()
) -> None:
    """Reject unless left = right for all sizes, by the checker's own test."""
    if left.own_form == right.own_form:
        return
    # The numerator of left − right decides, as divisors are admissible by other checks.
    own, _ = checker_clearing.difference(left, right)
    try:
        expect_zero(own, scope, own_sizes(own, scope, False, bool(rules)), rules, False, dice)
    # Reciprocals under a sum need the theorem of rows, whose grid is larger.
    except Rejected:
        expect_zero(own, scope, own_sizes(own, scope, True, bool(rules)), rules, True, dice)


def are_same(left: CheckedNode, right: CheckedNode, scope: Scope, dice: Dice) -> bool:
    """Return whether ``expect_same`` accepts."""
    try:
        expect_same(left, right, scope, dice)
    except Rejected:
        return False
    return True


def expect_differing(e: Record, dice: Dice, rules: Rules) -> None:
    """Reject unless two sides differ at a point modulo the primes, whatever the opaque functions in them are."""
    scope = scope_of(e)
    left = read(e["left"], scope)
    right = read(e["right"], scope)
    _expect_free((left, right), {name for pair in rules for name in pair})
    sizes = {str(s): int(n) for s, n in e["sizes"].items()}
    # A small size suffices to differ; large ones would let a hostile record run long.
    expect(all(0 < n < 10 for n in sizes.values()), "a size that is too large")
    for values in product(*[range(sizes[sort]) for sort in scope.values()]):
        at = dict(zip(scope, values, strict=True))
        # A divisor may be zero at a random point although it is not identically zero.
        for _ in range(TRIES):
            point = dice.point(sizes, rules)
            try:
                gap = _subtract_point_values(point, left, right, at)
                # With other values for the opaque functions the difference must stay the same.
                again = _subtract_point_values(point.with_other_functions(), left, right, at)
            except Retry:
                continue
            if gap.value:
                expect(
                    gap.value == again.value,
                    "what differs depends on a function of which nothing is known",
                )
                dice.tested(gap)
                return
    raise Rejected("the sides are equal there")


def _expect_free(sides: Iterable[CheckedNode], circle: Collection[str]) -> None:
    """Reject sides whose letters are not independent numbers: entries under a permutation, or cosines and sines in
    exponents."""
    # Under a permutation, entries at two places may be one and the same number.
    every = [y for x in sides for y in x.all(into_functions=True)]
    expect(
        all(len(i) == 1 for y in every for i in y.indices), "sides that differ under a permutation"
    )
    exponents = (z for y in every if y.kind == "exp" for z in y.all(into_functions=True))
    tied = (z for z in exponents if z.kind == "letter" and z.label in circle)
    expect(not any(True for _ in tied), "sides that differ by an exponential on a circle")


def _subtract_point_values(
    point: Point, left: CheckedNode, right: CheckedNode, at: Mapping[str, int]
) -> CheckedValue:
    # The residue p − 1 is −1.
    minus = point.times(CheckedValue(point.modulus - 1), point.value(right, at))
    return point.add([point.value(left, at), minus])


def own_sizes(own: CheckedNode, scope: Scope, rows: bool, rules: bool) -> list[dict[str, int]]:
    """Return the sizes that decide the checker's own numerator."""
    try:
        return _find_deciding_sizes("rows" if rows else "one size", own, scope, rules)[1]
    except Rejected:
        # Rows have no weaker theorem to fall back on.
        if rows:
            raise
        # The box needs no condition on bound indices, at the price of more sizes.
        return _find_deciding_sizes("box", own, scope, rules)[1]


def _find_deciding_sizes(
    how: str, x: CheckedNode, scope: Scope, rules: bool
) -> tuple[CountingLimits, list[dict[str, int]]]:
    """Return the limits, and the sizes at which they decide x = 0. Rejects what theorem ``how`` does not decide."""
    if how == "rows":
        return row_grid(x, scope)
    limits = cut_off(x, scope)
    # On a circle letters are not free, which the theorem of one size requires.
    expect(how == "box" or (how == "one size" and not rules), f"{how!r} does not decide it")
    return limits, box(limits) if how == "box" else [one_size(x, limits)]


def needed_sizes(
    e: Record, numerator: CheckedNode, scope: Scope, rules: bool
) -> list[dict[str, int]]:
    """Return the sizes that the theorem requires; reject if its conditions fail or the certificate's counts differ."""
    limits, sizes = _find_deciding_sizes(e["how"], numerator, scope, rules)
    # Counts are compared too, since the printed certificate shows them.
    expect(e["counted"] == limits.counted, "D is counted otherwise")
    expect(e["stable"] == limits.stable, "T is counted otherwise")
    return sizes


_SortedSizes = tuple[tuple[str, int], ...]


def as_set(sizes: Iterable[Mapping[str, int]]) -> set[_SortedSizes]:
    """Return sizes as a set, regardless of order."""
    return {tuple(sorted((str(s), int(n)) for s, n in there.items())) for there in sizes}


def expect_equal(
    left: CheckedNode, right: CheckedNode, scope: Scope, rules: Rules, dice: Dice
) -> None:
    """Reject unless left = right, as quotients, at random points where sizes are 1, or 2, or 3 and 2 in turn."""
    result = {
        s for x in (left, right) for y in x.all(into_functions=True) for s in _sorts_of_node(y)
    }
    sorts = sorted(result | set(scope.values()))
    tested = 0
    # Unequal sizes in the last case show swapped axes.
    for sizes in (
        *(dict.fromkeys(sorts, n) for n in (1, 2)),
        {s: 3 - k % 2 for k, s in enumerate(sorts)},
    ):
        at = {name: dice.random.randrange(sizes[sort]) for name, sort in scope.items()}

        def gap(point: Point, at: dict[str, int] = at) -> CheckedValue:
            return _subtract_point_values(point, left, right, at)

        try:
            _expect_zero_at_points(
                gap, dice.point(sizes, rules, True), rules, dice, f"left is not right at {sizes}"
            )
            tested += 1
        except _Nowhere:  # a variance is zero at the size 1
            continue
    # A divisor may be zero at one of the sizes, so two of the three are required.
    expect(tested > 1, "a divisor is zero at all sizes tried")


def expect_possible(x: CheckedNode, scope: Scope, dice: Dice) -> None:
    """Reject an expression that is zero at some place when all sizes are 3, whatever its letters are."""
    # Size 3 avoids zeros of small sizes, such as the variance of one entry.
    sorts = {s for y in x.all(into_functions=True) for s in _sorts_of_node(y)}
    sizes = dict.fromkeys(sorts | set(scope.values()), 3)
    # Hypotheses at each place: one place that is always 0 makes the hypothesis empty.
    for values in product(*[range(3)] * len(scope)):
        try:
            place = dict(zip(scope, values, strict=True))
            results = dice.point(sizes, ()).value(x, place)
        except (Retry, Rejected):  # it has no value at this point
            continue
        expect(bool(results.value), "a hypothesis that cannot be met")


class _Nowhere(Rejected):
    """Raised if some divisor is zero at every point tried."""


def _sorts_of_node(x: CheckedNode) -> tuple[str, ...]:
    return (x.label,) if x.kind == "size" else x.sorts


def expect_zero(
    numerator: CheckedNode,
    scope: Scope,
    grid: Iterable[dict[str, int]],
    rules: Rules,
    inverses: bool,
    dice: Dice,
) -> None:
    """Reject unless a numerator is zero at all of these sizes and at every place.

    All places of one size are tested at one point: the risks of tests add up, independent or not.
    """
    for sizes in grid:
        # The number of places multiplies the work, so it is limited before the tests.
        expect_few(prod(sizes[sort] for sort in scope.values()))
        point = dice.point(sizes, rules, inverses)
        for values in product(*[range(sizes[sort]) for sort in scope.values()]):
            at = dict(zip(scope, values, strict=True))
            # A fresh point empties the cache, whose size is limited.
            point = dice.point(sizes, rules, inverses) if point.crowded else point

            def value(point: Point, at: dict[str, int] = at) -> CheckedValue:
                return point.value(numerator, at)

            point = _expect_zero_at_points(
                value, point, rules, dice, f"the numerator is not zero at {sizes}"
            )


def _expect_zero_at_points(
    value: Callable[[Point], CheckedValue], point: Point, rules: Rules, dice: Dice, message: str
) -> Point:
    """Reject if the value at a random point is not zero; return the point at which there was a value."""
    # A point at which a divisor is zero shows nothing and is drawn again.
    for _ in range(TRIES):
        try:
            results = value(point)
        except Retry:
            point = dice.point(point.sizes, rules, point.inverses)
            continue
        # Each test adds to the probability of a wrong yes, which the verdict reports.
        dice.tested(results)
        expect(not results.value, message)
        return point
    raise _Nowhere(f"a divisor is zero at the sizes {dict(point.sizes)}")


# -- how far one must look ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CountingLimits:
    """The numbers D (``counted``) and T (``stable``) of each sort."""

    counted: dict[str, int]
    stable: dict[str, int]


def cut_off(
    numerator: CheckedNode,
    scope: Mapping[str, str],
    more: Mapping[str, int] | None = None,
    more_exponents: Iterable[CheckedNode] = (),
) -> CountingLimits:
    """Return D and T; reject if an exponent or the numerator lacks the form that the theorem requires."""
    # D: free indices, and the most bound ones in a term.
    outside_terms = Counter(scope.values())
    counted = bound_in_a_term(numerator) + outside_terms + Counter(more or {})
    exponents = [
        y.below[0] for x in (numerator, *more_exponents) for y in x.all() if y.kind == "exp"
    ]
    # Called for its refusals: an exponent must be a polynomial as the theorem requires.
    for exponent in exponents:
        monomials(exponent)
    bound: Counter[str] = Counter()
    outside: set[str] = set()
    for exponent in exponents:
        bound |= bound_in_a_term(exponent)
        outside |= _sorts_of_free(exponent)
    # A sort that only an exponent sums over must be in the box as well.
    sorts = counted.keys() | bound.keys()
    # T of ``counting``: 0, B, or 2 D + B if an exponent has an index of the sort from outside.
    stable = {
        s: bound[s] + (2 * counted[s] if s in outside else 0) if bound[s] else 0 for s in sorts
    }
    return CountingLimits({s: counted[s] for s in sorts}, stable)


def box(limits: CountingLimits) -> list[dict[str, int]]:
    """Return all sizes 0 ≤ n ≤ T + D."""
    sorts = sorted(limits.counted)
    ranges = [range(limits.stable[s] + limits.counted[s] + 1) for s in sorts]
    # The box grows exponentially with the number of sorts.
    expect_few(prod(map(len, ranges)))
    return [dict(zip(sorts, ns, strict=True)) for ns in product(*ranges)]


def one_size(numerator: CheckedNode, limits: CountingLimits) -> dict[str, int]:
    """Return n = max(T, D, 1); reject unless every bound index occurs in every term and exponents cannot cancel."""
    # A term that does not depend on a bound index counts it as a factor n, which one size hides.
    for x in numerator.all():
        if x.kind in ("is", "size") or (
            x.kind == "total" and not _is_in_all_terms(x.label, x.below[0])
        ):
            raise Rejected("one size is not enough: a bound index may not show")
    signs: dict[tuple[str, ...], bool] = {}
    for exponent in (x.below[0] for x in numerator.all() if x.kind == "exp"):
        for letters, negative, indices in monomials(exponent):
            # Monomials of one sign with the same letters cannot cancel.
            if indices and signs.setdefault(letters, negative) != negative:
                raise Rejected("one size is not enough: exponents may cancel")
    degrees = limits.counted.items()
    return {s: max(limits.stable[s], d, 1) for s, d in degrees}


def _is_in_all_terms(name: str, x: CheckedNode) -> bool:
    if x.kind == "sum":
        return all(_is_in_all_terms(name, y) for y in x.below)
    if x.kind == "product":
        return any(_is_in_all_terms(name, y) for y in x.below)
    return _is_in_all_terms(name, x.below[0]) if x.kind == "total" else name in x.free


def row_grid(
    numerator: CheckedNode, scope: Mapping[str, str]
) -> tuple[CountingLimits, list[dict[str, int]]]:
    """Return the limits for the most rows, and all sizes needed for all numbers of rows; see ``counting``."""
    forms = _reciprocals_up_to_rows(numerator)
    rows = sorted({s for z, _ in forms for s in _sorts_of_free(z)})
    _expect_rows(numerator, [z for z, _ in forms], rows)
    counted = cut_off(numerator, scope).counted
    grid: list[dict[str, int]] = []
    limits = CountingLimits({}, {})
    # By the lemma of ``counting``, 0 to D rows decide all numbers of rows.
    for ns in product(*[range(counted.get(r, 0) + 1) for r in rows]):
        row_sizes = dict(zip(rows, ns, strict=True))
        more: Counter[str] = Counter()
        # Each row has its own reciprocal, which multiplies the bound indices that it may bring.
        for z, times in forms:
            places = 1
            for s in _sorts_of_free(z):
                places *= row_sizes[s]
            for s, bound in bound_in_a_term(z).items():
                more[s] += times * places * bound
        limits = cut_off(numerator, scope, more, [z for z, _ in forms])
        others = sorted(limits.counted.keys() - set(rows))
        # A size 0 would make a reciprocal of an empty sum, so other sizes start at 1.
        ranges = [range(1, max(limits.stable[s], 1) + limits.counted[s] + 1) for s in others]
        expect_few(len(grid) + prod(map(len, ranges)))
        points = product(*ranges)
        grid += [{**row_sizes, **dict(zip(others, ms, strict=True))} for ms in points]
    return limits, grid


def _reciprocals_up_to_rows(numerator: CheckedNode) -> list[tuple[CheckedNode, int]]:
    """Return the arguments of reciprocals up to the names of rows, each with its highest number in a term."""
    # Rows with other names have the same form, so only one argument is counted for them.
    result = {
        _row_form(x): x.below[0]
        for x in numerator.all()
        if x.kind == "function" and x.label == "1/"
    }
    return [(z, _count_reciprocals_in_term(numerator, key)) for key, z in result.items()]


def _row_form(x: CheckedNode) -> str:
    # All free indices get one name: rows differ in nothing else.
    return form(x.below[0], dict.fromkeys(x.free, "row"))


def _count_reciprocals_in_term(x: CheckedNode, key: object) -> int:
    if x.kind == "function":
        return int(x.label == "1/" and _row_form(x) == key)
    if x.kind == "product":
        return sum(_count_reciprocals_in_term(y, key) for y in x.below)
    return max((_count_reciprocals_in_term(y, key) for y in x.below), default=0)


def _expect_rows(numerator: CheckedNode, arguments: list[CheckedNode], rows: list[str]) -> None:
    for z in arguments:
        # Two indices of one sort could be the same row, and reciprocals would not be independent.
        expect(
            len(_sorts_of_free(z)) >= len(z.free),
            "a divisor under a sum has two indices of one sort",
        )
        # A reciprocal that sums over rows, or contains another one, ties the rows to each other.
        if any(bound_in_a_term(z)[r] for r in rows) or any(
            y.kind == "function" and y.label == "1/" for y in z.all()
        ):
            raise Rejected("the rows are not independent")
    for x in (numerator, *arguments):
        for y in x.all():
            if y.kind == "exp" and any(bound_in_a_term(y.below[0])[r] for r in rows):
                raise Rejected("an exponent sums over rows")


def bound_in_a_term(x: CheckedNode) -> Counter[str]:
    """Return the most bound indices of each sort in any term, outside exponents; a size counts as one."""
    expect(x.kind in _NUMERATOR, f"{x.kind} in a numerator")
    results: Counter[str] = Counter()
    if x.kind == "size":
        results[x.label] = 1
    elif x.kind == "total":
        results = bound_in_a_term(x.below[0]) + Counter(x.sorts)
    elif x.kind in ("sum", "product"):
        # Alternatives in a sum take the maximum, factors of a product add up.
        for y in x.below:
            there = bound_in_a_term(y)
            results = results | there if x.kind == "sum" else results + there
    return results


def monomials(x: CheckedNode) -> list[Monomial]:
    """Return the monomials of an exponent; reject it unless it is a polynomial as the theorem requires."""
    expect(x.kind in _EXPONENT and (x.kind != "is" or x.label == "="), f"{x.kind} in an exponent")
    if x.kind == "number":
        # Constants have no letters; only the sign matters.
        return [((), x.label < 0, frozenset())]
    if x.kind == "is":
        return [(("=",), False, frozenset())]
    if x.kind == "letter":
        return [((x.label,), False, x.free)]
    if x.kind == "function":
        # A function counts as one letter, whatever indices it has.
        return [((form(x, dict.fromkeys(x.free, "any")),), False, x.free)]
    if x.kind == "sum":
        return [m for y in x.below for m in monomials(y)]
    if x.kind == "total":
        inside = monomials(x.below[0])
        # Σ_i of a term without i is n times the term: a size in an exponent.
        outside = (x.label not in indices for _, _, indices in inside)
        expect(not any(outside), "a size in an exponent")
        return inside
    out: list[Monomial] = [((), False, frozenset())]
    for y in x.below:
        # Products of sums multiply the number of monomials.
        expect_few(len(out))
        out = [
            (tuple(sorted(a + b)), minus != other, i | j)
            for a, minus, i in out
            for b, other, j in monomials(y)
        ]
    return out


def _sorts_of_free(x: CheckedNode) -> set[str]:
    """Return the sorts of the free indices of ``x``."""
    return {
        s
        for y in x.all(into_functions=True)
        for i, s in zip(y.indices, y.sorts, strict=False)
        if i[0] in x.free
    }
