"""Test whether expressions are equal for all sizes, by random points at sizes that decide it, for ``checker``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from symattn.proof.checker_clearing import difference
from symattn.proof.checker_counting import box, cut_off, one_size, row_grid
from symattn.proof.checker_reading import CheckedNode, Rejected, expect, expect_few, form, read, scope_of
from symattn.proof.checker_values import CheckedValue, Dice, Point, Retry

TRIES = 8  # points drawn until no divisor is zero
Scope = Mapping[str, str]
Rules = Sequence[tuple[str, ...]]


def expect_same(left: CheckedNode, right: CheckedNode, scope: Scope, dice: Dice, rules: Rules = ()) -> None:
    """Reject unless left = right for all sizes, as the checker itself decides it."""
    names = {i: ("free", i) for i in scope}
    if form(left, names) == form(right, names):
        return
    own, _ = difference(left, right)
    try:
        expect_zero(own, scope, own_sizes(own, scope, False, bool(rules)), rules, False, dice)
    except Rejected:
        expect_zero(own, scope, own_sizes(own, scope, True, bool(rules)), rules, True, dice)


def are_same(left: CheckedNode, right: CheckedNode, scope: Scope, dice: Dice) -> bool:
    """Return whether ``expect_same`` accepts."""
    try:
        expect_same(left, right, scope, dice)
    except Rejected:
        return False
    return True


def expect_differing(e: Mapping[str, Any], dice: Dice, rules: Rules) -> None:
    """Reject unless two sides differ at a point modulo the primes, whatever the functions are that occur in them."""
    scope = scope_of(e)
    left, right = read(e["left"], scope), read(e["right"], scope)
    _expect_free((left, right), {name for pair in rules for name in pair})
    sizes = {str(s): int(n) for s, n in e["sizes"].items()}
    expect(all(0 < n < 10 for n in sizes.values()), "a size that is too large")
    for values in product(*[range(sizes[sort]) for sort in scope.values()]):
        at = dict(zip(scope, values, strict=True))
        for _ in range(TRIES):
            point = dice.point(sizes, rules)
            try:
                gap = _gap(point, left, right, at)
                again = _gap(point.with_other_functions(), left, right, at)
            except Retry:
                continue
            if gap.value:
                expect(gap.value == again.value, "what differs depends on a function of which nothing is known")
                dice.tested(gap)
                return
    raise Rejected("the sides are equal there")


def _expect_free(sides: Iterable[CheckedNode], circle: Collection[str]) -> None:
    """Where two sides are to differ nothing may tie the numbers that a point draws: entries that a permutation moves,
    or cosines and sines in exponents."""
    every = [y for x in sides for y in x.all(into_functions=True)]
    expect(all(len(i) == 1 for y in every for i in y.indices), "sides that differ under a permutation")
    exponents = (z for y in every if y.kind == "exp" for z in y.all(into_functions=True))
    tied = (z for z in exponents if z.kind == "letter" and z.label in circle)
    expect(not any(True for _ in tied), "sides that differ by an exponential on a circle")


def _gap(point: Point, left: CheckedNode, right: CheckedNode, at: Mapping[str, int]) -> CheckedValue:
    minus = point.times(CheckedValue(point.modulus - 1), point.value(right, at))
    return point.add([point.value(left, at), minus])


def own_sizes(own: CheckedNode, scope: Scope, rows: bool, rules: bool) -> list[dict[str, int]]:
    """The sizes that decide the checker's own numerator."""
    if rows:
        return row_grid(own, scope)[1]
    limits = cut_off(own, scope)
    if not rules:
        try:
            return [one_size(own, limits)]
        except Rejected:
            pass
    return box(limits)


def needed_sizes(e: Mapping[str, Any], numerator: CheckedNode, scope: Scope, rules: bool) -> list[dict[str, int]]:
    """The sizes that the theorem asks for; rejected where its conditions fail or the counts are not those given."""
    how = e["how"]
    if how == "rows":
        limits, sizes = row_grid(numerator, scope)
    else:
        limits = cut_off(numerator, scope)
        expect(how == "box" or (how == "one size" and not rules), f"{how!r} does not decide it")
        sizes = box(limits) if how == "box" else [one_size(numerator, limits)]
    expect(e["counted"] == limits.counted, "D is counted otherwise")
    expect(e["stable"] == limits.stable, "T is counted otherwise")
    return sizes


def as_set(sizes: Iterable[Mapping[str, int]]) -> set[tuple[tuple[str, int], ...]]:
    """Sizes in any order."""
    return {tuple(sorted((str(s), int(n)) for s, n in there.items())) for there in sizes}


def expect_equal(left: CheckedNode, right: CheckedNode, scope: Scope, rules: Rules, dice: Dice) -> None:
    """Reject unless left = right, as quotients, at random points where sizes are 1, or 2, or 3 and 2 in turn."""
    result = {s for x in (left, right) for y in x.all(into_functions=True) for s in _sorts(y)}
    sorts = sorted(result | set(scope.values()))
    seen = 0
    for sizes in (*(dict.fromkeys(sorts, n) for n in (1, 2)), {s: 3 - k % 2 for k, s in enumerate(sorts)}):
        at = {name: dice.random.randrange(sizes[sort]) for name, sort in scope.items()}

        def gap(point: Point, at: dict[str, int] = at) -> CheckedValue:
            return _gap(point, left, right, at)

        try:
            _zero(gap, dice.point(sizes, rules, True), rules, dice, f"left is not right at {sizes}")
            seen += 1
        except _Nowhere:  # a variance is zero at the size 1
            continue
    expect(seen > 1, "a divisor is zero at all sizes tried")


def expect_possible(x: CheckedNode, scope: Scope, dice: Dice) -> None:
    """Reject what is zero at some place where all sizes are 3, whatever its letters are."""
    sizes = dict.fromkeys({s for y in x.all(into_functions=True) for s in _sorts(y)} | set(scope.values()), 3)
    for values in product(*[range(3)] * len(scope)):
        try:
            results = dice.point(sizes, ()).value(x, dict(zip(scope, values, strict=True)))
        except (Retry, Rejected):  # it has no value at this point
            continue
        expect(bool(results.value), "a hypothesis that cannot be met")


class _Nowhere(Rejected):
    """Some divisor is zero at every point tried."""


def _sorts(x: CheckedNode) -> tuple[str, ...]:
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

    All places of one size are looked at in one point: risks of tests are added, whether or not they are independent.
    """
    for sizes in grid:
        expect_few(prod(sizes[sort] for sort in scope.values()))
        point = dice.point(sizes, rules, inverses)
        for values in product(*[range(sizes[sort]) for sort in scope.values()]):
            at = dict(zip(scope, values, strict=True))
            point = dice.point(sizes, rules, inverses) if point.crowded else point

            def value(point: Point, at: dict[str, int] = at) -> CheckedValue:
                return point.value(numerator, at)

            point = _zero(value, point, rules, dice, f"the numerator is not zero at {sizes}")


def _zero(value: Callable[[Point], CheckedValue], point: Point, rules: Rules, dice: Dice, message: str) -> Point:
    """Reject where a random point says that it is not zero; the point, or the one taken as it had no value there."""
    for _ in range(TRIES):
        try:
            results = value(point)
        except Retry:
            point = dice.point(point.sizes, rules, point.inverses)
            continue
        dice.tested(results)
        expect(not results.value, message)
        return point
    raise _Nowhere(f"a divisor is zero at the sizes {dict(point.sizes)}")
