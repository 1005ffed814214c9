"""Biases by distance: other slopes, other distances, other buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil, log
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.attention.constants import made_wide
from symattn.attention.positions import relative, rotary
from symattn.attention.positions.fields import Alibi, Buckets
from symattn.attention.spec import Attention
from symattn.bounds.at import At, told
from symattn.bounds.mistake import Mistake, shape


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes in linear biases and in buckets."""
    if isinstance(spec.position, Alibi):
        if spec.position.slopes == "computed":
            for words, exponents in _SLOPES.items():
                yield told("bias", words, slopes=partial(_slopes, exponents))
        yield told("bias", "distances are counted from the other corner", positioned=_from_corner)
        yield told("bias", "linear biases use the square of the distance", positioned=_by_squares)
        if spec.position.two_sided:
            words = "linear biases use the distance without its absolute value: keys {} are favoured"
            yield told("bias", words.format("ahead"), positioned=partial(_one_signed, 1))
            yield told("bias", words.format("behind"), positioned=partial(_one_signed, -1))
    if isinstance(spec.position, Buckets):
        for words, index in _indices(spec.position):
            yield told("bias", words, positioned=partial(_bucketed, index, ""))
        words = "distances of buckets are counted from the other corner"
        yield told("bias", words, positioned=partial(_bucketed, _t5, _other_corner(spec)))


def _other_corner(spec: Attention) -> str:
    return "bottom-right" if spec.alignment == "top-left" else "top-left"


# -- slopes ------------------------------------------------------------------------------------------------------------
#: e_h of slopes 2^(−e_h), by the number of heads.
_SLOPES: dict[str, Callable[[int], list[Any]]] = {
    "slopes are 2^(−8t/h) for any number of heads, not those of powers of two":
        lambda h: [Fraction(8 * (t + 1), h) for t in range(h)],
    "slopes begin with 1: they are those of the head before":
        lambda h: [e - relative.slope_exponents(h)[0] for e in relative.slope_exponents(h)],
    "slopes are 1/2, 1/4, … for every number of heads": lambda h: [Fraction(t + 1) for t in range(h)],
    "slopes are those of the next power of two of heads":
        lambda h: [Fraction(8 * (t + 1), 1 << (h - 1).bit_length()) for t in range(h)],
    "slopes are those of another head: heads are in the opposite order": lambda h: [*relative.slope_exponents(h)[::-1]],
    "the first head's slope is used for all": lambda h: [relative.slope_exponents(h)[0]] * h,
    "slopes are powers of e, not of 2": lambda h: [*map(float, relative.slope_exponents(h))],
}  # fmt: skip


def _slopes(exponents: Callable[[int], list[Any]], at: At) -> Any:
    result = exponents(at.spec.heads)
    if isinstance(result[0], float):
        return at.xp.exp(at.xp.stack([at.number(-e) for e in result]))
    return made_wide(lambda wide: rotary.powers_of(2, [-e for e in result], wide), at.first)


def _from_corner(at: At) -> Any:
    """Distances as if the first tokens stood together, or the last ones."""
    return relative.biased(at.first, at.values["slopes"], True, _other_corner(at.spec))


def _by_squares(at: At) -> Any:
    far = _ahead(at)
    return at.first - _each_slope(at) * at.xp.astype(far * far, at.first.dtype)


def _one_signed(sign: int, at: At) -> Any:
    """Scores and ± m (j − i), which is no distance."""
    return at.first + _each_slope(at) * at.xp.astype(sign * _ahead(at), at.first.dtype)


def _ahead(at: At) -> Any:
    """j − i for every query and key."""
    n_q, n_k = shape(at.values)[-2:]
    return relative.ahead(n_q, n_k, at.first, at.spec.alignment)


def _each_slope(at: At) -> Any:
    m = at.values["slopes"]
    return m[:, None, None] if at.spec.heads > 1 else m[:, None]


# -- buckets -----------------------------------------------------------------------------------------------------------
Index = Callable[[Any, Buckets], Any]  # of j − i


def _bucketed(index: Index, corner: str, at: At) -> Array:
    """The biases of other buckets."""
    asked: Any = at.spec.position
    n_q, n_k = shape(at.values)[-2:]
    far = relative.ahead(n_q, n_k, at.first, corner or at.spec.alignment)
    result = np.clip(np.asarray(index(far, asked)), 0, asked.number - 1)
    return relative.bucket_bias(at.first, at.values["b_rel"], result)


def _t5(far: Any, asked: Buckets, **other: Any) -> Any:
    usual = {"buckets": asked.number, "max_distance": asked.max_distance, "bidirectional": asked.bidirectional}
    return relative.t5_bucket(far, **(usual | other))


def _indices(asked: Buckets) -> Iterator[tuple[str, Index]]:
    yield "the sign of the distance is flipped: i − j in place of j − i", lambda far, a: _t5(-far, a)
    words = "buckets are off by one: distances are one too"
    yield f"{words} large", lambda far, a: _t5(far + 1, a)
    yield f"{words} small", lambda far, a: _t5(far - 1, a)
    yield f"{words} long on both sides", lambda far, a: _t5(far + np.sign(far) + (far == 0), a)
    for by, words in ((1, "later"), (-1, "earlier")):
        yield f"the first wide bucket begins 1 {words}", _sized(partial(_by_logarithms, by, False))
    yield "distances in wide buckets are one bucket on", _sized(_one_on)
    words = "logarithms are rounded up, not down, where buckets are wide"
    yield words, _sized(partial(_by_logarithms, 0, True))
    words = "every distance has its own bucket, there are no wide ones"
    yield words, _sized(lambda n, half, a: np.minimum(n, half - 1))
    if asked.bidirectional:
        words = "keys ahead and keys behind share their buckets"
        yield words, lambda far, a: _t5(-np.abs(far), a, buckets=a.number // 2, bidirectional=False)
        words = "a query's own key is in the bucket of keys ahead"
        yield words, lambda far, a: _t5(far, a) + a.number // 2 * (far == 0)
    for n in (32, 64, 128, 256):
        if asked.max_distance != n:
            yield f"the buckets end at the distance {n}", lambda far, a, n=n: _t5(far, a, max_distance=n)  # type: ignore[misc]


def _sized(size: Callable[[Any, int, Buckets], Any]) -> Index:
    """Buckets by the size of the distance, those of keys ahead after the others."""

    def index(far: Any, asked: Buckets) -> Any:
        if not asked.bidirectional:
            return size(np.maximum(-far, 0), asked.number, asked)
        half = asked.number // 2
        return size(np.abs(far), half, asked) + half * (far > 0)

    return index


def _one_on(n: Any, half: int, asked: Buckets) -> Any:
    """Wide buckets counted from 1."""
    size = _t5(-n, replace(asked, bidirectional=False, number=half))
    return np.where(n < half // 2, size, np.minimum(size + 1, half - 1))


def _by_logarithms(shift: int, up: bool, n: Any, half: int, asked: Buckets) -> Any:
    """Buckets by their formula, with the first wide one shifted, or logarithms rounded up."""
    exact = half // 2 + shift
    scale = (half - exact) / log(asked.max_distance / max(exact, 1))

    def wide(x: int) -> int:
        share = log(max(x, 1) / max(exact, 1)) * scale
        return x if x < exact else min(exact + (ceil(share - 1e-12) if up else int(share + 1e-12)), half - 1)

    return np.asarray([wide(x) for x in range(int(n.max(initial=0)) + 1)])[n]
