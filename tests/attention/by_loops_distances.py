"""Terms of the scores by distance, and how distances are counted in buckets, for ``by_loops``."""

from collections.abc import Callable
from typing import Any

import mpmath

from symattn.attention.positions.position_fields import Alibi, Buckets, Disentangled, Shaw, TransformerXL
from symattn.attention.spec import Attention
from tests.attention.by_loops_numbers import ZERO, Given, dot, in_heads

Extra = Callable[[int, int, Any, Any], tuple[Any, Any]]


def clip(x: int, low: int, high: int) -> int:
    return max(low, min(high, x))


def distances(spec: Attention, given: Given, head: int, n_q: int, n_k: int) -> Extra:
    asked = spec.position
    late = 0 if spec.alignment == "top-left" else n_k - n_q
    if isinstance(asked, Alibi):
        m = given["slopes"] if "slopes" in given else mpmath.power(2, -slope_exponent(spec.heads, head))
        if asked.two_sided:
            return lambda i, j, q, k: (0, -m * abs(i + late - j))
        return lambda i, j, q, k: (0, -m * (i + late - j))
    if isinstance(asked, Buckets):
        return lambda i, j, q, k: (0, given["b_rel"][t5(asked, j - i - late)][head])
    if isinstance(asked, Shaw):
        n = asked.most
        return lambda i, j, q, k: (dot(q, given["a_k"][clip(j - i - late, -n, n) + n]), 0)
    if isinstance(asked, TransformerXL):
        r, u, w = in_heads(given["r"], given["w_r"], spec.heads)[head], given["b_u"], given["b_w"]

        def xl(i: int, j: int, q: Any, k: Any) -> tuple[Any, Any]:
            with_place = [a + b for a, b in zip(q, w, strict=True)]
            return dot(u, k) + dot(with_place, r[n_k - 1 - (i + late - j)]), 0

        return xl
    if isinstance(asked, Disentangled):
        return disentangled(spec, asked, given, head, late)
    return lambda i, j, q, k: (0, 0)


def disentangled(spec: Attention, asked: Disentangled, given: Given, head: int, late: int) -> Extra:
    p, n = given["p"], spec.heads
    keys = in_heads(p, given["w_pk"], n, given.get("b_pk"))[head] if asked.to_position else None
    queries = in_heads(p, given["w_pq"], n, given.get("b_pq"))[head] if asked.to_content else None

    def place(behind: int) -> int:
        if asked.max_distance is not None:
            behind = logarithmic(behind, asked.span, asked.max_distance)
        return clip(behind, -asked.span, asked.span - 1) + asked.span

    def terms(i: int, j: int, q: Any, k: Any) -> tuple[Any, Any]:
        behind = i + late - j
        s = dot(q, keys[place(behind)]) if keys else ZERO
        s += dot(k, queries[place(-behind if asked.backwards else behind)]) if queries else 0
        return s, 0

    return terms


def slope_exponent(heads: int, head: int) -> Any:
    """8 (t + 1) / h; for other numbers of heads than powers of two those of the power below, then every second of
    those of the power above."""
    power = 1
    while power * 2 <= heads:
        power *= 2
    if head < power:
        return mpmath.mpf(8) * (head + 1) / power
    return mpmath.mpf(8) * (2 * (head - power) + 1) / (2 * power)


def t5(asked: Buckets, ahead: int) -> int:
    size = asked.number // 2 if asked.bidirectional else asked.number
    side = size if asked.bidirectional and ahead > 0 else 0
    distance = abs(ahead) if asked.bidirectional else max(0, -ahead)
    small = size // 2
    if distance < small:
        return side + distance
    if small == 0:
        return side + (1 if distance else 0) if size > 1 else side
    step = (
        (size - small) * mpmath.log(mpmath.mpf(distance) / small) / mpmath.log(mpmath.mpf(asked.max_distance) / small)
    )
    return side + min(size - 1, small + int(mpmath.floor(step + mpmath.mpf(10) ** -30)))


def logarithmic(behind: int, buckets: int, most: int) -> int:
    m = buckets // 2
    if abs(behind) <= m:
        return behind
    step = (m - 1) * mpmath.log(mpmath.mpf(abs(behind)) / m) / mpmath.log(mpmath.mpf(most - 1) / m)
    return (1 if behind > 0 else -1) * (m + int(mpmath.ceil(step - mpmath.mpf(10) ** -30)))
