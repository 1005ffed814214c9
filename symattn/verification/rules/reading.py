"""Mistakes in reading an input: reversed, transposed, shifted, of another head, one row for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from operator import neg
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.spec import Attention
from symattn.bounds.mistake import Mistake, in_inputs
from symattn.verification.rules.forbidding import leaving_some_keys
from symattn.verification.rules.operators import one

Array = np.ndarray
Change = Callable[[Array], Array]
#: For numeric inputs with heads: the step to blame, the input in words, and its axis of heads from the end.
NUMBERS = {
    "scale": ("scale", "the scale", -1), "sink": ("sink", "the sink", -1), "bias": ("bias", "the bias", -3),
    "slopes": ("bias", "the slope", -1), "b_rel": ("bias", "the bias of buckets", -1),
}  # fmt: skip


def mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield mistakes in the inputs of a specification."""
    for name, step, words, change in _changes(spec.heads):
        if name in names:
            mistake = in_inputs(step, words, **{name: change})
            yield leaving_some_keys(mistake) if name in ("keep", "mask") else mistake
    if spec.mask == "additive":
        words = "the mask given only forbids, where it is below 0: its numbers are not added"
        yield in_inputs("mask", words, mask=lambda a: np.where(a < 0, -np.inf, 0 * np.maximum(a, 0)))
    if spec.mask == "boolean" and (spec.causal or spec.padding or spec.window is not None or spec.documents):
        yield in_inputs("mask", "the mask given is inverted", mask=np.invert)


def _changes(heads: int) -> Iterator[tuple[str, str, str, Change]]:
    """Yield an input, the step to blame, the mistake in words, and the change of the input."""
    for name, (step, noun, axis) in NUMBERS.items() if heads > 1 else ():
        yield from ((name, step, words, change) for words, change in _heads(noun, axis, heads))
    for name, noun in (("mask", "the mask given"), ("bias", "the bias")):
        yield name, name, f"{noun} is transposed", lambda a: a.mT
        yield name, name, f"{noun} is read from the last key to the first", lambda a: a[..., ::-1]
        yield name, name, f"the first row of {noun} is used for all queries", partial(one, -2, 0)
    for axis, along in ((-1, "key"), (-2, "query")):
        for words, change in _MASKS.items():
            yield "mask", "mask", f"the mask given is {words.format(along)}", partial(_along, change, axis)
    yield from _SINGLE


def _along(change: Callable[[Any, Array, int], Any], axis: int, a: Array) -> Any:
    xp = namespace_of(a)
    return xp.broadcast_to(change(xp, a, axis), a.shape)


_MASKS: dict[str, Callable[[Any, Array, int], Any]] = {
    "that of the next {}": lambda xp, a, axis: xp.roll(a, -1, axis=axis),
    "that of the {} before": lambda xp, a, axis: xp.roll(a, 1, axis=axis),
    "open wherever it is for some {}": lambda xp, a, axis: xp.max(a, axis=axis, keepdims=True),
    "open only where it is for every {}": lambda xp, a, axis: xp.min(a, axis=axis, keepdims=True),
}
_SINGLE: tuple[tuple[str, str, str, Change], ...] = (
    ("scale", "scale", "the given scale is divided by: its reciprocal is applied", lambda a: 1 / a),
    ("sink", "sink", "the sign of the sink is flipped", neg),
    ("bias", "bias", "the sign of the bias is flipped", neg),
    ("keep", "mask", "the padding mask is inverted: True is read as padding", np.invert),
    ("keep", "mask", "padding is counted at the other end", lambda a: a[..., ::-1]),
    ("keep", "mask", "the padding mask is taken as a length: as many keys as it allows, from the first one on",
     lambda a: np.sort(a, axis=-1)[..., ::-1]),
    ("keep", "mask", "the padding mask is taken as a length: as many keys as it allows, up to the last one", np.sort),
    ("keep", "mask", "the mask is off by one key: it is read one place too far", lambda a: np.roll(a, 1, axis=-1)),
    ("drop", "dropout", "what should be kept is dropped: the mask of dropout is inverted", np.invert),
)  # fmt: skip


# -- a number of another head ------------------------------------------------------------------------------------------
_NEXT = "{the} is that of the next head"
_EACH = 8  # heads up to which each is tried, and each pair
_POOLS: dict[str, Callable[..., Array]] = {"largest": np.max, "smallest": np.min, "mean": np.mean}


def _heads(noun: str, axis: int, heads: int) -> Iterator[tuple[str, Change]]:
    """Yield changes by which heads read the number of another head, or one for all; none without an axis of heads."""

    def read(change: Callable[[Array], Array]) -> Change:
        return lambda a: change(a) if a.ndim >= -axis and a.shape[axis] == heads else a

    known, bare = {tuple(range(heads))}, noun.removeprefix("the ")
    for words, places in taken(heads):
        if places not in known or words == _NEXT:  # with two heads, the next one is also the other one
            known.add(places)
            yield words.format(the=noun, bare=bare), read(partial(np.take, indices=places, axis=axis))
    for words, pool in _POOLS.items():
        pooled: Any = lambda a, pool=pool: np.broadcast_to(pool(a, axis=axis, keepdims=True), a.shape)  # noqa: E731
        yield f"the {words} {bare} of all heads is used for each", read(pooled)


def taken(heads: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield words and, for each head, the head whose number it reads; the simplest first."""
    every, each = range(heads), range(min(heads, _EACH))
    yield "{the} is that of another head: heads are in the opposite order", (*every[::-1],)
    yield _NEXT, (*every[1:], 0)
    yield "{the} is that of the head before", (heads - 1, *every[:-1])
    yield "the first head's {bare} is used for all", (0,) * heads
    yield "the last head's {bare} is used for all", (heads - 1,) * heads
    yield from ((f"{{the}} of head {j + 1} is used for all", (j,) * heads) for j in each)
    groups = [(g, heads // g) for g in every[2:] if heads % g == 0]
    for g, more in groups:
        yield f"{{the}} is that of the first head of each {g}", tuple(i // g * g for i in every)
        yield f"{{the}} is that of the last head of each {g}", tuple(i // g * g + g - 1 for i in every)
        yield f"{{the}} is one of the first {g} heads', each for {more} in a row", tuple(i // more for i in every)
        yield f"{{the}} is one of the first {g} heads', in turn", tuple(i % g for i in every)
    for a, b in combinations(each, 2):
        words = f"{{the}} is that of another head: heads {a + 1} and {b + 1} are exchanged"
        yield words, tuple({a: b, b: a}.get(i, i) for i in every)
    for g, more in groups:
        words = f"{{the}} is that of another head: {more} × {g} heads are transposed"
        yield words, tuple(i % more * g + i // more for i in every)
