"""``directions``: what known mistakes do to an output, to first order in their size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from symattn.verification.sharp.blocks import Block
from symattn.verification.sharp.limits import Floats

_BLOCKS = 16  # of keys, at most, that are lost together
_LEAST = 64  # keys in such a block


class Direction(NamedTuple):
    """x, (r, d_v), and how θ and its half interval read."""

    words: Callable[[float, float], str]
    x: Floats


def directions(b: Block) -> Iterator[Direction]:
    """What known mistakes do to the output, to first order in their size."""
    t, free = (np.where(b.p > 0, a, 0.0) for a in (b.raw, b.free))

    def change(w: Floats) -> Floats:
        return np.asarray(b.times(w) - w.sum(axis=1, keepdims=True) * b.o)

    if b.cap is not None:
        lifted = change(b.p * (free - t))
        yield Direction(lambda x, off: f"as if the cap were ignored, to a part of {x:.3g} ± {off:.2g}", lifted)
    scaled = b.p * free if b.cap is None else b.p * free * (1 - (t / b.cap) ** 2)
    yield Direction(lambda x, off: f"as if scores were scaled by {1 + x:.5g} ± {off:.2g} of the scale", change(scaled))
    cubes = b.p * t * t * t
    yield Direction(lambda x, off: f"as if t became t {-x:+.2g} t³ (± {off:.2g}) in scores: a cap", -change(cubes))
    yield Direction(lambda x, off: f"as if outputs were scaled by {1 + x:.5g} ± {off:.2g}", b.o)
    for words, key, sign in _edges(b):
        yield Direction(_part(words), sign * _one(b, key))
    n = len(b.values)
    width = max(_LEAST, -(-n // _BLOCKS))
    for start in range(0, n, width):
        keys = slice(start, min(start + width, n))
        p = b.p[:, keys]
        lost = -(p @ b.values[keys] - p.sum(axis=1, keepdims=True) * b.o)
        yield Direction(_part(f"keys {start} to {keys.stop - 1} were lost"), lost)


def _part(words: str) -> Callable[[float, float], str]:
    return lambda x, off: f"as if {words}, or one of them, to a part of {x:.2g} ± {off:.2g}"


def _edges(b: Block) -> Iterator[tuple[str, np.ndarray, float]]:
    """The last and the first key that each query sees, and those next to them that it does not."""
    n, seen = b.p.shape[1], np.isfinite(b.t)
    some = seen.any(axis=1)
    first, last = seen.argmax(axis=1), n - 1 - seen[:, ::-1].argmax(axis=1)
    none = np.full(len(seen), -1)
    yield "the last key that is allowed were lost", np.where(some, last, none), -1.0
    yield "the first key that is allowed were lost", np.where(some, first, none), -1.0
    yield "the key after the last one were allowed", np.where(some & (last + 1 < n), last + 1, none), 1.0
    yield "the key before the first one were allowed", np.where(some & (first > 0), first - 1, none), 1.0


def _one(b: Block, key: np.ndarray) -> Floats:
    """What more weight of one key of each row does, relative to the weight it has or would have; −1: no key."""
    at = np.arange(len(key))
    own = np.where(np.isfinite(b.t), b.t, -np.inf)
    top = own.argmax(axis=1)
    base = np.exp2 if b.spec.base == 2 else np.exp
    with np.errstate(all="ignore"):
        w = b.p[at, top] * base(np.minimum(b.raw[at, key] - own[at, top], 50.0))
        x = (w / (1 + w))[:, None] * (b.values[key] - b.o)
    return np.where((key >= 0)[:, None], x, 0.0)
