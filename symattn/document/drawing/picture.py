"""A picture: a scene that can be written as SVG, PDF or PNG."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

from symattn.document import files
from symattn.document.drawing import svg
from symattn.document.drawing.scene import RAISED, WIDTH, Box, Label, Line, Mark, Scene
from symattn.document.errors import InputError, MissingExtra
from symattn.document.files import MARK
from symattn.document.render.html_style import STYLE

FORMS = ("svg", "pdf", "png")


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture returned by ``symattn.draw``. ``title`` and ``description`` describe it, with its numbers."""

    topic: str
    scene: Scene
    command: str

    @property
    def title(self) -> str:
        """The title."""
        return self.scene.title

    @property
    def description(self) -> str:
        """The picture in words and numbers, for readers who do not see it."""
        return self.scene.description

    def svg(self, fragment: bool = False) -> str:
        """Return SVG: a file with its own colours, or a ``fragment`` that uses the variables of its page."""
        return svg.render(self.scene, fragment, self._write_picture_mark)

    def bytes(self, form: str = "svg", fragment: bool = False) -> bytes:
        """Return the contents of a file. Raises InputError for an unknown form, MissingExtra without matplotlib."""
        if form == "svg":
            return self.svg(fragment).encode()
        if form not in FORMS:
            raise InputError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
        try:
            import matplotlib as mpl
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingExtra(f"matplotlib, for {form}", "plot") from error
        # Many publishers refuse fonts of type 3, which are matplotlib's default.
        with mpl.rc_context({"font.family": _FONTS, "pdf.fonttype": 42, "text.usetex": False}):
            figure = Figure(
                # 96 units are an inch, as pixels are in CSS.
                figsize=(WIDTH / 96, self.scene.height / 96),
                dpi=96,
                facecolor=_colour_for_matplotlib("paper"),
            )
            FigureCanvasAgg(figure)
            axes = figure.add_axes((0, 0, 1, 1))
            axes.set_xlim(0, WIDTH)
            # Heights of a scene grow downwards, as in SVG.
            axes.set_ylim(self.scene.height, 0)
            axes.axis("off")
            for item in self.scene.items:
                _DRAWN[type(item)](axes, item)
            return _save_figure_to_bytes(figure, self.scene, form, self._write_picture_mark)

    def save(self, path: str | PathLike[str], *, force: bool = False) -> Path:
        """Write a file in the form of its suffix. Raises InputError if it must not or cannot be written."""
        target = Path(path)
        form = form_of(target)
        files.check(target, force)
        files.write(target, self.bytes(form), force)
        return target

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: in the colours of the page around it, without rules for anything else."""
        return (
            f'<style>{STYLE}</style>\n<div class="symattn bare">{self.svg(fragment=True)}</div>\n'
        )

    def __repr__(self) -> str:
        return f"<picture {self.topic!r}: {self.title}; .svg(), .save(path)>"

    @property
    def _write_picture_mark(self) -> str:
        return f"{MARK}: {self.command}"


def form_of(path: Path) -> str:
    """Return the form of a suffix. Raises InputError for an unknown suffix."""
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMS:
        raise InputError(
            f"a picture is written as .svg, .pdf or .png, and {str(path)!r} names none of them"
        )
    return form


# -- a scene as PDF or PNG, by matplotlib, which is imported only here -------------------------------------------------
_FONTS = ["DejaVu Serif", "DejaVu Sans"]  # the second has ℓ
_POINTS = 0.75
"""Points per unit: 480 units are 5 inches."""


def _save_figure_to_bytes(figure: Any, scene: Scene, form: str, mark: str) -> bytes:
    target = BytesIO()
    if form == "pdf":
        metadata = {
            "Title": scene.title,
            "Subject": scene.description,
            "Creator": mark,
            # Without a date the same scene gives the same bytes.
            "CreationDate": None,
        }
    else:
        metadata = {"Software": mark, "Title": scene.title, "Description": scene.description}
    # Two pixels a unit, for screens of high density.
    figure.savefig(target, format=form, dpi=192, metadata=metadata)
    return target.getvalue()


def _colour_for_matplotlib(role: Any) -> str:
    return svg.COLOURS[role][1]


def _plot_line_on_axes(axes: Any, line: Line) -> None:
    points, corners = svg.head(line) if line.head else (line.points, ())
    # matplotlib multiplies dashes by the width of the line, and SVG does not.
    dash = [float(x) / line.width for x in line.dash.split()]
    style: Any = (0, dash) if dash else "-"
    xs, ys = zip(*points, strict=True)
    axes.plot(
        xs,
        ys,
        color=_colour_for_matplotlib(line.role),
        linewidth=line.width * _POINTS,
        linestyle=style,
    )
    if corners:
        axes.fill(*zip(*corners, strict=True), color=_colour_for_matplotlib(line.role), linewidth=0)


def _plot_box_on_axes(axes: Any, box: Box) -> None:
    from matplotlib.patches import Rectangle

    place = ((box.x, box.y), box.width, box.height)
    if box.fill:
        axes.add_patch(
            Rectangle(
                *place, facecolor=_colour_for_matplotlib(box.fill), alpha=box.share, linewidth=0
            )
        )
    if box.edge:
        axes.add_patch(
            Rectangle(
                *place, fill=False, edgecolor=_colour_for_matplotlib(box.edge), linewidth=_POINTS
            )
        )


def _write_picture_mark(axes: Any, mark: Mark) -> None:
    shape = "o" if mark.shape == "disc" else "s"
    axes.plot(
        [mark.x],
        [mark.y],
        shape,
        color=_colour_for_matplotlib(mark.role),
        markersize=2 * mark.size * _POINTS,
        markeredgewidth=0,
    )


def _plot_label_on_axes(axes: Any, label: Label) -> None:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    parts: list[tuple[Any, float, Any]] = []
    for run in label.runs():
        size = label.size * (RAISED if run.level else 1) * _POINTS
        font = FontProperties(family=_FONTS, style="italic" if run.italic else "normal", size=size)
        # matplotlib has no text of several styles, so runs are placed one by one by their widths.
        wide = text_to_path.get_text_width_height_descent(run.text, font, False)[0] / _POINTS
        parts.append((run, wide, font))
    whole = sum(wide for _, wide, _ in parts)
    along = {"start": 0.0, "middle": -whole / 2, "end": -whole}[label.anchor]
    for run, wide, font in parts:
        lift = svg.LIFT.get(run.level, 0.0) * label.size
        x, y = (
            (label.x + lift, label.y - along)
            if label.upwards
            else (label.x + along, label.y + lift)
        )
        turn = 90 if label.upwards else 0
        axes.text(
            x,
            y,
            run.text,
            fontproperties=font,
            color=_colour_for_matplotlib(run.role),
            va="baseline",
            rotation=turn,
            rotation_mode="anchor",
            # A dollar sign of a label is no formula.
            parse_math=False,
        )
        along += wide


_DRAWN: dict[type, Any] = {
    Line: _plot_line_on_axes,
    Box: _plot_box_on_axes,
    Mark: _write_picture_mark,
    Label: _plot_label_on_axes,
}
