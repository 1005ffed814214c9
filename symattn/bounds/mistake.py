"""Known mistakes, and the means to write wrong steps: a step in one run of the definition, with all arrays so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import softmax
from symattn.attention.flow import Step
from symattn.attention.inputs import NEEDED, OPTIONAL, accepted
from symattn.attention.spec import Attention
from symattn.attention.stated_flow import StatedFlow
from symattn.bounds.called_target import Inputs
from symattn.bounds.reference import Change, Values, Variant

Wrong = Callable[["At"], Any]
Compute = Callable[..., Any]  # from arrays by name, of any kind, to an array or a tuple of arrays


class Where(NamedTuple):
    """A condition, in words and for a judged case."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Mistake:
    """A known mistake: the step that it is in, the cause in words, and the wrong way of computing.

    way        for an attention a ``Variant`` of its steps; for a definition a function of its arrays by name
    exact      whether it gives another result in exact arithmetic; otherwise it only loses digits
    where      in which cases it is made (None: in all)
    around     ways between which a function with this mistake may lie, if roundings decide; it is judged in float64
    in_floats  whether it is judged in float64 in any case, because balls would be too narrow
    general    whether it is an operation on any array: a mistake of a step with the same numbers is preferred, as its
               words say more
    spec       the specification that a definition with it amounts to, if any
    change     for a mistake outside of a definition: makes it in any way of computing
    reads      the one input of a definition that it changes
    inner      the change of the steps of the attention in a definition that it is, if any
    """

    step: str
    cause: str
    way: Variant | Compute
    exact: bool = True
    where: Where | None = None
    around: tuple[Any, ...] = ()
    in_floats: bool = False
    general: bool = False
    spec: Any = None
    change: Callable[[Compute], Compute] | None = None
    reads: str = ""
    inner: Variant | None = None

    @property
    def change_of_steps(self) -> Variant | None:
        """The change of the steps of an attention, alone or in a definition; None if it is no such change."""
        return self.way if isinstance(self.way, Variant) else self.inner

    @property
    def variant(self) -> Variant:
        """The way, of a mistake of an attention."""
        assert isinstance(self.way, Variant)
        return self.way

    @property
    def run(self) -> Compute:
        """The way, of a mistake of a definition."""
        assert not isinstance(self.way, Variant)
        return self.way


@dataclass(frozen=True)
class MistakeFamily:
    """Mistakes with a number x: the step, the cause in words around {}, and the wrong way of computing with x.

    The search for x starts from the points of the ``grid``. ``spec`` returns the specification that a mistake amounts
    to, if any, and ``inner`` the change of the attention in a definition.
    """

    step: str
    words: str
    way: Callable[[float], Variant | Compute]
    grid: Sequence[float]
    spec: Callable[[float], Any] = lambda x: None
    inner: Callable[[float], Variant | None] = lambda x: None

    def variant(self, x: float) -> Variant:
        """Return the way with the number x, of mistakes of an attention."""
        result = self.way(x)
        assert isinstance(result, Variant)
        return result

    def mistake(self, x: float, written: str) -> Mistake:
        """Return the mistake with the number x, which is ``written`` in words."""
        cause, way = self.words.format(written), self.way(x)
        return Mistake(self.step, cause, way, spec=self.spec(x), inner=self.inner(x))


# --- the definition around a wrong step -------------------------------------------------------------------------------
# The names of a run are few combinations, and a pipeline is slow to build.
@lru_cache(maxsize=512)
def _steps_of_traced_definition(
    spec: Attention | StatedFlow, values: frozenset[str]
) -> Mapping[str, Step]:
    """Return the steps of a definition whose run contains arrays of these names."""
    if isinstance(spec, StatedFlow):
        return {step.name: step for step in spec.pipeline(values)}
    # Names of arrays that the run computed must not count as inputs.
    foreign = {*NEEDED, *OPTIONAL} - accepted(spec)
    weights_and_inputs = {n for n in values if n[:2] in ("w_", "b_") or n in "xyqkv"}
    names = weights_and_inputs - foreign | accepted(spec) & values
    # Queries, keys and values of tokens are computed, and packed projections have one matrix.
    names -= {"q", "k", "v"} if "x" in values else set()
    names -= {f"{letter}_{role}" for letter in "wb" for role in "qkv"} if spec.packed else set()
    return {step.name: step for step in spec.pipeline(frozenset(names))}


def step(spec: Attention | StatedFlow, values: Values, name: str) -> Step:
    """Return the definition's own step. Raises ``KeyError`` where there is none."""
    return _steps_of_traced_definition(spec, frozenset(values))[name]


def own(spec: Attention, values: Values, name: str, *first: object) -> Any:
    """Return the result of the definition's step, with ``first`` in place of the first arrays that it takes."""
    result = step(spec, values, name)
    # An array in whose place another one stands may not be made yet.
    return result.run(*first, *_read_operands(spec, values, result.of[len(first) :]))


def _read_operands(spec: Attention | StatedFlow, values: Values, names: Sequence[str]) -> list[Any]:
    """Return the arrays that a step takes. Raises ``KeyError`` where an attention has none."""
    # Only definitions that state their steps have steps of inputs that a call may lack.
    if isinstance(spec, StatedFlow):
        return [values.get(name) for name in names]
    return [values[name] for name in names]


def before(spec: Attention, values: Values, name: str) -> Any:
    """Return the array that a step takes first."""
    return values[step(spec, values, name).of[0]]


def size(values: Values, name: str, axis: int = -1) -> int:
    """Return the length of an axis."""
    return int(values[name].shape[axis])


def number(like: Any, x: Any) -> Any:
    """Return a number as an element of an array's kind."""
    # Numbers have to be of the array's kind, since kinds do not mix with Python's floats.
    return namespace_of(like).asarray(x, dtype=like.dtype)


def store_as_input(a: Any) -> Any:
    """Return the same numbers; on ``rounded``, as code may store them: in the format of the inputs."""
    # Only the kind that counts roundings knows of that format.
    return a.as_input() if hasattr(a, "as_input") else a


def root(like: object, n: object) -> Any:
    """√n."""
    return namespace_of(like).sqrt(number(like, n))


@dataclass(frozen=True)
class At:
    """The step ``name`` of a specification, and all arrays made so far, on any kind of array."""

    spec: Attention
    values: Values
    name: str

    @cached_property
    def first(self) -> Any:
        """The array that the step takes first."""
        return self.values[step(self.spec, self.values, self.name).of[0]]

    @property
    def taken(self) -> list[Any]:
        """All arrays that the step takes, None for inputs that the run lacks."""
        own_step = step(self.spec, self.values, self.name)
        return _read_operands(self.spec, self.values, own_step.of)

    @cached_property
    def xp(self) -> Any:
        """The namespace of that array."""
        return namespace_of(self.first)

    def right(self, *first: object) -> Any:
        """Return the step's correct result, with ``first`` in the place of the first arrays that it takes."""
        return own(self.spec, self.values, self.name, *first)

    def reading(self, array: str, other: object) -> Any:
        """Return the step's result with ``other`` in the place of an array that it takes, by the array's name."""
        names = step(self.spec, self.values, self.name).of
        operands = zip(names, self.taken, strict=True)
        return self.right(*(other if name == array else taken for name, taken in operands))

    def of(self, name: str, *first: object) -> Any:
        """Return the result of another step."""
        return own(self.spec, self.values, name, *first)

    def before(self, name: str) -> Any:
        """Return the array that another step takes first."""
        return before(self.spec, self.values, name)

    def number(self, x: object) -> Any:
        """Return a number as an entry of the same kind."""
        return self.xp.asarray(x, dtype=self.first.dtype)

    def size(self, name: str, axis: int = -1) -> int:
        """Return the length of an axis of an array."""
        return size(self.values, name, axis)

    @property
    def shape(self) -> tuple[int, ...]:
        """(…, n_q, n_k)"""
        return tuple(int(n) for n in self.values["scores"].shape)

    @property
    def met(self) -> Any:
        """The values that the weights multiply: normalised, and a key head's repeated for each of its heads."""
        names = ("v_shared", "v_normed", "v")
        return next(self.values[name] for name in names if name in self.values)

    def finite(self, make: Callable[[Any], object], x: object = None) -> Any:
        """Apply an operation to scores, leaving −∞ as it is."""
        x = self.first if x is None else x
        is_finite = self.xp.isfinite(x)
        # −∞ is replaced first, as an operation on it may be undefined.
        return self.xp.where(is_finite, make(self.xp.where(is_finite, x, 0)), x)

    # -- at the step ``weights``: the softmax in parts --
    @property
    def n(self) -> int:
        """The number of keys."""
        return int(self.first.shape[-1])

    @property
    def open(self) -> np.ndarray:
        """Which scores are not forbidden."""
        return np.asarray(self.xp.isfinite(self.first))

    def only_open(self, x: object) -> Any:
        """Return the numbers where scores are not forbidden, 0 elsewhere."""
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
        if self.spec.sink == "zero":
            return self.number(0)
        z = self.values["sink"]
        return z[:, None, None] if self.spec.heads > 1 else z

    @cached_property
    def m(self) -> Any:
        """The number that is subtracted: the largest score, or the sink's logit where that is larger."""
        if self.spec.sink is None:
            return self.top
        return self.xp.maximum(self.top, self.z)

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

    def power(self, x: Array) -> Any:
        """Return e^x, or the power of the specification's base."""
        return softmax.powers(x, self.spec.base)

    def sum(self, x: object, axis: int = -1) -> Any:
        """Return sums over the keys, or over another axis, with the axis kept."""
        return self.xp.sum(x, axis=axis, keepdims=True)

    def weights(self, s: Array) -> Any:
        """Return the definition's weights of other scores; a row without any key is undefined, since code then gives
        zeros, NaN, or (if −10⁹ stands for −∞) weights that are not a consequence of the mistake."""
        if not self.spec.is_softmax:
            return self.of("weights", s)
        if self.spec.sink is None:
            return softmax.softmax(s, fully_masked="nan", base=self.spec.base)
        return softmax.sink_weights(s, self.z, base=self.spec.base)


# --- mistakes ---------------------------------------------------------------------------------------------------------
def change(name: str, wrong: Wrong) -> Change:
    """Return a wrong step as a change of the definition."""
    return lambda spec, values: wrong(At(spec, values, name))


def in_steps(
    blamed: str, words: str, rows: bool = True, of: str = "v", /, **steps: Wrong
) -> Mistake:
    """Return a mistake in the steps named; ``rows``: rows of weights still sum to 1; ``of``: what they multiply."""
    changes = {name: change(name, wrong) for name, wrong in steps.items()}
    return Mistake(
        blamed,
        words,
        Variant(changes, rows, of),
    )


def not_scaled(spec: Attention) -> bool:
    """Return whether the definition has no step that scales the scores."""
    return spec.scale is None and spec.score != "dot"


def scaled_by_one(spec: Attention) -> Attention:
    """Return the same attention with a step that scales."""
    return replace(spec, scale=1)


def where_scaled(spec: Attention, mistake: Mistake) -> Mistake:
    """Return a mistake in the scale; if the specification has no scale, it is made after one of 1."""
    variant = mistake.variant
    if not_scaled(spec) and "scaled" in variant.steps and variant.spec is None:
        return replace(mistake, way=replace(variant, spec=scaled_by_one))
    return mistake


def in_fields(blamed: str, words: str, **fields: Any) -> Mistake:
    """Return a mistake that changes fields of the specification. Rows without any key are left undefined."""
    # The last specification and the changed one, which holds its steps: a search asks for them at every case. Equal
    # ones would not do, as they may hold 1/2 and 0.5.
    latest: tuple[Attention, Attention] | None = None

    def changed(spec: Attention) -> Attention:
        nonlocal latest
        # A name of its own, since another thread may exchange the stored pair at any time.
        pair = latest
        if pair is None or pair[0] is not spec:
            attention = replace(spec, **fields)
            # Left undefined where no key is visible: code differs there, and the mistake says nothing.
            empty = attention.plain_softmax and attention.masks_anything
            pair = spec, replace(attention, fully_masked="nan") if empty else attention
            latest = pair
        return pair[1]

    return Mistake(blamed, words, Variant(spec=changed))


def in_inputs(blamed: str, words: str, **read: Callable[[np.ndarray], np.ndarray]) -> Mistake:
    """Return a mistake in reading some inputs, in arrays of any kind if ``read`` uses only common operations."""

    def taken(a: Any) -> Any:
        return a if hasattr(a, "__array_namespace__") else np.asarray(a)

    def changed(spec: Attention, inputs: Inputs) -> Inputs:
        return {**inputs, **{n: f(taken(inputs[n])) for n, f in read.items() if n in inputs}}

    return Mistake(blamed, words, Variant(inputs=changed))


def in_place_of(blamed: str, words: str, **of: str) -> Mistake:
    """Return the mistake of reading some inputs in place of others, by their names."""
    return Mistake(
        blamed,
        words,
        Variant(inputs=lambda spec, inputs: {n: inputs[of.get(n, n)] for n in inputs}),
    )
