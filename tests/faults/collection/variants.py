"""Further fields: norms of queries and keys, prefixes, blocks, other scores, other weights."""

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At, Family
from tests.faults.programs import softmax

Array = Any
FAMILY = Family("variants")
right = FAMILY.right
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


def qk_rms_over_heads(q: Array, k: Array, v: Array, g_q: Array, g_k: Array) -> Array:
    def norm(x: Array, g: Array) -> Array:
        return x / np.sqrt((x * x).mean(axis=(0, 2), keepdims=True) + np.float32(1e-6)) * g

    return attend(norm(q, g_q), norm(k, g_k), v)


FAMILY.wrong(
    globals(),
    """
qk_rms_keys_only(q, k, v, g_q, g_k) (qk_rms), norm: queries are not normalised
    says queries & not normalised|norm
    return attend(q, rms(k, g_k), v)
qk_rms_over_heads (qk_rms), norm: the root mean square over all heads together
    says heads|norm|axis|axes|whole
qk_biases_exchanged (qk_layer), norm: the gains of queries and keys exchanged
    says gain|weight|exchanged; spec=Attention(heads=2, qk_norm="layer")
    return attend(layer(q, g_k, beta_k, 0.0), layer(k, g_q, beta_q, 0.0), v)
qk_rms_without_gain(q, k, v, g_q, g_k) (qk_rms), norm: the gain of the queries is left out
    says gain|weight
    return attend(rms(q, 1), rms(k, g_k), v)
qk_layer_without_mean (qk_layer), norm: the mean is not subtracted
    says mean
    return attend(rms(q, g_q, 1e-5) + beta_q, rms(k, g_k, 1e-5) + beta_k, v)
qk_unit_without_root (qk_unit), norm: lengths with the root forgotten
    says root|square|length
    np.linalg.norm(a, axis=-1, keepdims=True → (a * a).sum(axis=-1, keepdims=True
cosine_scaled_twice (cosine), scale: 1/sqrt(d) on top of the scale of cosines
    says scale
    10) * ( → 10 / np.sqrt(q.shape[1])) * (
cosine_of_queries (cosine), score: dot products where cosines are meant: the keys are not normalised
    says keys|cosine|normalis|length
    return softmax(q.dtype.type(10) * (q @ k.T) / np.linalg.norm(q, axis=1)[:, None]) @ v
distance_not_squared (distance), score: distances are not squared
    says square|distance
    d = np.linalg.norm(q[:, None] - k[None], axis=-1)
    return softmax(-d / 2) @ v
sigmoid_without_log (sigmoid), normalize|bias: sigmoids without log n
    says log n|log(n
    np.log(len(k)).astype(q.dtype) - s → -s
relu_not_divided (relu), normalize: positive parts are not divided by n
    says n_k|divided|sum
    return np.maximum(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype), 0) @ v
prefix_short (prefix), mask: the prefix is one key short
    says prefix; at=_FEW
    3 → 2
prefix_ignored (prefix), mask: the prefix is left out
    says prefix; at=_FEW
    i, j = places(q, k)
    return masked(q, k, v, j <= i)
blocks_as_window (blocks), mask: blocks are windows
    says block|window
    i // 4 == j // → j > i -
sides_exchanged (sides), mask: the sides of the window exchanged
    says window|side|exchanged
    i, j = places(q, k)
    return masked(q, k, v, (j >= i - 1) & (j <= i + 2))
sides_open_ahead (sides), mask: the window is open ahead
    says window|ahead|right|side|later
    i, j = places(q, k)
    return masked(q, k, v, j >= i - 2)
padding_lost (causal_padded), mask: of two masks the padding is lost
    says padding & left out|ignored|lost
    i, j = places(q, k)
    return masked(q, k, v, j <= i)
causal_lost (causal_padded), mask: of two masks the causal one is lost
    says causal & left out|ignored|lost
    return attend(q, k[keep], v[keep])
masks_joined_by_or (causal_padded), mask: two masks joined by or
    says either| or |joined|union
    & → |
factor_of_other_head (factor_per_head), scale: the factor of the other head
    says head|scale
    :, → ::-1,
root_for_width (by_width), scale: the root where 1/d_k is asked for
    says 1/√d_k|root|√d_k
    return attend(q, k, v)
powers_of_e (powers_of_two), exp: powers of e where powers of two are asked for
    says power|base|of e
    return attend(q, k, v)
""",
)
