"""The legal ways of computing ``LinearAttention``: features, and sums by pairs, token by token or by chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import linear
from symattn.attention.layers.steps import identity
from symattn.attention.norms import unit
from symattn.attention.projections import repeat_heads
from symattn.attention.softmax import powers
from symattn.attention.stated_flow import OtherStep
from symattn.bounds.changed_steps import ChangedSteps
from symattn.bounds.mistake import Compute
from symattn.bounds.reference import Values
from symattn.verification.definitions.linear_erasure import (
    Erasure,
    read_erasing_inputs,
)

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention


FEATURES: dict[str, Callable[[Array], Array]] = {
    "identity": identity,
    "elu": linear.elu_plus_one,
    "relu": linear.relu,
    "exp": powers,
}


class LinearInputs(NamedTuple):
    """The inputs of a ``LinearAttention``: None for those that a specification does not have, or a call leaves out.

    FormRows of tokens are (…, n, d). One number a token is a column (…, n, 1), as is one gate a head, for each of its
    tokens. Numbers of heads broadcast with them: a bonus is (…, 1, d_k), and a skip (…, 1, 1).
    """

    q: Any
    k: Any
    v: Any
    g: Any = None
    beta: Any = None
    initial_state: Any = None
    bonus: Any = None
    dt: Any = None
    skip: Any = None
    p: Any = None
    b: Any = None
    w: Any = None
    a: Any = None
    A_log: Any = None
    dt_bias: Any = None

    def read_erasing(self, spec: LinearAttention) -> dict[str, Any]:
        """Return p, b, w and a of the specification by name, as ``read_erasing_inputs``."""
        return read_erasing_inputs(spec, self._asdict())


class FormRows(NamedTuple):
    """The arrays that a form reads.

    q, k   features, for each head of values, (…, n, f)
    v      the values that are written, (…, n, d_v)
    g      gates that broadcast with k, or None
    beta   β as a column, or the ``Erasure`` in its place, or None
    state  the state before the first token, (…, f, d_v), or None for zeros
    """

    q: Any
    k: Any
    v: Any
    g: Any = None
    beta: Any = None
    state: Any = None

    @property
    def first_state(self) -> Any:
        """The state before the first token, as an array."""
        return linear.empty_state(self.k, self.v) if self.state is None else self.state

    @property
    def erasure(self) -> Erasure:
        """The erasure of the delta rule: β k along k, if no field of the specification says otherwise."""
        corrected = self.beta
        if isinstance(corrected, Erasure):
            return corrected
        return Erasure(corrected * self.k, self.k)

    @property
    def written(self) -> Any:
        """The values of the delta rule: β v, if v does not have its factor already."""
        return self.v if isinstance(self.beta, Erasure) else self.beta * self.v


class Produced(NamedTuple):
    """The results of a form: the outputs (…, n, d_v) and the final state (…, f, d_v), None if it has none."""

    output: Any
    state: Any = None


#: A form of the sums over tokens, from the specification.
Form = Callable[["LinearAttention", FormRows], Produced]


def sum_in_form(form: Form, normaliser: Form | None = None) -> dict[str, OtherStep]:
    """Return the changes of the sums of values to another form, and of the sums of weights to ``normaliser``.

    Without a normaliser the sums of weights stay in their own form.
    """
    changes: dict[str, OtherStep] = {"sums": lambda spec, values: form(spec, rows_of(spec, values))}
    if normaliser is not None:
        changes["divisor"] = lambda spec, values: sum_weights(
            normaliser, spec, *rows_of(spec, values)
        )
    return changes


def rows_of(spec: LinearAttention, values: Values) -> FormRows:
    """Return the arrays that the sums over tokens take, in a run."""
    of = next(step.of for step in spec.pipeline(values) if step.name == "sums")
    return FormRows(*map(values.get, of))


def compute_in_form(spec: LinearAttention, form: Form) -> ChangedSteps:
    """Return the run of a specification whose sums, also those of weights, are computed in a form."""
    return ChangedSteps(spec, sum_in_form(form, form if spec.normalised else None))


def sum_weights(form: Form, spec: LinearAttention, q: Any, k: Any, v: Any, *more: Any) -> Any:
    """Return the sum of the weights of each token, (…, n, 1): that of values of 1."""
    return form(spec, FormRows(q, k, make_unit_values(v), *more)).output


def multiply_by_step(spec: LinearAttention, x: LinearInputs) -> tuple[Any, Any]:
    """Return Δ g and Δ v, or both as they are without a step."""
    return (x.dt * x.g, x.dt * x.v) if spec.step and x.dt is not None else (x.g, x.v)


def read_initial_state(
    spec: LinearAttention, k: Array, v: Array, initial_state: Array | None
) -> Array:
    """Return the state before the first token (…, f, d_v): zeros if there is none."""
    if initial_state is None:
        return linear.empty_state(k, v)
    return initial_state if spec.state == "kv" else initial_state.mT


def read_features(spec: LinearAttention, x: Array) -> Any:
    """Return what the sums read of queries or keys: φ(x), divided by its length if there is a norm, for each head of
    values."""
    features = FEATURES[spec.feature](x)
    rows = features if spec.qk_norm is None else unit(features, spec.eps)
    return repeat_for_values(spec, rows)


def repeat_for_values(spec: LinearAttention, x: Array) -> Array:
    return x if spec.values_per_key == 1 else repeat_heads(x, spec.values_per_key)


def make_unit_values(v: Array) -> Array:
    # Ones of the kind of v, from its own arithmetic.
    return namespace_of(v).sum(0 * v, axis=-1, keepdims=True) + 1


def compute_by_pairs(spec: LinearAttention, rows: FormRows) -> Produced:
    """Return (φ(Q) φ(K)ᵀ ⊙ D) V, and what queries read of the state before all tokens."""
    q, k, v, g, _, state = rows
    if not spec.causal:
        return Produced(q @ k.mT @ v)
    if spec.reads == "before":
        if state is None:
            return Produced(linear.products_read_before(q, k, v, g))
        end, output = linear.chunk_read_before(state, q, k, v, g)
        return Produced(output, end)
    if state is None:
        return Produced(linear.decayed_scores(q, k, linear.gate_sums(g)) @ v)
    end, output = linear.gated_chunk(state, q, k, v, g)
    return Produced(output, end)


def compute_by_tokens(spec: LinearAttention, rows: FormRows) -> Produced:
    """Compute the output from the state, token by token."""
    if not spec.causal:
        return Produced(rows.q @ (rows.k.mT @ rows.v))
    if isinstance(rows.beta, Erasure):
        erasing: Compute = partial(linear.erasing_token, before=spec.erases == "before")
        return scan_linear_state(spec, erasing, rows, rows.beta.p, rows.beta.keys, rows.g)
    step: Compute = linear.delta_token if spec.delta else linear.gated_step
    return scan_linear_state(spec, step, rows, rows.beta, rows.g)


def scan_linear_state(
    spec: LinearAttention, step: Compute, rows: FormRows, *more: Array | None
) -> Produced:
    """Scan the tokens with a step that gives q S', or with q S where the state before a token is read.

    The step takes the state, q, k and v, and what is not None of ``more``.
    """
    extras = [x for x in more if x is not None]
    if spec.reads == "before":
        step = linear.reading_before(step)
    bounds = range(int(rows.k.shape[-2]) + 1)
    arrays = (rows.q, rows.k, rows.v, *extras)
    end, output = linear.scan(step, rows.first_state, bounds, *arrays)
    return Produced(output, end)


def _compute_by_chunks(spec: LinearAttention, rows: FormRows) -> Produced:
    """Compute the output from the state, two tokens at a time."""
    # Chunks of two tokens have every part that longer ones have.
    n, gates = int(rows.k.shape[-2]), [x for x in (rows.g,) if x is not None]
    bounds = [*range(0, n, 2), n]
    chunk = linear.chunk_read_before if spec.reads == "before" else linear.gated_chunk
    arrays = (rows.q, rows.k, rows.v, *gates)
    end, output = linear.scan(chunk, rows.first_state, bounds, *arrays)
    return Produced(output, end)


def list_linear_forms(spec: LinearAttention) -> tuple[Form, ...]:
    # The delta rule writes what the state lacks, so that each token needs the state after the one before.
    if spec.delta:
        return (compute_by_tokens,)
    forms = (compute_by_pairs, compute_by_tokens)
    return (*forms, _compute_by_chunks) if spec.causal else forms


def yield_linear_ways(spec: LinearAttention) -> Iterator[ChangedSteps]:
    """Yield each form; for elu(x) + 1 also as written, whose relative error grows far below 0, where 1 cancels."""
    for form in list_linear_forms(spec):
        yield compute_in_form(spec, form)
    for form in list_linear_forms(spec) if spec.feature == "elu" else ():
        way = compute_in_form(spec, form)
        yield replace(way, steps={**way.steps, **map_features(linear.elu_then_one)})


def map_features(feature: Callable[[Any], Any]) -> dict[str, OtherStep]:
    """Return the changes of the features of queries and keys to those of another map."""
    return {
        f"{x}_features": lambda spec, values, x=x: feature(values[x])  # type: ignore[misc]
        for x in "qk"
    }
