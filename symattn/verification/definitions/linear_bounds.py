"""How far forms of ``LinearAttention`` may be off that are not among its ways: inverses, gates split in two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention import linear
from symattn.bounds import linear_forms
from symattn.bounds.called_target import Inputs
from symattn.bounds.reference import float64_inputs
from symattn.verification.definitions.definition_mistakes import Compute
from symattn.verification.definitions.definition_subject import OtherForms
from symattn.verification.definitions.linear_erasure import (
    Erasure,
    in_steps,
    join_steps,
    read_erasing_inputs,
    read_erasure,
)
from symattn.verification.definitions.linear_ways import (
    FEATURES,
    multiply_by_step,
    read_features,
    read_initial_state,
)
from symattn.verification.definitions.recurrent_law import read_gates_with_errors

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


def _bound_of_forms(
    spec: LinearAttention,
    precision: Precision,
    q: Any,
    k: Any,
    v: Any,
    g: Any = None,
    beta: Any = None,
    initial_state: Any = None,
    bonus: Any = None,
    dt: Any = None,
    skip: Any = None,
    A_log: Any = None,
    dt_bias: Any = None,
    **erasing: Any,
) -> Any:
    """Return how far any usual form may be off, (…, n, d_v), with states also the final one; None if there is no
    bound."""
    errors: Any = None
    if spec.gate_form:
        g, errors = read_gates_with_errors(spec, g, A_log, dt_bias, precision)
        if not np.isfinite(errors).all():
            return _leave_unbounded(spec, q, v)
    phi: Callable[[Any], Any] = FEATURES[spec.feature]
    skipped = np.abs(skip * v) if spec.skip else None
    multiplied = [a for a in (dt, beta, *erasing.values(), v) if a is not None]
    # Factors of what is written or erased may each meet what underflows.
    step = float(np.prod([1 + np.abs(a).max(initial=0.0) for a in multiplied]))
    step = step if spec.step or spec.delta else 1.0
    g, v = multiply_by_step(spec, g, v, dt)
    scale = float(q.shape[-1]) ** -0.5 if spec.scale else 1.0
    sums: Any = linear.gate_sums(g)
    cancelling, relative = _CANCELLING.get(spec.feature, 0.0), 0.0
    if spec.qk_norm:
        # Vectors are divided by their length, and so is what cancels in their features.
        # p has no features.
        normed = [phi(q), phi(k), *([erasing["p"]] if spec.erase == "vector" else [])]
        squares = [(x**2).sum(axis=-1, keepdims=True) + float(spec.eps) for x in normed]
        least = min(float(a.min(initial=np.inf)) for a in squares)
        relative = linear_forms.error_of_norms(q.shape[-1], least, precision)
        cancelling = cancelling / least**0.5 if cancelling else 0.0
    keys = read_features(spec, k)
    written, erased = v, None
    if spec.erase:
        read = read_erasing_inputs(spec, erasing)
        erased, written = read_erasure(spec, keys, v, beta, read)
    elif spec.delta:
        erased, written = Erasure(beta * keys, keys), beta * v
    terms = linear_forms.LinearTerms(
        scale * read_features(spec, q),
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
        bonus=bonus if spec.bonus else None,
        skipped=skipped,
        step=step,
        more_erased=_more_of_erased(spec, cancelling, beta, erasing),
        erasing=sums - g if spec.erases == "before" else None,
    )
    every = [(terms, g)]
    if errors is not None:
        every.append((_with_gates(spec, terms, g + errors), g + errors))
    if spec.erase == "pair" and erased is not None:
        return _bound_of_two_steps(spec, precision, every, erased, initial_state)
    both = [one for one, _ in every]
    if spec.state:
        around = [_with_state_as_tokens(spec, one, initial_state) for one in both]
        of_tokens = _allow(precision, *around)
        return None if of_tokens is None else _split_state_bound(spec, terms, of_tokens)
    result = _allow(precision, *both)
    if result is None or not spec.normalised:
        return result
    ones = np.ones_like(v[..., :1])
    below = _allow(precision, *(replace(one, v=ones) for one in both))
    scores = linear.decayed_scores(terms.q, terms.k, terms.sums)
    top, divisor = np.abs(scores @ v), np.abs(scores @ ones)
    # |N'/D' − N/D| ≤ (|N' − N| + |N/D| |D' − D|) / (|D| − |D' − D|)
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


def _more_of_erased(
    spec: LinearAttention, cancelling: float, beta: Any, erasing: Mapping[str, Any]
) -> Any:
    """Return what is added to |p| where the features of keys, which p is made of, may be sums that cancel."""
    factor = erasing["b"] if spec.erase == "gates" else beta
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
