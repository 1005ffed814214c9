"""Buckets of distances: one for each small distance, and then wider and wider ones, by logarithms.

Where a bucket starts is decided by whole numbers, not by rounded logarithms: ⌊c log(a/m) / log(D/m)⌋ ≥ t is the same as
a^c ≥ D^t m^(c−t). A distance is in the bucket whose number is how many buckets have started up to it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import integer_root
from symattn.document.errors import InputError


@cache
def t5_starts(buckets: int, max_distance: int) -> tuple[int, ...]:
    """Where the buckets 1, 2, …, b − 1 of distances start.

    With m = ⌊b/2⌋ the distance a is in the bucket a if a < m, else in m + ⌊(b − m) log(a/m) / log(D/m)⌋, at most b − 1.
    Raises InputError unless b ≥ 2 and D > m. Source: Raffel et al., T5 (2020), §2.1; the formula: mesh-tensorflow.
    """
    m, d = buckets // 2, max_distance
    if buckets < 2 or d <= m:
        raise InputError(f"{buckets} buckets up to the distance {d}: there must be two or more, and {d} above {m}")
    c = buckets - m
    return (*range(1, m), *(_ceil_root(d**t * m ** (c - t), c) for t in range(c)))


@cache
def deberta_starts(buckets: int, max_distance: int) -> tuple[int, ...]:
    """Where the buckets 1, 2, …, b of distances start.

    With m = ⌊b/2⌋ the distance a is in the bucket a if a ≤ m, else in m + ⌈(m − 1) log(a/m) / log((D − 1)/m)⌉, here at
    most b. Raises InputError unless b ≥ 4 and D > m + 1. Source: He et al., DeBERTa (2021), its code for version 2.
    """
    m, d = buckets // 2, max_distance - 1
    if buckets < 4 or d <= m:
        raise InputError(f"{buckets} buckets up to {d + 1}: there must be four or more, and {d} above {m}")
    c = m - 1
    ends = (integer_root(d**t * m ** (c - t) if t <= c else d**t // m ** (t - c), c) for t in range(buckets - m))
    return (*range(1, m + 1), *(end + 1 for end in ends))


def _ceil_root(x: int, n: int) -> int:
    root = integer_root(x, n)
    return root if root**n == x else root + 1


def bucket(distance: Any, starts: tuple[int, ...]) -> Array:
    """How many buckets have started up to each distance a ≥ 0."""
    xp = namespace_of(distance)
    begun = distance[..., None] >= xp.asarray(starts, dtype=xp.int64)
    return xp.sum(xp.astype(begun, xp.int64), axis=-1)


def t5_bucket(ahead: Any, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> Array:
    """The bucket of each j − i. ``bidirectional``: half of the buckets for keys ahead, at b/2; else those are in 0.

    Raises InputError for an odd number of buckets in two directions. Source: Raffel et al., T5 (2020), §2.1, and code.
    """
    xp = namespace_of(ahead)
    if not bidirectional:
        return bucket(xp.where(ahead < 0, -ahead, 0), t5_starts(buckets, max_distance))
    if buckets % 2:
        raise InputError(f"the number of buckets must be even for two directions, got {buckets}")
    half = buckets // 2
    side = xp.astype(ahead > 0, xp.int64) * half
    return side + bucket(xp.abs(ahead), t5_starts(half, max_distance))


def deberta_bucket(behind: Any, buckets: int, max_distance: int) -> Array:
    """The bucket of each i − j, with its sign: between −b and b. Source: He et al. (2021), its code for version 2."""
    xp = namespace_of(behind)
    size = bucket(xp.abs(behind), deberta_starts(buckets, max_distance))
    return xp.where(behind < 0, -size, size)
