"""Equal ways of computing norms: from two passes, or from numbers that grow one by one."""

from __future__ import annotations

from functools import partial
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.norms import centre
from symattn.verification.definitions.subject import Compute


def gain_of(spec: Any, gain: Any) -> Any:
    """What a stored gain multiplies by."""
    return 1 + gain if spec.one_plus and gain is not None else gain


def layer_ways(spec: Any) -> tuple[Compute, ...]:
    """Centred; as x r − m r with r = 1/σ; and with mean and variance that grow number by number."""
    return spec, partial(by, spec, two_pass, folded), partial(by, spec, welford, folded)


def rms_ways(spec: Any) -> tuple[Compute, ...]:
    return spec, partial(by, spec, mean_square, folded)


def by(spec: Any, moments: Any, normed: Any, x: Any, gain: Any = None, bias: Any = None) -> Any:
    """γ ⊙ normed + β, from the mean and the variance."""
    mean, variance = moments(x)
    return affine(normed(x, mean, root_of(variance, spec.eps)), gain_of(spec, gain), bias)


def affine(y: Any, gain: Any, bias: Any) -> Any:
    y = y if gain is None else y * gain
    return y if bias is None else y + bias


def root_of(variance: Any, eps: Any) -> Any:
    xp = namespace_of(variance)
    return xp.sqrt(variance + xp.asarray(eps, dtype=variance.dtype))


def mean_of(x: Any, axis: Any = -1) -> Any:
    return namespace_of(x).mean(x, axis=axis, keepdims=True)


def centred(x: Any, mean: Any, root: Any) -> Any:
    return (x if mean is None else x - mean) / root


def folded(x: Any, mean: Any, root: Any) -> Any:
    """x r + (−m r). Its errors grow with the mean, as those of the mean itself do."""
    inverse = _named(1 / root)
    return x * inverse if mean is None else x * inverse + (-mean * inverse)


def two_pass(x: Any) -> tuple[Any, Any]:
    centred = centre(x)
    return mean_of(x), mean_of(centred * centred)


def mean_square(x: Any) -> tuple[Any, Any]:
    return None, mean_of(x * x)


def welford(x: Any) -> tuple[Any, Any]:
    """m_k = m_{k−1} + (x_k − m_{k−1})/k, s_k = s_{k−1} + (x_k − m_{k−1})(x_k − m_k).

    Source: Welford, Note on a Method for Calculating Corrected Sums of Squares and Products (1962).
    """
    mean = x[..., :1]
    total = 0 * mean
    for k in range(1, int(x.shape[-1])):
        column = x[..., k : k + 1]
        before = column - mean
        mean = _named(mean + before / (k + 1))
        total = total + before * (column - mean)
    return mean, total / int(x.shape[-1])


def _named(column: Any) -> Any:
    """The same numbers, as sums of one: the kind ``rounded`` then knows that all who read one have its error in common.

    Without that, what is subtracted again would count twice.
    """
    return namespace_of(column).sum(column, axis=-1, keepdims=True)
