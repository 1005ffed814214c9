"""Notebooks as pages: stored without outputs, run in a clean kernel while the site is built, shown with what came."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

_SECONDS = 300  # of one cell, after which a build ends rather than waits
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


def executed(source: str, folder: str | Path) -> Any:
    """The notebook with what its cells give, run from the first to the last in a kernel of its own.

    Raises ``ValueError`` where outputs are stored, and nbclient's ``CellExecutionError`` where a cell raises.
    """
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.reads(source, as_version=4)
    nbformat.validate(book)
    if any(
        cell.cell_type == "code" and (cell.outputs or cell.execution_count) for cell in book.cells
    ):
        raise ValueError("the notebook is stored with outputs; hint: clear them")
    quiet = [
        "--log-level=ERROR"
    ]  # a warning says that the kernel is spoken to in plain text, on this machine
    where = {"metadata": {"path": str(folder)}}
    return NotebookClient(book, timeout=_SECONDS, extra_arguments=quiet, resources=where).execute()


def markdown(book: Any) -> str:
    """An executed notebook as MyST: the text of its cells, their code, and below it what they give."""
    return "\n\n".join(part for cell in book.cells for part in _parts(cell)) + "\n"


def _parts(cell: Any) -> Iterator[str]:
    if cell.cell_type != "code":
        yield cell.source
        return
    yield _fenced("python", cell.source)
    for output in cell.outputs:
        yield _fenced(*shown(output))


def shown(output: Any) -> tuple[str, str]:
    """The fence and the text of an output: HTML first, as notebooks do."""
    data = {"text/plain": output.text} if output.output_type == "stream" else output.data
    for form in ("text/html", "image/svg+xml"):
        if form in data:
            return "{raw} html", data[form]
    return "none", _COLOURS.sub("", data["text/plain"].rstrip("\n"))


def _fenced(language: str, text: str) -> str:
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=2))
    return f"{ticks}{language}\n{text}\n{ticks}"


class Parser(MystParser):  # type: ignore[misc]
    """What Sphinx reads ``.ipynb`` with."""

    supported: ClassVar[tuple[str, ...]] = ("ipynb",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """The notebook is run, and read as MyST. Raises ``ExtensionError`` where it stores outputs or a cell raises."""
        from nbclient.exceptions import CellExecutionError

        place = Path(document["source"])
        try:
            book = executed(inputstring, place.parent)
        except (ValueError, CellExecutionError) as error:
            raise ExtensionError(f"{place}: {_COLOURS.sub('', str(error))}") from error
        super().parse(markdown(book), document)


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.setup_extension("myst_parser")
    app.add_source_suffix(".ipynb", "ipynb")
    app.add_source_parser(Parser)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
