"""The forms in which norms are computed, equal in exact numbers, each with a bound of its own.

What each form says in its docstring is run on the kind ``rounded``, which proves the bound (``arrays.rounded``): there
every operation of the form is rounded once, or not at all, a quotient is one operation or a product with a reciprocal
(R3), sums are taken in any order (R2), and errors that several numbers have in common are counted once, by ``_named``.
The bounds of the forms are those of functions, not of one another: an output is legal if one of them allows it.

E x² − (E x)² is none of them: its error is that of E x², which exceeds the variance without limit where the mean is
large. It is looked for by name among the known mistakes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.norms import centre
from symattn.verification.definitions.subject import Compute, DefinitionForm
from symattn.verification.rules.norms import affine


def gain_of(spec: Any, gain: Any) -> Any:
    """Return the factor that a stored gain stands for."""
    return 1 + gain if spec.one_plus and gain is not None else gain


def layer_ways(spec: Any) -> tuple[Compute, ...]:
    """The forms of LayerNorm: r is 1/σ, m the mean."""
    return (
        DefinitionForm("(x − m)/σ · g + b", spec),
        DefinitionForm("(x r − m r) g + b", partial(by, spec, two_pass, folded)),
        DefinitionForm("the same, m and σ growing number by number", partial(by, spec, welford, folded)),
        DefinitionForm("x s + (b − m s), s = g r", partial(affine_folded, spec, two_pass)),
        DefinitionForm(
            "(x − m)/σ stored as the inputs are, then · g + b in their format", partial(stored, spec, two_pass)
        ),
    )


def rms_ways(spec: Any) -> tuple[Compute, ...]:
    """The forms of RMSNorm: r is 1/√(mean(x²) + ε)."""
    return (
        DefinitionForm("x/√(mean(x²) + ε) · g + b", spec),
        DefinitionForm("x r · g + b", partial(by, spec, mean_square, folded)),
        DefinitionForm("x s + b, s = g r", partial(affine_folded, spec, mean_square)),
        DefinitionForm(
            "x r stored as the inputs are, then · g + b in their format", partial(stored, spec, mean_square)
        ),
    )


def by(spec: Any, moments: Any, normed: Any, x: Any, gain: Any = None, bias: Any = None) -> Any:
    """γ ⊙ normed + β, from the mean and the variance."""
    mean, variance = moments(x)
    return affine(normed(x, mean, root_of(variance, spec.eps)), gain_of(spec, gain), bias)


def affine_folded(spec: Any, moments: Callable[[Any], Any], x: Any, gain: Any = None, bias: Any = None) -> Any:
    """x s + (b − m s) with s = g r, r = 1/√(v + ε): as (x − m) r g + b, since s is the same number in both places.

    Each of the four operations that read x is rounded: so the error grows with |x s| + |m s| + |b|, not with the
    output. The error of s is one number for both, and leaves (x − m) s off by its relative size alone.
    """
    mean, variance = moments(x)
    inverse, scale = _named(1 / root_of(variance, spec.eps)), gain_of(spec, gain)
    s = inverse if scale is None else _named(inverse * scale)
    if mean is None:
        return affine(x * s, None, bias)
    shift = -mean * s
    return x * s + (shift if bias is None else bias + shift)


def root_of(variance: Any, eps: Any) -> Any:
    xp = namespace_of(variance)
    return xp.sqrt(variance + xp.asarray(eps, dtype=variance.dtype))


def mean_of(x: Array, axis: Any = -1) -> Array:
    return namespace_of(x).mean(x, axis=axis, keepdims=True)


def centred(x: Any, mean: Any, root: Any) -> Any:
    return (x if mean is None else x - mean) / root


def folded(x: Any, mean: Any, root: Any) -> Any:
    """x r + (−m r). Its errors grow with the mean, as those of the mean itself do."""
    inverse = _named(1 / root)
    return x * inverse if mean is None else x * inverse + (-mean * inverse)


def stored(spec: Any, moments: Callable[[Any], Any], x: Any, gain: Any = None, bias: Any = None) -> Any:
    """Round the normalised x to the format of the inputs; then gain and bias, each with a rounding to it.

    So do Llama's norms, which compute in float32 and multiply by the gain in bfloat16. Where the arithmetic is that of
    the inputs, or every array may be stored in it (``eager``), that is no form of its own.
    """
    mean, variance = moments(x)
    y, scale = _stored(centred(x, mean, root_of(variance, spec.eps))), gain_of(spec, gain)
    y = y if scale is None else y * (scale if scale is gain else _stored(scale))
    return y if bias is None else _stored(y) + bias


def _stored(a: Any) -> Any:
    """Return the same numbers; on ``rounded`` as the inputs' format holds them."""
    return a.as_input() if hasattr(a, "as_input") else a


def two_pass(x: Any) -> tuple[Any, Any]:
    centred = centre(x)
    return mean_of(x), mean_of(centred * centred)


def mean_square(x: Any) -> tuple[Any, Any]:
    return None, mean_of(x * x)


def welford(x: Array) -> tuple[Any, Any]:
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


def _named(a: Any) -> Array:
    """Return the same numbers as sums of one, whose error ``rounded`` then knows to be common to all readers.

    Without that, what is subtracted again would count twice.
    """
    xp = namespace_of(a)
    return xp.sum(xp.expand_dims(a, axis=-1), axis=-1)
