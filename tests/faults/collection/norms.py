"""Layer norm and RMS norm."""

from fractions import Fraction
from typing import Any

import numpy as np

from symattn import LayerNorm, RMSNorm
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("norms", at=At(n_q=3, d_k=6))
right = FAMILY.right
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


def squares_in_half(x: Array, weight: Array) -> Array:
    with np.errstate(over="ignore"):
        square = (x * x).astype(np.float16).astype(np.float32).mean(-1, keepdims=True)
    return (x.astype(np.float32) / np.sqrt(square + np.float32(1e-6)) * weight.astype(np.float32)).astype(np.float16)


FAMILY.wrong(
    globals(),
    """
eps_outside(x, weight, bias) (layer_norm), norm: eps added to the standard deviation
    says outside the root; shows variance not >> eps; at=_TINY; source hkproj/pytorch-transformer#31
    return weight * (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + x.dtype.type(1e-5)) + bias
rms_eps_outside(x, weight) (rms_norm), norm: eps outside the root of the mean square
    says outside the root; shows mean square not >> eps; at=_TINY; source allenai/OLMo#281
    return weight * x / (np.sqrt((x * x).mean(-1, keepdims=True)) + x.dtype.type(1e-6))
unbiased(x, weight, bias) (layer_norm), norm: standard deviation with ddof=1
    says d − 1|d-1|ddof|n − 1|divisor; source harvardnlp/annotated-transformer#119
    with np.errstate(all="ignore"):
        variance = x.var(-1, ddof=1, keepdims=True)
    return weight * (x - x.mean(-1, keepdims=True)) / np.sqrt(variance + x.dtype.type(1e-5)) + bias
squared_twice(x, weight, bias) (layer_norm), norm: divides by (var + eps)^2
    says ²|squared|square; source 131250208/TPlinker-joint-extraction#37
    return weight * (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + x.dtype.type(1e-5)) ** 2 + bias
without_root(x, weight, bias) (layer_norm), norm: divides by the variance, no root
    says without the root|no root|variance
    return weight * (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + x.dtype.type(1e-5)) + bias
variance_by_difference(x, weight, bias) (layer_norm_welford), norm: the variance as E[x^2] - E[x]^2
    says e[x²]|cancel|x²|mean of squares|difference; shows |mean| >> std; source tracel-ai/burn#5607
    mean = x.mean(-1, keepdims=True)
    variance = np.maximum((x * x).mean(-1, keepdims=True) - mean * mean, 0)
    return weight * (x - mean) / np.sqrt(variance + x.dtype.type(1e-5)) + bias
offset_forgotten (rms_norm_offset), norm: a gain stored as an offset is used without the 1
    says offset|1 +|without the 1|one; source linkedin/Liger-Kernel#74
    return rms_norm(x, weight)
over_tokens(x, weight, bias) (layer_norm), norm: normalised over the tokens
    says axis|tokens|rows
    axis = -2 if x.ndim > 1 else -1
    c = x - x.mean(axis, keepdims=True)
    return weight * c / np.sqrt((c * c).mean(axis, keepdims=True) + x.dtype.type(1e-5)) + bias
over_everything(x, weight) (rms_norm), norm: one mean and one variance for all rows
    says axis|axes|rows|whole|all|tokens
    return weight * x / np.sqrt((x * x).mean() + x.dtype.type(1e-6))
bias_left_out(x, weight, bias) (layer_norm), norm: the bias is left out
    says bias & left out|ignored|missing
    return layer_norm(x, weight, x.dtype.type(0), 1e-5)
gain_left_out(x, weight) (rms_norm), norm: the gain is left out
    says gain & left out|ignored|missing
    return rms_norm(x, x.dtype.type(1))
bias_before_gain(x, weight, bias) (layer_norm), norm: the bias is multiplied by the gain
    says bias & gain
    c = x - x.mean(-1, keepdims=True)
    return weight * (c / np.sqrt((c * c).mean(-1, keepdims=True) + x.dtype.type(1e-5)) + bias)
layer_for_rms(x, weight) (rms_norm), norm: the mean is subtracted where it is not asked for
    says mean & subtracted|layer
    c = x - x.mean(-1, keepdims=True)
    return weight * c / np.sqrt((c * c).mean(-1, keepdims=True) + x.dtype.type(1e-6))
sum_of_squares(x, weight) (rms_norm), norm: the sum of squares in place of their mean
    says sum
    return weight * x / np.sqrt((x * x).sum(-1, keepdims=True) + x.dtype.type(1e-6))
other_eps(x, weight) (rms_norm), norm: eps 1e-5 for 1e-6
    says ε|eps; shows mean square not >> eps; at=_TINY
    return weight * x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(1e-5))
no_eps(x, weight, bias) (layer_norm), norm: no eps
    says ε|eps & left out|missing|no; shows variance not >> eps; at=_TINY
    return weight * (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True) + bias
gain_first(x, weight) (rms_norm), norm: the gain before the root mean square is taken
    says gain|weight
    return rms_norm(x * weight, x.dtype.type(1))
squares_in_half (rms_norm_of_bfloat), norm: squares in float16 overflow
    says overflow|float16|squares|half; shows |x| > 255; at=At(n_q=3, d_k=6, spread=600.0); contract="fused";
        precision="float16"
""",
)
