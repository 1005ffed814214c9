"""Right ways to compute that are no noise: which queries and keys are stored, scaled, before they meet.

What is stored then is known, so that such a kernel is held to the output of these queries and keys instead. And the
guard: right ways to store the weights, replayed on the same rows, say whether roundings are independent there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import log, sqrt
from numbers import Real

import numpy as np

from symattn.attention.enclosing.pattern import Head
from symattn.attention.spec import Attention
from symattn.verification.sharp.blocks import Block
from symattn.verification.sharp.limits import Floats, Stores

TILE = 64


def ways(spec: Attention, head: Head, how: Stores) -> Iterator[tuple[Attention, Head]]:
    """As given; queries stored times the scale, or times the scale and log₂ e; queries and keys stored times its root.

    With wide scores only the first: nothing but weights is stored then.
    """
    yield spec, head
    s = _scale(spec, head.q.shape[-1])
    if not how.scores or spec.base == 2 or s is None or s <= 0:
        return
    stored, one = how.format.rounded, replace(spec, scale=1)
    yield one, replace(head, q=stored(head.q * s))
    yield replace(spec, scale=log(2)), replace(head, q=stored(head.q * (s / log(2))))
    yield one, replace(head, q=stored(head.q * sqrt(s)), k=stored(head.k * sqrt(s)))


def _scale(spec: Attention, width: int) -> float | None:
    if spec.scale is None:
        return 1 / sqrt(width)
    if spec.scale == "1/d_k":
        return 1 / width
    return float(spec.scale) if isinstance(spec.scale, Real | Fraction) else None


def replays(block: Block, how: Stores) -> Iterator[Floats]:
    """What right implementations return for the queries of a block: weights stored divided by their sum, relative to
    the row's largest or to the largest so far, the sum taken before or after; scores stored or not."""
    stored, last = how.format.rounded, how.returned.rounded
    for p in _weights(block, how):
        top = p.max(axis=1, keepdims=True)
        top = np.where(top > 0, top, 1.0)
        running = np.repeat(np.maximum.accumulate(_tops(p), axis=1), TILE, axis=1)[:, : p.shape[1]]
        yield last(stored(p) @ block.values)
        for reference in (top, np.where(running > 0, running, top)):
            e = stored(p / reference) * reference
            out, total = e @ block.values, e.sum(axis=1, keepdims=True) + (1 - p.sum(axis=1, keepdims=True))
            yield last(out)
            yield last(out / np.where(total > 0, total, 1.0))


def _weights(block: Block, how: Stores) -> Iterator[Floats]:
    yield block.p
    if how.scores:
        t, c = np.where(block.p > 0, block.t, 0.0), 1 / sqrt(block.width)
        kept = how.format.rounded(t if block.cap else how.format.rounded(t / c) * c)
        p = block.p * (np.exp2 if block.base == 2 else np.exp)(kept - t)
        rest = 1 - block.p.sum(axis=1, keepdims=True)
        yield p / np.maximum(p.sum(axis=1, keepdims=True) + rest, 2.0**-1000)


def _tops(p: Floats) -> Floats:
    wide = np.pad(p, [(0, 0), (0, -p.shape[1] % TILE)])
    return np.asarray(wide.reshape(len(p), -1, TILE).max(axis=-1))
