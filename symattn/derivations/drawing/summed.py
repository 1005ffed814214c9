"""An output as the sum of weighted values, drawn in the plane of two of the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import sqrt

from symattn.arrays.field.quotient import Quotient
from symattn.derivations.claims.measures import dot, measured
from symattn.derivations.drawing.weights import named
from symattn.derivations.drawing.written import digits
from symattn.derivations.walks.model import Walk
from symattn.document.drawing.placing import note_beside
from symattn.document.drawing.plane import Plane
from symattn.document.drawing.scene import Mark, Point, Scene, apart, small
from symattn.document.errors import InputError

Vector = tuple[Quotient, ...]


@dataclass(frozen=True)
class Basis:
    """Two directions at a right angle; ``second`` is None where all values lie on one line."""

    first: Vector
    second: Vector | None

    @staticmethod
    def of(values: Sequence[Vector]) -> Basis:
        """Along the first value that is not zero, and towards the value that is farthest from this line."""
        first = next((v for v in values if not dot(v, v).is_zero()), None)
        if first is None:
            raise InputError("all values are zero, so there is no plane to draw them in")
        rests = [_minus(v, first) for v in values]
        second = max(rests, key=lambda rest: dot(rest, rest).to_float())
        return Basis(first, None if dot(second, second).is_zero() else second)

    def point(self, vector: Vector) -> Point:
        """The coordinates of what of the vector lies in the plane: a linear map, so sums stay sums."""
        return _along(vector, self.first), _along(vector, self.second) if self.second else 0.0

    def off(self, vector: Vector) -> tuple[Quotient, str]:
        """How far the vector is from the plane: by its square, which is ordered exactly, and in digits."""
        rest = _minus(vector, self.first)
        rest = _minus(rest, self.second) if self.second else rest
        zero = tuple(x * 0 for x in rest)
        return dot(rest, rest), measured("distance", rest, zero, 2).digits


@dataclass(frozen=True)
class Term:
    """A weight times a value: the value's name, its weight in digits and as a float, and the point of the value."""

    name: str
    digits: str
    weight: float
    point: Point

    @property
    def words(self) -> str:
        """0.387 v_king."""
        return f"{self.digits} {self.name}"

    @property
    def step(self) -> Point:
        """The value times its weight."""
        return self.point[0] * self.weight, self.point[1] * self.weight


def summed(drawn: Scene, walk: Walk, query: int, y: float) -> tuple[float, str]:
    """The weighted values one after another, the last also from the origin: the foot, and what is said of them."""
    weights, arrays = (walk.arrays[name] for name in walk.mixing.of[:2])
    row = weights[query - 1]
    values = {j: tuple(arrays[j]) for j, x in enumerate(row) if not x.is_zero()}
    if not values or not all(isinstance(x, Quotient) for v in values.values() for x in v):
        raise InputError(f"{walk.sheet.name}: query {query} has no sum of values in exact numbers; hint: another query")
    basis = Basis.of(list(values.values()))
    terms = [
        Term(named(walk, "v", j), digits(row[j]), float(row[j].to_float()), basis.point(v)) for j, v in values.items()
    ]
    turned = sorted(terms, key=lambda term: term.point[1] / (abs(term.point[0]) + 1e-9))  # from the first direction on
    output = f"{{y_{walk.sheet.tokens[query - 1]}}}" if walk.sheet.tokens else f"{{o_{query}}}"
    drawn.label(10, y, f"the output {output}: a weighted sum of the values")
    plane = Plane.fitted([term.point for term in terms], 70, y + 34, 330, 230)
    _draw(drawn, plane, turned, output)
    said = f"{_off(walk, basis, values)} {output} = {' + '.join(term.words for term in terms)}."
    return max(label.box[3] for label in drawn.labels) + 14, said


def _draw(drawn: Scene, plane: Plane, terms: Sequence[Term], output: str) -> None:
    for term in terms:
        drawn.line(plane.origin, plane.at(term.point), role="v", width=1, dash="1 4")
        drawn.add(Mark(*plane.at(term.point), "v"))
    corners = list(accumulate((term.step for term in terms), _plus, initial=(0.0, 0.0)))
    for start, end in pairwise(corners):
        drawn.line(plane.at(start), plane.at(end), role="v", head=True)
    end, side = plane.at(corners[-1]), plane.at(terms[-1].step)
    if len(terms) > 1:
        drawn.line(plane.origin, side, role="v", width=1.4, head=True)
        drawn.line(side, end, role="mute", width=1, dash="5 4")
    drawn.line(plane.origin, end, role="output", width=2.6, head=True)
    ends = [(term.name, plane.at(term.point)) for term in terms] + [(output, end)]
    for (called, (x, _)), y in zip(ends, apart([y for _, (_, y) in ends], 18.0), strict=True):
        small(drawn, x + 9, y + 4, called, "ink")
    for term, (start, stop) in zip(terms, pairwise(corners), strict=True):
        middle = plane.at(((start[0] + stop[0]) / 2, (start[1] + stop[1]) / 2))
        note_beside(drawn, *middle, term.words, "ink")


def _plus(a: Point, b: Point) -> Point:
    return a[0] + b[0], a[1] + b[1]


def _off(walk: Walk, basis: Basis, values: dict[int, Vector]) -> str:
    """Which plane it is, and which value is farthest from it."""
    far = max(values, key=lambda j: basis.off(values[j])[0].to_float())
    square, shown = basis.off(values[far])
    if square.is_zero():
        return "All values lie in the plane that is drawn."
    return f"Sums are drawn in the plane of two values; {named(walk, 'v', far)} lies {shown} off it."


def _along(vector: Vector, direction: Vector) -> float:
    return float(dot(vector, direction).to_float()) / sqrt(dot(direction, direction).to_float())


def _minus(vector: Vector, direction: Vector) -> Vector:
    """The vector without its part along a direction."""
    share = dot(vector, direction) / dot(direction, direction)
    return tuple(x - share * d for x, d in zip(vector, direction, strict=True))
