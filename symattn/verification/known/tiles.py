"""Mistakes of kernels that take keys in tiles or parts: what is not rescaled, and how parts are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention import softmax
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import Mistake, final, in_steps, number, plain_softmax
from symattn.verification.reference import Values

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 16, 32, 48, 64, 128)
PARTS = (2, 3, 4, 8)
Cut = Callable[[int], tuple[slice, ...]]


def tiles(width: int, n: int) -> tuple[slice, ...]:
    """Tiles of so many keys."""
    return tuple(slice(j, min(j + width, n)) for j in range(0, n, width))


def shares(number_: int, n: int) -> tuple[slice, ...]:
    """So many parts, as equal as can be, the longer ones first."""
    edges = [0]
    for part in range(min(number_, n)):
        edges.append(edges[-1] + n // min(number_, n) + (part < n % min(number_, n)))
    return tuple(slice(a, b) for a, b in pairwise(edges))


def last_longer(number_: int, n: int) -> tuple[slice, ...]:
    """So many parts, the last one with what is left over."""
    each = max(n // number_, 1)
    edges = [j for j in range(0, n, each)][:number_]
    return tuple(slice(a, b) for a, b in zip(edges, [*edges[1:], n], strict=True))


def with_rest(number_: int, n: int) -> tuple[slice, ...]:
    """Parts of ⌊n/number⌋, and what is left over beside them."""
    return tiles(max(n // number_, 1), n)


def _tiles(cut: Cut, spec: Attention, values: Values) -> tuple[list[Any], Any]:
    s = final(spec, values)
    found = cut(int(s.shape[-1]))
    if len(found) < 2:
        raise KeyError("there is one tile only")
    return [s[..., part] for part in found], namespace_of(s)


def _running(xp: Any, found: list[Any]) -> list[Any]:
    """The largest score up to each tile."""
    maxima: list[Any] = []
    for tile in found:
        m = xp.max(tile, axis=-1, keepdims=True)
        m = xp.where(xp.isfinite(m), m, -(10**4))
        maxima.append(xp.maximum(maxima[-1], m) if maxima else m)
    return maxima


def not_rescaled(which: str, cut: Cut, spec: Attention, values: Values) -> Any:
    """The online softmax with the output, the sum, or both left as they are when the maximum grows."""
    found, xp = _tiles(cut, spec, values)
    maxima = _running(xp, found)
    stale = xp.concat([softmax.powers(t - m, spec.base) for t, m in zip(found, maxima, strict=True)], axis=-1)
    fresh = xp.concat([softmax.powers(t - maxima[-1], spec.base) for t in found], axis=-1)
    above, below = (stale if which in (part, "both") else fresh for part in ("output", "sum"))
    return above / xp.sum(below, axis=-1, keepdims=True)


def last_only(cut: Cut, spec: Attention, values: Values) -> Any:
    """The last tile overwrites what was summed before."""
    found, xp = _tiles(cut, spec, values)
    zeros = [softmax.powers(t, spec.base) * 0 for t in found[:-1]]
    return xp.concat([*zeros, softmax.softmax(found[-1], base=spec.base)], axis=-1)


def last_output_only(cut: Cut, spec: Attention, values: Values) -> Any:
    """The last tile overwrites the output, and the sum is that of all."""
    found, xp = _tiles(cut, spec, values)
    s = xp.concat(found, axis=-1)
    a = softmax.softmax(s, fully_masked="zeros", base=spec.base)
    return xp.concat([a[..., : -found[-1].shape[-1]] * 0, a[..., -found[-1].shape[-1] :]], axis=-1)


def _merged(cut: Cut, spec: Attention, values: Values, masses: Callable[[Any, list[Any]], list[Any]]) -> Any:
    """Parts, each normalised by itself, weighted by masses."""
    found, xp = _tiles(cut, spec, values)
    shares_ = masses(xp, found)
    total = sum(shares_[1:], shares_[0])
    each = [softmax.softmax(t, fully_masked="zeros", base=spec.base) for t in found]
    return xp.concat([a * (m / total) for a, m in zip(each, shares_, strict=True)], axis=-1)


def mean(cut: Cut, spec: Attention, values: Values) -> Any:
    """Parts merged by their mean."""
    return _merged(cut, spec, values, lambda xp, found: [number(t[..., :1], 1) for t in found])


def by_sums(cut: Cut, spec: Attention, values: Values) -> Any:
    """Parts merged by their sums, their maxima forgotten."""
    return _merged(cut, spec, values, lambda xp, found: [_sum(xp, t, spec) for t in found])


def by_maxima(cut: Cut, spec: Attention, values: Values) -> Any:
    """Parts merged by e^m of their maxima, their sums forgotten."""

    def masses(xp: Any, found: list[Any]) -> list[Any]:
        maxima = [softmax.row_max(t) for t in found]
        m = softmax.row_max(xp.concat(maxima, axis=-1))
        return [softmax.powers(x - m, spec.base) for x in maxima]

    return _merged(cut, spec, values, masses)


def by_other_base(cut: Cut, spec: Attention, values: Values) -> Any:
    """Parts merged by e^L of logarithms L in base 2, or by 2^L of natural ones."""

    def masses(xp: Any, found: list[Any]) -> list[Any]:
        lse = [softmax.log_sum_exp(t, base=spec.base) for t in found]
        m = softmax.row_max(xp.concat(lse, axis=-1))
        log2 = xp.log(number(m, 2))
        return [softmax.powers((x - m) / log2, spec.base) for x in lse]

    return _merged(cut, spec, values, masses)


def by_two(cut: Cut, spec: Attention, values: Values) -> Any:
    """Parts merged by 2^L of natural logarithms L."""

    def masses(xp: Any, found: list[Any]) -> list[Any]:
        lse = [softmax.log_sum_exp(t, base=spec.base) for t in found]
        m = softmax.row_max(xp.concat(lse, axis=-1))
        return [softmax.powers((x - m) * xp.log(number(m, 2)), spec.base) for x in lse]

    return _merged(cut, spec, values, masses)


def by_logarithms(cut: Cut, spec: Attention, values: Values) -> Any:
    """Parts merged by their logarithms themselves."""
    return _merged(cut, spec, values, lambda xp, found: [softmax.log_sum_exp(t, base=spec.base) for t in found])


def added(cut: Cut, spec: Attention, values: Values) -> Any:
    """Normalised parts added up."""
    found, xp = _tiles(cut, spec, values)
    return xp.concat([softmax.softmax(t, fully_masked="zeros", base=spec.base) for t in found], axis=-1)


def own_maxima(cut: Cut, spec: Attention, values: Values) -> Any:
    """Exponentials with the maximum of their own tile, over the sum of all of them."""
    found, xp = _tiles(cut, spec, values)
    e = xp.concat([softmax.powers(t - softmax.row_max(t), spec.base) for t in found], axis=-1)
    return e / xp.sum(e, axis=-1, keepdims=True)


def _sum(xp: Any, tile: Any, spec: Attention) -> Any:
    return xp.sum(softmax.powers(tile - softmax.row_max(tile), spec.base), axis=-1, keepdims=True)


def _cuts() -> Iterator[tuple[Cut, str]]:
    for width in WIDTHS:
        yield partial(tiles, width), f"tiles of {width}" if width > 1 else "tiles of one key"
    for count in PARTS:
        for split in (shares, last_longer):
            yield partial(split, count), f"{count} parts"
    for count in (2, 4):
        yield partial(with_rest, count), f"{count} parts and the rest"


_RESCALED = {
    "output": "the output so far is not rescaled when the maximum grows",
    "sum": "the sum so far is not rescaled when the maximum grows",
    "both": "neither output nor sum so far is rescaled when the maximum grows",
}


def _mistakes(cut: Cut, words: str) -> Iterator[Mistake]:
    def made(step: str, cause: str, change: Callable[..., Any], rows: bool = False) -> Mistake:
        return in_steps(step, f"{cause} ({words})", plain_softmax, rows=rows, weights=change)

    for which, told in _RESCALED.items():
        step = "values" if which == "output" else "normalize"
        yield made(step, told, partial(not_rescaled, which, cut), which == "both")
    alone = "each tile subtracts its own maximum, and nothing is rescaled"
    yield made("normalize", alone, partial(own_maxima, cut), True)
    yield made("merge", "the last part overwrites the others", partial(last_only, cut), True)
    yield made(
        "merge", "the last part overwrites the output of the others, not their sum", partial(last_output_only, cut)
    )
    yield made("merge", "parts are merged by their mean, whatever their sums are", partial(mean, cut), True)
    yield made("merge", "parts are merged by their sums, without their maxima", partial(by_sums, cut), True)
    yield made("merge", "parts are merged by their maxima, without their sums", partial(by_maxima, cut), True)
    yield made("merge", "logarithms of sums in base 2 are merged as natural ones", partial(by_other_base, cut), True)
    yield made("merge", "natural logarithms of sums are merged as if in base 2", partial(by_two, cut), True)
    yield made(
        "merge", "parts are merged by the logarithms of their sums, not by the sums", partial(by_logarithms, cut)
    )
    yield made("merge", "normalised parts are added up", partial(added, cut))


MISTAKES: tuple[Mistake, ...] = tuple(
    m
    for cut, words in _cuts()
    for m in _mistakes(cut, words)
    if words != "tiles of one key" or "rescaled when" in m.cause
)
