"""The rules of substitution and of folds, applied again by the checker, and the claims of premises.

The rule of folds: if the state of two blocks together is the merge of their states, then merging the states of any
number of blocks, of any sizes and in any bracketing, gives the state of all. A certificate holds the state of a block
and the merge of two states, both in letters. The checker substitutes the states of two blocks into the merge, writes
the state of both blocks side by side, and decides that they are equal, for all sizes. The rest is induction over the
tree of merges: each inner node stands for more entries, and only their number is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, permutations
from math import perm
from typing import Any

from symattn.proof.checker_reading import (
    BINDERS,
    CheckedNode,
    Record,
    Rejected,
    array_of,
    expect,
    expect_few,
    form,
    holds_letter,
    in_place,
    read,
    reindexed,
    renamed,
    rewritten,
    scope_of,
)
from symattn.proof.checker_simplifying import Simplifying

Same = Callable[[CheckedNode, CheckedNode, Mapping[str, str]], bool]


@dataclass(frozen=True)
class Said:
    """The claim ``left sign right`` for all values of the indices in ``scope``, which maps each to its sort."""

    scope: Mapping[str, str]
    left: CheckedNode
    sign: str
    right: CheckedNode

    def instances(self, scope: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the forms of both sides, with indices of ``scope`` in place of their own."""
        # Indices that do not occur are left out, or instances would repeat.
        used = [i for i in self.scope if i in self.left.free | self.right.free]
        # The number of instances grows like a factorial.
        expect_few(perm(len(scope), len(used)))
        # Indices are renamed one to one: no two of them become the same index.
        for chosen in permutations(scope, len(used)):
            if all(self.scope[i] == scope[j] for i, j in zip(used, chosen, strict=True)):
                names = dict(zip(used, chosen, strict=True))
                yield form(self.left, names), form(self.right, names)

    def says(self, scope: Mapping[str, str], left: CheckedNode, right: CheckedNode) -> bool:
        """Return whether the sides are ``left`` and ``right``, up to the names of indices."""
        free = {i: sort for i, sort in scope.items() if i in left.free | right.free}
        return (left.own_form, right.own_form) in self.instances(free)


def substitute(record: Record, same: Same) -> None:
    """Reject unless both sides are one expression with equal terms for its letters; ``same`` decides equality.

    That the terms are equal is a hypothesis.
    """
    scope = scope_of(record["left"])
    # Without equal parts there is nothing to substitute.
    same_places = record["equal"] and all(
        scope_of(record[key]) == scope for key in ("right", "through")
    )
    if not same_places:
        raise Rejected("the sides are not about the same places")
    for key, side in (("equal", "left"), ("to", "right")):
        meant = {str(p["letter"]): (list(scope_of(p)), p["expression"]) for p in record[key]}
        expect(
            meant.keys() == {str(p["letter"]) for p in record["equal"]},
            "what is put in has other letters",
        )
        whole = read(in_place(record["through"]["expression"], meant), scope)
        if not same(whole, read(record[side]["expression"], scope), scope):
            raise Rejected(f"the {side} side is not what the substitution gives")


def assumes(record: Record, array: str) -> bool:
    """Return whether a premise assumes a sign of an array's entries, or of an expression in them."""
    if record["kind"] != "sign":
        return any(assumes(p, array) for p in record["premises"])
    # A law is a theorem about the meaning, so nothing is assumed by it.
    lawful = {str(name) for name, _ in record["laws"]}
    names = set(map(str, record["not negative"])) - lawful
    # A hypothesis about a meaning is one about the letters in it.
    meant = [m["expression"] for m in record["meant"] if array_of(str(m["letter"])) in names]
    positive = {*record["positive"], *names}
    return array in positive or any(holds_letter(x, {array}) for x in meant)


def claims(record: Record, simplify: Simplifying) -> Iterator[Said]:
    """Yield the claims of a certificate of a sign or of the rule *largest*, simplified."""
    largest = record["kind"] == "step" and record["rule"] == "largest"
    expect(
        largest or record["kind"] == "sign",
        f"a premise of the kind {record['kind']!r} says nothing of two sides",
    )
    # no rule is held to its relation
    sign = "<" if record["kind"] == "sign" and record["relation"] == ">" else "≤"
    for c in record["conclusions"]:
        scope = scope_of(c)
        smaller = simplify(read(c["smaller"], scope))
        larger = simplify(read(c["larger"], scope))
        yield Said(scope, smaller, sign, larger)


def of_the_largest(conclusion: Said, premises: Sequence[Said]) -> None:
    """Reject unless, for one of the maxima in the conclusion, each of its terms in its place gives a premise.

    What holds for every entry holds for the largest, which is one of them.
    """
    fresh = (f"place {n}" for n in count())
    within = (
        x for side in (conclusion.left, conclusion.right) for x in side.all(into_functions=True)
    )
    for top in (
        x
        for x in within
        # A maximum over a bound index has other values under each binder.
        if x.kind == "function" and x.label == "max" and x.free <= conclusion.scope.keys()
    ):
        cases = [
            (
                scope,
                _replace_function_by_form(conclusion.left, top.own_form, one),
                _replace_function_by_form(conclusion.right, top.own_form, one),
            )
            for scope, one in _yield_maximum_terms(top, conclusion.scope, fresh)
        ]
        # One maximum is enough: it is replaced on both sides at once.
        shown = (any(p.says(*case) for p in premises) for case in cases)
        if all(shown):
            return
    raise Rejected(
        "the premises are not the conclusion for every entry in the place of the largest"
    )


def _yield_maximum_terms(
    top: CheckedNode, scope: Mapping[str, str], fresh: Iterator[str]
) -> Iterator[tuple[Mapping[str, str], CheckedNode]]:
    """Yield the terms of a maximum, including those of inner maxima, with names for the bound indices."""
    for term in top.below:
        inside = dict(scope)
        # The maximum over an index: the claim must be shown for any value of the index.
        while term.kind == "bound":
            # A name of the scope would make the term that of one place, which is not any place.
            name = next(n for n in fresh if n not in inside)
            inside[name] = term.sorts[0]
            term = renamed(term.below[0], term.label, name)
        expect(term.kind != "masked", "a maximum over what a mask allows may be over nothing")
        if term.kind == "function" and term.label == "max":
            yield from _yield_maximum_terms(term, inside, fresh)
        else:
            yield inside, term


def _replace_function_by_form(x: CheckedNode, old: object, new: CheckedNode) -> CheckedNode:
    """Return ``x`` with ``new`` in place of the function with the form ``old``."""
    if x.kind == "function" and x.own_form == old:
        return new
    if not x.below:
        return x
    below: list[CheckedNode] = []
    for y in (_replace_function_by_form(y, old, new) for y in x.below):
        # Flat again, since forms compare flat sums and products.
        nested = y.kind == x.kind and x.kind in ("sum", "product")
        below += y.below if nested else (y,)
    return x.of(below)


# -- folds -------------------------------------------------------------------------------------------------------------
FIRST, SECOND = "first ", "second "
# Merging may look at states alone, or the induction over the tree fails.
_BLIND = "merging looks at what the states are of"


def fold(record: Record, same: Same) -> None:
    """Reject unless the merged state of two blocks is the state of both; ``same`` decides equality in a scope."""
    state, merge = record["state"], record["merge"]
    arrays = set(record["arrays"])
    numbers = set(record["numbers"])
    sort = record["sort"]
    expect(
        bool(state) and len(state) == len(merge),
        "merging gives another number of parts than a state has",
    )
    named_parts = [(part, True) for part in (*state, *record["result"])] + [
        (part, False) for part in (*merge, *record["made"])
    ]
    # Prefixed names are the checker's own, so they must not occur in the record.
    reserved = any(_has_block_prefix(part["expression"], letters) for part, letters in named_parts)
    expect(not reserved, "a name that the checker keeps for one of two blocks")
    blocks = arrays | {prefix + name for prefix in (FIRST, SECOND) for name in arrays}
    sides = [meaning(state, prefix, arrays | numbers, sort) for prefix in (FIRST, SECOND)]
    for part, merged in zip(state, merge, strict=True):
        scope = scope_of(part)
        # The merge must not depend on the arrays or sizes behind a state.
        expect(not holds_letter(merged["expression"], blocks), _BLIND)
        # A part that runs along the split axis would change its size with the block.
        apart = scope_of(merged) == scope and sort not in scope.values()
        expect(apart, "a part of a state that runs along what is split")
        left = read(in_place(merged["expression"], {**sides[0], **sides[1]}), scope)
        right = read(joined(part["expression"], arrays, sort, {}), scope)
        expect(same(left, right, scope), "the merged state of two blocks is not the state of both")
    many = len(record["made"]) == len(record["result"])
    expect(many, "the state has other parts than are declared")
    for outcome, result in zip(record["made"], record["result"], strict=True):
        # The same holds at the end: the output is computed from the state.
        expect(not holds_letter(outcome["expression"], blocks), _BLIND)
        _check_fold_result(outcome, result, meaning(state, FIRST, set(), sort), numbers, same)


def _check_fold_result(
    record: Record, result: Record, state: Mapping[str, Any], numbers: set[str], same: Same
) -> None:
    """Reject unless the end of a state is the result, which may not contain numbers that a state can choose."""
    scope = scope_of(result)
    right = read(result["expression"], scope)
    # Two states of the same data may have chosen different numbers.
    chosen = any(x.label in numbers for x in right.letters())
    expect(not chosen, "the result depends on a number that the states may choose")
    finished = scope_of(record) == scope and same(
        read(in_place(record["expression"], state), scope), right, scope
    )
    expect(finished, "what is made of a state is not the result")


def meaning(
    state: Sequence[Record], prefix: str, own: set[str], sort: str
) -> dict[str, tuple[list[str], Any]]:
    """Return the meanings of the letters for the parts of a state, in the letters of its own block."""
    return {
        prefix + part["letter"]: (
            list(scope_of(part)),
            _of_block(part["expression"], prefix, own, sort),
        )
        for part in state
    }


def _of_block(data: object, prefix: str, own: set[str], sort: str) -> Any:
    """Return the expression for one block, with arrays, numbers and a size of its own."""

    def change(x: list[Any]) -> Any:
        if x[0] == "letter" and x[1] in own:
            return [x[0], prefix + x[1], x[2]]
        if x[0] == "size" and own and x[1] == sort:
            return [x[0], prefix + sort]
        # The body of the binder needs the change as well, since ``change`` replaces it whole.
        if x[0] in BINDERS and own and x[2] == sort:
            body = _of_block(x[3], prefix, own, sort)
            return [x[0], x[1], prefix + sort, body]
        return None

    return rewritten(data, change)


def joined(data: object, arrays: set[str], sort: str, block: Mapping[str, str]) -> Any:
    """Return the expression for two blocks side by side; ``block`` maps an index to its block."""

    def over(prefix: str, name: str, body: object) -> Any:
        own = prefix + name
        return [
            "total",
            own,
            prefix + sort,
            joined(reindexed(body, {name: own}), arrays, sort, {**block, own: prefix}),
        ]

    def change(x: list[Any]) -> Any:
        kind, *rest = x
        if kind == "size" and rest[0] == sort:
            # The size of both blocks is the sum of their sizes.
            return ["sum", [kind, FIRST + sort], [kind, SECOND + sort]]
        if kind == "total" and rest[1] == sort:
            # A sum over both blocks is the sum over the first plus the sum over the second.
            return ["sum", *[over(p, rest[0], rest[2]) for p in (FIRST, SECOND)]]
        if kind == "letter":
            inside = [block[i[0]] for i in rest[1] if i[0] in block]
            expect(
                # Along the split axis exactly once: else an entry would need both blocks.
                (rest[0] in arrays) == (len(inside) == 1),
                f"{rest[0]} does not run along the blocks once",
            )
            return [kind, (inside[0] if inside else "") + rest[0], rest[1]]
        # Merges in any bracketing must not depend on order.
        ordered = (kind == "is" and any(i[0] in block for i in rest[1:])) or (
            kind == "bound" and rest[1] == sort
        )
        expect(not ordered, "a state in which the order, or the largest, of what is split matters")
        return None

    return rewritten(data, change)


def _has_block_prefix(data: object, letters: bool) -> bool:
    """Return whether a name has the prefix of a block; names of letters count only if ``letters``."""
    if isinstance(data, list):
        # Names of letters are skipped where the merge uses prefixed letters on purpose.
        parts = data if letters or data[:1] != ["letter"] else data[2:]
        return any(_has_block_prefix(x, letters) for x in parts)
    return isinstance(data, str) and data.startswith((FIRST, SECOND))
