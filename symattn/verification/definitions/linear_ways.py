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
from symattn.verification.definitions.definition_mistakes import Compute, reading
from symattn.verification.definitions.linear_erasure import (
    Erasure,
    read_erasing_inputs,
    read_erasure,
)

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention


FEATURES: dict[str, Callable[[Array], Array]] = {
    "identity": identity, "elu": linear.elu_plus_one, "relu": linear.relu, "exp": powers,
}  # fmt: skip


class Produced(NamedTuple):
    """The results of a form: the outputs (…, n, d_v) and the final state (…, f, d_v), None if it has none."""

    output: Array
    state: Array | None = None


#: A form, from the specification, q and k as they are read, v, g, beta and the state before the first token (None:
#: zeros).
Form = Callable[..., Produced]


def apply_normalised_form(
    spec: LinearAttention, form: Form, q: Array, k: Array, v: Array,
    g: Array | None = None, beta: Array | None = None, initial_state: Array | None = None, bonus: Array | None = None,
    dt: Array | None = None, skip: Array | None = None, below: Form | None = None, **erasing: Array,
) -> Any:  # fmt: skip
    """Return ``form`` of the features, divided by the same form, or ``below``, with values of 1 if normalised.

    With a ``bonus`` (…, 1, d_k) each token reads itself as well; the step ``dt`` (…, n, 1) multiplies gates and the
    values that are written, and ``skip`` (…, 1, 1) those that are added. With a ``state`` return the final state too.
    Where the specification says what is erased, the form gets an ``Erasure`` of the inputs ``erasing`` in the place of
    β, and the values that are written.
    """
    a, b = read_features(spec, q), read_features(spec, k)
    if spec.scale:
        xp = namespace_of(q)
        a = a / xp.sqrt(xp.asarray(q.shape[-1], dtype=q.dtype))
    state = read_initial_state(spec, b, v, initial_state) if spec.state else None
    gates, written = multiply_by_step(spec, g, v, dt)
    corrected: Any = beta
    if spec.erase:
        read = read_erasing_inputs(spec, erasing)
        corrected, written = read_erasure(spec, b, v, beta, read)
    result = form(spec, a, b, written, gates, corrected, state)
    if spec.bonus and bonus is not None:
        of_itself = linear.own_products(a, b, v, bonus)
        result = Produced(result.output + of_itself, result.state)
    if spec.skip and skip is not None:
        result = Produced(result.output + skip * v, result.state)
    if spec.normalised:
        divisor = (below or form)(spec, a, b, make_unit_values(v), g, beta, None)
        return result.output / divisor.output
    if result.state is None or spec.state is None:
        return result.output
    return result.output, result.state if spec.state == "kv" else result.state.mT


def multiply_by_step(spec: LinearAttention, g: Any, v: Any, dt: Any) -> tuple[Any, Any]:
    """Return Δ g and Δ v, or both as they are without a step."""
    return (dt * g, dt * v) if spec.step and dt is not None else (g, v)


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


def compute_by_pairs(
    spec: LinearAttention,
    q: Array,
    k: Array,
    v: Array,
    g: Array | None,
    beta: Array | None,
    state: Array | None,
) -> Produced:
    """Return (φ(Q) φ(K)ᵀ ⊙ D) V, and what queries read of the state before all tokens."""
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


def compute_by_tokens(
    spec: LinearAttention,
    q: Array,
    k: Array,
    v: Array,
    g: Array | None,
    beta: Array | Erasure | None,
    state: Array | None,
) -> Produced:
    """Compute the output from the state, token by token."""
    if not spec.causal:
        return Produced(q @ (k.mT @ v))
    if isinstance(beta, Erasure):
        erasing: Compute = partial(linear.erasing_token, before=spec.erases == "before")
        return scan_linear_state(spec, erasing, state, q, k, v, beta.p, beta.keys, g)
    step: Compute = linear.delta_token if spec.delta else linear.gated_step
    return scan_linear_state(spec, step, state, q, k, v, beta, g)


def scan_linear_state(
    spec: LinearAttention,
    step: Compute,
    state: Array | None,
    q: Array,
    k: Array,
    v: Array,
    *more: Array | None,
) -> Produced:
    """Scan the tokens with a step that gives q S', or with q S where the state before a token is read."""
    extras = [x for x in more if x is not None]
    if spec.reads == "before":
        step = linear.reading_before(step)
    first = linear.empty_state(k, v) if state is None else state
    bounds = range(int(k.shape[-2]) + 1)
    end, output = linear.scan(step, first, bounds, q, k, v, *extras)
    return Produced(output, end)


def _compute_by_chunks(
    spec: LinearAttention,
    q: Array,
    k: Array,
    v: Array,
    g: Array | None,
    beta: Array | None,
    state: Array | None,
) -> Produced:
    """Compute the output from the state, two tokens at a time."""
    # Chunks of two tokens have every part that longer ones have.
    n, gates = int(k.shape[-2]), [x for x in (g,) if x is not None]
    bounds = [*range(0, n, 2), n]
    first = linear.empty_state(k, v) if state is None else state
    chunk = linear.chunk_read_before if spec.reads == "before" else linear.gated_chunk
    end, output = linear.scan(chunk, first, bounds, q, k, v, *gates)
    return Produced(output, end)


def list_linear_forms(spec: LinearAttention) -> tuple[Form, ...]:
    if spec.delta:
        return (compute_by_tokens,)
    forms = (compute_by_pairs, compute_by_tokens)
    return (*forms, _compute_by_chunks) if spec.causal else forms


def yield_linear_ways(spec: LinearAttention) -> Iterator[Compute]:
    """Yield each form; for elu(x) + 1 also as written, whose relative error grows far below 0, where 1 cancels."""
    for form in list_linear_forms(spec):
        yield partial(apply_normalised_form, spec, form)
    for form in list_linear_forms(spec) if spec.feature == "elu" else ():
        read = partial(apply_normalised_form, replace(spec, feature="identity"), form)
        yield reading(read, q=linear.elu_then_one, k=linear.elu_then_one)
