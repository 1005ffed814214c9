"""Normalisations over the last axis."""

from __future__ import annotations

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of


def rms_norm(
    x: Array, eps: object = 0, gain: Array | None = None, bias: Array | None = None
) -> Array:
    """g ⊙ x / √(mean(x²) + ε) + b; without a gain g = 1, without a bias b = 0.

    Shapes: x (…, d), gain and bias (d,) → (…, d). Source: Zhang, Sennrich, Root Mean Square Layer Normalization (2019),
    equation 4, where ε and b are 0.
    """
    xp = namespace_of(x)
    normed = x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + xp.asarray(eps, dtype=x.dtype))
    result = normed if gain is None else normed * gain
    return result if bias is None else result + bias


def centre(x: Array) -> Array:
    """x − mean(x)."""
    return x - namespace_of(x).mean(x, axis=-1, keepdims=True)


def layer_norm(
    x: Array, eps: object = 0, gain: Array | None = None, bias: Array | None = None
) -> Array:
    """g ⊙ (x − mean(x)) / √(variance + ε) + b, the variance with divisor d; without a gain g = 1, without a bias b = 0.

    Shapes: x (…, d), gain and bias (d,) → (…, d). Source: Ba, Kiros, Hinton, Layer Normalization (2016), equations 3
    and 4, where ε is 0.
    """
    return rms_norm(centre(x), eps, gain, bias)


def unit(x: Array, eps: object = 0) -> Array:
    """x / √(‖x‖² + ε), for scores of normalised queries and keys.

    Sources: Henry et al., QK-Normalization (2020), §3, where ε is 0; for keys of recurrences, Yang et al.,
    Parallelizing Linear Transformers with the Delta Rule over Sequence Length (2024), §3.3.
    """
    xp = namespace_of(x)
    square = xp.sum(x * x, axis=-1, keepdims=True)
    return x / xp.sqrt(square + xp.asarray(eps, dtype=x.dtype) if eps else square)


def write_norm(kind: str, x: str, gain: str = "", bias: str = "") -> str:
    """Return the formula of a ``layer`` or ``rms`` norm of x, with gain and bias if there are any."""
    rows = (
        f"{{{x} − mean({x})}}/√{{var({x}) + ε}}" if kind == "layer" else f"{x}/√{{mean({x}²) + ε}}"
    )
    scaled = f"{gain} ⊙ {{{rows}}}" if gain else rows
    return f"{scaled} + {bias}" if bias else scaled
