"""Norms, wrong and right, as programs."""

import numpy as np

from symattn import LayerNorm, RMSNorm
from tests.faults.programs import Program, wrong


def mean(x, axis=-1):
    return x.mean(axis=axis, keepdims=True)


def _eps(eps, x):
    return x.dtype.type(eps)


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


def rms(x, weight, eps=1e-6):
    return x / np.sqrt(mean(x * x) + _eps(eps, x)) * weight


def rms_by_inverse(x, w, eps):
    return w * (x * (_eps(1, x) / np.sqrt(mean(np.square(x)) + _eps(eps, x))))


def rms_gain_first(x, g, eps):
    return x * (g / np.sqrt(mean(x * x) + _eps(eps, x)))


def rms_plus_one(x, weight, eps):
    return x / np.sqrt(mean(x * x) + _eps(eps, x)) * (_eps(1, x) + weight)


_LAYER, _RMS = LayerNorm(eps=1e-5), RMSNorm(eps=1e-6)
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
WRONG = wrong(
    globals(),
    (*RIGHT, Program("rms", rms, _RMS)),
    """
outside (two_pass), norm: ε is added to the standard deviation, outside the root
    np.sqrt(mean(c * c) + _eps(eps, x)) → (np.sqrt(mean(c * c)) + _eps(eps, x))
squared(x, gamma, beta, eps=1e-5) (folded), norm: it divides by (variance + ε)²
    c = x - mean(x)
    return gamma * c / (mean(c * c) + _eps(eps, x)) ** 2 + beta
unbiased(x, a_2, b_2, eps=1e-5) (two_pass), norm: the variance has the divisor d − 1, and ε is added outside the root
    return a_2 * (x - mean(x)) / (x.std(-1, ddof=1, keepdims=True) + _eps(eps, x)) + b_2
unbiased_inside (two_pass), norm: the variance has the divisor d − 1
    with np.errstate(all="ignore"):
        return weight * (x - mean(x)) / np.sqrt(x.var(-1, ddof=1, keepdims=True) + _eps(eps, x)) + bias
cancelling (two_pass), norm: the variance is computed as mean(x²) − mean(x)², which cancels where the mean is large
    m = mean(x)
    variance = np.maximum(mean(x * x) - m * m, 0)
    return (x - m) / np.sqrt(variance + _eps(eps, x)) * weight + bias
first_axis (two_pass), norm: mean and variance are taken over the first axis
    at precision="float64"
    mean(x) → mean(x, 0)
    mean(c * c) → mean(c * c, 0)
not_centred (two_pass), norm: the mean is not subtracted (as in RMSNorm)
    x - mean(x) → x
no_root (two_pass), norm: it divides by the variance, without the root
    at precision="float16"
    np.sqrt(mean(c * c) + _eps(eps, x)) → (mean(c * c) + _eps(eps, x))
other_eps(x, weight, bias) (two_pass), norm: ε is 1e-06, expected 1e-05
    c = x - mean(x)
    return c / np.sqrt(mean(c * c) + _eps(1e-6, x)) * weight + bias
bias_first (two_pass), norm: the gain multiplies the bias too
    c / np.sqrt(mean(c * c) + _eps(eps, x)) * weight + bias → (c / np.sqrt(mean(c * c) + _eps(eps, x)) + bias) * weight
rms_outside (rms), norm: ε is added to the root of the mean square, outside the root
    np.sqrt(mean(x * x) + _eps(eps, x)) → (np.sqrt(mean(x * x)) + _eps(eps, x))
rms_offset (rms), norm: the gain, stored as an offset from one, is used without the 1
    at spec=RMSNorm(eps=1e-6, one_plus=True)
    return rms(x, weight, eps)
rms_sum (rms), norm: the sum of the squares is taken in place of their mean
    mean(x * x) → (x * x).sum(-1, keepdims=True)
rms_centred (rms), norm: the mean is subtracted (as in LayerNorm)
    at precision="float64"
    c = x - mean(x)
    return c / np.sqrt(mean(c * c) + _eps(eps, x)) * weight
""",
)
