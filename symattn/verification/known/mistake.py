"""What a known mistake is, and what the wrong steps have in common: the definition's own steps around them.

A wrong step takes the specification and all arrays computed so far, on any kind of array, as ``reference.Change`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import sinks, softmax
from symattn.attention.flow import Step
from symattn.attention.inputs import NEEDED, OPTIONAL
from symattn.attention.spec import Attention
from symattn.verification.reference import Change, Values, Variant
from symattn.verification.target import Inputs

Applies = Callable[[Attention], bool]
Fields = Callable[[Attention], Attention]
Given = Callable[[Attention, Inputs], Inputs]


@dataclass(frozen=True)
class Where:
    """A condition, in words and for a judged case."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Mistake:
    """A mistake: the step at which it is made, what it is in words, and how it changes the definition.

    ``applies`` says for which specifications it is one at all, ``where`` in which cases it is made (None: in all).
    ``around`` are variants between which a function with this mistake may lie, where roundings decide: such a mistake
    is judged in float64, as one is for which ``in_floats`` says that balls were too narrow.
    """

    step: str
    cause: str
    variant: Variant
    applies: Applies = lambda spec: True
    where: Where | None = None
    around: tuple[Variant, ...] = ()
    in_floats: bool = False


def in_steps(
    step: str, cause: str, applies: Applies | None = None, rows: bool = True, of: str = "v", **steps: Change
) -> Mistake:
    """A mistake in the steps named; ``rows`` says that rows of weights still sum to 1, ``of`` what they meet."""
    return Mistake(step, cause, Variant(steps, rows, of), applies or always)


def in_all(step: str, cause: str, applies: Applies, steps: Mapping[str, Change]) -> Mistake:
    """A mistake in several steps alike."""
    return Mistake(step, cause, Variant(steps), applies)


def in_fields(step: str, cause: str, applies: Applies, change: Fields) -> Mistake:
    """A mistake that is another specification. Of rows without any key it says nothing."""

    def changed(spec: Attention) -> Attention:
        found = change(spec)
        empty = found.normaliser == "softmax" and found.sink is None and found.masks_anything
        return replace(found, fully_masked="nan") if empty else found

    return Mistake(step, cause, Variant(spec=changed), applies)


def in_inputs(
    step: str, cause: str, applies: Applies, **change: Callable[[Attention, np.ndarray], np.ndarray]
) -> Mistake:
    """A mistake in reading some inputs: each is the definition of the input, changed."""

    def changed(spec: Attention, inputs: Inputs) -> Inputs:
        return {**inputs, **{n: f(spec, np.asarray(inputs[n])) for n, f in change.items() if n in inputs}}

    return Mistake(step, cause, Variant(inputs=changed), applies)


def with_fields(**fields: Any) -> Fields:
    """These fields in place of those that a specification has."""
    return lambda spec: replace(spec, **fields)


# --- for which specifications ----------------------------------------------------------------------------------------


def always(spec: Attention) -> bool:
    """For all."""
    return True


def both(*conditions: Applies) -> Applies:
    """Where all of them hold."""
    return lambda spec: all(condition(spec) for condition in conditions)


def softmaxed(spec: Attention) -> bool:
    """Where weights are a softmax."""
    return spec.normaliser == "softmax"


def plain_softmax(spec: Attention) -> bool:
    """Where weights are a softmax without a sink."""
    return spec.normaliser == "softmax" and spec.sink is None


def masked(spec: Attention) -> bool:
    """Where something may be forbidden."""
    return spec.masks_anything


def several(spec: Attention) -> bool:
    """Where there are several heads."""
    return spec.heads > 1


def unpacked(spec: Attention) -> bool:
    """Where each projection has a matrix of its own."""
    return not spec.packed and spec.latent is None


def position_is(kind: type[Any], **fields: Any) -> Applies:
    """Where the position is of this kind, with these fields."""
    return lambda s: isinstance(s.position, kind) and all(getattr(s.position, f) == x for f, x in fields.items())


def with_position(**fields: Any) -> Fields:
    """These fields of the position in place of those that it has."""
    return lambda spec: replace(spec, position=replace(spec.position, **fields))  # type: ignore[type-var]


BARE = "by a reshape alone, without moving their axis"


# --- the definition around a wrong step -------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _pipeline(spec: Attention, names: frozenset[str]) -> Mapping[str, Step]:
    return {step.name: step for step in spec.pipeline(names)}


def step(spec: Attention, values: Values, name: str) -> Step:
    """The definition's own step. Raises ``KeyError`` where there is none."""
    known = NEEDED | OPTIONAL
    names = {n for n in values if n[:2] in ("w_", "b_") or n in "xyqkv" or n in known}
    names = {n for n in names if n not in known or known[n](spec)}
    names -= {"q", "k", "v"} if "x" in values else set()
    names -= {f"{letter}_{role}" for letter in "wb" for role in "qkv"} if spec.packed else set()
    return _pipeline(spec, frozenset(names))[name]


def own(spec: Attention, values: Values, name: str, *first: Any) -> Any:
    """What the definition's step gives, with ``first`` in place of the first arrays that it takes."""
    found = step(spec, values, name)
    return found.run(*first, *(values[n] for n in found.of[len(first) :]))


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


def final(spec: Attention, values: Values) -> Any:
    """The scores that weights are made of."""
    return before(spec, values, "weights")


@dataclass(frozen=True)
class Parts:
    """e^{s − m}, what the sink adds to their sum (0 without one), and m."""

    e: Any
    sink: Any
    m: Any

    @property
    def total(self) -> Any:
        """What a row is divided by."""
        return namespace_of(self.e).sum(self.e, axis=-1, keepdims=True) + self.sink


def sink_of(spec: Attention, values: Values) -> Any:
    """The sink's logit, as it broadcasts to rows (…, n_q, 1)."""
    if spec.sink == "zero":
        return number(values["scores"], 0)
    z = values["sink"]
    return z[:, None, None] if spec.heads > 1 else z


def parts(spec: Attention, values: Values, s: Any = None) -> Parts:
    """The softmax in parts, of the scores or of others."""
    s = final(spec, values) if s is None else s
    xp, m = namespace_of(s), softmax.row_max(s)
    if spec.sink is None:
        return Parts(softmax.powers(s - m, spec.base), 0, m)
    z = sink_of(spec, values)
    m = xp.maximum(m, z)
    return Parts(softmax.powers(s - m, spec.base), softmax.powers(z - m, spec.base), m)


def weights(spec: Attention, values: Values, s: Any) -> Any:
    """The definition's weights of other scores; a row without any key is undefined, since code then gives zeros, NaN,
    or (where −10⁹ stands for −∞) weights that are no consequence of the mistake."""
    if spec.normaliser != "softmax":
        return own(spec, values, "weights", s)
    if spec.sink is None:
        return softmax.softmax(s, fully_masked="nan", base=spec.base)
    return sinks.sink_weights(s, sink_of(spec, values), base=spec.base)
