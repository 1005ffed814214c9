"""The last steps to printed relations, for ``checker``: each rule is applied again to the claims of its premises.

*squares*    x = y if x² = y² and neither is negative: by its form, such as |z|, or by a premise
*logarithm*  x = log y if eˣ = y
*equals*     x = y if they are written alike except for parts that are equal by a premise, for all indices
*chain*      x = y if premises lead from x to y, by equations alone
*largest*    x ≤ y for a maximum if it holds with each of its entries in its place
*induction*  Σ_{t=1}^{n} b(t) = f(n) for every n if f(x) − f(x − 1) = b(x) for every number x, and f(0) = 0
*limit*      x → c as a number β grows, or tends to 0, or as a size grows
*instance*   x = c at a size, if x equals a form without a sum over the size, whose value there is c
*repeated*   a measure is at most factor^L of its first value after L steps if each step shrinks it by the factor
*fold*, *substitution*: see ``checker_rules``

For a limit, a premise says that x equals a form f of sums, products, quotients and exponentials. As β grows, e^{−βu}
with u > 0 tends to 0, and terms without β stay; as β tends to 0, f tends to its value at 0. Quotients are continuous
if the limit of the divisor is positive by its form. Another premise says that this value is c.
For a growing size n, x/(n y) tends to 0 if neither x nor y > 0 depends on n.

A conclusion holds under the hypotheses of its premises, which must cover its divisors and the arguments of its roots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from symattn.proof import checker_clearing, checker_rules, checker_testing
from symattn.proof.checker_means import (
    assumed_letters,
    bodies,
    expect_laws,
    read_means,
    without_means,
)
from symattn.proof.checker_reading import (
    BINDERS,
    CheckedNode,
    Record,
    array_of,
    expect,
    holds_letter,
    in_place,
    node,
    number,
    read,
    renamed,
    rewritten,
    scope_of,
)
from symattn.proof.checker_signs import Signs, hypotheses
from symattn.proof.checker_simplifying import Simplifying
from symattn.proof.checker_values import Dice


@dataclass(frozen=True)
class Given:
    """The statements of a step's premises, and their hypotheses."""

    said: tuple[checker_rules.Said, ...]
    signs: Signs
    simplify: Simplifying

    def equations(self) -> Iterator[checker_rules.Said]:
        """Yield the equations among the claims, each also from right to left."""
        # Equality is symmetric; an order is not, so other relations keep their direction.
        for s in self.said:
            if s.sign == "=":
                yield from (s, checker_rules.Said(s.scope, s.right, "=", s.left))

    def shows(
        self, scope: Mapping[str, str], left: CheckedNode, sign: str, right: CheckedNode
    ) -> bool:
        """Return whether a premise claims ``left sign right``, up to the names of indices."""
        every = self.equations() if sign == "=" else (s for s in self.said if s.sign == sign)
        return any(s.says(scope, left, right) for s in every)


def step(record: Record, dice: Dice) -> None:
    """Reject unless the rule derives every conclusion from the premises, which are accepted already."""
    rule = str(record["rule"])
    known = rule in _RULES or rule in _EQUATIONS or rule in _OF_PARTS
    expect(known, f"{rule!r} is not a rule")
    of_parts = rule == "repeated" or rule in _OF_PARTS
    # Only the rules of parts have their statement in the parts of the record instead.
    expect(
        bool(record["conclusions"]) is not of_parts,
        "a rule that concludes nothing, or something else",
    )
    if rule in _OF_PARTS:
        _OF_PARTS[rule](
            record, lambda left, right, scope: checker_testing.are_same(left, right, scope, dice)
        )
        return
    premises = given_by(record, dice)
    if rule in _RULES:
        _RULES[rule](record, premises)
        return
    for c in record["conclusions"]:
        scope = scope_of(c)
        written = read(c["left"], scope), read(c["right"], scope)
        _expect_sides_defined(written, premises, rule)
        _EQUATIONS[rule](scope, *written, premises)


def _check_largest_rule(record: Record, facts: Given) -> None:
    premises = [s for p in record["premises"] for s in checker_rules.claims(p, facts.simplify)]
    for conclusion in checker_rules.claims(record, facts.simplify):
        checker_rules.of_the_largest(conclusion, premises)


def _check_induction_rule(record: Record, facts: Given) -> None:
    """Reject unless the stated sum over all places of a sort follows by induction."""
    letter, term, closed = str(record["letter"]), record["term"], record["closed"]
    # The letter stands for every number, so nothing may be assumed about it.
    free = all(
        p["kind"] == "certificate" and not p["positive"] and not p["rules"]
        for p in record["premises"]
    )
    expect(free and not facts.signs.relations, "induction under a condition")

    def at(x: object, value: object) -> CheckedNode:
        return read(put(x, ["letter", letter, []], value), {})

    # A letter without indices stands for the number x of the induction step.
    x = ["letter", letter, []]
    before = at(closed, ["sum", x, ["number", "-1"]])
    # The two premises of the induction: the step from x − 1 to x, and the start at 0.
    required = [
        (
            checker_clearing.plus([at(closed, x), checker_clearing.times(number(-1), before)]),
            at(term, x),
        ),
        (at(closed, ["number", "0"]), number(0)),
    ]
    for left, right in required:
        expect(
            facts.shows({}, facts.simplify(left), "=", facts.simplify(right)),
            "the premises are not the two of it",
        )
    sort = str(record["sort"])
    # Σ_s [s ≤ t] is the place of t, counted from 1.
    place = ["total", "s", sort, ["is", "≤", ["s"], ["t"]]]
    (c,) = record["conclusions"]
    expect(scope_of(c) == {}, "a sum at places")
    total = read(["total", "t", sort, put(term, ["letter", letter, []], place)], {})
    for side, own in (("left", total), ("right", at(closed, ["size", sort]))):
        expect(read(c[side], {}).own_form == own.own_form, "the conclusion is another one")
        facts.signs.expect_defined([own], facts.simplify)


def _check_repeated_rule(record: Record, facts: Given) -> None:
    """Reject unless, by two premises, each step shrinks a measure of a letter by a factor.

    They say that the measure after a step is at most the factor times the measure before, for any letter, and that the
    factor is not negative; if the measure is to tend to 0, a third one says that the factor is less than 1. Then after
    L steps the measure is at most factor^L times its first value, by induction.
    """
    letter = str(record["letter"])
    array = str(record["array"])
    of = record["measure"]
    scope = scope_of(of)
    factor = facts.simplify(read(record["factor"]["expression"], scope))
    step, now = ((list(scope_of(record[k])), record[k]["expression"]) for k in ("step", "now"))
    # The start must be a bare letter with the declared indices: only then is it arbitrary.
    begun = now[1][:2] == ["letter", array] and [i[0] for i in now[1][2]] == now[0]
    expect(begun, "what is repeated does not start from a letter")
    after, before = (read(in_place(of["expression"], {letter: x}), scope) for x in (step, now))
    bounds = [
        (facts.simplify(after), facts.simplify(checker_clearing.times(factor, before)), "≤<"),
        (number(0), factor, "≤<"),
    ]
    # Factor 1 would keep the measure constant, so a limit of 0 needs "<".
    bounds += [(factor, number(1), "<")] if record["tends"] is not False else []
    for smaller, larger, signs in bounds:
        shown = any(facts.shows(scope, smaller, sign, larger) for sign in signs)
        expect(shown, "the premises do not say that the measure shrinks by the factor")
    # The induction multiplies by one and the same factor in each step.
    fixed = not any(
        holds_letter(record[part]["expression"], {array}) for part in ("factor", "measure")
    )
    expect(fixed, "the factor, or the measure, changes from step to step")
    # A hypothesis about the letter need not hold for the value after a step.
    assumed = any(checker_rules.assumes(p, array) for p in record["premises"])
    expect(not assumed, "something is assumed of what changes from step to step")


def put(data: object, old: object, value: object) -> Any:
    """Return the expression with ``value`` in place of a letter or a size."""
    return rewritten(data, lambda y: value if y == old else None)


def given_by(record: Record, dice: Dice) -> Given:
    """Return the claims and hypotheses of the premises, which are accepted already."""
    premises = list(every_premise(record))
    # Hypotheses of premises of premises count too: the conclusion holds under all of them.
    positive = frozenset(str(x) for p in premises for x in p.get("positive", ()))
    simplify = Simplifying(positive)
    relations: dict[Any, str] = {}
    known: set[str] = set()
    for p in premises:
        relations |= hypotheses(p.get("hypotheses", ()), simplify, dice).relations
        if p["kind"] == "sign":  # arrays that are not negative, except letters with a meaning
            known |= set(map(str, p["not negative"])) - {
                array_of(str(m["letter"])) for m in p["meant"]
            }
    said = tuple(s for p in record["premises"] for s in _yield_certified_statements(p, simplify))
    return Given(said, Signs(relations, positive, frozenset(known)), simplify)


def every_premise(record: Record) -> Iterator[Record]:
    """Yield the premises, and their premises, and so on."""
    for p in record["premises"]:
        yield p
        if "premises" in p:
            yield from every_premise(p)


def _yield_certified_statements(p: Record, simplify: Simplifying) -> Iterator[checker_rules.Said]:
    """Yield the statements of an accepted certificate."""
    # Certificates and steps by equations store sides as records; other kinds have printed claims.
    if p["kind"] == "certificate" or (p["kind"] == "step" and p["rule"] in _EQUATIONS):
        for e in p["equations"] if p["kind"] == "certificate" else p["conclusions"]:
            scope = scope_of(e)
            left, right = (simplify(read_means(e[side], scope)) for side in ("left", "right"))
            yield checker_rules.Said(scope, left, "=", right)
    else:
        yield from checker_rules.claims(p, simplify)


def _expect_sides_defined(written: Sequence[CheckedNode], facts: Given, rule: str) -> None:
    """Reject as ``Signs.expect_defined`` does, but allow the logarithm whose argument a premise shows to be positive.

    Means may occur only in equations, where they are computed.
    """
    means = [
        y
        for x in written
        for y in x.all(into_functions=True)
        if y.kind == "function" and y.label == "mean"
    ]
    expect(not means, "a step about means")
    # Its argument is positive because e^x = y is a premise, so the form need not show it.
    if rule == "logarithm" and written[1].kind == "function":
        written = (written[0], *written[1].below)
    facts.signs.expect_defined(written, facts.simplify)


def read_defined(data: object, scope: Mapping[str, str], facts: Given) -> CheckedNode:
    """Return an expression, simplified, with its means computed; reject it if it may have no value."""
    x = read(data, scope)
    whole = without_means(x, scope)
    facts.signs.expect_defined((whole, *bodies(x)), facts.simplify)
    return facts.simplify(whole)


def _check_equal_squares_rule(
    scope: Mapping[str, str], left: CheckedNode, right: CheckedNode, facts: Given
) -> None:
    x, y = facts.simplify(left), facts.simplify(right)
    # An absolute value has the square of its argument, which a premise may state instead.
    bases = [
        [z, *map(facts.simplify, _bases_with_same_square(side))]
        for z, side in ((x, left), (y, right))
    ]
    pairs = [(a, b) for a in bases[0] for b in bases[1]]
    squares = (
        (facts.simplify(checker_clearing.times(a, a)), facts.simplify(checker_clearing.times(b, b)))
        for a, b in pairs
    )
    expect(
        any(facts.shows(scope, a, "=", b) for a, b in squares),
        "the premises are not that the squares are equal",
    )
    # Equal squares leave the sign open; an absolute value (len > 1) is never negative.
    for side, known in zip((x, y), bases, strict=True):
        shown = facts.signs.shows_not_negative(side) or len(known) > 1
        shown = shown or any(facts.shows(scope, number(0), sign, side) for sign in "≤<")
        expect(shown, "a side whose square is known may be negative")


def _bases_with_same_square(x: CheckedNode) -> Sequence[CheckedNode]:
    """Return other terms with the same square: z if ``x`` is |z|, written as max(z, −z) or z sign(z)."""
    # max(z, −z): the two arguments add up to 0.
    if (
        len(x.below) == 2
        and x.kind == "function"
        and x.label == "max"
        and checker_clearing.vanishing(checker_clearing.plus(x.below))
    ):
        return x.below
    # Order of factors in a product is arbitrary, so the sign is put last.
    match (
        sorted(x.below, key=lambda y: y.label == "sign" and y.kind == "function")
        if x.kind == "product"
        else []
    ):
        case [z, CheckedNode("function", "sign", below=(of,))] if z.own_form == of.own_form:
            return [z]
    return []


def _check_logarithm_rule(
    scope: Mapping[str, str], left: CheckedNode, right: CheckedNode, facts: Given
) -> None:
    expect(
        right.kind == "function" and right.label == "log" and len(right.below) == 1, "no logarithm"
    )
    facts.simplify(left)  # which refuses −∞
    power = facts.simplify(node("exp", [left]))
    expect(
        facts.shows(scope, power, "=", facts.simplify(right.below[0])),
        "the premises are not that e^x = y",
    )


def _check_substitution_of_equals(
    scope: Mapping[str, str], left: CheckedNode, right: CheckedNode, facts: Given
) -> None:
    expect(
        _are_equal_by_premises(left, right, scope, facts, count()),
        "the sides differ in what no premise says is equal",
    )


def _are_equal_by_premises(
    x: CheckedNode, y: CheckedNode, scope: Mapping[str, str], facts: Given, fresh: Iterator[int]
) -> bool:
    """Return whether ``x`` and ``y`` are written alike except for parts that are equal by a premise."""
    if x.own_form == y.own_form:
        return True
    # Parts with −∞ or under a binder have no value alone, so premises cannot be applied to them.
    plain = not any(z.kind in ("masked", "bound") for z in (x, y))
    if plain and facts.shows(scope, facts.simplify(x), "=", facts.simplify(y)):
        return True
    own_kind = (x.kind, len(x.below))
    other_node = own_kind != (y.kind, len(y.below))
    if other_node or not x.below or x.sorts != y.sorts:
        return False
    # A fresh name on both sides makes bodies with differently named indices comparable.
    if x.kind in BINDERS:
        name = f"place {next(fresh)}"
        expect(name not in scope, "an index with a name that the checker keeps for itself")
        inside = {**scope, name: x.sorts[0]}
        return _are_equal_by_premises(
            renamed(x.below[0], x.label, name),
            renamed(y.below[0], y.label, name),
            inside,
            facts,
            fresh,
        )
    return x.label == y.label and all(
        _are_equal_by_premises(a, b, scope, facts, fresh)
        for a, b in zip(x.below, y.below, strict=True)
    )


def _check_chain_of_equations(
    scope: Mapping[str, str], left: CheckedNode, right: CheckedNode, facts: Given
) -> None:
    # Forms identify expressions up to the names of bound indices and the order of terms.
    start, end = (facts.simplify(x).own_form for x in (left, right))
    pairs = [sides for s in facts.equations() for sides in s.instances(scope)]
    # Every expression is expanded once, so the search ends.
    reached, pending = {start}, [start]
    while pending:
        here = pending.pop()
        new = {b for a, b in pairs if a == here} - reached
        reached |= new
        pending += new
    expect(end in reached, "the premises do not lead from one side to the other")


_EquationRule = Callable[[Mapping[str, str], CheckedNode, CheckedNode, Given], None]
_EQUATIONS: Mapping[str, _EquationRule] = {
    "squares": _check_equal_squares_rule,
    "logarithm": _check_logarithm_rule,
    "equals": _check_substitution_of_equals,
    "chain": _check_chain_of_equations,
}


# -- limits, and values at a size -------------------------------------------------------------------------------------
def _check_tends_rule(record: Record, facts: Given) -> None:
    """Reject unless every limit follows."""
    letter = str(record["letter"])
    expect(record["to"] in ("0", "∞"), "a limit that is neither 0 nor ∞")
    # Assumptions must not bound the letter, since a limit follows it beyond every bound.
    _expect_unbounded(record, letter)
    if record["size"] is not False:
        _of_size(record, facts)
        return
    # A letter with any assumption but a positive sign might not reach its limit.
    expect(
        letter in facts.signs.positive or letter not in facts.signs.known,
        "something else is assumed of it",
    )
    # At the limit the letter itself may be 0, so its sign is not used.
    signs = Signs({}, facts.signs.positive - {letter}, facts.signs.known)
    for _, scope, shown, value in _yield_checked_conclusions(
        record, facts, ("of", "form", "value")
    ):
        expect(not _is_letter_in_node(value, letter), "a limit that has the letter in it")
        there = facts.simplify(_take_letter_limit(shown, letter, record["to"] == "∞", signs))
        expect(
            facts.shows(scope, there, "=", value), "the premises do not say that this is the limit"
        )


def _expect_unbounded(record: Record, letter: str) -> None:
    """Reject assumptions that could keep the letter from its limit: a sign of an expression in it, or a circle."""
    for p in every_premise(record):
        # A sign may hold for some values of the letter alone, such as small ones.
        expect(p["kind"] != "sign", "a limit under an inequality")
        expect(
            all(letter not in map(str, pair) for pair in p.get("rules", ())),
            "a limit of what is on a circle",
        )
        # What is assumed, such as that a divisor is not 0, may hold for some values of it alone.
        assumed = (read(h["expression"], scope_of(h)) for h in p.get("hypotheses", ()))
        expect(
            not any(_is_letter_in_node(x, letter) for x in assumed),
            "what is assumed may end on the way",
        )


def _yield_checked_conclusions(
    record: Record, facts: Given, keys: tuple[str, str, str]
) -> Iterator[tuple[Record, Mapping[str, str], CheckedNode, CheckedNode]]:
    """Yield each conclusion about x with its indices, the form that x has by a premise, and the value.

    Each random array has one law in all conclusions, and no premise assumes more about it.
    """
    # Letters with a law must not be known in any other way, such as positive.
    known = [name for p in every_premise(record) for name in assumed_letters(p)]
    concluded = (read(c[key], scope_of(c)) for c in record["conclusions"] for key in keys)
    expect_laws(concluded, known)
    for c in record["conclusions"]:
        scope = scope_of(c)
        of, shown, value = (read_defined(c[key], scope, facts) for key in keys)
        # Each conclusion rests on an equation, or on a premise that shows it.
        expect(
            of.own_form == shown.own_form or facts.shows(scope, of, "=", shown),
            "no premise says what it is",
        )
        yield c, scope, shown, value


def _check_instance_rule(record: Record, facts: Given) -> None:
    """Reject unless x = c at a size, because x equals a form in which the size is only a number."""
    sort = str(record["sort"])
    length = read(["number", record["length"]], {})
    expect(
        length.label >= 1 and length.label.denominator == 1, "a size is a whole number from 1 on"
    )
    _expect_unbounded(record, "")
    expect(not facts.signs.relations, "an instance under a condition")
    for c, scope, shown, value in _yield_checked_conclusions(
        record, facts, ("left", "form", "right")
    ):
        expect(not scope, "an instance at places")
        expect(
            not any(sort in y.sorts for y in shown.all(into_functions=True)), "a sum over the size"
        )
        expect(not _is_dependent_on_size(value, sort), "a value that has the size in it")
        # The size is a plain number in the form, so putting another number for it is sound.
        there = facts.simplify(
            read(put(c["form"], ["size", sort], ["number", record["length"]]), {})
        )
        expect(facts.shows({}, there, "=", value), "the premises do not say that this is the value")


def _of_size(record: Record, facts: Given) -> None:
    """Reject unless every limit as a size grows is 0 and is proved."""
    sort = str(record["letter"])
    expect(record["to"] == "∞", "a size grows, and tends to nothing else")
    # A relation that is assumed at some sizes need not hold as the size grows.
    expect(not facts.signs.relations, "what is assumed may end on the way")
    for _, _, shown, value in _yield_checked_conclusions(record, facts, ("of", "form", "value")):
        expect(value.kind == "number" and value.label == 0, "the limit is 0")
        # The limit of a finite sum is the sum of limits: each term must tend to 0.
        terms = shown.below if shown.kind == "sum" else (shown,)
        expect(
            all(_is_shrinking_with_size(t, sort, facts.signs) for t in terms),
            "a term that is not seen to tend to 0",
        )


def _is_shrinking_with_size(x: CheckedNode, sort: str, signs: Signs) -> bool:
    """Return whether ``x`` is y · (z / (n w)) with w > 0, where n is the size, which occurs nowhere else."""
    # A second factor with the size could cancel the decrease by its growth.
    shrinking = [
        f
        for f in checker_clearing.factors(x)
        if f.kind == "ratio" and _is_dependent_on_size(f, sort)
    ]
    if len(shrinking) != 1 or any(
        _is_dependent_on_size(f, sort) for f in checker_clearing.factors(x) if f is not shrinking[0]
    ):
        return False
    above, below = shrinking[0].below
    # One factor n below is enough; more of them only speed the decrease.
    sizes = [f for f in checker_clearing.factors(below) if f.kind == "size" and f.label == sort]
    others = [f for f in checker_clearing.factors(below) if f not in sizes]
    apart = not any(_is_dependent_on_size(f, sort) for f in (above, *others))
    return bool(sizes) and apart and all(map(signs.shows_positive, others))


def _is_dependent_on_size(x: CheckedNode, sort: str) -> bool:
    """Return whether ``x`` depends on the size of ``sort``."""
    return any(
        (y.kind == "size" and y.label == sort) or sort in y.sorts
        for y in x.all(into_functions=True)
    )


def _is_letter_in_node(x: CheckedNode, letter: str) -> bool:
    return any(y.label == letter for y in x.letters())


def _take_letter_limit(x: CheckedNode, letter: str, grows: bool, signs: Signs) -> CheckedNode:
    """Return the limit of ``x``."""
    # The limit of a constant is itself.
    if not _is_letter_in_node(x, letter):
        return x
    if x.kind == "exp" and grows:
        power = x.below[0]  # −c β u with c > 0 and u > 0; others are rejected
        factors = power.below if power.kind == "product" else (power,)
        numbers = [f.label for f in factors if f.kind == "number"]
        tending = [f for f in factors if f.kind == "letter" and f.label == letter and not f.indices]
        rest = [f for f in factors if f.kind != "number" and f not in tending]
        # A negative number times β once: the exponent tends to −∞ if the rest is positive.
        expect(
            len(tending) == 1 and len(numbers) == 1 and numbers[0] < 0,
            "an exponential that is not seen to tend to 0",
        )
        expect(
            not any(_is_letter_in_node(f, letter) for f in rest)
            and all(map(signs.shows_positive, rest)),
            "its rate may be 0",
        )
        return number(0)
    # As β tends to 0 the letter is replaced by 0, which continuity allows below.
    if x.kind == "letter" and not grows and not x.indices:
        return number(0)
    expect(
        x.kind in ("sum", "product", "total", "ratio") or (x.kind == "exp" and not grows),
        "no limit is known of it",
    )
    below = [_take_letter_limit(y, letter, grows, signs) for y in x.below]
    # Quotients are continuous only where the limit of the divisor is not 0.
    expect(
        x.kind != "ratio" or signs.shows_positive(below[1]), "what it is divided by may tend to 0"
    )
    return x.of(below)


_RULES: Mapping[str, Callable[[Record, Given], None]] = {
    "largest": _check_largest_rule,
    "induction": _check_induction_rule,
    "limit": _check_tends_rule,
    "instance": _check_instance_rule,
    "repeated": _check_repeated_rule,
}
_OF_PARTS: Mapping[str, Callable[[Record, checker_rules.Same], None]] = {
    "fold": checker_rules.fold,
    "substitution": checker_rules.substitute,
}
