"""Limits, and values at a size, for ``checker``: x → c as a number β grows, or tends to 0, or x at a size.

A premise says that x is a form f, which is made of sums, products, quotients and exponentials. As β grows, e^{−βu} with
u > 0 tends to 0, and what has no β stays; as β tends to 0, f tends to what it is at 0. Quotients are continuous where
what they divide by tends to what is positive by its form. Another premise says that this value is c.

Of a size that grows it is known that x/(n y) tends to 0 where neither x nor y > 0 depends on n. What is said of all
sizes holds at each, where a form with no sum over the size says what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symattn.proof.checker_clearing import factors
from symattn.proof.checker_means import expect_laws, told_of
from symattn.proof.checker_reading import CheckedNode, expect, form, number, read, scope_of
from symattn.proof.checker_signs import Signs
from symattn.proof.checker_steps import Given, every_premise, given_by, put, read_defined
from symattn.proof.checker_values import Dice


def tends(record: Mapping[str, Any], dice: Dice) -> None:
    """Reject unless every limit follows."""
    letter, given = str(record["letter"]), given_by(record, dice)
    expect(record["to"] in ("0", "∞"), "a limit that is neither 0 nor ∞")
    _expect_unbounded(record, letter)
    _expect_laws(record, ("of", "form", "value"))
    if record["size"] is not False:
        _of_size(record, given)
        return
    expect(letter in given.signs.positive or letter not in given.signs.known, "something else is assumed of it")
    expect(bool(record["conclusions"]), "a rule that concludes nothing")
    signs = Signs({}, given.signs.positive - {letter}, given.signs.known)
    for c in record["conclusions"]:
        scope = scope_of(c)
        of, shown, value = (read_defined(c[key], scope, given) for key in ("of", "form", "value"))
        same = form(of, {i: i for i in scope}) == form(shown, {i: i for i in scope})
        expect(same or given.shows(scope, of, "=", shown), "no premise says what it is")
        expect(not _has(value, letter), "a limit that has the letter in it")
        there = given.simplify(_limit(shown, letter, record["to"] == "∞", signs))
        expect(given.shows(scope, there, "=", value), "the premises do not say that this is the limit")


def _expect_unbounded(record: Mapping[str, Any], letter: str) -> None:
    """Nothing is assumed by which the number could not go where it tends to: no sign of what it is in, no circle."""
    for p in every_premise(record):
        expect(p["kind"] != "sign", "a limit under an inequality")
        expect(all(letter not in map(str, pair) for pair in p.get("rules", ())), "a limit of what is on a circle")
        assumed = (read(h["expression"], scope_of(h)) for h in p.get("hypotheses", ()))
        expect(not any(_has(x, letter) for x in assumed), "what is assumed may end on the way")


def _expect_laws(record: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    """Each random array has one law in all conclusions, and no premise says more of it."""
    result = [name for p in every_premise(record) for name in told_of(p)]
    expect_laws([(c[key], scope_of(c)) for c in record["conclusions"] for key in keys], result)


def instance(record: Mapping[str, Any], dice: Dice) -> None:
    """Reject unless x = c at a size, as x is a form in which the size is no more than a number, and that is c."""
    sort, length, given = str(record["sort"]), read(["number", record["length"]], {}), given_by(record, dice)
    expect(length.label >= 1 and length.label.denominator == 1, "a size is a whole number from 1 on")
    _expect_unbounded(record, "")
    _expect_laws(record, ("left", "form", "right"))
    expect(not given.signs.relations and bool(record["conclusions"]), "an instance under a condition, or of nothing")
    for c in record["conclusions"]:
        expect(scope_of(c) == {}, "an instance at places")
        left, shown, value = (read_defined(c[key], {}, given) for key in ("left", "form", "right"))
        expect(given.shows({}, left, "=", shown), "no premise says what it is")
        expect(not any(sort in y.sorts for y in shown.all(into_functions=True)), "a sum over the size")
        expect(not _counts(value, sort), "a value that has the size in it")
        there = given.simplify(read(put(c["form"], ["size", sort], ["number", record["length"]]), {}))
        expect(given.shows({}, there, "=", value), "the premises do not say that this is the value")


def _of_size(record: Mapping[str, Any], given: Given) -> None:
    """Every limit as a size grows is 0."""
    sort = str(record["letter"])
    expect(record["to"] == "∞" and bool(record["conclusions"]), "a size grows, and tends to nothing else")
    expect(not given.signs.relations, "what is assumed may end on the way")
    for c in record["conclusions"]:
        scope = scope_of(c)
        of, shown, value = (read_defined(c[key], scope, given) for key in ("of", "form", "value"))
        expect(given.shows(scope, of, "=", shown), "no premise says what it is")
        expect(value.kind == "number" and value.label == 0, "the limit is 0")
        terms = shown.below if shown.kind == "sum" else (shown,)
        expect(all(_shrinks(t, sort, given.signs) for t in terms), "a term that is not seen to tend to 0")


def _shrinks(x: CheckedNode, sort: str, signs: Signs) -> bool:
    """Return whether it is y · (z / (n w)) with w > 0, and n the size, which is nowhere else."""
    shrinking = [f for f in factors(x) if f.kind == "ratio" and _counts(f, sort)]
    if len(shrinking) != 1 or any(_counts(f, sort) for f in factors(x) if f is not shrinking[0]):
        return False
    above, below = shrinking[0].below
    sizes = [f for f in factors(below) if f.kind == "size" and f.label == sort]
    others = [f for f in factors(below) if f not in sizes]
    apart = not any(_counts(f, sort) for f in (above, *others))
    return bool(sizes) and apart and all(map(signs.shows_positive, others))


def _counts(x: CheckedNode, sort: str) -> bool:
    """Return whether it depends on a size."""
    return any((y.kind == "size" and y.label == sort) or sort in y.sorts for y in x.all(into_functions=True))


def _has(x: CheckedNode, letter: str) -> bool:
    return any(y.label == letter for y in x.letters())


def _limit(x: CheckedNode, letter: str, grows: bool, signs: Signs) -> CheckedNode:
    """Return the limit of ``x``."""
    if not _has(x, letter):
        return x
    if x.kind == "exp" and grows:
        return _vanishing(x.below[0], letter, signs)
    if x.kind == "letter" and not grows and not x.indices:
        return number(0)
    expect(x.kind in ("sum", "product", "total", "ratio") or (x.kind == "exp" and not grows), "no limit is known of it")
    below = [_limit(y, letter, grows, signs) for y in x.below]
    expect(x.kind != "ratio" or signs.shows_positive(below[1]), "what it is divided by may tend to 0")
    return x.of(below)


def _vanishing(power: CheckedNode, letter: str, signs: Signs) -> CheckedNode:
    """0, for e to a power −c β u with c > 0 and u > 0."""
    factors = power.below if power.kind == "product" else (power,)
    numbers = [f.label for f in factors if f.kind == "number"]
    tending = [f for f in factors if f.kind == "letter" and f.label == letter and not f.indices]
    rest = [f for f in factors if f.kind != "number" and f not in tending]
    expect(len(tending) == 1 and len(numbers) == 1 and numbers[0] < 0, "an exponential that is not seen to tend to 0")
    expect(not any(_has(f, letter) for f in rest) and all(map(signs.shows_positive, rest)), "its rate may be 0")
    return number(0)
