"""Normalisations over the last axis."""

from __future__ import annotations

from typing import Any

from symattn.arrays.namespace import namespace_of


def rms_norm(x: Any, eps: Any = 0) -> Any:
    """x / √(mean(x²) + ε). Source: Zhang, Sennrich, Root Mean Square Layer Normalization (2019), equation 4."""
    xp = namespace_of(x)
    return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps)


def centre(x: Any) -> Any:
    """x − mean(x)."""
    return x - namespace_of(x).mean(x, axis=-1, keepdims=True)


def layer_norm(x: Any, eps: Any = 0) -> Any:
    """(x − mean) / √(variance + ε), the variance with divisor d. Source: Ba, Kiros, Hinton (2016), equation 4."""
    return rms_norm(centre(x), eps)


def unit(x: Any) -> Any:
    """x / ‖x‖, for scores of normalised queries and keys. Source: Henry et al., QK-Normalization (2020), §3."""
    xp = namespace_of(x)
    return x / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
