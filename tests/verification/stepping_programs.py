"""Right and wrong programs of recurrences with a step Δ and an added term D x (Mamba-2), in NumPy.

Independent of ``symattn``: token by token by loops, and by chunks, with operands stored as told. Arrays are q, k
(…, h / times, n, d), v (…, h, n, m), a and skip (h,), dt (…, h, n), states (…, h, d, m).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.verification.recurrent_programs import rounded

Array = Any


def spread(x: Array, v: Array) -> Array:
    """Repeat heads of q or k in place for those of v."""
    return np.repeat(x, v.shape[-3] // x.shape[-3], axis=-3) if x.ndim > 2 else x


def by_tokens(
    q: Array, k: Array, v: Array, a: Array, dt: Array, skip: Array, initial_state: Array | None = None, wrong: str = ""
) -> tuple[Array, Array]:
    """h ← e^{Δ A} h + Δ x Bᵀ, y = C h + D x."""
    q, k = spread(q, v), spread(k, v)
    state, rows = 0 * (k[..., 0, :, None] * v[..., 0, None, :]), []
    if initial_state is not None:
        state = state + initial_state
    for t in range(q.shape[-2]):
        step = dt[..., t, None, None]
        x = v[..., t, None, :]
        decay = np.exp(a[..., None, None] if wrong == "gates without step" else step * a[..., None, None])
        written = x if wrong == "values without step" else step * x
        state = decay * state + k[..., t, :, None] * written
        added = {"no skip": 0 * x, "scaled skip": step * x}.get(wrong, x)
        rows.append((state * q[..., t, :, None]).sum(-2) + (skip[..., None, None] * added)[..., 0, :])
    return np.stack(rows, axis=-2).astype(v.dtype), state


def by_chunks(
    q: Array, k: Array, v: Array, a: Array, dt: Array, skip: Array, initial_state: Array | None = None,
    size: int = 16, stored: str = "float32", on_scores: bool = False, wrong: str = "",
) -> tuple[Array, Array]:  # fmt: skip
    """By chunks; Δ multiplies the scores and the keys if ``on_scores``, else the values."""
    q, k = spread(q, v), spread(k, v)
    state, rows = 0 * (k[..., 0, :, None] * v[..., 0, None, :]), []
    if initial_state is not None:
        state = state + initial_state
    store = lambda x: rounded(x, stored)  # noqa: E731
    for lo in range(0, q.shape[-2], size):
        c, b, x = (y[..., lo : lo + size, :] for y in (q, k, v))
        step = dt[..., lo : lo + size, None]
        sums = np.cumsum(step * a[..., None, None], -2)
        inner = np.tril(c @ b.swapaxes(-1, -2) * np.exp(np.minimum(sums - sums.swapaxes(-1, -2), 0)))
        keys = b * np.exp(sums[..., -1:, :] - sums)
        if on_scores:
            within, added = store(inner * step.swapaxes(-1, -2)) @ x, store(keys * step).swapaxes(-1, -2) @ x
        else:
            within, added = store(inner) @ store(step * x), store(keys).swapaxes(-1, -2) @ store(step * x)
        rows.append(store(c * np.exp(sums)) @ store(state) + within + skip[..., None, None] * x)
        state = np.exp(sums[..., -1:, :]) * state + added
        if wrong == "state lost":
            state = 0 * state
    return np.concatenate(rows, -2).astype(v.dtype), state
