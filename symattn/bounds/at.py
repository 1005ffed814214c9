"""A step in one run of the definition, with the arrays beside it: what wrong steps are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import softmax
from symattn.attention.spec import Attention
from symattn.bounds.mistake import Mistake, in_inputs, own, sink_of, step, weights
from symattn.bounds.reference import Change, Values, Variant

Wrong = Callable[["At"], Any]


@dataclass(frozen=True)
class At:
    """The step ``name`` of a specification, and all arrays made so far."""

    spec: Attention
    values: Values
    name: str

    @cached_property
    def first(self) -> Any:
        """The array that the step takes first."""
        return self.values[step(self.spec, self.values, self.name).of[0]]

    @cached_property
    def xp(self) -> Any:
        """The namespace of that array."""
        return namespace_of(self.first)

    def right(self, *first: object) -> Any:
        """Return the step's correct result, with ``first`` in the place of the first arrays that it takes."""
        return own(self.spec, self.values, self.name, *first)

    def of(self, name: str, *first: Any) -> Any:
        """Return the result of another step."""
        return own(self.spec, self.values, name, *first)

    def number(self, x: object) -> Any:
        """A number as an entry of the same kind."""
        return self.xp.asarray(x, dtype=self.first.dtype)

    def finite(self, make: Callable[[Any], Any], x: Any = None) -> Any:
        """An operation on scores, with −∞ as it is."""
        x = self.first if x is None else x
        there = self.xp.isfinite(x)
        return self.xp.where(there, make(self.xp.where(there, x, 0)), x)

    # -- at the step ``weights``: the softmax in parts --

    @property
    def n(self) -> int:
        """The number of keys."""
        return int(self.first.shape[-1])

    @property
    def open(self) -> Any:
        """Which scores are not forbidden."""
        return np.asarray(self.xp.isfinite(self.first))

    def only_open(self, x: object) -> Any:
        """Numbers where scores are not forbidden, 0 elsewhere."""
        return self.xp.where(self.open, x, 0)

    @property
    def scores(self) -> Any:
        """The scores, 0 where they are forbidden."""
        return self.only_open(self.first)

    @cached_property
    def top(self) -> Any:
        """m, the largest score of each row."""
        return softmax.row_max(self.first)

    @cached_property
    def z(self) -> Any:
        """The sink's logit. Raises ``KeyError`` where there is none."""
        if self.spec.sink is None:
            raise KeyError("there is no sink")
        return sink_of(self.spec, self.values)

    @cached_property
    def m(self) -> Any:
        """The number that is subtracted: the largest score, or the sink's logit where that is larger."""
        return self.top if self.spec.sink is None else self.xp.maximum(self.top, self.z)

    @cached_property
    def e(self) -> Any:
        """e^{s − m}."""
        return self.power(self.first - self.m)

    @cached_property
    def sink(self) -> Any:
        """e^{z − m}; 0 without a sink."""
        return 0 if self.spec.sink is None else self.power(self.z - self.m)

    @property
    def total(self) -> Any:
        """The divisor of each row."""
        return self.sum(self.e) + self.sink

    def power(self, x: Any) -> Any:
        """e^x, or the power of the base that the specification has."""
        return softmax.powers(x, self.spec.base)

    def sum(self, x: Any, axis: int = -1) -> Any:
        """Sums over the keys, or over another axis."""
        return self.xp.sum(x, axis=axis, keepdims=True)

    def weights(self, s: object) -> Any:
        """The weights of other scores."""
        return weights(self.spec, self.values, s)


def change(name: str, wrong: Wrong) -> Change:
    """A wrong step as a change of the definition."""
    return lambda spec, values: wrong(At(spec, values, name))


def told(blamed: str, words: str, rows: bool = True, **steps: Wrong) -> Mistake:
    """A mistake in the steps that are named; ``rows`` says that rows of weights still sum to 1."""
    return several(blamed, words, steps, rows)


def several(blamed: str, words: str, steps: Mapping[str, Wrong], rows: bool = True) -> Mistake:
    """Make a mistake in several steps, by name."""
    return Mistake(blamed, words, Variant({name: change(name, wrong) for name, wrong in steps.items()}, rows))


def read(blamed: str, words: str, **inputs: Callable[[Attention, np.ndarray], np.ndarray]) -> Mistake:
    """A mistake in how some inputs are read."""
    return in_inputs(blamed, words, **inputs)
