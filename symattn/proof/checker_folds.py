"""The rule of folds: if the state of two blocks together is the merged state of each, then merging the states of any
number of blocks, of any sizes and in any bracketing, gives the state of all.

A certificate holds the state of a block and what merging makes of two states, both in letters. The checker puts the
states of two blocks into the merge, writes the state of both blocks side by side, and decides that they are equal, for
all sizes. The rest is induction over the tree of merges: each inner node stands for more entries, of which nothing is
used but their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from symattn.proof.checker_reading import BINDERS, expect, holds_letter, in_place, read, reindexed, rewritten, scope_of

FIRST, SECOND = "first ", "second "
_BLIND = "merging looks at what the states are of"
Record = Mapping[str, Any]


def fold(record: Record, same: Any) -> None:
    """Reject unless the merged state of two blocks is the state of both; ``same`` decides equality in a scope."""
    state, merge = record["state"], record["merge"]
    arrays, numbers, sort = set(record["arrays"]), set(record["numbers"]), record["sort"]
    expect(bool(state) and len(state) == len(merge), "merging gives another number of parts than a state has")
    told = [(part, True) for part in (*state, *record["result"])] + [
        (part, False) for part in (*merge, *record["made"])
    ]
    kept = any(_reserved(part["expression"], letters) for part, letters in told)
    expect(not kept, "a name that the checker keeps for one of two blocks")
    blocks = arrays | {prefix + name for prefix in (FIRST, SECOND) for name in arrays}
    sides = [meaning(state, prefix, arrays | numbers, sort) for prefix in (FIRST, SECOND)]
    for part, merged in zip(state, merge, strict=True):
        scope = scope_of(part)
        expect(not holds_letter(merged["expression"], blocks), _BLIND)
        apart = scope_of(merged) == scope and sort not in scope.values()
        expect(apart, "a part of a state that runs along what is split")
        left = read(in_place(merged["expression"], {**sides[0], **sides[1]}), scope)
        right = read(joined(part["expression"], arrays, sort, {}), scope)
        expect(same(left, right, scope), "the merged state of two blocks is not the state of both")
    many = len(record["made"]) == len(record["result"])
    expect(many, "more is made of a state than it is said to be, or less")
    for outcome, result in zip(record["made"], record["result"], strict=True):
        expect(not holds_letter(outcome["expression"], blocks), _BLIND)
        _finished(outcome, result, meaning(state, FIRST, set(), sort), numbers, same)


def _finished(record: Record, result: Record, state: Mapping[str, Any], numbers: set[str], same: Any) -> None:
    """Check that the end of a state is the result, in which no number that a state may choose occurs."""
    scope = scope_of(result)
    right = read(result["expression"], scope)
    chosen = any(x.label in numbers for x in right.letters())
    expect(not chosen, "the result depends on a number that the states may choose")
    finished = scope_of(record) == scope and same(read(in_place(record["expression"], state), scope), right, scope)
    expect(finished, "what is made of a state is not the result")


def meaning(state: Sequence[Record], prefix: str, own: set[str], sort: str) -> dict[str, tuple[list[str], Any]]:
    """Return the meaning of the letters for the parts of a state, in letters of a block of its own."""
    return {
        prefix + part["letter"]: (list(scope_of(part)), _of_block(part["expression"], prefix, own, sort))
        for part in state
    }


def _of_block(data: Any, prefix: str, own: set[str], sort: str) -> Any:
    """An expression for one block: its arrays, its numbers and its size are its own."""

    def change(x: list[Any]) -> Any:
        if x[0] == "letter" and x[1] in own:
            return [x[0], prefix + x[1], x[2]]
        if x[0] == "size" and own and x[1] == sort:
            return [x[0], prefix + sort]
        if x[0] in BINDERS and own and x[2] == sort:
            return [x[0], x[1], prefix + sort, _of_block(x[3], prefix, own, sort)]
        return None

    return rewritten(data, change)


def joined(data: Any, arrays: set[str], sort: str, block: Mapping[str, str]) -> Any:
    """The expression for two blocks side by side; ``block`` says in which one an index is."""

    def over(prefix: str, name: str, body: object) -> Any:
        own = prefix + name
        return ["total", own, prefix + sort, joined(reindexed(body, {name: own}), arrays, sort, {**block, own: prefix})]

    def change(x: list[Any]) -> Any:
        kind, *rest = x
        if kind == "size" and rest[0] == sort:
            return ["sum", [kind, FIRST + sort], [kind, SECOND + sort]]
        if kind == "total" and rest[1] == sort:
            return ["sum", *[over(p, rest[0], rest[2]) for p in (FIRST, SECOND)]]
        if kind == "letter":
            inside = [block[i[0]] for i in rest[1] if i[0] in block]
            expect((rest[0] in arrays) == (len(inside) == 1), f"{rest[0]} does not run along the blocks once")
            return [kind, (inside[0] if inside else "") + rest[0], rest[1]]
        ordered = (kind == "is" and any(i[0] in block for i in rest[1:])) or (kind == "bound" and rest[1] == sort)
        expect(not ordered, "a state in which the order, or the largest, of what is split matters")
        return None

    return rewritten(data, change)


def _reserved(data: object, letters: bool) -> bool:
    """Return whether a name is one of those for a block; letters are left out where they may be those of the states."""
    if isinstance(data, list):
        parts = data if letters or data[:1] != ["letter"] else data[2:]
        return any(_reserved(x, letters) for x in parts)
    return isinstance(data, str) and data.startswith((FIRST, SECOND))
