"""Every formula of every document is read by KaTeX, MathJax and pdflatex alike."""

import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pytest

from symattn.document.model import Document
from tests.document.render.test_latex_compiles import together
from tests.shown import formulas, node
from tests.shown.formulas import Formula

pytestmark = pytest.mark.node

READERS = ("katex", "mathjax", "pdflatex")
# Markdown spells < and > in letters, since they open HTML there; KaTeX and MathJax know the words.
HEAD = "\\documentclass{article}\n\\usepackage{amsmath,amssymb}\n\\def\\lt{<}\\def\\gt{>}\n\\begin{document}\n"
RIGHT: Formula = (r"\tfrac{1}{2}", False)
WRONG: Formula = (r"\frac{1}{\nothing}", True)


@pytest.fixture(scope="module")
def found(documents: list[tuple[str, Document]]) -> Mapping[Formula, str]:
    return formulas.of(documents)


def refused(reader: str, wanted: Collection[Formula], folder: Path) -> list[str]:
    """Formulas that the reader refuses, each with what it says."""
    if reader == "pdflatex":
        shown = (rf"\[{tex}\]" if display else f"${tex}$\n" for tex, display in wanted)
        return errors(typeset(HEAD, (f"\\typeout{{AT {x}}}%\n{x_}" for x, x_ in enumerate(shown)), folder))
    lines = ({"tex": tex, "display": display} for tex, display in wanted)
    return [f"{x['tex']}: {x['error']}" for x in node.run("formulas.mjs", reader, lines=lines)]


def typeset(head: str, parts: Iterable[str], folder: Path) -> str:
    """The log of pdflatex, which goes on after an error."""
    assert shutil.which("pdflatex"), "pdflatex is missing"
    (folder / "it.tex").write_text("\n".join((head, *parts, "\\end{document}\n")), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "it.tex"]
    subprocess.run(command, cwd=folder, capture_output=True, timeout=300, check=False)
    log = (folder / "it.log").read_text(encoding="utf-8", errors="replace")
    assert "Output written on" in log, log[-2000:]
    return log


def errors(log: str) -> list[str]:
    """Each error, after the name of the part that it is in, with the line that shows where."""
    parts = re.split(r"^AT (.+)$", log, flags=re.MULTILINE)
    said = re.compile(r"^! .*|^l\.\d+ .*", re.MULTILINE)
    return [
        f"{at}: {' '.join(told)}"
        for at, part in zip(parts[1::2], parts[2::2], strict=True)
        if (told := said.findall(part))
    ]


@pytest.mark.parametrize("reader", READERS)
def test_every_formula_is_read(reader: str, found: Mapping[Formula, str], tmp_path: Path) -> None:
    assert len(found) > 2000
    assert refused(reader, found, tmp_path) == []


@pytest.mark.parametrize("reader", READERS)
def test_a_wrong_formula_is_refused(reader: str, tmp_path: Path) -> None:
    told = refused(reader, [RIGHT, WRONG, RIGHT], tmp_path)
    assert len(told) == 1
    assert "nothing" in told[0] or "Undefined" in told[0]


def test_every_document_compiles_and_fits(documents: list[tuple[str, Document]], tmp_path: Path) -> None:
    assert "Overfull \\hbox" not in together(documents, tmp_path)
