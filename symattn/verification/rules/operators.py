"""What may happen to an array, whichever it is: entries change, an axis is read otherwise, a part is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import softmax
from symattn.bounds.mistake import Mistake
from symattn.verification.rules.places import Operation, Place


@dataclass(frozen=True)
class Operator:
    """An operation, and what it does in words, with the place in place of {}.

    ``moves`` says that entries are right and stand elsewhere; ``exact`` that the operation rounds nothing, so that the
    bound for the variant holds; the others are judged in float64.
    """

    words: str
    run: Operation
    moves: bool = False
    exact: bool = False

    def at(self, place: Place) -> Mistake:
        """The mistake of doing it to a place."""
        exact = self.exact and place.words not in ("outputs", "outputs of the heads")
        blamed = place.order if self.moves else place.step
        return Mistake(
            blamed, self.words.format(place.words), place.variant(self.run), in_floats=not exact, general=True
        )


def operators(place: Place) -> Iterator[Operator]:
    """The operators for the axes that a place has."""
    yield from ENTRIES
    for number, axis in enumerate(place.axes):
        yield from _along(-1 - number, axis)
    if place.axes:
        yield Operator("{} are read as if they were transposed", _read_transposed, moves=True, exact=True)
    if "head" in place.axes:
        words = (
            f"{{}} are read with heads and {place.axes[1]} positions mixed: by a reshape alone, their axis not moved"
        )
        yield Operator(words, _mixed, moves=True, exact=True)


def _along(axis: int, name: str) -> Iterator[Operator]:
    plural = "queries" if name == "query" else f"{name}s"
    moved = partial(Operator, moves=True, exact=True)
    yield moved(f"{{}} are taken from the last {name} to the first", partial(_flip, axis))
    yield moved(f"{{}} are those of the next {name}", partial(_roll, axis, -1))
    yield moved(f"{{}} are those of the {name} before", partial(_roll, axis, 1))
    yield moved(f"the {{}} of the first {name} are taken for all {plural}", partial(one, axis, 0))
    yield moved(f"the {{}} of the last {name} are taken for all {plural}", partial(one, axis, -1))
    yield moved(f"the two halves of the {plural} of {{}} are exchanged", partial(_halves, axis))
    yield Operator(f"the {{}} of the first {name} are lost: 0 is taken for them", partial(_lost, axis, 0), exact=True)
    yield Operator(f"the {{}} of the last {name} are lost: 0 is taken for them", partial(_lost, axis, -1), exact=True)
    yield Operator(f"the mean of the {{}} over the {plural} is taken for each", partial(_mean, axis))
    yield Operator(f"the mean over the {plural} is subtracted from {{}}", partial(_centred, axis))
    yield Operator(f"{{}} are divided by their length over the {plural}", partial(_unit, axis))
    yield Operator(f"{{}} are divided by their sum over the {plural}", partial(_shares, axis))
    yield Operator(f"running sums of {{}} over the {plural} are taken", partial(_running, axis))
    yield Operator(f"{{}} go through a softmax over the {plural}", partial(_softmax, axis))


def _function(name: str) -> Operation:
    return lambda x: getattr(namespace_of(x), name)(x)


def _clipped(x: Any) -> Any:
    return namespace_of(x).maximum(x, 0)


def _finite(x: Any, make: Callable[[Any], Any]) -> Array:
    """An operation on numbers, with −∞ as it is."""
    xp = namespace_of(x)
    there = xp.isfinite(x)
    return xp.where(there, make(xp.where(there, x, 0)), x)


#: What may happen to each entry by itself.
ENTRIES: tuple[Operator, ...] = (
    Operator("{} are taken with the other sign", lambda x: _finite(x, lambda y: -y), exact=True),
    Operator("absolute values of {} are taken", lambda x: _finite(x, _function("abs"))),
    Operator("negative {} become 0", lambda x: _finite(x, _clipped)),
    Operator("{} are squared", lambda x: _finite(x, lambda y: y * y)),
    Operator("{} are multiplied by their absolute values", lambda x: _finite(x, lambda y: y * _function("abs")(y))),
    Operator("{} go through tanh", lambda x: _finite(x, _function("tanh"))),
    Operator("{} go through a sigmoid", lambda x: _finite(x, lambda y: 1 / (1 + _function("exp")(-y)))),
    Operator("{} are taken to be 0", lambda x: _finite(x, lambda y: y * 0), exact=True),
    Operator("{} are taken to be 1", lambda x: _finite(x, lambda y: y * 0 + 1), exact=True),
)


def _needs(x: Array, axis: int) -> int:
    """The length of an axis. Raises ``KeyError`` where there is none: then there is nothing to mistake."""
    if len(x.shape) < -axis:
        raise KeyError("there is no such axis")
    return int(x.shape[axis])


def _flip(axis: int, x: Array) -> Array:
    _needs(x, axis)
    return namespace_of(x).flip(x, axis=axis)


def _roll(axis: int, by: int, x: Array) -> Array:
    _needs(x, axis)
    return namespace_of(x).roll(x, by, axis=axis)


def _halves(axis: int, x: Array) -> Array:
    return namespace_of(x).roll(x, -(_needs(x, axis) // 2), axis=axis)


def one(axis: int, place: int, x: Any) -> Any:
    """One entry of an axis in the place of all."""
    n = _needs(x, axis)
    at = (..., slice(place % n, place % n + 1), *(slice(None),) * (-axis - 1))
    return namespace_of(x).broadcast_to(x[at], x.shape)


def _lost(axis: int, place: int, x: Any) -> Any:
    n = _needs(x, axis)
    left = (np.arange(n) != place % n).astype(float).reshape(-1, *(1,) * (-axis - 1))
    return _finite(x, lambda y: y * left)


def _mean(axis: int, x: Any) -> Any:
    _needs(x, axis)
    xp = namespace_of(x)
    return xp.broadcast_to(xp.mean(x, axis=axis, keepdims=True), x.shape)


def _centred(axis: int, x: Any) -> Any:
    return x - _mean(axis, x)


def _unit(axis: int, x: Array) -> Array:
    _needs(x, axis)
    xp = namespace_of(x)
    return x / xp.sqrt(xp.sum(x * x, axis=axis, keepdims=True))


def _shares(axis: int, x: Any) -> Any:
    _needs(x, axis)
    return x / namespace_of(x).sum(x, axis=axis, keepdims=True)


def _running(axis: int, x: Any) -> Any:
    _needs(x, axis)
    return namespace_of(x).cumulative_sum(x, axis=axis)


def _softmax(axis: int, x: Array) -> Array:
    _needs(x, axis)
    xp = namespace_of(x)
    return xp.moveaxis(softmax.softmax(xp.moveaxis(x, axis, -1)), -1, axis)


def _read_transposed(x: Array) -> Array:
    return namespace_of(x).reshape(x.mT, x.shape)


def _mixed(x: Array) -> Array:
    _needs(x, -3)
    xp = namespace_of(x)
    return xp.reshape(xp.swapaxes(x, -3, -2), x.shape)
