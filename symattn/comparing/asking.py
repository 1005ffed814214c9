"""A model is asked in several ways: each is run in both precisions, and held against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from symattn.comparing import defined, models
from symattn.comparing.generated import Row
from symattn.comparing.held import Difference, Held
from symattn.comparing.models import Array, Model, Positions, Read
from symattn.comparing.ways import Way
from symattn.errors import InputError

_SEEN = 64  # tokens up to which it is asked which of them a place sees


@dataclass(frozen=True)
class Reference:
    """Of each sequence alone, in one prefill: the states in float64, and in the model's own type.

    ``why`` says why attention is the model's own in float64, and is empty where it is symattn's definition.
    """

    wide: tuple[Read, ...]
    own: tuple[Read, ...]
    why: str

    @classmethod
    def of(cls, own: Model, wide: Model, sequences: Sequence[Array]) -> Reference:
        """Run it."""
        why = ""
        try:
            defined.Calls.made = 0
            found = [alone(wide, s, defined.register()) for s in sequences]
            if not defined.Calls.made:
                raise defined.Undefined("the model asks for its attention in a way of its own")
        except (defined.Undefined, ValueError, KeyError) as error:
            why = str(error).partition("\n")[0]
            found = [_own(wide, s) for s in sequences]
        return cls(tuple(found), tuple(alone(own, s, None) for s in sequences), why)


def _own(wide: Model, sequence: Array) -> Read:
    """The model's own attention in float64. Raises ``InputError`` where something in it knows no float64."""
    try:
        return alone(wide, sequence, None)
    except (RuntimeError, NotImplementedError) as error:
        words = str(error).partition("\n")[0]
        raise InputError(f"the model does not run in float64: {words}; mend: modules that take any type") from error


def alone(model: Model, sequence: Array, implementation: str | None) -> Read:
    """One prefill without cache and padding."""
    return Way("prefill", implementation=implementation).run(model, (sequence,), models.generates, 0)[0]


@dataclass(frozen=True)
class Asked:
    """A model in both precisions, the reference, and what the ways are run on."""

    own: Model
    wide: Model
    reference: Reference
    sequences: tuple[Array, ...]
    positions: Positions
    pad: int
    dtype: str

    def row(self, way: Way) -> Row:
        """What one way gives."""
        try:
            own = way.run(self.own, self.sequences, self.positions, self.pad)
            wide = way.run(self.wide, self.sequences, self.positions, self.pad)
        except Exception as error:  # whatever a model or a cache does that cannot do this
            return Row(way.name, reason=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:160])
        held = [
            Held.of(o, w, self.reference.own[k], self.reference.wide[k], self.dtype)
            for k, (o, w) in enumerate(zip(own, wide, strict=True))
        ]
        places = [place for k, one in enumerate(held) if (place := one.first(k)) is not None]
        first = min(places, key=lambda place: place.state, default=None)
        if first is not None:
            first = replace(first, seen=self._sees(way, first))
        return Row(
            way.name, first, used=max(one.used for one in held), off=_most(one.off[-1] for one in held),
            apart=_most(one.apart[-1] for one in held), rounding=_most(one.mine[-1] for one in held),
            prefill=_most(one.alone[-1] for one in held),
        )  # fmt: skip

    def _sees(self, way: Way, at: Difference) -> str:
        """Which tokens change the state at a place, in words, where these are not those of the reference."""
        if len(self.sequences[at.item]) > _SEEN:
            return ""
        before = self._at(way, self.sequences, self.pad, at), self._at(None, self.sequences, self.pad, at)
        lost, beyond = [], []
        for token in range(len(self.sequences[at.item])):
            changed = self._changed(at.item, token)
            after = self._at(way, changed, self.pad, at), self._at(None, changed, self.pad, at)
            sees, should = (_moved(x, y, at.room) for x, y in zip(after, before, strict=True))
            lost += [token] if should and not sees else []
            beyond += [token] if sees and not should else []
        padding = way.padding and _moved(self._at(way, self.sequences, self._other_pad, at), before[0], at.room)
        return _in_words(lost, beyond, bool(padding))

    @property
    def _other_pad(self) -> int:
        """A word besides the one that fills up, whichever that is."""
        return self.pad - 1 if self.pad else 1

    def _changed(self, item: int, token: int) -> tuple[Array, ...]:
        """The sequences with another word at one place."""
        other = self.sequences[item].copy()
        other[token] = 1 if other[token] != 1 else 2
        return tuple(other if k == item else s for k, s in enumerate(self.sequences))

    def _at(self, way: Way | None, sequences: tuple[Array, ...], pad: int, at: Difference) -> Array:
        """The float64 state of a way, or of the reference, at a place."""
        if way is not None:
            read = way.run(self.wide, sequences, self.positions, pad)[at.item]
        else:
            read = alone(self.wide, sequences[at.item], None if self.reference.why else defined.NAME)
        state: Array = read.states[at.state][at.token]
        return state


def _moved(a: Array, b: Array, room: float) -> bool:
    return not bool(np.abs(a - b).max() <= room)


def _most(found: object) -> float:
    return max(float(np.max(a)) for a in found)  # type: ignore[attr-defined]


def _in_words(lost: Sequence[int], beyond: Sequence[int], padding: bool) -> str:
    told = [f"does not see {_tokens(lost)}"] if lost else []
    told += [f"sees {_tokens(beyond)}, which it must not"] if beyond else []
    told += ["sees padding"] if padding else []
    return " and ".join(told)


def _tokens(which: Sequence[int]) -> str:
    return ("token " if len(which) == 1 else "tokens ") + ", ".join(map(str, which))
