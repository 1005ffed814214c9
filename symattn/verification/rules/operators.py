"""Changes of any array: entries change, an axis is read otherwise, a part is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import softmax
from symattn.bounds.mistake import Mistake
from symattn.verification.rules.places import MistakePlace, Operation


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

    def at(self, place: MistakePlace) -> Mistake:
        """The mistake of doing it to a place."""
        exact = self.exact and place.words not in ("outputs", "outputs of the heads")
        blamed = place.order if self.moves else place.step
        return Mistake(
            blamed, self.words.format(place.words), place.variant(self.run), in_floats=not exact, general=True
        )


_moved = partial(Operator, moves=True, exact=True)


def operators(axes: Sequence[str]) -> Iterator[Operator]:
    """Yield the operators for an array whose axes are called so, the last one first."""
    yield from ENTRIES
    for number, axis in enumerate(axes):
        yield from _along(-1 - number, axis)
    if axes:
        yield _moved("{} are read as if they were transposed", lambda x: namespace_of(x).reshape(x.mT, x.shape))
    if axes[2:3] == ("head",):
        words = f"{{}} are read with heads and {axes[1]} positions mixed: by a reshape alone, their axis not moved"
        yield _moved(words, _over(-3, lambda xp, x: xp.reshape(xp.swapaxes(x, -3, -2), x.shape)))


def _along(axis: int, name: str) -> Iterator[Operator]:
    plural = "queries" if name == "query" else f"{name}s"
    over = partial(_over, axis)
    yield _moved(f"{{}} are taken from the last {name} to the first", over(lambda xp, x: xp.flip(x, axis=axis)))
    yield _moved(f"{{}} are those of the next {name}", over(lambda xp, x: xp.roll(x, -1, axis=axis)))
    yield _moved(f"{{}} are those of the {name} before", over(lambda xp, x: xp.roll(x, 1, axis=axis)))
    yield _moved(f"the {{}} of the first {name} are used for all {plural}", partial(one, axis, 0))
    yield _moved(f"the {{}} of the last {name} are used for all {plural}", partial(one, axis, -1))
    halves = over(lambda xp, x: xp.roll(x, -(int(x.shape[axis]) // 2), axis=axis))
    yield _moved(f"the two halves of the {plural} of {{}} are exchanged", halves)
    yield Operator(f"the {{}} of the first {name} are lost: 0 is used instead", partial(_lost, axis, 0), exact=True)
    yield Operator(f"the {{}} of the last {name} are lost: 0 is used instead", partial(_lost, axis, -1), exact=True)
    mean = over(lambda xp, x: xp.broadcast_to(xp.mean(x, axis=axis, keepdims=True), x.shape))
    yield Operator(f"the mean of the {{}} over the {plural} is used for each", mean)
    yield Operator(f"the mean over the {plural} is subtracted from {{}}", lambda x: x - mean(x))
    unit = over(lambda xp, x: x / xp.sqrt(xp.sum(x * x, axis=axis, keepdims=True)))
    yield Operator(f"{{}} are divided by their length over the {plural}", unit)
    shares = over(lambda xp, x: x / xp.sum(x, axis=axis, keepdims=True))
    yield Operator(f"{{}} are divided by their sum over the {plural}", shares)
    running = over(lambda xp, x: xp.cumulative_sum(x, axis=axis))
    yield Operator(f"running sums of {{}} over the {plural} are taken", running)
    weights = over(lambda xp, x: xp.moveaxis(softmax.softmax(xp.moveaxis(x, axis, -1)), -1, axis))
    yield Operator(f"{{}} go through a softmax over the {plural}", weights)


def _function(name: str) -> Operation:
    return lambda x: getattr(namespace_of(x), name)(x)


def _finite(x: Any, make: Callable[[Any], Any]) -> Array:
    """An operation on numbers, with −∞ as it is."""
    xp = namespace_of(x)
    there = xp.isfinite(x)
    return xp.where(there, make(xp.where(there, x, 0)), x)


#: What may happen to each entry by itself.
ENTRIES: tuple[Operator, ...] = (
    Operator("{} are taken with the other sign", lambda x: _finite(x, lambda y: -y), exact=True),
    Operator("absolute values of {} are taken", lambda x: _finite(x, _function("abs"))),
    Operator("negative {} become 0", lambda x: _finite(x, lambda x: namespace_of(x).maximum(x, 0))),
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


def _over(axis: int, operation: Callable[[Any, Any], Any]) -> Operation:
    """An operation on a namespace and an array that has the axis."""

    def run(x: Any) -> Any:
        _needs(x, axis)
        return operation(namespace_of(x), x)

    return run


def one(axis: int, place: int, x: Any) -> Any:
    """One entry of an axis in the place of all."""
    n = _needs(x, axis)
    at = (..., slice(place % n, place % n + 1), *(slice(None),) * (-axis - 1))
    return namespace_of(x).broadcast_to(x[at], x.shape)


def _lost(axis: int, place: int, x: Any) -> Any:
    n = _needs(x, axis)
    left = (np.arange(n) != place % n).astype(float).reshape(-1, *(1,) * (-axis - 1))
    return _finite(x, lambda y: y * left)
