"""Placement: points of a plane at one scale in both directions, and labels that avoid other labels and lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import cos, radians, sin

from symattn.document.drawing.scene import SMALL, TEXT, WIDTH, Anchor, Label, Line, Point, Role, Scene

Rectangle = tuple[float, float, float, float]
_EDGE = 4.0


@dataclass(frozen=True)
class DrawingPlane:
    """The origin on the sheet, and the length of 1 there; y grows upwards in the plane, downwards on the sheet."""

    origin: Point
    scale: float

    @staticmethod
    def fitted(points: Iterable[Point], x: float, y: float, width: float, height: float) -> DrawingPlane:
        """Return the plane of the largest scale with points and origin within ``width`` × ``height`` at (x, y)."""
        xs, ys = zip(*points, (0.0, 0.0), strict=True)
        wide, high = max(xs) - min(xs), max(ys) - min(ys)
        scale = min(width / wide if wide else 1e9, height / high if high else 1e9)
        return DrawingPlane((x - min(xs) * scale, y + max(ys) * scale), scale)

    def at(self, point: Point) -> Point:
        """Return the place of a point on the sheet."""
        return self.origin[0] + point[0] * self.scale, self.origin[1] - point[1] * self.scale

    def arc(self, degrees: float, radius: float, role: Role = "mute", start: float = 0.0) -> Line:
        """Return an arc about the origin from ``start`` to ``degrees``, with ``radius`` in units of the sheet."""
        steps = max(2, round(abs(degrees - start) / 3))
        turns = (radians(start + (degrees - start) * i / steps) for i in range(steps + 1))
        return Line(tuple((self.origin[0] + radius * cos(t), self.origin[1] - radius * sin(t)) for t in turns), role, 1)


def polar(length: float, degrees: float) -> Point:
    """Return the point at ``length`` from the origin, in this direction."""
    return length * cos(radians(degrees)), length * sin(radians(degrees))


def beside(scene: Scene, x: float, y: float, words: str, role: Role = "ink", size: float = TEXT) -> None:
    """Write words next to the point (x, y)."""
    places: list[tuple[float, float, Anchor]] = []
    for far in (8.0, 14.0, 22.0, 34.0):
        places += [
            (far, 5, "start"), (far, -far * 0.7, "start"), (0, -far, "middle"), (0, far + size * 0.7, "middle"),
            (far, far + 4, "start"), (-far, -far * 0.7, "end"), (-far, 5, "end"), (-far, far + 4, "end"),
        ]  # fmt: skip
    tried = [Label(x + dx, y + dy, words, size, role, anchor) for dx, dy, anchor in places]
    costs = [(_cost(scene, label) + i * 0.1, i) for i, label in enumerate(tried)]
    scene.add(replace(tried[min(costs)[1]]))


def note_beside(scene: Scene, x: float, y: float, words: str, role: Role = "mute") -> None:
    """Write words next to a point in the smaller size."""
    beside(scene, x, y, words, role, SMALL)


def overlap(a: Rectangle, b: Rectangle) -> bool:
    """Return whether two boxes (left, top, right, bottom) have a point in common."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _cost(scene: Scene, label: Label) -> float:
    box = label.box
    outside = box[0] < _EDGE or box[1] < _EDGE or box[2] > WIDTH - _EDGE
    labels = sum(overlap(box, other.box) for other in scene.labels)
    lines = sum(_crosses(item, box) for item in scene.items if isinstance(item, Line))
    return 1000.0 * outside + 100.0 * labels + 4.0 * lines


def _crosses(line: Line, box: Rectangle) -> bool:
    """Return whether a line passes through a box, by sampling points along it."""
    for (x0, y0), (x1, y1) in zip(line.points, line.points[1:], strict=False):
        steps = max(2, int(max(abs(x1 - x0), abs(y1 - y0)) / 3))
        for i in range(steps + 1):
            x, y = x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps
            if box[0] <= x <= box[2] and box[1] <= y <= box[3]:
                return True
    return False
