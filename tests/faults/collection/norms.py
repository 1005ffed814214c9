"""Layer norm and RMS norm."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from symattn.verification.definitions.norms import LayerNorm, RMSNorm
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("norms", at=At(n_q=3, d_k=6))
right, wrong = FAMILY.right, FAMILY.wrong
_LAYER = LayerNorm()
_RMS = RMSNorm(eps=Fraction(1, 10**6))
_OFFSET = RMSNorm(eps=Fraction(1, 10**6), one_plus=True)
_TINY = At(n_q=3, d_k=6, spread=2.0**-9)


def _far(made: dict[str, Array]) -> dict[str, Array]:
    return {"x": made["x"] + 1000.0}


_FAR = At(n_q=3, d_k=6, given=_far)


@right("mean and variance in two passes", spec=_LAYER)
def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    c = x - x.mean(axis=-1, keepdims=True)
    return weight * c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + x.dtype.type(eps)) + bias


@right("np.var, without a gain", spec=_LAYER, at=_FAR)
def layer_norm_by_var(x: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + x.dtype.type(1e-5))


@right("Welford's sums", spec=_LAYER, at=_FAR)
def layer_norm_welford(x: Array, gamma: Array, beta: Array) -> Array:
    mean, m2 = np.zeros(x.shape[:-1], x.dtype), np.zeros(x.shape[:-1], x.dtype)
    for k in range(x.shape[-1]):
        delta = x[..., k] - mean
        mean = mean + delta / x.dtype.type(k + 1)
        m2 = m2 + delta * (x[..., k] - mean)
    root = np.sqrt(m2 / x.dtype.type(x.shape[-1]) + x.dtype.type(1e-5))
    return gamma * ((x - mean[..., None]) / root[..., None]) + beta


@right("float16 rows, float32 between", spec=_LAYER, precision="float16")
def layer_norm_of_half(x: Array, weight: Array, bias: Array) -> Array:
    w = x.astype(np.float32)
    c = w - w.mean(-1, keepdims=True)
    y = c / np.sqrt((c * c).mean(-1, keepdims=True) + np.float32(1e-5))
    return (y * weight.astype(np.float32) + bias.astype(np.float32)).astype(np.float16)


@right("1/sqrt of the mean square", spec=_RMS)
def rms_norm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    return x * (1 / np.sqrt((x**2).mean(-1, keepdims=True) + x.dtype.type(eps))) * weight


@right("the length over the root of the width", spec=_RMS)
def rms_norm_by_length(hidden_states: Array, weight: Array) -> Array:
    x = hidden_states
    square = np.einsum("...d,...d->...", x, x)[..., None] / x.dtype.type(x.shape[-1])
    return weight * (x / np.sqrt(square + x.dtype.type(1e-6)))


@right("a gain stored as an offset from one", spec=_OFFSET)
def rms_norm_offset(x: Array, weight: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(1e-6)) * (1 + weight)


@right("bfloat16 rows, float32 between", spec=_RMS, precision="bfloat16")
def rms_norm_of_bfloat(x: Array, weight: Array) -> Array:
    w = x.astype(np.float32)
    y = w / np.sqrt((w * w).mean(-1, keepdims=True) + np.float32(1e-6))
    return (y * weight.astype(np.float32)).astype(x.dtype)


@wrong(
    "norm",
    "eps added to the standard deviation",
    "outside the root",
    spec=_LAYER,
    shows="variance not >> eps",
    near="layer_norm",
    at=_TINY,
    source="hkproj/pytorch-transformer#31",
)
def eps_outside(x: Array, weight: Array, bias: Array) -> Array:
    return weight * (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + x.dtype.type(1e-5)) + bias


@wrong(
    "norm",
    "eps outside the root of the mean square",
    "outside the root",
    spec=_RMS,
    shows="mean square not >> eps",
    near="rms_norm",
    at=_TINY,
    source="allenai/OLMo#281",
)
def rms_eps_outside(x: Array, weight: Array) -> Array:
    return weight * x / (np.sqrt((x * x).mean(-1, keepdims=True)) + x.dtype.type(1e-6))


@wrong(
    "norm",
    "standard deviation with ddof=1",
    "d − 1|d-1|ddof|n − 1|divisor",
    spec=_LAYER,
    near="layer_norm",
    source="harvardnlp/annotated-transformer#119",
)
def unbiased(x: Array, weight: Array, bias: Array) -> Array:
    with np.errstate(all="ignore"):
        variance = x.var(-1, ddof=1, keepdims=True)
    return weight * (x - x.mean(-1, keepdims=True)) / np.sqrt(variance + x.dtype.type(1e-5)) + bias


@wrong(
    "norm",
    "divides by (var + eps)^2",
    "²|squared|square",
    spec=_LAYER,
    near="layer_norm",
    source="131250208/TPlinker-joint-extraction#37",
)
def squared_twice(x: Array, weight: Array, bias: Array) -> Array:
    return weight * (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + x.dtype.type(1e-5)) ** 2 + bias


@wrong("norm", "divides by the variance, no root", "without the root|no root|variance", spec=_LAYER, near="layer_norm")
def without_root(x: Array, weight: Array, bias: Array) -> Array:
    return weight * (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + x.dtype.type(1e-5)) + bias


@wrong(
    "norm",
    "the variance as E[x^2] - E[x]^2",
    "e[x²]|cancel|x²|mean of squares|difference",
    spec=_LAYER,
    shows="|mean| >> std",
    near="layer_norm_welford",
    at=_FAR,
    source="tracel-ai/burn#5607",
)
def variance_by_difference(x: Array, weight: Array, bias: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = np.maximum((x * x).mean(-1, keepdims=True) - mean * mean, 0)
    return weight * (x - mean) / np.sqrt(variance + x.dtype.type(1e-5)) + bias


@wrong(
    "norm",
    "a gain stored as an offset is used without the 1",
    "offset|1 +|without the 1|one",
    spec=_OFFSET,
    near="rms_norm_offset",
    source="linkedin/Liger-Kernel#74",
)
def offset_forgotten(x: Array, weight: Array) -> Array:
    return rms_norm(x, weight)


@wrong("norm", "normalised over the tokens", "axis|tokens|rows", spec=_LAYER, near="layer_norm")
def over_tokens(x: Array, weight: Array, bias: Array) -> Array:
    axis = -2 if x.ndim > 1 else -1
    c = x - x.mean(axis, keepdims=True)
    return weight * c / np.sqrt((c * c).mean(axis, keepdims=True) + x.dtype.type(1e-5)) + bias


@wrong("norm", "one mean and one variance for all rows", "axis|axes|rows|whole|all|tokens", spec=_RMS, near="rms_norm")
def over_everything(x: Array, weight: Array) -> Array:
    return weight * x / np.sqrt((x * x).mean() + x.dtype.type(1e-6))


@wrong("norm", "the bias is left out", "bias", "left out|ignored|missing", spec=_LAYER, near="layer_norm")
def bias_left_out(x: Array, weight: Array, bias: Array) -> Array:
    return layer_norm(x, weight, x.dtype.type(0), 1e-5)


@wrong("norm", "the gain is left out", "gain", "left out|ignored|missing", spec=_RMS, near="rms_norm")
def gain_left_out(x: Array, weight: Array) -> Array:
    return rms_norm(x, x.dtype.type(1))


@wrong("norm", "the bias is multiplied by the gain", "bias", "gain", spec=_LAYER, near="layer_norm")
def bias_before_gain(x: Array, weight: Array, bias: Array) -> Array:
    c = x - x.mean(-1, keepdims=True)
    return weight * (c / np.sqrt((c * c).mean(-1, keepdims=True) + x.dtype.type(1e-5)) + bias)


@wrong(
    "norm", "the mean is subtracted where it is not asked for", "mean", "subtracted|layer", spec=_RMS, near="rms_norm"
)
def layer_for_rms(x: Array, weight: Array) -> Array:
    c = x - x.mean(-1, keepdims=True)
    return weight * c / np.sqrt((c * c).mean(-1, keepdims=True) + x.dtype.type(1e-6))


@wrong("norm", "the sum of squares in place of their mean", "sum", spec=_RMS, near="rms_norm")
def sum_of_squares(x: Array, weight: Array) -> Array:
    return weight * x / np.sqrt((x * x).sum(-1, keepdims=True) + x.dtype.type(1e-6))


@wrong("norm", "eps 1e-5 for 1e-6", "ε|eps", spec=_RMS, shows="mean square not >> eps", near="rms_norm", at=_TINY)
def other_eps(x: Array, weight: Array) -> Array:
    return weight * x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(1e-5))


@wrong(
    "norm",
    "no eps",
    "ε|eps",
    "left out|missing|no",
    spec=_LAYER,
    shows="variance not >> eps",
    near="layer_norm",
    at=_TINY,
)
def no_eps(x: Array, weight: Array, bias: Array) -> Array:
    return weight * (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True) + bias


@wrong("norm", "the gain before the root mean square is taken", "gain|weight", spec=_RMS, near="rms_norm")
def gain_first(x: Array, weight: Array) -> Array:
    return rms_norm(x * weight, x.dtype.type(1))


@wrong(
    "norm",
    "squares in float16 overflow",
    "overflow|float16|squares|half",
    spec=_RMS,
    precision="float16",
    contract="fused",  # where every array may be kept in float16, squares may overflow
    shows="|x| > 255",
    near="rms_norm_of_bfloat",
    at=At(n_q=3, d_k=6, spread=600.0),
)
def squares_in_half(x: Array, weight: Array) -> Array:
    with np.errstate(over="ignore"):
        square = (x * x).astype(np.float16).astype(np.float32).mean(-1, keepdims=True)
    return (x.astype(np.float32) / np.sqrt(square + np.float32(1e-6)) * weight.astype(np.float32)).astype(np.float16)
