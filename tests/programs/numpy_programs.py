"""Attention as users write it, with arrays that NumPy makes and the module math: dispatch alone does not reach these.

Each program has the specification that it computes; each mistake is the same program with one thing wrong. Programs
that are plainer stand in the collection of faults.
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


@right()
def scores_by_tiles(q, k, v):
    s = np.empty((q.shape[0], k.shape[0]))
    for i in range(0, q.shape[0], BLOCK):
        np.matmul(q[i : i + BLOCK], k.T, out=s[i : i + BLOCK])
    s /= math.sqrt(q.shape[1])
    np.subtract(s, s.max(-1, keepdims=True), out=s)
    np.exp(s, out=s)
    return np.divide(s, s.sum(-1, keepdims=True)) @ v


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


def mask_from_a_cache(q, k, v, shift=0, fill=None):
    size = q.shape[0], k.shape[0]
    if (size, shift) not in _masks:
        _masks[size, shift] = np.tril(np.ones(size), k.shape[0] - q.shape[0] + shift)
    s = np.where(_masks[size, shift] > 0, q @ k.T / math.sqrt(k.shape[-1]), np.finfo(np.float32).min)
    return stable_softmax(s) @ v


RIGHT.append((mask_from_a_cache, CAUSAL))
WRONG.append((functools.partial(mask_from_a_cache, shift=1), CAUSAL))
WRONG.append((functools.partial(mask_from_a_cache, shift=-1), CAUSAL))


@right(Attention(mask="boolean"))
def boolean_mask(q, k, v, mask):
    return stable_softmax(np.where(mask, q @ k.T / math.sqrt(q.shape[1]), -np.inf)) @ v


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
