"""Softmax over the keys, plain and stabilised."""

from __future__ import annotations

from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.errors import InputError


def row_max(s: Any) -> Any:
    """m_i = max_j s_ij, and 0 for a row in which every key is forbidden. Shapes: (…, n_q, n_k) → (…, n_q, 1)."""
    xp = namespace_of(s)
    m = xp.max(s, axis=-1, keepdims=True)
    return xp.where(xp.isfinite(m), m, 0)


def exponentials(s: Any, stabilised: bool = True) -> Any:
    """e^{s_ij − m_i}, or e^{s_ij} if not ``stabilised``: the same weights, but these overflow for large scores."""
    return namespace_of(s).exp(s - row_max(s) if stabilised else s)


def normalise(e: Any, fully_masked: str = "nan") -> Any:
    """a_ij = e_ij / Σ_l e_il.

    A row of zeros (every key forbidden) gives 0/0 (``nan``), zeros (``zeros``), or raises InputError (``error``).
    """
    xp = namespace_of(e)
    z = xp.sum(e, axis=-1, keepdims=True)
    if fully_masked == "nan":
        return e / z
    empty = z == 0
    if fully_masked == "error" and xp.any(empty):
        raise InputError("a row of scores is fully masked; mend: allow a key, or fully_masked='zeros'")
    return e / xp.where(empty, 1, z)


def softmax(s: Any, stabilised: bool = True, fully_masked: str = "nan") -> Any:
    """a_ij = e^{s_ij} / Σ_l e^{s_il}, over the last axis; the maximum is subtracted first if ``stabilised``.

    Shapes: (…, n_k) → (…, n_k). Source: Bridle (1990); the shift: Blanchard, Higham, Higham (2021), §1.
    """
    return normalise(exponentials(s, stabilised), fully_masked)
