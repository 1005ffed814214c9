"""Attention as users write it, with arrays that NumPy makes and the module math: dispatch alone does not reach these.

Each program has the specification that it computes; each mistake is the same program with one thing wrong.
"""

import functools
import math
from math import sqrt

import numpy as np
from numpy import einsum, zeros

from symattn import Attention

PLAIN, CAUSAL = Attention(), Attention(causal=True)
RIGHT: list = []
WRONG: list = []
BLOCK = 2
_masks: dict = {}


def right(spec=PLAIN):
    return lambda program: RIGHT.append((program, spec)) or program


def wrong(spec=PLAIN):
    return lambda program: WRONG.append((program, spec)) or program


def stable_softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@right()
def root_by_math(q, k, v):
    return stable_softmax(q @ k.T / math.sqrt(q.shape[-1])) @ v


@right()
def root_by_its_name(q, k, v):
    s = einsum("id,jd->ij", q, k) / sqrt(k.shape[1])
    return einsum("ij,jd->id", stable_softmax(s), v)


@right()
def cast_first(q, k, v):
    q, k, v = np.asarray(q, dtype=np.float64), np.asarray(k, dtype=np.float64), np.asarray(v, dtype=np.float64)
    return root_by_math(q, k, v)


@right()
def online_softmax(q, k, v):
    n, d = q.shape
    o, z, m = np.zeros((n, v.shape[1])), np.zeros((n, 1)), np.full((n, 1), -np.inf)
    for j in range(0, k.shape[0], BLOCK):
        s = q @ k[j : j + BLOCK].T * (1.0 / np.sqrt(d))
        new = np.maximum(m, s.max(1, keepdims=True))
        p, r = np.exp(s - new), np.exp(m - new)
        z, o, m = z * r + p.sum(1, keepdims=True), o * r + p @ v[j : j + BLOCK], new
    return o / z


def tiles_in_place(q, k, v, rescale_o=True, rescale_l=True, stop=0):
    n, d = q.shape
    out = np.empty((n, v.shape[-1]), dtype=np.float32)
    for i in range(0, n, BLOCK):
        qi = q[i : i + BLOCK]
        acc, den, top = np.zeros((qi.shape[0], v.shape[-1])), zeros(qi.shape[0]), np.full(qi.shape[0], -np.inf)
        for j in range(0, k.shape[0] - stop, BLOCK):
            s = qi @ k[j : j + BLOCK].T / math.sqrt(d)
            new = np.maximum(top, s.max(axis=1))
            e, c = np.exp(s - new[:, None]), np.exp(top - new)
            if rescale_l:
                den *= c
            den += e.sum(axis=1)
            if rescale_o:
                acc *= c[:, None]
            acc += e @ v[j : j + BLOCK]
            top = new
        out[i : i + BLOCK] = acc / den[:, None]
    return out


RIGHT.append((tiles_in_place, PLAIN))
WRONG.append((functools.partial(tiles_in_place, rescale_o=False), PLAIN))
WRONG.append((functools.partial(tiles_in_place, rescale_l=False), PLAIN))
WRONG.append((functools.partial(tiles_in_place, stop=BLOCK), PLAIN))


def loops(q, k, v, last=0):
    n, d = q.shape
    o = np.zeros((n, v.shape[1]))
    for i in range(n):
        w = np.array([np.exp(np.dot(q[i], k[j]) / np.sqrt(d)) for j in range(len(k) - last)])
        w = w / w.sum()
        for j in range(len(w)):
            o[i] += w[j] * v[j]
    return o


RIGHT.append((loops, PLAIN))
WRONG.append((functools.partial(loops, last=1), PLAIN))


@right()
def rows_into_a_list(q, k, v):
    rows = []
    for i in range(q.shape[0]):
        s = k @ q[i] / math.sqrt(q.shape[1])
        w = np.exp(s - np.max(s))
        rows.append(np.sum(w[:, None] * v, axis=0) / np.sum(w))
    return np.array(rows)


@right()
def scores_by_tiles(q, k, v):
    s = np.empty((q.shape[0], k.shape[0]))
    for i in range(0, q.shape[0], BLOCK):
        np.matmul(q[i : i + BLOCK], k.T, out=s[i : i + BLOCK])
    s /= math.sqrt(q.shape[1])
    np.subtract(s, s.max(-1, keepdims=True), out=s)
    np.exp(s, out=s)
    return np.divide(s, s.sum(-1, keepdims=True)) @ v


@right()
def merged_by_log_sum_exp(q, k, v):
    half, out = k.shape[0] // 2, 0.0
    parts = [(k[:half], v[:half]), (k[half:], v[half:])]
    scores = [q @ a.T / math.sqrt(q.shape[1]) for a, _ in parts]
    lse = [np.log(np.exp(s).sum(-1, keepdims=True)) for s in scores]
    total = np.log(sum(np.exp(x) for x in lse))
    for s, x, (_, b) in zip(scores, lse, parts, strict=True):
        out = out + np.exp(x - total) * (np.exp(s - x) @ b)
    return out


def sqrt_of_two(x):
    return x * math.sqrt(2)


class Head:
    """An object that is called."""

    def __init__(self, block):
        self.block = block

    def __call__(self, q, k, v):
        s = np.zeros((q.shape[0], k.shape[0]))
        for j in range(0, k.shape[0], self.block):
            s[:, j : j + self.block] = q @ k[j : j + self.block].T
        return stable_softmax(s * (1 / math.sqrt(q.shape[-1]))) @ v


RIGHT.append((Head(2), PLAIN))


def made_by_a_closure(scale_by):
    def attention(q, k, v):
        ones = np.ones((k.shape[0], 1))
        e = np.exp(q @ k.T * scale_by(q.shape[-1]))
        return (e @ v) / (e @ ones)

    return attention


RIGHT.append((made_by_a_closure(lambda d: 1 / math.sqrt(d)), PLAIN))
WRONG.append((made_by_a_closure(lambda d: 1 / d), PLAIN))
WRONG.append((made_by_a_closure(lambda d: 1), PLAIN))


@right(CAUSAL)
def preallocated_cache(q, k, v):
    n, past = q.shape[0], k.shape[0] - q.shape[0]
    keys, values = np.zeros((k.shape[0] + 3, k.shape[1])), np.zeros((k.shape[0] + 3, v.shape[1]))
    keys[:past], values[:past] = k[:past], v[:past]
    out = np.empty((n, v.shape[1]))
    for t in range(n):
        end = past + t + 1
        keys[end - 1], values[end - 1] = k[end - 1], v[end - 1]
        s = keys[:end] @ q[t] / np.sqrt(q.shape[1])
        w = np.exp(s - s.max())
        out[t] = w @ values[:end] / w.sum()
    return out


def mask_from_a_cache(q, k, v, shift=0, fill=None):
    size = q.shape[0], k.shape[0]
    if (size, shift) not in _masks:
        _masks[size, shift] = np.tril(np.ones(size), k.shape[0] - q.shape[0] + shift)
    s = np.where(_masks[size, shift] > 0, q @ k.T / math.sqrt(k.shape[-1]), np.finfo(np.float32).min)
    return stable_softmax(s) @ v


RIGHT.append((mask_from_a_cache, CAUSAL))
WRONG.append((functools.partial(mask_from_a_cache, shift=1), CAUSAL))
WRONG.append((functools.partial(mask_from_a_cache, shift=-1), CAUSAL))


@right(CAUSAL)
def mask_by_arithmetic(q, k, v):
    i, j = np.arange(q.shape[0])[:, None], np.arange(k.shape[0])[None, :]
    allowed = (j <= i + k.shape[0] - q.shape[0]).astype(float)
    return stable_softmax(q @ k.T / math.sqrt(q.shape[-1]) + (1.0 - allowed) * -1e9) @ v


@right(CAUSAL)
def tiles_under_a_mask(q, k, v):
    """Some tiles are wholly forbidden for some queries."""
    n, shift = q.shape[0], k.shape[0] - q.shape[0]
    o, z, m = np.zeros((n, v.shape[1])), np.zeros((n, 1)), np.full((n, 1), -np.inf)
    for j in range(0, k.shape[0], BLOCK):
        s = q @ k[j : j + BLOCK].T / math.sqrt(q.shape[1])
        s[np.arange(j, j + s.shape[1])[None, :] > np.arange(n)[:, None] + shift] = -np.inf
        new = np.maximum(m, s.max(1, keepdims=True))
        safe = np.where(np.isneginf(new), 0, new)
        p, r = np.exp(s - safe), np.exp(m - safe)
        z, o, m = z * r + p.sum(1, keepdims=True), o * r + p @ v[j : j + BLOCK], new
    return o / z


@right(Attention(causal=True, alignment="top-left"))
def torch_like_mask(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[-1])
    s = s + np.triu(np.full(s.shape, -np.inf), 1)
    return stable_softmax(s) @ v


@right(Attention(mask="boolean"))
def boolean_mask(q, k, v, mask):
    return stable_softmax(np.where(mask, q @ k.T / math.sqrt(q.shape[1]), -np.inf)) @ v


@right(Attention(mask="additive"))
def additive_mask(q, k, v, mask):
    return stable_softmax(q @ k.T / math.sqrt(q.shape[1]) + mask) @ v


@right(Attention(padding=True))
def padded_keys(q, k, v, keep):
    e = np.exp(q @ k.T / math.sqrt(q.shape[1])) * keep
    return e @ v / e.sum(-1, keepdims=True)


@right(Attention(scale=1))
def without_a_scale(q, k, v):
    return stable_softmax(q @ k.T) @ v


def heads(x, w_q, w_k, w_v, w_o, h=2, back=True, width=True):
    def split(y):
        return y.reshape(y.shape[0], h, -1).transpose(1, 0, 2)

    q, k, v = split(x @ w_q), split(x @ w_k), split(x @ w_v)
    s = q @ k.transpose(0, 2, 1) / math.sqrt(w_q.shape[1] // h if width else w_q.shape[1])
    o = stable_softmax(s) @ v
    return (o.transpose(1, 0, 2) if back else o).reshape(x.shape[0], -1) @ w_o


RIGHT.append((heads, Attention(heads=2)))
WRONG.append((functools.partial(heads, back=False), Attention(heads=2)))
WRONG.append((functools.partial(heads, width=False), Attention(heads=2)))


@wrong()
def softmax_over_queries(q, k, v):
    return stable_softmax(q @ k.T / math.sqrt(q.shape[1]), axis=0) @ v


@wrong()
def keys_squared(q, k, v):
    e = np.exp(q @ k.T / math.sqrt(q.shape[1]))
    return e @ v / np.sqrt((e * e).sum(-1, keepdims=True))


@wrong()
def maximum_not_subtracted_below(q, k, v):
    s = q @ k.T / math.sqrt(q.shape[1])
    return np.exp(s - s.max(-1, keepdims=True)) @ v / np.exp(s).sum(-1, keepdims=True)


@wrong()
def a_little_more_below(q, k, v):
    e = np.exp(q @ k.T / math.sqrt(q.shape[1]))
    return e @ v / (e.sum(-1, keepdims=True) + 1e-9)


@wrong(CAUSAL)
def causal_from_the_other_corner(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[-1]) + np.triu(np.full((q.shape[0], k.shape[0]), -np.inf), 1)
    return stable_softmax(s) @ v


# -- what cannot run on residues --------------------------------------------------------------------------------------
def floats(q, k, v):
    s = [float(q[0] @ k[j]) / math.sqrt(q.shape[1]) for j in range(k.shape[0])]
    return np.array([math.exp(x) for x in s]) @ v


def largest_by_comparison(q, k, v):
    s = q @ k.T / math.sqrt(q.shape[1])
    top = s[:, 0]
    for j in range(1, s.shape[1]):
        top = np.where(s[:, j] > top, s[:, j], top)
    return np.exp(s - top[:, None]) @ v / np.exp(s - top[:, None]).sum(-1, keepdims=True)


def a_second_layer(q, k, v):
    x = root_by_math(q, k, v)
    return np.exp(x)
