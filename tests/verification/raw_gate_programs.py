"""Programs that make gates of raw ones, right and wrong, in NumPy, and recurrences that read these.

Independent of ``symattn``: arrays are q, k (…, h, n, d), v (…, h, n, m), raw a (…, h, n) or (…, h, n, d), A_log (h,),
dt_bias (h,) or (h, d), beta (…, h, n), states (…, h, d, m).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.verification.recurrent_programs import TYPES

Array = Any


def _usual(x: Array) -> Array:
    # As frameworks have it: x itself above 20.
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, x.dtype.type(20)))))


def _from_the_larger(x: Array) -> Array:
    return np.maximum(x, x.dtype.type(0)) + np.log1p(np.exp(-np.abs(x)))


#: Ways of computing log(1 + e^x), each operation in the format of x.
SOFTPLUS: dict[str, Callable[[Array], Array]] = {
    "log1p": _usual,
    "log": lambda x: np.log(x.dtype.type(1) + np.exp(x)),
    "from the larger": _from_the_larger,
}
#: Ways of computing the sigmoid of x.
SIGMOID: dict[str, Callable[[Array], Array]] = {
    "quotient": lambda x: x.dtype.type(1) / (x.dtype.type(1) + np.exp(-x)),
    "tanh": lambda x: x.dtype.type(0.5) * np.tanh(x.dtype.type(0.5) * x) + x.dtype.type(0.5),
}


def gates(a: Array, A_log: Array, dt_bias: Array, lower: float | None = None, way: str = "", form: str = "") -> Array:
    """−e^A softplus(a + b), or L σ(e^A (a + b)); each operation in a format, by default that of a."""
    kind = TYPES[form] if form else a.dtype.type
    rates = np.exp(A_log.astype(kind))
    # A row for every token of a head, and a number for every feature if the gates have features.
    if dt_bias.ndim == 2:
        rates, biases = rates[:, None, None], dt_bias.astype(kind)[:, None, :]
    else:
        rates, biases = rates[:, None], dt_bias.astype(kind)[:, None]
    x = a.astype(kind) + biases
    with np.errstate(over="ignore"):
        if lower is None:
            return -rates * SOFTPLUS[way or "log1p"](x)
        return kind(lower) * SIGMOID[way or "quotient"](rates * x)


def by_tokens(
    q: Array, k: Array, v: Array, g: Array, beta: Array | None = None, initial_state: Array | None = None
) -> tuple[Array, Array]:
    """S ← e^g S, S ← S + k β (v − k S) or S + k v, o = q S, for gates (…, h, n) or (…, h, n, d)."""
    state = 0 * (k[..., 0, :, None] * v[..., 0, None, :])
    if initial_state is not None:
        state = state + initial_state
    decays = np.exp(g if g.ndim == q.ndim else g[..., None])
    rows = np.empty_like(v)
    for t in range(q.shape[-2]):
        state = decays[..., t, :, None] * state
        key, written = k[..., t, :, None], v[..., t, :]
        if beta is not None:
            written = beta[..., t, None] * (written - (key * state).sum(-2))
        state = state + key * written[..., None, :]
        rows[..., t, :] = (q[..., t, :, None] * state).sum(-2)
    return rows, state


def by_chunks(q: Array, k: Array, v: Array, g: Array, size: int = 16, apart: bool = False) -> tuple[Array, Array]:
    """Sums of gated tokens by chunks, without the delta rule; e^G and e^−G each by itself if ``apart``."""
    gates_of_all = g if g.ndim == q.ndim else g[..., None]
    state, rows = 0 * (k[..., 0, :, None] * v[..., 0, None, :]), []
    for lo in range(0, q.shape[-2], size):
        some = slice(lo, lo + size)
        queries, keys, values = (x[..., some, :] for x in (q, k, v))
        sums = np.cumsum(gates_of_all[..., some, :], -2)
        if apart:
            scores = (queries * np.exp(sums)) @ (keys * np.exp(-sums)).swapaxes(-1, -2)
        else:
            between = np.minimum(sums[..., :, None, :] - sums[..., None, :, :], 0)
            scores = (queries[..., :, None, :] * keys[..., None, :, :] * np.exp(between)).sum(-1)
        rows.append((queries * np.exp(sums)) @ state + np.tril(scores) @ values)
        last = sums[..., -1:, :]
        state = np.exp(last).swapaxes(-1, -2) * state + (keys * np.exp(last - sums)).swapaxes(-1, -2) @ values
    return np.concatenate(rows, -2), state
