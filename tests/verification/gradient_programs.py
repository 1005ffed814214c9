"""Right and wrong backward passes of gated recurrences with erasure in NumPy, by loops, and forms of torch.

Independent of ``symattn``. Of one head, with p, r and w as the general erasure has them:
S_t = e^{g_t} ⊙ S_{t−1} − r_tᵀ (p_t e^{g_t} S_{t−1}) + k_tᵀ w_t and o_t = q_t S_t.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any


def backward_of_head(
    q: Array, k: Array, w: Array, g: Array, p: Array, r: Array, do: Array, wrong: str = ""
) -> tuple[Array, ...]:
    """The adjoint recurrence: (dq, dk, dw, dg, dp, dr), with dg for each feature of the key."""
    n, kind = len(q), q.dtype
    states = [np.zeros((k.shape[1], w.shape[1]), kind)]
    for t in range(n):
        kept = np.exp(g[t])[:, None] * states[-1]
        states.append(kept - np.outer(r[t], p[t] @ kept) + np.outer(k[t], w[t]))
    dq, dk, dw, dg, dp, dr = (np.zeros_like(x) for x in (q, k, w, np.broadcast_to(g, k.shape) + 0, p, r))
    adjoint = np.zeros_like(states[0])
    for t in reversed(range(n)):
        adjoint = adjoint + np.outer(q[t], do[t])
        dq[t], dk[t], dw[t] = states[t + 1] @ do[t], adjoint @ w[t], k[t] @ adjoint
        decay = np.exp(g[t])[:, None]
        kept = decay * states[t]
        seen, back = p[t] @ kept, r[t] @ adjoint
        dr[t], dp[t] = -adjoint @ seen, -kept @ back
        before = adjoint if wrong == "erasure constant" else adjoint - np.outer(p[t], back)
        dg[t] = ((states[t] if wrong == "gate without decay" else kept) * before).sum(1)
        adjoint = before if wrong == "adjoint undecayed" else decay * before
        if wrong == "cut" and t % 4 == 0:
            adjoint = 0 * adjoint
    return dq, dk, dw, dg, dp, dr


def for_each_head(function: Callable[..., tuple[Array, ...]]) -> Callable[..., tuple[Array, ...]]:
    """Return a function of arrays (b, h, n, …) from one of the arrays of a head."""

    def run(*arrays: Array) -> tuple[Array, ...]:
        front = arrays[0].shape[:-2]
        parts = [function(*(x[at] for x in arrays)) for at in np.ndindex(front)]
        return tuple(np.stack(of).reshape(*front, *of[0].shape) for of in zip(*parts, strict=True))

    return run


def gla_backward(wrong: str = "") -> Callable[..., tuple[Array, ...]]:
    """Gated linear attention: gates of features, queries divided by √d_k."""

    def of_head(q: Array, k: Array, v: Array, g: Array, do: Array) -> tuple[Array, ...]:
        scale = q.dtype.type(q.shape[1] ** -0.5)
        nothing = 0 * k
        dq, dk, dv, dg, *_ = backward_of_head(scale * q, k, v, g, nothing, nothing, do, wrong)
        return (dq if wrong == "unscaled" else scale * dq), dk, dv, dg

    every = for_each_head(of_head)
    return lambda q, k, v, g, do: every(q, k, v, g, do)


def gated_delta_backward(wrong: str = "") -> Callable[..., tuple[Array, ...]]:
    """The gated delta rule without norms and scale: p = β k, r = k and w = β v, one gate a token."""

    def of_head(q: Array, k: Array, v: Array, g: Array, beta: Array, do: Array) -> tuple[Array, ...]:
        rate, gates = beta[:, None], np.repeat(g[:, None], k.shape[1], 1)
        dq, dk, dw, dg, dp, dr = backward_of_head(q, k, rate * v, gates, rate * k, k, do, wrong)
        dbeta = (v * dw).sum(1) if wrong == "β of the erased left out" else (v * dw).sum(1) + (k * dp).sum(1)
        return dq, dk + rate * dp + dr, rate * dw, dg.sum(1), dbeta

    every = for_each_head(of_head)
    return lambda q, k, v, g, beta, do: every(q, k, v, g, beta, do)
