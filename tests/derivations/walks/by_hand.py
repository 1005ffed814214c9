"""Attention by loops over fractions and floats, from papers and not from the package: what examples must come to."""

import math
from collections.abc import Sequence
from fractions import Fraction

Row = list[Fraction]
Rows = list[Row]


def fractions(entries: object) -> list:
    """Nested lists of a sheet as fractions."""
    return [fractions(x) for x in entries] if isinstance(entries, list) else Fraction(str(entries))


def dot(xs: Sequence[Fraction], ys: Sequence[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(xs, ys, strict=True)), Fraction(0))


def times(rows: Rows, matrix: Rows) -> Rows:
    return [[dot(row, [line[c] for line in matrix]) for c in range(len(matrix[0]))] for row in rows]


def rotated(row: Row, triples: Sequence[tuple[int, int, int]], place: int) -> Row:
    """The pairs (l, l + r/2) of the first r columns as complex numbers, times ((a + bi)/c)^place."""
    out, pairs = list(row), len(triples)
    for column, (a, b, c) in enumerate(triples):
        x, y = row[column], row[column + pairs]
        for _ in range(place):
            x, y = (x * a - y * b) / c, (x * b + y * a) / c
        out[column], out[column + pairs] = x, y
    return out


def softmax(scores: Sequence[float | Fraction | None], extra: float | None = None) -> list[float]:
    """Weights in doubles, 0 for None; with a sink's logit."""
    seen = [float(s) for s in scores if s is not None] + ([extra] if extra is not None else [])
    top = max(seen)
    total = math.fsum(math.exp(s - top) for s in seen)
    return [0.0 if s is None else math.exp(float(s) - top) / total for s in scores]


def mixed(weights: Sequence[float], values: Rows) -> list[float]:
    return [math.fsum(w * float(v[c]) for w, v in zip(weights, values, strict=True)) for c in range(len(values[0]))]


def close(found: Sequence, wanted: Sequence, within: float = 1e-12) -> bool:
    """Whether nested lists of numbers agree."""
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(close(x, y, within) for x, y in zip(found, wanted, strict=True))
    return abs(float(found) - float(wanted)) <= within * max(1.0, abs(float(wanted)))


def sparsest(scores: Sequence[Fraction]) -> Row:
    """The point of the simplex that is nearest to the scores: by trying every set of keys that gets something."""
    best: tuple[Fraction, Row] | None = None
    for bits in range(1, 2 ** len(scores)):
        kept = [j for j in range(len(scores)) if bits >> j & 1]
        shift = (sum((scores[j] for j in kept), Fraction(0)) - 1) / len(kept)
        point = [scores[j] - shift if j in kept else Fraction(0) for j in range(len(scores))]
        if min(point) < 0:
            continue
        far = sum(((p - s) ** 2 for p, s in zip(point, scores, strict=True)), Fraction(0))
        if best is None or far < best[0]:
            best = far, point
    assert best is not None
    return best[1]


def t5_bucket(distance: int, buckets: int, most: int) -> int:
    """The bucket of key minus query, in two directions, with logarithms as the paper's code has them."""
    half = buckets // 2
    start, a = (half, distance) if distance > 0 else (0, -distance)
    few = half // 2
    if a < few:
        return start + a
    far = few + int(math.log(a / few) / math.log(most / few) * (half - few) + 1e-9)
    return start + min(far, half - 1)
