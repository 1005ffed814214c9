"""Textbook entries of positions: rotations pair by pair, terms of scores and values by distance."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.attention.positions.fields import Alibi, Buckets, Disentangled, Rotary, Shaw
from symattn.derivations.attention.place import Entry, Front, Index, NoTextbook, Place, part


# -- queries and keys rotated ------------------------------------------------------------------------------------------
def _table(place: Place, index: Index) -> Any:
    """cos or sin of p θ_l: of triples by multiplying complex numbers, else of frequencies θ^(−2l/r)."""
    asked, function = place.spec.position, place.step.name[:3]
    assert isinstance(asked, Rotary)
    *front, i, pair = index
    if asked.scaling is not None:
        raise NoTextbook(f"{function} of frequencies that are stretched")
    position = i + asked.start
    if len(place.step.of) > 1:
        position = int(part(place.of(1), tuple(front), 1)[i])
    if asked.triples is not None:
        return place.number(_turns(asked.triples[pair], position)[function == "sin"])
    width = asked.width or place.of(0).shape[-1]
    frequency = place.algebra.power(Fraction(asked.base), Fraction(-2 * pair, width))
    return place.algebra.apply(function, frequency * place.number(position))


def _turns(triple: tuple[int, int, int], times: int) -> tuple[Fraction, Fraction]:
    """Real and imaginary part of ((a + bi)/c)^times."""
    a, b, c = triple
    x, y = Fraction(1), Fraction(0)
    for _ in range(abs(times)):
        x, y = (x * a - y * b) / c, (x * b + y * a) / c
    return (x, y) if times >= 0 else (x, -y)


def _rotated(place: Place, index: Index) -> Any:
    """a cos − b sin and b cos + a sin of each pair of columns (a, b); the columns beyond the pairs as they are."""
    asked = place.spec.position
    assert isinstance(asked, Rotary)
    *front, i, column = index
    x = place.of(0)[index[:-1]]
    tables = [part(place.of(n), place.split(tuple(front))[0], 2) for n in (1, 2)]
    pairs = tables[0].shape[-1]
    if column >= 2 * pairs:
        return x[column]
    first = column < pairs if asked.layout == "half" else column % 2 == 0
    pair = column % pairs if asked.layout == "half" else column // 2
    other = (pair + pairs if first else pair) if asked.layout == "half" else column ^ 1
    row = _row_of_query(place, i, tables[0].shape[0]) if place.step.name[0] == "q" else i
    cos, sin = (table[row, pair] for table in tables)
    return x[column] * cos - x[other] * sin if first else x[column] * cos + x[other] * sin


def _row_of_query(place: Place, i: int, rows: int) -> int:
    """The row of a table of the keys for query i: the last query has the last one, or the first the first one."""
    own = place.step.of[1].endswith("_q")
    return i if own or place.spec.alignment == "top-left" else rows - place.shape[-2] + i


# -- terms by distance -------------------------------------------------------------------------------------------------
def _ahead(place: Place, i: int, j: int, sizes: tuple[int, ...]) -> int:
    """j − i, both counted so that the last ones stand together, or the first ones."""
    n_q, n_k = sizes[-2:]
    return j - i - (n_k - n_q if place.spec.alignment == "bottom-right" else 0)


def _positioned(place: Place, index: Index) -> Any:
    *front, i, j = index
    asked, score = place.spec.position, place.of(0)[index]
    ahead = _ahead(place, i, j, place.shape)
    _, head = place.split(tuple(front))
    if isinstance(asked, Alibi):
        distance = abs(ahead) if asked.two_sided else -ahead
        return score - place.of(1)[head] * place.number(distance)
    if isinstance(asked, Buckets):
        return score + place.of(1)[_bucket(asked, ahead), head]
    if isinstance(asked, Shaw):
        return score + place.dot(place.of(1)[(*front, i)], place.of(2)[_clipped(ahead, asked.most)])
    if isinstance(asked, Disentangled):
        return score + _disentangled(place, asked, index, ahead)
    return _transformer_xl(place, index, ahead)


def _clipped(ahead: int, most: int) -> int:
    return max(-most, min(most, ahead)) + most


def _transformer_xl(place: Place, index: Index, ahead: int) -> Any:
    """s_ij + u·k_j + (q_i + w)·r, the row of r for the distance i − j; rows go from far to near."""
    *front, i, j = index
    _, head = place.split(tuple(front))
    q, k = place.of(1)[(*front, i)], part(place.of(2), tuple(front), 2)[j]
    rows = part(place.of(3), (head,) if place.spec.heads > 1 else (), 2)
    u, w = place.of(4)[head], place.of(5)[head]
    row = rows[min(ahead + place.shape[-1] - 1, len(rows) - 1)]
    return place.of(0)[index] + place.dot(u, k) + place.dot([a + b for a, b in zip(q, w, strict=True)], row)


def _disentangled(place: Place, asked: Disentangled, index: Index, ahead: int) -> Any:
    """q_i · P_δ(i,j) and k_j · P_δ(j,i), of which each may be left out."""
    *front, i, j = index
    _, head = place.split(tuple(front))
    at = (head,) if place.spec.heads > 1 else ()
    rest = list(place.step.of[1:])
    terms = []
    if asked.to_position:
        q, table = (place.arrays[rest.pop(0)] for _ in range(2))
        terms.append(place.dot(q[(*front, i)], part(table, at, 2)[_spanned(asked, -ahead)]))
    if asked.to_content:
        k, table = (place.arrays[rest.pop(0)] for _ in range(2))
        distance = ahead if asked.backwards else -ahead
        terms.append(place.dot(part(k, tuple(front), 2)[j], part(table, at, 2)[_spanned(asked, distance)]))
    return place.sum(terms)


def _spanned(asked: Disentangled, distance: int) -> int:
    """The row of a distance, or of its bucket: from −k to k − 1."""
    if asked.max_distance is not None and abs(distance) > asked.span // 2:
        m, most, size = asked.span // 2, asked.max_distance - 1, abs(distance)
        steps = m - 1  # the least t with (size/m)^(m−1) ≤ (most/m)^t, m further on
        t = next(t for t in range(size * steps + 1) if Fraction(size, m) ** steps <= Fraction(most, m) ** t)
        distance = min(m + t, asked.span) * (1 if distance > 0 else -1)
    return max(-asked.span, min(asked.span - 1, distance)) + asked.span


def _bucket(asked: Buckets, ahead: int) -> int:
    """Half of the buckets for keys ahead; in each a bucket for every small distance, then ⌊log⌋ of the larger ones."""
    number, start = asked.number, 0
    if asked.bidirectional:
        number //= 2
        start, distance = (number, ahead) if ahead > 0 else (0, -ahead)
    else:
        distance = max(-ahead, 0)
    m = number // 2
    if distance < m:
        return start + distance
    c = number - m  # ⌊c log(a/m) / log(D/m)⌋ is how many of (D/m)^1, (D/m)^2, … (a/m)^c reaches
    reached = [t for t in range(1, c) if Fraction(distance, m) ** c >= Fraction(asked.max_distance, m) ** t]
    return start + m + len(reached)


def _slope(place: Place, index: Index) -> Any:
    """2^(−8(t+1)/h); where h is no power of two m < h, the first m for m, then every second one for 2m."""
    (head,), heads = index, place.spec.heads
    m = 1 << (heads.bit_length() - 1)
    exponent = Fraction(8 * (head + 1), m) if head < m else Fraction(8 * (2 * (head - m) + 1), 2 * m)
    return place.algebra.power(Fraction(2), -exponent)


def relative_values(place: Place, front: Front, i: int, column: int) -> list[Any]:
    """Return the terms added to the values of each key for query i: the row of the table for the distance."""
    asked = place.spec.position
    assert isinstance(asked, Shaw)
    n_k, n_q = place.of(0).shape[-1], place.of(0).shape[-2]
    table = place.of(2)
    rows = (_clipped(_ahead(place, i, j, (n_q, n_k)), asked.most) for j in range(n_k))
    return [table[row, column] for row in rows]


ENTRIES: dict[str, Entry] = {
    **dict.fromkeys(("cos", "sin", "cos_q", "sin_q"), _table),
    **dict.fromkeys(("q_rotated", "k_rotated", "q_r_rotated", "k_r_rotated"), _rotated),
    "positioned": _positioned,
    "slopes": _slope,
}
