"""Attention by loops over plain numbers: a second computation that knows nothing of arrays. mpmath, 50 digits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath

Rows = Sequence[Sequence[Any]]
Undefined = None


def attend(
    q: Rows,
    k: Rows,
    v: Rows,
    may: Callable[[int, int], bool],
    add: Callable[[int, int], float],
    factor: Any,
    empty: str,
) -> list[list[Any]]:
    """Σ_j p_ij v_j, p_ij = e^{s_ij} / Σ_l e^{s_il} over the keys that i may see, s_ij = factor q_i·k_j + add(i, j)."""
    return [_row(i, q[i], k, v, may, add, factor, empty) for i in range(len(q))]


def _row(i: int, q: Any, k: Rows, v: Rows, may: Any, add: Any, factor: Any, empty: str) -> list[Any]:
    powers: dict[int, Any] = {}
    for j in range(len(k)):
        extra = add(i, j)
        if may(i, j) and extra != -math.inf:
            dot = mpmath.fdot((mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(q, k[j], strict=True))
            powers[j] = mpmath.exp(factor * dot + mpmath.mpf(extra))
    if not powers:
        return [mpmath.mpf(0) if empty == "zeros" else Undefined] * len(v[0])
    z = sum(powers.values())
    return [sum(p * mpmath.mpf(v[j][c]) for j, p in powers.items()) / z for c in range(len(v[0]))]
