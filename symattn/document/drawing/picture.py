"""A picture: a scene that can be written as SVG, PDF or PNG."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from symattn.document.drawing import svg
from symattn.document.drawing.scene import Scene
from symattn.document.errors import InputError
from symattn.document.render import files
from symattn.document.render.common import MARK
from symattn.document.render.html_style import STYLE

FORMS = ("svg", "pdf", "png")


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture as ``symattn.draw`` returns it. ``title`` and ``description`` say what is seen, with its numbers."""

    topic: str
    scene: Scene
    command: str

    @property
    def title(self) -> str:
        """The title."""
        return self.scene.title

    @property
    def description(self) -> str:
        """The picture in words and numbers, for who does not see it."""
        return self.scene.description

    def svg(self, fragment: bool = False) -> str:
        """As SVG: a file with its own colours, or a ``fragment`` that takes the variables of its page."""
        return svg.render(self.scene, fragment, self._mark)

    def bytes(self, form: str = "svg", fragment: bool = False) -> bytes:
        """As a file has it. Raises InputError for an unknown form, MissingExtra for PDF and PNG without matplotlib."""
        if form == "svg":
            return self.svg(fragment).encode()
        if form in FORMS:
            from symattn.document.drawing import typeset

            return typeset.render(self.scene, form, self._mark)
        raise InputError(f"form must be one of {', '.join(FORMS)}, got {form!r}")

    def save(self, path: str | PathLike[str], *, force: bool = False) -> Path:
        """Write a file in the form that its suffix names. Raises InputError where it must not or cannot be written."""
        target = Path(path)
        form = form_of(target)
        files.check(target, force)
        files.write(target, self.bytes(form), force)
        return target

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        """Return what notebooks show: in the colours of the page around it, with no rule for what is not within it."""
        return f'<style>{STYLE}</style>\n<div class="symattn bare">{self.svg(fragment=True)}</div>\n'

    def __repr__(self) -> str:
        return f"<picture {self.topic!r}: {self.title}; .svg(), .save(path)>"

    @property
    def _mark(self) -> str:
        return f"{MARK}: {self.command}"


def form_of(path: Path) -> str:
    """The form that a suffix names. Raises InputError where it names none."""
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMS:
        raise InputError(f"a picture is written as .svg, .pdf or .png, and {str(path)!r} names none of them")
    return form
