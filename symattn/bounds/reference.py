"""The one definition, run in balls or enclosures on given inputs: the output, and the quantities that the bound needs.

Wrong variants run the same way: a ``Variant`` changes some steps of the definition and leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.enclosure import Enclosure
from symattn.attention.flow import Step, find_steps_behind_weights, find_value_step
from symattn.attention.inputs import NEEDED, OPTIONAL, accepted
from symattn.attention.positions.position_fields import Alibi, Buckets, Rotary
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs

Values = dict[str, Any]
Change = Callable[[Attention, Values], Any]


@dataclass(frozen=True)
class Variant:
    """A change of the definition: for some steps, another function of all that was computed before.

    ``rows`` says that every row of weights still sums to 1, ``values`` which array the weights multiply: an existing
    one, or one that ``steps`` computes under this name. ``spec`` maps the right specification to another, for a mistake
    in its fields; ``inputs`` maps inputs to others (exactly: permuted, negated), for a mistake in reading them.
    """

    steps: Mapping[str, Change] = field(default_factory=dict)
    rows: bool = True
    values: str = "v"
    spec: Callable[[Attention], Attention] | None = None
    inputs: Callable[[Attention, Inputs], Inputs] | None = None


RIGHT = Variant()
# The steps of usual attention to queries, keys and values.
USUAL_STEPS = {"k_shared", "v_shared", "scores", "scaled", "masked", "weights", "lse", "output"}
# Enclosures of cosines and sines are slow, and depend on sizes alone.
_ANGLES: dict[tuple[Any, ...], Enclosure] = {}
_MOST_ANGLES, _ROWS = 128, 8  # largest number of cached tables, least number of positions in one
_MOST_NUMBERS = 1 << 24  # in all cached tables: 256 MiB
CLOSING = ("attended", "attended_latents", "output")  # where weights multiply values


@dataclass(frozen=True)
class Run:
    """One run: all arrays (``values``) in balls or another ``kind``, sums of absolute values, and counts of roundings.

    ``absolute`` contains the sums of the absolute values of monomials in the inputs, for the values, for projected
    queries and keys, and for scores that are sums of products. ``terms`` counts the roundings that a monomial of a
    score can pass in products and sums, ``value_terms`` those of a value.
    """

    spec: Attention
    inputs: Inputs
    values: Values
    variant: Variant = RIGHT
    kind: type[Any] = Ball

    @cached_property
    def absolute(self) -> Values:
        """See above; for balls this is computed at once, at their precision."""
        spec, variant, kind = self.spec, self.variant, self.kind
        text = variant.values if variant.values != "v" else values_name(self.steps)
        # A value that a change computes has no monomials: the definition's own stand for it.
        wanted = (
            ({text} if text not in variant.steps else {values_name(self.steps)})
            if values_of_products(spec)
            else set()
        )
        # Projected queries and keys too, whose sums may overflow (H7).
        if of_products(spec) or (spec.latent is None and not variant.steps):
            wanted |= {"q", "k"}
        # Sums of products: their absolute values bound the monomials of all scores up to the scale.
        if of_products(spec):
            wanted |= {*self.chain[: self.chain.index(self.raw) + 1]}
        # Masks stay: a size of −∞ or of a label would be meaningless.
        arrays = {
            n: a if n in ("mask", "keep") or a.dtype.kind in "biu" else kind.lift(np.abs(a))
            for n, a in self.inputs.items()
        }
        return trace(spec, arrays, variant, wanted)

    @cached_property
    def terms(self) -> np.ndarray:
        """How many products and sums a monomial of each score passes; a product with zero is exact and not counted.

        From q and k: one product and at most N − 1 sums, N the number of products that are not zero. Through
        projections a monomial x_ia w_al w'_bl y_jb meets at most d_model and one for the bias on either side, and d_k,
        in any order in which the sums over a, b, l are taken (so also for x (W_Q W_Kᵀ) yᵀ). Terms for distances: as
        many again, for their own projection, and three for the sum of them.
        """
        spec, inputs, values = self.spec, self.inputs, self.values
        pipeline = spec.pipeline(frozenset(inputs))
        first = next(step for step in pipeline if step.name == "scores")
        shape, (d_k, d_s) = (
            values["scores"].plain_shape,
            (int(values[n].plain_shape[-1]) for n in first.of[:2]),
        )
        # Scores other than dot products also sum over the second vector's width.
        most = d_k + (d_s + 1 if spec.score != "dot" else 0)
        relative = [int(a.shape[-2]) for n, a in inputs.items() if n in ("w_r", "w_pk", "w_pq")]
        # Rotations, and terms for distances, pass roundings of their own.
        if spec.position is not None and not isinstance(spec.position, Alibi | Buckets):
            most += 4 + sum(relative) + d_k
        # Through projections a monomial may meet every sum of both sides, in any order.
        if "w_q" in values:
            d_model = int(values["w_q"].shape[-2])
            return np.full(shape, 2 * (d_model + 1) + most)
        # Only plain products can have fewer terms where inputs are zero.
        if most > d_k or not of_products(spec):
            return np.full(shape, most)
        # A run on 0s and 1s counts the products that are not zero.
        marks = {
            n: (np.asarray(inputs[n]) != 0).astype(float)
            for n in ("q", "k", "v", "x", "y")
            if n in inputs
        }
        result = trace(
            spec, marks, Variant({**self.variant.steps}, values=self.variant.values), {"scores"}
        )
        return np.asarray(result["scores"]).astype(int)

    @cached_property
    def value_terms(self) -> int:
        """See above; 0 for normalised values, whose errors stand for those of the whole value."""
        if self.spec.latent is None and not values_of_products(self.spec):
            return 0
        name = "w_uv" if "w_uv" in self.values else "w_v"
        if name in self.values:
            return int(self.values[name].shape[-2]) + 1
        return 0

    @property
    def output(self) -> Any:
        """The exact output, in balls or enclosures."""
        return self.values["output"]

    @property
    def chain(self) -> tuple[str, ...]:
        """The names of the scores, from products to what the normaliser receives."""
        return tuple(s.name for s in self.steps if s.role == "scores")

    @property
    def raw(self) -> str:
        """The name of the scaled scores, before caps, biases and masks."""
        last = ""
        for step in self.steps:
            if step.role == "scores":
                # What is added to scaled scores, or changes them, comes later.
                if step.errors not in ("products", "scales"):
                    break
                last = step.name
        return last

    @property
    def final_scores(self) -> Any:
        """The scores as the normaliser receives them."""
        return self.values[self.chain[-1]]

    @cached_property
    def allowed(self) -> np.ndarray:
        """Booleans (…, n_q, n_k): which scores are not −∞."""
        result: np.ndarray = np.asarray(self.kind.xp.isfinite(self.final_scores))
        return result

    @property
    def output_step(self) -> Step | None:
        """The step from the heads' outputs to the output, if there is one."""
        return self.steps[-1] if "attended" in self.values else None

    @property
    def steps_behind_weights(self) -> tuple[Step, ...]:
        """The steps from the weighted values to the output."""
        return find_steps_behind_weights(self.steps)

    @property
    def merges_heads(self) -> bool:
        """Return whether the output has the heads side by side, or summed by a projection."""
        return self.output_step is not None and self.spec.heads > 1 and "x" in self.inputs

    @property
    def value_step(self) -> Step:
        """The step at which the weights multiply the values."""
        return find_value_step(self.steps)

    @property
    def values_name(self) -> str:
        """The name of the array that the weights multiply."""
        return values_name(self.steps) if self.variant.values == "v" else self.variant.values

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The definition's own steps."""
        return self.spec.pipeline(frozenset(self.inputs))


def values_name(steps: Sequence[Step]) -> str:
    """Return the name of the array that the weights multiply: v, or v for each head of queries."""
    return find_value_step(steps).of[1]


def canonical(spec: Attention) -> Attention:
    """Return the same attention with latents' matrices not absorbed; absorbed ones give equal numbers."""
    return (
        replace(spec, latent=replace(spec.latent, absorbed=False))
        if spec.latent is not None
        else spec
    )


def run(spec: Attention, inputs: Inputs, variant: Variant = RIGHT, kind: type[Any] = Ball) -> Run:
    """Run the definition, or a variant of it, in balls at their present precision, or in enclosures."""
    spec, inputs = changed(spec, inputs, variant)
    lifted_inputs = {n: lifted(a, kind) for n, a in inputs.items()}
    result = Run(
        spec,
        inputs,
        trace(spec, lifted_inputs, variant),
        variant,
        kind,
    )
    # Balls have a global precision, which may differ by the time the sizes are needed.
    if kind is Ball:
        result.absolute  # noqa: B018 - computed and cached at the present precision
    return result


def changed(spec: Attention, inputs: Inputs, variant: Variant) -> tuple[Attention, Inputs]:
    """Return the specification and the inputs that a variant runs on, with latents' matrices not absorbed."""
    if spec.latent is not None:
        spec = canonical(spec)
    if variant.inputs is not None:
        inputs = variant.inputs(spec, inputs)
    if variant.spec is None:
        return spec, inputs
    spec = variant.spec(spec)
    # Another specification may refuse inputs that the first one needs.
    foreign = {*NEEDED, *OPTIONAL} - accepted(spec)
    return spec, {n: a for n, a in inputs.items() if n not in foreign}


def variant_values(spec: Attention, inputs: Values, variant: Variant = RIGHT) -> Values:
    """Return every array of a variant of a definition, on inputs of any kind."""
    spec, arrays = changed(spec, inputs, variant)
    return trace(spec, dict(arrays), variant)


def usual(spec: Attention) -> bool:
    """Return whether scores are dot products with a scale, and weights their softmax under masks."""
    if spec.sink is not None or not has_usual_weights(spec):
        return False
    # A variant has a step of its own, or changes one of these by the fields above.
    return {step.name for step in spec.pipeline("qkv")} <= USUAL_STEPS


def has_usual_weights(spec: Attention) -> bool:
    """Return whether weights are the softmax of dot products of queries and keys, with or without a sink."""
    return spec.score == "dot" and spec.base is None and spec.is_softmax and spec.latent is None


def of_products(spec: Attention) -> bool:
    """Return whether scores are sums of products of inputs, so that absolute values bound their monomials."""
    if spec.latent is not None or spec.score not in ("dot", "general"):
        return False
    return not _has_changed_vectors(spec, "scores")


def values_of_products(spec: Attention) -> bool:
    """Return whether values are inputs or sums of products of inputs, so that absolute values bound their monomials."""
    if spec.latent is not None:
        return False
    return not _has_changed_vectors(spec, values_name(spec.pipeline("qkv")))


def _has_changed_vectors(spec: Attention, name: str) -> bool:
    """Return whether an array is made of vectors that are rotated, or changed by any other operations."""
    steps = spec.pipeline("qkv")
    before = _steps_needed_for_arrays(steps, {name})
    return any(step.name in before and step.errors in ("rotates", "rounded") for step in steps)


def trace(
    spec: Attention,
    given: Values,
    variant: Variant = RIGHT,
    wanted: set[str] | None = None,
    known: Sequence[tuple[Mapping[str, Change], Values]] = (),
) -> Values:
    """Return every array of a run; with ``wanted``, only these and the arrays they depend on.

    ``known`` are the changes and the arrays of other runs of this specification: a step that is changed as there, or
    not, and receives the same arrays is not repeated. A change may read all arrays before it.
    """
    steps = spec.pipeline(frozenset(given))
    text = values_name(steps)
    needed = _steps_needed_for_arrays(steps, wanted) if wanted is not None else None
    # A change may make the array that the weights multiply, when they do.
    values, result = dict(given), variant.steps.get(variant.values)
    for step in steps:
        if needed is not None and step.name not in needed:
            continue
        change, of = variant.steps.get(step.name), step.of
        # In closing steps the variant's array takes the place of the values.
        if step.name in CLOSING and text in of and variant.values != "v":
            of = tuple(variant.values if n == text else n for n in of)
            if result and variant.values not in values:
                values[variant.values] = result(spec, values)
        # Identity of arrays is enough: equal arrays of another run are computed again, rarely.
        for changes, other in known if of == step.of else ():
            # A change may read all arrays, so all of them must be the same.
            if changes.get(step.name) is change and all(
                values[n] is other.get(n) for n in (values if change else of)
            ):
                values[step.name] = other[step.name]
                break
        else:
            operands = [values[n] for n in of]
            if change:
                values[step.name] = change(spec, values)
            elif step.name in ("cos", "sin"):
                values[step.name] = _run_angle_step(step, spec, operands)
            else:
                values[step.name] = step.run(*operands)
    # The array is wanted although the step that multiplies it did not run.
    if result and text in values and variant.values not in values:
        values[variant.values] = result(spec, values)
    return values


def _run_angle_step(step: Step, spec: Attention, given: Sequence[object]) -> Any:
    """Run a step of angles. Those of counted positions depend on sizes alone: their enclosures are cached.

    A longer table begins with the rows of a shorter one, unless frequencies are scaled, which may depend on its length.
    """
    if len(given) != 1 or not isinstance(given[0], Enclosure):
        return step.run(*given)
    n, width = given[0].plain_shape[-2:]
    scaled = isinstance(spec.position, Rotary) and spec.position.scaling is not None
    key = spec.position, step.name, width, n if scaled else 0
    enclosure = _ANGLES.get(key)
    if enclosure is None or enclosure.plain_shape[-2] < n:
        # Rounded up to a power of 2, so that growing sizes seldom need another table.
        rows = n if scaled else max(_ROWS, 1 << (n - 1).bit_length())
        enclosure = step.run(Enclosure.lift(np.zeros((rows, width))))
        if enclosure.mid.size <= _MOST_NUMBERS:
            stored_size = sum(a.mid.size for a in list(_ANGLES.values()))
            total = stored_size + enclosure.mid.size
            # Cleared as a whole: simpler than an order of use, and rarely needed.
            if len(_ANGLES) >= _MOST_ANGLES or total > _MOST_NUMBERS:
                _ANGLES.clear()
            _ANGLES[key] = enclosure
    return enclosure[..., :n, :]


def _steps_needed_for_arrays(steps: Sequence[Step], wanted: set[str]) -> set[str]:
    result = set(wanted)
    # Backward, so that one pass covers what needed steps need.
    for step in reversed(steps):
        result |= set(step.of) if step.name in result else set()
    return result


def lifted(array: Any, kind: Any = Ball) -> Any:
    """Return an input as an array of a kind; booleans and whole numbers are returned as they are."""
    if array.dtype == bool or array.dtype.kind in "iu":
        return array
    # Only literals may hold −∞, which stands for a forbidden score.
    if np.isinf(array).any():
        return kind.literal(array)
    return kind.lift(array)


def float64_inputs(inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the inputs with floating-point numbers as float64; booleans and whole numbers stay the same."""
    return {
        n: a if a.dtype.kind in "biu" else a.astype(np.float64, copy=False)
        for n, a in inputs.items()
    }


def float64_outputs(run: Callable[[Inputs], Sequence[object]], inputs: Inputs) -> list[np.ndarray]:
    """Return the results of a computation in float64."""
    with np.errstate(all="ignore"):
        return [np.asarray(y, dtype=np.float64) for y in run(float64_inputs(inputs))]


def outputs_in(
    dtype: type[np.floating[Any]], run: Callable[[Inputs], Sequence[object]], inputs: Inputs
) -> list[np.ndarray]:
    """Return the results of a computation in another format of NumPy, as float64."""
    narrow = {
        n: a.astype(dtype) if a.dtype == np.float64 else a
        for n, a in float64_inputs(inputs).items()
    }
    with np.errstate(all="ignore"):
        return [np.asarray(y, dtype=np.float64) for y in run(narrow)]
