"""Objects with a document, which notebooks show and ``print`` prints as text. Renderers are imported on demand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from symattn.document.keywords import answering

if TYPE_CHECKING:
    from symattn.document.evidence import Verdict
    from symattn.document.model import Document

# a notebook is one page: a document shown twice must not use the same names in it
_SHOWN = count(1)


class Shown:
    """An object that notebooks show as its document, as HTML if they can; ``repr`` and ``print`` stay as they are."""

    __slots__ = ()

    def document(self) -> Document:
        """Return the document that is shown."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self._render_document_as("html", fragment=True, shown=next(_SHOWN))

    def _repr_latex_(self) -> str:
        return self._render_document_as("latex", fragment=True)

    def _repr_markdown_(self) -> str:
        return self._render_document_as("markdown")

    def _render_document_as(self, form: str, **options: object) -> str:
        from symattn.document.render import render

        return render(self.document(), form, **options)


class Printable(Shown, ABC):
    """An object that prints as text, and converts to every format, by its document."""

    __slots__ = ()

    @abstractmethod
    def document(self) -> Document:
        """Return the document that is printed."""

    @property
    def holds(self) -> bool | None:
        """Return whether what was asked holds: False for a fault or a false statement, None for an open question."""
        return self.document().holds

    @answering
    def text(self, *, ascii: bool = False, columns: int = 80) -> str:
        """Return text, of at most ``columns`` columns if its formulas permit; ``ascii`` spells every sign in ASCII."""
        return self._render_document_as("text", ascii=ascii, columns=columns)

    @answering
    def latex(self, *, fragment: bool = False) -> str:
        """Return LaTeX: a whole file, or a ``fragment`` without preamble, to be included in a file."""
        return self._render_document_as("latex", fragment=fragment)

    @answering
    def markdown(self) -> str:
        """Return Markdown, with formulas that GitHub shows."""
        return self._render_document_as("markdown")

    @answering
    def html(self, *, fragment: bool = False) -> str:
        """Return a page of HTML that loads nothing, or a ``fragment``: one element with its own style."""
        return self._render_document_as("html", fragment=fragment)

    @answering
    def json(self) -> str:
        """Return JSON: the text of an object with the keys listed in the documentation."""
        return self._render_document_as("json")

    @answering
    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write a file in the format of its suffix: ``.tex``, ``.md``, ``.html``, ``.json``,
        ``.txt``.

        The file is written atomically. Raises ``InputError`` for another suffix, and for a file that symattn did not
        write unless ``force`` is true.
        """
        from symattn.document import files
        from symattn.document.render import format_of

        target = Path(path)
        files.write(target, self._render_document_as(format_of(target)), force)

    def __str__(self) -> str:
        return self.text().rstrip("\n")

    def _make_brief_repr(self, words: str) -> str:
        """Return a short ``repr`` with the ways to see the whole."""
        return f"<{words}; print it, or .latex(), .markdown(), .html(), .json(), .save(path)>"


class WithVerdict(Printable):
    """A report with a verdict, which determines the exit code of the command line."""

    __slots__ = ()

    if TYPE_CHECKING:  # a field of some reports, a property of others

        @property
        def verdict(self) -> Verdict:
            """The verdict."""

    @property
    def holds(self) -> bool | None:
        """Whether what was asked holds: False for a fault, None if that is undecided."""
        return self.verdict.holds

    @property
    def exit_code(self) -> int:
        """The exit code: 0 no fault, 1 a fault, 3 undecided."""
        return self.verdict.exit_code
