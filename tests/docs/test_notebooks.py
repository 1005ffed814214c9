"""The notebooks of the documentation run from a clean kernel, show what they promise, and stand on the site with it."""

import json
import re
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sphinx")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytestmark = [pytest.mark.docs, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # where Jupyter keeps files

from sphinx.application import Sphinx  # noqa: E402
from sphinx.errors import ExtensionError  # noqa: E402

from tests.docs.pages import ROOT  # noqa: E402

sys.path.insert(0, str(ROOT / "docs" / "_ext"))
import notebooks  # noqa: E402

BOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
SHOWN = {
    "five-minutes": ("Step 6", "This exact array", "softmax(mask(", "Var", "∎ proved", "✗ refuted"),
    "verify-a-kernel": (
        "FAULT: scores are scaled by 1/",
        "NO FAULT: ",
        "weights are stored; in float16",
        "318 of 16384",
    ),
}


def text(book: Any) -> str:
    """What a reader sees of the outputs."""
    forms = [notebooks.shown(output)[1] for cell in book.cells for output in cell.get("outputs", ())]
    plain = unescape(re.sub(r"<style>.*?</style>|<[^>]*>", "", "\n".join(forms), flags=re.DOTALL))
    return " ".join(plain.split())


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_of_the_documentation(path: Path) -> None:
    stored = path.read_text(encoding="utf-8")
    assert len(stored) < 8000
    book = notebooks.executed(stored, path.parent)
    for cell in book.cells:
        if cell.cell_type == "code" and re.match(r"[\w.]+(\(|$)", cell.source.splitlines()[-1]):
            (output,) = cell.outputs
            assert output.output_type == "stream" or {"text/html", "text/plain"} <= {*output.data}, cell.source
    seen = text(book)
    assert [words for words in SHOWN[path.stem] if words not in seen] == []


def made(*cells: str, **more: Any) -> str:
    """A notebook with these cells of code."""
    usual = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], **more}
    full = [{"id": f"c{i}", "source": cell, **usual} for i, cell in enumerate(cells)]
    return json.dumps({"cells": full, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def built(folder: Path, book: str) -> str:
    """The page of a notebook."""
    told = "extensions = ['myst_parser', 'notebooks']\nroot_doc = 'page'\n"
    (folder / "conf.py").write_text(told, encoding="utf-8")
    (folder / "page.ipynb").write_text(book, encoding="utf-8")
    out = folder / "html"
    Sphinx(folder, folder, out, folder / "trees", "html", status=None, warning=None, warningiserror=True).build()
    return (out / "page.html").read_text(encoding="utf-8")


def test_a_page_shows_cells_and_what_they_give(tmp_path: Path) -> None:
    cells = ("from symattn import walk", "import json\nprint('a ``` and <b>')", "walk(step=5)")
    page = built(tmp_path, made(*cells).replace('"source": "from', '"source": "# A title\\nfrom'))
    shown = " ".join(unescape(re.sub("<[^>]*>", "", page)).split())
    assert "print('a ``` and <b>') a ``` and <b>" in shown
    assert '<article class="symattn' in page
    assert "Step 5" in shown.partition("walk(step=5)")[2]


def test_what_is_wrong_ends_a_build(tmp_path: Path) -> None:
    with pytest.raises(ExtensionError, match=r"page\.ipynb: [\s\S]*NameError"):
        built(tmp_path, made("x = 1", "y"))


def test_each_notebook_has_a_kernel_of_its_own() -> None:
    notebooks.executed(made("only_here = 1"), ".")
    with pytest.raises(Exception, match="only_here"):
        notebooks.executed(made("only_here"), ".")


@pytest.mark.parametrize("more", [{"execution_count": 1}, {"outputs": [{"output_type": "stream", "name": "stdout",
                                                                        "text": "x"}]}])  # fmt: skip
def test_outputs_are_not_stored(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="stored with outputs; hint"):
        notebooks.executed(made("1", **more), ".")
