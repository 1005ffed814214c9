"""Slopes, buckets and biases."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention
from symattn.attention.positions.position_fields import Alibi, Buckets
from tests.faults.collection.entries import At
from tests.faults.collection.positions import FAMILY, causal_attention, softmax

Array = Any
right, wrong = FAMILY.right, FAMILY.wrong
_ALIBI = Attention(heads=4, causal=True, position=Alibi())
_ALIBI_GIVEN = Attention(heads=3, causal=True, position=Alibi(slopes="given"))
_ALIBI_SIX = Attention(heads=6, causal=True, position=Alibi())
_ALIBI_TWO_SIDED = Attention(heads=2, position=Alibi(two_sided=True))
_BIAS = Attention(heads=2, bias=True)
_BUCKETS = Attention(heads=2, scale=1, position=Buckets())


@right("slopes by powers of two", spec=_ALIBI)
def alibi(q: Array, k: Array, v: Array) -> Array:
    h, n_q, n_k = q.shape[0], q.shape[1], k.shape[1]
    slopes = 2.0 ** (-8.0 * np.arange(1, h + 1) / h)
    far = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    return causal_attention(q, k, v, slopes[:, None, None] * far)


@right("the key's place alone: rows are moved as a whole, which a softmax does not see", spec=_ALIBI)
def alibi_of_keys(q: Array, k: Array, v: Array) -> Array:
    h, n_k = q.shape[0], k.shape[1]
    slopes = np.array([2.0 ** (-2 * (t + 1)) for t in range(h)])
    return causal_attention(q, k, v, slopes[:, None, None] * np.arange(1 - n_k, 1))


@right("six heads: four slopes, and every second one of eight", spec=_ALIBI_SIX)
def alibi_six_heads(q: Array, k: Array, v: Array) -> Array:
    slopes = np.array([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3])
    n_q, n_k = q.shape[1], k.shape[1]
    far = (np.arange(n_q) + n_k - n_q)[:, None] - np.arange(n_k)
    return causal_attention(q, k, v, -slopes[:, None, None] * far)


@right("slopes are given", spec=_ALIBI_GIVEN)
def alibi_given(q: Array, k: Array, v: Array, slopes: Array) -> Array:
    n_q, n_k = q.shape[1], k.shape[1]
    far = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    return causal_attention(q, k, v, slopes[:, None, None] * far.astype(q.dtype))


@right("buckets by a table of distances", spec=_BUCKETS)
def buckets(q: Array, k: Array, v: Array, b_rel: Array) -> Array:
    n_q, n_k = q.shape[1], k.shape[1]
    ahead = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    s = q @ k.swapaxes(-1, -2) + np.moveaxis(b_rel[_bucket(ahead)], -1, 0)
    return softmax(s) @ v


def _bucket(ahead: Array, limit: int = 8) -> Array:
    """T5's, two-sided, 32 buckets up to 128."""
    n = np.abs(ahead)
    far = limit + (np.log(np.maximum(n, 1) / limit) / np.log(128 / limit) * (16 - limit) + 1e-9).astype(int)
    return np.where(ahead > 0, 16, 0) + np.where(n < limit, n, np.minimum(far, 15))


@right("a bias of each head is added after the scale", spec=_BIAS)
def bias_added(q: Array, k: Array, v: Array, bias: Array) -> Array:
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype) + bias) @ v


@wrong(
    "bias|position",
    "the sign: far keys are favoured",
    "sign",
    spec=_ALIBI,
    near="alibi",
    source="meta-pytorch/attention-gym#86",
)
def alibi_sign(q: Array, k: Array, v: Array) -> Array:
    h, n_q, n_k = q.shape[0], q.shape[1], k.shape[1]
    slopes = 2.0 ** (-8.0 * np.arange(1, h + 1) / h)
    far = (np.arange(n_q) + n_k - n_q)[:, None] - np.arange(n_k)
    return causal_attention(q, k, v, slopes[:, None, None] * far)


@wrong(
    "bias|position",
    "slopes 2^(-8h/n) for six heads",
    "slope",
    spec=_ALIBI_SIX,
    shows="heads not a power of two",
    near="alibi_six_heads",
    source="ml-explore/mlx#3071",
)
def alibi_geometric(q: Array, k: Array, v: Array) -> Array:
    h, n_q, n_k = q.shape[0], q.shape[1], k.shape[1]
    slopes = 2.0 ** (-8.0 * np.arange(1, h + 1) / h)
    far = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    return causal_attention(q, k, v, slopes[:, None, None] * far)


@wrong("bias|position", "slopes from 2^0 on", "slope", spec=_ALIBI, near="alibi")
def alibi_slopes_one_early(q: Array, k: Array, v: Array) -> Array:
    h, n_q, n_k = q.shape[0], q.shape[1], k.shape[1]
    slopes = 2.0 ** (-8.0 * np.arange(h) / h)
    far = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    return causal_attention(q, k, v, slopes[:, None, None] * far)


@wrong("bias|position", "slopes of the heads in reverse", "slope", spec=_ALIBI_GIVEN, near="alibi_given")
def alibi_reversed(q: Array, k: Array, v: Array, slopes: Array) -> Array:
    n_q, n_k = q.shape[1], k.shape[1]
    far = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    return causal_attention(q, k, v, slopes[::-1, None, None] * far.astype(q.dtype))


@wrong(
    "bias|position",
    "keys ahead get a bonus: no absolute value",
    "ahead|absolute|two-sided|one-sided|sign",
    spec=_ALIBI_TWO_SIDED,
    near="alibi_both_sides",
)
def alibi_without_absolute(q: Array, k: Array, v: Array) -> Array:
    return _both_sides(q, k, v, lambda far: far)


@right("two-sided slopes", spec=_ALIBI_TWO_SIDED)
def alibi_both_sides(q: Array, k: Array, v: Array) -> Array:
    return _both_sides(q, k, v, lambda far: -np.abs(far))


def _both_sides(q: Array, k: Array, v: Array, what: Any) -> Array:
    h, n_q, n_k = q.shape[0], q.shape[1], k.shape[1]
    slopes = 2.0 ** (-8.0 * np.arange(1, h + 1) / h)
    far = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(s + (slopes[:, None, None] * what(far)).astype(q.dtype)) @ v


@wrong(
    "bias|position",
    "buckets for keys ahead and behind exchanged",
    "bucket|distance|sign",
    spec=_BUCKETS,
    near="buckets",
)
def buckets_mirrored(q: Array, k: Array, v: Array, b_rel: Array) -> Array:
    n_q, n_k = q.shape[1], k.shape[1]
    ahead = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    return softmax(q @ k.swapaxes(-1, -2) + np.moveaxis(b_rel[_bucket(-ahead)], -1, 0)) @ v


@wrong(
    "bias|position",
    "far distances one bucket on",
    "bucket|distance",
    spec=_BUCKETS,
    near="buckets",
    shows="distances of 8 and more",
    at=At(n_q=20, n_k=20),
)
def buckets_rounded_up(q: Array, k: Array, v: Array, b_rel: Array) -> Array:
    n_q, n_k = q.shape[1], k.shape[1]
    ahead = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    n = np.abs(ahead)
    index = np.where(n < 8, _bucket(ahead), np.minimum(_bucket(ahead) + 1, np.where(ahead > 0, 31, 15)))
    return softmax(q @ k.swapaxes(-1, -2) + np.moveaxis(b_rel[index], -1, 0)) @ v


@wrong("scale", "scores are scaled where T5's are not", "scale", spec=_BUCKETS, near="buckets")
def buckets_scaled(q: Array, k: Array, v: Array, b_rel: Array) -> Array:
    n_q, n_k = q.shape[1], k.shape[1]
    ahead = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(s + np.moveaxis(b_rel[_bucket(ahead)], -1, 0)) @ v


@wrong("bias", "the bias is scaled with the scores", "bias", "scale", spec=_BIAS, near="bias_added")
def bias_scaled(q: Array, k: Array, v: Array, bias: Array) -> Array:
    return softmax((q @ k.swapaxes(-1, -2) + bias) / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


@wrong("bias", "the bias of head 0 for all", "bias", "head", spec=_BIAS, near="bias_added")
def bias_of_one_head(q: Array, k: Array, v: Array, bias: Array) -> Array:
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype) + bias[:1]) @ v


@wrong("bias", "the bias is left out", "bias", "left out|ignored|missing", spec=_BIAS, near="bias_added")
def bias_left_out(q: Array, k: Array, v: Array, bias: Array) -> Array:
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


@wrong("bias", "the bias is added to weights, not to scores", "bias", "after|weights", spec=_BIAS, near="bias_added")
def bias_after_softmax(q: Array, k: Array, v: Array, bias: Array) -> Array:
    return (softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)) + bias) @ v
