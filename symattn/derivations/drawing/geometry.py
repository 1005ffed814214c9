"""``geometry``: a query and its keys at their true angles, and the output as the sum of weighted values.

Points of a plane are at one scale in both directions, and labels avoid other labels and lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import cos, radians, sin, sqrt
from os import PathLike

from symattn.arrays.field.quotient import Quotient
from symattn.derivations.claims.measures import Likeness, dot, measured
from symattn.derivations.drawing import digits, words
from symattn.derivations.drawing.weights import named, walked
from symattn.derivations.walks.walk_data import Walk
from symattn.document.drawing.scene import (
    SMALL,
    TEXT,
    WIDTH,
    Anchor,
    Label,
    Line,
    Mark,
    Point,
    Role,
    Scene,
    apart,
    plain,
    small,
    wrapped,
)
from symattn.document.errors import InputError
from symattn.document.keywords import is_integer_within

Vector = tuple[Quotient, ...]
_BOTH = (("before training", "word-vectors-before"), ("after training", "word-vectors"))
_MOST, _LINE = 6, 18.0  # keys whose angles can be told apart; height of a line of words


@dataclass(frozen=True)
class Angles:
    """A query with its keys: the angle from the query to each key, and the scores."""

    query: Vector
    keys: tuple[Vector, ...]
    angles: tuple[Likeness, ...]
    scores: tuple[Quotient, ...]

    @property
    def degrees(self) -> list[float]:
        """The angles as numbers."""
        return [float(angle.digits) for angle in self.angles]

    @property
    def tips(self) -> list[Point]:
        """The end points of the keys, if the query points to the right."""
        return [
            polar(length(key), degrees)
            for key, degrees in zip(self.keys, self.degrees, strict=True)
        ]

    @property
    def length(self) -> float:
        """The length of the query."""
        return length(self.query)


def scene(source: str | PathLike[str] | None = None, query: int = 1, **fields: object) -> Scene:
    """Draw an example or, without one, word vectors before and after training, and the sum of values after it."""
    if source is None:
        walks = [(called, walked(name, fields)) for called, name in _BOTH]
    else:
        walks = [("", walked(source, fields))]
    last = walks[-1][1]
    drawn = Scene(f"Query, keys and values of {last.sheet.name}, at their true angles")
    result = [(called, walk, angles(walk, query)) for called, walk in walks]
    # A sheet is 480 units wide (``scene.WIDTH``), and the pictures share it.
    wide = 480 / len(result)
    # One scale for all pictures, or lengths would not compare.
    scale = min(_fit_plane_of_arrows(each, 0, wide).scale for _, _, each in result)
    foots = [
        _draw_fan_of_keys(
            drawn, walk, query, each, called, _fit_plane_of_arrows(each, i * wide, wide, scale)
        )
        for i, (called, walk, each) in enumerate(result)
    ]
    foot, said = summed(drawn, last, query, max(foots) + 44)
    drawn.description = plain(
        " ".join(
            (
                *(
                    _describe_fan_of_keys(walk, query, each, called)
                    for called, walk, each in result
                ),
                said,
            )
        )
    )
    note = "Lengths, and angles to the query, are true; the keys are turned into one plane. " + said
    drawn.height = wrapped(drawn, foot + 30, note) - 6
    return drawn


def angles(walk: Walk, query: int) -> Angles:
    """Return the angles that are drawn. Raises InputError for an unknown query, and for heads."""
    names = walk.pipeline["scores"].of[:2]
    queries, keys = (walk.arrays[name] for name in names)
    # Heads are not drawn side by side.
    if queries.ndim != 2 or len(keys) > _MOST:
        raise InputError(
            f"{walk.sheet.name}: the picture is of one head and at most {_MOST} keys; hint: another example"
        )
    # Other scores are no angles.
    if walk.sheet.attention.score != "dot":
        raise InputError(
            f"{walk.sheet.name}: its score is not a dot product, so no angle; hint: another example"
        )
    if not is_integer_within(query, 1, len(queries)):
        raise InputError(f"query is {query!r}; {walk.sheet.name} has 1 to {len(queries)}")
    q = tuple(queries[query - 1])
    vectors = tuple(map(tuple, keys))
    if not all(isinstance(x, Quotient) for row in (q, *vectors) for x in row):
        raise InputError(
            f"{walk.sheet.name}: of some queries or keys only balls are known; hint: another example"
        )
    likeness = tuple(measured("angle", q, x, 3) for x in vectors)
    return Angles(q, vectors, likeness, tuple(walk.arrays["scores"][query - 1]))


def length(vector: Vector) -> float:
    """Return ‖v‖ as a float."""
    return sqrt(dot(vector, vector).to_float())


def _fit_plane_of_arrows(
    fan: Angles, x: float, width: float, scale: float | None = None
) -> DrawingPlane:
    """Return the plane of the arrows, below a line for each key, with a given or a fitted scale."""
    top = 50 + _LINE * len(fan.keys)
    plane = DrawingPlane.fitted(
        [*fan.tips, (fan.length, 0.0)], x + 22, top, min(width - 130, 240), 150
    )
    return plane if scale is None else replace(plane, scale=scale)


def _draw_fan_of_keys(
    drawn: Scene, walk: Walk, query: int, fan: Angles, called: str, plane: DrawingPlane
) -> float:
    """Draw the query to the right and its keys above it; return the lowest line."""
    left, own = plane.origin[0] - 12, named(walk, "q", query - 1)
    drawn.label(left, 22, called or f"{own} and the keys")
    for j, score in enumerate(fan.scores):
        product = words(score.notation())
        small(drawn, left, 42 + _LINE * j, f"{own}·{named(walk, 'k', j)} = {product}")
    # A key that equals the query has no direction of its own.
    same = [j for j, key in enumerate(fan.keys) if key == fan.query]
    others_in_fan = set(range(len(fan.keys))) - set(same)
    others = sorted(others_in_fan, key=fan.degrees.__getitem__)
    for rank, j in enumerate(others):
        drawn.line(plane.origin, plane.at(fan.tips[j]), role="k", head=True)
        # Every arc has a radius of its own, or arcs of several keys would lie on each other.
        radius = 46.0 - 18 * rank if rank < 2 else 46.0 + 14 * (rank - 1)
        drawn.add(plane.arc(fan.degrees[j], radius))
    drawn.line(plane.origin, plane.at((fan.length, 0.0)), role="q", width=2.6, head=True)
    equal = "".join(f" = {named(walk, 'k', j)}" for j in same)
    x_end = plane.at((fan.length, 0.0))[0]
    small(drawn, x_end, plane.origin[1] + 20, own + equal, "ink", "end")
    for j in others:
        beside(
            drawn,
            *plane.at(fan.tips[j]),
            f"{named(walk, 'k', j)} {fan.angles[j].digits}°",
            "mute",
            SMALL,
        )
    return plane.origin[1]


def _describe_fan_of_keys(walk: Walk, query: int, fan: Angles, called: str) -> str:
    results = (
        f"{named(walk, 'k', j)} at {angle.digits}°, score {words(score.notation())}"
        for j, (angle, score) in enumerate(zip(fan.angles, fan.scores, strict=True))
    )
    start = f"{called[0].upper()}{called[1:]}, from" if called else "From"
    return f"{start} {named(walk, 'q', query - 1)}: {'; '.join(results)}."


# -- the output as a sum -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Basis:
    """Two orthogonal directions; ``second`` is None if all values lie on one line."""

    first: Vector
    second: Vector | None

    @staticmethod
    def of(values: Sequence[Vector]) -> Basis:
        """Return the directions along the first nonzero value, and towards the value farthest from this line."""
        # Squares are exact, so that a value close to zero still gives a direction.
        first = next((v for v in values if not dot(v, v).is_zero()), None)
        if first is None:
            raise InputError("all values are zero, so there is no plane to draw them in")
        rests = [_remove_component_along(v, first) for v in values]
        second = max(rests, key=lambda rest: dot(rest, rest).to_float())
        return Basis(first, None if dot(second, second).is_zero() else second)

    def point(self, vector: Vector) -> Point:
        """Return the coordinates of the vector's projection onto the plane, which preserves sums."""
        return _measure_component_along(vector, self.first), _measure_component_along(
            vector, self.second
        ) if self.second else 0.0

    def off(self, vector: Vector) -> tuple[Quotient, str]:
        """Return the distance of the vector from the plane: its square, exactly, and its digits."""
        rest = _remove_component_along(vector, self.first)
        rest = _remove_component_along(rest, self.second) if self.second else rest
        zero = tuple(x * 0 for x in rest)
        return dot(rest, rest), measured("distance", rest, zero, 2).digits


@dataclass(frozen=True)
class DrawnTerm:
    """A weight times a value: the value's name, its weight in digits and as a float, and the point of the value."""

    name: str
    digits: str
    weight: float
    point: Point

    @property
    def words(self) -> str:
        """The term as a label: 0.387 v_king."""
        return f"{self.digits} {self.name}"

    @property
    def step(self) -> Point:
        """The value times its weight."""
        return self.point[0] * self.weight, self.point[1] * self.weight


def summed(drawn: Scene, walk: Walk, query: int, y: float) -> tuple[float, str]:
    """Draw the weighted values tip to tail, and their sum; return the foot and the description."""
    weights, arrays = (walk.arrays[name] for name in walk.mixing.of[:2])
    row = weights[query - 1]
    # A value of weight 0 adds nothing to the sum, and gets no arrow.
    weights_of_keys = enumerate(row)
    values = {j: tuple(arrays[j]) for j, x in weights_of_keys if not x.is_zero()}
    if not values or not all(isinstance(x, Quotient) for v in values.values() for x in v):
        raise InputError(
            f"{walk.sheet.name}: query {query} has no sum of values in exact numbers; hint: another query"
        )
    basis = Basis.of(list(values.values()))
    terms = [
        DrawnTerm(named(walk, "v", j), digits(row[j]), float(row[j].to_float()), basis.point(v))
        for j, v in values.items()
    ]
    # from the first direction on
    turned = sorted(terms, key=lambda term: term.point[1] / (abs(term.point[0]) + 1e-9))
    output = f"{{y_{walk.sheet.tokens[query - 1]}}}" if walk.sheet.tokens else f"{{o_{query}}}"
    drawn.label(10, y, f"the output {output}: a weighted sum of the values")
    plane = DrawingPlane.fitted([term.point for term in terms], 70, y + 34, 330, 230)
    _draw_sum_of_values(drawn, plane, turned, output)
    described = _describe_value_off_plane(walk, basis, values)
    sum_of_terms = " + ".join(term.words for term in terms)
    said = f"{described} {output} = {sum_of_terms}."
    return max(label.box[3] for label in drawn.labels) + 14, said


def _draw_sum_of_values(
    drawn: Scene, plane: DrawingPlane, terms: Sequence[DrawnTerm], output: str
) -> None:
    for term in terms:
        drawn.line(plane.origin, plane.at(term.point), role="v", width=1, dash="1 4")
        drawn.add(Mark(*plane.at(term.point), "v"))
    steps = (term.step for term in terms)
    corners = list(accumulate(steps, lambda a, b: (a[0] + b[0], a[1] + b[1]), initial=(0.0, 0.0)))
    for start, end in pairwise(corners):
        drawn.line(plane.at(start), plane.at(end), role="v", width=1.7, head=True)
    end = plane.at(corners[-1])
    side = plane.at(terms[-1].step)
    # The last term also starts at the origin, and spans a parallelogram with the sum of the earlier terms.
    if len(terms) > 1:
        drawn.line(plane.origin, side, role="v", width=1.4, head=True)
        drawn.line(side, end, role="mute", width=1, dash="5 4")
    drawn.line(plane.origin, end, role="output", width=3.2, head=True)
    tips = [(term.name, plane.at(term.point)) for term in terms]
    ends = [*tips, (output, end)]
    # Names of points that lie close together would be written over each other.
    heights = apart([y for _, (_, y) in ends], 18.0)
    for (called, (x, _)), y in zip(ends, heights, strict=True):
        small(drawn, x + 9, y + 4, called, "ink")
    for term, (start, stop) in zip(terms, pairwise(corners), strict=True):
        centre = ((start[0] + stop[0]) / 2, (start[1] + stop[1]) / 2)
        middle = plane.at(centre)
        note_beside(drawn, *middle, term.words, "ink")


def _describe_value_off_plane(walk: Walk, basis: Basis, values: dict[int, Vector]) -> str:
    """Say which plane is drawn, and which value is farthest from it."""
    far = max(values, key=lambda j: basis.off(values[j])[0].to_float())
    square, shown = basis.off(values[far])
    if square.is_zero():
        return "All values lie in the plane that is drawn."
    return (
        f"Sums are drawn in the plane of two values; {named(walk, 'v', far)} lies {shown} off it."
    )


def _measure_component_along(vector: Vector, direction: Vector) -> float:
    product = float(dot(vector, direction).to_float())
    return product / sqrt(dot(direction, direction).to_float())


def _remove_component_along(vector: Vector, direction: Vector) -> Vector:
    """Return the vector without its component along a direction."""
    share = dot(vector, direction) / dot(direction, direction)
    components = zip(vector, direction, strict=True)
    return tuple(x - share * d for x, d in components)


Rectangle = tuple[float, float, float, float]
_EDGE = 4.0  # labels stay this far from the edge of the sheet


@dataclass(frozen=True)
class DrawingPlane:
    """The origin on the sheet, and the length of 1 there; y grows upwards in the plane, downwards on the sheet."""

    origin: Point
    scale: float

    @staticmethod
    def fitted(
        points: Iterable[Point], x: float, y: float, width: float, height: float
    ) -> DrawingPlane:
        """Return the plane of the largest scale with points and origin within ``width`` × ``height`` at (x, y)."""
        xs, ys = zip(*points, (0.0, 0.0), strict=True)
        wide = max(xs) - min(xs)
        high = max(ys) - min(ys)
        # Points without extent in one direction leave the scale to the other direction.
        scale = min(width / wide if wide else 1e9, height / high if high else 1e9)
        left_edge = x - min(xs) * scale
        return DrawingPlane((left_edge, y + max(ys) * scale), scale)

    def at(self, point: Point) -> Point:
        """Return the place of a point on the sheet."""
        x = self.origin[0] + point[0] * self.scale
        return x, self.origin[1] - point[1] * self.scale

    def arc(self, degrees: float, radius: float, role: Role = "mute", start: float = 0.0) -> Line:
        """Return an arc about the origin from ``start`` to ``degrees``, with ``radius`` in units of the sheet."""
        # With a chord every 3 degrees the corners of an arc are not seen.
        steps = max(2, round(abs(degrees - start) / 3))
        turns = (radians(start + (degrees - start) * i / steps) for i in range(steps + 1))
        return Line(
            tuple(
                (self.origin[0] + radius * cos(t), self.origin[1] - radius * sin(t)) for t in turns
            ),
            role,
            1,
        )


def polar(length: float, degrees: float) -> Point:
    """Return the point at ``length`` from the origin, in this direction."""
    angle = radians(degrees)
    return length * cos(angle), length * sin(angle)


def beside(
    scene: Scene, x: float, y: float, words: str, role: Role = "ink", size: float = TEXT
) -> None:
    """Write words next to the point (x, y)."""
    places: list[tuple[float, float, Anchor]] = []
    for far in (8.0, 14.0, 22.0, 34.0):
        places += [
            (far, 5, "start"),
            (far, -far * 0.7, "start"),
            (0, -far, "middle"),
            (0, far + size * 0.7, "middle"),
            (far, far + 4, "start"),
            (-far, -far * 0.7, "end"),
            (-far, 5, "end"),
            (-far, far + 4, "end"),
        ]
    tried = [Label(x + dx, y + dy, words, size, role, anchor) for dx, dy, anchor in places]
    costs = []
    for i, label in enumerate(tried):
        box = label.box
        beyond_right = box[2] > WIDTH - _EDGE
        outside = box[0] < _EDGE or box[1] < _EDGE or beyond_right
        labels = sum(overlap(box, other.box) for other in scene.labels)
        lines = sum(_is_box_crossed(item, box) for item in scene.items if isinstance(item, Line))
        # Leaving the sheet costs most, a covered label more than a crossed line; nearer places win ties.
        cost = 1000.0 * outside + 100.0 * labels + 4.0 * lines + i * 0.1
        costs.append((cost, i))
    scene.add(replace(tried[min(costs)[1]]))


def note_beside(scene: Scene, x: float, y: float, words: str, role: Role = "mute") -> None:
    """Write words next to a point in the smaller size."""
    beside(scene, x, y, words, role, SMALL)


def overlap(a: Rectangle, b: Rectangle) -> bool:
    """Return whether two boxes (left, top, right, bottom) have a point in common."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _is_box_crossed(line: Line, box: Rectangle) -> bool:
    """Return whether a line passes through a box, by sampling points along it."""
    segments = zip(line.points, line.points[1:], strict=False)
    for (x0, y0), (x1, y1) in segments:
        far_along = max(abs(x1 - x0), abs(y1 - y0))
        # Samples are about 3 units apart, which is less than the height of a label.
        steps = max(2, int(far_along / 3))
        for i in range(steps + 1):
            x = x0 + (x1 - x0) * i / steps
            y = y0 + (y1 - y0) * i / steps
            if box[0] <= x <= box[2] and box[1] <= y <= box[3]:
                return True
    return False
