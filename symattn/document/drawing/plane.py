"""A plane with its points on a part of the sheet: at one scale in both directions, so that angles stay angles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import cos, radians, sin

from symattn.document.drawing.scene import Line, Point, Role


@dataclass(frozen=True)
class Plane:
    """The origin on the sheet, and how long 1 is there; y grows upwards in the plane, downwards on the sheet."""

    origin: Point
    scale: float

    @staticmethod
    def fitted(points: Iterable[Point], x: float, y: float, width: float, height: float) -> Plane:
        """The largest scale at which the points and the origin are within ``width`` × ``height`` at (x, y)."""
        xs, ys = zip(*points, (0.0, 0.0), strict=True)
        wide, high = max(xs) - min(xs), max(ys) - min(ys)
        scale = min(width / wide if wide else 1e9, height / high if high else 1e9)
        return Plane((x - min(xs) * scale, y + max(ys) * scale), scale)

    def at(self, point: Point) -> Point:
        """Where a point is on the sheet."""
        return self.origin[0] + point[0] * self.scale, self.origin[1] - point[1] * self.scale

    def arc(self, degrees: float, radius: float, role: Role = "mute", start: float = 0.0) -> Line:
        """An arc about the origin from ``start`` on, ``radius`` in units of the sheet."""
        steps = max(2, round(abs(degrees - start) / 3))
        turns = (radians(start + (degrees - start) * i / steps) for i in range(steps + 1))
        return Line(tuple((self.origin[0] + radius * cos(t), self.origin[1] - radius * sin(t)) for t in turns), role, 1)


def polar(length: float, degrees: float) -> Point:
    """The point so far from the origin, in this direction."""
    return length * cos(radians(degrees)), length * sin(radians(degrees))
