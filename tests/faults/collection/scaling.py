"""Scores, their scale, and the cap."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from symattn import Attention
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("scaling")
right, wrong = FAMILY.right, FAMILY.wrong
_CAP = Attention(softcap=5)
_CAP_CAUSAL = Attention(softcap=5, causal=True)
_GIVEN = Attention(scale=Fraction(1, 3))
_HEADS = Attention(heads=2)
_WIDE = At(spread=2.0)


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@right("the definition as textbooks have it")
def plain(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


@right("queries arrive unscaled, keys are scaled before the product")
def scaled_keys(q: Array, k: Array, v: Array) -> Array:
    k = k * q.dtype.type(q.shape[-1] ** -0.5)
    return softmax(np.einsum("id,jd->ij", q, k)) @ v


@right("q and k each times d^(-1/4)")
def quarter_each(q: Array, k: Array, v: Array) -> Array:
    f = q.dtype.type(q.shape[-1] ** -0.25)
    return softmax((q * f) @ (k * f).T) @ v


@right("the scale multiplies exponents, after the maximum is subtracted")
def scale_after_max(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.T
    e = np.exp((s - s.max(axis=-1, keepdims=True)) * s.dtype.type(q.shape[-1] ** -0.5))
    return (e @ v) / e.sum(axis=-1, keepdims=True)


@right("a base-2 exponential with log2 e folded into the scale")
def exp2_folded(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.T * np.asarray(math.log2(math.e) / math.sqrt(q.shape[-1]), q.dtype)
    p = np.exp2(s - s.max(axis=-1, keepdims=True))
    return (p / p.sum(axis=-1, keepdims=True)) @ v


@right("configured scale, passed on", spec=_GIVEN)
def configured_scale(q: Array, k: Array, v: Array, scale: float = 1.0) -> Array:
    return softmax(q @ k.T * q.dtype.type(scale)) @ v


@right("scores of one head after another, scale of a head's width", spec=_HEADS)
def per_head_loop(q: Array, k: Array, v: Array) -> Array:
    out = [softmax(q[h] @ k[h].T / np.float32(math.sqrt(q.shape[-1]))) @ v[h] for h in range(len(q))]
    return np.stack(out)


@wrong("scale", "scores are divided by d_k", "1/d_k|by d_k", shows="d_k > 1", near="plain")
def by_width(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.T / q.shape[-1]) @ v


@wrong(
    "scale",
    "scores are not scaled",
    "not scaled|unscaled|no scale",
    shows="d_k > 1",
    near="plain",
    source="fla-org/flash-linear-attention#395",
)
def no_scale(q: Array, k: Array, v: Array) -> Array:
    return softmax(np.matmul(q, k.swapaxes(-1, -2))) @ v


@wrong(
    "scale",
    "divides by d_k**-0.5, which multiplies by the root",
    "multiplied by √d_k|times √d_k",
    shows="d_k > 1",
    near="plain",
    source="esceptico/perceiver-io#9",
)
def divided_by_inverse_root(q: Array, k: Array, v: Array) -> Array:
    scale = q.shape[-1] ** -0.5
    return softmax(q @ k.T / np.float32(scale)) @ v


@wrong("scale", "q is scaled, and the scores once more", "1/d_k|twice", shows="d_k > 1", near="scaled_keys")
def scaled_twice(q: Array, k: Array, v: Array) -> Array:
    f = q.dtype.type(q.shape[-1] ** -0.5)
    q = q * f
    s = q @ k.T
    s *= f
    return softmax(s) @ v


@wrong(
    "scale",
    "the width of the values in place of the keys'",
    "√d_v",
    shows="d_v != d_k",
    near="plain",
    source="juho-lee/set_transformer#18",
)
def root_of_value_width(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.T / np.sqrt(v.shape[-1]).astype(q.dtype)) @ v


@wrong(
    "scale",
    "d^(-1/4) on the queries alone",
    "d_k^(-1/4)|d_k^-1/4|1/d_k^(1/4)|d_k^(−1/4)|d_k^{-1/4}|d_k^(1/4)|fourth root|⁴√d_k|−1/4|^0.25",
    shows="d_k > 1",
    near="quarter_each",
)
def quarter_once(q: Array, k: Array, v: Array) -> Array:
    f = q.dtype.type(q.shape[-1] ** -0.25)
    return softmax((q * f) @ k.T) @ v


@wrong(
    "scale",
    "all heads' width: sqrt(h d_k)",
    "√d_model|√(h d_k)|√(h·d_k)",
    shows="heads > 1",
    spec=_HEADS,
    near="per_head_loop",
    source="lucidrains/vit-pytorch#65",
)
def root_of_model_width(q: Array, k: Array, v: Array) -> Array:
    width = q.shape[0] * q.shape[-1]
    s = np.einsum("hid,hjd->hij", q, k) * q.dtype.type(width**-0.5)
    return np.einsum("hij,hjd->hid", softmax(s), v)


@wrong(
    "scale",
    "the configured scale is ignored",
    "configured scale|given scale|scale is ignored",
    shows="scale != 1/sqrt(d_k)",
    spec=_GIVEN,
    near="configured_scale",
    source="huggingface/pytorch-image-models#2280",
)
def configured_scale_ignored(q: Array, k: Array, v: Array, scale: float = 1.0) -> Array:
    return softmax(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


@wrong(
    "scale",
    "the configured scale and the default one both",
    "twice|configured scale|also|as well|and by 1/√d_k|besides|both",
    spec=_GIVEN,
    near="configured_scale",
)
def both_scales(q: Array, k: Array, v: Array, scale: float = 1.0) -> Array:
    q = q / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(q @ k.T * q.dtype.type(scale)) @ v


@wrong("scale", "root of the number of keys", "√n_k|√n", shows="n_k != d_k", near="plain")
def root_of_length(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.T / np.sqrt(k.shape[0]).astype(q.dtype)) @ v


@wrong(
    "scale",
    "sqrt taken of an int32 floor",
    "⌊√d_k⌋|integer|whole|floor|rounded down",
    shows="d_k no square",
    near="plain",
    at=At(d_k=6),
)
def integer_root(q: Array, k: Array, v: Array) -> Array:
    root = int(math.sqrt(q.shape[-1]))
    return softmax(q @ k.T / np.float32(root)) @ v


@wrong("scale", "head dimension 64 hard-coded", "1/8|0.125|64", shows="d_k != 64", near="plain")
def hard_coded_width(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.T * np.float32(0.125)) @ v


@wrong("exp", "exp2 without log2 e", "powers of 2|power of 2|exp2|base 2|2^s", near="exp2_folded")
def exp2_bare(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.T * q.dtype.type(q.shape[-1] ** -0.5)
    p = np.exp2(s - s.max(axis=-1, keepdims=True))
    return (p / p.sum(axis=-1, keepdims=True)) @ v
