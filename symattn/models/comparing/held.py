"""A way beside the reference, state by state and token by token: what rounding explains, and what it does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from symattn.arrays.formats import Format
from symattn.models.comparing.models import Array, States

_ROOM = 2.0**10  # times the rounding that was measured, scaled to float64: what counts as rounding there
_COARSEST = 2.0**10  # times the reference's rounding: more of the way's own is not taken for rounding in float64
_U64 = 2.0**-53
_LEAST = 1e-30
ROUGH = 16.0  # times the rounding of the prefill, above which it is told
_LARGE = 1 / 16  # of the largest entry: what is as far from its float64 self says little of what was meant


@dataclass(frozen=True)
class StateDifference:
    """The first place at which float64 differs by more than rounding.

    item    which sequence of the batch
    state   0 the embeddings, l what the layer l − 1 gives, and one more for the logits
    layer   the same in words
    token   its place in the sequence, from 0
    off     the largest difference of an entry there, in float64
    room    what rounding may explain there
    seen    which tokens the way sees there that it must not, or does not see, in words
    own     what is wrong in the model's own type, in words, where float64 does not differ
    """

    item: int
    state: int
    layer: str
    token: int
    off: float
    room: float
    seen: str = ""
    own: str = ""

    RECORD = "sequence = item, layer, token, off, room, seen, own"


@dataclass(frozen=True)
class StateErrors:
    """For each state and token the largest entry of: ``off``, the difference in float64; ``mine`` and ``alone``, the
    distances of the way and of the reference, in the model's own type, from their float64 selves; ``apart``, the
    difference in that type. ``room`` is what counts as rounding in float64, and ``size`` the reference's largest entry,
    for each state. ``broken`` are the tokens with an entry that is not finite in the model's own type where the
    reference's is, ``blind`` those where the reference's is not finite in that type, and is in float64.
    """

    off: tuple[Array, ...]
    mine: tuple[Array, ...]
    alone: tuple[Array, ...]
    apart: tuple[Array, ...]
    broken: tuple[Array, ...]
    blind: tuple[Array, ...]
    room: tuple[float, ...]
    size: tuple[float, ...]
    dtype: str

    @classmethod
    def of(cls, own: States, wide: States, own_reference: States, reference: States, dtype: str) -> StateErrors:
        """Compare both in the model's own type and in float64."""
        n = wide.tokens
        four = list(zip(own.states, wide.states, own_reference.states, reference.states, strict=True))
        columns = [
            (_apart(w, r[:n]), _apart(o, w), _apart(p[:n], r[:n]), _apart(o, p[:n]), _missing(o, p[:n]),
             _missing(p[:n], r[:n]))
            for o, w, p, r in four
        ]  # fmt: skip
        off, mine, alone, apart, broken, blind = (tuple(column) for column in zip(*columns, strict=True))
        size = tuple(_finite(np.abs(r)) for r in reference.states)
        room = tuple(map(lambda m, a, s: _room(m, a, s, dtype), mine, alone, size))
        return cls(off, mine, alone, apart, broken, blind, room, size, dtype)

    def first(self, item: int) -> StateDifference | None:
        """The first token of the first state that is beyond the room, or that is not finite in the model's own type
        where the reference's is; None where none is."""
        for state, (off, room, broken) in enumerate(zip(self.off, self.room, self.broken, strict=True)):
            beyond = ~(off <= room)
            places = np.flatnonzero(beyond | broken)
            if places.size:
                token = int(places[0])
                own = "" if beyond[token] else f"in {self.dtype} it is not finite, where the reference is"
                return StateDifference(item, state, self._layer(state), token, float(off[token]), room, own=own)
        return None

    @property
    def unclear(self) -> str:
        """Why what was computed in the model's own type tells nothing of the way; empty where it does."""
        for state, (mine, alone, blind) in enumerate(zip(self.mine, self.alone, self.blind, strict=True)):
            if blind.any():
                return f"the reference itself is not finite in {self.dtype} from {self._layer(state)} on"
            far, usual = float(mine.max()), float(alone.max())
            if not far <= max(ROUGH * usual, _LARGE * self.size[state]):
                result = f"in {self.dtype} it is {far:.2g} from its float64 self at {self._layer(state)}"
                return (
                    f"{result}, where entries are at most {self.size[state]:.2g} and the reference is {usual:.1g} from "
                    "its own: it is wrong in that type alone, or a choice, as of experts, went another way by rounding"
                )
        return ""

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


def _room(mine: Array, alone: Array, size: float, dtype: str) -> float:
    """2¹⁰ (u₆₄/u · the largest rounding error of both + u₆₄ · the largest entry).

    A rounding error of the model's own type shrinks by the ratio of the unit roundoffs in float64, since to first order
    both are the same sum of local errors; an error of meaning does not shrink. The factor leaves room for second order,
    and for sums that happen to cancel in one of the two. Errors of the way alone count up to 2¹⁰ times those of the
    reference, or units in the last place of its largest entry: what is further off is no rounding, and excuses nothing.
    """
    u, size = float(Format(dtype).u), max(size, _LEAST)
    usual = _finite(alone)
    measured = max(usual, min(_finite(mine), _COARSEST * max(usual, u * size)))
    return _ROOM * (_U64 / u * measured + _U64 * size)


def _finite(a: Array) -> float:
    return float(a[np.isfinite(a)].max(initial=0.0))


def _apart(a: Array, b: Array) -> Array:
    """The largest difference of an entry of each token; equal infinities, as of words ruled out, differ by 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        result: Array = np.where(a == b, 0.0, np.abs(a - b)).max(axis=-1)
    return result


def _missing(a: Array, b: Array) -> Array:
    """The tokens with an entry that is not finite where the other is."""
    result: Array = (~np.isfinite(a) & np.isfinite(b)).any(axis=-1)
    return result
