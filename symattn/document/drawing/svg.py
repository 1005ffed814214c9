"""A scene as SVG: a file with its own colours, light and dark, or a fragment that uses those of its page."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from math import hypot
from xml.sax.saxutils import escape, quoteattr

from symattn.document.drawing.scene import RAISED, WIDTH, Box, Item, Label, Line, Point, Role, Scene
from symattn.document.render.common import comment
from symattn.document.render.mathml import ROLES

# Role → (name of the variable of a page, on light paper, on dark paper), each with a contrast of at least 4.5 to it.
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
"""The opacity of the largest weight in a cell, such that ink is readable on every shade."""

FONTS = (
    "'Source Serif 4',Charter,'Bitstream Charter','Sitka Text',Cambria,Georgia,'DejaVu Serif',serif"
)
LIFT = {-1: 0.22, 1: -0.38}
"""The distance of an index or an exponent from the baseline, relative to the size of its label."""


def render(scene: Scene, fragment: bool = False, mark: str = "") -> str:
    """Render a scene, the same bytes for the same scene; ``mark``, in a comment at the start, identifies our files."""
    body = "".join(_write_svg_item(item, fragment) for item in scene.items)
    # Ids differ between pictures of one page, and are the same whenever a picture is made again.
    drawn = scene.title + scene.description + body
    key = f"sa-{zlib.crc32(drawn.encode()):08x}"
    width, height = _svg_number(WIDTH), _svg_number(scene.height)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="{key}-t {key}-d"'
    style = ' style="max-width:100%;height:auto">' if fragment else ">"
    words = f'<title id="{key}-t">{escape(scene.title)}</title>'
    words += f'<desc id="{key}-d">{escape(scene.description)}</desc>'
    light, dark = (
        "".join(f".{role}{{fill:{c[n]}}}.{role}-l{{stroke:{c[n]}}}" for role, c in COLOURS.items())
        for n in (1, 2)
    )
    sheet = f"<style>{light}@media (prefers-color-scheme:dark){{{dark}}}</style>"
    own = "" if fragment else f'{sheet}<rect class="paper" width="100%" height="100%"/>'
    opening_comment = f"{comment(mark)}\n" if mark else ""
    return (
        f'{opening_comment}{opening}{style}{words}{own}<g font-family="{FONTS}">{body}</g></svg>\n'
    )


def head(line: Line) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
    """Return the points of an arrow's line, which ends where its head begins, and the corners of its head."""
    (x0, y0), (x1, y1) = line.points[-2:]
    # An arrow of length 0 has no direction; the bound avoids a division by 0.
    long = max(hypot(x1 - x0, y1 - y0), 1e-9)
    # No head is longer than its arrow.
    reach = min(6 + 1.2 * line.width, long)
    across = x1 - x0
    down = y1 - y0
    dx, dy, half = across / long, down / long, reach * 0.42
    foot = (x1 - dx * reach, y1 - dy * reach)
    corners = (
        (x1, y1),
        (foot[0] - dy * half, foot[1] + dx * half),
        (foot[0] + dy * half, foot[1] - dx * half),
    )
    return (*line.points[:-1], foot), corners


def _write_svg_item(item: Item, fragment: bool) -> str:
    if isinstance(item, Line):
        return "".join(_yield_svg_line_paths(item, fragment))
    if isinstance(item, Label):
        anchor = f' text-anchor="{item.anchor}"' if item.anchor != "start" else ""
        turned = (
            f' transform="rotate(-90 {_svg_number(item.x)} {_svg_number(item.y)})"'
            if item.upwards
            else ""
        )
        x = _svg_number(item.x)
        y = _svg_number(item.y)
        place = f' x="{x}" y="{y}" font-size="{_svg_number(item.size)}"'
        fill = _svg_fill(item.role, fragment)
        spans = "".join(_svg_spans(item, fragment))
        return f"<text{place}{fill}{anchor}{turned}>{spans}</text>"
    note = f"<title>{escape(item.note)}</title>" if item.note else ""
    if isinstance(item, Box):
        fill = _svg_fill(item.fill, fragment) if item.fill else ' fill="none"'
        fill += f' fill-opacity="{_svg_number(item.share, 3)}"' if item.share != 1 else ""
        edge = _svg_stroke(item.edge, fragment) if item.edge else ""
        return _write_svg_element(
            "rect",
            _write_svg_rectangle(item.x, item.y, item.width, item.height) + fill + edge,
            note,
        )
    fill, side = _svg_fill(item.role, fragment), 2 * item.size
    if item.shape == "disc":
        centre = f' cx="{_svg_number(item.x)}" cy="{_svg_number(item.y)}"'
        radius = f' r="{_svg_number(item.size)}"'
        return _write_svg_element("circle", f"{centre}{radius}{fill}", note)
    left = item.x - item.size
    top = item.y - item.size
    rectangle = _write_svg_rectangle(left, top, side, side)
    return _write_svg_element("rect", rectangle + fill, note)


def _write_svg_element(name: str, attributes: str, inner: str) -> str:
    classes = attributes.split(' class="')
    if len(classes) > 2:  # both fill and edge of a box
        joined = " ".join(part.split('"')[0] for part in classes[1:])
        attributes = (
            classes[0]
            + "".join(part.split('"', 1)[1] for part in classes[1:])
            + f' class="{joined}"'
        )
    if inner:
        return f"<{name}{attributes}>{inner}</{name}>"
    return f"<{name}{attributes}/>"


def _write_svg_rectangle(x: float, y: float, width: float, height: float) -> str:
    corner = f' x="{_svg_number(x)}" y="{_svg_number(y)}"'
    return f'{corner} width="{_svg_number(width)}" height="{_svg_number(height)}"'


def _yield_svg_line_paths(line: Line, fragment: bool) -> Iterator[str]:
    points, corners = head(line) if line.head else (line.points, ())
    dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
    colour, width = _svg_stroke(line.role, fragment), _svg_number(line.width)
    stroke = f'{colour} stroke-width="{width}" stroke-linejoin="round"{dash}'
    yield f'<path d="{_write_path_points(points)}" fill="none"{stroke}/>'
    if corners:
        yield f'<path d="{_write_path_points(corners)}z"{_svg_fill(line.role, fragment)}/>'


def _write_path_points(points: tuple[Point, ...]) -> str:
    places = (f"{_svg_number(x)} {_svg_number(y)}" for x, y in points)
    return "M" + "L".join(places)


def _svg_spans(label: Label, fragment: bool) -> Iterator[str]:
    level = 0.0
    for run in label.runs():
        lift = LIFT.get(run.level, 0.0) * label.size
        # dy counts from the run before, so that the way back to the baseline needs a dy as well.
        moved = f' dy="{_svg_number(lift - level)}"' if lift != level else ""
        colour = _svg_fill(run.role, fragment) if run.role != label.role else ""
        italic = ' font-style="italic"' if run.italic else ""
        less = f' font-size="{_svg_number(label.size * RAISED)}"' if run.level else ""
        level, result = lift, moved + colour + italic + less
        yield f"<tspan{result}>{escape(run.text)}</tspan>" if result else escape(run.text)


def _svg_fill(role: Role, fragment: bool) -> str:
    return f" fill={_write_svg_colour(role)}" if fragment else f' class="{role}"'


def _svg_stroke(role: Role, fragment: bool) -> str:
    return f" stroke={_write_svg_colour(role)}" if fragment else f' class="{role}-l"'


def _write_svg_colour(role: Role) -> str:
    name, light, _ = COLOURS[role]
    return quoteattr(f"var(--{name},{light})")


def _svg_number(x: float, digits: int = 1) -> str:
    """Return a number with as few digits as possible: 3, 2.5; never −0."""
    shown = f"{x:.{digits}f}".rstrip("0").rstrip(".")
    return "0" if shown in ("-0", "") else shown
