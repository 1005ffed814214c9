"""The rule of limits, for ``checker``: what is squeezed, and what is continuous.

If X ≤ 1 and 1 − X ≤ T for all numbers b > 0, and every term of T has a factor e^{−b u} with u > 0 and nothing else in
it depends on b, then X tends to 1 as b grows. What is made of exponentials, sums, products and quotients by what is
positive is continuous, so as b tends to 0 it tends to what it is at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from symattn.proof.checker_clearing import minus
from symattn.proof.checker_reading import CheckedNode, Rejected, in_place, number, read, scope_of
from symattn.proof.checker_rules import assumes, claims
from symattn.proof.checker_signs import Signs

_CONTINUOUS = frozenset({"number", "size", "letter", "sum", "product", "total", "exp", "ratio"})
Same = Callable[[CheckedNode, CheckedNode, Mapping[str, str]], bool]


def limits(record: Mapping[str, Any], same: Same) -> None:
    """Reject unless both limits follow; ``same`` decides equality."""
    letter = str(record["letter"])
    known = set.intersection(*[set(map(str, p["positive"])) for p in record["premises"]])
    if letter not in known:
        raise Rejected(f"{letter} is not said to be positive")
    if any(assumes(p, letter, positive=False) for p in record["premises"]):
        raise Rejected(f"something else is assumed of {letter}")
    _squeezed(record, letter, known, same)
    scope = scope_of(record["of"])
    of = read(record["of"]["expression"], scope)
    at_zero = read(in_place(record["of"]["expression"], {letter: ([], ["number", "0"])}), scope)
    signs = Signs({}, frozenset(known - {letter}), frozenset({letter}))  # also where it is 0
    if any(x.kind not in _CONTINUOUS or (x.kind == "ratio" and not signs.shows_positive(x.below[1])) for x in of.all()):
        raise Rejected("it may not be continuous")
    if scope_of(record["value"]) != scope or not same(at_zero, read(record["value"]["expression"], scope), scope):
        raise Rejected("at 0 it is not what it is said to be")


def _squeezed(record: Mapping[str, Any], letter: str, known: Collection[str], same: Same) -> None:
    result = [c for p in record["premises"] for c in claims(p)]
    for one in (c for c in result if c.larger.kind == "number" and c.larger.label == 1):
        rest = minus(number(1), one.smaller)
        for other in (c for c in result if c.scope == one.scope and c is not one):
            if _decays(other.larger, letter, known) and same(other.smaller, rest, one.scope):
                return
    raise Rejected("the premises do not squeeze anything")


def _decays(x: CheckedNode, letter: str, known: Collection[str]) -> bool:
    """Return whether every term of ``x`` has a factor e^{−b u} with u > 0, and b is nowhere else."""
    if x.kind in ("sum", "total"):
        return all(_decays(y, letter, known) for y in x.below)
    if x.kind == "ratio":
        return _decays(x.below[0], letter, known) and _free_of(x.below[1], letter)
    if x.kind == "product":
        decaying = [y for y in x.below if _decays(y, letter, known)]
        return bool(decaying) and all(y in decaying or _free_of(y, letter) for y in x.below)
    if x.kind != "exp" or x.below[0].kind != "product":
        return False
    numbers = [y.label for y in x.below[0].below if y.kind == "number"]
    names = [y.label for y in x.below[0].below if y.kind == "letter"]
    whole = len(numbers) + len(names) == len(x.below[0].below) and len(numbers) == 1 and numbers[0] < 0
    return whole and letter in names and all(n in known for n in names)


def _free_of(x: CheckedNode, letter: str) -> bool:
    return all(y.kind != "letter" or y.label != letter for y in x.all(into_functions=True))
