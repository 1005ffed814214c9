"""Mistakes in kernels that read keys in tiles or parts: one factor of their rescaling is wrong.

An online softmax writes the weights of tile t as e^{s − r} / Σ e^{s − r'}, in which r and r' must both be the maximum m
of all keys. A mistake leaves one or both of them at the maximum of the tile, or of all tiles so far. Parts that are
normalised by themselves are merged by masses, which must be e^L with L the logarithm of a part's sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise, permutations, product
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import softmax
from symattn.attention.spec import Attention
from symattn.bounds.mistake import At, Mistake, in_steps
from symattn.verification.rules.operators import places

# Numbers of keys in a tile that are tried: every small one, and the usual larger ones.
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 16, 32, 48, 64, 128)
_LOWEST = -(10**4)  # the starting value of kernels
Edges = Callable[[int], list[int]]
Masses = Callable[[At, "Tiles"], list[Any]]


def _so_far_at(
    maximum: str, words: str, both: tuple[str, str]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the mistakes that leave the output so far, the sum so far, or, by ``both``, both at another maximum."""
    output, total = (
        ("values", f"the output so far is {words}"),
        ("normalize", f"the sum so far is {words}"),
    )
    return {(maximum, "all"): output, ("all", maximum): total, (maximum, maximum): both}


_WHEN = "rescaled when the maximum grows"
_LAST = f"{_WHEN}, in the last tile alone"
_ROUND = "rescaled the wrong way round, by e^(new − old maximum)"
#: The power of the right factor by which is rescaled, and words for it.
_POWERS = {
    "inverse": (-1.0, _ROUND),
    "of 2": (math.log(2), "rescaled by powers of 2 of natural maxima, not of e"),
    "of e": (1 / math.log(2), "rescaled by powers of e of maxima in base 2"),
}
_LATE = "rescaled after the new tile is added to {}, not before"
#: Maxima, other than the largest score so far, at which both r and r' are left.
_OTHER_MAXIMA = {
    "tile": "output and sum so far are rescaled to the tile's own maximum, not to the largest score so far",
    "stale": "what is so far is rescaled to the tile's own maximum, and the tile to the largest score so far",
    "apart": "each tile subtracts its own maximum, and is not rescaled to the largest score so far",
    "before": "the largest score so far is forgotten: each tile knows that of the tile before alone",
}
#: Maxima at which one of r and r' is left; the last three are those of tiles that are lost.
_ALONE = _OTHER_MAXIMA | {
    "later": "what is so far is rescaled after a tile is added to it, from the second one on",
    "final": "the last tile overwrites what is so far",
    "first": "what the tiles after the first one give is left out",
    "but final": "what the last tile gives is left out",
}
#: The maxima at which r and r' are left, of numerator and denominator.
_LEFT: dict[tuple[str, str], tuple[str, str]] = {
    **_so_far_at(
        "so far", f"not {_WHEN}", ("normalize", f"neither output nor sum so far is {_WHEN}")
    ),
    **_so_far_at(
        "last", f"not {_LAST}", ("normalize", f"neither output nor sum so far is {_LAST}")
    ),
    **{
        k: v
        for m, (_, words) in _POWERS.items()
        for k, v in _so_far_at(m, words, ("merge", f"output and sum so far are {words}")).items()
    },
    **_so_far_at(
        "late", _LATE.format("it"), ("merge", f"output and sum so far are {_LATE.format('them')}")
    ),
    ("own", "own"): ("normalize", "each tile subtracts its own maximum, and nothing is rescaled"),
    **{(maximum, maximum): ("max", words) for maximum, words in _OTHER_MAXIMA.items()},
    **{
        (maximum, "all"): ("values", f"{words}: in the output alone")
        for maximum, words in _ALONE.items()
    },
    **{
        ("all", maximum): ("normalize", f"{words}: in the sum alone")
        for maximum, words in _ALONE.items()
    },
}

_OF_TILES = ("own", "last", *_ALONE)  # maxima that are not tried for tiles of one key


def mistakes(spec: Attention, widths: Iterable[int] = ()) -> Iterator[Mistake]:
    """Yield mistakes for every way to cut keys, or for tiles of these widths; for tiles of one key, only rescaling.

    A sink starts the maximum, or is added to the sum at the end.
    """
    for words, edges in cuts(widths) if spec.is_softmax else ():
        single = words == "tiles of one key"
        sink = not spec.plain_softmax
        for (above, below), (step, result) in _LEFT.items():
            if sink:
                for first in (True, False) if {above, below} <= {"all", "so far"} else ():
                    wrong = partial(_beside_sink, edges, above, below, first)
                    yield in_steps(step, f"{result} ({words})", weights=wrong)
                if (above, below) == ("own", "own"):
                    yield in_steps(
                        "sink",
                        f"the sink counts once in each tile ({words})",
                        weights=partial(_each_sink, edges),
                    )
            # of two parts, the tile before has the largest score so far, and both are rescaled to the second's own
            elif not (single and {above, below} & {*_OF_TILES}) and not (
                words == "2 parts" and {above, below} & {"before", "tile", "last", "first"}
            ):
                wrong = partial(_not_rescaled, edges, above, below)
                yield in_steps(step, f"{result} ({words})", above == below, weights=wrong)
        for result, masses in _MASSES.items() if not (single or sink) else ():
            # What is carried on from a merge of two parts weights the third part first.
            if words == "2 parts" and result.startswith(_CARRIED):
                continue
            merged = partial(_merge_part_weights, edges, masses, result)
            yield in_steps(
                "merge", f"{result} ({words})", result not in _NOT_SHARED, weights=merged
            )


def of_other_tiles(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield mistakes that read keys, values or biases from a wrong tile, or compute every tile of queries as the first.

    A kernel that forgets which tile it computes reads the first one's queries, or gives the first one's outputs.
    """
    for place in places(spec, names):
        for words, where, taken in other_tiles():
            if not _has_other_tiles(place.words, words, where):
                continue
            of_queries = place.words in _CUT_LIKE_QUERIES
            load = _load_from_other_places_if_any if of_queries else _load_from_other_places
            change = partial(load, taken, -1 if place.words == "biases" else -2)
            # The bound covers no operation on outputs, and of the same numbers queries say more.
            of_outputs = place.words == "outputs"
            yield Mistake(
                place.step,
                f"{place.words} are {words} ({where})",
                place.variant(change),
                in_floats=of_outputs,
                general=of_outputs,
            )


def _has_other_tiles(place: str, words: str, where: str) -> bool:
    """Return whether a wrong tile is tried at a place: queries are cut into tiles of one width, but not into parts."""
    if place in ("keys", "values", "biases"):
        return True
    return place in _CUT_LIKE_QUERIES and words == FIRST_TILE and where in _TILES_OF_QUERIES


_CUT_LIKE_QUERIES = ("queries", "outputs")
# A tile of queries is a program of a kernel, and matrix units take at least 16 rows at once.
_TILES_OF_QUERIES = frozenset(f"tiles of {width}" for width in WIDTHS if width >= 16)
FIRST_TILE = "those of the first tile in every tile"
#: The tile that is read instead of tile t of c.
_OTHER_TILES: tuple[tuple[str, Callable[[int, int], int]], ...] = (
    (FIRST_TILE, lambda t, c: 0),
    ("those of the tile before, except in the first tile", lambda t, c: max(t - 1, 0)),
    ("those of the next tile, and in the last tile those of the first", lambda t, c: (t + 1) % c),
)
Taken = Callable[[int], np.ndarray]  # the places that are read in place of 0, …, n − 1


def other_tiles() -> Iterator[tuple[str, str, Taken]]:
    """Yield wrong tiles in words, how it is cut, and the places that are then read."""
    for (words, other), (where, edges) in product(_OTHER_TILES, cuts()):
        if where != "tiles of one key":
            yield words, where, partial(_places_in_other_tiles, other, edges)


def _places_in_other_tiles(other: Callable[[int, int], int], edges: Edges, n: int) -> np.ndarray:
    """Return the places in the other tiles. Raises ``KeyError`` for a single tile."""
    ends = edges(n)
    if len(ends) < 3:
        raise KeyError("there is one tile only")
    starts = [ends[other(t, len(ends) - 1)] for t in range(len(ends) - 1)]
    each = (i + np.arange(b - a) for i, (a, b) in zip(starts, pairwise(ends), strict=True))
    # A longer tile that is read in place of the last one ends with the keys.
    result: np.ndarray = np.minimum(np.concatenate([*each]), n - 1)
    return result


def _load_from_other_places(taken: Taken, axis: int, x: Array) -> Any:
    """Return an array with the entries along an axis read from other places."""
    return namespace_of(x).take(x, taken(int(x.shape[axis])), axis=axis)


def _load_from_other_places_if_any(taken: Taken, axis: int, x: Array) -> Any:
    """Return the same, or the array itself if it is a single tile: what else is wrong then shows there."""
    try:
        return _load_from_other_places(taken, axis, x)
    except KeyError:
        return x


def cuts(widths: Iterable[int] = ()) -> Iterator[tuple[str, Edges]]:
    """Yield ways to cut keys: tiles of one width; equal parts, longer ones first, the last longer or shorter, or one
    more."""
    for width in widths or WIDTHS:
        words = f"tiles of {width}" if width > 1 else "tiles of one key"
        yield words, lambda n, w=width: [*range(0, n, w), n]  # type: ignore[misc]
    # Kernels differ in which part is longer if the parts cannot be equal.
    for count in () if widths else (2, 3, 4, 8):
        yield (
            f"{count} parts",
            lambda n, c=count: [0, *accumulate(map(len, np.array_split(range(n), min(c, n))))],  # type: ignore[misc]
        )
        yield f"{count} parts", lambda n, c=count: [*[*range(0, n, max(n // c, 1))][:c], n]  # type: ignore[misc]
        yield f"{count} parts", lambda n, c=count: [*range(0, n, -(-n // c)), n]  # type: ignore[misc]
    for count in () if widths else (2, 4):
        yield f"{count} parts and the rest", lambda n, c=count: [*range(0, n, max(n // c, 1)), n]  # type: ignore[misc]


@dataclass(frozen=True)
class Tiles:
    """The scores of a run, cut; results for arrays of floats are stored, since many mistakes share them."""

    at: At
    cut: tuple[int, ...]

    @classmethod
    def of(cls, edges: Edges, at: At, least: int = 2) -> Tiles:
        """Return the scores that the weights are computed from, cut. Raises ``KeyError`` below ``least`` tiles."""
        cut = tuple(edges(at.n))
        if len(cut) <= least:
            raise KeyError("there are too few tiles")
        return cls(at, cut)

    def __iter__(self) -> Iterator[Any]:
        return (self.at.first[..., a:b] for a, b in pairwise(self.cut))

    @property
    def numbers(self) -> np.ndarray:
        """The number of each key's tile."""
        return np.repeat(np.arange(len(self.cut) - 1), np.diff(self.cut))

    def once(self, what: str, make: Callable[[], Any]) -> Any:
        """Return the result of ``make``, stored by ``what``."""
        x = self.at.first
        key = (what, self.at.spec.base, self.cut)
        if not isinstance(x, np.ndarray):
            return make()
        # While the array is stored here, no other one has its id.
        if id(x) not in _KEPT:
            if (
                len(_KEPT) >= _ARRAYS
                or sum(a.size * len(outcome) for a, outcome in _KEPT.values()) > _NUMBERS
            ):
                _KEPT.clear()
            _KEPT[id(x)] = x, {}
        result = _KEPT[id(x)][1]
        if key not in result:
            result[key] = make()
        return result[key]


_KEPT: dict[int, tuple[np.ndarray, dict[tuple[Any, ...], Any]]] = {}
_ARRAYS, _NUMBERS = 64, 1 << 22  # arrays and numbers that are stored at most: 32 MiB


def _not_rescaled(edges: Edges, above: str, below: str, at: At) -> Any:
    """Return exponentials by one maximum, over the sum of those by another."""
    # A single tile already shows a rescaling that comes too late.
    tiles = Tiles.of(edges, at, 1 if "late" in (above, below) else 2)

    def made() -> Any:
        e, total = (
            tiles.once(m, partial(_exponentials_by_tile_maximum, tiles.at, tiles, m))
            for m in (above, below)
        )
        return e / tiles.at.sum(total)

    return tiles.once(f"{above}/{below}", made)


def _beside_sink(edges: Edges, above: str, below: str, first: bool, at: At) -> Any:
    """Return the weights beside a sink; if the sink comes ``first``, it is 1 in a sum that is not rescaled."""
    # After a sink that comes first, one tile is enough.
    tiles = Tiles.of(edges, at, 1 if first else 2)
    top = at.m if first else at.top

    # Numerators and sums may use other maxima, which is the mistake.
    def powers(maximum: str) -> Any:
        so_far = (
            [at.xp.maximum(m, at.z) for m in _so_far(at, tiles)] if first else _so_far(at, tiles)
        )
        tops = so_far if maximum == "so far" else [top for _ in tiles]
        return at.xp.concat([at.power(t - m) for t, m in zip(tiles, tops, strict=True)], axis=-1)

    # A sink that comes first has itself as the maximum so far: e⁰ = 1.
    sink = at.power(at.z - (at.z if first and below == "so far" else top))
    return powers(above) / (at.sum(powers(below)) + sink)


def _each_sink(edges: Edges, at: At) -> Any:
    """Return the weights beside a sink that counts once in each tile."""
    tiles = Tiles.of(edges, at)
    e = at.power(at.first - at.m)
    return e / (at.sum(e) + at.number(len(tiles.cut) - 1) * at.power(at.z - at.m))


def _exponentials_by_tile_maximum(at: At, tiles: Tiles, maximum: str) -> Any:
    """Return e^{s − m}, with m the maximum of all keys, of those so far, of the tile, …, as ``maximum`` says."""
    own = tiles.once("maxima", lambda: [softmax.row_max(t) for t in tiles])
    tops: dict[str, Callable[[], list[Any]]] = {
        "all": lambda: [at.top for _ in tiles],
        "own": lambda: own,
        "so far": lambda: _so_far(at, tiles),
        "last": lambda: [*_so_far(at, tiles)[-2:][:1] * (len(own) - 1), at.top],
        "before": lambda: _of_the_tile_before(at, own),
        "tile": lambda: _accumulate_tile_rescaling(own, _growth_of_tile_maxima(at, tiles, own)),
        "apart": lambda: [r - m + at.top for r, m in zip(own, _so_far(at, tiles), strict=True)],
        "stale": lambda: _accumulate_tile_rescaling(
            _so_far(at, tiles), _growth_of_tile_maxima(at, tiles, own)
        ),
        # Lost tiles get a maximum that is 10⁴ higher, at which their exponentials vanish.
        "final": lambda: [*[at.top - _LOWEST for _ in own[1:]], at.top],
        "first": lambda: [at.top, *[at.top - _LOWEST for _ in own[1:]]],
        "but final": lambda: [*[at.top for _ in own[1:]], at.top - _LOWEST],
        "later": lambda: [at.top, *[at.top + m - r for r, m in pairwise(_so_far(at, tiles))]],
        "late": lambda: [at.top + m - r for r, m in pairwise([_LOWEST, *_so_far(at, tiles)])],
    }
    if maximum in _POWERS:  # the product of all right factors is e^(m − top)
        power = at.number(_POWERS[maximum][0])
        tops[maximum] = lambda: [m + power * (at.top - m) for m in _so_far(at, tiles)]
    of_tiles = at.xp.concat(tops[maximum](), axis=-1)
    return at.power(at.first - at.xp.take(of_tiles, tiles.numbers, axis=-1))


def _of_the_tile_before(at: At, own: list[Any]) -> list[Any]:
    """Return the total subtracted from scores if a tile subtracts the larger of its maximum and the previous tile's.

    Earlier parts are rescaled by e^{m − r}.
    """
    r = [own[0], *(at.xp.maximum(a, b) for a, b in pairwise(own))]
    return _accumulate_tile_rescaling(r, [b - a for a, b in zip(own, r[1:], strict=False)])


def _growth_of_tile_maxima(at: At, tiles: Tiles, own: list[Any]) -> list[Any]:
    """Return by how much the maximum of each tile but the first exceeds the largest score before it."""
    return [m - r for m, r in zip(own[1:], _so_far(at, tiles), strict=False)]


def _accumulate_tile_rescaling(r: list[Any], later: list[Any]) -> list[Any]:
    """Return the totals subtracted if tile t subtracts r_t, and each later tile t' a further ``later[t' − 1]``."""
    after = list(accumulate(reversed(later)))[::-1]  # the sum of ``later`` from each tile on
    return [x + more for x, more in zip(r, after, strict=False)] + r[len(after) :]


def _so_far(at: At, tiles: Tiles) -> list[Any]:
    """Return the largest score up to each tile, ``_LOWEST`` while all are forbidden."""

    def made() -> list[Any]:
        tops = [at.xp.max(t, axis=-1, keepdims=True) for t in tiles]
        # −∞ − (−∞) is NaN, so that rows without keys so far get a finite maximum.
        return [
            *accumulate((at.xp.where(at.xp.isfinite(m), m, _LOWEST) for m in tops), at.xp.maximum)
        ]

    result: list[Any] = tiles.once("largest so far", made)
    return result


def _merge_part_weights(edges: Edges, masses: Masses, words: str, at: At) -> Any:
    """Return the weights of parts, each normalised by itself, times masses over their sum."""
    tiles = Tiles.of(edges, at)

    def made() -> Any:
        result = masses(tiles.at, tiles)
        # In turns, or undivided, the masses are already what each part is multiplied by.
        total = 1 if words in (*_TURNS, _UNDIVIDED) else sum(result[1:], result[0])
        # The weights within parts are the same for all masses, so that they are computed once.
        each = tiles.once(
            "each",
            lambda: [softmax.softmax(t, fully_masked="zeros", base=at.spec.base) for t in tiles],
        )
        return tiles.at.xp.concat(
            [a * (m / total) for a, m in zip(each, result, strict=True)], axis=-1
        )

    return tiles.once(words, made)


#: From the logarithms of the sums so far, of a new part's and of both, and the factors of what is so far and of the new
#: part: the logarithm that is carried on, and both factors.
Turn = Callable[..., tuple[Any, Any, Any]]


def _in_turn(turn: Turn, at: At, tiles: Tiles) -> list[Any]:
    """Return the shares of parts that are merged one after the other."""
    # The log-sum of a part without keys is the lowest number of kernels.
    first, *others = (
        at.xp.where(at.xp.isfinite(x), x, _LOWEST) for x in _log_sums_of_tiles(at, tiles)
    )
    shares: Any = None
    for new in others:
        both = softmax.log_sum_exp(at.xp.concat([first, new], axis=-1), base=at.spec.base)
        of_earlier = at.power(first - both)
        of_new = at.power(new - both)
        first, before, factor = turn(first, new, both, of_earlier, of_new)
        # One array of all shares, as each of many parts rescales all before it.
        earlier = before if shares is None else shares * before
        shares = at.xp.concat([earlier, factor], axis=-1)
    return [shares[..., part : part + 1] for part in range(len(tiles.cut) - 1)]


def _elementwise_larger(a: Any, b: Any) -> Any:
    return namespace_of(a).maximum(a, b)


def _log_sums_of_tiles(at: At, tiles: Tiles) -> list[Any]:
    result: list[Any] = tiles.once(
        "sums", lambda: [softmax.log_sum_exp(t, base=at.spec.base) for t in tiles]
    )
    return result


def _powers_of_tile_masses(
    of: Masses, factor: Callable[[At], Any], at: At, tiles: Tiles
) -> list[Any]:
    """Return e^{c (x − max x)}."""
    result = of(at, tiles)
    m = softmax.row_max(at.xp.concat(result, axis=-1))
    return [at.power((x - m) * factor(at)) for x in result]


#: The bases of logarithms by their words; 0 stands for e.
_BASES = {0: "natural", 2: "base 2", 10: "base 10"}


def _merge_in_other_bases() -> Iterator[tuple[str, Masses]]:
    """Yield the masses S^{ln b/ln a} of parts: log-sums of base a are raised as powers of base b."""
    for taken, merged in permutations(_BASES, 2):
        factor = partial(_exponent_of_sums, taken, merged)
        of = "logarithms of sums in {}" if taken else "{} logarithms of sums"
        as_if = "as if in {}" if merged else "as {} ones"
        words = f"{of.format(_BASES[taken])} are merged {as_if.format(_BASES[merged])}"
        yield words, partial(_powers_of_tile_masses, _log_sums_of_tiles, factor)


def _exponent_of_sums(taken: int, merged: int, at: At) -> Any:
    """Return ln b/ln a: b^{log_a S} is S to this power."""
    of_powers, of_sums = (
        at.xp.log(at.number(base)) if base else at.number(1) for base in (merged, taken)
    )
    return of_powers / of_sums


_CARRIED = "merged one after the other, parts are weighted by a log-sum that is"
_TURNS: dict[str, Turn] = {
    "the last part overwrites the others": lambda a, b, c, x, y: (c, 0 * x, 0 * y + 1),
    "the last part overwrites the output of the others, not their sum": lambda a, b, c, x, y: (
        c,
        0 * x,
        y,
    ),
    "normalised parts are added up": lambda a, b, c, x, y: (c, 0 * x + 1, 0 * y + 1),
    f"{_CARRIED} the last part's alone, not that of all so far": lambda a, b, c, x, y: (b, x, y),
    f"{_CARRIED} not updated: it stays the first part's": lambda a, b, c, x, y: (a, x, y),
    f"{_CARRIED} the larger one of both, not that of their sum": lambda a, b, c, x, y: (
        _elementwise_larger(a, b),
        x,
        y,
    ),
    f"{_CARRIED} the sum of both log-sums": lambda a, b, c, x, y: (a + b, x, y),
    "merged one after the other, each part counts as much as all before it": lambda a, b, c, x, y: (
        c,
        (0 * x + 1) / 2,
        (0 * y + 1) / 2,
    ),
    "a part that is merged and what is so far have each other's weights": lambda a, b, c, x, y: (
        c,
        y,
        x,
    ),
    "the output so far keeps its weight where a part is merged: it is not rescaled": lambda a, b, c, x, y: (
        c,
        0 * x + 1,
        y,
    ),
    "a part that is merged is added in full: it is not weighted": lambda a, b, c, x, y: (
        c,
        x,
        0 * y + 1,
    ),
    "factors of parts that are merged are divided by the larger one of both, not by their sum": lambda a, b, c, x, y: (
        c,
        x / _elementwise_larger(x, y),
        y / _elementwise_larger(x, y),
    ),
}
_UNDIVIDED = "factors of parts are e^(L − max L), which are not divided by their sum"
_MASSES: dict[str, Masses] = {words: partial(_in_turn, turn) for words, turn in _TURNS.items()} | {
    "parts are merged by their mean, whatever their sums are": lambda at, tiles: [
        at.number(1) for _ in tiles
    ],
    "parts are merged by their maxima, without their sums": partial(
        _powers_of_tile_masses, lambda at, tiles: [softmax.row_max(t) for t in tiles], lambda at: 1
    ),
    **dict(_merge_in_other_bases()),
    "parts are merged by the logarithms of their sums, not by the sums": _log_sums_of_tiles,
    _UNDIVIDED: partial(_powers_of_tile_masses, _log_sums_of_tiles, lambda at: 1),
}
_NOT_SHARED = (
    *_TURNS,
    _UNDIVIDED,
    "parts are merged by the logarithms of their sums, not by the sums",
)
