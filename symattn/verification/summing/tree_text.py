"""A tree as a line of text: ``(0+1+…+31)+(32+33+…+63)``; what stands first is added first."""

from __future__ import annotations

from symattn.verification.summing.reading import parts_of, read
from symattn.verification.summing.tree import Tree

_RUN = 4  # terms in a row that are all written
_LINES = 12
_NAMED = {"pairs": "pairs", "halves": "halves", "once": "at once"}


def written(tree: Tree) -> list[str]:
    """The sum, each part of its outermost loop on a line of its own; of many parts the first and the last ones."""
    parts = _parts(tree, tree.n + len(tree.nodes) - 1)
    if len(parts) == 1:
        return parts
    lines = [f"  {parts[0]}", *(f"+ {part}" for part in parts[1:])]
    return lines if len(lines) <= _LINES else [*lines[: _LINES - 2], "+ …", lines[-1]]


def _parts(tree: Tree, node: int) -> list[str]:
    """Return the terms that are added one after the other to get a node."""
    leaves = sorted(tree.subtrees[node - tree.n])
    reading = read(tree.within(leaves))
    if reading.way in _NAMED and len(leaves) > 2:
        return [f"{_NAMED[reading.way]}({', '.join(_shortened([*map(str, leaves)]))})"]
    if reading.merge:
        nodes = [tree.node(frozenset(leaves[k] for k in part)) for part in parts_of(reading)]
        sums = [f"({'+'.join(_parts(tree, part))})" if part >= tree.n else str(part) for part in nodes]
        if reading.merge.way in _NAMED:
            return [f"{_NAMED[reading.merge.way]}({', '.join(_shortened(sums))})"]
        return sums[:: 1 if reading.merge.way == "order" else -1]
    result: list[str] = []
    run: list[int] = []
    for added in _spine(tree, node):
        if len(added) == 1 and added[0] < tree.n:
            run.append(added[0])
        else:
            result, run = [*result, *_joined(run), _inner(tree, added)], []
    return result + _joined(run)


def _inner(tree: Tree, added: tuple[int, ...]) -> str:
    """Write the terms added in one step in brackets; several at once in square ones."""
    if len(added) > 1:
        return "[" + ", ".join(str(a) if a < tree.n else "+".join(_parts(tree, a)) for a in added) + "]"
    return "(" + "+".join(_parts(tree, added[0])) + ")"


def _spine(tree: Tree, node: int) -> list[tuple[int, ...]]:
    """The steps by which the largest part grows to a node: what begins, then what is added in each step."""
    steps: list[tuple[int, ...]] = []
    while node >= tree.n:
        children = tree.nodes[node - tree.n]
        first = max(children, key=lambda c: 1 if c < tree.n else len(tree.subtrees[c - tree.n]))
        steps.append(tuple(c for c in children if c != first))
        node = first
    steps.append((node,))
    if len(steps) > 2 and len(steps[-3]) == 1 == len(steps[-2]) and steps[-2][0] < tree.n:
        begin, other, third = node, steps[-2][0], steps[-3][0]
        if abs(third - begin) < abs(third - other):  # of two that begin, the one farther from the third stands first
            steps[-2:] = [(begin,), (other,)]
    return steps[::-1]


def _shortened(items: list[str]) -> list[str]:
    """Shorten many items to the first two and the last."""
    return [*items[:2], "…", items[-1]] if len(items) > _RUN else items


def _joined(terms: list[int]) -> list[str]:
    """The sum of terms, the middle of those at an even distance left out; nothing where there are none."""
    result: list[str] = []
    start = 0
    while start < len(terms):
        end = start + 1
        while end + 1 < len(terms) and terms[end + 1] - terms[end] == terms[start + 1] - terms[start]:
            end += 1
        run = terms[start : end + 1]
        result += _shortened([*map(str, run)])
        start += len(run)
    return ["+".join(result)] if result else []
