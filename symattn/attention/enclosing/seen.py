"""Which keys the queries of a tile see, by the definition's own masks, and which tiles need not be looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import numpy as np

from symattn.attention import masks
from symattn.attention.masks import Places
from symattn.attention.spec import Attention


@dataclass(frozen=True)
class Seen:
    """The masks of one head; ``given`` is what ``mask`` and ``keep`` allow: (n_q or 1, n_k), or None.

    ``xp`` is the namespace of the arrays that they are for.
    """

    spec: Attention
    n_q: int
    n_k: int
    given: Any | None
    xp: Any = np

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Bounds of the keys that some of the queries start … stop − 1 may see: no key outside them is allowed."""
        first, last = self._offset + start, self._offset + stop - 1
        before, after = self._sides
        low = 0 if before is None else max(0, first - before)
        high = self.n_k if after is None else min(self.n_k, last + after + 1)
        return min(low, self.n_k), max(min(low, self.n_k), high)

    def tile(self, queries: slice, keys: slice) -> Any | None:
        """Booleans (queries, keys): what is allowed; None where everything is."""
        whole = self.mask(queries, keys)
        return None if whole is None or whole.all() else whole

    def mask(self, queries: slice, keys: slice) -> Any | None:
        """Booleans (queries, keys): what is allowed; None where no rule speaks of them."""
        found = [] if self._inside(queries, keys) else list(self._by_place(queries, keys))
        if self.given is not None:
            found.append(self.given[queries if self.given.shape[0] > 1 else slice(None), keys])
        if not found:
            return None
        return self.xp.broadcast_to(reduce(and_, found), self._shape(queries, keys))

    @staticmethod
    def _shape(queries: slice, keys: slice) -> tuple[int, int]:
        return queries.stop - queries.start, keys.stop - keys.start

    @property
    def _offset(self) -> int:
        return 0 if self.spec.alignment == "top-left" else self.n_k - self.n_q

    @property
    def _sides(self) -> tuple[int | None, int | None]:
        """How many keys before and after its own place a query may see at most, None for all of them."""
        before, after = self.spec.sides
        if self.spec.causal and self.spec.prefix is None:
            after = 0 if after is None else min(after, 0)
        return before, after

    def _inside(self, queries: slice, keys: slice) -> bool:
        """Whether every query sees every key of the tile by its place."""
        if self.spec.prefix is not None or self.spec.block is not None:
            return False
        first, last = self._offset + queries.start, self._offset + queries.stop - 1
        before, after = self._sides
        return (before is None or last - before <= keys.start) and (after is None or keys.stop - 1 <= first + after)

    def _by_place(self, queries: slice, keys: slice) -> Iterator[Any]:
        """The masks of the specification that go by position, of this tile's places."""
        spec, whole = self.spec, self._places(slice(0, self.n_q), slice(0, self.n_k))
        here = self._places(queries, keys)
        if spec.prefix is not None:
            yield masks.prefix(here, spec.prefix)
        elif spec.causal:
            yield masks.causal(here)
        if spec.window is not None:
            yield masks.sides(here, *spec.sides)
        if spec.block is not None:
            yield masks.blocks(here, masks.block_bounds(whole, spec.block))

    def _places(self, queries: slice, keys: slice) -> Places:
        i = self.xp.arange(queries.start, queries.stop)[:, None] + self._offset
        return Places(i, self.xp.arange(keys.start, keys.stop)[None, :])
