"""Masks by places, which queries are looked at, and the mask that configuration, padding and cache call for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symattn.attention.enclosing.pattern import heads
from symattn.attention.spec import Attention
from symattn.bounds.sharp.blocks import allowed
from symattn.bounds.sharp.sample import chosen
from symattn.models.auditing.setting import Mask
from symattn.verification.rules.masking import wrong_places

_MOST = 1 << 24  # places of a whole mask up to which mistakes in it are tried


@dataclass(frozen=True, eq=False)
class Masking:
    """Queries ``rows`` of ``n_q``, the last of ``total`` tokens, meet ``n_k`` keys.

    The keys are the last ``n_k`` tokens where there are fewer than ``total`` (a window's cache keeps no others), else
    the first ones, and places after them that a static cache has in store. ``keep`` (b, total) is False for padding,
    ``documents`` (b, total) labels packed documents. ``spec`` says what goes by places; ``crossed`` that queries are
    other tokens than keys. ``left_out`` (b, h, r) are queries that are of no account.
    """

    spec: Attention
    rows: list[int]
    n_q: int
    n_k: int
    total: int
    keep: Mask | None = None
    documents: NDArray[np.int64] | None = None
    crossed: bool = False
    left_out: Mask | None = None

    def allowed(self) -> Mask:
        """(b or 1, 1, r, n_k)."""
        return self._with(self._places(), self.keep)

    def of_padding(self) -> Mask:
        """Which of the queries are padding, (b or 1, r): what they give is of no account."""
        if self.keep is None or self.crossed:
            return np.zeros((1, len(self.rows)), dtype=bool)
        return ~self._own(self.keep)

    def mistakes(self) -> Iterator[tuple[str, Mask]]:
        """Known mistakes in such a mask, in words."""
        right = self.allowed()
        yield "the mask is ignored", self._counting(np.ones_like(right))
        yield "the mask is inverted", self._counting(~right)
        spec = replace(self.spec, padding=self.keep is not None)
        if self.n_q * self.total <= _MOST:
            for words, wrong in wrong_places(spec):
                seen = wrong.open(self.n_q, self.total, spec.alignment == "top-left")[self.rows]
                yield words, self._with(seen, self.keep)
        places = self._places()
        if places is not None and self.n_q < self.total:
            seen = visible(replace(spec, padding=False, alignment="top-left"), self.rows, self.n_q, self.total)
            yield (
                "places of queries are counted from the first key, as if there were no cache",
                self._with(seen, self.keep),
            )
        if self.keep is not None:
            yield "the padding mask is left out", self._with(places, None)
            yield "the padding mask is inverted", self._with(places, ~self.keep)
            yield "the padding mask is that of the next item of the batch", self._with(places, np.roll(self.keep, 1, 0))
        if self.documents is not None:
            yield "the documents are ignored", replace(self, documents=None).allowed()

    def _places(self) -> Mask | None:
        """Return the mask by places. Blocks begin at the first token that is no padding."""
        if not replace(self.spec, padding=False).masks_anything:
            return None
        if self.spec.block is None or self.keep is None:
            return visible(self.spec, self.rows, self.n_q, self.total)
        block = (np.arange(self.total) - self.keep.argmax(axis=1)[:, None]) // self.spec.block
        same = self._own(block)[:, None, :, None] == block[:, None, None, :]
        return np.asarray(same & visible(replace(self.spec, block=None), self.rows, self.n_q, self.total))

    def _own(self, of_tokens: NDArray[Any]) -> NDArray[Any]:
        """The columns (b, r) of the queries among those of all tokens."""
        return of_tokens[:, [self.total - self.n_q + i for i in self.rows]]

    def _with(self, places: Mask | None, keep: Mask | None) -> Mask:
        allowed = np.ones((1, 1, len(self.rows), self.total), dtype=bool)
        if places is not None:
            allowed = allowed & places
        if keep is not None:
            allowed = allowed & keep[:, None, None, :]
        if self.documents is not None:
            allowed = allowed & (self._own(self.documents)[:, None, :, None] == self.documents[:, None, None, :])
        first = max(0, self.total - self.n_k)
        more = self.n_k - (self.total - first)
        return self._counting(np.pad(allowed[..., first:], ((0, 0), (0, 0), (0, 0), (0, more))))

    def _counting(self, mask: Mask) -> Mask:
        return mask if self.left_out is None else mask & ~self.left_out[..., None]


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
    rows: set[int] = set()
    shapes = {"q": np.broadcast_to(0.0, (n_q, 1)), "k": np.broadcast_to(0.0, (n_k, 1))}
    for spec in specs or [Attention()]:
        rows |= set(chosen(spec, shapes, count))
    return sorted(rows | {i for i in _edges(mask, n_q) if 0 <= i < n_q})


def _edges(mask: Any, n_q: int) -> Iterator[int]:
    """Rows of a mask (…, n_q, n_k) beside those where the first key is hidden or shown, in the first item."""
    if mask is None or not hasattr(mask, "ndim") or mask.ndim < 2 or mask.shape[-2] != n_q:
        return
    first = mask[(0,) * (mask.ndim - 2)][:, 0]
    open_ = (first if str(first.dtype) == "torch.bool" else first > -1e4).detach().cpu().numpy()
    for at in np.flatnonzero(open_[1:] != open_[:-1])[:2]:
        yield from (int(at), int(at) + 1)
