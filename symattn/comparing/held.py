"""A way beside the reference, state by state and token by token: what rounding explains, and what it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.arrays.formats import Format
from symattn.comparing.common import plain
from symattn.comparing.models import Array, Read

_ROOM = 2.0**10  # times the rounding that was measured, scaled to float64: what counts as rounding there
_U64 = 2.0**-53


@dataclass(frozen=True)
class Difference:
    """The first place at which float64 differs by more than rounding.

    item    which sequence of the batch
    state   0 the embeddings, l what the layer l − 1 gives, and one more for the logits
    layer   the same in words
    token   its place in the sequence, from 0
    off     the largest difference of an entry there, in float64
    room    what rounding may explain there
    seen    which tokens the way sees there that it must not, or does not see, in words
    """

    item: int
    state: int
    layer: str
    token: int
    off: float
    room: float
    seen: str = ""

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "sequence": self.item, "layer": self.layer, "token": self.token, "off": plain(self.off),
            "room": self.room, "seen": self.seen,
        }  # fmt: skip


@dataclass(frozen=True)
class Held:
    """For each state and token the largest entry of: ``off``, the difference in float64; ``mine`` and ``alone``, the
    distances of the way and of the reference, in the model's own type, from their float64 selves; ``apart``, the
    difference in that type. ``room`` is what counts as rounding in float64, for each state.
    """

    off: tuple[Array, ...]
    mine: tuple[Array, ...]
    alone: tuple[Array, ...]
    apart: tuple[Array, ...]
    room: tuple[float, ...]

    @classmethod
    def of(cls, own: Read, wide: Read, own_reference: Read, reference: Read, dtype: str) -> Held:
        """Of what came of both, in the model's own type and in float64."""
        n = wide.tokens
        found = [
            (_largest(w - r[:n]), _largest(o - w), _largest(p[:n] - r[:n]), _largest(o - p[:n]))
            for o, w, p, r in zip(own.states, wide.states, own_reference.states, reference.states, strict=True)
        ]
        off, mine, alone, apart = (tuple(column) for column in zip(*found, strict=True))
        room = tuple(map(lambda m, a, r: _room(m, a, r, dtype), mine, alone, reference.states))
        return cls(off, mine, alone, apart, room)

    def first(self, item: int) -> Difference | None:
        """The first token of the first state that is beyond the room; None where none is."""
        for state, (off, room) in enumerate(zip(self.off, self.room, strict=True)):
            beyond = np.flatnonzero(~(off <= room))
            if beyond.size:
                token = int(beyond[0])
                return Difference(item, state, self._layer(state), token, float(off[token]), room)
        return None

    @property
    def used(self) -> float:
        """The largest part of the room that is taken."""
        return max(
            float(np.nan_to_num(off / room, nan=np.inf).max()) for off, room in zip(self.off, self.room, strict=True)
        )

    def _layer(self, state: int) -> str:
        if state == 0:
            return "embeddings"
        return "logits" if state == len(self.off) - 1 else f"layers.{state - 1}"


def _room(mine: Array, alone: Array, reference: Array, dtype: str) -> float:
    """2¹⁰ (u₆₄/u · the largest rounding error of both + u₆₄ · the largest entry).

    A rounding error of the model's own type shrinks by the ratio of the unit roundoffs in float64, since to first order
    both are the same sum of local errors; an error of meaning does not shrink. The factor leaves room for second order,
    and for sums that happen to cancel in one of the two.
    """
    ratio = _U64 / float(Format(dtype).u)
    measured = max(_finite(mine), _finite(alone))
    return _ROOM * (ratio * measured + _U64 * max(_finite(np.abs(reference)), 1e-30))


def _finite(a: Array) -> float:
    return float(a[np.isfinite(a)].max(initial=0.0))


def _largest(a: Array) -> Array:
    found: Array = np.abs(a).max(axis=-1)
    return found
