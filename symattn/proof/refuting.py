"""Refuting a statement: both sides are run on exact numbers at growing sizes until they differ."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from symattn.errors import InputError, Refused, Undecided
from symattn.proof.statement import Declared, Numbers, Sides, growing_sizes, pairs

TRIES = 400  # sizes looked at, the small ones first


@dataclass(frozen=True)
class Counterexample:
    """Sizes and a seed at which the two sides differ, where, and their exact values there."""

    sizes: dict[str, int]
    seed: int
    place: tuple[int, ...]
    left: str
    right: str

    def __str__(self) -> str:
        sizes = ", ".join(f"{sort} = {n}" for sort, n in self.sizes.items())
        return f"{sizes}: {self.left} and {self.right} at {list(self.place)} (seed {self.seed})"


@dataclass(frozen=True)
class Search:
    """What a search for counterexamples found: one, or at how many inputs both sides were equal."""

    counterexample: Counterexample | None
    agreed: int
    undefined: int
    largest: dict[str, int]


def search(sides: Sides, declared: Declared, top: int = 3, seeds: int = 2, tries: int = TRIES) -> Search:
    """Run both sides on exact numbers at sizes 1, …, ``top``; the first difference is a counterexample."""
    agreed = undefined = 0
    largest: dict[str, int] = {}
    for sizes in islice(growing_sizes(declared.sorts(), top), tries):
        for seed in range(seeds):
            found, defined = _differs(sides, declared, sizes, seed)
            if found:
                return Search(found, agreed, undefined, largest)
            agreed, undefined = agreed + defined, undefined + (not defined)
            largest = sizes if defined else largest
    return Search(None, agreed, undefined, largest)


def spot_check(sides: Sides, declared: Declared, top: int = 3, enough: int = 3) -> Search:
    """The same at a few sizes that differ from each other, until both sides were equal ``enough`` times."""
    agreed = undefined = 0
    largest: dict[str, int] = {}
    for sizes in spread_sizes(declared.sorts(), top):
        found, defined = _differs(sides, declared, sizes, seed=agreed + undefined)
        agreed, undefined = agreed + defined, undefined + (not defined)
        largest = sizes if defined else largest
        if found or agreed == enough:
            return Search(found, agreed, undefined, largest)
    return Search(None, agreed, undefined, largest)


def spread_sizes(sorts: list[str], top: int) -> list[dict[str, int]]:
    """1, 2, 1, …; 2, 1, 2, …; then with 2 and 3; then all 1, 2, 3; no size above ``top``."""
    turns = [(1, 2), (2, 1), (2, 3), (3, 2), (1, 1), (2, 2), (3, 3)]
    return [{sort: min(turn[i % 2], top) for i, sort in enumerate(sorts)} for turn in turns]


def _differs(sides: Sides, declared: Declared, sizes: dict[str, int], seed: int) -> tuple[Counterexample | None, bool]:
    """A difference at these numbers, and whether both sides were defined and could be compared there."""
    try:
        for left, right in pairs(sides, declared, Numbers(sizes, seed)):
            a, b = np.broadcast_arrays(_entries(left), _entries(right))
            if not a.size:
                return None, False
            for place in np.ndindex(a.shape):
                if not _comparable(a[place], b[place]):
                    return None, False
                if a[place] != b[place]:
                    return Counterexample(sizes, seed, place, str(a[place]), str(b[place])), True
    except (Refused, Undecided, InputError, ZeroDivisionError):
        return None, False
    return None, True


def _entries(x: Any) -> np.ndarray:
    from symattn.arrays.exact import Exact

    return Exact.of(x).entries


def _comparable(a: Any, b: Any) -> bool:
    from symattn.arrays.special import Forbidden, Undefined

    return not any(isinstance(x, (Undefined, Forbidden)) for x in (a, b))
