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

from symattn.proof.checker_reading import Rejected, in_place, read, scope_of

FIRST, SECOND = "first ", "second "
Record = Mapping[str, Any]


def fold(record: Record, same: Any) -> None:
    """Reject unless the merged state of two blocks is the state of both; ``same`` decides equality in a scope."""
    state, merge = record["state"], record["merge"]
    arrays, numbers, sort = set(record["arrays"]), set(record["numbers"]), record["sort"]
    if not state or len(state) != len(merge):
        raise Rejected("merging gives another number of parts than a state has")
    told = [(part, True) for part in (*state, *record["result"])] + [
        (part, False) for part in (*merge, *record["made"])
    ]
    if any(_reserved(part["expression"], letters) for part, letters in told):
        raise Rejected("a name that the checker keeps for one of two blocks")
    blocks = arrays | {prefix + name for prefix in (FIRST, SECOND) for name in arrays}
    sides = [meaning(state, prefix, arrays | numbers, sort) for prefix in (FIRST, SECOND)]
    for part, merged in zip(state, merge, strict=True):
        scope = scope_of(part)
        _expect_no_blocks(merged["expression"], blocks)
        if scope_of(merged) != scope or sort in scope.values():
            raise Rejected("a part of a state that runs along what is split")
        left = read(in_place(merged["expression"], {**sides[0], **sides[1]}), scope)
        right = read(joined(part["expression"], arrays, sort, {}), scope)
        if not same(left, right, scope):
            raise Rejected("the merged state of two blocks is not the state of both")
    if len(record["made"]) != len(record["result"]):
        raise Rejected("more is made of a state than it is said to be, or less")
    for outcome, result in zip(record["made"], record["result"], strict=True):
        _expect_no_blocks(outcome["expression"], blocks)
        _finished(outcome, result, meaning(state, FIRST, set(), sort), numbers, same)


def _finished(made: Record, result: Record, state: Mapping[str, Any], numbers: set[str], same: Any) -> None:
    """Check that the end of a state is the result, in which no number that a state may choose occurs."""
    scope = scope_of(result)
    right = read(result["expression"], scope)
    if any(x.kind == "letter" and x.label in numbers for x in right.all(into_functions=True)):
        raise Rejected("the result depends on a number that the states may choose")
    if scope_of(made) != scope or not same(read(in_place(made["expression"], state), scope), right, scope):
        raise Rejected("what is made of a state is not the result")


def meaning(state: Sequence[Record], prefix: str, own: set[str], sort: str) -> dict[str, tuple[list[str], Any]]:
    """Return the meaning of the letters for the parts of a state, in letters of a block of its own."""
    return {
        prefix + part["letter"]: (list(scope_of(part)), _of_block(part["expression"], prefix, own, sort))
        for part in state
    }


def _of_block(data: Any, prefix: str, own: set[str], sort: str) -> Any:
    """An expression for one block: its arrays, its numbers and its size are its own."""
    if not isinstance(data, list) or not data:
        return data
    kind, *rest = data
    if kind == "letter" and rest[0] in own:
        return [kind, prefix + rest[0], rest[1]]
    if kind == "size" and own and rest[0] == sort:
        return [kind, prefix + sort]
    if kind in ("total", "bound") and own and rest[1] == sort:
        return [kind, rest[0], prefix + sort, _of_block(rest[2], prefix, own, sort)]
    return [kind, *[_of_block(x, prefix, own, sort) if isinstance(x, list) else x for x in rest]]


def joined(data: Any, arrays: set[str], sort: str, block: Mapping[str, str]) -> Any:
    """The expression for two blocks side by side; ``block`` says in which one an index is."""
    if not isinstance(data, list) or not data:
        return data
    kind, *rest = data
    if kind == "size" and rest[0] == sort:
        return ["sum", [kind, FIRST + sort], [kind, SECOND + sort]]
    if kind == "total" and rest[1] == sort:
        name, _, body = rest
        return ["sum", *[_over(p, name, sort, body, arrays, block) for p in (FIRST, SECOND)]]
    if kind == "letter":
        inside = [block[i[0]] for i in rest[1] if i[0] in block]
        if (rest[0] in arrays) != (len(inside) == 1):
            raise Rejected(f"{rest[0]} does not run along the blocks once")
        return [kind, (inside[0] if inside else "") + rest[0], rest[1]]
    if (kind == "is" and any(i[0] in block for i in rest[1:])) or (kind == "bound" and rest[1] == sort):
        raise Rejected("a state in which the order, or the largest, of what is split matters")
    return [kind, *[joined(x, arrays, sort, block) if isinstance(x, list) else x for x in rest]]


def _over(prefix: str, name: str, sort: str, body: object, arrays: set[str], block: Mapping[str, str]) -> Any:
    """Σ over one of the two blocks."""
    own = prefix + name
    return ["total", own, prefix + sort, joined(_named(body, name, own), arrays, sort, {**block, own: prefix})]


def _named(data: Any, old: str, new: str) -> Any:
    """An expression with another name for an index; letters and sorts may have the same name as it."""
    if not isinstance(data, list) or not data:
        return data
    kind, *rest = data
    if kind in ("letter", "is"):
        head, *indices = rest if kind == "is" else (rest[0], *rest[1])
        named = [[new if i[0] == old else i[0], *i[1:]] for i in indices]
        return [kind, head, *named] if kind == "is" else [kind, head, named]
    if kind in ("total", "bound") and rest[0] == old:
        raise Rejected(f"{kind} binds {old!r}, which is bound already")
    return [kind, *[_named(x, old, new) if isinstance(x, list) else x for x in rest]]


def _expect_no_blocks(data: object, own: set[str]) -> None:
    """A merge sees the states alone, not the blocks."""
    if isinstance(data, list) and data:
        if data[0] == "letter" and data[1] in own:
            raise Rejected("merging looks at what the states are of")
        for x in data:
            _expect_no_blocks(x, own)


def _reserved(data: object, letters: bool) -> bool:
    """Return whether a name is one of those for a block; letters are left out where they may be those of the states."""
    if isinstance(data, list):
        parts = data if letters or data[:1] != ["letter"] else data[2:]
        return any(_reserved(x, letters) for x in parts)
    return isinstance(data, str) and data.startswith((FIRST, SECOND))
