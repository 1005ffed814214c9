"""Linear attention, wrong and right, as programs."""

import numpy as np

from symattn import LinearAttention
from tests.faults.programs import Program, wrong


def _phi(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))).astype(x.dtype)


def _t(x):
    return np.swapaxes(x, -1, -2)


def _states(k, v, g=None, late=False):
    """The state that each token reads."""
    s, found = np.zeros((*k.shape[:-2], k.shape[-1], v.shape[-1]), k.dtype), []
    for i in range(k.shape[-2]):
        decay = 1 if g is None else np.exp(g[..., i])[..., None, None]
        s = s if late else s * decay
        s = s + _t(k[..., i : i + 1, :]) @ v[..., i : i + 1, :]
        found.append(s)
        s = s * decay if late else s
    return found


def _read(q, states):
    return np.concatenate([q[..., i : i + 1, :] @ s for i, s in enumerate(states)], axis=-2)


def recurrent(q, k, v):
    q, k = _phi(q), _phi(k)
    return _read(q, _states(k, v)) / _read(q, _states(k, np.ones_like(v[..., :1])))


def as_written(q, k, v):
    """elu(x) + 1 literally, which cancels far below 0."""

    def phi(x):
        return np.where(x > 0, x, np.expm1(np.minimum(x, 0))) + 1

    q, k = phi(q), phi(k)
    return _read(q, _states(k, v)) / _read(q, _states(k, np.ones_like(v[..., :1])))


def in_parallel(q, k, v):
    a = np.tril(_phi(q) @ _t(_phi(k)))
    return a @ v / a.sum(-1, keepdims=True)


def gated(q, k, v, g):
    return _read(q, _states(k, v, g))


def delta(q, k, v, beta):
    s, out = np.zeros((*k.shape[:-2], k.shape[-1], v.shape[-1]), k.dtype), []
    for i in range(k.shape[-2]):
        row, value = k[..., i : i + 1, :], v[..., i : i + 1, :]
        s = s + beta[..., i, None, None] * (_t(row) @ (value - row @ s))
        out.append(q[..., i : i + 1, :] @ s)
    return np.concatenate(out, axis=-2)


_PLAIN = LinearAttention()
_GATED = LinearAttention(feature="identity", normalised=False, gate="token")
_DELTA = LinearAttention(feature="identity", normalised=False, delta=True)
RIGHT = (
    Program("linear recurrent", recurrent, _PLAIN),
    Program("linear, elu as written", as_written, _PLAIN),
    Program("linear in parallel", in_parallel, _PLAIN),
    Program("linear gated", gated, _GATED),
    Program("linear delta", delta, _DELTA),
)
WRONG = wrong(
    globals(),
    RIGHT,
    """
linear_over_heads (in_parallel), normalize: the normaliser is a cumulative sum over the heads, not over the tokens
    q, k = _phi(q), _phi(k)
    return np.tril(q @ _t(k)) @ v / (q * k.cumsum(-3)).sum(-1, keepdims=True)
linear_no_features (in_parallel), score: the feature map is left out
    at spec=LinearAttention(normalised=False)
    return np.tril(q @ _t(k)) @ v
linear_late (gated), values: the state decays after a token is added, not before
    return _read(q, _states(k, v, g, late=True))
linear_delta_added (delta), values: the delta rule's correction has the other sign: β (v + k S) is added to the state
    state, rows = np.zeros((k.shape[-1], v.shape[-1]), q.dtype), []
    for t in range(len(q)):
        state = state + beta[t] * np.outer(k[t], v[t] + k[t] @ state)
        rows.append(q[t] @ state)
    return np.stack(rows)
linear_no_delta (delta), values: the delta rule is left out: values are added, times β
    return np.tril(q @ _t(k)) @ (beta[..., None] * v)
""",
)
