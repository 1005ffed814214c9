"""Probes by number and by size: scores of every magnitude and order, caps, sinks, norms, masks that hide whole tiles;
lengths at and around those of tiles and windows, wide heads, far positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import isqrt
from numbers import Real

import numpy as np

from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.spec import Attention
from symattn.attention.temperatures import (
    counts_places_from_last_key,
    least_tokens_of_temperatures,
)
from symattn.bounds import rule
from symattn.bounds.extras import places
from symattn.bounds.inputs import CELLS, Array, Maker, Sizes
from symattn.verification.probing.probes import Named, far, offset, small

# From 12 on an exponential overflows float16, at 100 float32; smaller ones are ordinary.
_FACTOR_LEVELS = (0.01, 4.0, 12.0, 30.0, 100.0)
# Distances between scores, from similar weights to weights below the roundoff of half types.
_GAPS = (0.25, 1.0, 4.0, 8.0, 12.0)
#: Distances of scores below the largest. At 15 a weight is above the roundoff of float32, so that code which leaves
#: such keys out loses more than roundings do.
_DISTANCES = (2.0, 3.0, 4.0, 5.0, 7.0, 9.0, 11.0, 15.0)
_OF_ONE_QUERY = 9.0  # the distance in the case where all other queries have none
#: Levels of rows lie this far apart, less than ln 10 between guards such as 1e−8 and 1e−9, and go down to below
#: ln 1e−38, the smallest normal number of float32, and to below where exponentials vanish in float32.
_STEP_OF_LEVELS, _LOWEST_LEVEL = 2.0, 160.0
#: Few rows in a call, so that those that tell two guards apart are many of them; every fourth key has a row's level.
_ROWS_OF_LEVELS, _KEYS_OF_A_LEVEL = 8, 4
#: Scores are tried down to minus this number, and to this share of the largest number of a format.
_LOWEST, _HALF_OF_SCORES = 62_000.0, 0.5
_MANY_KEYS = 8  # fewer keys make no tile
# keys of a tile: masks hide whole tiles of up to as many from some queries
_MASKED_TILES = (16, 64, 128)


def orders(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield scores that rise or fall from key to key, each key once with all the weight, and equal values."""
    for n in (17, 33) if maker.square else (17, 33, 65):
        rows = n if maker.square else 3
        rising = np.arange(n, dtype=float)[:, None]
        v = rng.integers(-8, 9, (n, 2)).astype(float)
        for name, column in (
            ("rise", rising),
            ("fall", rising[::-1]),
            ("rise by tiles", rising // 16),
        ):
            yield f"scores that {name}, n = {n}", maker.from_heads(np.ones((rows, 1)), column, v)
        yield (
            f"constant values, n = {n}",
            maker.from_heads(
                _draw_small_whole_entries(rows, rng),
                _draw_small_whole_entries(n, rng),
                np.full((n, 2), 3.0),
            ),
        )
        # a kernel that subtracts each tile's own maximum overflows
        steep = far(maker) * (rising[::-1] // 16)
        yield (
            f"scores that fall steeply by tiles, n = {n}",
            maker.from_heads(np.ones((rows, 1)), steep, v),
        )
    for n in (16, 40):
        # With d_k = n and the usual scale, all other keys score 32 below.
        below: Array = 32.0 * n**0.5 * (np.eye(n) - 1)
        v = rng.integers(-8, 9, (n, 2)) * 1.0
        yield f"each key takes all the weight once, n = {n}", maker.from_heads(below, np.eye(n), v)
    for gap in _GAPS:
        k = np.array([[0.0], [gap], [-gap], [gap / 2]])
        ones = np.ones((4 if maker.square else 2, 1))
        yield (
            f"scores {gap:g} apart",
            maker.from_heads(ones, k, np.array([[1.0], [-1.0], [2.0], [0.0]])),
        )


def _draw_small_whole_entries(n: int, rng: np.random.Generator) -> Array:
    return rng.integers(-2, 3, (n, 3)).astype(float)


def distant(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield many keys at one distance below two others, the first and the last, whose values are 0.

    So the many keys alone make the output, however little each of them weighs, and a tile or a row of theirs that is
    skipped changes it by a large share. That does not depend on the order in which keys are read. With 128 queries a
    kernel has a tile of queries without padding, all of which are far above the keys.
    """
    far = _DISTANCES[-1]
    for n_q, n_k, distances in ((2, 130, _DISTANCES), (128, 512, (far,)), (2, 1030, (far,))):
        n_k = min(n_k, maker.domain.max_tokens)
        n_q = min(n_q, CELLS // (maker.spec.heads * n_k), n_k)
        if maker.square:
            # The number of scores limits the length if there are as many queries as keys.
            n_q = n_k = min(n_k, isqrt(CELLS // maker.spec.heads))
        if len(distances) > 1 and n_q > 1:
            # Code that skips a tile for all queries, by the distance of one, errs here.
            few = [_OF_ONE_QUERY, *[0.0] * (n_q - 1)]
            yield (
                f"{n_k - 2} keys {few[0]:g} below two others for one query",
                _make_inputs_scoring_below(maker, few, n_k, rng),
            )
        for distance in distances if n_k >= _MANY_KEYS and n_q else ():
            yield (
                f"{n_k - 2} keys {distance:g} below two others",
                _make_inputs_scoring_below(maker, [distance] * n_q, n_k, rng),
            )


def _make_inputs_scoring_below(
    maker: Maker, distances: Sequence[float], n_k: int, rng: np.random.Generator
) -> dict[str, Array] | None:
    """Return inputs in which all keys but the first and the last score below these, by a distance for each query."""
    n_q = len(distances)
    # Promises may widen the heads, and the usual scale divides by the root of the width.
    width = maker.fitted(Sizes(n_q, n_k, 4, 2)).d_k
    q = np.zeros((n_q, 4))
    k = np.zeros((n_k, 4))
    v = np.zeros((n_k, 2))
    # Undo the scale, so that distances are those of the final scores.
    scale = maker.spec.scale
    divisor = width**0.5 if scale is None else 1 / _convert_scale_to_number(scale)
    q[:, 0] = np.array(distances) * divisor
    k[1:-1, 0] = -1
    v[1:-1, 0] = 1
    v[1:-1, 1] = rng.integers(-8, 9, n_k - 2)
    return maker.from_heads(q, k, v)


def _convert_scale_to_number(scale: object) -> float:
    """Return a scale as a number, 1 if it is an input."""
    return abs(float(scale)) if isinstance(scale, Real) and scale else 1.0


def far_below_zero(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield scores below the finite numbers that code takes for −∞, from −10⁴ to −50000, also before they are scaled.

    A maximum that starts at such a number, or masked scores filled with it, are then the largest. Masked keys score as
    others do, since such a number may be added to scores as well. No score is below
    −62000, which float16 holds, unless the domain promises larger ones: −65504 and all below stand for −∞.
    """
    level = reachable(maker)
    # Scores lie around the level, some of them a little beyond it.
    maker = replace(maker, reach=1.01 * level)
    scale = 0.5 if maker.spec.scale is None else _convert_scale_to_number(maker.spec.scale)
    for n_q, n_k, low in ((3, 6, 6), (4, 20, 17)):
        n_q = n_k if maker.square else n_q
        hidden = np.arange(n_k) >= low
        # Without any mask no key can be hidden.
        if hidden.any() and not maker.spec.masks_anything:
            continue
        q = np.zeros((n_q, 4))
        k = np.zeros((n_k, 4))
        # Column 0 brings every score to the level, column 1 adds small differences.
        q[:, 0], q[:, 1], k[:, 1] = 16, 1, rng.integers(-2, 3, n_k)
        k[:, 0] = -level / (16 * scale)
        # where visible values are 0, only a masked key can give another output, however coarse scores are
        v = np.stack([np.full(n_k, 8.0), rng.integers(4, 9, n_k), np.zeros(n_k)], axis=1)
        v[hidden] = -64.0
        result = maker.from_heads(q, k, v)
        if result and hidden.any() and {"mask", "keep"} & {*result}:
            result = _with_mask(maker, result, ~hidden)
        yield f"every score near −{level:g}, n_k = {n_k}", result


def low_rows(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield rows whose largest scores go down from 0 to −160, one drawn in each interval of length 2.

    A maximum that starts at a number m₀, with a sum kept from g, gives e^s / max(Σ e^s, g e^m₀): only rows just below
    m₀ + ln g show where that is.
    """
    lowest = min(_LOWEST_LEVEL, maker.largest_score / 2)
    starts = np.arange(0.0, lowest, _STEP_OF_LEVELS)
    levels = starts + _STEP_OF_LEVELS * rng.random(len(starts))
    most = min(_ROWS_OF_LEVELS, maker.domain.max_tokens)
    # A decoding call has one query, the last one.
    count = 1 if maker.domain.decoding else most
    for first in range(0, len(levels), count):
        of_call = np.resize(levels[first : first + count], most)
        title = f"rows near −{of_call.min():.4g} to −{of_call.max():.4g}"
        yield title, _make_rows_at_levels(maker, of_call, rng)


def _make_rows_at_levels(
    maker: Maker, levels: Array, rng: np.random.Generator
) -> dict[str, Array] | None:
    """Return inputs with a query and a key for each level below 0, which is the largest score of the query."""
    n = len(levels)
    # Promises may widen the heads, and the usual scale divides by the root of the width.
    width = maker.fitted(Sizes(n, n, 4, 2)).d_k
    scale = maker.spec.scale
    divisor = width**0.5 if scale is None else 1 / _convert_scale_to_number(scale)
    q = np.zeros((n, 4))
    k = np.zeros((n, 4))
    q[:, 0] = levels * divisor
    # All other keys score twice as far below 0, so that the sum of a row is near its largest term.
    k[:, 0] = np.where(np.arange(n) % _KEYS_OF_A_LEVEL == 0, -1, -2)
    return maker.from_heads(q, k, rng.integers(1, 9, (n, 2)).astype(float))


def reachable(maker: Maker) -> float:
    """Return how far below 0 scores are tried: within the promises, and where the bound says something."""
    promised = maker.domain.max_abs_score
    most = _HALF_OF_SCORES * rule.limit(maker.precision)
    return float(min(_LOWEST if promised is None else 0.97 * promised, most))


def ranges(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield scores all near one level, products that are large before scaling or that cancel, and large values."""
    rows = 5 if maker.square else 2
    for level in _choose_score_levels(maker.largest_score):
        for shift in (level, -level):
            yield f"every score near {shift:g}", maker.from_heads(*offset(shift, rows, rng))
    for large in (256.0, 320.0):
        q = np.zeros((rows, 64))
        k = np.zeros((5, 64))
        q[:, 0] = k[:, 0] = large
        q[:, 1] = 1
        k[:, 1] = np.arange(5)
        yield (
            f"products near {large * large:g}",
            maker.from_heads(q, k, rng.integers(-8, 9, (5, 3)).astype(float)),
        )
        # Rounded partial sums lose the small differences between keys.
        q[:, 2], k[:, 2] = large, -large
        if (
            4 * large * large < maker.precision.input.largest
        ):  # partial sums may be rounded to the format
            yield f"products near ±{large * large:g} that cancel", maker.from_heads(q, k, np.eye(5))
    q = _draw_small_whole_entries(rows, rng)
    k = _draw_small_whole_entries(5, rng)
    # Powers of 2 scale all entries exactly.
    for size in (2.0**12, 2.0**-12):
        yield f"values of size {size:g}", maker.from_heads(q, k, rng.integers(-7, 8, (5, 3)) * size)
        yield (
            f"queries of size {size:g}",
            maker.from_heads(q / 4096, k / 4096, rng.integers(-7, 8, (5, 3)) * 1.0),
        )


def _choose_score_levels(largest: float) -> tuple[float, ...]:
    """Return levels at which exponentials of common formats overflow or vanish, up to the domain's largest score."""
    # A multiple of 8, so that level / 8 is exact in ``offset``.
    most = 8 * np.floor(0.97 * largest / 8) if 16 <= largest < np.inf else largest
    return tuple(
        dict.fromkeys(min(level, most) for level in (8.0, 24.0, 96.0, 112.0, 400.0, 800.0, 16384.0))
    )


def caps(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield scores far below, near and far above the cap, of both signs."""
    assert maker.spec.softcap is not None
    c = float(maker.spec.softcap)
    for factor in (0.125, 0.5, 1.0, 2.0, 8.0):
        # A power of 2 is exact in every format.
        size = float(2.0 ** np.round(np.log2(c * factor)))
        k = size * np.array([[-1.0], [0.0], [1.0], [0.5]])
        yield f"scores near {factor:g} of the cap", maker.from_heads(np.ones((4, 1)), k, np.eye(4))
        yield (
            f"scores near −{factor:g} of the cap",
            maker.from_heads(-np.ones((4, 1)), abs(k) + size, np.eye(4)),
        )


def factors(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield ``sized`` inputs, such as scales, sinks and gates, from 0.01 to 100; of both signs if they may be negative.

    Kernels assume that the largest product gives the largest score, so that scales and slopes are positive.
    """
    shapes = maker.shapes(Sizes(3, 6, 4, 2))
    for name in (n for n, row in ARRAYS.items() if row.sized and n in shapes):
        for level in (
            level * sign
            for level in _FACTOR_LEVELS
            for sign in ((1, -1) if ARRAYS[name].sized == "signed" else (1,))
        ):
            result = maker.make(Sizes(3, 6, 4, 2), small(rng), rng)
            # Each head gets another share of the level: 1, 1/2, 1/3 or 1/4.
            apart = 1.0 / (1 + rng.permutation(result[name].size) % 4).reshape(result[name].shape)
            yield (
                f"{ARRAYS[name].title} near {level:g}",
                maker.tame(result | {name: maker.in_format(level * apart)}),
            )


def norms(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield what norms, or other operations on vectors, take: tiny, huge, nearly equal entries, a mean far from 0."""
    # Operations have these effects only on the arrays that they take, and on what these are made of.
    changed = {step.role for step in maker.spec.pipeline("qkv") if step.errors == "rounded"}
    # Tiny values make tiny outputs.
    normed = changed & {*"qkv"} | ({"v"} if "output" in changed else set())
    if not normed:
        return
    normed |= {"x", "y"}
    # Tiny entries show ε, huge ones overflow in the squares, near ones cancel.
    families: dict[str, Callable[[tuple[int, ...]], Array]] = {
        "tiny": lambda shape: rng.integers(-3, 4, shape) * 2.0**-9,
        "tinier": lambda shape: rng.integers(-3, 4, shape) * 2.0**-13,
        "huge": lambda shape: rng.integers(-3, 4, shape) * 2.0**9,
        "far from 0": lambda shape: 1024.0 + rng.integers(-3, 4, shape),
        "nearly equal": lambda shape: 1.0 + rng.integers(-1, 2, shape) * 2.0**-7,
    }
    for name, family in families.items():

        def entries(n: str, shape: tuple[int, ...], family: Callable[..., Array] = family) -> Array:
            return family(shape) if n in normed else small(rng)(n, shape)

        yield f"entries that are {name}", maker.make(Sizes(3, 5, 6, 2, 7), entries, rng)


def offsets(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield scores all near ±1000 or ±100 under a mask that hides a whole tile, the last or the first."""
    for tile in _MASKED_TILES:
        yield from masked_tile(maker, tile, rng)


def masked_tile(maker: Maker, tile: int, rng: np.random.Generator) -> Iterator[Named]:
    """Yield scores all near ±1000 or ±100, where some queries see only the first or the last few keys: a kernel that
    uses a finite maximum for a tile without any key loses the row, whatever the width of its tiles."""
    n = tile + 4
    if not maker.spec.masks_anything or n > maker.domain.max_tokens:
        return
    q = np.zeros((n, 4))
    k = np.zeros((n, 4))
    v = rng.integers(-8, 9, (n, 3)).astype(float)
    # With d_k = 4 and the usual scale, queries of ±16 and ±1.625 score near ±1000 and ±100.
    k[:, 0] = min(125.0, 0.9 * maker.largest_score / 8)
    k[:, 1] = rng.integers(-2, 3, n)
    q[:, 0] = np.resize((-16.0, -1.625, 1.625, 16.0), n)
    q[:, 1] = 1
    result = maker.from_heads(q, k, v)
    for hidden in ("last", "first") if result and {"mask", "keep"} & {*result} else ("",):
        masked = result
        if result and hidden:  # a mask may hide all but the first few keys, or all but the last few
            j = np.arange(result["mask" if "mask" in result else "keep"].shape[-1])
            visible = (
                j < 4 if hidden == "last" or _is_valid_length_argument(maker) else j >= len(j) - 4
            )
            masked = _with_mask(maker, result, visible)
        yield (
            f"scores near ±100 and ±1000, n_k = {n}" + (hidden and f", the {hidden} keys hidden"),
            masked,
        )


def _is_valid_length_argument(maker: Maker) -> bool:
    """Return whether the function takes the number of valid keys, so that a mask can only hide the last ones."""
    return any(a.form in ("lengths", "length") for a in maker.convention.arguments)


def hiding(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield masks that leave only the last keys, the first, or one; and rows without any if the domain has them."""
    # All scores so far below 0 that finite numbers in place of −∞ are not far below them.
    for level in _choose_score_levels(maker.largest_score):
        q = np.zeros((6, 4))
        k = np.zeros((6, 4))
        q[:, 0] = 16
        q[:, 1] = 1
        k[:, 0] = -level / 8
        k[:, 1] = rng.integers(-2, 3, 6)
        yield f"every score near −{level:g}, the weights", maker.from_heads(q, k, np.eye(6), rng)
    for n_q, n_k in ((4, 20), (5, 5), (3, 40), (2, 100)):
        if max(n_q, n_k) > maker.domain.max_tokens or (maker.square and n_k > 40):
            continue
        for name, keys in _make_key_visibility_patterns(n_k).items():
            result = maker.make(Sizes(n_q, n_k, 4, 2, 5), small(rng), rng)
            # The number of valid keys can only hide the last ones.
            if _is_valid_length_argument(maker) and not (keys == np.sort(keys)[::-1]).all():
                continue
            masked = _with_mask(maker, result, keys)
            if masked is not None:
                yield f"{name}, n_k = {n_k}", maker.tame(masked)


def _make_key_visibility_patterns(n: int) -> dict[str, Array]:
    """Return patterns of keys that may be seen."""
    # Visible keys at an end or alone hide a whole tile from a kernel by tiles.
    j = np.arange(n)
    return {
        "only the last keys": j >= 3 * n // 4,
        "only the first keys": j < (n + 3) // 4,
        "only the last key": j == n - 1,
        "only the first key": j == 0,
        "all keys": j >= 0,
        "all but the first": j > 0,
        "no key": j < 0,
    }


def _with_mask(maker: Maker, results: dict[str, Array], keys: Array) -> dict[str, Array] | None:
    """Return the inputs with this mask for every query or every second one; None if the domain forbids an empty row."""
    name = "mask" if "mask" in results else "keep"
    mask: Array = np.zeros(results[name].shape, dtype=bool)
    # The maker changed the length to one that the domain has, and the pattern does not fit.
    if mask.shape[-1] != len(keys):
        return None
    if name == "keep":
        mask[...] = keys
    else:
        # Rows with all keys stand between the others, so that a row without keys has neighbours.
        mask[..., ::2, :], mask[..., 1::2, :] = keys, True
        if mask.shape[-2] > 2 and not maker.domain.fully_masked_rows:
            mask[..., 1::2, :] = keys[::-1] if keys[::-1].any() else True
    allowed = mask if name == "mask" else mask[..., None, :]
    labels = {n: a for n, a in results.items() if n.startswith("doc")}
    n_q = results["q"].shape[-2] if "q" in results else results["x"].shape[-2]
    # A row is empty by what the specification's own mask leaves of it.
    allowed = allowed & places(maker.spec, n_q, len(keys), labels)
    if name == "mask" and "keep" in results:
        allowed = allowed & np.atleast_2d(results["keep"].reshape(-1, len(keys))).all(axis=0)
    if not maker.domain.fully_masked_rows and not allowed.any(axis=-1).all():
        return None
    additive = name == "mask" and maker.spec.mask == "additive"
    return results | {name: np.where(mask, 0.0, -np.inf) if additive else mask}


# -- sizes -------------------------------------------------------------------------------------------------------------
# n_q and n_k: lengths of tiles, one more or fewer, and pairs far from equal.
_TILES = ((16, 16), (3, 48), (33, 64), (64, 64), (5, 128), (64, 33), (32, 32), (2, 127), (2, 192))
# n_q and n_k of 128 and more: multiples of tiles, one more or fewer, and lengths between.
_LONG = (
    (128, 128),
    (3, 256),
    (2, 255),
    (2, 257),
    (65, 130),
    (2, 200),
    (2, 300),
    (2, 512),
    (2, 513),
    (1, 511),
    (256, 256),
)
#: n_k and d_k; half types do not represent all positions beyond 256 (bfloat16) and 2048 (float16).
_PLACES = (
    (9, 6),
    (20, 8),
    (21, 16),
    (40, 64),
    (130, 8),
    (257, 4),
    (300, 8),
    (600, 8),
    (1024, 4),
    (2100, 4),
    (4200, 2),
)
# Lengths of tiles, at whose edges kernels lose, double or move keys.
_EDGES = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_FAR = 256.0  # so far below the largest score, exponentials vanish in float32 and bfloat16 whatever the roundings
_UNIT = 64.0  # such distances are multiples of it, and so exact in half precision
# n_k on and off multiples of the lengths of tiles, and beyond other limits
_ASTRIDE = (33, 48, 127, 128)
# The same for lengths above 200, of several tiles.
_LONG_ASTRIDE = (201, 208, 224, 256, 257, 320, 501, 512, 513, 1001, 1024, 1025, 1088)
# d_k and d_v: on and off multiples of 16, beyond 64 and 128, and far from equal.
_WIDTHS = ((16, 4), (32, 8), (63, 3), (64, 64), (128, 2), (4, 65), (8, 128), (130, 3), (96, 16))


def tiles(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield lengths at and around multiples of 16, 32, 64 and 128, as queries and as keys."""
    yield from _yield_inputs_of_lengths(_TILES, maker, rng)
    yield from _yield_edge_key_inputs(_ASTRIDE, maker, rng)


def long(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield cases of 128 and more keys, with as many queries."""
    yield from _yield_edge_key_inputs(_LONG_ASTRIDE, maker, rng)
    yield from _yield_inputs_of_lengths(_LONG, maker, rng)


def _yield_edge_key_inputs(
    lengths: Iterable[int], maker: Maker, rng: np.random.Generator
) -> Iterator[Named]:
    for n in (n for n in lengths if n <= maker.domain.max_tokens):
        yield f"one or two keys of {n} take all the weight", edges(maker, n, rng)


def _yield_inputs_of_lengths(
    pairs: Iterable[tuple[int, int]], maker: Maker, rng: np.random.Generator
) -> Iterator[Named]:
    if maker.square:
        # With as many queries the scores grow quadratically, so that a few lengths must do.
        pairs = dict.fromkeys((n, n) for _, n in pairs if n in (16, 32, 48, 64, 128, 130, 256))
    for n_q, n_k in pairs:
        if max(n_q, n_k) <= maker.domain.max_tokens and n_q * n_k * maker.spec.heads <= CELLS:
            yield f"{n_q} × {n_k}", maker.make(Sizes(n_q, n_k, 4, 2, 5), small(rng), rng)


def edges(maker: Maker, n: int, rng: np.random.Generator) -> dict[str, Array] | None:
    """Return queries that each put all their weight on one key, and others that split it between that key and the one
    before: the first, the last, a random one, and those at edges of tiles of 16 to 512. A key that is lost or moved
    changes the whole output, and one that is doubled changes it by a sixth.

    The scores of these keys are sums of zeros, and all other scores lie so far below that their exponentials vanish in
    any format. The values of these keys are small compared with all others, and differ in sign from their neighbours'.
    """
    # The first and the last edge of tiles of each length.
    places = {j - more for t in _EDGES for j in (t, n // t * t) for more in (0, 1)}
    edges = {j for j in places if 0 <= j < n}
    ends_and_another = {0, n - 1, int(rng.integers(n))}
    keys = np.array(sorted(edges | ends_and_another))
    # Each key needs a column of its own, and the number of scores is limited.
    room = min(len(keys), maker.domain.max_width - 1, CELLS // (2 * n * maker.spec.heads))
    if room < 2 or (maker.square and n * n * maker.spec.heads > CELLS):
        return None
    keys = keys[np.linspace(0, len(keys) - 1, room).astype(int)]
    which = np.full(n, room)  # all other keys are alike
    which[keys] = np.arange(room)
    # no farther: larger scores allow larger errors
    below = _UNIT * np.ceil(_FAR / _UNIT * np.sqrt(room + 1))
    signs = np.arange(room)[:, None] // (1, 2, 4) % 2
    v = np.concatenate([1.0 - 2 * signs, np.full((1, 3), 32.0)])[which]
    one = np.eye(room, room + 1)
    # Two queries for each key: one splits its weight with the key before, one does not.
    shared = one + np.eye(room, room + 1, -1)
    directions = np.stack((shared, one), axis=1).reshape(2 * room, -1)
    q = below * (directions - 1)
    if maker.square:
        q = q[np.arange(n) * 2 * room // n]
    return maker.from_heads(q, np.eye(room + 1)[which], v)


def widths(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield few tokens in wide heads: d_k and d_v at and around 64 and 128."""
    for d_k, d_v in _WIDTHS:
        if max(d_k, d_v) <= maker.domain.max_width:
            wanted = Sizes(3, 5, d_k, d_v, 7)
            sizes = maker.fitted(wanted)
            yield f"widths {sizes.d_k}, {sizes.d_v}", maker.make(wanted, small(rng), rng)


def windows(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield equal scores with the weights as output, for lengths around those of windows, blocks and prefixes."""
    # Off-by-one edges show at lengths just below and above the reach of a mask.
    reach = {n + 1 for n in maker.spec.sides if n is not None} | {
        maker.spec.block,
        maker.spec.prefix,
    } - {None}
    lengths = {n + more for n in reach if n for more in (-1, 0, 1, 2)} | {
        2 * n + 1 for n in reach if n
    }
    for n in sorted(n for n in lengths if 0 < n <= maker.domain.max_tokens):
        for n_q in dict.fromkeys((n, *(() if maker.square else (min(2, n),)))):
            if n_q * n * maker.spec.heads <= CELLS:
                yield (
                    # With q = k = 0 all scores are equal, and V = I returns the weights themselves.
                    f"{n_q} × {n}, the weights",
                    maker.from_heads(np.zeros((n_q, 2)), np.zeros((n, 2)), np.eye(n)),
                )


def reserve_untried_temperatures(spec: Attention, most: int) -> Iterator[str]:
    """Yield a reservation if temperatures are 1 at all of at most so many tokens."""
    least = least_tokens_of_temperatures(spec)
    if least > most:
        yield (
            f"No input has the {least} tokens from which temperatures differ from 1; --temperature-rate 4 tries "
            "fewer."
        )


def _temperatures(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield few queries around the places at which temperatures change, or as many as keys if there must be."""
    spec = maker.spec
    least = least_tokens_of_temperatures(maker.spec)
    rate = spec.temperature_rate
    for n in (least, least + 1, least + rate, least + 3 * rate) if least else ():
        few = min(n, 3)
        # With the alignment at the top the places are those of the queries alone.
        n_q, n_k = (
            (n, n) if maker.square else (few, n) if counts_places_from_last_key(spec) else (n, few)
        )
        if n <= maker.domain.max_tokens and n_q * n_k * spec.heads <= CELLS:
            sizes = Sizes(n_q, n_k, 6, 2, 5)
            yield f"{n_q} × {n_k}, places of temperatures", maker.make(sizes, small(rng), rng)


def positions(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield far positions, few new tokens on caches of several lengths, and places where temperatures change."""
    yield from _temperatures(maker, rng)
    if maker.spec.position is None:
        return
    most = maker.domain.max_tokens
    # Angles at far positions are large, where floats of tables lose digits.
    for n_k, d_k in _PLACES:
        n_q = n_k if maker.square else 2
        if n_k <= most and n_q * n_k * maker.spec.heads <= CELLS:
            yield (
                f"{n_q} × {n_k}, far positions",
                maker.make(Sizes(n_q, n_k, d_k, 2, 5), small(rng), rng),
            )
