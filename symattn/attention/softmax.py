"""Softmax over the keys, plain and stabilised, in powers of e or of two, and the logarithm of its sums."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.document.errors import InputError


def row_max(s: Array) -> Array:
    """m_i = max_j s_ij, and 0 for a row in which every key is forbidden. Shapes: (…, n_q, n_k) → (…, n_q, 1)."""
    xp = namespace_of(s)
    m = xp.max(s, axis=-1, keepdims=True)
    return xp.where(xp.isfinite(m), m, 0)


def powers(s: Array, base: int | None = None) -> Array:
    """e^s, or 2^s for the base 2; 0 where s is −∞."""
    xp = namespace_of(s)
    return xp.exp(s) if base is None else xp.exp2(s)


def logarithms(z: Array, base: int | None = None) -> Array:
    """log z, or log₂ z = log z / log 2 for the base 2."""
    xp = namespace_of(z)
    return xp.log(z) if base is None else xp.log(z) / xp.log(xp.asarray(2, dtype=z.dtype))


def powers_of_two(s: Array) -> Array:
    """e^s as kernels compute it, 2^{s log₂ e}. Source: Dao, FlashAttention-2 (2023), whose kernels scale by log₂ e."""
    xp = namespace_of(s)
    return xp.exp2(s / xp.log(xp.asarray(2, dtype=s.dtype)))


def exponentials(s: Array, stabilised: bool = True, base: int | None = None) -> Array:
    """e^{s_ij − m_i}, or e^{s_ij} if not ``stabilised``: the same weights, but these overflow for large scores."""
    return powers(s - row_max(s) if stabilised else s, base)


def nonempty(z: Array, fully_masked: str = "nan") -> Array:
    """The divisors z of rows, each 0 where every key of the row is forbidden.

    Such a row is to give 0/0 (``nan``), zeros (``zeros``: it is divided by 1), or raises InputError (``error``).
    """
    if fully_masked == "nan":
        return z
    xp = namespace_of(z)
    empty = z == 0
    if fully_masked == "error" and xp.any(empty):
        raise InputError("a row of scores is fully masked; hint: allow a key, or fully_masked='zeros'")
    return xp.where(empty, 1, z)


def normalise(e: Array, fully_masked: str = "nan") -> Array:
    """a_ij = e_ij / Σ_l e_il; what a row of zeros (every key forbidden) gives, ``nonempty`` says."""
    return e / nonempty(namespace_of(e).sum(e, axis=-1, keepdims=True), fully_masked)


def softmax(s: Array, stabilised: bool = True, fully_masked: str = "nan", base: int | None = None) -> Any:
    """a_ij = e^{s_ij} / Σ_l e^{s_il}, over the last axis; the maximum is subtracted first if ``stabilised``.

    With the base 2: 2^{s_ij} / Σ_l 2^{s_il}. Shapes: (…, n_k) → (…, n_k).
    Source: Bridle (1990); the shift: Blanchard, Higham, Higham (2021), §1.
    """
    return normalise(exponentials(s, stabilised, base), fully_masked)


def log_sum_exp(s: Array, masked: bool = True, base: int | None = None) -> Array:
    """L_i = log Σ_j e^{s_ij}, finite for finite scores of any size, so that softmax is e^{s_ij − L_i}.

    A row in which every key is forbidden has L_i = −∞; without such rows (not ``masked``) that is not looked for.
    With the base 2: log₂ Σ_j 2^{s_ij}. Shapes: (…, n_q, n_k) → (…, n_q, 1).
    Source: Blanchard, Higham, Higham, Accurately computing the log-sum-exp and softmax functions (2021), §1.
    """
    xp = namespace_of(s)
    m = row_max(s)
    z = xp.sum(powers(s - m, base), axis=-1, keepdims=True)
    finite = m + logarithms(nonempty(z, "zeros") if masked else z, base)
    return xp.where(z == 0, -xp.inf, finite) if masked else finite
