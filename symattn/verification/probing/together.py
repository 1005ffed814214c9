"""Inputs in which queries, keys and widths are large at once, and lengths of several tiles.

A kernel has tiles of queries, of keys and of columns. What happens only in the second tile of one while there are two
of another shows only if both are long: an accumulator that is not rescaled in wide heads, a block of queries that is
computed from the first, a last tile of keys that is lost. So every run has inputs with several blocks of 128 queries,
several blocks of 128 keys, and more than 64 columns together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from symattn.arrays.formats import HALF
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Array, Entries, Maker, Sizes
from symattn.verification.probing.probes import Named, normal, small

#: As many queries as keys, fewer, more; odd numbers of both, and of keys alone.
SEVERAL_BLOCKS = (
    Sizes(300, 300, 72, 66, 80),
    Sizes(261, 391, 72, 80, 70),
    Sizes(400, 271, 66, 72, 76),
)
#: More than 512 queries and 1024 keys.
MANY_BLOCKS = Sizes(520, 1100, 72, 66, 80)
#: More than 512 queries, and so few keys that the bound on sums in half precision is narrow.
MANY_QUERIES = Sizes(520, 2, 72, 66, 80)
CELLS_TOGETHER = 1 << 23  # scores of all heads; with more the lengths are reduced
# numbers of queries and keys, of the shortest length
_MULTIPLES = ((1, 2), (2, 3), (3, 5), (5, 2), (2, 1), (3, 3))
SHORT = 8  # lengths of so many tokens vary anyway
_FAR = 256.0  # so far below the largest score, exponentials vanish in float32 and bfloat16 whatever the roundings
_UNIT = 64.0  # such distances are multiples of it, and so exact in half precision
_LEVELS = 8.0 * np.arange(-2, 3)  # of the scores of a query's keys, before they are scaled


def together(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield normal numbers at large sizes, and queries that each see few keys, which half precision bounds well."""
    roomy = replace(maker, cells=max(maker.cells, CELLS_TOGETHER))
    half = maker.precision.input.name in HALF
    one, fewer, more = (roomy.fitted(sizes) for sizes in SEVERAL_BLOCKS)
    batch = (*maker.batch_axes(1), *(1,) * maker.batches)[: maker.batches]
    yield _make_named_wide_inputs(
        roomy, replace(one, batch=batch), "normal numbers", normal(rng), rng
    )
    yield _make_named_wide_inputs(roomy, fewer, "few keys for each query", few_keys(rng), rng)
    # The limit on scores may shrink both sizes to the same one.
    if more != one:
        yield _make_named_wide_inputs(roomy, more, "normal numbers", normal(rng), rng)
    many = roomy.fitted(MANY_BLOCKS)
    if many not in (one, fewer, more):
        yield _make_named_wide_inputs(roomy, many, "normal numbers", normal(rng), rng)
        if half:
            yield _make_named_wide_inputs(
                roomy, many, "few keys for each query", few_keys(rng), rng
            )
    if half:
        # sums over hundreds of keys may be so far off that not even zeros show: many queries alone, of few keys
        # A generator of its own: later inputs are then the same in all formats.
        own = np.random.default_rng(rng.bit_generator.seed_seq.spawn(1)[0])  # type: ignore[attr-defined]
        rows = roomy.fitted(MANY_QUERIES)
        yield _make_named_wide_inputs(
            roomy, rows, "few keys, products of one column", one_column(own), own
        )


def few_keys_together(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield queries that put their weight on few keys, in several blocks: where many matter, the worst case of sums in
    half precision hides even zeros. In bfloat16 sums of more than about 100 terms hide them however small the terms."""
    roomy = replace(maker, cells=max(maker.cells, CELLS_TOGETHER))
    sizes = roomy.fitted(SEVERAL_BLOCKS[1])
    first = 0 if maker.spec.alignment == "top-left" else sizes.n_k - sizes.n_q
    yield _make_named_wide_inputs(
        roomy, sizes, "few keys for each query, its own among them", few_keys(rng, first), rng
    )


def _make_named_wide_inputs(
    maker: Maker, sizes: Sizes, words: str, entries: Entries, rng: np.random.Generator
) -> Named:
    return f"{sizes.n_q} × {sizes.n_k}, widths {sizes.d_k}, {sizes.d_v}, {words}", maker.make(
        sizes, entries, rng
    )


def few_keys(rng: np.random.Generator, first: int | None = None) -> Entries:
    """Draw queries that put their weight on the keys of one class, which lie apart; numbers other than q, k, v are
    normal.

    The classes are columns of keys, and the last column holds the level of each key. Products of a query with keys of
    other classes lie so far below that their exponentials vanish in any format. So the bound on rounding is that of a
    few keys, however many there are. If ``first``, the key at the place of the first query, is given, classes follow
    one another, and a query's own key is of its class: the one that every causal mask and every window leaves open.
    """
    others = normal(rng)
    # A random shift, so that no fixed place has the first class.
    shift = int(rng.integers(1000)) if first is not None else 0

    def entries(name: str, shape: tuple[int, ...]) -> Array:
        # Classes need two columns, and the levels one.
        if name not in ("q", "k", "v") or (name != "v" and shape[-1] < 3):
            return others(name, shape)
        if name == "v":
            return rng.integers(-8, 9, shape).astype(float)
        classes, rows = shape[-1] - 1, shape[-2]
        if first is None:
            column = rng.permuted(np.broadcast_to(np.arange(rows) % classes, shape[:-1]), axis=-1)
        else:
            place = np.arange(rows) + shift + (first if name == "q" else 0)
            column = np.broadcast_to(place % classes, shape[:-1])
        one = (column[..., None] == np.arange(classes)).astype(float)
        if name == "k":
            return np.concatenate([one, rng.choice(_LEVELS, (*shape[:-1], 1))], axis=-1)
        # Scaled by 1/√d_k, keys of other classes lie about ``_FAR`` below.
        below = _UNIT * np.ceil(_FAR / _UNIT * np.sqrt(shape[-1]))
        return np.concatenate([below * (one - 1), np.ones((*shape[:-1], 1))], axis=-1)

    return entries


def one_column(rng: np.random.Generator) -> Entries:
    """Draw queries and keys with one column that is not zero, and values far from zero; other numbers are normal.

    The bound on rounding is then that of one product, however wide the rows are, and less than the values.
    """
    others = normal(rng)

    def entries(name: str, shape: tuple[int, ...]) -> Array:
        if name == "v":
            # Values far from zero make a lost key visible beside the bound.
            return rng.integers(8, 13, shape).astype(float)
        if name not in ("q", "k"):
            return others(name, shape)
        # One column that is not zero: every product but one is exact.
        result = np.zeros(shape)
        result[..., 0] = (
            rng.choice([-1, 1], shape[:-1]) if name == "k" else rng.integers(-2, 3, shape[:-1])
        )
        return result

    return entries


def multiples(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield 1, 2, 3 and 5 times the shortest length as numbers of queries and keys, if short ones do not occur."""
    roomy = replace(maker, cells=max(maker.cells, CELLS_TOGETHER))
    sizes = (
        roomy.fitted(Sizes(n_q, n_k, 4, 2, 5)) for n_q, n_k in lengths_of_several(maker.domain)
    )
    for one in dict.fromkeys(sizes):
        yield f"{one.n_q} × {one.n_k}", roomy.make(one, small(rng), rng)


def lengths_of_several(domain: Domain) -> Iterator[tuple[int, int]]:
    """Yield multiples of the shortest length for queries and keys, if the domain promises that short ones do not occur.

    A kernel whose tiles are all that long then has several of them.
    """
    least = domain.tokens.near(1)
    for a, b in _MULTIPLES if least > SHORT else ():
        if max(a, b) * least <= domain.max_tokens:
            yield a * least, b * least
