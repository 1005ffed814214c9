"""``symattn prove --certificate``, ``symattn check``, and the book of all theorems."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from symattn import Document, Grade, printing, prove, proving, theorems
from symattn.theorems.documents import book, title
from symattn.theorems.runner import run as decide_all

TWO = """from symattn import theorem

@theorem("two", "mine", "$2 x = 3 x$ for every n", arrays={"x": "n"},
         false=lambda x: (2 * x, 3 * x), false_says="$2 x = 3 x$")
def two(x):
    return 2 * x, x + x
"""


@pytest.fixture
def kept(run) -> Path:
    assert run("prove", "softmax-shift", "--certificate", "kept.json").status == 0
    return Path("kept.json")


def test_a_certificate_is_accepted_and_says_what_it_is_of(run, kept: Path):
    found = run("check", str(kept))
    assert found.status == 0
    assert found.stdout.startswith("softmax-shift: the certificate is accepted")
    equation = "exp(s[i0] + t 1)/(Σ_{j1≤n_k} exp(s[j1] + t 1)) = exp(s[i0])/(Σ_{j1≤n_k} exp(s[j1]))"
    assert f"proved: {equation}, for all i0 ≤ n_k\n" in found.stdout
    assert "Informal statement (not checked): softmax(s + t 𝟏) = softmax(s)" in found.stdout


def test_words_of_a_file_stand_by_no_grade(run, kept: Path):
    def lie(record: dict[str, Any]) -> None:
        record.update(statement="P = NP \x1b[2J", hypotheses=["proved: P = NP"], theorem="p-np")

    kept.write_bytes(_changed(kept, lie))
    lines = run("check", str(kept)).stdout.splitlines()
    assert [line for line in lines if line.startswith("proved: ")] == [lines[1]]
    assert "P = NP" not in lines[1]
    assert lines[2:] == [
        r"Informal statement (not checked): P = NP \x1b[2J",
        "  hypothesis in words (not checked): proved: P = NP",
    ]


def test_a_false_title_of_a_true_equation_is_not_printed_as_proved(run):
    """The code returns 2 x = x + x, and the text says 2 x = 3 x."""
    Path("two.py").write_text(TWO, encoding="utf-8")
    assert run("prove", "two.py", "--certificate", "two.json").status == 0
    found = run("check", "two.json").stdout
    assert "proved: 2 x[i0] = x[i0] + x[i0], for all i0 ≤ n\n" in found
    assert "Informal statement (not checked): 2x = 3x for every n" in found


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("online-softmax", "what the rule fold concludes of "),
        ("score-variance", "proved: mean("),
        ("merge-rounding-commutes", "proved: two programs do the same roundings"),
    ],
)
def test_each_kind_of_certificate_prints_what_it_shows(run, name: str, part: str):
    assert run("prove", name, "--certificate", "kept.json").status == 0
    assert part in run("check", "kept.json").stdout


@pytest.mark.deep
def test_a_step_in_words_is_told(run):
    assert run("prove", "softcap", "--certificate", "kept.json").status == 0
    assert "a step in words, which is not checked: " in run("check", "kept.json").stdout


@pytest.mark.parametrize("name", ["softmax-shift", "one-hot-saturation", "merge-rounding-commutes"])
def test_the_checker_needs_neither_the_prover_nor_sympy(run, name: str):
    assert run("prove", name, "--certificate", "kept.json").status == 0
    code = (
        "import sys; from symattn.proof.checker import check_file;"
        "assert not check_file(open('kept.json', 'rb').read()).why;"
        "print([m for m in ('sympy', 'flint', 'numpy', 'symattn.proof.prover', 'symattn.arrays') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def _changed(kept: Path, change: Any) -> bytes:
    record = json.loads(kept.read_text(encoding="utf-8"))
    change(record)
    return json.dumps(record).encode()


HOSTILE = {
    "another right side": lambda r: r["certificates"][0]["equations"][0].update(right=["number", "1"]),
    "another kind": lambda r: r["certificates"][0].update(kind="promise"),
    "no certificates": lambda r: r.update(certificates=[]),
    "an argument without a rule": lambda r: r.update(grade="argued"),
    "a number of a million digits": lambda r: r["certificates"][0]["equations"][0].update(left=["number", "1e999999"]),
    "a tower": lambda r: r["certificates"][0]["equations"][0].update(left=_tower()),
    "many sums": lambda r: r["certificates"][0]["equations"][0].update(left=_sums(12), how="box"),
    "no list": lambda r: r["certificates"].append(3),
}


def _tower() -> Any:
    x: Any = ["number", "1"]
    for _ in range(150):
        x = ["product", ["sum", x, x], ["exp", x]] if len(json.dumps(x)) < 10_000 else ["exp", x]
    return x


def _sums(n: int) -> Any:
    x: Any = ["product", *[["letter", "a", [[f"k{i}"]]] for i in range(n)]]
    for i in range(n):
        x = ["total", f"k{i}", f"sort{i}", x]
    return x


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_changed_is_refused_in_one_line(run, kept: Path, name: str):
    Path("changed.json").write_bytes(_changed(kept, HOSTILE[name]))
    found = run("check", "changed.json")
    assert found.status == 1
    assert found.stdout.startswith("refused: ")
    assert found.stdout.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 5000, b"\xff", b"null", b'{"schema": 1' + b"0" * 5000 + b"}"])
def test_what_is_no_such_file_is_refused(run, content: bytes):
    Path("odd.json").write_bytes(content)
    found = run("check", "odd.json")
    assert found.status != 0
    assert (found.stdout + found.stderr).count("\n") == 1


def test_what_is_not_proved_has_no_certificate(run):
    found = run("prove", "score-rank", "--certificate", "kept.json")
    assert found.status == 2
    assert "score-rank is searched: there is no certificate of it" in found.stderr
    assert run("prove", "softmax-shift", "softmax-simplex", "--certificate", "kept.json").status == 2


# -- signs and differences ---------------------------------------------------------------------------------------------

X = {"x": "n"}


def _tampered(record: dict[str, Any], **change: Any) -> str:
    return proving.check(json.loads(json.dumps({**record, **change})), Random(0)).why


def test_a_sign_is_read_off_the_form_by_the_checker():
    [*_, sign] = proving.certificates(
        (), proving.bound(X, lambda x: (2 * x, 1 + x * x), lambda x: (x - 1) ** 2).decide().premises
    )
    assert not _tampered(sign)
    assert "does not show the sign" in _tampered(sign, relation=">")
    assert "does not show the sign" in _tampered(sign, expression=["letter", "x", [["i0"]]])
    assert "not zero" in _tampered(sign, expression=["number", "1"])


def test_a_letter_that_is_assumed_stands_for_what_the_hypothesis_says():
    method = proving.bound(
        {"x": "n", "b": ""}, lambda x, b: (x, b + 0 * x), lambda up: up, assumed={"up": ("n", lambda x, b: b - x)}
    )
    decision = method.decide()
    assert decision.evidence.grade is Grade.PROVED
    [sign] = proving.certificates((), decision.premises)
    assert not _tampered(sign)
    assert "does not show the sign" in _tampered(sign, **{"not negative": []})
    other = [{**sign["meant"][0], "expression": ["letter", "b", []]}]
    assert "not zero" in _tampered(sign, meant=other)


def test_what_is_positive():
    exp = proving.above_zero(X, lambda x, xp: xp.exp(x)).decide()
    [sign] = proving.certificates((), exp.premises)
    assert not _tampered(sign)
    assert "does not show the sign" in _tampered(sign, expression=["letter", "x", [["i0"]]])


def test_what_differs():
    decision = proving.Fails(proving.Declared(X), lambda x: (x, x * x)).decide()
    assert decision.evidence.grade is Grade.PROVED
    [differing] = proving.certificates((), decision.premises)
    assert not _tampered(differing)
    assert "equal there" in _tampered(differing, right=differing["left"])
    largest = ["function", "max", ["letter", "x", [["i0"]]]]
    assert "depends on a function" in _tampered(differing, right=largest)


def test_words_make_it_argued_and_no_more():
    stated = proving.Identity(proving.Declared(X), lambda x: (x + x, 2 * x), (), rule=("and so on",))
    assert stated.decide().evidence.grade is Grade.ARGUED


def volume(*topics: str, explain: bool = False) -> Document:
    some = [t for topic in topics for t in theorems.of_topic(topic)]
    return book(decide_all(some, dict, explain=explain, cached=False), "symattn report --book")


@pytest.fixture(scope="module")
def small() -> Document:
    return volume("masks", "heads")


@pytest.mark.deep
def test_the_book_has_contents_chapters_and_sections(small):
    shown = printing.render(small, "text")
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
    latex = printing.render(small, "latex")
    assert r"\tableofcontents" in latex
    assert r"\subsection{Nothing leaks from the future}" in latex
    markdown = printing.render(small, "markdown")
    assert "\n### Nothing leaks from the future\n" in markdown
    assert "\n  - Nothing leaks from the future\n" in markdown
    assert printing.render(small, "latex", fragment=True).count(r"\subsubsection*") == 14


def test_every_theorem_has_a_title_in_words():
    titles = [title(theorem) for theorem in theorems.catalogue().values()]
    assert len(set(titles)) == len(titles)
    assert not any(name in titles for name in theorems.catalogue() if "-" in name)
    assert (
        title(replace(theorems.theorem_of("softmax", "lse-bounds"), name="my-lse-lemma", title=""))
        == "My log-sum-exp lemma"
    )


@pytest.mark.deep
def test_a_table_counts_the_grades():
    shown = " ".join(prove("heads", "masks", cached=False).text().split())
    assert "14 theorems: 13 proved, 1 argued" in shown
    assert "Of 14 false variants, 14 are refuted and 0 accepted." in shown


@pytest.mark.deep
def test_all_is_the_whole_catalogue(run):
    assert [name for name in theorems.catalogue() if name not in run("prove", "--all", "--list").stdout] == []


@pytest.mark.latex
@pytest.mark.parametrize(  # the tests that show pages compile the whole book with its proofs, without contents
    ("topics", "explain"),
    [(("masks", "heads"), True), *(pytest.param((), each, marks=pytest.mark.exhaustive) for each in (False, True))],
)
def test_the_book_compiles_with_its_contents(tmp_path: Path, topics: tuple[str, ...], explain: bool):
    assert shutil.which("pdflatex"), "pdflatex is needed"
    some = [t for topic in topics for t in theorems.of_topic(topic)] or [*theorems.catalogue().values()]
    found = decide_all(some, dict, explain=explain, cached=False)
    assert {decided.finding.false_grade for decided in found} == {Grade.REFUTED}
    document = book(found, "symattn report --book")
    assert not any(evidence.grade is Grade.UNDECIDED for evidence in document.evidence())
    tmp_path.joinpath("book.tex").write_text(printing.render(document, "latex"), encoding="utf-8")
    for _ in range(2):
        ran = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "book.tex"], cwd=tmp_path, capture_output=True
        )
        assert ran.returncode == 0, ran.stdout[-2000:].decode(errors="replace")
    log = tmp_path.joinpath("book.log").read_text(encoding="utf-8", errors="replace")
    assert re.findall(r"^Overfull .hbox .*", log, re.MULTILINE) == [], "a formula runs into the margin"
