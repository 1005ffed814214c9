"""Numbers, rotary angles and terms of distance for ``by_loops``, one by one as mpmath numbers."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath

from symattn import (
    Alibi,
    Attention,
    Buckets,
    Disentangled,
    LinearScaling,
    LongRopeScaling,
    NTKScaling,
    ProportionalScaling,
    Shaw,
    TransformerXL,
    YarnScaling,
)

Rows = list[list[Any]]
Given = dict[str, Any]
NAN, INF, ZERO = mpmath.nan, mpmath.inf, mpmath.mpf(0)


class Degenerate(Exception):
    """A vector of zeros was to have the length 1."""


def num(x: Any) -> Any:
    """A number of a specification."""
    f = Fraction(x)
    return mpmath.mpf(f.numerator) / f.denominator


def dot(a: Any, b: Any) -> Any:
    assert len(a) == len(b)
    total = ZERO
    for x, y in zip(a, b, strict=True):
        total += x * y
    return total


def times(x: Rows, w: Rows, b: Any = None, start: int = 0, width: int | None = None) -> Rows:
    """x W + b, of the columns from ``start`` on, ``width`` of them."""
    stop = len(w[0]) if width is None else start + width
    return [[dot(row, [line[c] for line in w]) + (b[c] if b else 0) for c in range(start, stop)] for row in x]


def in_heads(x: Rows, w: Rows, heads: int, b: Any = None) -> list[Rows]:
    width = len(w[0]) // heads
    return [times(x, w, b, h * width, width) for h in range(heads)]


def over(x: Any, y: Any) -> Any:
    if y == 0:
        raise Degenerate
    return x / y


# -- Rotary angles one by one, as complex numbers that pairs of columns are multiplied by ------------------------------
def _num(x: Any) -> Any:
    f = Fraction(x)
    return mpmath.mpf(f.numerator) / f.denominator


def angles(spec: Attention, given: Any, n_q: int, n_k: int, columns: tuple[int, int]) -> tuple[Any, Any]:
    """For every query and for every key a list of complex numbers, one a pair."""
    asked: Any = spec.position
    if asked.given == "tables":
        keys = _joined(given["cos"], given["sin"])
        if "cos_q" in given:
            return _joined(given["cos_q"], given["sin_q"]), keys
        return _of_queries(spec, keys, n_q), keys
    places = _tokens(asked, given["positions"]) if asked.given else [asked.start + j for j in range(n_k)]
    keys = [_turns(asked, p, columns[1], n_k) for p in places]
    if "positions_q" in given:
        return [_turns(asked, p, columns[1], n_k) for p in _tokens(asked, given["positions_q"])], keys
    return _of_queries(spec, keys, n_q), keys


def _tokens(asked: Any, places: Any) -> Any:
    """The position of each token; with sections, one a row."""
    return list(zip(*places, strict=True)) if asked.sections else places


def _row(asked: Any, pair: int) -> int:
    """The row of a pair: the section that it lies in, or the next of all in turn as long as that has pairs left."""
    if asked.section_order == "blocks":
        row = 0
        while pair >= sum(asked.sections[: row + 1]):
            row += 1
        return row
    turn, row = divmod(pair, len(asked.sections))
    return row if turn < asked.sections[row] else 0


def _joined(cos: Any, sin: Any) -> Any:
    return [[mpmath.mpc(c, s) for c, s in zip(a, b, strict=True)] for a, b in zip(cos, sin, strict=True)]


def _of_queries(spec: Attention, keys: Any, n_q: int) -> Any:
    late = 0 if spec.alignment == "top-left" else len(keys) - n_q
    return [keys[late + i] for i in range(n_q)]


def _turns(asked: Any, place: Any, columns: int, n_k: int) -> list[Any]:
    if asked.triples:
        return [(mpmath.mpc(a, b) / c) ** place for a, b, c in asked.triples]
    width = asked.width or columns
    magnitude = _magnitude(asked.scaling)
    return [
        magnitude
        * mpmath.expj(
            (place[_row(asked, pair)] if asked.sections else place) * _frequency(asked, pair, width, n_k + asked.start)
        )
        for pair in range(width // 2)
    ]


def _frequency(asked: Any, pair: int, width: int, n: int) -> Any:
    wave = mpmath.power(_num(asked.base), -mpmath.mpf(2 * pair) / width)
    s = asked.scaling
    if isinstance(s, LinearScaling):
        return wave / _num(s.factor)
    if isinstance(s, NTKScaling):
        factor = _num(s.factor)
        if s.length is not None:
            factor = factor * n / s.length - (factor - 1) if n > s.length else mpmath.mpf(1)
        return wave * mpmath.power(factor, -mpmath.mpf(2 * pair) / (width - 2))
    if isinstance(s, ProportionalScaling):
        return wave if pair < int(Fraction(s.share) * (width // 2)) else mpmath.mpf(0)
    if isinstance(s, LongRopeScaling):
        return wave / _num((s.long if n > s.length else s.short)[pair])
    if isinstance(s, YarnScaling):
        share = max(mpmath.mpf(0), min(mpmath.mpf(1), _share(s, wave, pair, width, asked.base)))
        return ((1 - share) / _num(s.factor) + share) * wave
    return wave


def _share(s: YarnScaling, wave: Any, pair: int, width: int, base: Any) -> Any:
    """γ before it is cut to between 0 and 1."""
    slow, fast = _num(s.slow), _num(s.fast)
    if s.ramp == "turns":
        return (s.length * wave / (2 * mpmath.pi) - slow) / (fast - slow)
    first, last = (
        width * mpmath.log(s.length / (2 * mpmath.pi * t)) / (2 * mpmath.log(_num(base))) for t in (fast, slow)
    )
    if s.whole:
        first, last = mpmath.floor(first), mpmath.ceil(last)
    first, last = max(first, mpmath.mpf(0)), min(last, mpmath.mpf(width - 1))
    if s.whole and first == last:
        last += mpmath.mpf(1) / 1000
    return 1 - (pair - first) / (last - first)


def _magnitude(s: Any) -> Any:
    if isinstance(s, YarnScaling):
        return _mscale(s, s.weight) / (_mscale(s, s.shared) if s.shared else 1)
    if isinstance(s, LongRopeScaling) and Fraction(s.factor) > 1:
        return mpmath.sqrt(1 + mpmath.log(_num(s.factor)) / mpmath.log(s.length))
    return mpmath.mpf(1)


def _mscale(s: YarnScaling, weight: Any) -> Any:
    return 1 + _num(weight) * mpmath.log(_num(s.factor)) / 10 if Fraction(s.factor) > 1 else mpmath.mpf(1)


# -- Terms of the scores by distance, and how distances are counted in buckets, for ``by_loops`` -----------------------
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
