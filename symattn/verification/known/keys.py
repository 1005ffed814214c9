"""Mistakes in which keys take part: tiles that are dropped, zeros that fill up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import masks, softmax
from symattn.attention.spec import Attention
from symattn.verification.known.masks import added, allowed, forbid, queries_padded
from symattn.verification.known.mistake import (
    Mistake,
    before,
    both,
    in_inputs,
    in_steps,
    masked,
    number,
    own,
    plain_softmax,
    several,
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


def where_empty(level: float | None, spec: Attention, values: Values) -> Any:
    """Rows without any key get equal scores in place of −∞, or the scores that they had before the mask (None)."""
    s = own(spec, values, "masked")
    return filled_where_empty(level, spec, values, s)


def filled_where_empty(level: float | None, spec: Attention, values: Values, s: Any) -> Any:
    """Masked scores, with another level in rows without any key."""
    xp = namespace_of(s)
    none = ~np.asarray(xp.isfinite(s)).any(axis=-1, keepdims=True)
    return xp.where(none, added(spec, values) if level is None else number(s, level), s)


def queries_padded_and_filled(spec: Attention, values: Values) -> Any:
    """Padding taken from the queries, with a finite number in place of −∞: such a row gives the mean."""
    return filled_where_empty(0.0, spec, values, queries_padded(spec, values))


def _last_kept(a: np.ndarray) -> np.ndarray:
    """The place of the last key that is kept, −1 without any."""
    n = a.shape[-1]
    return np.where(a.any(axis=-1, keepdims=True), n - 1 - a[..., ::-1].argmax(axis=-1)[..., None], -1)


def longer(by: int, spec: Attention, a: np.ndarray) -> np.ndarray:
    """Keys kept up to one place further on, or one place less."""
    at, j = _last_kept(a), np.arange(a.shape[-1])
    return a | (j == at + 1) if by > 0 else a & (j < at)


def repeated_in_the_wrong_order(spec: Attention, values: Values) -> Any:
    """Items and heads in one axis, item by item; the padding of all items repeated as a whole.

    Row r = b·h + i of the joined axis gets the padding of the item r mod B, not of b.
    """
    bare, keep = replace(spec, padding=False), np.asarray(values["keep"])
    batch, heads = shape(values)[0], spec.heads
    if len(shape(values)) != 4 or keep.ndim < 2 or keep.shape[0] != batch or batch == 1:
        raise KeyError("there is one item only")
    rows = keep.reshape(batch, -1)[np.arange(batch * heads) % batch].reshape(batch, heads, 1, -1)
    open_ = allowed(bare, values) if bare.masks_anything else np.ones(shape(values), dtype=bool)
    return filled_where_empty(0.0, spec, values, forbid(spec, values, open_ & rows))


def _padding(spec: Attention) -> bool:
    return spec.padding


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
    in_steps("mask", "a row without any key gives the mean of all values", masked, masked=partial(where_empty, 0.0)),
    in_steps(
        "mask",
        "a row without any key is not masked at all: a large number is taken from all its scores alike",
        masked,
        masked=partial(where_empty, None),
    ),
    in_steps(
        "mask",
        "padding is applied to queries, not to keys (rows of padding give the mean of all values)",
        _padding,
        masked=queries_padded_and_filled,
    ),
    in_inputs("mask", "lengths are off by one: one key of the padding is seen", _padding, keep=partial(longer, 1)),
    in_inputs("mask", "lengths are off by one: the last valid key is not seen", _padding, keep=partial(longer, -1)),
    in_steps(
        "mask",
        "padding is that of another item of the batch: masks are repeated for heads in the wrong order",
        both(several, _padding),
        masked=repeated_in_the_wrong_order,
    ),
)
