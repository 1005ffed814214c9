"""Norms, wrong and right, as programs."""

from __future__ import annotations

import numpy as np

from symattn import LayerNorm, RMSNorm
from tests.faults.programs import Program


def mean(x, axis=-1):
    return x.mean(axis=axis, keepdims=True)


def _eps(eps, x):
    return x.dtype.type(eps)


# -- wrong -------------------------------------------------------------------------------------------------------------
def outside(x, weight, bias, eps=1e-5):
    c = x - mean(x)
    return c / (np.sqrt(mean(c * c)) + _eps(eps, x)) * weight + bias


def squared(x, gamma, beta, eps=1e-5):
    c = x - mean(x)
    return gamma * c / (mean(c * c) + _eps(eps, x)) ** 2 + beta


def unbiased(x, a_2, b_2, eps=1e-5):
    return a_2 * (x - mean(x)) / (x.std(-1, ddof=1, keepdims=True) + _eps(eps, x)) + b_2


def unbiased_inside(x, weight, bias, eps=1e-5):
    with np.errstate(all="ignore"):
        return weight * (x - mean(x)) / np.sqrt(x.var(-1, ddof=1, keepdims=True) + _eps(eps, x)) + bias


def cancelling(x, weight, bias, eps=1e-5):
    m = mean(x)
    variance = np.maximum(mean(x * x) - m * m, 0)
    return (x - m) / np.sqrt(variance + _eps(eps, x)) * weight + bias


def first_axis(x, weight, bias, eps=1e-5):
    c = x - mean(x, 0)
    return c / np.sqrt(mean(c * c, 0) + _eps(eps, x)) * weight + bias


def not_centred(x, weight, bias, eps=1e-5):
    return x / np.sqrt(mean(x * x) + _eps(eps, x)) * weight + bias


def no_root(x, weight, bias, eps=1e-5):
    c = x - mean(x)
    return c / (mean(c * c) + _eps(eps, x)) * weight + bias


def other_eps(x, weight, bias):
    c = x - mean(x)
    return c / np.sqrt(mean(c * c) + _eps(1e-6, x)) * weight + bias


def bias_first(x, weight, bias, eps=1e-5):
    c = x - mean(x)
    return (c / np.sqrt(mean(c * c) + _eps(eps, x)) + bias) * weight


def rms_outside(x, weight, eps=1e-6):
    return x / (np.sqrt(mean(x * x)) + _eps(eps, x)) * weight


def rms_offset(x, weight, eps=1e-6):
    return x / np.sqrt(mean(x * x) + _eps(eps, x)) * weight


def rms_sum(x, weight, eps=1e-6):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + _eps(eps, x)) * weight


def rms_centred(x, weight, eps=1e-6):
    c = x - mean(x)
    return c / np.sqrt(mean(c * c) + _eps(eps, x)) * weight


_LAYER, _RMS = LayerNorm(eps=1e-5), RMSNorm(eps=1e-6)
WRONG = (
    Program("outside", outside, _LAYER, "ε is added to the standard deviation, outside the root"),
    Program("squared", squared, _LAYER, "it divides by (variance + ε)²"),
    Program("unbiased", unbiased, _LAYER, "the variance has the divisor d − 1, and ε is added outside the root"),
    Program("unbiased inside", unbiased_inside, _LAYER, "the variance has the divisor d − 1"),
    Program(
        "cancelling", cancelling, _LAYER,
        "the variance is computed as mean(x²) − mean(x)², which cancels where the mean is large",
    ),
    Program("first axis", first_axis, _LAYER, "mean and variance are taken over the first axis", "float64"),
    Program("not centred", not_centred, _LAYER, "the mean is not subtracted (as in RMSNorm)"),
    Program("no root", no_root, _LAYER, "it divides by the variance, without the root", "float16"),
    Program("other eps", other_eps, _LAYER, "ε is 1e-06, expected 1e-05"),
    Program("bias first", bias_first, _LAYER, "the gain multiplies the bias too"),
    Program("rms outside", rms_outside, _RMS, "ε is added to the root of the mean square, outside the root"),
    Program(
        "rms offset", rms_offset, RMSNorm(eps=1e-6, one_plus=True),
        "the gain, stored as an offset from one, is used without the 1",
    ),
    Program("rms sum", rms_sum, _RMS, "the sum of the squares is taken in place of their mean"),
    Program("rms centred", rms_centred, _RMS, "the mean is subtracted (as in LayerNorm)", "float64"),
)  # fmt: skip


# -- right -------------------------------------------------------------------------------------------------------------
def two_pass(x, weight, bias, eps=1e-5):
    c = x - mean(x)
    return c / np.sqrt(mean(c * c) + _eps(eps, x)) * weight + bias


def in_float32(x, weight, bias):
    wide = x.astype(np.float32)
    c = wide - mean(wide)
    return (c / np.sqrt(mean(c * c) + np.float32(1e-5))).astype(x.dtype) * weight + bias


def folded(x, gamma, beta, epsilon):
    m = mean(x)
    inverse = _eps(1, x) / np.sqrt(mean((x - m) ** 2) + _eps(epsilon, x))
    return (x * inverse + -m * inverse) * gamma + beta


def growing(x, weight, bias, eps):
    m, s = np.zeros_like(x[..., :1]), np.zeros_like(x[..., :1])
    for k in range(x.shape[-1]):
        before = x[..., k : k + 1] - m
        m = m + before / _eps(k + 1, x)
        s = s + before * (x[..., k : k + 1] - m)
    return (x - m) / np.sqrt(s / _eps(x.shape[-1], x) + _eps(eps, x)) * weight + bias


def from_the_end(x, weight, bias):
    total = np.zeros_like(x[..., :1])
    for k in reversed(range(x.shape[-1])):
        total = total + x[..., k : k + 1]
    c = x - total / _eps(x.shape[-1], x)
    return weight * (c * (_eps(1, x) / np.sqrt(mean(c * c) + _eps(1e-5, x)))) + bias


def rms_by_inverse(x, w, eps):
    return w * (x * (_eps(1, x) / np.sqrt(mean(np.square(x)) + _eps(eps, x))))


def rms_gain_first(x, g, eps):
    return x * (g / np.sqrt(mean(x * x) + _eps(eps, x)))


def rms_plus_one(x, weight, eps):
    return x / np.sqrt(mean(x * x) + _eps(eps, x)) * (_eps(1, x) + weight)


RIGHT = (
    Program("two passes", two_pass, _LAYER),
    Program("in float32", in_float32, _LAYER),
    Program("folded", folded, _LAYER),
    Program("growing", growing, _LAYER),
    Program("from the end", from_the_end, _LAYER),
    Program("rms by the inverse", rms_by_inverse, _RMS),
    Program("rms gain first", rms_gain_first, _RMS),
    Program("rms plus one", rms_plus_one, RMSNorm(eps=1e-6, one_plus=True)),
)
