"""The rules by which a certificate goes on from what was decided to what is printed, applied anew by the checker.

A certificate of a *rule* holds its premises, which are certificates, and its conclusion. *largest*: what holds of every
entry holds of the largest one, since that is one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, permutations
from typing import Any

from symattn.proof.checker_laws import renamed
from symattn.proof.checker_reading import Node, Rejected, form, read

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """``smaller`` ≤ ``larger`` for all places of the indices in ``scope``, which maps each to its sort."""

    scope: Mapping[str, str]
    smaller: Node
    larger: Node


def apply(record: Record) -> None:
    """Reject unless the rule gives every conclusion from what the premises, which are accepted, say."""
    if record["rule"] not in _RULES:
        raise Rejected(f"{record['rule']!r} is no rule")
    if not record["conclusions"]:
        raise Rejected("a rule that concludes nothing")
    premises = [claim for p in record["premises"] for claim in _claims(p)]
    for conclusion in _claims(record):
        _RULES[record["rule"]](conclusion, premises)


def _claims(record: Record) -> Iterator[Claim]:
    """What a certificate of a sign or a rule says of two sides."""
    for c in record["conclusions"]:
        scope = {str(name): str(sort) for name, sort in c["free"]}
        yield Claim(scope, read(c["smaller"], scope), read(c["larger"], scope))


def _largest(conclusion: Claim, premises: Sequence[Claim]) -> None:
    """For one of the maxima in the conclusion, each thing that it is taken of, in its place, gives a premise."""
    fresh = (f"place {n}" for n in count())
    for top in _maxima(conclusion):
        cases = [_with_one(conclusion, top, scope, one) for scope, one in _entries(top, conclusion.scope, fresh)]
        if all(any(_says(p, case) for p in premises) for case in cases):
            return
    raise Rejected("the premises are not the conclusion for every entry in the place of the largest")


def _maxima(c: Claim) -> Iterator[Node]:
    for side in (c.smaller, c.larger):
        for x in side.all(into_functions=True):
            if x.kind == "function" and x.label == "max" and x.free <= c.scope.keys():
                yield x


def _entries(top: Node, scope: Mapping[str, str], fresh: Iterator[str]) -> Iterator[tuple[Mapping[str, str], Node]]:
    """What a maximum is taken of, that of maxima included, with names for the places."""
    for one in top.below:
        inside = dict(scope)
        while one.kind == "bound":
            name = next(fresh)
            inside[name] = one.sorts[0]
            one = renamed(one.below[0], {one.label: name})
        if one.kind == "masked":
            raise Rejected("a maximum over what a mask allows may be over nothing")
        if one.kind == "function" and one.label == "max":
            yield from _entries(one, inside, fresh)
        else:
            yield inside, one


def _with_one(c: Claim, top: Node, scope: Mapping[str, str], one: Node) -> Claim:
    what = form(top, {i: i for i in top.free})
    return Claim(scope, _put(c.smaller, what, one), _put(c.larger, what, one))


def _put(x: Node, what: Any, one: Node) -> Node:
    """``x`` with ``one`` in the place of what has the form ``what``."""
    if x.kind == "function" and form(x, {i: i for i in x.free}) == what:
        return one
    if not x.below:
        return x
    below: list[Node] = []
    for y in (_put(y, what, one) for y in x.below):
        below += y.below if y.kind == x.kind and x.kind in ("sum", "product") else (y,)
    bound = {x.label} if x.kind in ("total", "bound") else set()
    free = frozenset().union(*[y.free for y in below]) - bound
    return replace(x, below=tuple(below), free=free)


def _says(premise: Claim, case: Claim) -> bool:
    """Whether they are the same but for the names of indices."""
    wanted = [form(side, {i: i for i in case.scope}) for side in (case.smaller, case.larger)]
    used = [i for i in premise.scope if i in premise.smaller.free | premise.larger.free]
    for chosen in permutations(case.scope, len(used)):
        names = dict(zip(used, chosen, strict=True))
        if all(premise.scope[i] == case.scope[names[i]] for i in used):
            names.update({i: i for i in premise.scope if i not in used})
            if [form(side, names) for side in (premise.smaller, premise.larger)] == wanted:
                return True
    return False


_RULES: Mapping[str, Callable[[Claim, Sequence[Claim]], None]] = {"largest": _largest}
