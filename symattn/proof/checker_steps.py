"""The last steps to printed relations, for ``checker``: each rule is applied anew to what its premises say.

*squares*    x = y if x² = y², and neither is negative: by its form, as |z| is, or as a premise says
*logarithm*  x = log y if eˣ = y
*equals*     x = y if they are written alike but for parts that a premise says are equal, at all places
*chain*      x = y if premises lead from x to y, by equations alone
*induction*  Σ_{t=1}^{n} b(t) = f(n) for every n if f(x) − f(x − 1) = b(x) for every number x, and f(0) = 0

A conclusion holds under the hypotheses of its premises; what it divides by or takes roots of must be among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from symattn.proof.checker_clearing import plus, times, vanishing
from symattn.proof.checker_means import bodies, read_means, without_means
from symattn.proof.checker_reading import (
    BINDERS,
    CheckedNode,
    Rejected,
    array_of,
    expect,
    form,
    node,
    number,
    read,
    renamed,
    rewritten,
    scope_of,
)
from symattn.proof.checker_rules import Said, claims
from symattn.proof.checker_signs import Signs, hypotheses
from symattn.proof.checker_simplifying import Simplifying
from symattn.proof.checker_values import Dice

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Given:
    """The statements of a step's premises, and their hypotheses."""

    said: tuple[Said, ...]
    signs: Signs
    simplify: Simplifying

    def equations(self) -> Iterator[Said]:
        """The equations among them, each also from right to left."""
        for s in self.said:
            if s.sign == "=":
                yield from (s, Said(s.scope, s.right, "=", s.left))

    def shows(self, scope: Mapping[str, str], left: CheckedNode, sign: str, right: CheckedNode) -> bool:
        """Return whether a premise says so, with other names for the indices if need be."""
        every = self.equations() if sign == "=" else (s for s in self.said if s.sign == sign)
        return any(s.says(scope, left, right) for s in every)


def step(record: Record, dice: Dice) -> None:
    """Reject unless the rule gives every conclusion from what the premises, which are accepted, say."""
    expect(record["rule"] in _RULES, f"{record['rule']!r} is not a rule")
    expect(bool(record["conclusions"]), "a rule that concludes nothing")
    given = given_by(record, dice)
    for c in record["conclusions"]:
        scope = scope_of(c)
        written = read(c["left"], scope), read(c["right"], scope)
        _expect_sides_defined(written, given, str(record["rule"]))
        _RULES[record["rule"]](scope, *written, given)


def induction(record: Record, dice: Dice) -> None:
    """Reject unless the sum that is said, over all places of a sort, is what induction gives."""
    letter, term, closed = str(record["letter"]), record["term"], record["closed"]
    given = given_by(record, dice)
    free = all(p["kind"] == "certificate" and not p["positive"] and not p["rules"] for p in record["premises"])
    expect(free and not given.signs.relations, "induction under a condition")

    def at(x: object, value: object) -> CheckedNode:
        return read(put(x, ["letter", letter, []], value), {})

    x = ["letter", letter, []]
    before = at(closed, ["sum", x, ["number", "-1"]])
    wanted = [
        (plus([at(closed, x), times(number(-1), before)]), at(term, x)),
        (at(closed, ["number", "0"]), number(0)),
    ]
    for left, right in wanted:
        expect(given.shows({}, given.simplify(left), "=", given.simplify(right)), "the premises are not the two of it")
    sort = str(record["sort"])
    place = ["total", "s", sort, ["is", "≤", ["s"], ["t"]]]
    (c,) = record["conclusions"]
    expect(scope_of(c) == {}, "a sum at places")
    total = read(["total", "t", sort, put(term, ["letter", letter, []], place)], {})
    for side, own in (("left", total), ("right", at(closed, ["size", sort]))):
        expect(form(read(c[side], {}), {}) == form(own, {}), "the conclusion is another one")
        expect_defined([own], given)


def put(x: object, what: object, value: object) -> Any:
    """An expression with a value in the place of a letter or a size."""
    return rewritten(x, lambda y: value if y == what else None)


def given_by(record: Record, dice: Dice) -> Given:
    """Return the statements of the premises, which are accepted."""
    premises = list(every_premise(record))
    positive = frozenset(str(x) for p in premises for x in p.get("positive", ()))
    known = frozenset(name for p in premises if p["kind"] == "sign" for name in _plain(p))
    simplify = Simplifying(positive)
    relations: dict[Any, str] = {}
    for p in premises:
        relations |= hypotheses(p.get("hypotheses", ()), simplify, dice).relations
    said = tuple(s for p in record["premises"] for s in _statements(p, simplify))
    return Given(said, Signs(relations, positive, known), simplify)


def _plain(sign: Record) -> Iterator[str]:
    """The arrays that are not negative, but for letters that stand for something."""
    meant = {array_of(str(m["letter"])) for m in sign["meant"]}
    yield from (name for name in map(str, sign["not negative"]) if name not in meant)


def every_premise(record: Record) -> Iterator[Record]:
    """The premises, and theirs."""
    for p in record["premises"]:
        yield p
        if "premises" in p:
            yield from every_premise(p)


def _statements(p: Record, simplify: Simplifying) -> Iterator[Said]:
    """Yield the statements of an accepted certificate."""
    if p["kind"] in ("certificate", "step"):
        for e in p["equations"] if p["kind"] == "certificate" else p["conclusions"]:
            scope = scope_of(e)
            left, right = (simplify(read_means(e[side], scope)) for side in ("left", "right"))
            yield Said(scope, left, "=", right)
    elif p["kind"] == "sign":
        yield from claims(p, simplify)
    else:
        raise Rejected(f"a premise of the kind {p['kind']!r} says nothing that a step goes on from")


def _expect_sides_defined(written: Sequence[CheckedNode], given: Given, rule: str) -> None:
    """As ``expect_defined``, but that a premise shows that the argument of a logarithm is positive.

    Means stand in equations alone, in which they are taken.
    """
    means = [y for x in written for y in x.all(into_functions=True) if y.kind == "function" and y.label == "mean"]
    expect(not means, "a step about means")
    if rule == "logarithm" and written[1].kind == "function":
        written = (written[0], *written[1].below)
    expect_defined(written, given)


def expect_defined(written: Iterable[CheckedNode], given: Given) -> None:
    """Reject unless what is divided by or rooted is positive, by its form or by a hypothesis of a premise."""
    for side in written:
        for x, enough in given.simplify.demands(side):
            given.signs.expect(x, enough)


def read_defined(data: Any, scope: Mapping[str, str], given: Given) -> CheckedNode:
    """An expression, simplified, with its means taken; rejected where it may have no value."""
    x = read(data, scope)
    whole = without_means(x, scope)
    expect_defined((whole, *bodies(x)), given)
    return given.simplify(whole)


def _squares(scope: Mapping[str, str], left: CheckedNode, right: CheckedNode, given: Given) -> None:
    x, y = given.simplify(left), given.simplify(right)
    bases = [[z, *map(given.simplify, _bases(side))] for z, side in ((x, left), (y, right))]
    pairs = [(a, b) for a in bases[0] for b in bases[1]]
    squares = ((given.simplify(times(a, a)), given.simplify(times(b, b))) for a, b in pairs)
    expect(any(given.shows(scope, a, "=", b) for a, b in squares), "the premises are not that the squares are equal")
    for side, known in zip((x, y), bases, strict=True):
        shown = given.signs.shows_not_negative(side) or len(known) > 1
        shown = shown or any(given.shows(scope, number(0), sign, side) for sign in "≤<")
        expect(shown, "a side whose square is known may be negative")


def _bases(x: CheckedNode) -> Sequence[CheckedNode]:
    """Return other terms of the same square: z where ``x`` is |z|, which is max(z, −z), or z sign(z)."""
    if len(x.below) == 2 and x.kind == "function" and x.label == "max" and vanishing(plus(x.below)):
        return x.below
    match sorted(x.below, key=lambda y: y.label == "sign" and y.kind == "function") if x.kind == "product" else []:
        case [z, CheckedNode("function", "sign", below=(of,))] if z.own_form == of.own_form:
            return [z]
    return []


def _logarithm(scope: Mapping[str, str], left: CheckedNode, right: CheckedNode, given: Given) -> None:
    expect(right.kind == "function" and right.label == "log" and len(right.below) == 1, "no logarithm")
    given.simplify(left)  # which refuses −∞
    power = given.simplify(node("exp", [left]))
    expect(given.shows(scope, power, "=", given.simplify(right.below[0])), "the premises are not that e^x = y")


def _equals(scope: Mapping[str, str], left: CheckedNode, right: CheckedNode, given: Given) -> None:
    expect(_alike(left, right, scope, given, count()), "the sides differ in what no premise says is equal")


def _alike(x: CheckedNode, y: CheckedNode, scope: Mapping[str, str], given: Given, fresh: Iterator[int]) -> bool:
    """Return whether they are written alike but for parts that are equal."""
    names = {i: i for i in scope}
    if form(x, names) == form(y, names):
        return True
    plain = not any(z.kind in ("masked", "bound") for z in (x, y))
    if plain and given.shows(scope, given.simplify(x), "=", given.simplify(y)):
        return True
    if (x.kind, len(x.below)) != (y.kind, len(y.below)) or not x.below or x.sorts != y.sorts:
        return False
    if x.kind in BINDERS:
        name = f"place {next(fresh)}"
        expect(name not in scope, "an index with a name that the checker keeps for itself")
        inside = {**scope, name: x.sorts[0]}
        return _alike(renamed(x.below[0], {x.label: name}), renamed(y.below[0], {y.label: name}), inside, given, fresh)
    return x.label == y.label and all(_alike(a, b, scope, given, fresh) for a, b in zip(x.below, y.below, strict=True))


def _chain(scope: Mapping[str, str], left: CheckedNode, right: CheckedNode, given: Given) -> None:
    names = {i: i for i in scope}
    start, end = (form(given.simplify(x), names) for x in (left, right))
    pairs = [sides for s in given.equations() for sides in s.instances(scope)]
    reached, open_ = {start}, [start]
    while open_:
        here = open_.pop()
        new = {b for a, b in pairs if a == here} - reached
        reached |= new
        open_ += new
    expect(end in reached, "the premises do not lead from one side to the other")


_RULES: Mapping[str, Callable[[Mapping[str, str], CheckedNode, CheckedNode, Given], None]] = {
    "squares": _squares,
    "logarithm": _logarithm,
    "equals": _equals,
    "chain": _chain,
}
