"""The sums behind attention, for a block of queries, tile by tile: Σ e v, Σ e, Σ e ‖k‖, Σ e², and Σ e |v|.

e_ij ≈ 2^{(t_ij − m_i)/N}, where t are the exact scores in units of 1/N of a binary order (N = 2048): t_ij = c q_i · k_j
with c = scale · N / ln 2, or scale · N for the base 2. Statement 1 in ``radius`` bounds their error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from symattn.arrays.enclosing.bounds import U
from symattn.arrays.enclosing.exponential import MOST_STEPS, STEPS, Floats, powers
from symattn.arrays.namespace import namespace_of
from symattn.attention.enclosing.pattern import Head, Seen
from symattn.attention.spec import Attention
from symattn.document.errors import Refused

#: Queries in a block and keys in a tile: scores of one tile are two chunks of the exponential.
QUERIES, KEYS = 256, 256
#: Scores (in powers of e) that are exponentiated without a shift; beyond, the row's maximum is subtracted.
UNSHIFTED = 256.0


@dataclass(frozen=True)
class Prepared:
    """A prepared head: scaled queries, keys as columns, ``columns`` [v, 1, ‖k‖ (, |v|)], and lengths of vectors.

    ``lengths`` ‖k_j‖ and ``reach`` c L ‖q_i‖, L = ln 2 / N, are rounded up: |t_ij| L ≤ reach_i · lengths_j.
    """

    queries: Floats
    keys: Floats
    columns: Floats
    lengths: Floats
    reach: Floats
    values: Floats
    room: Floats
    seen: Seen
    sink: float | None  # in units of 1/N, off by a factor within 1 ± 3u


@dataclass(frozen=True)
class Sums:
    """Sums of a block of queries r: values (r, d_v), absolute (r, d_v) or None, others (r,); ``shifted`` if m ≠ 0.

    ``keys`` are the bounds of the keys that were read; ``empty`` marks queries that may see none and have no sink.
    """

    values: Floats
    weights: Floats
    lengths: Floats
    squares: Floats
    absolute: Floats | None
    shifted: bool
    keys: tuple[int, int]
    empty: np.ndarray


def prepare(spec: Attention, head: Head, tight: bool, before: Prepared | None = None) -> Prepared:
    """Scale the queries and join the columns, or reuse those of the head ``before`` if it has the same values."""
    n_k, width = head.v.shape
    factor = steps_factor(spec.scale, spec.base, int(head.q.shape[1]))
    queries, reach = head.q * factor, norms(head.q) * (abs(factor) * UNIT)
    sink = None if head.sink is None else head.sink * steps_factor(1, spec.base, 1)
    # Heads that share keys and values share all that depends on these alone.
    if before is not None and before.values is head.v:
        return replace(before, queries=queries, reach=reach, seen=head.seen, sink=sink)
    lengths = norms(head.k)
    columns = np.empty((n_k, width * (2 if tight else 1) + 2))
    columns[:, :width] = head.v
    columns[:, width] = 1.0
    columns[:, width + 1] = lengths
    if tight:
        np.abs(head.v, out=columns[:, width + 2 :])
    # One buffer of scores for all tiles, so that it stays in the cache.
    keys, room = np.ascontiguousarray(head.k).T, np.empty(QUERIES * KEYS)
    return Prepared(queries, keys, columns, lengths, reach, head.v, room, head.seen, sink)


#: L = ln 2 / N, rounded up.
UNIT = 3.3846e-4


def norms(x: Floats) -> Floats:
    """‖x_i‖, rounded up: sums of squares are off by a factor within 1 ± d u, and by 2⁻¹⁰⁷⁵ for each that underflows."""
    xp = namespace_of(x)
    lengths: Floats = xp.sqrt(xp.vecdot(x, x)) + x.shape[-1] * 2.0**-536
    return lengths * (1 + 2.0**-20)


# The factor takes balls, and each head needs the same one.
@lru_cache(maxsize=64)
def steps_factor(scale: Any, base: int | None, width: int) -> float:
    """c = scale · N / ln 2 (scale · N for the base 2), off by a factor within 1 ± 2u. None is 1/√d_k, a real number."""
    import flint

    from symattn.arrays.ball import precision

    with precision(200):
        real = (
            1 / flint.arb(width).sqrt()
            if scale is None
            else flint.arb(1) / width
            if scale == "1/d_k"
            else None
        )
        if real is None:
            exact = Fraction(scale)
            real = flint.arb(flint.fmpq(exact.numerator, exact.denominator))
        real *= STEPS if base == 2 else STEPS / flint.arb(2).log()
        factor = float(real.mid())
        # A subnormal or infinite factor breaks the relative error on which the sums rely.
        if real != 0 and not abs(real - factor) <= 2 * U * abs(real):
            raise Refused(f"enclose: the scale {scale} is too large or too small for float64")
        return factor


def sums(head: Prepared, rows: slice) -> Sums:
    """Return the sums for a block of at most ``QUERIES`` queries."""
    pattern, count = head.seen, rows.stop - rows.start
    keys = pattern.span(rows.start, rows.stop) if pattern.masked else (0, pattern.n_k)
    largest = head.reach[rows].max() * head.lengths[keys[0] : keys[1]].max(initial=0.0)
    # Cauchy and Schwarz bound all scores of the block before any is computed.
    shifted = not (largest <= UNSHIFTED and abs(head.sink or 0.0) * UNIT <= UNSHIFTED)
    shift = _largest_score_per_query(head, rows, keys) if shifted else None
    total, squares = np.zeros((count, head.columns.shape[1])), np.zeros(count)
    empty = np.full(count, head.sink is None)
    for tile, e in _yield_score_tiles(head, rows, keys):
        allowed = pattern.tile(rows, tile) if pattern.masked else None
        empty &= False if allowed is None else ~allowed.any(axis=1)
        _replace_scores_by_powers(e, allowed, shift)
        total += e @ head.columns[tile]
        squares += np.vecdot(e, e)
    d = int(head.values.shape[1])
    weights = total[:, d]
    # The sink is one more key, with its power in the sums and no value.
    if head.sink is not None:
        e = np.full((count, 1), head.sink)
        _replace_scores_by_powers(e, None, shift)
        own = e[:, 0]
        weights, squares = weights + own, squares + own * own
    absolute = total[:, d + 2 :] if total.shape[1] > d + 2 else None
    return Sums(total[:, :d], weights, total[:, d + 1], squares, absolute, shifted, keys, empty)


def _yield_score_tiles(
    head: Prepared, rows: slice, keys: tuple[int, int]
) -> Iterator[tuple[slice, Floats]]:
    """Yield the scores of a block of queries for each tile of keys, in one buffer."""
    count, queries = rows.stop - rows.start, head.queries[rows]
    for low in range(keys[0], keys[1], KEYS):
        tile = slice(low, min(low + KEYS, keys[1]))
        scores = head.room[: count * (tile.stop - low)].reshape(count, tile.stop - low)
        np.matmul(queries, head.keys[:, tile], out=scores)
        yield tile, scores


def _largest_score_per_query(head: Prepared, rows: slice, keys: tuple[int, int]) -> Floats:
    """Return the largest score that each query sees, including the sink's; 0 if there is none."""
    values = np.full(rows.stop - rows.start, -np.inf if head.sink is None else head.sink)
    pattern = head.seen
    for tile, scores in _yield_score_tiles(head, rows, keys):
        allowed = pattern.tile(rows, tile) if pattern.masked else None
        if allowed is not None:
            np.copyto(scores, -np.inf, where=~allowed)
        np.maximum(values, scores.max(axis=1), out=values)
    # A row without keys has no largest score; any shift serves it.
    return np.where(np.isneginf(values), 0.0, values)


def _replace_scores_by_powers(e: Floats, allowed: np.ndarray | None, shift: Floats | None) -> None:
    """Replace scores by e, or 0 if a key is not allowed or more than 1000 binary orders below the shift."""
    # Forbidden scores are exponentiated like all others and set to 0 afterwards.
    lost = None if allowed is None else ~allowed
    if shift is not None:
        e -= shift[:, None]
        low = e < -MOST_STEPS
        # ``powers`` takes no smaller argument.
        np.maximum(e, -MOST_STEPS, out=e)
        lost = low if lost is None else lost | low
    powers(e)
    if lost is not None:
        np.copyto(e, 0.0, where=lost)
