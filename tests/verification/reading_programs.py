"""Right and wrong programs of recurrences whose tokens read the state before they are added (RWKV-6), in NumPy.

Independent of ``symattn``: token by token by loops, and by chunks, with operands stored as told. Arrays are
(…, n, d), bonus (h, d) or (d,), states (…, d, m).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.verification.recurrent_programs import rounded

Array = Any


def by_tokens(
    q: Array, k: Array, v: Array, g: Array, bonus: Array, initial_state: Array | None = None, wrong: str = ""
) -> tuple[Array, Array]:
    """One token after another: what is read is S + u ⊙ kᵀv, and S decays then."""
    state, rows = 0 * (k[..., 0, :, None] * v[..., 0, None, :]), []
    if initial_state is not None:
        state = state + initial_state
    u = bonus[..., None]
    for t in range(q.shape[-2]):
        added = k[..., t, :, None] * v[..., t, None, :]
        decay = np.exp(g[..., t, :, None])
        next_state = decay * state + added
        if wrong == "decayed before it is read":
            state = decay * state
        own = {"no bonus": 0 * u, "e^u": np.exp(u), "1 + u": 1 + u}.get(wrong, u) * added
        seen = next_state if wrong == "read after" else state
        rows.append(((seen + own) * q[..., t, :, None]).sum(-2))
        state = decay * (state + added) if wrong == "decayed after" else next_state
    return np.stack(rows, axis=-2).astype(v.dtype), state


def by_chunks(
    q: Array, k: Array, v: Array, g: Array, bonus: Array, initial_state: Array | None = None,
    size: int = 16, split: bool = True, stored: str = "float32", wrong: str = "",
) -> tuple[Array, Array]:  # fmt: skip
    """By chunks, with e^{R − m} on queries and e^{m − G} on keys (m in the middle) if ``split``, else e^{R − G}."""
    state, rows = 0 * (k[..., 0, :, None] * v[..., 0, None, :]), []
    if initial_state is not None:
        state = state + initial_state
    store = lambda x: rounded(x, stored)  # noqa: E731
    for lo in range(0, q.shape[-2], size):
        a, b, c, gates = (x[..., lo : lo + size, :] for x in (q, k, v, g))
        sums = np.cumsum(gates, -2)
        before = sums if wrong == "inclusive sums" else sums - gates
        n = a.shape[-2]
        if split:
            middle = sums[..., -1:, :] / 2
            pairs = (a * np.exp(before - middle)) @ (b * np.exp(middle - sums)).swapaxes(-1, -2)
        else:
            between = np.minimum(before[..., :, None, :] - sums[..., None, :, :], 0)
            pairs = (a[..., :, None, :] * b[..., None, :, :] * np.exp(between)).sum(-1)
        pairs = np.tril(pairs, 0 if wrong == "diagonal" else -1)
        pairs = pairs + np.eye(n, dtype=q.dtype) * (a * bonus[..., None, :] * b).sum(-1)[..., None]
        rows.append(store(a * np.exp(before)) @ store(state) + store(pairs) @ store(c))
        last = sums[..., -1:, :]
        added = store(b * np.exp(last - sums)).swapaxes(-1, -2) @ store(c)
        state = np.exp(last).swapaxes(-1, -2) * state + added
        if wrong == "state lost":
            state = 0 * state
    return np.concatenate(rows, -2).astype(v.dtype), state
