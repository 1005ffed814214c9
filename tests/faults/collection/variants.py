"""Further fields: norms of queries and keys, prefixes, blocks, other scores, other weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("variants")
right, wrong = FAMILY.right, FAMILY.wrong
_RMS = Attention(heads=2, qk_norm="rms", eps=1e-6)
_LAYER = Attention(heads=2, qk_norm="layer", eps=1e-5)
_UNIT = Attention(qk_norm="l2", scale=8)
_COSINE = Attention(score="cosine", scale=10)
_DISTANCE = Attention(score="distance")
_SIGMOID = Attention(normaliser="sigmoid")
_RELU = Attention(normaliser="relu")
_PREFIX = Attention(causal=True, prefix=3)
_FEW = At(n_q=7)
_BLOCKS = Attention(causal=True, block=4)
_SIDES = Attention(window=(2, 1))
_PER_HEAD = Attention(heads=2, scale="given")
_MU_P = Attention(scale="1/d_k")
_BASE = Attention(base=2)
_CAUSAL_PADDED = Attention(causal=True, padding=True)
_SQUARE = Domain(square=True)


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


def rms(x: Array, g: Array, eps: float = 1e-6) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(eps)) * g


def layer(x: Array, g: Array, b: Array, eps: float = 1e-5) -> Array:
    x = x - x.mean(-1, keepdims=True)
    return rms(x, g, eps) + b


def places(q: Array, k: Array) -> tuple[Array, Array]:
    """The queries' places among the keys, and the keys'."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    return (np.arange(n_q) + n_k - n_q)[:, None], np.arange(n_k)[None, :]


def masked(q: Array, k: Array, v: Array, open_: Array) -> Array:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(np.where(open_, s, q.dtype.type(-np.inf))) @ v


@right("queries and keys normalised by their root mean square, with gains", spec=_RMS)
def qk_rms(q: Array, k: Array, v: Array, q_norm_weight: Array, k_norm_weight: Array) -> Array:
    return attend(rms(q, q_norm_weight), rms(k, k_norm_weight), v)


@right("layer norms of queries and keys", spec=_LAYER)
def qk_layer(q: Array, k: Array, v: Array, g_q: Array, g_k: Array, beta_q: Array, beta_k: Array) -> Array:
    return attend(layer(q, g_q, beta_q), layer(k, g_k, beta_k), v)


@right("queries and keys of length 1, scale 8", spec=_UNIT)
def qk_unit(q: Array, k: Array, v: Array) -> Array:
    q, k = (a / np.linalg.norm(a, axis=-1, keepdims=True) for a in (q, k))
    return softmax(8 * (q @ k.T)) @ v


@right("cosines by dividing the products by both lengths", spec=_COSINE)
def cosine(q: Array, k: Array, v: Array) -> Array:
    lengths = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(k, axis=1)
    return softmax(q.dtype.type(10) * (q @ k.T) / lengths) @ v


@right("differences squared, summed and halved", spec=_DISTANCE)
def distance(q: Array, k: Array, v: Array) -> Array:
    gap = q[:, None, :] - k[None, :, :]
    return softmax(-(gap**2).sum(-1) / 2) @ v


@right("sigmoids less log n", spec=_SIGMOID)
def sigmoid(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(np.log(len(k)).astype(q.dtype) - s)) @ v


@right("positive parts over n", spec=_RELU)
def relu(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    return np.maximum(s, 0) @ v / q.dtype.type(len(k))


@right("causal after a prefix of three", spec=_PREFIX)
def prefix(q: Array, k: Array, v: Array) -> Array:
    i, j = places(q, k)
    return masked(q, k, v, (j <= i) | (j < 3))


@right("causal within blocks of four", spec=_BLOCKS)
def blocks(q: Array, k: Array, v: Array) -> Array:
    i, j = places(q, k)
    return masked(q, k, v, (j <= i) & (i // 4 == j // 4))


@right("two keys back, one ahead", spec=_SIDES, domain=_SQUARE)
def sides(q: Array, k: Array, v: Array) -> Array:
    i, j = places(q, k)
    return masked(q, k, v, (j >= i - 2) & (j <= i + 1))


@right("a factor of its own for each head", spec=_PER_HEAD)
def factor_per_head(q: Array, k: Array, v: Array, scale: Array) -> Array:
    return softmax(q @ k.swapaxes(-1, -2) * scale[:, None, None]) @ v


@right("1/d_k is what is asked for", spec=_MU_P)
def by_width(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.T / q.dtype.type(q.shape[-1])) @ v


@right("powers of two are what is asked for", spec=_BASE)
def powers_of_two(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    e = np.exp2(s - s.max(-1, keepdims=True))
    return e @ v / e.sum(-1, keepdims=True)


@right("causal and padded", spec=_CAUSAL_PADDED)
def causal_padded(q: Array, k: Array, v: Array, keep: Array) -> Array:
    i, j = places(q, k)
    return masked(q, k, v, (j <= i) & keep[None, :])


@wrong("norm", "queries are not normalised", "queries", "not normalised|norm", spec=_RMS, near="qk_rms")
def qk_rms_keys_only(q: Array, k: Array, v: Array, g_q: Array, g_k: Array) -> Array:
    return attend(q, rms(k, g_k), v)


@wrong("norm", "the root mean square over all heads together", "heads|norm|axis|axes|whole", spec=_RMS, near="qk_rms")
def qk_rms_over_heads(q: Array, k: Array, v: Array, g_q: Array, g_k: Array) -> Array:
    def norm(x: Array, g: Array) -> Array:
        return x / np.sqrt((x * x).mean(axis=(0, 2), keepdims=True) + np.float32(1e-6)) * g

    return attend(norm(q, g_q), norm(k, g_k), v)


@wrong(
    "norm",
    "the gains of queries and keys exchanged",
    "gain|weight|exchanged",
    spec=Attention(heads=2, qk_norm="layer"),
    near="qk_layer",
)
def qk_biases_exchanged(q: Array, k: Array, v: Array, g_q: Array, g_k: Array, beta_q: Array, beta_k: Array) -> Array:
    return attend(layer(q, g_k, beta_k, 0.0), layer(k, g_q, beta_q, 0.0), v)


@wrong("norm", "the gain of the queries is left out", "gain|weight", spec=_RMS, near="qk_rms")
def qk_rms_without_gain(q: Array, k: Array, v: Array, g_q: Array, g_k: Array) -> Array:
    return attend(rms(q, 1), rms(k, g_k), v)


@wrong("norm", "the mean is not subtracted", "mean", spec=_LAYER, near="qk_layer")
def qk_layer_without_mean(q: Array, k: Array, v: Array, g_q: Array, g_k: Array, beta_q: Array, beta_k: Array) -> Array:
    return attend(rms(q, g_q, 1e-5) + beta_q, rms(k, g_k, 1e-5) + beta_k, v)


@wrong("norm", "lengths with the root forgotten", "root|square|length", spec=_UNIT, near="qk_unit")
def qk_unit_without_root(q: Array, k: Array, v: Array) -> Array:
    q, k = (a / (a * a).sum(axis=-1, keepdims=True) for a in (q, k))
    return softmax(8 * (q @ k.T)) @ v


@wrong("scale", "1/sqrt(d) on top of the scale of cosines", "scale", spec=_COSINE, near="cosine")
def cosine_scaled_twice(q: Array, k: Array, v: Array) -> Array:
    lengths = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(k, axis=1)
    return softmax(q.dtype.type(10 / np.sqrt(q.shape[1])) * (q @ k.T) / lengths) @ v


@wrong(
    "score",
    "dot products where cosines are meant: the keys are not normalised",
    "keys|cosine|normalis|length",
    spec=_COSINE,
    near="cosine",
)
def cosine_of_queries(q: Array, k: Array, v: Array) -> Array:
    return softmax(q.dtype.type(10) * (q @ k.T) / np.linalg.norm(q, axis=1)[:, None]) @ v


@wrong("score", "distances are not squared", "square|distance", spec=_DISTANCE, near="distance")
def distance_not_squared(q: Array, k: Array, v: Array) -> Array:
    d = np.linalg.norm(q[:, None] - k[None], axis=-1)
    return softmax(-d / 2) @ v


@wrong("normalize|bias", "sigmoids without log n", "log n|log(n", spec=_SIGMOID, near="sigmoid")
def sigmoid_without_log(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-s)) @ v


@wrong("normalize", "positive parts are not divided by n", "n_k|divided|sum", spec=_RELU, near="relu")
def relu_not_divided(q: Array, k: Array, v: Array) -> Array:
    return np.maximum(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype), 0) @ v


@wrong("mask", "the prefix is one key short", "prefix", spec=_PREFIX, near="prefix", at=_FEW)
def prefix_short(q: Array, k: Array, v: Array) -> Array:
    i, j = places(q, k)
    return masked(q, k, v, (j <= i) | (j < 2))


@wrong("mask", "the prefix is left out", "prefix", spec=_PREFIX, near="prefix", at=_FEW)
def prefix_ignored(q: Array, k: Array, v: Array) -> Array:
    i, j = places(q, k)
    return masked(q, k, v, j <= i)


@wrong("mask", "blocks are windows", "block|window", spec=_BLOCKS, near="blocks")
def blocks_as_window(q: Array, k: Array, v: Array) -> Array:
    i, j = places(q, k)
    return masked(q, k, v, (j <= i) & (j > i - 4))


@wrong("mask", "the sides of the window exchanged", "window|side|exchanged", spec=_SIDES, domain=_SQUARE, near="sides")
def sides_exchanged(q: Array, k: Array, v: Array) -> Array:
    i, j = places(q, k)
    return masked(q, k, v, (j >= i - 1) & (j <= i + 2))


@wrong("mask", "the window is open ahead", "window|ahead|right|side|later", spec=_SIDES, domain=_SQUARE, near="sides")
def sides_open_ahead(q: Array, k: Array, v: Array) -> Array:
    i, j = places(q, k)
    return masked(q, k, v, j >= i - 2)


@wrong(
    "mask",
    "of two masks the padding is lost",
    "padding",
    "left out|ignored|lost",
    spec=_CAUSAL_PADDED,
    near="causal_padded",
)
def padding_lost(q: Array, k: Array, v: Array, keep: Array) -> Array:
    i, j = places(q, k)
    return masked(q, k, v, j <= i)


@wrong(
    "mask",
    "of two masks the causal one is lost",
    "causal",
    "left out|ignored|lost",
    spec=_CAUSAL_PADDED,
    near="causal_padded",
)
def causal_lost(q: Array, k: Array, v: Array, keep: Array) -> Array:
    return attend(q, k[keep], v[keep])


@wrong("mask", "two masks joined by or", " or |either|joined|union", spec=_CAUSAL_PADDED, near="causal_padded")
def masks_joined_by_or(q: Array, k: Array, v: Array, keep: Array) -> Array:
    i, j = places(q, k)
    return masked(q, k, v, (j <= i) | keep[None, :])


@wrong("scale", "the factor of the other head", "head|scale", spec=_PER_HEAD, near="factor_per_head")
def factor_of_other_head(q: Array, k: Array, v: Array, scale: Array) -> Array:
    return softmax(q @ k.swapaxes(-1, -2) * scale[::-1, None, None]) @ v


@wrong("scale", "the root where 1/d_k is asked for", "1/√d_k|root|√d_k", spec=_MU_P, near="by_width")
def root_for_width(q: Array, k: Array, v: Array) -> Array:
    return attend(q, k, v)


@wrong("exp", "powers of e where powers of two are asked for", "power|base|of e", spec=_BASE, near="powers_of_two")
def powers_of_e(q: Array, k: Array, v: Array) -> Array:
    return attend(q, k, v)
