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


def folded(x, gamma, beta, epsilon):
    m = mean(x)
    inverse = _eps(1, x) / np.sqrt(mean((x - m) ** 2) + _eps(epsilon, x))
    return (x * inverse + -m * inverse) * gamma + beta


def from_the_end(x, weight, bias):
    total = np.zeros_like(x[..., :1])
    for k in reversed(range(x.shape[-1])):
        total = total + x[..., k : k + 1]
    c = x - total / _eps(x.shape[-1], x)
    return weight * (c * (_eps(1, x) / np.sqrt(mean(c * c) + _eps(1e-5, x)))) + bias


def rms_gain_first(x, g, eps):
    return x * (g / np.sqrt(mean(x * x) + _eps(eps, x)))


_LAYER, _RMS = LayerNorm(eps=1e-5), RMSNorm(eps=1e-6)
RIGHT = (
    Program("two passes", two_pass, _LAYER),
    Program("folded", folded, _LAYER),
    Program("from the end", from_the_end, _LAYER),
    Program("rms gain first", rms_gain_first, _RMS),
)
WRONG = wrong(
    globals(),
    RIGHT,
    """
unbiased(x, a_2, b_2, eps=1e-5) (two_pass), norm: the variance has the divisor d − 1, and ε is added outside the root
    return a_2 * (x - mean(x)) / (x.std(-1, ddof=1, keepdims=True) + _eps(eps, x)) + b_2
not_centred (two_pass), norm: the mean is not subtracted (as in RMSNorm)
    x - mean(x) → x
""",
)
