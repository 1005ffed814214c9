"""Objects with a document, which notebooks show and print as text. Renderers are imported when asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symattn.document.evidence import Verdict
    from symattn.document.model import Document

_SHOWN = count(1)  # a notebook is one page: what is shown twice must not share names within it


class Shown:
    """An object that notebooks show as its document, as HTML if they can; ``repr`` and ``print`` stay as they are."""

    __slots__ = ()

    def document(self) -> Document:
        """The document that is shown."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self._as("html", fragment=True, shown=next(_SHOWN))

    def _repr_latex_(self) -> str:
        return self._as("latex", fragment=True)

    def _repr_markdown_(self) -> str:
        return self._as("markdown")

    def _as(self, form: str, **options: object) -> str:
        from symattn.document.render import render

        return render(self.document(), form, **options)


class Printable(Shown, ABC):
    """An object that prints as text and gives itself in every form, by its document."""

    __slots__ = ()

    @abstractmethod
    def document(self) -> Document:
        """The document that is printed."""

    def text(self, *, ascii: bool = False, columns: int = 80) -> str:
        """As text, of at most ``columns`` columns where its formulas allow it; ``ascii`` spells every sign in ASCII."""
        return self._as("text", ascii=ascii, columns=columns)

    def latex(self, *, fragment: bool = False) -> str:
        """As LaTeX: a whole file, or a ``fragment`` without preamble, to be included in a file."""
        return self._as("latex", fragment=fragment)

    def markdown(self) -> str:
        """As Markdown, with formulas that GitHub shows."""
        return self._as("markdown")

    def html(self, *, fragment: bool = False) -> str:
        """As a page of HTML that loads nothing; or as a ``fragment``, one element that brings its own style."""
        return self._as("html", fragment=fragment)

    def json(self) -> str:
        """As JSON: the text of an object with the keys that the documentation promises."""
        return self._as("json")

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write a file in the form that its suffix names: ``.tex``, ``.md``, ``.html``, ``.json``,
        ``.txt``.

        It is written whole or not at all. Raises ``InputError`` for another suffix, and for a file that symattn did not
        write unless ``force`` is true.
        """
        from symattn.document import files
        from symattn.document.render import format_of

        files.write(Path(path), self._as(format_of(Path(path))), force)

    def __str__(self) -> str:
        return self.text().rstrip("\n")

    def _brief(self, words: str) -> str:
        """Return what ``repr`` shows in place of everything that is in it."""
        return f"<{words}; print it, or .latex(), .markdown(), .html(), .json(), .save(path)>"


class WithVerdict(Printable):
    """A report that decides: its verdict is what the command line exits with."""

    __slots__ = ()

    if TYPE_CHECKING:  # a field of some reports, a property of others

        @property
        def verdict(self) -> Verdict:
            """The decision."""

    @property
    def exit_code(self) -> int:
        """0 no fault, 1 a fault, 3 undecided."""
        return self.verdict.exit_code
