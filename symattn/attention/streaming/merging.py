"""Orders in which partial results over keys are merged: split keys, trees, rings. All give the same.

What is merged are states or partial outputs of ``streaming``, by ``merge`` or ``merge_partial``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, TypeVar

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.streaming.states import Partial, State, finish, merge, partial_output, tile_state
from symattn.document.errors import InputError

Part = TypeVar("Part", State, Partial)


def tree(parts: Sequence[Part], join: Callable[[Part, Part], Part]) -> Part:
    """((1 2)(3 4))((5 6) 7): neighbours are merged, then what came of them, until one is left.

    Raises InputError for no parts. Source: the reduction of Flash-Decoding (Dao et al., 2023), as a binary tree.
    """
    if not parts:
        raise InputError("nothing to merge: there are no tiles of keys")
    level = list(parts)
    while len(level) > 1:
        odd = level[len(level) // 2 * 2 :]
        level = [join(a, b) for a, b in zip(level[::2], level[1::2], strict=False)] + odd
    return level[0]


def split_keys(s: Array, v: Array, bounds: Iterable[Any]) -> Partial:
    """softmax(S) V and its log-sum-exp by splits of the keys between consecutive ``bounds`` (0, …, n_k).

    Each split gives its own output and log-sum-exp, independent of the others; ``join_splits`` makes them one.
    Shapes: s (…, n_q, n_k), v (…, n_k, d_v). Source: Dao et al., Flash-Decoding for long-context inference (2023).
    """
    return join_splits([partial_output(s[..., lo:hi], v[..., lo:hi, :]) for lo, hi in pairwise(bounds)])


def join_splits(parts: Sequence[Partial]) -> Partial:
    """o = Σ_b e^{L_b − L} o_b with L = log Σ_b e^{L_b}: attention over the splits, with scores L_b and values o_b.

    Shapes: of each part, output (…, n_q, d_v) and lse (…, n_q, 1). Source: Dao et al., Flash-Decoding (2023).
    """
    xp = namespace_of(parts[0].lse)
    scores = xp.stack([p.lse for p in parts], axis=-1)
    values = xp.stack([p.output for p in parts], axis=-2)
    whole = partial_output(scores, values)
    return Partial(whole.output[..., 0, :], whole.lse[..., 0])


def ring_order(place: int, places: int) -> list[int]:
    """Whose keys the machine at ``place`` of a ring has at each step: its own, its neighbour's, … (place − t) mod p.

    Source: Liu, Zaharia, Abbeel, Ring Attention with Blockwise Transformers for Near-Infinite Context (2023), §3.
    """
    return [(place - step) % places for step in range(places)]


def ring(at: Callable[[slice, slice], Any], v: Array, rows: Sequence[Any], keys: Sequence[Any]) -> Array:
    """softmax(S) V by a ring of machines: each keeps its queries, and keys and values go round.

    ``at(rows, keys)`` gives the scores of a tile; machine r holds the queries between ``rows[r]`` and ``rows[r + 1]``
    and at first the keys between ``keys[r]`` and ``keys[r + 1]``. A fully masked row gives zeros. Shapes: v
    (…, n_k, d_v) → (…, n_q, d_v). Raises InputError unless there are as many tiles of queries as of keys.
    Source: Liu, Zaharia, Abbeel (2023), algorithm 1.
    """
    if len(rows) != len(keys):
        raise InputError(f"a ring has one tile of keys for each of queries: {len(rows) - 1} and {len(keys) - 1} given")
    mine, theirs = [[slice(*pair) for pair in pairwise(bounds)] for bounds in (rows, keys)]

    def output(place: int) -> Any:
        held = [theirs[r] for r in ring_order(place, len(theirs))]
        return finish(reduce(merge, [tile_state(at(mine[place], c), v[..., c, :]) for c in held]), "zeros")

    return namespace_of(v).concat([output(r) for r in range(len(mine))], axis=-2)
