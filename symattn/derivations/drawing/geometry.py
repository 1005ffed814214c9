"""``geometry``: a query and its keys at their true angles, and the output as the sum of weighted values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from os import PathLike
from typing import Any

from symattn.arrays.field.quotient import Quotient
from symattn.derivations.claims.measures import Value, dot, measured
from symattn.derivations.drawing.summed import summed
from symattn.derivations.drawing.weights import named, walked
from symattn.derivations.drawing.written import words
from symattn.derivations.walks.model import Walk
from symattn.document.drawing.placing import beside
from symattn.document.drawing.plane import Plane, polar
from symattn.document.drawing.scene import SMALL, Point, Scene, plain, small, wrapped
from symattn.document.errors import InputError

Vector = tuple[Quotient, ...]
_BOTH = (("before training", "word-vectors-before"), ("after training", "word-vectors"))
_MOST, _LINE = 6, 18.0


@dataclass(frozen=True)
class Angles:
    """A query with its keys: the angle from the query to each key, and the scores."""

    query: Vector
    keys: tuple[Vector, ...]
    angles: tuple[Value, ...]
    scores: tuple[Quotient, ...]

    @property
    def degrees(self) -> list[float]:
        """The angles as numbers."""
        return [float(angle.digits) for angle in self.angles]

    @property
    def tips(self) -> list[Point]:
        """Where the keys end, if the query goes to the right."""
        return [polar(length(key), degrees) for key, degrees in zip(self.keys, self.degrees, strict=True)]

    @property
    def length(self) -> float:
        """How long the query is."""
        return length(self.query)


def scene(source: str | PathLike[str] | None = None, query: int = 1, **fields: Any) -> Scene:
    """Without an example: word vectors before and after training, and the sum of values after it."""
    if source is None:
        walks = [(called, walked(name, fields)) for called, name in _BOTH]
    else:
        walks = [("", walked(source, fields))]
    last = walks[-1][1]
    drawn = Scene(f"Query, keys and values of {last.sheet.name}, at their true angles")
    found = [(called, walk, angles(walk, query)) for called, walk in walks]
    wide = 480 / len(found)
    scale = min(_plane(each, 0, wide).scale for _, _, each in found)
    foots = [
        _fan(drawn, walk, query, each, called, _plane(each, i * wide, wide, scale))
        for i, (called, walk, each) in enumerate(found)
    ]
    foot, said = summed(drawn, last, query, max(foots) + 44)
    drawn.description = plain(" ".join((*(_said(walk, query, each, called) for called, walk, each in found), said)))
    note = "Lengths, and angles to the query, are true; the keys are turned into one plane. " + said
    drawn.height = wrapped(drawn, foot + 30, note) - 6
    return drawn


def angles(walk: Walk, query: int) -> Angles:
    """What is drawn above. Raises InputError for a query that is not there, and for heads."""
    queries, keys = (walk.arrays[name] for name in walk.pipeline["scores"].of[:2])
    if queries.ndim != 2 or len(keys) > _MOST:
        raise InputError(
            f"{walk.sheet.name}: the picture is of one head and at most {_MOST} keys; hint: another example"
        )
    if walk.sheet.attention.score != "dot":
        raise InputError(f"{walk.sheet.name}: its score is not a dot product, so no angle; hint: another example")
    if isinstance(query, bool) or not isinstance(query, int) or not 1 <= query <= len(queries):
        raise InputError(f"query is {query!r}; {walk.sheet.name} has 1 to {len(queries)}")
    q, vectors = tuple(queries[query - 1]), tuple(map(tuple, keys))
    if not all(isinstance(x, Quotient) for row in (q, *vectors) for x in row):
        raise InputError(f"{walk.sheet.name}: of some queries or keys only balls are known; hint: another example")
    likeness = tuple(measured("angle", q, x, 3) for x in vectors)
    return Angles(q, vectors, likeness, tuple(walk.arrays["scores"][query - 1]))


def length(vector: Vector) -> float:
    """‖v‖, as a float."""
    return sqrt(dot(vector, vector).to_float())


def _plane(found: Angles, x: float, width: float, scale: float | None = None) -> Plane:
    """Where the arrows are, below a line for each key; at a scale, if it is given."""
    top = 50 + _LINE * len(found.keys)
    made = Plane.fitted([*found.tips, (found.length, 0.0)], x + 22, top, min(width - 130, 240), 150)
    return made if scale is None else replace(made, scale=scale)


def _fan(drawn: Scene, walk: Walk, query: int, found: Angles, called: str, plane: Plane) -> float:
    """The query to the right, its keys above it; the lowest line is returned."""
    left, own = plane.origin[0] - 12, named(walk, "q", query - 1)
    drawn.label(left, 22, called or f"{own} and the keys")
    for j, score in enumerate(found.scores):
        small(drawn, left, 42 + _LINE * j, f"{own}·{named(walk, 'k', j)} = {words(score.notation())}")
    same = [j for j, key in enumerate(found.keys) if key == found.query]
    others = sorted(set(range(len(found.keys))) - set(same), key=found.degrees.__getitem__)
    for rank, j in enumerate(others):
        drawn.line(plane.origin, plane.at(found.tips[j]), role="k", head=True)
        drawn.add(plane.arc(found.degrees[j], _radius(rank)))
    drawn.line(plane.origin, plane.at((found.length, 0.0)), role="q", width=2.6, head=True)
    equal = "".join(f" = {named(walk, 'k', j)}" for j in same)
    small(drawn, plane.at((found.length, 0.0))[0], plane.origin[1] + 20, own + equal, "ink", "end")
    for j in others:
        beside(drawn, *plane.at(found.tips[j]), f"{named(walk, 'k', j)} {found.angles[j].digits}°", "mute", SMALL)
    return plane.origin[1]


def _radius(rank: int) -> float:
    return 46.0 - 18 * rank if rank < 2 else 46.0 + 14 * (rank - 1)


def _said(walk: Walk, query: int, found: Angles, called: str) -> str:
    told = (
        f"{named(walk, 'k', j)} at {angle.digits}°, score {words(score.notation())}"
        for j, (angle, score) in enumerate(zip(found.angles, found.scores, strict=True))
    )
    start = f"{called[0].upper()}{called[1:]}, from" if called else "From"
    return f"{start} {named(walk, 'q', query - 1)}: {'; '.join(told)}."
