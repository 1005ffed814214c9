"""What notebooks show: every object in three forms, elements where they belong, no display that changes another."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import (
    Attention,
    Block,
    Document,
    Evidence,
    Grade,
    evaluate,
    functional,
    kind,
    kinds,
    printing,
    prove,
    rounded,
    theorem,
    walk,
)
from symattn.arrays.base import ArrayBase
from symattn.arrays.computed import in_format
from symattn.arrays.floats import Float64
from symattn.arrays.formats import Format
from tests.document.render.test_html import Page
from tests.document.render.test_latex_compiles import compiled

THIRDS = [[1, 2, 0], [0, "1/3", 1]]
EXACT = kind("exact").lift(THIRDS)


@theorem(
    "shift",
    "softmax",
    "softmax(s + t) = softmax(s)",
    arrays={"s": "n m", "t": "n 1"},
    false=lambda s, t: (functional.softmax(t * s), functional.softmax(s)),
    false_says="softmax(t s) = softmax(s)",
)
def shift(s: Any, t: Any) -> Any:
    return functional.softmax(s + t), functional.softmax(s)


ARRAYS: dict[str, Callable[[], Any]] = {
    "exact": lambda: EXACT,
    "ball": lambda: kind("ball").lift(THIRDS),
    "enclosure": lambda: kind("enclosure").lift(THIRDS),
    "symbolic": lambda: kind("symbolic").letters("q", 2, 3),
    "float64": lambda: Float64.lift(np.eye(2, 3)),
    "bfloat16": lambda: kind("bfloat16").lift(np.eye(2, 3)),
    "float8_e4m3fn": lambda: kind("float8_e4m3fn").lift(np.eye(2, 3)),
    "modular": lambda: kinds.modular(seed=1).letters(2, 3),
    "rounded float16": lambda: rounded("float16").lift(THIRDS),
    "dual exact": lambda: kinds.dual(type(EXACT)).made(EXACT, EXACT),
    "tape over exact": lambda: kinds.tape(EXACT.xp).variable(EXACT),
    "tape over NumPy": lambda: kinds.tape(np).variable(np.eye(2, 3)),
    "ball, rounded": lambda: in_format(Format("float16")).lift(THIRDS),
    "indexed": lambda: kinds.Indexed.letters("q", "n", "d"),
}
OTHERS: dict[str, Callable[[], Any]] = {
    "specification": lambda: Attention(causal=True),
    "block": lambda: Block(attention=Attention(), norm=None),
    "trace": lambda: Attention(causal=True).trace(EXACT, EXACT, np.eye(2)[:, :1]),
    "evaluation": lambda: evaluate(Attention(), {"q": [[0]], "k": [[1], [2]], "v": [[1], [2]]}, digits=4),
    "theorem": lambda: shift,
    "proof": lambda: prove("softmax-shift"),
    "walk": walk,
}


@pytest.mark.parametrize("name", [*ARRAYS, *OTHERS])
def test_every_object_has_three_forms(name: str) -> None:
    shown = (ARRAYS | OTHERS)[name]()
    page = Page(shown._repr_html_())
    assert page.wrong == []
    assert page.tags.isdisjoint({"script", "html", "body", "link"})
    words = name.partition(",")[0] if name in ARRAYS else ""
    assert words in page.text
    assert words in shown._repr_markdown_()
    assert r"\documentclass" not in shown._repr_latex_()
    assert shown._repr_latex_().startswith("% Made with symattn")


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_names_its_shape_and_its_dtype(name: str) -> None:
    array = ARRAYS[name]()
    text = " ".join(array.document().text().split())
    assert ", n × d," in text if name == "indexed" else ", 2 × 3," in text
    assert array.dtype is None or str(array.dtype) in text
    assert array.holds in text
    assert array.holds != ArrayBase.holds


def cells(array: Any) -> dict[tuple[int, ...], str]:
    """What a display shows at which place, by the labels of its rows and columns."""
    lines = [line[2:-2].split(" | ") for line in array._repr_markdown_().splitlines() if line.startswith("| ")]
    heads, _, *rows = [[cell.strip() for cell in line] for line in lines]
    labelled = not heads[0]
    return {
        (*map(int, row[0].split(", ") if labelled else ()), int(head)): cell.strip("$")
        for row in rows
        for head, cell in zip(heads, row, strict=True)
        if head not in ("", "⋯") and "⋮" not in row[0]
    }


@pytest.mark.parametrize("shape", [(3,), (30,), (2, 3), (9, 8), (8, 9), (40, 40), (2, 3, 4), (3, 10, 10), (1, 1, 1, 9)])
def test_elements_stand_at_their_places(shape: tuple[int, ...]) -> None:
    numbers = np.arange(np.prod(shape)).reshape(shape)
    shown = cells(kind("exact").lift(numbers))
    assert shown == {at: str(numbers[at]) for at in shown}
    missing = numbers.size - len(shown)
    words = f"Of its {numbers.size} elements {missing} are left out."
    text = " ".join(kind("exact").lift(numbers).document().text().split())
    assert ("elements" in text, words in text) == (missing > 0, missing > 0)
    assert {(0,) * len(shape), tuple(n - 1 for n in shape)} <= {*shown}
    other = numbers[..., ::-1]
    assert shape[-1] == 1 or cells(kind("exact").lift(other)) != shown


def test_what_is_no_number_and_what_is_long() -> None:
    run = Attention(causal=True, scale=1).trace(EXACT, EXACT, EXACT)
    assert cells(run["masked"])[0, 1] == r"-\infty"
    undefined = EXACT / kind("exact").lift(0)
    assert "undefined" in cells(undefined)[0, 0]
    deep = Attention(scale=1)(*[kind("exact").lift([[str(n + i / 7)] for i in range(9)]) for n in range(3)])
    assert cells(deep)[0, 0].startswith("≈ ")
    exact = float(deep.item() if deep.size == 1 else deep.entries[0, 0].to_float())
    assert float(cells(deep)[0, 0].removeprefix("≈ ")) == pytest.approx(exact, rel=1e-5)


def test_to_be_shown_changes_nothing() -> None:
    enclosure = Attention()(*[kind("enclosure").lift(THIRDS)] * 3)
    before = enclosure.common, enclosure.mid.copy(), enclosure.rad.copy()
    enclosure._repr_html_()
    assert enclosure.common is before[0]
    assert np.array_equal(enclosure.mid, before[1])
    assert np.array_equal(enclosure.rad, before[2])


def test_no_grade_where_nothing_was_decided() -> None:
    assert [*shift.document().evidence()] == []
    assert not any(grade.value in re.findall(r"\w+", shift.document().text()) for grade in Grade)
    assert repr(shift) == "<theorem 'shift': softmax(s + t) = softmax(s); symattn.prove decides it>"
    blank = walk(blank="5,6")
    assert repr(blank).startswith("<walk 'eight-step'; print it") or any(blank.evidence())


# -- in one page with others -------------------------------------------------------------------------------------------
def names_within(html: str) -> set[str]:
    """The names by which parts of a page find one another."""
    return set(re.findall(r'\b(?:id|name|for)="([^"]+)"', html))


@pytest.mark.deep
def test_the_same_document_twice_shares_no_names() -> None:
    document = walk()
    assert names_within(document.html(fragment=True)) & names_within(document.html(fragment=True))
    first, second = document._repr_html_(), document._repr_html_()
    assert names_within(first)
    assert not names_within(first) & names_within(second)


def leaks(style: str) -> list[str]:
    """The selectors of a style that speak of what is not within ``.symattn``; what is nested in a rule is within it."""
    rules = re.sub(r"@media[^{]*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}", r"\1", style)
    while "{" in (inner := re.sub(r"\{[^{}]*\}", ";", rules)):
        rules = inner
    selectors = [s.strip() for heads in re.findall(r"([^{};]+)(?:\{[^{}]*\}|;)", rules) for s in heads.split(",")]
    return [s for s in selectors if s and not re.match(r"(?:\[[^\]]+\] |\.[\w-]+ )?\.symattn(?![\w-])", s)]


def style_of_fragment() -> str:
    """The style that stands in what a notebook shows."""
    found = re.search(r"<style>(.*?)</style>", EXACT._repr_html_(), re.DOTALL)
    assert found
    return found[1]


def test_no_rule_leaves_its_fragment() -> None:
    assert leaks(style_of_fragment()) == []
    assert leaks("td{color:red}.symattn td,p{margin:0}@media print{body{margin:0}.symattn{color:red}}") == [
        "td", "p", "body",
    ]  # fmt: skip


@pytest.mark.parametrize("place", ["[data-theme=dark]", "[data-jp-theme-light=false]", ".vscode-dark", "[theme=dark]"])
def test_dark_notebooks_get_dark_pages(place: str) -> None:
    style = style_of_fragment()
    rules = [r for r in style.split("}") if f"{place} .symattn" in r]
    assert any(r.endswith("{color-scheme:dark") for r in rules)
    assert {"--sa-paper:light-dark(#FFFFFF,#15171A)", "--sa-ink:light-dark(#1B1C1E,#E8E6E1)"} <= set(
        re.findall(r"--sa-\w+:light-dark\([^)]*\)", style)
    )


def test_a_document_without_evidence_claims_none() -> None:
    empty = Document("derivation", "x", ("x",), ())
    assert repr(empty).startswith("<derivation 'x'; print it")
    step = printing.Steps((printing.Step(printing.Node(), evidence=Evidence(Grade.PROVED)),))
    assert repr(Document("derivation", "x", ("x",), (step,))).startswith("<derivation 'x': proved;")


@pytest.mark.latex
def test_latex_of_all_displays_compiles_in_one_article(tmp_path: Path) -> None:
    shown = [f"\\section{{}}\n{make()._repr_latex_()}" for make in (ARRAYS | OTHERS).values()]
    head = "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage{amsmath,amssymb,graphicx}\n"
    compiled(head + "\n".join(("\\begin{document}", *shown, "\\end{document}")), tmp_path)
