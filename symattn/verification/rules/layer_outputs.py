"""Mistakes of an attention to the outputs of layers: in the layers that are read, and in what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.flow import Step
from symattn.attention.softmax import softmax
from symattn.bounds.changed_steps import in_stated_steps
from symattn.bounds.mistake import At, Mistake, Wrong
from symattn.document.errors import Undecided

#: Layers that are read in the place of all.
_PARTS: Mapping[str, slice] = {
    "the newest output is left out": slice(None, -1),
    "the embedding, the first of the outputs, is left out": slice(1, None),
    "the newest output alone is read": slice(-1, None),
}


def mistakes_of_layers(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield mistakes of the outputs of layers (…, L, d) that are both keys and values of one query a token."""

    def mistake(blamed: str, words: str, steps: Mapping[str, Wrong]) -> Mistake:
        return in_stated_steps(spec, blamed, words, steps)

    layers = step.name
    words = "the softmax runs over the tokens, not over the layers"
    yield mistake("normalize", words, {"weights": _weigh_tokens})
    words = "outputs of layers are added up, as in a residual stream"
    yield mistake("weights", words, {"output": partial(_add_layers, layers)})
    words = "the mean of the layers' outputs is taken: the query is not read"
    yield mistake("weights", words, {"output": partial(_average_layers, layers)})
    words = "the newest output is added to the mean over the layers, as in a residual stream"
    yield mistake("values", words, {"output": partial(_add_newest, layers)})
    for words, part in _PARTS.items():
        yield mistake("values", words, {layers: partial(_read_part, part)})
    readers = [s.name for s in spec.pipeline_of_all if layers in s.of]
    as_keys: dict[str, Wrong] = {
        name: partial(_read_sums, layers) for name in readers if name != "output"
    }
    as_values: dict[str, Wrong] = {"output": partial(_read_sums, layers)}
    words = (
        "keys are of the sums of the outputs so far, as of a residual stream, not of each output"
    )
    yield mistake("values", words, as_keys)
    words = "values are the sums of the outputs so far, as of a residual stream, not each output"
    yield mistake("values", words, as_values)
    words = "keys and values are the sums of the outputs so far, as of a residual stream"
    yield mistake("values", words, as_keys | as_values)
    if "k_normed" in readers:
        words = "values are the keys: outputs are normalised where they are added up, too"
        yield mistake("norm", words, {"output": _add_up_keys})


def _weigh_tokens(at: At) -> Any:
    scores = at.first
    if len(scores.shape) < 3:
        raise Undecided("there is no axis of tokens")
    # The softmax takes the last axis, so that the axis of tokens is moved there, and back.
    weights = softmax(at.xp.moveaxis(scores, -3, -1))
    return at.xp.moveaxis(weights, -1, -3)


def _add_layers(layers: str, at: At) -> Any:
    return at.xp.sum(at.values[layers], axis=-2, keepdims=True)


def _average_layers(layers: str, at: At) -> Any:
    return _add_layers(layers, at) / at.size(layers, -2)


def _add_newest(layers: str, at: At) -> Any:
    return at.right() + at.values[layers][..., -1:, :]


def _add_up_keys(at: At) -> Any:
    return at.right(at.first, at.values["k_normed"])


def _read_part(part: slice, at: At) -> Any:
    """Return the outputs of some layers. Raises ``Undecided`` if that is all or none of them."""
    values = at.right()
    layers = int(values.shape[-2])
    if len(range(layers)[part]) in (0, layers):
        raise Undecided("all layers are read, or none")
    return values[..., part, :]


def _read_sums(layers: str, at: At) -> Any:
    """Return the step's result with the sums of the outputs so far in the place of the outputs."""
    values = at.values[layers]
    return at.reading(layers, namespace_of(values).cumsum(values, axis=-2))
