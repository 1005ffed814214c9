"""How far forms of ``LinearAttention`` may be off that are not among its ways: inverses, gates split in two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention import linear
from symattn.bounds import linear_forms
from symattn.bounds.called_target import Inputs
from symattn.bounds.mistake import Compute
from symattn.bounds.reference import float64_inputs
from symattn.verification.definitions.definition_subject import OtherForms
from symattn.verification.definitions.linear_erasure import (
    ERASING_INPUTS,
    Erasure,
    in_steps,
    join_steps,
    read_erasure,
)
from symattn.verification.definitions.linear_ways import (
    FEATURES,
    LinearInputs,
    multiply_by_step,
    read_features,
    read_initial_state,
)
from symattn.verification.definitions.recurrent_law import (
    read_betas_with_errors,
    read_gates_with_errors,
    read_steps_with_errors,
)

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention


def bound_other_forms(spec: LinearAttention, laid: Callable[[Compute], Compute]) -> OtherForms:
    """Return the bound on forms that are not among ``yield_linear_ways``: triangular systems, inverses, gates split in
    two."""

    def run(inputs: Inputs, precision: Precision) -> Sequence[np.ndarray] | None:
        bound = laid(partial(_bound_of_forms, spec, precision))(**float64_inputs(inputs))
        if bound is None:
            return None
        return list(bound) if isinstance(bound, tuple) else [bound]

    return OtherForms(_OTHER_FORMS[spec.delta], run)


_OTHER_FORMS = {
    True: "by chunks, with a triangular system that is solved by substitution, by LU factors or by its inverse",
    False: "by chunks, with e^G on queries and e^(−G) on keys",
}
#: What is added to |φ| where φ may be computed as a sum that cancels: (e^x − 1) + 1.
_CANCELLING = {"elu": 2.0}


def _bound_of_forms(spec: LinearAttention, precision: Precision, **inputs: Any) -> Any:
    """Return how far any usual form may be off, (…, n, d_v), with states also the final one; None if there is no
    bound."""
    x, errors = LinearInputs(**inputs), None
    if spec.gate_form:
        gates, errors = read_gates_with_errors(spec, x.g, x.A_log, x.dt_bias, precision)
        if not np.isfinite(errors).all():
            return _leave_unbounded(spec, x.q, x.v)
        x = x._replace(g=gates)
    # What is written is Δ v or β v, which is off as Δ or β is, and so is what is erased.
    off_values: Any = 0.0
    of_betas: Any = None
    if spec.beta_form:
        betas, of_betas = read_betas_with_errors(spec, x.beta, precision)
        if not np.isfinite(of_betas).all():
            return _leave_unbounded(spec, x.q, x.v)
        gates = np.zeros_like(betas) if x.g is None else x.g
        errors = np.zeros_like(gates) if errors is None else errors
        x = x._replace(beta=betas, g=gates)
    if spec.step_form:
        steps, of_steps = read_steps_with_errors(spec, x.dt, x.dt_bias, precision)
        if not np.isfinite(of_steps).all():
            return _leave_unbounded(spec, x.q, x.v)
        errors, off_values = of_steps * np.abs(x.g), of_steps * np.abs(x.v)
        x = x._replace(dt=steps)
    terms, g, erased = _read_terms(spec, x, precision)
    every = [(terms, g)]
    if errors is not None:
        # With the largest β each part that has it is as large as in any program, also where β is 0.
        larger = x if of_betas is None else x._replace(beta=x.beta + of_betas)
        slower = _with_gates(spec, _read_terms(spec, larger, precision).terms, g + errors)
        largest = np.copysign(np.abs(slower.v) + off_values, slower.v)
        slower = replace(slower, v=largest)
        every.append((slower, g + errors))
    if spec.erase == "pair" and erased is not None:
        return _bound_of_two_steps(spec, precision, every, erased, x.initial_state)
    both = [one for one, _ in every]
    if spec.state:
        around = [_with_state_as_tokens(spec, one, x.initial_state) for one in both]
        of_tokens = _allow(precision, *around)
        return None if of_tokens is None else _split_state_bound(spec, terms, of_tokens)
    result = _allow(precision, *both)
    if result is None or not spec.normalised:
        return result
    return _bound_of_quotient(precision, both, result)


class _Read(NamedTuple):
    """The terms of sums over tokens, the gates of each token, and what it erases; None without these."""

    terms: linear_forms.LinearTerms
    g: Any
    erased: Erasure | None


def _read_terms(spec: LinearAttention, x: LinearInputs, precision: Precision) -> _Read:
    """Return the arrays that forms read of the inputs."""
    g, v = multiply_by_step(spec, x)
    sums: Any = linear.gate_sums(g)
    cancelling, relative = _errors_of_features(spec, x, precision)
    keys, written, erased = read_features(spec, x.k), v, None
    if spec.erase:
        erased, written = read_erasure(spec, keys, v, x.beta, x.read_erasing(spec))
    elif spec.delta:
        erased, written = Erasure(x.beta * keys, keys), x.beta * v
    scale = float(x.q.shape[-1]) ** -0.5 if spec.scale else 1.0
    terms = linear_forms.LinearTerms(
        scale * read_features(spec, x.q),
        keys,
        written,
        None if erased is None else erased.p,
        sums,
        cancelling,
        relative,
        # A step makes other gates of one a head.
        spec.gate == "head" and not spec.step,
        reads=_sums_of_reads(spec, sums, g),
        reads_before=spec.reads == "before",
        bonus=x.bonus if spec.bonus else None,
        skipped=np.abs(x.skip * x.v) if spec.skip else None,
        step=_largest_of_factors(spec, x),
        more_erased=_more_of_erased(spec, cancelling, x),
        erasing=sums - g if spec.erases == "before" else None,
    )
    return _Read(terms, g, erased)


def _errors_of_features(
    spec: LinearAttention, x: LinearInputs, precision: Precision
) -> tuple[float, float]:
    """Return what is added to |φ| for a sum that cancels, and the relative error of a product that a norm leaves."""
    cancelling = _CANCELLING.get(spec.feature, 0.0)
    if not spec.qk_norm:
        return cancelling, 0.0
    phi = FEATURES[spec.feature]
    # p has no features.
    vectors = [phi(x.q), phi(x.k), *([x.p] if spec.erase == "vector" else [])]
    squares = [(a**2).sum(axis=-1, keepdims=True) + float(spec.eps) for a in vectors]
    least = min(float(a.min(initial=np.inf)) for a in squares)
    relative = linear_forms.error_of_norms(x.q.shape[-1], least, precision)
    # Vectors are divided by their length, and so is what cancels in their features.
    return (cancelling / least**0.5 if cancelling else 0.0), relative


def _largest_of_factors(spec: LinearAttention, x: LinearInputs) -> float:
    """Return the product of the factors of what is written or erased, each of which may meet what underflows."""
    if not (spec.step or spec.delta):
        return 1.0
    factors = (x.dt, x.beta, *(getattr(x, name) for name in ERASING_INPUTS[spec.erase]), x.v)
    # With 1 added, a small factor never lowers the product, which bounds every partial product.
    return float(np.prod([1 + np.abs(a).max(initial=0.0) for a in factors if a is not None]))


def _bound_of_quotient(
    precision: Precision, both: Sequence[linear_forms.LinearTerms], result: Any
) -> Any:
    """Return the bound of sums of values over sums of weights, from the terms and the bound of the first sums.

    |N'/D' − N/D| ≤ (|N' − N| + |N/D| |D' − D|) / (|D| − |D' − D|)
    """
    terms = both[0]
    # A sum of weights is the sum of values that are all 1.
    ones = np.ones_like(terms.v[..., :1])
    below = _allow(precision, *(replace(one, v=ones) for one in both))
    scores: Any = linear.decayed_scores(terms.q, terms.k, terms.sums)
    top, divisor = np.abs(scores @ terms.v), np.abs(scores @ ones)
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = (result + top / divisor * below) / (divisor - below)
        moved = moved + 4 * float(precision.roughest.u) * (top / divisor + moved)
    # A divisor that may be 0 has no bound.
    return np.where(below < divisor, moved, np.inf)


def _allow(
    precision: Precision,
    terms: linear_forms.LinearTerms,
    slower: linear_forms.LinearTerms | None = None,
) -> Any:
    """Return the bound on all forms; ``slower`` are the terms of gates with their largest errors, if these have any."""
    if slower is None:
        return linear_forms.allowed(terms, precision)
    return linear_forms.allowed_of_moved_gates(terms, slower, precision)


def _with_gates(
    spec: LinearAttention, terms: linear_forms.LinearTerms, g: Any
) -> linear_forms.LinearTerms:
    sums: Any = linear.gate_sums(g)
    erasing = sums - g if spec.erases == "before" else None
    return replace(terms, sums=sums, reads=_sums_of_reads(spec, sums, g), erasing=erasing)


def _leave_unbounded(spec: LinearAttention, q: Any, v: Any) -> Any:
    """Return ∞ for every output, and for the final state."""
    outputs = np.full(v.shape, np.inf)
    width = (q.shape[-1], v.shape[-1]) if spec.state == "kv" else (v.shape[-1], q.shape[-1])
    return (outputs, np.full((*v.shape[:-2], *width), np.inf)) if spec.state else outputs


def _more_of_erased(spec: LinearAttention, cancelling: float, x: LinearInputs) -> Any:
    """Return what is added to |p| where the features of keys, which p is made of, may be sums that cancel."""
    factor = x.b if spec.erase == "gates" else x.beta
    has_keys = spec.delta and spec.erase in (None, "gates")
    return cancelling * np.abs(factor) if has_keys and cancelling else 0.0


def _bound_of_two_steps(
    spec: LinearAttention,
    precision: Precision,
    every: Sequence[tuple[linear_forms.LinearTerms, Any]],
    erased: Erasure,
    initial_state: Any,
) -> Any:
    """Return the bound of two steps a token, of which one is read; ``every`` has terms, and their gates."""
    both = [_double_steps(spec, terms, erased, g) for terms, g in every]
    around = (
        [_with_state_as_tokens(spec, one, initial_state) for one in both] if spec.state else both
    )
    bound = _allow(precision, *around)
    if bound is None:
        return None
    # Tokens that read before they are added read at their first step, and all others at their second.
    read = slice(0 if spec.reads == "before" else 1, None, 2)
    if not spec.state:
        return bound[..., read, :]
    outputs, state = _split_state_bound(spec, both[0], bound)
    return outputs[..., read, :], state


def _double_steps(
    spec: LinearAttention, terms: linear_forms.LinearTerms, erased: Erasure, g: Any
) -> linear_forms.LinearTerms:
    """Return the terms of two steps a token: it erases in the first, and writes in the second."""
    gates = 0 * terms.k[..., :1] if g is None else g
    steps = in_steps(terms.q, terms.k, terms.v, gates, erased)
    sums: Any = None if g is None else linear.gate_sums(steps.g)
    earlier = None if sums is None else sums - steps.g
    return replace(
        terms,
        q=steps.q,
        k=steps.k,
        v=steps.v,
        p=steps.p,
        sums=sums,
        reads=_sums_of_reads(spec, sums, steps.g),
        erasing=earlier if spec.erases == "before" else None,
        skipped=None if terms.skipped is None else join_steps(terms.skipped, terms.skipped),
        steps=2,
    )


def _sums_of_reads(spec: LinearAttention, sums: Any, g: Any) -> Any:
    """Return the sums of the gates that have decayed the state as each token reads it; None without gates."""
    return sums if sums is None or spec.reads == "after" else sums - g


def _with_state_as_tokens(
    spec: LinearAttention, terms: linear_forms.LinearTerms, initial_state: Any
) -> linear_forms.LinearTerms:
    """Return the terms with d_k tokens in front that write the initial state, and d_k behind that read the final one.

    The key of each is one feature alone; those behind write nothing, and none of them decays the state.
    """
    front, width = terms.k.shape[:-2], terms.k.shape[-1]
    state = read_initial_state(spec, terms.k, terms.v, initial_state)
    units = np.broadcast_to(np.eye(width), (*front, width, width))
    nothing = 0 * units

    def around(before: Any, x: Any, after: Any) -> Any:
        return np.concatenate([before, x, after], axis=-2)

    sums, reads, erasing = None, None, None
    if terms.sums is not None and terms.reads is not None:
        of_width = np.zeros((*front, width, terms.sums.shape[-1]))
        last = of_width + terms.sums[..., -1:, :]
        sums, reads = (around(of_width, a, last) for a in (terms.sums, terms.reads))
        if terms.erasing is not None:
            erasing = around(of_width, terms.erasing, last)
    more_erased = terms.more_erased
    if isinstance(more_erased, np.ndarray):
        column = nothing[..., : more_erased.shape[-1]]
        more_erased = around(column, more_erased, column)
    return replace(
        terms,
        q=around(nothing, terms.q, units),
        k=around(units, terms.k, nothing),
        v=around(state, terms.v, 0 * state),
        skipped=None if terms.skipped is None else around(0 * state, terms.skipped, 0 * state),
        # Those around write the state and read it: nothing is erased by them.
        p=None if terms.p is None else around(nothing, terms.p, nothing),
        more_erased=more_erased,
        erasing=erasing,
        sums=sums,
        reads=reads,
        around=width,
    )


def _split_state_bound(
    spec: LinearAttention, terms: linear_forms.LinearTerms, bound: Any
) -> tuple[Any, Any]:
    """Return the bounds of the outputs and of the final state, from those of the tokens with the state's around."""
    width = terms.k.shape[-1]
    state = bound[..., -width:, :]
    return bound[..., width:-width, :], state if spec.state == "kv" else state.swapaxes(-1, -2)
