"""Axes for plots of laws: logarithmic or linear, only horizontal grid lines, labels at the ends of lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from typing import Literal

from symattn.document.drawing.scene import SMALL, Mark, Role, Scene, apart, small

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class PlotAxis:
    """An axis of numbers from ``low`` to ``high``, on the sheet from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = True

    def at(self, x: float) -> float:
        """Return the place of a number on the sheet, clipped to the ends."""
        if self.logarithmic:
            low, high = (log(self.low), log(self.high))
        else:
            low, high = (self.low, self.high)
        # 0 has no logarithm, and is drawn at the low end.
        place = log(max(x, 1e-300)) if self.logarithmic else x
        share = min(max((place - low) / (high - low), 0.0), 1.0)
        return self.start + share * (self.end - self.start)


@dataclass(frozen=True)
class Series:
    """Points of a law or of a sample, half widths of error bars, and the words at the line's end.

    The line goes through the points, or through those of ``law`` if the points are a sample.
    """

    points: Sequence[tuple[float, float]]
    words: Sequence[str] = ()
    role: Role = "ink"
    shape: Literal["disc", "square"] = "disc"
    dash: str = ""
    bars: Sequence[float] = ()
    notes: Sequence[str] = ()
    law: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Plot:
    """A plot on a scene."""

    scene: Scene
    x: PlotAxis
    y: PlotAxis

    def frame(
        self, across: Iterable[tuple[float, str]], up: Iterable[tuple[float, str]], name: str
    ) -> None:
        """Draw grid lines at the numbers of ``up``, ticks at those of ``across``, and the name of the axis below."""
        foot = max(self.y.start, self.y.end)
        for value, words in up:
            y = self.y.at(value)
            if abs(y - foot) > 1:
                left_end = self.x.start - 6
                self.scene.line((left_end, y), (self.x.end + 6, y), role="rule", width=1)
            small(self.scene, self.x.start - 13, y + 4.5, words, anchor="end")
        left = self.x.start - 6
        right = self.x.end + 6
        self.scene.line((left, foot), (right, foot), role="mute", width=1)
        for value, words in across:
            x = self.x.at(value)
            self.scene.line((x, foot), (x, foot + 5), role="mute", width=1)
            small(self.scene, x, foot + 19, words, anchor="middle")
        if name:
            self.scene.label(
                (self.x.start + self.x.end) / 2, foot + 41, name, SMALL, "mute", "middle"
            )

    def draw(self, series: Sequence[Series]) -> None:
        """Draw lines first, marks above them, then the words, moved apart if lines end close together."""
        for s in series:
            points = [(self.x.at(x), self.y.at(y)) for x, y in s.law or s.points]
            self.scene.line(*points, role=s.role, dash=s.dash)
        for s in series:
            self._draw_marks_of_series(s)
        named = [s for s in series if s.words]
        last_points = ((s.law or s.points)[-1] for s in named)
        ends = [self.y.at(y) + 4 for _, y in last_points]
        lines = max((len(s.words) for s in named), default=1)
        for s, y in zip(named, apart(ends, 19.0 * lines, self.y.end), strict=True):
            self.scene.label(self.x.end + 13, y, s.words[0], role=s.role)
            for i, words in enumerate(s.words[1:], 1):
                small(
                    self.scene,
                    self.x.end + 13,
                    y + 18 * i,
                    words,
                    s.role if s.role != "ink" else "mute",
                )

    def _draw_marks_of_series(self, series: Series) -> None:
        for i, (x, y) in enumerate(series.points):
            at = self.x.at(x), self.y.at(y)
            if series.bars:
                half_length = series.bars[i]
                top = self.y.at(y + half_length)
                foot = self.y.at(y - half_length)
                self.scene.line((at[0], foot), (at[0], top), role=series.role, width=1)
                for end in (top, foot):
                    left_end = at[0] - 3
                    self.scene.line((left_end, end), (at[0] + 3, end), role=series.role, width=1)
            note = series.notes[i] if series.notes else ""
            self.scene.add(Mark(*at, series.role, series.shape, note=note))


def powers(base: int, low: float, high: float) -> list[float]:
    """Return the powers of a base from ``low`` to ``high``."""
    first, last = (int(log(x) // log(base)) for x in (low, high))
    # Powers at the ends count in spite of rounding.
    return [
        x
        for i in range(first, last + 2)
        if low * (1 - 1e-9) <= (x := float(base) ** i) <= high * (1 + 1e-9)
    ]


def whole_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return ticks at powers of 2, 4, 16 or 256, at most six if possible."""
    for base in (2, 4, 16, 256):
        result = powers(base, low, high)
        if len(result) <= 6:
            break
    return [(x, f"{x:.0f}") for x in result]


def tens(low: float, high: float) -> list[tuple[float, str]]:
    """Return ticks at powers of 10, such as 10⁻³, at most six of them."""
    result = powers(10, low, high)
    # A range within one power of 10 has no ticks.
    step = max(1, -(-len(result) // 6))
    # Counted from the highest power, which therefore always has a label.
    labelled = result[::-1][::step][::-1]
    exponents = (str(round(log(x, 10))).translate(RAISED) for x in labelled)
    return [(x, f"10{exponent}") for x, exponent in zip(labelled, exponents, strict=True)]
