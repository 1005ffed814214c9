"""The book: every theorem of the catalogue as one volume, in every form."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from symattn.document.evidence import Grade
from symattn.document.model import Document
from symattn.document.render import render
from symattn.theorems import TOPICS, catalogue, of_topic, theorem_of
from symattn.theorems.book import book, title
from symattn.theorems.documents import table
from symattn.theorems.runner import run as decide_all


def volume(*topics: str, explain: bool = False) -> Document:
    theorems = [t for topic in topics for t in of_topic(topic)]
    return book(decide_all(theorems, dict, explain=explain, cached=False), "symattn report --book")


@pytest.fixture(scope="module")
def small() -> Document:
    return volume("masks", "heads")


@pytest.mark.deep
def test_the_book_has_contents_chapters_and_sections(small):
    shown = render(small, "text")
    assert re.search(
        r"^  1  How to read this book\n  2  Masks\n    2\.1  A mask is a restriction to the allowed keys$",
        shown,
        re.MULTILINE,
    )
    assert re.search(r"^3\.7  Latent keys are absorbed into the queries$", shown, re.MULTILINE)
    assert shown.count("False variant.") == 14
    assert shown.count("Source.") == 14


@pytest.mark.deep
def test_every_form(small):
    latex = render(small, "latex")
    assert r"\tableofcontents" in latex
    assert r"\subsection{Nothing leaks from the future}" in latex
    markdown = render(small, "markdown")
    assert "\n### Nothing leaks from the future\n" in markdown
    assert "\n  - Nothing leaks from the future\n" in markdown
    assert render(small, "latex", fragment=True).count(r"\subsubsection*") == 14


def test_every_theorem_has_a_title_in_words():
    titles = [title(theorem) for theorem in catalogue().values()]
    assert len(set(titles)) == len(titles)
    assert not any(name in titles for name in catalogue() if "-" in name)
    assert title(replace(theorem_of("softmax", "lse-bounds"), name="my-lse-lemma", title="")) == "My log-sum-exp lemma"


@pytest.mark.deep
def test_a_table_counts_the_grades():
    found = decide_all(of_topic("heads"), dict, cached=False)
    shown = render(table(found, "symattn prove --all", "theorems"), "text")
    assert "7 theorems: 7 proved" in shown
    assert "Of 7 false variants, 7 are refuted and 0 accepted." in shown


@pytest.mark.deep
def test_the_whole_catalogue(run):
    found = run("prove", "--all", "--jobs", "2")
    assert found.status == 0
    assert " undecided" not in found.stdout
    assert " 0 accepted." in " ".join(found.stdout.split())
    for name in catalogue():
        assert name in found.stdout


@pytest.mark.latex
@pytest.mark.parametrize("explain", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_the_whole_book_compiles(tmp_path: Path, explain: bool):
    assert shutil.which("pdflatex"), "pdflatex is needed"
    document = volume(*TOPICS, explain=explain)
    assert not any(evidence.grade is Grade.UNDECIDED for evidence in document.evidence())
    tmp_path.joinpath("book.tex").write_text(render(document, "latex"), encoding="utf-8")
    for _ in range(2):
        ran = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "book.tex"], cwd=tmp_path, capture_output=True
        )
        assert ran.returncode == 0, ran.stdout[-2000:].decode(errors="replace")
    log = tmp_path.joinpath("book.log").read_text(encoding="utf-8", errors="replace")
    assert re.findall(r"^Overfull .hbox .*", log, re.MULTILINE) == [], "a formula runs into the margin"
