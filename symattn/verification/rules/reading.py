"""How an input is read: the other way round, transposed, one place too far, another head's, one row for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from symattn.attention.spec import Attention
from symattn.verification.rules.at import read
from symattn.verification.rules.mistake import Mistake

Array = np.ndarray
#: Of inputs with a number a head: the step to blame, the input in words, its axis of heads from the end.
_OF_HEADS = {
    "scale": ("scale", "the scale", -1), "sink": ("sink", "the sink", -1), "bias": ("bias", "the bias", -3),
    "slopes": ("bias", "the slope", -1), "b_rel": ("bias", "the bias of buckets", -1),
}  # fmt: skip
#: Of masks and biases over queries and keys.
_OF_PAIRS = {"mask": ("mask", "the mask given"), "bias": ("bias", "the bias")}


def mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Those of the inputs that a specification has."""
    for name, (step, noun, axis) in _OF_HEADS.items() if spec.heads > 1 else ():
        if name in names:
            for words, change in _heads(noun, axis):
                yield read(step, words, **{name: lambda spec, a, change=change: change(a)})
    for name, (step, noun) in _OF_PAIRS.items():
        if name in names:
            for words, change in _pairs(noun):
                yield read(step, words, **{name: lambda spec, a, change=change: change(a)})
    for name, step, words, change in _SINGLE:
        if name in names:
            yield read(step, words, **{name: lambda spec, a, change=change: change(a)})
    if spec.mask == "boolean" and (spec.causal or spec.padding or spec.window is not None or spec.documents):
        yield read("mask", "the mask given is inverted", mask=lambda spec, a: ~a)


def _heads(noun: str, axis: int) -> Iterator[tuple[str, Callable[[Array], Array]]]:
    """Nothing, where an input has no axis of heads."""

    def along(change: Callable[[Array], Array]) -> Callable[[Array], Array]:
        return lambda a: change(a) if a.ndim >= -axis else a

    yield f"{noun} is that of another head: heads are in the opposite order", along(lambda a: np.flip(a, axis))
    yield f"{noun} is that of the next head", along(lambda a: np.roll(a, -1, axis))
    first = along(lambda a: np.broadcast_to(np.take(a, [0], axis), a.shape))
    yield f"the first head's {noun.removeprefix('the ')} is taken for all", first


def _pairs(noun: str) -> Iterator[tuple[str, Callable[[Array], Array]]]:
    yield f"{noun} is transposed", lambda a: a.swapaxes(-1, -2)
    yield f"{noun} is read from the last key to the first", lambda a: a[..., ::-1]
    first = f"the first row of {noun} is taken for all queries"
    yield first, lambda a: np.broadcast_to(a[..., :1, :], a.shape)


_SINGLE: tuple[tuple[str, str, str, Callable[[Array], Array]], ...] = (
    ("scale", "scale", "the given scale is divided by: its reciprocal is applied", lambda a: 1 / a),
    ("sink", "sink", "the sign of the sink is flipped", lambda a: -a),
    ("bias", "bias", "the sign of the bias is flipped", lambda a: -a),
    ("keep", "mask", "the padding mask is inverted: True is taken for padding", lambda a: ~a),
    ("keep", "mask", "padding is counted at the other end", lambda a: a[..., ::-1]),
    ("keep", "mask", "the padding mask is taken as a length: as many keys as it allows, from the first one on",
     lambda a: np.sort(a, axis=-1)[..., ::-1]),
    ("keep", "mask", "the padding mask is taken as a length: as many keys as it allows, up to the last one",
     lambda a: np.sort(a, axis=-1)),
    ("keep", "mask", "the mask is off by one key: it is read one place too far", lambda a: np.roll(a, 1, axis=-1)),
    ("drop", "dropout", "what should be kept is dropped: the mask of dropout is inverted", lambda a: ~a),
)  # fmt: skip
