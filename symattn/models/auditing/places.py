"""Masks by places, for some queries; and which queries are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from symattn.attention.enclosing.pattern import heads
from symattn.attention.spec import Attention
from symattn.bounds.sharp.blocks import allowed
from symattn.bounds.sharp.sample import chosen
from symattn.models.auditing.setting import Mask


def visible(spec: Attention, rows: list[int], n_q: int, n_k: int) -> Mask:
    """Which keys the queries ``rows`` of n_q may see by the places in a specification, (r, n_k)."""
    bare = Attention(
        causal=spec.causal, window=spec.window, block=spec.block, prefix=spec.prefix, alignment=spec.alignment
    )
    q, k = np.zeros((n_q, 1)), np.zeros((n_k, 1))
    head = next(heads(bare, {"q": q, "k": k, "v": k}))
    return np.asarray(allowed(head, np.asarray(rows), slice(0, n_k)))


def looked_at(n_q: int, n_k: int, count: int | None, specs: list[Attention], mask: Any = None) -> list[int]:
    """The queries to look at: ``count`` of them, or all for None.

    Those at the edges of windows, by the specifications or where the first key of a given mask changes, and of tiles
    are among them.
    """
    if count is None or count >= n_q:
        return list(range(n_q))
    found: set[int] = set()
    shapes = {"q": np.broadcast_to(0.0, (n_q, 1)), "k": np.broadcast_to(0.0, (n_k, 1))}
    for spec in specs or [Attention()]:
        found |= set(chosen(spec, shapes, count))
    return sorted(found | {i for i in _edges(mask, n_q) if 0 <= i < n_q})


def _edges(mask: Any, n_q: int) -> Iterator[int]:
    """Rows of a mask (…, n_q, n_k) beside those where the first key is hidden or shown, in the first item."""
    if mask is None or not hasattr(mask, "ndim") or mask.ndim < 2 or mask.shape[-2] != n_q:
        return
    first = mask[(0,) * (mask.ndim - 2)][:, 0]
    open_ = (first if str(first.dtype) == "torch.bool" else first > -1e4).detach().cpu().numpy()
    for at in np.flatnonzero(open_[1:] != open_[:-1])[:2]:
        yield from (int(at), int(at) + 1)
