"""Right and wrong programs of recurrences that erase along a vector of their own (Comba, GDN-2, RWKV-7), in NumPy.

Independent of ``symattn``: token by token by loops, and by chunks, with operands stored as told. Arrays are (…, n, d),
g (…, n, 1) or (…, n, d), beta (…, n, 1), states (…, d, m). q is scaled already.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.verification.recurrent_programs import inverse_by_blocks, inverse_by_rows, rounded

Array = Any
#: The inputs of each model beside q, k, v and g.
MORE = {"comba": ("p", "beta"), "gdn2": ("b", "w"), "rwkv7": ("a", "b")}


def draw(model: str, n: int, d: int, form: str, seed: int = 0, front: tuple[int, ...] = (), m: int = 0,
         decay: float = 0.05, alike: float = 0.0, most: float = 1.0) -> dict[str, Array]:  # fmt: skip
    """Inputs as models have them, in the format, but for gates: keys of length 1, β, b, w and a between 0 and 1."""
    rng = np.random.default_rng([seed, n, d])
    names = {"q": d, "k": d, "v": m or d, "p": d}
    given = {x: rng.standard_normal((*front, n, size)) for x, size in names.items()}
    given["k"] = given["k"] + alike * rng.standard_normal(d)
    for x in "qkp":
        given[x] = given[x] / np.sqrt((given[x] ** 2).sum(-1, keepdims=True))
    given["q"] = given["q"] / d**0.5
    uniform = lambda width: most * rng.random((*front, n, width))  # noqa: E731
    if model == "comba":
        # mostly along the key, and somewhat beside it
        given["p"] = 0.8 * given["k"] + 0.3 * given["p"]
        given["beta"] = uniform(1)
    elif model == "gdn2":
        given |= {"b": uniform(d), "w": uniform(m or d)}
    else:
        # kappa of length 1, read as −kappa, and written back by an amount for each feature
        kappa = given["k"] + 0.5 * given["p"]
        kappa = kappa / np.sqrt((kappa**2).sum(-1, keepdims=True))
        given |= {"a": -kappa, "b": kappa * uniform(d)}
    given = {x: rounded(np.float32(a), form) for x, a in given.items() if x in ("q", "k", "v", *MORE[model])}
    return given | {"g": np.float32(-decay * rng.gamma(1.0, size=(*front, n, 1 if model == "comba" else d)))}


def by_tokens(
    model: str, q: Array, k: Array, v: Array, g: Array, initial_state: Array | None = None, wrong: str = "",
    kept: str = "", **more: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """One token after another; the state is stored in ``kept``, if that is a format, after each."""
    state, rows = 0 * (k[..., 0, :, None] * v[..., 0, None, :]), []
    if initial_state is not None:
        state = state + initial_state
    for t in range(q.shape[-2]):
        at = {x: a[..., t, :, None] for x, a in more.items()}
        key, value, decay = k[..., t, :, None], v[..., t, None, :], np.exp(g[..., t, :, None])
        old, decayed = state, decay * state
        if wrong == "erased after":
            old = decayed
        if model == "comba":
            u = at["beta"] * (value - (at["p"] * old).sum(-2, keepdims=True))
            state = decayed + key * u
        elif model == "gdn2":
            seen = state if wrong == "erased before" else decayed
            gate = more["w"][..., t, None, :]
            state = decayed + key * (gate * value - ((at["b"] * key) * seen).sum(-2, keepdims=True))
        else:
            sign = -1 if wrong == "sign" else 1
            state = decayed + sign * at["b"] * (at["a"] * old).sum(-2, keepdims=True) + key * value
        state = rounded(state, kept) if kept else state
        rows.append((state * q[..., t, :, None]).sum(-2))
    return np.stack(rows, axis=-2).astype(v.dtype), state


def by_chunks(
    model: str, q: Array, k: Array, v: Array, g: Array, initial_state: Array | None = None, size: int = 16,
    stored: str = "float32", split: bool = False, blocks: bool = False, residual: bool = False, wrong: str = "",
    **more: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """By chunks of one head, as kernels have them: (I + L)⁻¹ from products of what is erased with earlier keys."""
    state, rows = 0 * np.outer(k[0], v[0]), []
    if initial_state is not None:
        state = state + initial_state
    store = lambda x: rounded(x, stored)  # noqa: E731
    invert = inverse_by_blocks if blocks else inverse_by_rows

    def pairs(x: Array, y: Array, of_x: Array, of_y: Array, below: int) -> Array:
        if split:
            middle = of_y[-1:] / 2
            return np.tril((x * np.exp(of_x - middle)) @ (y * np.exp(middle - of_y)).T, below)
        between = np.minimum(of_x[:, None] - of_y[None], 0)
        return np.tril((x[:, None] * y[None] * np.exp(between)).sum(-1), below)

    for lo in range(0, len(q), size):
        a, key, c, gates = (x[lo : lo + size] for x in (q, k, v, g))
        own = {x: y[lo : lo + size] for x, y in more.items()}
        sums = np.cumsum(gates, 0)
        before = sums if model == "gdn2" or wrong == "erased after" else sums - gates
        last = sums[-1:]
        inner = store(pairs(a, key, sums, sums, 0))
        from_state = store(a * np.exp(sums)) @ store(state)
        if model == "rwkv7":
            lower = pairs(own["a"], own["b"], before, sums, -1)
            inverse = store(invert(-lower))
            of_values = store(store(pairs(own["a"], key, before, sums, -1)) @ c)
            first = store(inverse @ of_values)
            u = first + store(inverse @ store(own["a"] * np.exp(before))) @ store(state)
            rows.append(from_state + inner @ c + store(pairs(a, own["b"], sums, sums, 0)) @ store(u))
            added = store(own["b"] * np.exp(last - sums)).T @ store(u) + store(key * np.exp(last - sums)).T @ c
        else:
            p = own["beta"] * own["p"] if model == "comba" else own["b"] * key
            right = own["beta"] * c if model == "comba" else own["w"] * c
            erasing = own["p"] if wrong == "β missing" else p
            lower = pairs(erasing, key, before, sums, -1)
            inverse = store(invert(lower))
            if residual:
                u = inverse @ store(right - (p * np.exp(before)) @ store(state))
            else:
                u = store(inverse @ store(right)) - store(inverse @ store(p * np.exp(before))) @ store(state)
            rows.append(from_state + inner @ store(u))
            added = store(key * np.exp(last - sums)).T @ store(u)
        state = np.exp(last).T * state + added
        if wrong == "state lost":
            state = 0 * state
    return np.concatenate(rows, -2).astype(v.dtype), state
