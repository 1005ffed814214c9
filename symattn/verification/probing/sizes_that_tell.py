"""Probes by size: lengths at and astride those of tiles, wide heads, lengths astride a window, far positions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from symattn.bounds.inputs import CELLS, Array, Maker, Sizes
from symattn.verification.probing.probes import Named, small

_TILES = ((16, 16), (3, 48), (33, 64), (64, 64), (5, 128), (64, 33), (32, 32), (2, 127), (2, 192))
_LONG = (
    (128, 128), (3, 256), (2, 255), (2, 257), (65, 130), (2, 200), (2, 300), (2, 512), (2, 513), (1, 511), (256, 256),
)  # fmt: skip
#: n_k and d_k: numbers of places that half types cannot tell from the next, beyond 256 and 2048, among them.
_PLACES = (
    (9, 6), (20, 8), (21, 16), (40, 64), (130, 8), (257, 4), (300, 8), (600, 8), (1024, 4), (2100, 4), (4200, 2),
)  # fmt: skip
_EDGES = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_FAR = 256.0  # below the largest score: in float32 and bfloat16 exponentials vanish there, with all roundings
_UNIT = 64.0  # such distances are multiples of it, and so exact in half precision
_ASTRIDE = (33, 48, 127, 128)  # n_k on and off multiples of the lengths of tiles, and beyond other limits
_LONG_ASTRIDE = (201, 208, 224, 256, 257, 320, 501, 512, 513, 1001, 1024, 1025, 1088)
_WIDTHS = ((16, 4), (32, 8), (63, 3), (64, 64), (128, 2), (4, 65), (8, 128), (130, 3), (96, 16))


def tiles(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Lengths at and astride multiples of 16, 32, 64 and 128, as queries and as keys."""
    yield from _lengths(_TILES, maker, rng)
    yield from _edges(_ASTRIDE, maker, rng)


def long(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield cases of 128 and more keys, with as many queries."""
    yield from _edges(_LONG_ASTRIDE, maker, rng)
    yield from _lengths(_LONG, maker, rng)


def _edges(lengths: Iterable[int], maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    for n in (n for n in lengths if n <= maker.domain.max_tokens):
        yield f"one or two keys of {n} take all", edges(maker, n, rng)


def _lengths(pairs: Iterable[tuple[int, int]], maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    if maker.square:
        pairs = dict.fromkeys((n, n) for _, n in pairs if n in (16, 32, 48, 64, 128, 130, 256))
    for n_q, n_k in pairs:
        if max(n_q, n_k) <= maker.domain.max_tokens and n_q * n_k * maker.spec.heads <= CELLS:
            yield f"{n_q} × {n_k}", maker.make(Sizes(n_q, n_k, 4, 2, 5), small(rng), rng)


def edges(maker: Maker, n: int, rng: np.random.Generator) -> dict[str, Array] | None:
    """Queries that each give all of their weight to one key: the first, the last, one at random, and those at edges of
    tiles of 16 to 512; and others that give half to it and half to the one before. A key that is lost or moved is off
    by all there is, and one that is doubled by a sixth.

    The scores of these are sums of zeros, and those of others lie so far below that they vanish in any format. Their
    values are small beside those of all other keys, and signs tell them from their neighbours.
    """
    places = {j - more for t in _EDGES for j in (t, n // t * t) for more in (0, 1)}
    keys = np.array(sorted({j for j in places if 0 <= j < n} | {0, n - 1, int(rng.integers(n))}))
    room = min(len(keys), maker.domain.max_width - 1, CELLS // (2 * n * maker.spec.heads))
    if room < 2 or (maker.square and n * n * maker.spec.heads > CELLS):
        return None
    keys = keys[np.linspace(0, len(keys) - 1, room).astype(int)]
    which = np.full(n, room)  # all other keys are alike
    which[keys] = np.arange(room)
    below = _UNIT * np.ceil(_FAR / _UNIT * np.sqrt(room + 1))  # no farther: what lies far below allows more above
    signs = np.arange(room)[:, None] // (1, 2, 4) % 2
    v = np.concatenate([1.0 - 2 * signs, np.full((1, 3), 32.0)])[which]
    one = np.eye(room, room + 1)
    q = below * (np.stack((one + np.eye(room, room + 1, -1), one), axis=1).reshape(2 * room, -1) - 1)
    return maker.from_heads(q[np.arange(n) * 2 * room // n] if maker.square else q, np.eye(room + 1)[which], v)


def widths(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Few tokens in wide heads: d_k and d_v at and around 64 and 128."""
    for d_k, d_v in _WIDTHS:
        if max(d_k, d_v) <= maker.domain.max_width:
            yield f"widths {d_k}, {d_v}", maker.make(Sizes(3, 5, d_k, d_v, 7), small(rng), rng)


def windows(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Equal scores, and the weights themselves, for lengths astride those of windows, blocks and prefixes."""
    reach = {n + 1 for n in maker.spec.sides if n is not None} | {maker.spec.block, maker.spec.prefix} - {None}
    lengths = {n + more for n in reach if n for more in (-1, 0, 1, 2)} | {2 * n + 1 for n in reach if n}
    for n in sorted(n for n in lengths if 0 < n <= maker.domain.max_tokens):
        for n_q in dict.fromkeys((n, *(() if maker.square else (min(2, n),)))):
            if n_q * n * maker.spec.heads <= CELLS:
                yield f"{n_q} × {n}, the weights", maker.from_heads(np.zeros((n_q, 2)), np.zeros((n, 2)), np.eye(n))


def positions(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Far positions, and few new tokens on caches of several lengths."""
    if maker.spec.position is None:
        return
    most = maker.domain.max_tokens
    for n_k, d_k in _PLACES:
        n_q = n_k if maker.square else 2
        if n_k <= most and n_q * n_k * maker.spec.heads <= CELLS:
            yield f"{n_q} × {n_k}, far positions", maker.make(Sizes(n_q, n_k, d_k, 2, 5), small(rng), rng)
