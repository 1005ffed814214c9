"""Attention of one head with positions, written out over nested lists of mpmath numbers. It knows nothing of arrays."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath

from symattn import Attention
from symattn.attention.positions.fields import Alibi, Buckets, Disentangled, Rotary, Shaw, TransformerXL

Term = Callable[[int, int], Any]
Given = dict[str, Any]


def dot(a: Any, b: Any) -> Any:
    return mpmath.fdot(zip(a, b, strict=True))


def plus(a: Any, b: Any) -> list[Any]:
    return [x + y for x, y in zip(a, b, strict=True)]


def head_of(x: Any, w: Any, head: int, heads: int, b: Any = None) -> list[list[Any]]:
    """x W + b, the columns of one head of it."""
    width = len(w[0]) // heads
    mine = range(head * width, (head + 1) * width)
    return [[dot(row, [line[c] for line in w]) + (b[c] if b else 0) for c in mine] for row in x]


def attended(spec: Attention, given: Given, head: int) -> list[list[Any]]:
    """Σ_j a_ij (v_j + c_ij) with a_i the softmax of the scores of the keys that are seen."""
    v, n_q = given["v"], len(given["q"])
    offset = 0 if spec.alignment == "top-left" else len(v) - n_q
    score, value = SCORES[type(spec.position)](spec, given, head, offset)
    out = []
    for i in range(n_q):
        keys = [j for j in range(len(v)) if not spec.causal or j <= i + offset]
        weights = [mpmath.exp(score(i, j)) for j in keys]
        rows = [plus(v[j], value(i, j)) if value else v[j] for j in keys]
        columns = zip(*rows, strict=True)
        out.append([dot(weights, column) / mpmath.fsum(weights) for column in columns])
    return out


def scale_of(spec: Attention, given: Given, terms: int = 1) -> Any:
    if spec.scale is None:
        return 1 / mpmath.sqrt(terms * len(given["q"][0]))
    c = Fraction(spec.scale)
    return mpmath.mpf(c.numerator) / c.denominator


def rotated(x: Any, angles: Any, layout: str) -> list[Any]:
    """The pairs of a row as complex numbers, each times e^{iθ}; ``angles`` are those factors."""
    out = list(x)
    f = len(angles)
    for pair, z in enumerate(angles):
        a, b = (pair, pair + f) if layout == "half" else (2 * pair, 2 * pair + 1)
        w = mpmath.mpc(x[a], x[b]) * z
        out[a], out[b] = w.real, w.imag
    return out


def rotary(spec: Attention, given: Given, head: int, offset: int) -> tuple[Term, None]:
    """``angles`` (and ``angles_q``) are given, or powers of triples."""
    asked, scale = spec.position, scale_of(spec, given)
    if asked.triples:
        places = range(asked.start, asked.start + len(given["k"]))
        powers = [[(mpmath.mpc(a, b) / c) ** p for a, b, c in asked.triples] for p in places]
    else:
        powers = given["angles"]
    last = given.get("angles_q") or powers[offset : offset + len(given["q"])]
    q = [rotated(x, z, asked.layout) for x, z in zip(given["q"], last, strict=True)]
    k = [rotated(x, z, asked.layout) for x, z in zip(given["k"], powers, strict=True)]
    return lambda i, j: dot(q[i], k[j]) * scale, None


def alibi(spec: Attention, given: Given, head: int, offset: int) -> tuple[Term, None]:
    """Slopes of a power of two of heads, or given."""
    scale = scale_of(spec, given)
    slope = given["slopes"][head] if "slopes" in given else mpmath.mpf(2) ** (-mpmath.mpf(8) * (head + 1) / spec.heads)

    def score(i: int, j: int) -> Any:
        distance = i + offset - j
        return dot(given["q"][i], given["k"][j]) * scale - slope * (
            abs(distance) if spec.position.two_sided else distance
        )

    return score, None


def bucket(ahead: int, buckets: int, most: int, both: bool) -> int:
    """By logarithms of many digits, none of which is a whole number here but 0."""
    half = buckets // 2 if both else buckets
    distance = abs(ahead) if both else max(-ahead, 0)
    m, side = half // 2, half if both and ahead > 0 else 0
    if distance < m:
        return side + distance
    place = (half - m) * mpmath.log(mpmath.mpf(distance) / m) / mpmath.log(mpmath.mpf(most) / m)
    return side + min(half - 1, m + int(mpmath.floor(place)))


def bucketed(spec: Attention, given: Given, head: int, offset: int) -> tuple[Term, None]:
    asked, scale = spec.position, scale_of(spec, given)

    def score(i: int, j: int) -> Any:
        place = bucket(j - i - offset, asked.number, asked.max_distance, asked.bidirectional)
        return dot(given["q"][i], given["k"][j]) * scale + given["b_rel"][place][head]

    return score, None


def shaw(spec: Attention, given: Given, head: int, offset: int) -> tuple[Term, Term | None]:
    most, scale = spec.position.most, scale_of(spec, given)

    def place(i: int, j: int) -> int:
        return max(-most, min(most, j - i - offset)) + most

    def score(i: int, j: int) -> Any:
        return dot(given["q"][i], plus(given["k"][j], given["a_k"][place(i, j)])) * scale

    return score, (lambda i, j: given["a_v"][place(i, j)]) if spec.position.values else None


def transformer_xl(spec: Attention, given: Given, head: int, offset: int) -> tuple[Term, None]:
    scale, n_k = scale_of(spec, given), len(given["k"])
    r = head_of(given["r"], given["w_r"], head, spec.heads)
    u, w = given["b_u"][head], given["b_w"][head]

    def score(i: int, j: int) -> Any:
        q = given["q"][i]
        return (dot(plus(q, u), given["k"][j]) + dot(plus(q, w), r[n_k - 1 - (i + offset - j)])) * scale

    return score, None


def logarithmic(behind: int, buckets: int, most: int) -> int:
    m = buckets // 2
    if abs(behind) <= m:
        return behind
    place = (m - 1) * mpmath.log(mpmath.mpf(abs(behind)) / m) / mpmath.log(mpmath.mpf(most - 1) / m)
    return (1 if behind > 0 else -1) * (m + int(mpmath.ceil(place)))


def disentangled(spec: Attention, given: Given, head: int, offset: int) -> tuple[Term, None]:
    asked, q, k = spec.position, given["q"], given["k"]
    scale = scale_of(spec, given, 1 + asked.to_position + asked.to_content)
    keys = head_of(given["p"], given["w_pk"], head, spec.heads) if asked.to_position else None
    queries = head_of(given["p"], given["w_pq"], head, spec.heads, given["b_pq"]) if asked.to_content else None

    def place(behind: int) -> int:
        d = behind if asked.max_distance is None else logarithmic(behind, asked.span, asked.max_distance)
        return max(0, min(2 * asked.span - 1, d + asked.span))

    def score(i: int, j: int) -> Any:
        behind = i + offset - j
        s = dot(q[i], k[j])
        s += dot(q[i], keys[place(behind)]) if keys else 0
        s += dot(k[j], queries[place(-behind if asked.backwards else behind)]) if queries else 0
        return s * scale

    return score, None


SCORES: dict[type, Callable[..., tuple[Term, Term | None]]] = {
    Rotary: rotary,
    Alibi: alibi,
    Buckets: bucketed,
    Shaw: shaw,
    TransformerXL: transformer_xl,
    Disentangled: disentangled,
}
