"""The definition by loops over heads and rows, in float64: what decides which programs of the collection are wrong.

It shares nothing with ``symattn.attention`` but the names of the fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, floor, log, sqrt, tanh
from typing import Any

import numpy as np

from symattn import Attention
from tests.faults.collection.truth_layers import Given, Sized

Array = Any


def sums(spec: Attention, given: Given) -> Sized:
    """The logarithms of what the rows' exponentials are divided by, in the specification's base."""
    scores = rows(spec, given, *prepared(spec, given))
    base, found, reach = log(float(spec.base or np.e)), [], 1.0
    for index, _, row in scores:
        sink = 0.0 if spec.sink == "zero" else float(given["sink"][index[-1]]) if spec.sink else -np.inf
        top = max(*row, sink)
        found.append(top + log(sum(exp((s - top) * base) for s in (*row, sink))) / base if top > -np.inf else -np.inf)
        reach = max([reach, *(1 + abs(s) for s in row if np.isfinite(s))])
    q = prepared(spec, given)[0]
    out = np.array(found).reshape(q.shape[:-1])
    return (out if spec.heads > 1 else out[..., 0, :]), reach


def prepared(spec: Attention, given: Given) -> tuple[Array, Array, Array]:
    """Queries, keys and values with an axis of heads, normalised and rotated."""
    q, k, v = (np.asarray(a, dtype=np.float64) for a in _heads(spec, given))
    q, k = _normed(spec, q, given, "q"), _normed(spec, k, given, "k")
    if type(spec.position).__name__ == "Rotary" and spec.latent is None:
        q, k = _rotated(spec, q, k, given)
    return q, k, v


def rows(
    spec: Attention, given: Given, q: Array, k: Array, v: Array
) -> Iterator[tuple[tuple[int, ...], int, list[float]]]:
    """The scores, row by row: batch and head, query, scores."""
    for index in np.ndindex(q.shape[:-2]):
        key = key_head(index, q, k)
        for i in range(q.shape[-2]):
            yield index, i, [_score(spec, given, index, i, j, q[index], k[key]) for j in range(k.shape[-2])]


def key_head(index: tuple[int, ...], q: Array, k: Array) -> tuple[int, ...]:
    """Where the keys of a query head are."""
    return (*index[:-1], index[-1] * k.shape[-3] // q.shape[-3])


def attention(spec: Attention, given: Given) -> tuple[Array, float]:
    """The output, and how large the numbers were on the way: max |v| (1 + max |s|) and so on."""
    q, k, v = prepared(spec, given)
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    size = max(1.0, float(np.nanmax(np.abs(v))))
    reach = 1.0
    for index, i, row in rows(spec, given, q, k, v):
        reach = max([reach, *(1 + abs(s) for s in row if np.isfinite(s))])
        seen = np.isfinite(row)  # what is forbidden has no part, be it NaN
        out[index][i] = weights(spec, given, index, i, row)[seen] @ v[key_head(index, q, k)][seen]
    return _closed(spec, given, out, float(size * reach))


def _heads(spec: Attention, given: Given) -> tuple[Array, Array, Array]:
    """q, k, v with an axis of heads."""
    if "x" not in given:
        q, k, v = (given[n] for n in "qkv")
        return (q, k, v) if spec.heads > 1 else tuple(a[..., None, :, :] for a in (q, k, v))
    x, y = given["x"], given.get("y", given["x"])
    if spec.latent is not None:
        return _of_latents(spec, given)
    if spec.packed:
        whole = x @ given["w_in"] + given.get("b_in", 0)
        d = whole.shape[-1] // (spec.heads + 2 * spec.key_heads)
        cuts = [spec.heads * d, (spec.heads + spec.key_heads) * d]
        parts = np.split(whole, cuts, axis=-1)
    else:
        parts = [t @ given[f"w_{n}"] + given.get(f"b_{n}", 0) for n, t in zip("qkv", (x, y, y), strict=True)]
    counts = (spec.heads, spec.key_heads, spec.key_heads)
    return tuple(np.stack(np.split(a, h, axis=-1), axis=-3) for a, h in zip(parts, counts, strict=True))  # type: ignore[return-value]


def _of_latents(spec: Attention, given: Given) -> tuple[Array, Array, Array]:
    """Queries and keys of two parts, one from a latent and one with a position, which all heads share; and values."""
    x, h = given["x"], spec.heads
    c, k_r = x @ given["w_dkv"], (x @ given["w_kr"])[..., None, :, :]
    q, k, v = (
        np.stack(np.split(a, h, axis=-1), axis=-3) for a in (x @ given["w_q"], c @ given["w_uk"], c @ given["w_uv"])
    )
    d_r = k_r.shape[-1]
    q_r = q[..., -d_r:]
    if spec.position is not None:
        q_r, k_r = _rotated(spec, q_r, k_r, given)
    k_r = np.broadcast_to(k_r, (*k.shape[:-1], d_r))
    return np.concatenate([q[..., :-d_r], q_r], axis=-1), np.concatenate([k, k_r], axis=-1), v


def _closed(spec: Attention, given: Given, out: Array, size: float) -> tuple[Array, float]:
    """Heads laid side by side and projected, where tokens came."""
    if "x" not in given:
        return (out if spec.heads > 1 else out[..., 0, :, :]), size
    merged = np.concatenate([out[..., h, :, :] for h in range(out.shape[-3])], axis=-1)
    if "w_o" in given:
        size *= float(np.abs(given["w_o"]).sum(axis=0).max())
        merged = merged @ given["w_o"] + given.get("b_o", 0)
    return merged, size


def _normed(spec: Attention, a: Array, given: Given, name: str) -> Array:
    eps = float(spec.eps)
    if spec.qk_norm is None:
        return a
    if spec.qk_norm == "l2":
        return a / np.sqrt((a * a).sum(axis=-1, keepdims=True))
    if spec.qk_norm == "layer":
        a = a - a.mean(axis=-1, keepdims=True)
    a = a / np.sqrt((a * a).mean(axis=-1, keepdims=True) + eps)
    return a * given.get(f"g_{name}", 1.0) + given.get(f"beta_{name}", 0.0)


def _late(spec: Attention, n_q: int, n_k: int) -> int:
    return n_k - n_q if spec.alignment == "bottom-right" else 0


def _rotated(spec: Attention, q: Array, k: Array, given: Given) -> tuple[Array, Array]:
    p: Any = spec.position
    n_q, n_k = q.shape[-2], k.shape[-2]
    at = np.asarray(given.get("positions", p.start + np.arange(n_k)))
    here = np.asarray(given.get("positions_q", at[..., _late(spec, n_q, n_k) :][..., :n_q]))
    r = p.width or q.shape[-1]
    rates = np.array([float(p.base) ** (-2.0 * m / r) for m in range(r // 2)])
    if p.scaling is not None:
        rates = rates / float(p.scaling.factor)
    if p.given == "tables":
        cos, sin = given["cos"], given["sin"]
        late = _late(spec, n_q, n_k)
        tables = [(given.get("cos_q", cos[late:][:n_q]), given.get("sin_q", sin[late:][:n_q])), (cos, sin)]
    else:
        tables = [(np.cos(t[..., None] * rates), np.sin(t[..., None] * rates)) for t in (here, at)]
    return _rotate(q, *tables[0], p.layout), _rotate(k, *tables[1], p.layout)


def _rotate(a: Array, cos: Array, sin: Array, layout: str) -> Array:
    out, half = a.copy(), cos.shape[-1]
    for m in range(half):
        first, second = (m, m + half) if layout == "half" else (2 * m, 2 * m + 1)
        c, s = cos[..., m], sin[..., m]
        out[..., first] = a[..., first] * c - a[..., second] * s
        out[..., second] = a[..., second] * c + a[..., first] * s
    return out


def _score(spec: Attention, given: Given, index: tuple[int, ...], i: int, j: int, q: Array, k: Array) -> float:
    if not _may(spec, given, index, i, j, len(q), len(k)):
        return -np.inf
    x, y = q[i], k[j]
    s = float(np.dot(x, y))
    if spec.score == "cosine":
        s /= sqrt(float(x @ x) * float(y @ y))
    if spec.score == "distance":
        s = -float(((x - y) ** 2).sum()) / 2
    s *= factor(spec, given, index[-1], len(x))
    if spec.softcap is not None:
        s = float(spec.softcap) * tanh(s / float(spec.softcap))
    if spec.bias:
        s += float(_part(given["bias"], index, 2)[i, j])
    if spec.mask == "additive":
        s += float(_part(given["mask"], index, 2)[i, j])
    return s + _by_distance(spec, given, index[-1], j - i - _late(spec, len(q), len(k)))


def factor(spec: Attention, given: Given, head: int, d: int) -> float:
    """What the products of queries and keys are multiplied by."""
    if spec.scale == "given":
        return float(given["scale"][head] if np.ndim(given["scale"]) else given["scale"])
    if spec.scale == "1/d_k":
        return 1 / d
    if spec.scale is not None:
        return float(spec.scale)
    return 1 / sqrt(d) if spec.score == "dot" else 1.0


def _by_distance(spec: Attention, given: Given, head: int, ahead: int) -> float:
    kind = type(spec.position).__name__
    p: Any = spec.position
    if kind == "Alibi":
        slope = float(given["slopes"][head]) if p.slopes == "given" else _slope(spec.heads, head)
        return -slope * abs(ahead) if p.two_sided else slope * ahead
    return float(given["b_rel"][_bucket(p, ahead), head]) if kind == "Buckets" else 0.0


def _slope(heads: int, head: int) -> float:
    """Powers of two; the heads beyond a power of two take every other one of the next."""
    whole = 2 ** floor(log(heads, 2) + 1e-9)
    if head < whole:
        return float(2.0 ** (-8.0 * (head + 1) / whole))
    return float(2.0 ** (-8.0 * (2 * (head - whole) + 1) / (2 * whole)))


def _bucket(p: Any, ahead: int) -> int:
    number, base = int(p.number), 0
    if p.bidirectional:
        number //= 2
        base = number if ahead > 0 else 0
        far = abs(ahead)
    else:
        far = max(-ahead, 0)
    few = number // 2
    if far < few:
        return base + far
    return base + min(few + int(log(far / few) / log(int(p.max_distance) / few) * (number - few) + 1e-9), number - 1)


def _may(spec: Attention, given: Given, index: tuple[int, ...], i: int, j: int, n_q: int, n_k: int) -> bool:
    if spec.mask == "boolean" and not _part(given["mask"], index, 2)[i, j]:
        return False
    if spec.padding and not _part(given["keep"], index, 1)[j]:
        return False
    place = i + _late(spec, n_q, n_k)
    if "doc_q" in given and given["doc_q"][i] != given["doc_k"][j]:
        return False
    if spec.documents and "doc" in given:
        labels = given["doc"]
        if labels[place] != labels[j]:
            return False
        first = min(t for t in range(n_k) if labels[t] == labels[j])
        place, j = place - first, j - first
    if spec.causal and j > place and not j < (spec.prefix or 0):
        return False
    left, right = spec.sides
    if (left is not None and j < place - left) or (right is not None and j > place + right):
        return False
    return spec.block is None or place // spec.block == j // spec.block


def _part(a: Array, index: tuple[int, ...], axes: int) -> Array:
    """What of a mask belongs to a batch item and a head: axes of heads and batches may be missing, or of length 1."""
    a = np.asarray(a)
    front = a.shape[: a.ndim - axes]
    if len(front) == len(index) - 1:  # one for all heads
        index = index[:-1]
    index = index[len(index) - len(front) :]
    return a[tuple(0 if n == 1 else t for n, t in zip(front, index, strict=True))]


def weights(spec: Attention, given: Given, index: tuple[int, ...], i: int, row: list[float]) -> Array:
    """The weights of one query."""
    base = float(spec.base or np.e)
    s = np.array(row)
    if spec.normaliser == "sigmoid":
        shift = 0.0 if spec.bias else log(len(row))
        found = np.array([1 / (1 + exp(shift - x)) if x > -700 else 0.0 for x in row])
    elif spec.normaliser == "relu":
        found = np.maximum(s, 0) / len(row)
    else:
        sink = 0.0 if spec.sink == "zero" else float(given["sink"][index[-1]]) if spec.sink else -np.inf
        top = max(s.max(), sink)
        if top == -np.inf:
            return np.full(len(row), 0.0 if spec.fully_masked == "zeros" else np.nan)
        e = base ** (s - top)
        found = e / (e.sum() + base ** (sink - top))
    if spec.dropout:
        found = np.where(_part(given["drop"], index, 2)[i], found, 0.0) / (1 - float(spec.dropout))
    return found
