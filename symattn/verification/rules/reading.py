"""How an input is read: the other way round, transposed, one place too far, another head's, one row for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.at import read
from symattn.bounds.mistake import Mistake
from symattn.verification.rules.forbidding import leaving_some_keys

Array = np.ndarray
Change = Callable[[Array], Array]
#: Of inputs with a number a head: the step to blame, the input in words, its axis of heads from the end.
_OF_HEADS = {
    "scale": ("scale", "the scale", -1), "sink": ("sink", "the sink", -1), "bias": ("bias", "the bias", -3),
    "slopes": ("bias", "the slope", -1), "b_rel": ("bias", "the bias of buckets", -1),
}  # fmt: skip
#: Of masks and biases over queries and keys.
_OF_PAIRS = {"mask": ("mask", "the mask given"), "bias": ("bias", "the bias")}


def mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield mistakes in the inputs that a specification has."""
    for name, step, words, change in _changes(spec.heads):
        if name in names:
            mistake = read(step, words, **{name: lambda spec, a, change=change: change(a)})
            yield leaving_some_keys(mistake) if name == "keep" else mistake
    if spec.mask == "boolean" and (spec.causal or spec.padding or spec.window is not None or spec.documents):
        yield read("mask", "the mask given is inverted", mask=lambda spec, a: ~a)


def _changes(heads: int) -> Iterator[tuple[str, str, str, Change]]:
    """An input, the step to blame, the mistake in words, and how the input is read."""
    for name, (step, noun, axis) in _OF_HEADS.items() if heads > 1 else ():
        yield from ((name, step, words, change) for words, change in _heads(noun, axis, heads))
    for name, (step, noun) in _OF_PAIRS.items():
        yield from ((name, step, words, change) for words, change in _pairs(noun))
    yield from _SINGLE


def _heads(noun: str, axis: int, heads: int) -> Iterator[tuple[str, Change]]:
    """Each head reads the number of another one. Nothing, where an input has no axis of heads."""
    known = {tuple(range(heads))}
    for words, taken in _taken(heads):
        if taken not in known or words == _NEXT:  # of two heads, the next one is the other one, too
            known.add(taken)
            yield words.format(the=noun, bare=noun.removeprefix("the ")), partial(_from, axis, taken)
    for words, pool in _POOLS.items():
        yield f"the {words} {noun.removeprefix('the ')} of all heads is used for each", partial(_pooled, axis, pool)


def _pooled(axis: int, pool: Callable[..., Array], a: Array) -> Array:
    return np.broadcast_to(pool(a, axis=axis, keepdims=True), a.shape) if a.ndim >= -axis else a


_POOLS: dict[str, Callable[..., Array]] = {"largest": np.max, "smallest": np.min, "mean": np.mean}


_NEXT = "{the} is that of the next head"
_EACH = 8  # heads up to which each is tried, and each pair


def _taken(heads: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """For each head the one whose number it reads, the plainest first."""
    every, each = range(heads), range(min(heads, _EACH))

    def of(read: Callable[[int], int]) -> tuple[int, ...]:
        return tuple(map(read, every))

    yield "{the} is that of another head: heads are in the opposite order", of(lambda i: heads - 1 - i)
    yield _NEXT, of(lambda i: (i + 1) % heads)
    yield "{the} is that of the head before", of(lambda i: (i - 1) % heads)
    yield "the first head's {bare} is used for all", of(lambda i: 0)
    yield "the last head's {bare} is used for all", of(lambda i: heads - 1)
    yield from ((f"{{the}} of head {j + 1} is used for all", of(lambda i, j=j: j)) for j in each)  # type: ignore[misc]
    for g, more in ((g, heads // g) for g in every[2:] if heads % g == 0):
        yield f"{{the}} is that of the first head of each {g}", of(lambda i, g=g: i // g * g)  # type: ignore[misc]
        yield f"{{the}} is one of the first {g} heads', each for {more} in a row", of(lambda i, m=more: i // m)  # type: ignore[misc]
        yield f"{{the}} is one of the first {g} heads', in turn", of(lambda i, g=g: i % g)  # type: ignore[misc]
    for a, b in combinations(each, 2):
        words = f"{{the}} is that of another head: heads {a + 1} and {b + 1} are exchanged"
        yield words, of(lambda i, a=a, b=b: b if i == a else a if i == b else i)  # type: ignore[misc]
    for g, more in ((g, heads // g) for g in every[2:] if heads % g == 0):
        words = f"{{the}} is that of another head: {more} × {g} heads are transposed"
        yield words, of(lambda i, g=g, m=more: i % m * g + i // m)  # type: ignore[misc]


def _from(axis: int, taken: tuple[int, ...], a: Array) -> Array:
    return np.take(a, taken, axis) if a.ndim >= -axis and a.shape[axis] == len(taken) else a


def _pairs(noun: str) -> Iterator[tuple[str, Change]]:
    yield f"{noun} is transposed", lambda a: a.swapaxes(-1, -2)
    yield f"{noun} is read from the last key to the first", lambda a: a[..., ::-1]
    first = f"the first row of {noun} is used for all queries"
    yield first, lambda a: np.broadcast_to(a[..., :1, :], a.shape)


_SINGLE: tuple[tuple[str, str, str, Change], ...] = (
    ("scale", "scale", "the given scale is divided by: its reciprocal is applied", lambda a: 1 / a),
    ("sink", "sink", "the sign of the sink is flipped", lambda a: -a),
    ("bias", "bias", "the sign of the bias is flipped", lambda a: -a),
    ("keep", "mask", "the padding mask is inverted: True is read as padding", lambda a: ~a),
    ("keep", "mask", "padding is counted at the other end", lambda a: a[..., ::-1]),
    ("keep", "mask", "the padding mask is taken as a length: as many keys as it allows, from the first one on",
     lambda a: np.sort(a, axis=-1)[..., ::-1]),
    ("keep", "mask", "the padding mask is taken as a length: as many keys as it allows, up to the last one",
     lambda a: np.sort(a, axis=-1)),
    ("keep", "mask", "the mask is off by one key: it is read one place too far", lambda a: np.roll(a, 1, axis=-1)),
    ("drop", "dropout", "what should be kept is dropped: the mask of dropout is inverted", lambda a: ~a),
)  # fmt: skip
