"""What each format promises: widths, escapes, keys, and the same bytes every time."""

import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import sympy

from symattn import Document, Evidence, Grade, Verdict, derive
from symattn import printing as pr
from tests.document.render import samples
from tests.printed import count_columns
from tests.refusals import refuses

pytestmark = pytest.mark.smoke

#: Made by the first test that needs them, not by whoever collects the tests.
DOCUMENTS = [cache(samples.derivation), cache(samples.walk)]
JACOBIAN = partial(derive, "jacobian")


def document(*blocks: pr.Block, **others: Any) -> Document:
    return Document(kind="listing", name="it", title=("It",), blocks=blocks, **others)


@pytest.mark.deep
@pytest.mark.parametrize("format", ["text", "latex", "markdown", "html", "json"])
@pytest.mark.parametrize("make", DOCUMENTS)
def test_the_same_bytes_every_time(format: str, make: Callable[[], Document]) -> None:
    it = make()
    shown = pr.render(it, format)
    assert shown == pr.render(it, format)
    assert shown.endswith("\n")
    assert not shown.endswith("\n\n")
    assert not any(line != line.rstrip() for line in shown.split("\n") if format == "text")
    assert "Made with symattn" in shown or json.loads(shown)["schema"] == 1


@pytest.mark.deep
def test_formats_by_suffix(tmp_path: Path) -> None:
    it = DOCUMENTS[0]()
    for name, format in (("b.TEX", "latex"), ("x.md", "markdown"), ("x.html", "html"), ("x.json", "json")):
        it.save(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8") == pr.render(it, format)
    refuses(it.save, tmp_path / "x.docx", says="suffix")
    refuses(pr.render, DOCUMENTS[0](), "pdf", says="format must be one of")


@pytest.mark.parametrize(
    ("ascii", "make"), [*((False, make) for make in DOCUMENTS), (True, JACOBIAN), (True, samples.walk)]
)
def test_text_has_at_most_80_columns(ascii: bool, make: Callable[[], Document]) -> None:
    shown = pr.render(make(), "text", ascii=ascii)
    assert [line for line in shown.splitlines() if count_columns(line) > 80] == []
    assert shown.isascii() == ascii


def test_paths_are_broken_after_their_separators_where_the_table_then_fits() -> None:
    row = ("model.layers.0.self_attn", "fla-org/flash-linear-attention#395", "transformers sdpa", "0.0046", "x" * 12)
    columns = tuple(pr.Column((title,), "left") for title in ("layer", "report", "via", "error", "verdict"))
    shown = pr.render(document(pr.Table(columns, (tuple((cell,) for cell in row),))), "text")
    assert max(map(len, shown.splitlines())) <= 80
    assert "fla-org/flash- " in shown
    assert "x" * 12 in shown


def test_a_word_is_not_broken_and_columns_stay_straight() -> None:
    rows = (("softmax-of-queries", "x" * 40, "owner/" + "repository" * 5), ("a", "b", "c"))
    columns = tuple(pr.Column((title,), "left") for title in ("name", "what", "where"))
    shown = pr.render(document(pr.Table(columns, tuple(tuple((cell,) for cell in row) for row in rows))), "text")
    lines = shown.splitlines()
    rule = next(line for line in lines if line.startswith("  ─"))
    starts = [found.start() for found in re.finditer("─+", rule)]
    for row in rows:
        line = next(line for line in lines if line.startswith(f"  {row[0]} "))
        assert [line[start:].split(" ")[0] for start in starts] == list(row)


def test_colour_changes_nothing_but_colour() -> None:
    for it in (make() for make in DOCUMENTS):
        assert "\x1b[" not in pr.render(it, "text")
        coloured = pr.render(it, "text", colour=True)
        assert "\x1b[31mq" in coloured or it.kind == "walk"
        assert re.sub(" +\n", "\n", re.sub(r"\x1b\[\d*m", "", coloured)) == pr.render(it, "text")


def test_steps_align_and_leave_out_a_repeated_side() -> None:
    lines = pr.render(samples.derivation(), "text").splitlines()
    third, fourth = (next(line for line in lines if line.startswith(f"  {i}  ")) for i in (3, 4))
    assert third.index(" = ") == fourth.index(" = ")
    assert third.startswith("  3  E[s] = ")
    assert "E[s]" not in fourth
    assert fourth.endswith("proved")


def test_the_shaded_row_is_marked() -> None:
    marked = [line for line in pr.render(samples.derivation(), "text").splitlines() if line.startswith("▸")]
    assert len(marked) == 1
    assert " 4 " in marked[0]


def test_values_align() -> None:
    shown = pr.render(samples.walk(), "text")
    assert "  exact    [1/(1 + 2e²)  e²/(1 + 2e²)  −e²/(1 + 2e²)]\n  decimal  [  0.0633789      0.468311" in shown
    assert "[2,1]  (1 + 4e⁴)/(4e⁵ + 16e¹⁷ + 12e¹³ + 3e⁴)    0.114286   0.114286" in shown


def test_a_verdict_and_wide_words_in_text() -> None:
    words = pr.Table((pr.Column(("name",), "left"), pr.Column(("why",), "left")), ((("a",), ("word " * 40,)),))
    shown = pr.render(document(words, verdict=Verdict.FAULT), "text")
    assert max(map(count_columns, shown.splitlines())) <= 80
    assert "\nFAULT\n" in shown


def test_wrapping_keeps_formulas_whole() -> None:
    formula = pr.equals("b", "c")
    # A combining mark and a colour take no column, a wide letter takes two.
    for letters, size in (("a", 1), ("x̂", 1), ("漢", 2)):
        for before, lines in ((74, ["b = c", "dd"]), (76, ["b = c dd"])):
            words = letters * (before // size)
            paragraph = document(pr.Paragraph((f"{words} ", formula, " dd")))
            for colour in (False, True):
                shown = re.sub(r"\x1b\[\d*m", "", pr.render(paragraph, "text", colour=colour)).splitlines()
                assert [line.removeprefix(f"{words} ") for line in shown if "b" in line or line == "dd"] == lines


def test_evidence_is_told_once_for_its_steps() -> None:
    two = Evidence(Grade.CHECKED, "n = 2, …, 6")
    steps = [pr.Step(pr.equals("x", i), (), evidence) for i, evidence in enumerate((two, Evidence(Grade.PROVED), two))]
    proved = Evidence(Grade.PROVED)
    many = [pr.Step(pr.equals("x", i), (), two if i in (1, 2, 3, 7, 9, 10) else proved) for i in range(1, 11)]
    for format in ("text", "markdown"):
        assert "Steps 1, 3 are checked: n = 2, …, 6" in pr.render(document(pr.Steps(tuple(steps))), format)
        assert "Steps 1–3, 7, 9–10 are checked: n = 2, …, 6" in pr.render(document(pr.Steps(tuple(many))), format)


@pytest.mark.parametrize("make", DOCUMENTS)
def test_markdown_for_github(make: Callable[[], Document]) -> None:
    it = make()
    shown = pr.render(it, "markdown")
    assert r"\operatorname" not in shown
    assert r"\color" not in shown
    assert "\\begin{align" not in shown.replace("\\begin{aligned}", "")
    assert shown.count("```") % 2 == 0
    tables = [line for line in shown.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in tables}) <= 1


def test_markdown_escapes() -> None:
    text = "a_b *c* `d` <e> [f] | # ~ $5 \\ &amp; {x}"
    shown = pr.render(
        document(pr.Paragraph((text,)), pr.Paragraph(("- no item",)), pr.Paragraph(("1. no",))), "markdown"
    )
    assert r"a\_b \*c\* \`d\` \<e\> \[f\] \| \# \~ \$5 \\ \&amp; \{x\}" in shown
    assert "\\- no item" in shown
    assert "1\\. no" in shown


def test_markdown_code_and_inline_formulas() -> None:
    brackets = pr.Fence("curly", pr.name("x"))
    words = (pr.Code("a`b|c"), " ", brackets, " ", pr.relation("x", "<", 1), " ", pr.call("Var", "x") * pr.name("μ"))
    shown = pr.render(
        document(pr.Paragraph(words), pr.Table((pr.Column(("a",)),), (((pr.Code("x|y"),),),))), "markdown"
    )
    assert r"``a`b|c`` $\lbrace x\rbrace$ $x \lt 1$" in shown
    assert r"| `x\|y` |" in shown
    odd = pr.name("Var", pr.relation("i", "∼", "p"))
    assert r"$`\mathrm{Var}_{i \sim p}`$" in pr.render(document(pr.Paragraph((odd,))), "markdown")


def test_latex_escapes_all_text() -> None:
    odd = "50% & a_b #1 {x} ~ ^ \\ $"
    shown = pr.render(
        document(pr.Heading((odd,)), pr.Note((odd,)), pr.Paragraph((pr.Emph(odd), pr.Code(odd)))), "latex"
    )
    body = shown[shown.index(r"\begin{document}") :]
    assert re.findall(r"(?<!\\)[%#]", body) == []
    assert body.count(r"50\% \& a\_b \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} \$") == 4


def test_a_fragment_carries_nothing_of_ours() -> None:
    for it in (make() for make in DOCUMENTS):
        shown = pr.render(it, "latex", fragment=True)
        assert "\\SA" not in shown
        assert "\\color" not in shown
        assert "\\documentclass" not in shown
        assert shown.startswith("% Made with symattn: symattn ")


def test_json_of_a_derivation() -> None:
    made = json.loads(pr.render(samples.derivation(), "json"))
    wanted = ["schema", "kind", "name", "title", "command", "verdict", "parameters", "assumptions", "steps", "results"]
    assert list(made)[:10] == wanted
    assert made["verdict"] == "enclosed"
    step = made["steps"][1]
    assert list(step) == ["text", "tex", "reason", "grade", "where"]
    assert (step["reason"], step["grade"]) == ("d_k = 4", "proved")
    assert made["steps"][0]["grade"] is None
    assert made["results"][0]["evidence"][1] == {"grade": "checked", "where": "all 256 points of {±1}⁸"}


def test_json_of_a_walk_is_read_by_sympify() -> None:
    steps = {step["name"]: step for step in json.loads(pr.render(samples.walk(), "json"))["steps"]}
    weights = steps["weights of query 1"]
    e = sympy.exp(2)
    assert sympy.simplify(sympy.sympify(weights["exact"][1]) - e / (1 + 2 * e)) == 0
    assert weights["others"] == {"float16": ["0.0634", "nan", "-inf"]}
    assert steps["queries"]["exact"][0] == ["1", "0", "2"]


def test_json_record_overrides_and_holds_no_bare_nan() -> None:
    record = {
        "steps": [math.nan, math.inf, -math.inf, Fraction(1, 3)],
        "holds": False,
        "of": {"grade": Grade.PROVED, "evidence": Evidence(Grade.TESTED, "here", 1e-9), "x": pr.name("x", 1)},
    }
    shown = pr.render(document(record=record), "json")
    made = json.loads(shown, parse_constant=pytest.fail)
    assert made["steps"] == ["nan", "inf", "-inf", "1/3"]
    assert made["of"] == {
        "grade": "proved",
        "evidence": {"grade": "tested", "where": "here", "epsilon": 1e-9},
        "x": {"text": "x₁", "tex": "x_1"},
    }
    with pytest.raises(TypeError, match="no JSON for object"):
        pr.render(document(record={"x": object()}), "json")


def test_what_is_not_known_is_not_in_green() -> None:
    claims = [pr.Step(pr.equals("x", i), (), Evidence(g)) for i, g in enumerate((Grade.REFUTED, Grade.PROVED))]
    it = document(pr.Steps(tuple(claims)))
    assert "\\SAgrade[SAq]{refuted}" in pr.render(it, "latex")
    assert "\\SAgrade{proved}" in pr.render(it, "latex")
    assert "\x1b[31mrefuted" in pr.render(it, "text", colour=True)
    assert "\x1b[32mproved" in pr.render(it, "text", colour=True)
