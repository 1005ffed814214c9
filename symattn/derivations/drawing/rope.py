"""``rope``: positions rotate queries and keys, so a score depends only on their distance; fast and slow planes."""

from __future__ import annotations

from math import atan2, cos, degrees, sin
from typing import Any

from symattn.arrays.ball import Ball, precision
from symattn.arrays.field.approximation import decimal
from symattn.attention.positions.angles import rotate_interleaved
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.positions.rotary import inverse_frequencies
from symattn.derivations.drawing import words
from symattn.derivations.drawing.geometry import DrawingPlane, beside
from symattn.derivations.exactly import exact
from symattn.derivations.parameters import LIMITS, whole
from symattn.derivations.rope import ANGLE, KEY, QUERY, turned_scores, turns
from symattn.document.drawing.scene import Mark, Point, Role, Scene, plain, powered, small, wrapped
from symattn.document.errors import InputError
from symattn.document.keywords import is_integer_within

_BASE = Rotary().base
# Positions of query and key: the same distance twice, so that the same score is seen.
_PANELS = ((0, 1), (1, 2))
_WIDEST, _ACROSS, _RADIUS = 16, 4, 38.0  # largest d_k; dials in a row; their radius


def scene(dk: int = 8, tokens: int = 8) -> Scene:
    """Draw the example of ``derive rope`` at two pairs of places, and d_k/2 planes at 10000^(−2f/d_k) a position."""
    if not is_integer_within(dk, 2, _WIDEST) or dk % 2:
        raise InputError(f"d_k must be an even number from 2 to {_WIDEST}, got {dk!r}")
    whole("tokens", tokens, LIMITS["tokens"], 2)
    drawn = Scene("Rotary positions: equal distances, equal scores")
    scores = turned_scores()
    result = [
        _draw_panel_of_positions(drawn, 240.0 * i, places, scores)
        for i, places in enumerate(_PANELS)
    ]
    drawn.label(10, 252, f"{dk // 2} planes at the positions 0 to {tokens - 1}")
    y, speeds = _draw_dials_of_planes(drawn, dk, tokens)
    drawn.description = plain(
        " ".join((*result, f"Below, {dk // 2} planes turn by {', '.join(speeds)} a position."))
    )
    note = (
        f"Above, one plane, cosine {ANGLE[0]} and sine {ANGLE[1]} for one position; dotted: before they are turned. "
        f"Below, plane f turns by {{ω_f}} = {_BASE}{{^−2f/{dk}}} a position; the arrow is at the last one."
    )
    drawn.height = wrapped(drawn, y + 16, note) - 6
    return drawn


def _draw_panel_of_positions(
    drawn: Scene, x: float, places: tuple[int, int], scores: list[list[Any]]
) -> str:
    """Draw the query and the key of the example at two positions; return their score."""
    m, n = places
    drawn.label(x + 10, 22, f"{{m}} = {m}, {{n}} = {n}")
    score_of_places = scores[m][n].entries.item()
    score = f"({{R_m}}{{q}})·({{R_n}}{{k}}) = {words(score_of_places.notation())}"
    small(drawn, x + 10, 42, score)
    plane = DrawingPlane((x + 112, 196.0), 52.0)
    tips = (
        ("q", _rotate_vector_exactly(QUERY, m), QUERY, m),
        ("k", _rotate_vector_exactly(KEY, n), KEY, n),
    )
    for letter, tip, before, place in tips:
        role: Role = "q" if letter == "q" else "k"
        if place:
            drawn.line(
                plane.origin,
                plane.at((float(before[0]), float(before[1]))),
                role="mute",
                width=1,
                dash="1 4",
            )
        drawn.line(
            plane.origin, plane.at(tip), role=role, width=2.6 if letter == "q" else 2.0, head=True
        )
    turned = [degrees(atan2(tip[1], tip[0])) for _, tip, _, _ in tips]
    drawn.add(plane.arc(turned[1], 24, start=turned[0]))
    for letter, tip, _, place in tips:
        place_of_words = plane.at((tip[0] * 1.08, tip[1] * 1.08))
        beside(drawn, *place_of_words, f"{{R_{place}}}{{{letter}}}")
    product = scores[m][n].entries.item().notation()
    return f"Query at position {m}, key at {n}: score {words(product)}."


def _rotate_vector_exactly(vector: tuple[int, int], place: int) -> Point:
    """Return the vector at a position, rotated exactly."""
    rotated: Any = rotate_interleaved(exact([vector]), *turns()[place])
    x, y = rotated.tolist()[0]
    return x.to_float(), y.to_float()


def _draw_dials_of_planes(drawn: Scene, dk: int, tokens: int) -> tuple[float, list[str]]:
    """Draw a circle for each plane with its angle at every position; return the foot, and the turn of each plane."""
    speeds = [_format_angular_speed(dk, f) for f in range(dk // 2)]
    across = min(_ACROSS, len(speeds))
    for f, speed in enumerate(speeds):
        x = 62.0 + 118 * (f % across)
        y = 312.0 + 122 * (f // across)
        radius = float(speed)
        dial = DrawingPlane((x, y), _RADIUS)
        drawn.add(dial.arc(360, _RADIUS, "rule"))
        points = [dial.at((cos(p * radius), sin(p * radius))) for p in range(tokens)]
        drawn.add(
            *(Mark(*at, "mute", size=2.2, note=f"position {p}") for p, at in enumerate(points))
        )
        drawn.line(dial.origin, points[-1], head=True)
        small(drawn, x, y + _RADIUS + 20, f"{{ω_{f}}} = {powered(speed)}", anchor="middle")
    return 312.0 + 122 * ((len(speeds) - 1) // across) + _RADIUS + 34, [
        powered(speed) for speed in speeds
    ]


def _format_angular_speed(dk: int, f: int) -> str:
    """Return ω_f to three proven digits."""

    def enclose(bits: int) -> Any:
        with precision(bits):
            return inverse_frequencies(dk, _BASE, Ball.lift([1])).tolist()[f]

    return "1" if f == 0 else decimal(enclose, 3)
