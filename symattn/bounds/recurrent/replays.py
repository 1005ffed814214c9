"""Replays: a right program of a recurrence in float32, with its arrays stored as a ``RecurrentArithmetic`` says.

They guard the sharp limit, whose hypothesis is false on some inputs, such as equal tokens without gates, whose
roundings are equal: where a right program needs more than ``MOST_OF_SHARP`` of that limit, nothing is claimed by it.
"""

from __future__ import annotations

import numpy as np

from symattn.arrays.formats import Format
from symattn.bounds.recurrent.recurrence import Recurrence, decayed_products, unit_lower_inverse
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic
from symattn.bounds.recurrent.recurrent_limits import ExactRecurrence

Array = np.ndarray
#: Part of the sharp limit that a replay may reach where that limit is used.
MOST_OF_SHARP = 1 / 3
# Sums of the replayed program are in float32.
WIDE = np.float32


def replay(of: Recurrence, how: RecurrentArithmetic) -> ExactRecurrence:
    """Return what a right program in this arithmetic gives."""
    with np.errstate(all="ignore"):
        output, state = _token_by_token(of, how) if how.order == "tokens" else _in_chunks(of, how)
    return ExactRecurrence(
        _store_replayed_array(output, how.output).astype(np.float64),
        _store_replayed_array(state, how.ending).astype(np.float64),
    )


def _store_replayed_array(x: Array, form: Format | None) -> Array:
    # A format at least as fine as float32 loses nothing that is in float32.
    return x if form is None or form.u <= Format("float32").u else form.cast(x).astype(WIDE)


def _token_by_token(of: Recurrence, how: RecurrentArithmetic) -> tuple[Array, Array]:
    q, k, written, p, gates = (
        a.astype(WIDE) for a in (of.q, of.k, of.written, of.erased, of.gates)
    )
    state, outputs = of.state.astype(WIDE), np.empty(of.v.shape, WIDE)
    for token in range(len(q)):
        state = np.exp(gates[token])[:, None] * state
        u = written[token] - p[token] @ state
        state = _store_replayed_array(state + k[token][:, None] * u, how.kept)
        outputs[token] = q[token] @ state
    return outputs, state


def _in_chunks(of: Recurrence, how: RecurrentArithmetic) -> tuple[Array, Array]:
    def store(x: Array) -> Array:
        return _store_replayed_array(x, how.stored)

    state, outputs = of.state.astype(WIDE), []
    for lo in range(0, len(of.q), how.size):
        some = slice(lo, lo + how.size)
        q, k, p = (a[some].astype(WIDE) for a in (of.q, of.k, of.erased))
        right, sums = of.written[some].astype(WIDE), np.cumsum(of.gates[some].astype(WIDE), axis=0)
        grown, inner = np.exp(sums), decayed_products(q, k, sums)
        u = right
        # Without the delta rule u is w V.
        if of.beta is not None:
            inverse = store(
                unit_lower_inverse(decayed_products(p, k, sums, strict=True)).astype(WIDE)
            )
            if how.residual:
                u = inverse @ store(right - (p * grown) @ store(state))
            else:
                u = store(inverse @ store(right)) - store(inverse @ store(p * grown)) @ store(state)
        outputs.append(store(q * grown) @ store(state) + store(inner) @ store(u))
        added = store(k * np.exp(sums[-1:] - sums)).T @ store(u)
        state = _store_replayed_array(np.exp(sums[-1])[:, None] * state + added, how.kept)
    return np.concatenate(outputs), state
