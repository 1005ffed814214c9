"""Mistakes in which keys take part: tiles that are dropped, zeros that fill up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import masks, softmax
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Mistake,
    before,
    both,
    in_steps,
    masked,
    parts,
    plain_softmax,
    shape,
    softmaxed,
    weights,
)
from symattn.verification.reference import Values


def one_key_less(column: int, spec: Attention, values: Values) -> Any:
    """The first or the last key takes no part."""
    n = shape(values)[-1]
    return weights(spec, values, masks.forbid(before(spec, values, "weights"), np.arange(n) != column % n))


def whole_tiles(width: int, spec: Attention, values: Values) -> Any:
    """The keys after the last full tile take no part; undefined where there is no full one."""
    n = shape(values)[-1]
    return weights(spec, values, masks.forbid(before(spec, values, "weights"), np.arange(n) < n // width * width))


def first_tiles(width: int, spec: Attention, values: Values) -> Any:
    """No more than so many keys take part."""
    n = shape(values)[-1]
    return weights(spec, values, masks.forbid(before(spec, values, "weights"), np.arange(n) < width))


def padded_tile(width: int, spec: Attention, values: Values) -> Any:
    """Zero keys that fill the last tile take part in the sum."""
    return padded(-shape(values)[-1] % width, spec, values)


def padded(extra: int, spec: Attention, values: Values) -> Any:
    """So many keys of zeros take part in the sum, and their values are zeros."""
    xp, s = namespace_of(values["scores"]), before(spec, values, "weights")
    m = xp.maximum(softmax.row_max(s), 0)
    e = softmax.powers(s - m, spec.base)
    return e / (xp.sum(e, axis=-1, keepdims=True) + softmax.powers(-m, spec.base) * extra)


def unfilled(capacity: Callable[[int], int], spec: Attention, values: Values) -> Any:
    """Slots of a cache that hold no key yet, all zeros, take part: those that are forbidden and those that fill up."""
    xp, s = namespace_of(values["scores"]), before(spec, values, "weights")
    open_ = np.asarray(xp.isfinite(s))
    n = shape(values)[-1]
    extra = max(capacity(n), n) - open_.sum(axis=-1, keepdims=True)
    m = xp.maximum(softmax.row_max(s), 0)
    e = softmax.powers(s - m, spec.base)
    return e / (xp.sum(e, axis=-1, keepdims=True) + softmax.powers(-m, spec.base) * extra)


def _exactly(capacity: int, n: int) -> int:
    return capacity


def _next_power(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _next_multiple(of: int, n: int) -> int:
    return -(-n // of) * of


_CAPACITIES: dict[str, Callable[[int], int]] = {
    "as many as there are keys": lambda n: n,
    "as many as the next power of two": _next_power,
    **{f"{n} in all": partial(_exactly, n) for n in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)},
    **{f"a multiple of {n}": partial(_next_multiple, n) for n in (16, 32, 64, 128)},
}


def mean_where_empty(spec: Attention, values: Values) -> Any:
    """A row without any key weighs all keys alike."""
    s = before(spec, values, "weights")
    xp = namespace_of(s)
    none = ~np.asarray(xp.isfinite(s)).any(axis=-1, keepdims=True)
    return parts(spec, values, xp.where(none, 0, s)).e / parts(spec, values, xp.where(none, 0, s)).total


MISTAKES: tuple[Mistake, ...] = (
    in_steps("mask", "the last key is dropped", softmaxed, weights=partial(one_key_less, -1)),
    in_steps("mask", "the first key is dropped", softmaxed, weights=partial(one_key_less, 0)),
    *(
        in_steps(
            "mask", f"keys after the last full tile of {n} are dropped", softmaxed, weights=partial(whole_tiles, n)
        )
        for n in (2, 4, 8, 16, 32, 64, 128)
    ),
    *(
        in_steps("mask", f"only the first {n} keys take part", softmaxed, weights=partial(first_tiles, n))
        for n in (8, 16, 32, 64, 128)
    ),
    *(
        in_steps(
            "mask",
            f"zero keys that fill the last tile of {n} take part",
            plain_softmax,
            rows=False,
            weights=partial(padded_tile, n),
        )
        for n in (2, 4, 8, 16, 32, 64, 128)
    ),
    *(
        in_steps(
            "mask",
            f"unfilled zero keys take part: {n} slots more than there are keys",
            plain_softmax,
            rows=False,
            weights=partial(padded, n),
        )
        for n in (1, 2, 3, 4)
    ),
    *(
        in_steps(
            "mask",
            f"empty slots of a static cache (zeros) take part: {words}",
            both(plain_softmax, masked) if words.startswith("a multiple") else plain_softmax,
            rows=False,
            weights=partial(unfilled, capacity),
        )
        for words, capacity in _CAPACITIES.items()
    ),
    in_steps("mask", "a row without any key gives the mean of all values", masked, weights=mean_where_empty),
)
