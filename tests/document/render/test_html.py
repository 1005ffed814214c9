"""Pages load nothing, are well formed, let no text become markup, and hold what the other forms hold."""

import json
import re
import typing
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from symattn import (
    Document,
    Evidence,
    Grade,
    InputError,
    RMSNorm,
    bound,
    claim,
    derivations,
    derive,
    draw,
    explore,
    prove,
    verify,
    walk,
)
from symattn import printing as pr
from tests.derivations.test_excerpts import LONG
from tests.document.render import samples
from tests.shown.standard import contrast

_VOID = {"meta", "input", "br", "mspace"}
_CORE = {
    "math", "mi", "mo", "mn", "mrow", "mtext", "mspace", "mfrac", "msqrt", "msup", "msub", "msubsup", "munder",
    "munderover", "mtable", "mtr", "mtd",
}  # fmt: skip
_ARITY = {"mfrac": 2, "msup": 2, "msub": 2, "munder": 2, "msubsup": 3, "munderover": 3}


class Page(HTMLParser):
    """What is open, which elements there are, and how many children those of MathML have."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[list[object]] = []
        self.tags: set[str] = set()
        self.wrong: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        self.wrong += [f"{tag} is not closed" for tag, _ in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if self.open:
            self.open[-1][1] += 1  # type: ignore[operator]
        self.wrong += [f"{tag} {n}={v}" for n, v in attrs if n in ("src", "href") and not (v or "").startswith("#")]
        if any(t == "math" for t, _ in self.open) and tag not in _CORE:
            self.wrong.append(f"{tag} within math")
        if tag not in _VOID:
            self.open.append([tag, 0])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1][1] += 1  # type: ignore[operator]

    def handle_endtag(self, tag: str) -> None:
        opened, children = self.open.pop()
        if opened != tag:
            self.wrong.append(f"{opened} is closed as {tag}")
        if _ARITY.get(tag, children) != children:
            self.wrong.append(f"{tag} has {children} parts")

    def handle_data(self, data: str) -> None:
        self.text += data


OTHERS: dict[str, Callable[[], Any]] = {
    "walk": walk,
    "proof": lambda: prove("softmax-shift"),
    "verification": lambda: verify(lambda x, weight: x, RMSNorm(eps=0.25), examples=0),
    "bound": lambda: bound(n=64, d_k=8),
    "claim": lambda: claim("weights", 0.3, 0.7, 0.1),
}


@pytest.mark.deep
@pytest.mark.parametrize("topic", derivations.names())
def test_derivations_are_pages(topic: str) -> None:
    """Both the short answer, which a page shows by default, and the whole derivation; of one or two results they are
    the same."""
    short = derivations.cached(topic)  # ``derive``, shared with all tests that print it
    whole = short.whole()
    _well(short)
    if topic in LONG:
        _well(whole)
    else:
        assert whole == short
        assert sum(isinstance(block, pr.Result) for block in short.blocks) <= 2
        assert "--all" not in short.text()


@pytest.mark.deep
@pytest.mark.parametrize("kind", OTHERS)
def test_other_documents_are_pages(kind: str) -> None:
    found = OTHERS[kind]()
    _well(found if isinstance(found, Document) else found.document())


def _well(document: Document) -> None:
    whole, fragment = document.html(), document.html(fragment=True)
    assert whole == document.html()
    assert fragment == document.html(fragment=True)
    for shown in (whole, fragment):
        assert Page(shown).wrong == []
        assert "@import" not in shown
        assert set(re.findall(r"url\((.{5})", shown)) <= {"data:"}
    assert "<html" in whole
    assert "<html" not in fragment
    assert "<script" not in fragment
    grades = {e.grade.value for e in document.printed().evidence()}
    assert all(f" {grade}" in Page(whole).text for grade in grades)


@pytest.mark.parametrize(("levels", "parts"), [((2, 2, 1, 2, 2, 1), ["33", "233", "2"]), ((1, 1, 2), ["2", "23"])])
def test_a_part_stands_in_that_of_the_heading_above_it(levels: tuple[int, ...], parts: list[str]) -> None:
    blocks = tuple(pr.Heading(("x",), level) for level in levels)
    shown = pr.render(Document("listing", "x", ("x",), blocks), "html", fragment=True)
    assert Page(shown).wrong == []
    sections = shown.split('class="step"')[1:]
    assert ["".join(re.findall(r"<h(\d)", part)) for part in sections] == parts


def test_no_text_becomes_markup() -> None:
    evil = "<script>alert(1)</script>\" onclick='x' --> &amp;"
    blocks: list[pr.Block] = [
        pr.Heading((evil,)), pr.Paragraph((evil, pr.Emph(evil), pr.Code(evil), pr.Words(evil), pr.Name(evil))),
        pr.Table((pr.Column((evil,)),), (((evil,),),), caption=(evil,)), pr.Listing(evil), pr.Note((evil,)),
        pr.Values(evil, pr.Name("x"), ((pr.node(1),),), (("1",),), {evil: (("1",),)}),
        pr.Assumptions((pr.Assumption(evil, (evil,), (evil,)),)), pr.Items(((evil,),)), pr.Caveat((evil,), evil),
        pr.Steps((pr.Step(pr.equals(pr.Name(evil), 1), (evil,)),)),
    ]  # fmt: skip
    found = Page(pr.render(Document("listing", evil, (evil,), tuple(blocks), command=evil), "html", fragment=True))
    assert found.wrong == []
    assert found.tags.isdisjoint({"script", "img"})
    assert found.text.count("alert(1)") >= len(blocks)


@pytest.mark.parametrize("text", ["'--->", "-->", "--!>", "->", ">", "--dk 4 -", "---"])
def test_no_text_ends_a_comment(text: str, tmp_path: Path) -> None:
    document = Document("listing", "x", ("x",), (), command=text)
    shown = document.html().partition("\n")[0]
    inside = shown.removeprefix("<!-- ").removesuffix(" -->")
    assert "--" not in inside
    assert ">" not in inside
    assert unescape(inside) == f"Made with symattn: {text}"
    for _ in range(2):  # what symattn wrote it writes over
        document.save(tmp_path / "page.html")


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_no_command_becomes_a_script(form: str) -> None:
    evil = "symattn verify 'a--->.py:<img src=x>'"
    document = Document("listing", "x", ("x",), (), command=evil)
    found = Page(pr.render(document, form, **({"fragment": True} if form == "html" else {})))
    assert "img" not in found.tags
    assert "img" not in Page(replace(draw("masks", tokens=2), command=evil).svg()).tags


def test_arrays_have_their_forms() -> None:
    shown = walk().html()
    assert shown.count('type="radio"') >= 10
    for form in ("exact", "decimal", "float32"):
        assert f">{form}</label>" in shown


def math_of(formula: pr.Node, block: bool = True) -> str:
    """The formula on a page: in a box, or within a line."""
    held = pr.Result("It", (formula,), ()) if block else pr.Paragraph(("It is ", formula, "."))
    page = Document(kind="listing", name="it", title=("It",), blocks=(held,)).html()
    (found,) = re.findall("<math.*?</math>", page, re.DOTALL)
    return str(found)


def test_formulas() -> None:
    q = pr.name("q", 1, role="query")
    shown = '<math alttext="q₁"><mrow class="r-query"><msub><mi>q</mi><mn>1</mn></msub></mrow></math>'
    assert math_of(q, block=False) == shown
    assert "<mfrac><mn>1</mn><mn>2</mn></mfrac>" in math_of(pr.node(1) / 2)
    assert Page(math_of((pr.name("a") + 1) * (pr.name("b") - pr.name("c")))).text == "(a+1)\u2062(b−c)"
    assert math_of(pr.relation("a", "<", "b")).partition(">")[2].count("&lt;") == 1


@pytest.mark.parametrize("grade", Grade)
def test_pages_and_documentation_say_the_same_of_a_grade(grade: Grade) -> None:
    evidence = Evidence(grade, "", 1e-9 if grade is Grade.TESTED else None)
    block = pr.Steps((pr.Step(pr.equals("a", "b"), ("so",), evidence),))
    assert f"<span>{grade.means}</span>" in pr.render(Document("listing", "x", ("x",), (block,)), "html")
    named = grade.value + " ε" * (grade is Grade.TESTED)
    trust = Path(__file__).parents[3] / "docs" / "trust.md"
    assert f"\n| {named} | {grade.means} |\n" in trust.read_text(encoding="utf-8")


def _colours_of_roles() -> dict[str, str]:
    """Both colours of each role of a letter, by its name in the style of a page."""
    page = derive("shift").html()
    pairs = dict(re.findall(r"--sa-(\w+):light-dark\((#\w+,#\w+)\)", page))
    roles = {*re.findall(r"\.r-(\w+)\{", page), "paper", "tint", "ink", "mute"}
    return {role: pairs[role] for role in roles}


@pytest.mark.parametrize("role", typing.get_args(pr.Role))
def test_every_role_has_a_colour(role: str) -> None:
    letter = pr.name("q", role=typing.cast("pr.Role", role))
    assert role in _colours_of_roles()
    shown = Document("listing", "x", ("x",), (pr.Steps((pr.Step(letter),)),)).latex()
    (named,) = re.findall(r"\{\\color\{(\w+)\}q\}", shown)
    assert rf"\definecolor{{{named}}}{{HTML}}" in shown


def test_colours_of_text_stand_out_from_both_papers() -> None:
    pairs = _colours_of_roles()
    text = [role for role in pairs if role not in ("paper", "tint")]
    assert len(text) == 10
    for paper, wanted in (("paper", 4.5), ("tint", 4.4)):
        for one in text:
            for colour, under in zip(pairs[one].split(","), pairs[paper].split(","), strict=True):
                assert contrast(colour, under) >= wanted, (one, colour, under)


def test_fonts_are_small() -> None:
    fonts = re.findall(r"base64,([^)]*)\)", derive("shift").html())
    assert len(fonts) == 3
    assert sum(map(len, fonts)) <= 60_000


@pytest.mark.deep
def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "shift.html"
    assert main(["derive", "shift", "-o", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == derive("shift").html()
    assert main(["derive", "shift", "-o", str(page)]) == 0  # its own file is written again
    assert main(["derive", "shift", "--check", str(page)]) == 0
    assert main(["derive", "attention", "--causal", "-o", str(page)]) == 0
    assert main(["check", str(page)]) == 0  # the command is read from the mark
    page.write_text("<!doctype html><p>mine</p>", encoding="utf-8")
    assert main(["derive", "shift", "-o", str(page)]) == 2
    assert main(["derive", "shift", "-f", "html", "--fragment"]) == 0
    assert "<article" in capsys.readouterr().out


def test_samples() -> None:
    for document in (samples.derivation(), samples.walk()):
        page = Page(pr.render(document, "html"))
        assert page.wrong == []
        titles = [b["title"] for b in json.loads(document.json()).get("blocks", []) if "title" in b]
        assert all(re.sub(r"\W", "", str(t)) in re.sub(r"\W", "", page.text) for t in titles if isinstance(t, str))


def test_a_page_to_explore(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert main(["explore", "eight-step", "-o", str(path)]) == 0
    shown = path.read_text(encoding="utf-8")
    assert Page(shown).wrong == []
    assert len(shown) < 300_000
    ids = re.findall(r' id="([^"$]+)"', shown)
    assert len(ids) == len(set(ids))
    assert main(["explore", "eight-step", "--check", str(path)]) == 0
    assert main(["explore", "scaling", "-o", str(path)]) == 0
    assert main(["explore", "eight-step", "--check", str(path)]) == 1
    assert main(["explore", "eight-step", "-o", str(tmp_path / "page.txt")]) == 2
    assert main(["explore", "nothing", "-o", str(path)]) == 2


@pytest.mark.parametrize(
    ("source", "fields"),
    [("cross", {}), ("t5", {}), ("eight-step", {"softcap": 5}), ("eight-step", {"scale": 3}), ({"x": [[1] * 7]}, {})],
)
def test_what_a_page_has_no_form_for_is_refused(source: str | dict[str, object], fields: dict[str, object]) -> None:
    with pytest.raises(InputError, match="cannot be explored"):
        explore(source, **fields)


def test_a_wrong_name_is_refused_before_any_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symattn.derivations.explore.explore", lambda source: pytest.fail("it walks"))
    assert main(["explore", "-o", str(tmp_path / "x.svg")]) == 2


@pytest.mark.parametrize(("source", "fields"), [("eight-step", {"causal": True}), ({"x": [[1, 0], [0, 1]]}, {})])
def test_a_page_that_no_command_makes_names_none(source: str | dict[str, object], fields: dict[str, object]) -> None:
    assert explore(source, **fields).html().startswith("<!-- Made with symattn -->\n")
