"""``Tree``: the order of a sum, rebuilt from the sizes of smallest common subtrees, which ``TermSum`` counts.

A sum of n terms in floating point is a tree: its leaves are the terms, and each node adds the results of its children.
Two terms i and j meet in their smallest common subtree, of size l(i, j). The subtrees that contain a leaf i are nested,
and j is in the first of them whose size is l(i, j); so the l(i, j) of one i give all subtrees around it, and their
siblings are found in the same way.

A sum inside a user's function is probed by columns of terms. With M at term i, −M at term j and 1 at all others, M
swallows every 1 that is added before the two have met, and every other 1 survives: the result is n − l(i, j). M is so
large that M + n = M in the accumulator. A column holds at most as many ones as can be counted exactly; if more are
needed, several columns of the same pair share them.

Source: P. Xie, Y. Gao, Y. Wang, J. Xue, Revealing Floating-Point Accumulation Orders in Software/Hardware
Implementations, USENIX ATC 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

Pair = tuple[int, int]
_MANY = 8  # leaves; if one of more than these is added alone, test whether all are added at once
Sizes = Callable[[Sequence[Pair]], Sequence[int]]


class NoTree(Exception):
    """Raised if no order of addition explains the outputs; the message says why."""


@dataclass(frozen=True)
class Tree:
    """The order in which n terms are added.

    The leaves are 0 to n − 1; ``nodes[k]``, which is named n + k, adds its two or more children at once. Children come
    before their parents.

    >>> Tree.of(3, [{0, 1}, {0, 1, 2}]).nodes
    ((0, 1), (3, 2))
    """

    n: int
    nodes: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(n: int, subtrees: Iterable[Iterable[int]]) -> Tree:
        """Return the tree with these subtrees, any two of which are nested or disjoint, in a canonical order."""
        top, nodes = list(range(n)), []
        for leaves in sorted(map(sorted, subtrees), key=lambda result: (len(result), result)):
            nodes.append(tuple(dict.fromkeys(top[leaf] for leaf in leaves)))
            for leaf in leaves:
                top[leaf] = n + len(nodes) - 1
        return Tree(n, tuple(nodes))

    @cached_property
    def subtrees(self) -> tuple[frozenset[int], ...]:
        """The leaves below each node."""
        result: list[frozenset[int]] = [frozenset((leaf,)) for leaf in range(self.n)]
        for children in self.nodes:
            result.append(frozenset().union(*(result[c] for c in children)))
        return tuple(result[self.n :])

    @cached_property
    def known(self) -> frozenset[frozenset[int]]:
        """The subtrees as a set, with single leaves."""
        return frozenset((*self.subtrees, *(frozenset((leaf,)) for leaf in range(self.n))))

    def node(self, leaves: frozenset[int]) -> int:
        """Return the leaf or node over exactly these leaves."""
        return min(leaves) if len(leaves) == 1 else self.n + self.subtrees.index(leaves)

    def common(self, i: int, j: int) -> frozenset[int]:
        """Return the leaves of the smallest subtree that contains both."""
        return self.subtrees[int(self._index_common_subtrees[i, j])]

    @cached_property
    def _index_common_subtrees(self) -> np.ndarray:
        """For each pair the index of the smallest subtree that contains both."""
        values = np.zeros((self.n, self.n), dtype=int)
        for k in range(len(self.nodes) - 1, -1, -1):  # parents first
            leaves = list(self.subtrees[k])
            values[np.ix_(leaves, leaves)] = k
        return values

    def within(self, leaves: Sequence[int]) -> Tree:
        """Return the subtree over these leaves, renumbered in their order."""
        place = {leaf: k for k, leaf in enumerate(leaves)}
        inner = (result for result in self.subtrees if result <= place.keys())
        return Tree.of(len(leaves), ([place[leaf] for leaf in result] for result in inner))

    def over(self, parts: Sequence[Sequence[int]]) -> Tree:
        """Return the tree by which the results of these parts, subtrees that make up the whole, are added."""
        outer = (
            result for result in self.subtrees if not any(result <= set(part) for part in parts)
        )
        return Tree.of(
            len(parts),
            ([k for k, part in enumerate(parts) if part[0] in result] for result in outer),
        )


def rebuilt(n: int, sizes: Sizes) -> Tree:
    """Return the tree of n terms from the sizes l(i, j) of smallest common subtrees, requested in few rounds.

    Raises ``NoTree`` if no tree has these sizes.
    """
    result: list[frozenset[int]] = []
    # leaves of sibling subtrees, and the size of their common parent
    open_ = [(list(range(n)), n + 1)]
    last, doubted = False, set[Pair]()
    while open_:
        pivots = [leaves[-1 if last else 0] for leaves, _ in open_]
        pairs = [
            (p, j) for p, (leaves, _) in zip(pivots, open_, strict=True) for j in leaves if j != p
        ]
        size = dict(zip(pairs, sizes(pairs), strict=True))
        maybe: list[tuple[list[int], int]] = []
        # the first and the last leaf in turn: loops run either way
        current, open_, last = (open_, [], not last)
        for p, (leaves, outer) in zip(pivots, current, strict=True):
            subtrees, siblings = _find_subtrees_around_leaf(
                p, {j: size[p, j] for j in leaves if j != p}, outer
            )
            result += subtrees
            open_ += [(rest, of) for rest, of in siblings if len(rest) > 1]
            # A leaf with many siblings and no subtree: perhaps all of them are added at once.
            lone = [(rest, of) for rest, of in siblings if not subtrees and len(rest) > _MANY]
            maybe += [(rest, of) for rest, of in lone if (rest[0], of) not in doubted]
        once = _at_once(maybe, sizes)
        open_ = [entry for entry in open_ if entry not in once]
        doubted |= {(leaf, of) for rest, of in maybe for leaf in rest}  # to test each only once
    return Tree.of(n, result)


def _at_once(maybe: list[tuple[list[int], int]], sizes: Sizes) -> list[tuple[list[int], int]]:
    """Return those of the sets of leaves that are added at once.

    Tested are pairs whose distance is a power of two, which would show loops, tiles and lanes; later the tree must
    explain random pairs.
    """
    pairs = [_list_power_of_two_pairs(leaves) for leaves, _ in maybe]
    result = iter(sizes([pair for of_set in pairs for pair in of_set]) if pairs else ())
    met = [[next(result) for _ in of_set] for of_set in pairs]
    return [entry for entry, got in zip(maybe, met, strict=True) if set(got) == {entry[1]}]


def _list_power_of_two_pairs(leaves: list[int]) -> list[tuple[int, int]]:
    """Return the pairs of leaves whose places are a power of two apart."""
    result: list[tuple[int, int]] = []
    for k in range(len(leaves).bit_length()):
        later = leaves[2**k :]
        result += zip(leaves, later, strict=False)
    return result


def _find_subtrees_around_leaf(
    p: int, sizes: dict[int, int], outer: int
) -> tuple[list[frozenset[int]], list[tuple[list[int], int]]]:
    """Return the subtrees that contain p below one of size ``outer``, and the sibling leaves added to get each size."""
    inside, subtrees, siblings = [p], [], []
    for size in sorted(set(sizes.values())):
        rest = [j for j in sizes if sizes[j] == size]
        siblings.append((rest, size))
        if size == outer:
            continue
        inside += rest
        # All leaves that meet p up to this size must fill a subtree of that size.
        if len(inside) != size:
            raise NoTree("no order of adding loses what this sum loses")
        subtrees.append(frozenset(inside))
    return subtrees, siblings


Array = np.ndarray
CALLS = 96  # limit for one tree
_NEAR = 0.25  # tolerance of a count, which must be a whole number
_CHECKED = 128  # random pairs that a tree must explain
# A fixed seed, so that a function gets the same tree in every run.
_SEED = 11


@dataclass(frozen=True)
class TermNumbers:
    """The numbers that terms consist of: M, the unit ``one``, and how many units may be ``alive`` in a column.

    ``weight`` is the factor by which the function multiplies each term; ``exact`` means that it is a power of two, so
    that the product is not rounded.
    """

    large: float
    one: float
    alive: int
    weight: float = 1.0

    @property
    def exact(self) -> bool:
        """Return whether the weight is a power of two."""
        return float(np.frexp(self.weight)[0]) == 0.5

    @staticmethod
    def of(format: str, n: int, weight: float = 1.0) -> TermNumbers:
        """Return the numbers of a format, for n terms.

        In float16, M = 2¹⁵ and sums of ones stay below 2⁻²⁵ M, so that float32 loses them; wider accumulators
        lose nothing there.
        """
        exact = TermNumbers(1.0, 1.0, 1, weight).exact
        if format == "float16":
            one = 2.0 ** min(-14, int(np.ceil(np.log2(1 / weight))) - (24 if exact else 21))
            return TermNumbers(
                2.0**15, one, max(1, min(2048 if exact else 32, int(2.0**-10 / one))), weight
            )
        # Even an accumulator in float64 loses a unit beside 2¹⁰⁰.
        large = 2.0**500 if format == "float64" else 2.0**100
        # bfloat16 counts exactly up to 256 only.
        return TermNumbers(
            large, 1.0, (256 if exact else 32) if format == "bfloat16" else n, weight
        )


@dataclass
class TermSum:
    """A sum of n terms inside a function.

    ``call`` takes terms (n, columns) and returns the sums, each times ``numbers.weight``, or raises ``NoTree``; the
    number of columns is fixed, since another number may be added in another order. ``calls`` counts the calls.
    ``first`` is the index of the first term, if those before it are masked.
    """

    n: int
    columns: int
    numbers: TermNumbers
    call: Callable[[Array], Array]
    calls: int = 0
    first: int = 0
    _ones: list[Array] = field(init=False)

    def __post_init__(self) -> None:
        groups = np.array_split(np.arange(self.n), -(-self.n // self.numbers.alive))
        self._ones = [np.isin(np.arange(self.n), group) for group in groups]

    def sums(self, terms: Array) -> Array:
        """Return the sums of the columns, in units of a term. Raises ``NoTree``."""
        count = terms.shape[1]
        # The number of columns is fixed, so that columns of zeros fill the last call.
        full = np.pad(terms, ((0, 0), (0, -count % self.columns)))
        result = []
        for start in range(0, count, self.columns):
            if self.calls >= CALLS:
                raise NoTree(f"{CALLS} calls do not tell its order")
            self.calls += 1
            result.append(self.call(full[:, start : start + self.columns]))
        return np.concatenate(result)[:count] / self.numbers.weight if result else np.zeros(0)

    def terms(self, i: int, j: int, alive: Array) -> Array:
        """Return a column: M at i, −M at j, and 1 at the others that are alive."""
        column = np.where(alive, self.numbers.one, 0.0)
        column[i], column[j] = self.numbers.large, -self.numbers.large
        return column

    def counts(self, columns: Sequence[Array]) -> list[int]:
        """Return how many ones survive in each column. Raises ``NoTree`` if a sum is no count of ones."""
        values = self.sums(np.stack(columns, axis=1)) / self.numbers.one
        if not np.isfinite(values).all():
            raise NoTree("large terms that cancel give NaN or infinity")
        whole = np.rint(values)
        if (np.abs(values - whole) > _NEAR).any() or (whole < 0).any():
            raise NoTree("the remainder after large terms cancel is not a count of ones")
        return [int(x) for x in whole]

    def sizes(self, pairs: Sequence[Pair]) -> list[int]:
        """Return l(i, j) of each pair."""
        counts = self.counts([self.terms(i, j, alive) for i, j in pairs for alive in self._ones])
        per_pair = len(self._ones)
        starts = range(0, len(counts), per_pair)
        return [self.n - sum(counts[k : k + per_pair]) for k in starts]

    def tree(self) -> Tree:
        """Return the order of the sum, checked on further random pairs. Raises ``NoTree``."""
        # Without large terms, every unit must survive.
        alone = self.counts([np.where(alive, self.numbers.one, 0.0) for alive in self._ones])
        if alone != [int(alive.sum()) for alive in self._ones]:
            raise NoTree("equal terms do not add up to their number")
        result = rebuilt(self.n, self.sizes)
        if not self.explains(result):
            raise NoTree("further pairs of terms contradict every order")
        return result

    def explains(self, tree: Tree) -> bool:
        """Return whether a tree predicts the counts for random pairs, with other terms alive. Raises ``NoTree``."""
        rng = np.random.default_rng(_SEED)
        drawn = [self._draw_term_pair(rng) for _ in range(_CHECKED)]
        predicted = []
        for i, j, alive in drawn:
            lost = alive[list(tree.common(i, j))]
            predicted.append(int(alive.sum() - lost.sum()))
        return self.counts([self.terms(*d) for d in drawn]) == predicted

    def _draw_term_pair(self, rng: np.random.Generator) -> tuple[int, int, Array]:
        """Draw a pair, and some of the others, no more than may be alive."""
        i, j = rng.choice(self.n, 2, replace=False)
        alive = np.zeros(self.n, dtype=bool)
        alive[rng.choice(self.n, min(self.numbers.alive, self.n // 2), replace=False)] = True
        alive[[i, j]] = False
        return int(i), int(j), alive
