"""The directive and the role: whole answers in every form, and a build that fails where they are false."""

import re
import runpy
from pathlib import Path
from subprocess import CompletedProcess

import pytest

pytest.importorskip("sphinx")
pytestmark = pytest.mark.docs

from pygments.styles import get_style_by_name  # noqa: E402
from pygments.token import Token  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.errors import ExtensionError  # noqa: E402

from symattn import draw  # noqa: E402
from tests.docs.pages import ROOT  # noqa: E402
from tests.document.render.test_html import contrast  # noqa: E402


def built(folder: Path, page: str, builder: str = "html") -> str:
    (folder / "conf.py").write_text('extensions = ["symattn.plugins.sphinx"]\n', encoding="utf-8")
    (folder / "index.rst").write_text(f"Page\n====\n\n{page}\n", encoding="utf-8")
    out = folder / builder
    app = Sphinx(folder, folder, out, folder / "doctrees", builder, status=None, warning=None, warningiserror=True)
    app.build()
    found = {"html": "index.html", "text": "index.txt", "latex": "*.tex", "man": "*.1", "texinfo": "*.texi"}[builder]
    return next(out.glob(found)).read_text(encoding="utf-8")


def test_an_answer_in_every_form(tmp_path: Path) -> None:
    page = ".. symattn:: derive shift\n"
    assert '<article class="symattn' in built(tmp_path, page)
    assert r"\begin{align*}" in built(tmp_path, page, "latex")
    for builder in ("text", "man", "texinfo"):
        assert "Softmax sees only differences" in built(tmp_path, page, builder)


def test_a_picture_and_a_formula(tmp_path: Path) -> None:
    shown = built(tmp_path, ".. symattn:: draw masks --causal --tokens 3\n\nBy :symattn:`scaling:5`.\n")
    assert "<svg" in shown
    assert "<mi>μ</mi>" in shown
    assert "(proved)" in shown


def test_letters_are_a_formula_and_a_relation_needs_a_grade(tmp_path: Path) -> None:
    assert "<msqrt>" in built(tmp_path, "Divided by :symattn:`√d_k`.\n")
    with pytest.raises(ExtensionError, match="a relation needs a grade"):
        built(tmp_path, "It is :symattn:`2 = 3`.\n")


@pytest.mark.parametrize("builder", ["latex", "text", "man", "texinfo"])
def test_a_picture_is_told_in_words_where_it_is_not_drawn(builder: str, tmp_path: Path) -> None:
    shown = built(tmp_path, ".. symattn:: draw masks --causal --tokens 3\n\nBy :symattn:`scaling:5`.\n", builder)
    picture = draw("masks", causal=True, tokens=3)
    words = re.sub(r"[\W\d]|sphinx\w*", "", shown)
    assert re.sub(r"[\W\d]", "", picture.title) in words
    assert re.sub(r"[\W\d]", "", picture.description) in words
    assert r"\mu" in shown if builder == "latex" else "μ" in shown or r"\(*m" in shown


def test_the_run_for_another_form_must_end_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(words: list[str], folder: str) -> CompletedProcess[str]:
        return CompletedProcess(words, 0 if "html" in words else 2, "<p>x</p>", "a fault")

    monkeypatch.setattr("symattn.plugins.sphinx._run_symattn_command", ran)
    assert "<p>x</p>" in built(tmp_path, ".. symattn:: derive shift\n")
    for builder in ("latex", "text"):
        with pytest.raises(ExtensionError, match="ends with 2 and not 0: a fault"):
            built(tmp_path, ".. symattn:: derive shift\n", builder)


TERMINAL = ".. symattn:: claim weights 0.3 0.7 0.1\n   :terminal:\n   :exit: 1\n"


@pytest.mark.parametrize("builder", ["html", "text", "latex"])
def test_a_terminal_shows_the_command_and_what_it_ends_with(builder: str, tmp_path: Path) -> None:
    shown = re.sub(r"<[^>]*>|\\PYG\w*(\{[a-z+]+\})?", "", built(tmp_path, TERMINAL, builder))
    words = re.sub(r"[^\w.:/]", "", shown)  # HTML and LaTeX mark up what the highlighter tells apart
    assert "symattnclaimweights0.30.70.1Canthesebearowofsoftmax" in words
    assert "Rescaled:3/117/111/11." in words
    assert re.search(r"symattnclaimweights0.30.70.1(.*)echo.{0,4}1", words)


def test_a_part_of_what_a_terminal_shows(tmp_path: Path) -> None:
    shown = built(tmp_path, f"{TERMINAL}   :start-at: Softmax sums\n   :end-before: decimal\n", "text")
    assert "this is 1/10 more" in shown
    assert "refuted" not in shown
    assert "decimal" not in shown


def test_words_of_the_page_may_stand_outside_of_the_part(tmp_path: Path) -> None:
    shown = built(tmp_path, f"{TERMINAL}   :says: Rescaled\n   :end-before: Softmax sums\n", "text")
    assert "3/10 + 7/10" in shown
    assert "Rescaled" not in shown


def test_what_lists_pictures_is_text(tmp_path: Path) -> None:
    assert "how" in built(tmp_path, ".. symattn:: draw --list\n", "text")
    assert '<span class="go">Pictures</span>' in built(tmp_path, ".. symattn:: draw --list\n")


FILE = """
.. symattn-file:: sheet.json

   {"q": [[1]], "k": [[2]], "v": [[VALUE]]}

.. symattn:: walk sheet.json --step 7
   :terminal:
"""


def test_commands_find_the_files_of_their_page(tmp_path: Path) -> None:
    assert "[5]" in built(tmp_path, FILE.replace("VALUE", "5"), "text").partition("output")[2]
    assert "[6]" in built(tmp_path, FILE.replace("VALUE", "6"), "text").partition("output")[2]
    with pytest.raises(ExtensionError, match="ends with 2 and not 0"):
        built(tmp_path, FILE[FILE.index(".. symattn::") :], "text")


def test_commands_of_a_page_without_files_run_beside_it(tmp_path: Path) -> None:
    (tmp_path / "sheet.json").write_text('{"q": [[1]], "k": [[2]], "v": [[7]]}', encoding="utf-8")
    assert "[7]" in built(tmp_path, FILE[FILE.index(".. symattn::") :], "text")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (".. symattn:: claim weights 0.3 0.7 0.1\n", "ends with 1 and not 0"),
        (".. symattn:: claim weights 0.3 0.7\n   :exit: 1\n", "ends with 0 and not 1"),
        (".. symattn:: derive nothing\n", "ends with 2 and not 0"),
        ("By :symattn:`scaling:900`.\n", "has no step '900'; hint"),
        ("By :symattn:`scaling:x`.\n", "has no step 'x'; hint: TOPIC:NUMBER"),
        ("By :symattn:`scaling`.\n", "has no step ''; hint: TOPIC:NUMBER"),
        ("By :symattn:`matrix-form`.\n", "matrix-form has no step ''; hint: TOPIC:NUMBER"),
        ("By :symattn:`nothing:1`.\n", "nothing"),
        ("\n\nBy :symattn:`scaling:x`.\n", r"index.rst:6: :symattn:`scaling:x`: scaling has no step"),
        ('.. symattn:: claim weights "0.3 0.7\n', "index.rst:4: `symattn claim .*: No closing quotation; hint: quote"),
        (f"{TERMINAL}   :start-at: nowhere\n", "start-at: 'nowhere' stands in no line"),
        (f"{TERMINAL}   :start-at: Softmax\n   :end-before: refuted\n", "end-before: 'refuted' stands in no line"),
        (f"{TERMINAL}   :says: nowhere\n", "says: 'nowhere' stands in no line"),
        (".. symattn:: derive shift\n   :says: nowhere\n", "are for text; hint: add :terminal:"),
        (".. symattn-file:: ../attn.py\n\n   x = 1\n", "is not a file's name; give"),
    ],
)
def test_what_is_false_fails_the_build(page: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ExtensionError, match=words):
        built(tmp_path, page)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_of_the_site_has_a_contrast_of_four_and_a_half(theme: str) -> None:
    conf = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    themed: dict[str, str] = conf["html_theme_options"][f"{theme}_css_variables"]
    start = {"light": r":root \{", "dark": r'body\[data-theme="dark"\] \{'}[theme]
    own = re.search(start + "(.*?)}", (ROOT / "docs/_static/site.css").read_text(encoding="utf-8"), re.DOTALL)
    assert own
    named = dict(re.findall(r"--(\w+): (#\w{6})", own[1]))
    style = get_style_by_name(conf["pygments_style" if theme == "light" else "pygments_dark_style"])
    text = [f"#{s['color']}" for token, s in style if s["color"] and token not in Token.Text.Whitespace]
    text += [c for name, c in themed.items() if re.search("foreground|brand|sidebar", name)]
    text += [c for name, c in named.items() if name not in ("bg", "tint", "rule")]
    papers = {themed["color-background-primary"], themed["color-code-background"], named["bg"], named["tint"]}
    assert len(text) > 20
    assert {(c, paper) for c in text for paper in papers if contrast(c, paper) < 4.5} == set()
    assert contrast("#999999", "#FFFFFF") < 4.5 < contrast("#666666", "#FFFFFF")
