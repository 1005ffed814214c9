"""Sums of known order: each adds a list of terms, whatever these are; on leaves it writes down its own tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from symattn.verification.summing.tree import Tree

Adding = Callable[[Sequence[Any]], Any]


def loop(terms: Sequence[Any]) -> Any:
    return reduce(add, terms)


def back(terms: Sequence[Any]) -> Any:
    return reduce(add, terms[::-1])


def pairs(terms: Sequence[Any]) -> Any:
    while len(terms) > 1:
        terms = [add(*terms[i : i + 2]) if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
    return terms[0]


def halves(terms: Sequence[Any]) -> Any:
    while len(terms) > 1:
        m = (len(terms) + 1) // 2
        terms = [a + b for a, b in zip(terms[:m], terms[m:], strict=False)] + list(terms[len(terms) - m : m])
    return terms[0]


def tiles(size: int, inner: Adding = loop, merge: Adding = loop) -> Adding:
    return lambda terms: merge([inner(terms[i : i + size]) for i in range(0, len(terms), size)])


def lanes(count: int, inner: Adding = loop, merge: Adding = loop) -> Adding:
    return lambda terms: merge([inner(terms[i::count]) for i in range(count)])


def split(count: int, inner: Adding = loop, merge: Adding = loop) -> Adding:
    return lambda terms: tiles(-(-len(terms) // count), inner, merge)(terms)


ORDERS: dict[str, Adding] = {
    "loop": loop, "back": back, "pairs": pairs, "halves": halves, "tiles of 16": tiles(16), "tiles of 32": tiles(32),
    "tiles of 64": tiles(64), "2 lanes": lanes(2), "4 lanes": lanes(4), "8 lanes": lanes(8),
    "8 lanes in pairs": lanes(8, loop, pairs), "tiles of 32 in 2 lanes": tiles(32, lanes(2)),
    "tiles of 32 back": tiles(32, loop, back), "tiles of 32 of a loop back": tiles(32, back),
    "split in 2": split(2, tiles(16)), "split in 4": split(4, tiles(16)), "split in 4, in pairs": split(4, loop, pairs),
}  # fmt: skip


@dataclass(frozen=True)
class Leaves:
    """What has been added, and every subtree on the way."""

    leaves: frozenset[int]
    met: tuple[frozenset[int], ...] = ()

    def __add__(self, other: Leaves) -> Leaves:
        both = self.leaves | other.leaves
        return Leaves(both, (*self.met, *other.met, both))


def tree_of(adding: Adding, n: int) -> Tree:
    """The tree that a sum has written down."""
    return Tree.of(n, adding([Leaves(frozenset((i,))) for i in range(n)]).met)
