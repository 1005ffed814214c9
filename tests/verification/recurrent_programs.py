"""Right and wrong programs of gated linear recurrences in NumPy, for the tests of their law of rounding.

Independent of ``symattn``: token by token, and by chunks, with arrays stored as told. Arrays of one head: q, k (n, d),
v (n, m), g (n, 1) or (n, d), beta (n, 1), state (d, m).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = Any
TYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def rounded(x: Array, name: str) -> Array:
    return x.astype(TYPES[name]).astype(x.dtype)


@dataclass
class Inputs:
    q: Array
    k: Array
    v: Array
    g: Array | None
    beta: Array | None
    state: Array

    def arrays(self, kind: type = np.float32) -> list[Array]:
        """All arrays in ``kind``, with g = 0 and β = 1 for what there is none of."""
        g = np.zeros((len(self.q), 1)) if self.g is None else self.g
        beta = np.ones((len(self.q), 1)) if self.beta is None else self.beta
        return [np.asarray(x, kind) for x in (self.q, self.k, self.v, g, beta, self.state)]


#: The gate, the mean of −g, the largest β (None: no delta rule), and how alike keys are.
KINDS: dict[str, tuple[str | None, float, float | None, float]] = {
    "gated delta rule": ("token", 0.05, 1.0, 0.0),
    "gated delta rule by features": ("feature", 0.05, 1.0, 0.0),
    "delta rule": (None, 0.0, 1.0, 0.0),
    "gates by token": ("token", 0.05, None, 0.0),
    "gates by feature": ("feature", 0.05, None, 0.0),
    "linear": (None, 0.0, None, 0.0),
    "strong gates": ("token", 3.0, 1.0, 0.0),
    "weak gates, β up to 2": ("token", 0.002, 2.0, 0.0),
    "keys alike": ("token", 0.02, 1.0, 1.0),
}


def draw(kind: str, n: int, d: int, form: str, seed: int = 0, m: int | None = None) -> Inputs:
    """Draw normalised q and k, as models have them; all in the format, but for gates and the state."""
    gate, strength, most, alike = KINDS[kind]
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    q, k, v = (rng.standard_normal((n, size)) for size in (d, d, m or d))
    k = k + alike * rng.standard_normal(d)
    q, k = (x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + 1e-6) for x in (q, k))
    g = None if gate is None else -strength * rng.gamma(1.0, size=(n, d if gate == "feature" else 1))
    beta = None if most is None else most / (1 + np.exp(-rng.standard_normal((n, 1))))
    state = 0.3 * rng.standard_normal((d, m or d))
    held = [None if x is None else rounded(x, form) for x in (q, k, v, beta)]
    g, state = (None if x is None else rounded(x, "float32") for x in (g, state))
    return Inputs(held[0], held[1], held[2], g, held[3], state)


def by_tokens(
    of: Inputs, out: str = "float32", wrong: str = "", delta: bool = True, scale: float = 1.0
) -> tuple[Array, Array]:
    q, k, v, g, beta, state = of.arrays()
    n, result = len(q), np.empty_like(v)
    for t in range(n):
        decay = np.exp(g[t])[:, None]
        if wrong == "one gate left out" and t == n // 2:
            decay = np.ones_like(decay)
        key, b = k[t][:, None], beta[t]
        read_from = state
        if wrong != "decay after the update":
            state = decay * state
        read_from = read_from if wrong == "state read undecayed" else state
        u = v[t]
        if delta:
            u = b * (v[t] - (key * read_from).sum(axis=0))
            if wrong == "β left out":
                u = v[t] - (key * read_from).sum(axis=0)
            elif wrong == "β on the erased value alone":
                u = v[t] - b * (key * read_from).sum(axis=0)
        state = state + key * u
        if wrong == "decay after the update":
            state = decay * state
        if wrong == "state in bfloat16":
            state = rounded(state, "bfloat16")
        result[t] = np.float32(scale) * (q[t][:, None] * state).sum(axis=0)
    return rounded(result, out), state


def inverse_by_rows(lower: Array) -> Array:
    result = np.eye(len(lower), dtype=lower.dtype)
    for i in range(1, len(lower)):
        result[i, :i] -= lower[i, :i] @ result[:i, :i]
    return result


def inverse_by_blocks(lower: Array, size: int = 16) -> Array:
    n = len(lower)
    if n <= size:
        return inverse_by_rows(lower)
    half, result = n // 2, np.zeros_like(lower)
    result[:half, :half] = inverse_by_blocks(lower[:half, :half], size)
    result[half:, half:] = inverse_by_blocks(lower[half:, half:], size)
    result[half:, :half] = -result[half:, half:] @ (lower[half:, :half] @ result[:half, :half])
    return result


def inverse_by_factors(lower: Array) -> Array:
    return np.linalg.inv(np.eye(len(lower), dtype=lower.dtype) + lower)


INVERSES: dict[str, Callable[[Array], Array]] = {
    "rows": inverse_by_rows, "blocks": inverse_by_blocks, "general": inverse_by_factors,
}  # fmt: skip


def substituted(lower: Array, right: Array) -> Array:
    result = right.copy()
    for i in range(1, len(lower)):
        result[i] -= lower[i, :i] @ result[:i]
    return result


def by_chunks(
    of: Inputs,
    size: int = 64,
    inverse: str = "rows",
    stored: str = "float32",
    out: str = "float32",
    kept: str = "float32",
    residual: bool = False,
    split: str = "middle",
    wrong: str = "",
    delta: bool = True,
    scale: float = 1.0,
) -> tuple[Array, Array]:
    """``split``: e^{G − m} and e^{m − G} about the ``middle`` or the ``first`` row, or ``no`` (one gate a token)."""
    queries, keys, values, gates, betas, state = of.arrays()
    store = lambda x: rounded(x, stored)  # noqa: E731
    results = []
    for lo in range(0, len(queries), size):
        some = slice(lo, lo + size)
        q, k, v, g, beta = (x[some] for x in (queries, keys, values, gates, betas))
        q = q * np.float32(scale)
        if wrong == "one gate left out" and lo <= len(queries) // 2 < lo + size:
            g = g.copy()
            g[len(queries) // 2 - lo] = 0
        sums = np.cumsum(g, axis=0)
        if split == "no":
            decay = np.exp(np.tril(sums - sums.T))
            products, inner = (k @ k.T) * decay, (q @ k.T) * decay
        else:
            about = sums[-1:] / 2 if split == "middle" else 0 * sums[-1:]
            other = k * np.exp(about - sums)
            products, inner = (k * np.exp(sums - about)) @ other.T, (q * np.exp(sums - about)) @ other.T
        inner = np.tril(inner)
        if delta:
            lower = np.tril(products if wrong == "β missing in the system" else beta * products, -1)
            right, read = store(beta * v), store(beta * k * np.exp(sums))
            if inverse == "substitution":
                u = store(substituted(lower, right)) - store(substituted(lower, read)) @ store(state)
            elif residual:
                u = store(INVERSES[inverse](lower)) @ store(beta * (v - (k * np.exp(sums)) @ store(state)))
            else:
                t = store(INVERSES[inverse](lower))
                u = store(t @ right) - store(t @ read) @ store(state)
        else:
            u = v
        if wrong == "first token of a chunk lost" and lo:
            u = np.concatenate([0 * u[:1], u[1:]])
        result = store(q * np.exp(sums)) @ store(state) + store(inner) @ store(u)
        results.append(rounded(result, out))
        added = store(k * np.exp(sums[-1:] - sums)).T @ store(u)
        last = g[-1:] if wrong == "state decays by the last gate alone" else sums[-1:]
        state = rounded(np.exp(last).T * state + added, "bfloat16" if wrong == "state in bfloat16" else kept)
    return np.concatenate(results), state
