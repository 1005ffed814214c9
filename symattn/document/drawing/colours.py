"""The colours of the roles, on white and on black, each with a contrast of at least 4.5 to its paper."""

from __future__ import annotations

from symattn.document.drawing.scene import Role
from symattn.document.render.mathml import ROLES

# role → (name of the variable of a page, on light paper, on dark paper)
COLOURS: dict[Role, tuple[str, str, str]] = {
    "paper": ("bg", "#FFFFFF", "#15171A"),
    "ink": ("ink", "#1B1C1E", "#E8E6E1"),
    "mute": ("mute", "#5F6368", "#A3A8AE"),
    "rule": ("rule", "#D9D7D2", "#363A40"),
    "tint": ("tint", "#F5F4F1", "#1E2125"),
    "q": ("q", *ROLES["query"]),
    "k": ("k", *ROLES["key"]),
    "v": ("v", *ROLES["value"]),
    "score": ("s", *ROLES["score"]),
    "weight": ("a", *ROLES["weight"]),
    "output": ("o", *ROLES["output"]),
}
SHADE = 0.36
"""How much of a cell the largest weight covers, so that ink is read on every shade."""


def mixed(below: str, above: str, share: float) -> str:
    """The colour of ``above`` that covers a ``share`` of what is below."""
    parts = (round(b + (a - b) * share) for a, b in zip(_parts(above), _parts(below), strict=True))
    return "#" + "".join(f"{x:02X}" for x in parts)


def _parts(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
