"""A model is asked in several ways: each is run in both precisions, and held against the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from symattn.models.comparing import defined
from symattn.models.comparing.cache_losses import Recorded
from symattn.models.comparing.generated import WayResult
from symattn.models.comparing.generation_ways import Cache, GenerationWay, plain_cache
from symattn.models.comparing.held import StateDifference, StateErrors
from symattn.models.comparing.models import Array, Model, Positions, States, Text
from symattn.models.comparing.prefill_reference import Candidate, Reference, alone

_SEEN = 64  # tokens up to which it is asked which of them a place sees


@dataclass(frozen=True)
class WayRunner:
    """A model in both precisions, the reference, and what the ways are run on."""

    own: Model
    wide: Model
    reference: Reference
    sequences: tuple[Text, ...]
    positions: Positions
    pad: int
    dtype: str

    def row(self, way: GenerationWay) -> WayResult:
        """Run one way, and compare it with the reference."""
        stored = Recorded(), Recorded()
        try:
            own, wide = (
                replace(way, cache=_looked_at(way, one)).run(model, self.sequences, self.positions, self.pad)
                for model, one in zip((self.own, self.wide), stored, strict=True)
            )
            sides = self._sides(way, stored)
        except Exception as error:  # whatever a model or a cache does that cannot do this
            result = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:160]
            return WayResult(way.name, reason=result, stored=stored[1].lost() or stored[0].lost())
        held = [self._held(own, wide, side) for side in sides]
        places = [_first(outcome) for outcome in held]
        first = next((place for place in places if place is not None), None)
        if first is not None and not first.own and not stored[1].steps:
            first = replace(first, seen=self._sees(way, first))
        open_ = len(places) > 1 and places[0] is None and places[1] is not None  # right by its own side alone
        last = held[-1]
        row = WayResult(
            way.name, first, used=max(one.used for one in last), off=_most(one.off[-1] for one in last),
            apart=_most(one.apart[-1] for one in last), rounding=_most(one.mine[-1] for one in last),
            prefill=_most(one.alone[-1] for one in last), doubt=self.reference.doubt if open_ else "",
            unclear=next((one.unclear for one in last if one.unclear), ""),
            stored=stored[1].lost() or stored[0].lost(), moved=self._quantised(wide) if stored[1].steps else (),
        )  # fmt: skip
        return self._of_exact(way, row) if stored[1].steps else row

    def _sides(self, way: GenerationWay, stored: tuple[Recorded, Recorded]) -> tuple[Candidate, ...]:
        """Return the references of a way, one after the other: where there is doubt, that of its own side first."""
        reference, name = self.reference, way.implementation or self.own.own
        if stored[1].steps:
            return (self._replayed(way, stored),)
        if way.other:
            return (reference.mine or reference.chosen,)
        return (*((reference.others[name],) if name in reference.others else ()), reference.chosen)

    def _replayed(self, way: GenerationWay, stored: tuple[Recorded, Recorded]) -> Candidate:
        """Replay what the cache gave back from a cache that is exact, by the attention of the reference."""
        name = self.reference.chosen.implementation
        name = defined.EAGER if way.padding and name == defined.CONFIGURED else name
        own, wide = (
            replace(way, cache=_again(one), implementation=by).run(model, self.sequences, self.positions, self.pad)
            for model, one, by in zip((self.own, self.wide), stored, (None, name), strict=True)
        )
        return Candidate(name, tuple(wide), tuple(own))

    def _of_exact(self, way: GenerationWay, row: WayResult) -> WayResult:
        """Wrong, too, where the same way is from an exact cache: masks of padding and positions are those of both."""
        if row.wrong or row.differs:
            return row
        exact = self.row(replace(way, cache=plain_cache))
        return replace(row, first=exact.first, doubt=exact.doubt) if exact.first else row

    def _quantised(self, wide: Sequence[States]) -> tuple[float, ...]:
        """How far quantisation moves each state in float64, the logits last."""
        pairs = list(zip(wide, self.reference.chosen.wide, strict=False))
        return tuple(
            max(float(np.abs(read.states[k] - exact.states[k][: read.tokens]).max()) for read, exact in pairs)
            for k in range(len(wide[0].states))
        )

    def _held(self, own: Sequence[States], wide: Sequence[States], side: Candidate) -> list[StateErrors]:
        return [
            StateErrors.of(o, w, side.own[k], side.wide[k], self.dtype)
            for k, (o, w) in enumerate(zip(own, wide, strict=True))
        ]

    def _sees(self, way: GenerationWay, at: StateDifference) -> str:
        """Which tokens change the state at a place, in words, where these are not those of the reference."""
        if len(self.sequences[at.item]) > _SEEN:
            return ""
        causal, way = way.other, replace(way, other=False)
        before = self._at(way, self.sequences, self.pad, at), self._at(None, self.sequences, self.pad, at)
        lost, beyond = [], []
        for token in range(len(self.sequences[at.item])):
            changed = _changed(self.sequences, at.item, token)
            after = self._at(way, changed, self.pad, at), self._at(None, changed, self.pad, at)
            sees, should = (_moved(x, y, at.room) for x, y in zip(after, before, strict=True))
            should = should and not (causal and token > at.token)
            lost += [token] if should and not sees else []
            beyond += [token] if sees and not should else []
        return _in_words(
            lost, beyond, [words for words, result in self._besides(way, at) if _moved(result, before[0], at.room)]
        )

    def _besides(self, way: GenerationWay, at: StateDifference) -> Iterator[tuple[str, Array]]:
        """Yield what must change nothing, and the state at a place when it is other."""
        if way.padding or (self.own.encodes and way.items > 1):
            another = self.pad - 1 if self.pad else 1  # whichever word it is
            yield "padding", self._at(way, self.sequences, another, at)
        if way.items > 1:
            changed = self.sequences
            for k in range(len(changed)):
                changed = changed if k == at.item else _changed(changed, k, slice(None))
            yield "another sequence", self._at(way, changed, self.pad, at)
        if way.drafts:
            yield "drafts that were taken back", self._at(replace(way, draft=3), self.sequences, self.pad, at)

    def _at(self, way: GenerationWay | None, sequences: tuple[Text, ...], pad: int, at: StateDifference) -> Array:
        """The float64 state of a way, or of the reference, at a place."""
        if way is not None:
            read = way.run(self.wide, sequences, self.positions, pad)[at.item]
        else:
            read = alone(self.wide, sequences[at.item], self.reference.chosen.implementation)
        state: Array = read.states[at.state][at.token]
        return state


def _changed(sequences: tuple[Text, ...], item: int, at: int | slice) -> tuple[Text, ...]:
    """The sequences, one of them with another word at a place."""
    return tuple(text.changed(at) if k == item else text for k, text in enumerate(sequences))


def _looked_at(way: GenerationWay, stored: Recorded) -> Cache | None:
    make = way.cache
    return None if make is None else lambda config, length: stored.on(make(config, length))


def _again(stored: Recorded) -> Cache:
    return lambda config, length: stored.replay()


def _first(held: Sequence[StateErrors]) -> StateDifference | None:
    """The first place of all sequences, by its layer."""
    places = [place for k, one in enumerate(held) if (place := one.first(k)) is not None]
    return min(places, key=lambda place: place.state, default=None)


def _moved(a: Array, b: Array, room: float) -> bool:
    return not bool(np.abs(a - b).max() <= room)


def _most(found: object) -> float:
    return max(float(np.max(a)) for a in found)  # type: ignore[attr-defined]


def _in_words(lost: Sequence[int], beyond: Sequence[int], besides: Sequence[str]) -> str:
    result = [f"does not see {_tokens(lost)}"] if lost else []
    result += [f"sees {_tokens(beyond)}, which it must not"] if beyond else []
    result += [f"sees {words}" for words in besides]
    return " and ".join(result)


def _tokens(which: Sequence[int]) -> str:
    return ("token " if len(which) == 1 else "tokens ") + ", ".join(map(str, which))
