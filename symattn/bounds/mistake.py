"""Known mistakes, and the definition's own steps around a wrong one.

A wrong step takes the specification and all arrays computed so far, on any kind of array, as ``reference.Change`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import softmax
from symattn.attention.flow import Step
from symattn.attention.inputs import NEEDED, OPTIONAL, accepted
from symattn.attention.spec import Attention
from symattn.bounds.reference import Change, Values, Variant
from symattn.bounds.target import Inputs


@dataclass(frozen=True)
class Where:
    """A condition, in words and for a judged case."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Mistake:
    """A mistake: the step at which it is made, what it is in words, and how it changes the definition.

    ``where`` says in which cases it is made (None: in all).
    ``around`` are variants between which a function with this mistake may lie, where roundings decide: such a mistake
    is judged in float64, as one is for which ``in_floats`` says that balls were too narrow. ``general`` says that it is
    an operation on an array: where a mistake of a step gives the same numbers, its words say more.
    """

    step: str
    cause: str
    variant: Variant
    where: Where | None = None
    around: tuple[Variant, ...] = ()
    in_floats: bool = False
    general: bool = False


def in_steps(step: str, cause: str, rows: bool = True, of: str = "v", **steps: Change) -> Mistake:
    """A mistake in the steps named; ``rows`` says that rows of weights still sum to 1, ``of`` what they meet."""
    return Mistake(step, cause, Variant(steps, rows, of))


def not_scaled(spec: Attention) -> bool:
    """Return whether the definition has no step that scales the scores."""
    return spec.scale is None and spec.score != "dot"


def scaled_by_one(spec: Attention) -> Attention:
    """Return the same attention with a step that scales."""
    return replace(spec, scale=1)


def where_scaled(spec: Attention, mistake: Mistake) -> Mistake:
    """A mistake in the scale, of a specification that may have none: then it is made after a scale of 1."""
    variant = mistake.variant
    if not_scaled(spec) and "scaled" in variant.steps and variant.spec is None:
        return replace(mistake, variant=replace(variant, spec=scaled_by_one))
    return mistake


def in_fields(step: str, cause: str, **fields: Any) -> Mistake:
    """A mistake that is another specification. Of rows without any key it says nothing."""

    def changed(spec: Attention) -> Attention:
        attention = replace(spec, **fields)
        empty = attention.normaliser == "softmax" and attention.sink is None and attention.masks_anything
        return replace(attention, fully_masked="nan") if empty else attention

    return Mistake(step, cause, Variant(spec=changed))


def in_inputs(step: str, cause: str, **change: Callable[[Attention, np.ndarray], np.ndarray]) -> Mistake:
    """A mistake in reading some inputs: each is the definition of the input, changed."""

    def changed(spec: Attention, inputs: Inputs) -> Inputs:
        return {**inputs, **{n: f(spec, np.asarray(inputs[n])) for n, f in change.items() if n in inputs}}

    return Mistake(step, cause, Variant(inputs=changed))


BARE = "by a reshape alone, without moving their axis"


# --- the definition around a wrong step -------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _pipeline(spec: Attention, values: frozenset[str]) -> Mapping[str, Step]:
    """The steps of a definition in which arrays of these names were made."""
    foreign = {*NEEDED, *OPTIONAL} - accepted(spec)
    names = {n for n in values if n[:2] in ("w_", "b_") or n in "xyqkv"} - foreign | accepted(spec) & values
    names -= {"q", "k", "v"} if "x" in values else set()
    names -= {f"{letter}_{role}" for letter in "wb" for role in "qkv"} if spec.packed else set()
    return {step.name: step for step in spec.pipeline(frozenset(names))}


def step(spec: Attention, values: Values, name: str) -> Step:
    """The definition's own step. Raises ``KeyError`` where there is none."""
    return _pipeline(spec, frozenset(values))[name]


def own(spec: Attention, values: Values, name: str, *first: Any) -> Any:
    """Return the result of the definition's step, with ``first`` in place of the first arrays that it takes."""
    result = step(spec, values, name)
    return result.run(*first, *(values[n] for n in result.of[len(first) :]))


def before(spec: Attention, values: Values, name: str) -> Any:
    """The array that a step takes first."""
    return values[step(spec, values, name).of[0]]


def shape(values: Values) -> tuple[int, ...]:
    """(…, n_q, n_k)"""
    return tuple(int(n) for n in values["scores"].shape)


def size(values: Values, name: str, axis: int = -1) -> int:
    """The length of an axis."""
    return int(values[name].shape[axis])


def number(like: Any, x: Any) -> Any:
    """A number as an element of an array's kind."""
    return namespace_of(like).asarray(x, dtype=like.dtype)


def root(like: Any, n: Any) -> Any:
    """√n."""
    return namespace_of(like).sqrt(number(like, n))


def sink_of(spec: Attention, values: Values) -> Any:
    """The sink's logit, as it broadcasts to rows (…, n_q, 1)."""
    if spec.sink == "zero":
        return number(values["scores"], 0)
    z = values["sink"]
    return z[:, None, None] if spec.heads > 1 else z


def weights(spec: Attention, values: Values, s: Any) -> Any:
    """The definition's weights of other scores; a row without any key is undefined, since code then gives zeros, NaN,
    or (where −10⁹ stands for −∞) weights that are no consequence of the mistake."""
    if spec.normaliser != "softmax":
        return own(spec, values, "weights", s)
    if spec.sink is None:
        return softmax.softmax(s, fully_masked="nan", base=spec.base)
    return softmax.sink_weights(s, sink_of(spec, values), base=spec.base)
