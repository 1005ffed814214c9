"""Replays: a right program of a recurrence in float32, with its arrays stored as a ``RecurrentArithmetic`` says.

They guard the sharp limit, whose hypothesis is false on some inputs, such as equal tokens without gates, whose
roundings are equal: where a right program needs more than ``MOST_OF_SHARP`` of that limit, nothing is claimed by it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from symattn.arrays.formats import Format
from symattn.bounds.recurrent.recurrence import Recurrence, decayed_products, unit_lower_inverse
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic
from symattn.bounds.recurrent.recurrent_limits import ExactRecurrence

Array = np.ndarray
# Sums of the replayed program are in float32.
WIDE = np.float32


def replay(of: Recurrence, how: RecurrentArithmetic) -> ExactRecurrence:
    """Return what a right program in this arithmetic gives."""
    # Replays of large gates may overflow, as the program itself would.
    steps, how_in_steps = of.in_steps, replace(how, size=how.size * of.steps_a_token)
    with np.errstate(all="ignore"):
        if how.order == "tokens":
            rows, state = _token_by_token(steps, how)
        else:
            rows, state = _in_chunks(steps, how_in_steps)
    output = rows[of.read_steps]
    return ExactRecurrence(
        _store_replayed_array(output, how.output).astype(np.float64),
        _store_replayed_array(state, how.ending).astype(np.float64),
    )


def _store_replayed_array(x: Array, form: Format | None) -> Array:
    # A format at least as fine as float32 loses nothing that is in float32.
    if form is None or form.u <= Format("float32").u:
        return x
    return form.cast(x).astype(WIDE)


def _token_by_token(of: Recurrence, how: RecurrentArithmetic) -> tuple[Array, Array]:
    arrays = (of.q, of.k, of.written, of.erased, of.gates)
    q, k, written, p, gates = (a.astype(WIDE) for a in arrays)
    state = of.state.astype(WIDE)
    outputs = np.empty(of.v.shape, WIDE)
    for token in range(len(q)):
        previous = state
        # S ← diag(e^g) S, u = β (v − Sᵀ k), S ← S + k uᵀ: the delta rule with gates.
        state = np.exp(gates[token])[:, None] * state
        u = written[token] - p[token] @ (previous if of.erases_before else state)
        added = k[token][:, None] * u
        # The state is stored after each token, and so rounded.
        state = _store_replayed_array(state + added, how.kept)
        outputs[token] = q[token] @ (previous if of.reads_before else state)
    return outputs + _replay_own_products(of, slice(None)), state


def _replay_own_products(of: Recurrence, some: slice) -> Array:
    """Return c v of a bonus and a skip for some tokens; zeros without these."""
    q, k, v = (a[some].astype(WIDE) for a in (of.q, of.k, of.v))
    own = WIDE(of.skip)
    if of.bonus is not None:
        own = own + (q * of.bonus.astype(WIDE) * k).sum(axis=1, keepdims=True)
    return np.asarray(own * v)


def _in_chunks(of: Recurrence, how: RecurrentArithmetic) -> tuple[Array, Array]:
    def store(x: Array) -> Array:
        return _store_replayed_array(x, how.stored)

    state, outputs = of.state.astype(WIDE), []
    for lo in range(0, len(of.q), how.size):
        some = slice(lo, lo + how.size)
        arrays = (of.q, of.k, of.erased)
        q, k, p = (a[some].astype(WIDE) for a in arrays)
        right = of.written[some].astype(WIDE)
        sums = np.cumsum(of.gates[some].astype(WIDE), axis=0)
        earlier = sums - of.gates[some].astype(WIDE)
        reads = earlier if of.reads_before else sums
        erasing = earlier if of.erases_before else sums
        grown = np.exp(erasing)
        inner = decayed_products(q, k, sums, strict=of.reads_before, reads=reads)
        u = right
        # Where nothing is erased u is w V.
        if of.erases:
            lower = decayed_products(p, k, sums, strict=True, reads=erasing)
            inverse = store(unit_lower_inverse(lower).astype(WIDE))
            if how.residual:
                u = inverse @ store(right - (p * grown) @ store(state))
            else:
                read = store(inverse @ store(p * grown))
                u = store(inverse @ store(right)) - read @ store(state)
        from_state = store(q * np.exp(reads)) @ store(state)
        own = _replay_own_products(of, some)
        outputs.append(from_state + store(inner) @ store(u) + own)
        decayed_keys = store(k * np.exp(sums[-1:] - sums))
        added = decayed_keys.T @ store(u)
        decay = np.exp(sums[-1])[:, None]
        state = _store_replayed_array(decay * state + added, how.kept)
    return np.concatenate(outputs), state
