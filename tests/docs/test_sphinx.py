"""The directive and the role: whole answers in every form, and a build that fails where they are false."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("sphinx")
pytestmark = pytest.mark.docs

from sphinx.application import Sphinx  # noqa: E402
from sphinx.errors import ExtensionError  # noqa: E402


def built(folder: Path, page: str, builder: str = "html") -> str:
    (folder / "conf.py").write_text('extensions = ["symattn.plugins.sphinx"]\n', encoding="utf-8")
    (folder / "index.rst").write_text(f"Page\n====\n\n{page}\n", encoding="utf-8")
    out = folder / builder
    app = Sphinx(folder, folder, out, folder / "doctrees", builder, status=None, warning=None, warningiserror=True)
    app.build()
    found = {"html": "index.html", "text": "index.txt"}.get(builder)
    return (out / found if found else next(out.glob("*.tex"))).read_text(encoding="utf-8")


def test_an_answer_in_every_form(tmp_path: Path) -> None:
    page = ".. symattn:: derive shift\n"
    assert '<article class="symattn">' in built(tmp_path, page)
    assert r"\begin{align*}" in built(tmp_path, page, "latex")
    assert "Softmax sees only differences" in built(tmp_path, page, "text")


def test_a_picture_and_a_formula(tmp_path: Path) -> None:
    shown = built(tmp_path, ".. symattn:: draw masks --causal --tokens 3\n\nBy :symattn:`scaling:5`.\n")
    assert "<svg" in shown
    assert "<mi>μ</mi>" in shown
    assert "(proved)" in shown


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (".. symattn:: claim weights 0.3 0.7 0.1\n", "ends with 1 and not 0"),
        (".. symattn:: claim weights 0.3 0.7\n   :exit: 1\n", "ends with 0 and not 1"),
        (".. symattn:: derive nothing\n", "ends with 2 and not 0"),
        ("By :symattn:`scaling:900`.\n", "has no step 900"),
        ("By :symattn:`nothing:1`.\n", "nothing"),
    ],
)
def test_what_is_false_fails_the_build(page: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ExtensionError, match=words):
        built(tmp_path, page)
