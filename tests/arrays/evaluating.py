"""Index expressions at numbers: letters replaced by the entries of exact arrays, sizes by numbers.

It knows nothing of the prover, nor of how expressions are built: what ``indexed`` says is compared with what exact
arithmetic gives.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count, product
from math import prod
from random import Random
from typing import Any

import numpy as np

from symattn import kind, kinds, proving

Exact = kind("exact")

Block = tuple[str | int, ...]
TRUTHS = ("mask", "keep")


def blocks(text: str) -> list[Block]:
    """The blocks of an axis: ``p+1`` → ("p",), (); ``h*d`` → ("h", "d")."""
    return proving.Letters().axis(text).blocks


@dataclass
class Numbers:
    """Arrays by name with their shapes in sorts, sizes, and permutations by name."""

    arrays: Mapping[str, tuple[np.ndarray, str]]
    sizes: Mapping[str, int]
    permutations: Mapping[str, list[int]] = field(default_factory=dict)
    weights: bool = False  # whether the unknown weights of a maximum's derivative are taken to be 0

    def length(self, block: Block) -> list[int]:
        return [f if isinstance(f, int) else self.sizes[f] for f in block]

    def everywhere(self, array: kinds.Indexed) -> np.ndarray:
        """All elements of an array of letters, at these numbers."""
        shape = [sum(prod(self.length(b)) for b in a.blocks) for a in array.shape]
        out = np.empty(shape, dtype=object)
        for chosen in product(*[self._places(a) for a in array.shape]):
            at: dict[kinds.Index, int] = {}
            places = []
            for block, _, values in chosen:
                entry = []
                for f, v in values:
                    index = kinds.Index(f, -1 - len(at)) if isinstance(f, str) else v
                    if isinstance(index, kinds.Index):
                        at[index] = v
                    entry.append(index)
                places.append((block, tuple(entry)))
            out[tuple(number for _, number, _ in chosen)] = self.value(array.at(tuple(places)), at)
        return out

    def _places(self, a: Any) -> Iterator[tuple[int, int, list[tuple[str | int, int]]]]:
        """Every place of an axis: its block, its number, and the factors of the block with the entries in them."""
        numbers = count()
        for b, block in enumerate(a.blocks):
            for values in np.ndindex(*self.length(block)):
                yield b, next(numbers), list(zip(block, map(int, values), strict=True))

    def value(self, x: kinds.Expression, at: Mapping[kinds.Index, int]) -> Any:
        """One exact number (an ``Exact`` without axes)."""
        if isinstance(x, kinds.Constant):
            return Exact.lift(x.value)
        if isinstance(x, kinds.Count):
            return Exact.lift(self.sizes[x.sort])
        if isinstance(x, kinds.Letter):
            return Exact.lift(self._draw_one_entry(x, at))
        if isinstance(x, kinds.Predicate):
            i, j = (self._place(side, at) for side in x.sides)
            return Exact.lift(int({"=": i == j, "≤": i <= j, "<": i < j}[x.relation]))
        if isinstance(x, kinds.Position):
            offset = sum(c * prod(self.sizes[s] for s in k) for k, c in x.offset.coefficients.items())
            return Exact.lift(offset + sum(sign * self._place(i, at) for sign, i in x.indices))
        if isinstance(x, kinds.Total):
            return sum((self.value(x.body, {**at, x.index: a}) for a in range(self.sizes[x.index.sort])), Exact.lift(0))
        if isinstance(x, kinds.Masked):
            return Exact.literal(-np.inf) if self.value(x.allowed, at).item() == 0 else self.value(x.value, at)
        return self._of_values(x, at)

    def _of_values(self, x: kinds.Expression, at: Mapping[kinds.Index, int]) -> Any:
        xp = Exact.xp
        if isinstance(x, kinds.Opaque) and x.name == "max":
            best = None
            for v in (v for y in x.children for v in self._candidates(y, at)):
                best = v if best is None else xp.maximum(best, v)
            return best
        if isinstance(x, kinds.Opaque) and x.name == "argmax" and self.weights:
            return Exact.lift(0)  # softmax does not depend on the maximum, so that any weights will do
        values = [self.value(y, at) for y in x.children]
        if isinstance(x, kinds.Sum):
            return sum(values, Exact.lift(0))
        if isinstance(x, kinds.Product):
            # A predicate that is 0 stands for a term that is not there, whatever its other factors are.
            if any(isinstance(y, kinds.Predicate) and v.item() == 0 for y, v in zip(x.children, values, strict=True)):
                return Exact.lift(0)
            return prod(values, start=Exact.lift(1))
        if isinstance(x, kinds.Ratio):
            return values[0] / values[1]
        if isinstance(x, kinds.Exponential):
            return xp.exp(values[0])
        assert isinstance(x, kinds.Opaque), x
        return 1 / xp.sqrt(values[0]) if x.name == "rsqrt" else getattr(xp, x.name)(values[0])

    def _candidates(self, x: kinds.Expression, at: Mapping[kinds.Index, int]) -> Iterator[Any]:
        if isinstance(x, kinds.BoundIndex):
            for a in range(self.sizes[x.index.sort]):
                yield from self._candidates(x.body, {**at, x.index: a})
        else:
            yield self.value(x, at)

    def _place(self, i: kinds.Index, at: Mapping[kinds.Index, int]) -> int:
        if i in at:
            return at[i]
        value = at[i._replace(image=())]
        for name in i.image:
            value = self.permutations[name][value]
        return value

    def _draw_one_entry(self, x: kinds.Letter, at: Mapping[kinds.Index, int]) -> Any:
        if x.name.startswith("position in "):
            return self._place(x.indices[0], at)
        match = re.fullmatch(r"(\w+)(?:@([\d,]*))?(?:\[([\d, ]+)\])?", x.name)
        assert match, x.name
        array, shape = self.arrays[match[1]]
        axes = [blocks(a) for a in shape.split()]
        chosen = [int(b) for b in match[2].split(",")] if match[2] else [0] * len(axes)
        fixed = iter([int(v) for v in match[3].split(",")] if match[3] else [])
        indices = iter(self._place(i, at) for i in x.indices)
        where = []
        for b, axis in zip(chosen, axes, strict=True):
            entry = [next(fixed) if isinstance(f, int) else next(indices) for f in axis[b]]
            offset = sum(prod(self.length(block)) for block in axis[:b])
            where.append(offset + (int(np.ravel_multi_index(entry, self.length(axis[b]))) if entry else 0))
        return Fraction(array[tuple(where)])


def drawn(name: str, shape: str, sizes: dict[str, int], truth: bool, seed: int) -> np.ndarray:
    """Halves, or truth values of which the first in every row is true."""
    random = Random(f"{name} {seed}")
    numbers = Numbers({}, sizes)
    lengths = [sum(int(np.prod(numbers.length(b))) for b in blocks(a)) for a in shape.split()]
    out = np.empty(lengths, dtype=object)
    for place in np.ndindex(*lengths):
        out[place] = int(place[-1] == 0 or random.random() < 0.5) if truth else Fraction(random.randint(-3, 3), 2)
    return out


def compare(run: Any, arrays: dict[str, str], sizes: dict[str, int], truths: tuple[str, ...] = TRUTHS) -> None:
    """What ``run`` gives on letters is, at numbers, what it gives on exact numbers."""
    given = {n: drawn(n, s, sizes, n in truths, 1) for n, s in arrays.items()}
    world = proving.Letters()
    letters = {n: kinds.Indexed.letters(n, *[world.axis(a) for a in s.split()]) for n, s in arrays.items()}
    exact = {n: a.astype(bool) if n in truths else Exact.lift(a) for n, a in given.items()}
    numbers = Numbers({n: (a, arrays[n]) for n, a in given.items()}, sizes)
    for formal, true in zip(results(run(**letters)), results(run(**exact)), strict=True):
        found = numbers.everywhere(formal)
        assert found.shape == true.shape
        for place in np.ndindex(found.shape):
            assert found[place].item() == true.entries[place], (place, found[place], true.entries[place])


def results(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else [x]
