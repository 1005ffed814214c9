"""Changes of any array of the definition: changed entries, a misread axis, a lost part.

A place is an array by name, with the step to blame and its axes; an operator is a change that may happen to any array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import softmax
from symattn.attention.spec import Attention
from symattn.bounds.mistake import At, Mistake, change, step
from symattn.bounds.reference import Variant

Operation = Callable[[Any], Any]


# -- places ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class MistakePlace:
    """An array of the definition, in words; ``axes`` names its axes, the last one first.

    ``step`` is blamed if its entries are wrong, ``order`` if they are right but in wrong places. The array is the
    result of the step ``of``, or that step's argument number ``argument``.
    """

    words: str
    step: str
    order: str
    axes: tuple[str, ...]
    of: str
    argument: int | None = None

    def variant(self, operation: Operation) -> Variant:
        """Return the definition with the operation on this array."""
        # Values are no result of a step: the mistake acts where weights meet them.
        if self.of == "v":
            return Variant({"changed": change("", lambda at: operation(at.met))}, values="changed")
        return Variant(
            {self.of: change(self.of, partial(self._apply_operation_at_place, operation))},
            rows=self.of != "weights",
        )

    def _apply_operation_at_place(self, operation: Operation, at: At) -> Any:
        if self.argument is None:
            return operation(at.right())
        # The step runs again with one argument changed, so that its other arguments stay right.
        own = step(at.spec, at.values, self.of)
        return own.run(
            *(
                operation(at.values[n]) if i == self.argument else at.values[n]
                for i, n in enumerate(own.of)
            )
        )


def places(spec: Attention, names: frozenset[str]) -> Iterator[MistakePlace]:
    """Yield the places of a specification."""
    steps = {s.name: s for s in spec.pipeline(names)}
    heads = ("head",) if spec.heads > 1 else ()
    tokens, pairs = ("column", "token", *heads), ("key", "query", *heads)
    # Latent attention has no array of values, queries or keys by heads.
    if spec.latent is None:
        yield MistakePlace("values", "values", "values", tokens, "v")
    if spec.score == "dot" and spec.latent is None:
        yield MistakePlace("queries", "score", "score", tokens, "scores", 0)
        yield MistakePlace("keys", "score", "score", tokens, "scores", 1)
    yield MistakePlace("scores", "score", "score", pairs, "scores")
    yield MistakePlace("scaled scores", "score", "score", (), "scaled")
    if "bias" in names and "biased" in steps:
        yield MistakePlace(
            "biases", "bias", "bias", pairs, "biased", steps["biased"].of.index("bias")
        )
    # Wrong weights are the softmax's; right ones in wrong places meet other values.
    yield MistakePlace("weights", "normalize", "values", pairs, "weights")
    if "attended" in steps:
        yield MistakePlace("outputs of the heads", "merge", "merge", tokens, "attended")
    yield MistakePlace("outputs", "output", "merge" if heads else "output", tokens, "output")


# -- operators ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Operator:
    """An operation, and words for its effect with {} for the place.

    ``moves`` says that entries are right but in wrong places, ``scales`` that they are only scaled; ``exact`` that the
    operation rounds nothing, so that the bound for the variant holds; others are judged in float64.
    """

    words: str
    run: Operation
    moves: bool = False
    exact: bool = False
    scales: bool = False

    def blamed(self, step: str) -> str:
        """Return the step to blame for an array whose wrong entries are put down to a step."""
        return "scale" if self.scales and step == "score" else step

    def at(self, place: MistakePlace) -> Mistake:
        """Return the mistake of this operation at a place."""
        exact = self.exact and place.words not in ("outputs", "outputs of the heads")
        blamed, words = (
            self.blamed(place.order if self.moves else place.step),
            self.words.format(place.words),
        )
        return Mistake(blamed, words, place.variant(self.run), in_floats=not exact, general=True)


_moved = partial(Operator, moves=True, exact=True)


def operators(axes: Sequence[str]) -> Iterator[Operator]:
    """Yield the operators for an array with the named axes, the last one first."""
    yield from ENTRIES
    for number, axis in enumerate(axes):
        yield from _yield_operators_along_axis(-1 - number, axis)
    # A transposed reading: the numbers stay in memory, the shape is kept.
    if axes:
        # A norm may take a single row, which has nothing to transpose.
        yield _moved(
            "{} are read as if they were transposed",
            _make_axis_checking_operation(-2, lambda xp, x: xp.reshape(x.mT, x.shape)),
        )
        yield _moved(
            "{} are read column by column, but stored row by row",
            _make_axis_checking_operation(
                -2, lambda xp, x: xp.reshape(x, (*x.shape[:-2], *x.shape[:-3:-1])).mT
            ),
        )
    # Three named axes with heads in front: heads and tokens may be mixed by a reshape.
    if axes[2:3] == ("head",):
        words = f"{{}} are read with heads and {axes[1]} positions mixed: by a reshape alone, their axis not moved"
        yield _moved(
            words,
            _make_axis_checking_operation(
                -3, lambda xp, x: xp.reshape(xp.swapaxes(x, -3, -2), x.shape)
            ),
        )
        unit = _make_axis_checking_operation(
            -3, lambda xp, x: x / xp.sqrt(xp.sum(x * x, axis=(-3, -1), keepdims=True))
        )
        yield Operator(f"{{}} are divided by their length over the {axes[0]}s of all heads", unit)


#: Orders of columns or heads that pairs of neighbours, or of halves, are confused with.
_ORDERS: dict[str, Callable[[int], Any]] = {
    "the even {0} of {{}} come first, then the odd ones": lambda n: np.r_[0:n:2, 1:n:2],
    "the {0} of the two halves of {{}} come in turn": lambda n: np.argsort(np.r_[0:n:2, 1:n:2]),
}


#: Changes by the length of an axis.
_BY_SIZE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "{{}} are divided by the root of the number of {}": lambda x, xp, n: x / xp.sqrt(n),
    "{{}} are multiplied by the root of the number of {}": lambda x, xp, n: x * xp.sqrt(n),
    "{{}} are divided by the number of {}": lambda x, xp, n: x / n,
    "{{}} are multiplied by the number of {}": lambda x, xp, n: x * n,
}


def _yield_operators_along_axis(axis: int, name: str) -> Iterator[Operator]:
    plural = "queries" if name == "query" else f"{name}s"
    # Without such an axis an operation cannot be this mistake.
    over = partial(_make_axis_checking_operation, axis)
    yield _moved(
        f"{{}} are taken from the last {name} to the first",
        over(lambda xp, x: xp.flip(x, axis=axis)),
    )
    yield _moved(
        f"{{}} are those of the next {name}", over(lambda xp, x: xp.roll(x, -1, axis=axis))
    )
    yield _moved(
        f"{{}} are those of the {name} before", over(lambda xp, x: xp.roll(x, 1, axis=axis))
    )
    yield _moved(f"the {{}} of the first {name} are used for all {plural}", partial(one, axis, 0))
    yield _moved(f"the {{}} of the last {name} are used for all {plural}", partial(one, axis, -1))
    # Layouts permute columns and heads; the order of tokens and keys is their own.
    for words, order in _ORDERS.items() if name in ("column", "head") else ():
        yield _moved(words.format(plural), over(partial(_in_order, axis, order)))
    halves = over(lambda xp, x: xp.roll(x, -(int(x.shape[axis]) // 2), axis=axis))
    yield _moved(f"the two halves of the {plural} of {{}} are exchanged", halves)
    yield Operator(
        f"the {{}} of the first {name} are lost: 0 is used instead",
        partial(_zero_slice_of_axis, axis, 0),
        exact=True,
    )
    yield Operator(
        f"the {{}} of the last {name} are lost: 0 is used instead",
        partial(_zero_slice_of_axis, axis, -1),
        exact=True,
    )
    mean = over(lambda xp, x: xp.broadcast_to(xp.mean(x, axis=axis, keepdims=True), x.shape))
    yield Operator(f"the mean of the {{}} over the {plural} is used for each", mean)
    total = over(lambda xp, x: xp.broadcast_to(xp.sum(x, axis=axis, keepdims=True), x.shape))
    yield Operator(f"the sum of the {{}} over the {plural} is used for each", total)
    yield Operator(f"the mean over the {plural} is subtracted from {{}}", lambda x: x - mean(x))
    unit = over(lambda xp, x: x / xp.sqrt(xp.sum(x * x, axis=axis, keepdims=True)))
    yield Operator(f"{{}} are divided by their length over the {plural}", unit)
    for words, divided in _BY_SIZE.items():
        yield Operator(
            words.format(plural), over(partial(_change_by_axis_length, divided, axis)), scales=True
        )
    shares = over(lambda xp, x: x / xp.sum(x, axis=axis, keepdims=True))
    yield Operator(f"{{}} are divided by their sum over the {plural}", shares)
    running = over(lambda xp, x: xp.cumulative_sum(x, axis=axis))
    yield Operator(f"running sums of {{}} over the {plural} are taken", running)
    weights = over(lambda xp, x: xp.moveaxis(softmax.softmax(xp.moveaxis(x, axis, -1)), -1, axis))
    yield Operator(f"{{}} go through a softmax over the {plural}", weights)


def _make_finite_only_operation(make: Callable[[Any, Any], Any]) -> Operation:
    """Return an operation on finite numbers, given the namespace, that leaves −∞ unchanged."""

    def run(x: Array) -> Array:
        xp = namespace_of(x)
        there = xp.isfinite(x)
        return xp.where(there, make(xp, xp.where(there, x, 0)), x)

    return run


#: Changes of each entry by itself.
ENTRIES: tuple[Operator, ...] = (
    Operator(
        "{} are taken with the other sign",
        _make_finite_only_operation(lambda xp, x: -x),
        exact=True,
    ),
    Operator(
        "absolute values of {} are taken", _make_finite_only_operation(lambda xp, x: xp.abs(x))
    ),
    Operator("negative {} become 0", _make_finite_only_operation(lambda xp, x: xp.maximum(x, 0))),
    Operator("{} are squared", _make_finite_only_operation(lambda xp, x: x * x)),
    Operator(
        "{} are multiplied by their absolute values",
        _make_finite_only_operation(lambda xp, x: x * xp.abs(x)),
    ),
    Operator("{} go through tanh", _make_finite_only_operation(lambda xp, x: xp.tanh(x))),
    Operator(
        "{} go through a sigmoid", _make_finite_only_operation(lambda xp, x: 1 / (1 + xp.exp(-x)))
    ),
    Operator("{} are taken to be 0", _make_finite_only_operation(lambda xp, x: x * 0), exact=True),
    Operator(
        "{} are taken to be 1", _make_finite_only_operation(lambda xp, x: x * 0 + 1), exact=True
    ),
)


def _require_axis_length(x: Array, axis: int) -> int:
    """Return the length of an axis. Raises ``KeyError`` if there is none, so that the mistake cannot be made."""
    if len(x.shape) < -axis:
        raise KeyError("there is no such axis")
    return int(x.shape[axis])


def _make_axis_checking_operation(axis: int, operation: Callable[[Any, Any], Any]) -> Operation:
    """Return an operation that first checks that the array has the axis."""

    def run(x: Any) -> Any:
        _require_axis_length(x, axis)
        # Means and lengths of nothing are undefined, so that empty arrays stay.
        return operation(namespace_of(x), x) if 0 not in x.shape else x

    return run


def one(axis: int, place: int, x: Any) -> Any:
    """Return one entry of an axis in place of all."""
    n = _require_axis_length(x, axis)
    at = (..., slice(place % n, place % n + 1), *(slice(None),) * (-axis - 1))
    return namespace_of(x).broadcast_to(x[at], x.shape)


def _change_by_axis_length(
    change: Callable[[Any, Any, Any], Any], axis: int, xp: Any, x: Any
) -> Any:
    return change(x, xp, xp.asarray(int(x.shape[axis]), dtype=x.dtype))


def _in_order(axis: int, order: Callable[[int], Any], xp: Any, x: Any) -> Any:
    return xp.moveaxis(xp.moveaxis(x, axis, -1)[..., order(int(x.shape[axis]))], -1, axis)


def _zero_slice_of_axis(axis: int, place: int, x: Any) -> Any:
    n = _require_axis_length(x, axis)
    left = (np.arange(n) != place % n).astype(float).reshape(-1, *(1,) * (-axis - 1))
    return _make_finite_only_operation(lambda xp, y: y * left)(x)
