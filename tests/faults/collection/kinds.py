"""For each kind of specification: the words for its inputs, how these are made, and what is to come out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.faults.collection import truth
from tests.faults.collection.entries import At
from tests.faults.collection.truth import Given, Sized


@dataclass(frozen=True)
class Other:
    """A kind of specification that is no ``Attention``."""

    words: dict[str, str]
    make: Callable[[Any, At, np.random.Generator], Given]
    truth: Callable[[Any, Given], list[Sized]]


def outputs(spec: Any, given: Given) -> list[Sized]:
    """Every output of a specification, with the size of its numbers."""
    other = KINDS.get(type(spec).__name__)
    if other is not None:
        return other.truth(spec, given)
    return truth.attention(spec, given)


def _words(**more: str) -> dict[str, str]:
    return {word: name for name, words in more.items() for word in (name, *words.split())}


_NORM = Other(_words(x="input hidden_states", gain="weight gamma g", bias="beta b"), truth.norm_inputs, truth.norm)
_GRADIENT = Other(
    _words(q="query", k="key", v="value", dout="do grad_output"),
    lambda spec, at, rng: truth.make(spec.attention, at, rng),
    lambda spec, given: truth.gradients(spec.attention, given),
)
_ROTARY = Other(
    _words(x="", q="query", k="key", positions="position_ids", cos="", sin=""),
    truth.rotation_inputs, truth.rotation,
)  # fmt: skip
_LINEAR = Other(_words(q="query", k="key", v="value"), truth.linear_inputs, truth.linear)
KINDS: dict[str, Other] = {
    "LayerNorm": _NORM,
    "RMSNorm": _NORM,
    "Gradient": _GRADIENT,
    "Rotary": _ROTARY,
    "LinearAttention": _LINEAR,
}
