"""Checking certificates, apart from the prover: nothing of it is imported here, and nothing it says is believed.

For every equation of a certificate both sides, which are as they are written, are simplified (``checker_simplifying``).
*normal form*: they are one expression then, up to bound names and order. Else
1. left − right is cleared anew; its divisors are those given, and 2. and 3. are done for its numerator as well as for
   the one that is given; and left = right, as quotients, at some points of small sizes;
2. the cut-off of the numerator is counted anew (D, T and the conditions of the theorems of ``counting`` and ``rows``),
   and the certificate's sizes are those that it asks for;
3. the numerator is zero at each of these sizes, at every place, tested at a random point modulo each of two primes.
And every division, root and logarithm, as written, is positive by its form or among the hypotheses.

A certificate of a *sign* is an expression that is positive, or not negative, by its form, and what its letters stand
for; with that in their place it is what the certificate says. One of a *difference* is two sides that are not
equal at some place of small sizes, as functions of letters, whatever the functions in them are.
What is accepted is the identity for all sizes from 1 on, under the hypotheses; ``epsilon`` bounds the probability, over
the checker's own dice, that a certificate is accepted of which a numerator in 3. is not zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from random import Random, SystemRandom
from typing import Any

from symattn.proof.checker_clearing import difference, minus, without_logarithms
from symattn.proof.checker_counting import box, cut_off, one_size, row_grid
from symattn.proof.checker_folds import fold
from symattn.proof.checker_laws import expect_law
from symattn.proof.checker_limits import limits
from symattn.proof.checker_reading import Node, Rejected, array_of, expect, expect_few, form, in_place, read, scope_of
from symattn.proof.checker_rules import apply, average, discharge, repeat, substitute
from symattn.proof.checker_signs import Signs, hypotheses
from symattn.proof.checker_simplifying import Simplifying, sides
from symattn.proof.checker_values import Dice, Point, Retry, Value, escape

TRIES = 8  # points drawn until no divisor is zero
_KINDS = ("certificate", "sign", "differing", "rule", "fold", "substitution", "repeated", "mean", "limits", "discharge")
Equation = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Whether a certificate is accepted, else ``why`` not; ``epsilon`` as above."""

    accepted: bool
    why: str = ""
    epsilon: float = 0.0


def check(certificate: Any, random: Random | None = None) -> Verdict:
    """Check a certificate, as ``certificate.certificate`` makes it or as JSON gives it back."""
    dice = Dice(random or SystemRandom())
    try:
        expect(isinstance(certificate, Mapping), "a certificate is a record")
        kind = certificate.get("kind")
        expect(certificate.get("schema") == 1 and kind in _KINDS, "no certificate of schema 1")
        if kind != "certificate":
            kinds = {"sign": _sign, "differing": _differing, "rule": _rule, "repeated": _rule, "discharge": _rule}
            kinds["limits"] = _limits
            return Verdict(True, epsilon=kinds.get(kind, _rewritten)(certificate, dice))
        rules = _rules(certificate)
        simplify = Simplifying(frozenset(map(str, certificate["positive"])))
        signs = hypotheses(certificate["hypotheses"], simplify)
        expect(bool(certificate["equations"]), "a certificate of nothing")
        epsilon = max(_equation(e, rules, signs, simplify, dice) for e in certificate["equations"])
    except Rejected as reason:
        return Verdict(False, str(reason))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        return Verdict(False, f"not a certificate: {type(error).__name__} {error}")
    return Verdict(True, epsilon=epsilon)


def _rules(e: Equation) -> list[tuple[str, ...]]:
    """The pairs (cos, sin)."""
    rules = [tuple(map(str, pair)) for pair in e["rules"]]
    expect(all(len(pair) == 2 for pair in rules), "a rule is a pair of names")
    return rules


def _equation(e: Equation, rules: Sequence[Any], signs: Signs, simplify: Simplifying, dice: Dice) -> float:
    scope = scope_of(e)
    written = read(e["left"], scope), read(e["right"], scope)
    for side in written:
        for x, enough in simplify.demands(side):
            signs.expect(x, enough)
    left, right = sides(simplify(written[0]), simplify(written[1]), scope)
    if e["how"] == "normal form":
        names = {i: ("free", i) for i in scope}
        expect(form(left, names) == form(right, names), "the normal forms differ")
        return 0.0
    numerator = simplify(read(e["numerator"], scope))
    divisors = {form(simplify(read(d, scope)), {i: i for i in scope}): times for d, times in e["divisors"]}
    needed = _needed_sizes(e, numerator, scope, bool(rules))
    expect(_as_set(e["sizes"]) == _as_set(needed), "the sizes are not those that the cut-off asks for")
    own, own_divisors = difference(left, right)
    expect(divisors == own_divisors, "left − right has other divisors")
    worst = _equal(left, right, scope, rules, dice)
    same = {i: i for i in scope}
    if form(own, same) != form(numerator, same):
        own_sizes = _own_sizes(own, scope, e["how"] == "rows", bool(rules))
        worst = max(worst, _vanishes(own, scope, own_sizes, rules, e["how"] == "rows", dice))
    return max(worst, _vanishes(numerator, scope, needed, rules, e["how"] == "rows", dice))


def _sign(e: Equation, dice: Dice) -> float:
    """A sign that the form shows; with what the letters stand for, the expression is the one that is given.

    A letter that is not negative is declared so, or what it stands for is a hypothesis, or a law shows it.
    """
    scope = scope_of(e)
    x = read(e["expression"], scope)
    signs = Signs({}, frozenset(map(str, e["positive"])), frozenset(map(str, e["not negative"])))
    shown = {">": signs.shows_positive, "≥": signs.shows_not_negative}
    expect(e["relation"] in shown and shown[e["relation"]](x), "the form does not show the sign")
    _expect_laws(e, signs, dice)
    for name in e["only"]:
        alone = replace(signs, nonzero=str(name))
        expect(alone.shows_equal_only_at_zero(x), f"equality may hold where {name} is not 0")
    if e["equal"] is None:
        expect(not e["conclusions"], "a conclusion without what it is shown by")
        return 0.0
    expect_few(sum(len(str(m["expression"])) for m in e["meant"]))
    expect_few(str(e["expression"]).count("letter") * max((len(str(m["expression"])) for m in e["meant"]), default=1))
    meant = {str(m["letter"]): (list(scope_of(m)), m["expression"]) for m in e["meant"]}
    whole = without_logarithms(read(in_place(e["expression"], meant), scope), signs.shows_positive)
    epsilon = _same(whole, read(e["equal"], scope), scope, dice)
    for c in e["conclusions"]:
        expect(scope_of(c) == scope, "a conclusion about other indices")
        gap = minus(read(c["larger"], scope), read(c["smaller"], scope))
        epsilon = max(epsilon, _same(gap, read(e["equal"], scope), scope, dice, _rules(e)))
    return epsilon


def _rule(e: Equation, dice: Dice) -> float:
    """Every premise is accepted, and the rule gives the conclusions from them."""
    epsilon = _premises(e, dice)
    {"rule": apply, "repeated": repeat, "discharge": discharge}[e["kind"]](e)
    return epsilon


def _premises(e: Equation, dice: Dice) -> float:
    """Every premise is accepted."""
    epsilon = 0.0
    for premise in e["premises"]:
        verdict = check(premise, dice.random)
        expect(verdict.accepted, f"a premise: {verdict.why}")
        epsilon += verdict.epsilon
    return epsilon


def _limits(e: Equation, dice: Dice) -> float:
    """Every premise is accepted, and both limits follow from them."""
    epsilon = _premises(e, dice)
    known = frozenset(str(n) for p in e["premises"] for n in p["positive"])
    signs = Signs({}, known)
    limits(e, lambda left, right, scope: _are_same(left, right, scope, dice), signs.shows_positive)
    return epsilon


def _rewritten(e: Equation, dice: Dice) -> float:
    """A fold, a substitution of equals, or the mean of what is linear."""
    worst = [0.0]

    def same(left: Node, right: Node, scope: Mapping[str, str]) -> bool:
        try:
            worst.append(_same(left, right, scope, dice))
        except Rejected:
            return False
        return True

    {"fold": fold, "substitution": substitute, "mean": average}[e["kind"]](e, same)
    return max(worst)


def _expect_laws(e: Equation, signs: Signs, dice: Dice) -> None:
    """Every letter with a law stands for what the law shows not to be negative."""
    meanings = {str(m["letter"]): (scope_of(m), m["expression"]) for m in e["meant"]}
    known = {name: read(body, scope) for name, (scope, body) in meanings.items() if array_of(name) in e["not negative"]}
    for name, x in known.items():
        law = dict(e["laws"]).get(array_of(name))
        if law is not None:
            scope = meanings[name][0]

            def same(a: Node, b: Node, scope: Mapping[str, str] = scope) -> bool:
                return _are_same(a, b, scope, dice)

            expect_law(law, x, scope, {array_of(n): y for n, y in known.items()}, same, signs.shows_not_negative)


def _are_same(left: Node, right: Node, scope: Mapping[str, str], dice: Dice) -> bool:
    try:
        _same(left, right, scope, dice)
    except Rejected:
        return False
    return True


def _same(left: Node, right: Node, scope: Mapping[str, str], dice: Dice, rules: Sequence[Any] = ()) -> float:
    """left = right for all sizes, as the checker itself decides it."""
    names = {i: ("free", i) for i in scope}
    if form(left, names) == form(right, names):
        return 0.0
    own, _ = difference(left, right)
    try:
        return _vanishes(own, scope, _own_sizes(own, scope, False, bool(rules)), rules, False, dice)
    except Rejected:
        return _vanishes(own, scope, _own_sizes(own, scope, True, bool(rules)), rules, True, dice)


def _differing(e: Equation, dice: Dice) -> float:
    """Two sides that differ at a point modulo a prime, whatever the functions are that may occur in them."""
    scope = scope_of(e)
    left, right = read(e["left"], scope), read(e["right"], scope)
    sizes = {str(s): int(n) for s, n in e["sizes"].items()}
    rules = _rules(e)
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
                return escape(gap, dice.primes)
    raise Rejected("the sides are equal there")


def _gap(point: Point, left: Node, right: Node, at: Mapping[str, int]) -> Value:
    minus = point.times(Value(point.modulus - 1), point.value(right, at))
    return point.add([point.value(left, at), minus])


def _own_sizes(own: Node, scope: Mapping[str, str], rows: bool, rules: bool) -> list[dict[str, int]]:
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


def _needed_sizes(e: Equation, numerator: Node, scope: Mapping[str, str], rules: bool) -> list[dict[str, int]]:
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


def _as_set(sizes: Iterable[Mapping[str, int]]) -> set[tuple[tuple[str, int], ...]]:
    return {tuple(sorted((str(s), int(n)) for s, n in there.items())) for there in sizes}


def _equal(left: Node, right: Node, scope: Mapping[str, str], rules: Sequence[Any], dice: Dice) -> float:
    """left = right at random points where all sizes are 1, 2, 3, and where they differ, as quotients."""
    found = {s for x in (left, right) for y in x.all(into_functions=True) for s in _sorts(y)}
    sorts = sorted(found | set(scope.values()))
    worst, seen = 0.0, 0
    for sizes in (*(dict.fromkeys(sorts, n) for n in (1, 2, 3)), {s: 2 + k % 2 for k, s in enumerate(sorts)}):
        at = {name: dice.random.randrange(sizes[sort]) for name, sort in scope.items()}

        def gap(point: Point, at: dict[str, int] = at) -> Value:
            return _gap(point, left, right, at)

        try:
            worst = max(worst, _zero(gap, sizes, rules, True, dice, f"left is not right at {sizes}"))
            seen += 1
        except _Nowhere:  # a variance is zero at the size 1
            continue
    expect(seen > 1, "a divisor is zero at all sizes tried")
    return worst


class _Nowhere(Rejected):
    """Some divisor is zero at every point tried."""


def _sorts(x: Node) -> tuple[str, ...]:
    return (x.label,) if x.kind == "size" else x.sorts


def _vanishes(
    numerator: Node,
    scope: Mapping[str, str],
    grid: Iterable[dict[str, int]],
    rules: Sequence[Any],
    inverses: bool,
    dice: Dice,
) -> float:
    worst = 0.0
    for sizes in grid:
        expect_few(prod(sizes[sort] for sort in scope.values()))
        for values in product(*[range(sizes[sort]) for sort in scope.values()]):
            at = dict(zip(scope, values, strict=True))

            def value(point: Point, at: dict[str, int] = at) -> Value:
                return point.value(numerator, at)

            worst = max(worst, _zero(value, sizes, rules, inverses, dice, f"the numerator is not zero at {sizes}"))
    return worst


def _zero(value: Any, sizes: dict[str, int], rules: Sequence[Any], inverses: bool, dice: Dice, message: str) -> float:
    """The probability that a random point deceives; rejected where it says that it is not zero."""
    for _ in range(TRIES):
        try:
            found = value(dice.point(sizes, rules, inverses))
        except Retry:
            continue
        if found.value:
            raise Rejected(message)
        return escape(found, dice.primes)
    raise _Nowhere(f"a divisor is zero at the sizes {sizes}")
