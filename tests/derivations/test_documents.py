"""Every derivation as a document: grades, formats, commands, wrong requests, and the figures of the scaling."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from symattn import Document, Grade, derivations, derive
from symattn import printing as pr
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.section import Section
from symattn_cli.main import main
from tests.document.render.test_latex_compiles import together
from tests.lanes import one_in, one_row_in
from tests.letters import letters_of
from tests.refusals import refuses

ASKED: list[tuple[str, dict[str, Any]]] = [
    ("scaling", {}),
    ("scaling", {"dk": 1}),
    ("scaling", {"dk": 9, "seed": 3}),
    ("scaling", {"dk": 4, "mean": "mu"}),
    ("scaling", {"dk": 4, "mean": "0"}),
    ("jacobian", {}),
    ("scaling", {"dk": 2, "mean": "-1/3"}),
    ("jacobian", {"tokens": 2}),
    ("shift", {}),
    ("matrix-form", {}),
    ("equivariance", {}),
    ("backward", {}),
    ("online-softmax", {}),
    ("lookup", {}),
    ("initialisation", {}),
    ("kv-cache", {}),
    ("initialisation", {"dk": 1, "dmodel": 65536}),
    ("rope", {}),
    ("sinks", {}),
    ("differential", {}),
    ("gqa", {}),
    ("gqa", {"heads": 6, "dk": 3, "dv": 5}),
    ("mla", {}),
    ("linear-rnn", {}),
    ("delta-rule", {}),
    ("erasing", {}),
    ("attention", {}),
    ("attention", {"dk": 4, "tokens": 3, "heads": 2, "causal": True}),
    ("attention", {"tokens": 2, "keys": 3, "cross": True, "biases": True, "heads": 2, "dk": 1}),
    ("attention", {"tokens": 2, "keys": 4, "mask": "additive", "padding": True, "scale": "1/3"}),
    ("attention", {"tokens": 3, "keys": 2, "causal": True}),
    ("attention", {"mask": "boolean", "causal": True, "alignment": "top-left", "dmodel": 2, "scale": "none"}),
]
SOME = one_in(5, ASKED)
BY_PAGES = ("variants",)  # it takes seconds, and the pages hold all of what it prints


@cache
def _made(name: str, parameters: tuple[tuple[str, Any], ...]) -> Document:
    return derive(name, **dict(parameters))


def made(asked: tuple[str, dict[str, Any]]) -> Document:
    """The document that was asked for, made once for all tests: it does not change."""
    return _made(asked[0], tuple(asked[1].items()))


def test_every_name_is_asked_for() -> None:
    assert {name for name, _ in ASKED} | set(BY_PAGES) == set(derivations.names())


@pytest.mark.deep
@pytest.mark.parametrize("asked", SOME, ids=str)
def test_what_is_told_is_known(asked: tuple[str, dict[str, Any]]) -> None:
    document = made(asked)
    grades = {evidence.grade for evidence in document.evidence()}
    assert grades <= {Grade.PROVED, Grade.ARGUED, Grade.CHECKED, Grade.ENCLOSED, Grade.SAMPLED}
    steps = [step for block in document.blocks if isinstance(block, pr.Steps) for step in block.items]
    for step in steps:
        assert step.evidence or step.reason, f"a definition says so: {step.formula}"
    assert sum(step.evidence is not None for step in steps) > len(steps) / 2
    assert all(block.evidence for block in document.blocks if isinstance(block, pr.Result))
    assert json.loads(document.json()).get("caveats")
    assert document.hints


AT_SIZES = {
    "scaling": {"all 256 points of {±1}⁸", "all 4096 points of {±1}¹²"},
    "jacobian": set(),
    "shift": {"this example"},
    "matrix-form": {"this example"},
    "equivariance": {"this example"},
    "backward": {"this example"},
    "online-softmax": {"this example", "as printed, 48 draws at sizes up to b = 5, d_k = 3, d_v = 5, n = 5"},
    "lookup": set(),
    "initialisation": set(),
    "kv-cache": {"this example"},
    "rope": {"this example"},
    "sinks": {"this example"},
    "differential": {"this example"},
    "gqa": {"this example"},
    "mla": {"this example"},
    "linear-rnn": {"this example"},
    "delta-rule": {"this example"},
    "erasing": {"this example"},
}
"""What is checked at sizes or in examples alone; all else is proved or argued, or enclosed where it is a number."""
FOR_ALL = (Grade.PROVED, Grade.ARGUED)


@pytest.mark.deep
@pytest.mark.parametrize("name", AT_SIZES)
def test_what_is_for_all_sizes(name: str) -> None:
    evidence = [e for e in made((name, {})).evidence() if e.grade is not Grade.ENCLOSED]
    assert {e.where for e in evidence if e.grade not in FOR_ALL} == AT_SIZES[name]
    assert sum(e.grade in FOR_ALL for e in evidence) > len(evidence) / 2


#: Derivations that print a maximum, a merge or a bound between arrays, whose cells are walked in SymPy; or an addition
#: theorem as an assumption, which is not proved and so searched like a bound.
COMPARING = {"online-softmax", "kv-cache", "sinks", "lookup", "initialisation", "rope"}


@pytest.mark.deep
@pytest.mark.parametrize(
    "commands",
    [
        [("derive", name) for name in ("shift", "jacobian")],
        [("derive", name) for name in AT_SIZES.keys() - COMPARING],
        [("walk", "eight-step")],
        [("claim", "weights", ".3", ".7"), ("claim", "similarity", "1 2", "3 4"), ("claim", "equal", "exp(1)", "3")],
    ],
    ids=("some", "all", "a walk", "claims"),
)
def test_no_sympy(commands: list[tuple[str, ...]]) -> None:
    """What the prover shows needs no SymPy, whose import takes longer than the proof; nor do walks and claims."""
    code = (
        "import sys; from symattn_cli.main import main\n"
        f"for command in {commands!r}:\n    main(command)\n"
        "    assert not {'sympy', 'torch'} & {*sys.modules}, command"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.deep
@pytest.mark.parametrize("asked", SOME, ids=str)
def test_all_formats(asked: tuple[str, dict[str, Any]]) -> None:
    document = made(asked)
    assert "\\operatorname" not in pr.render(document, "markdown")
    assert pr.render(document, "latex").count("\\begin{") == pr.render(document, "latex").count("\\end{")
    found = json.loads(pr.render(document, "json"))
    assert found["kind"] == "derivation"
    assert found["name"] == asked[0]
    assert len(found["steps"]) == sum(len(b.items) for b in document.blocks if isinstance(b, pr.Steps))


@pytest.mark.deep
@pytest.mark.parametrize("asked", one_in(30, ASKED), ids=str)
def test_the_command_makes_it_again(asked: tuple[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    document = made(asked)
    program, *arguments = shlex.split(document.command)
    assert program == "symattn"
    assert main([*arguments, "-f", "json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == json.loads(pr.render(document, "json"))


@pytest.mark.deep
def test_the_same_document_every_time() -> None:
    texts = [pr.render(derive("scaling", dk=4, seed=seed), "text") for seed in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("scalling", {}, "did you mean scaling"),
    ("scaling", {"dk": 0}, "from 1 to"),
    ("scaling", {"dk": True}, "from 1 to"),
    ("scaling", {"heads": 2}, "has no parameter heads; it takes d_k, mean, seed"),
    ("scaling", {"mean": "1//2"}, "neither a number nor a letter"),
    ("scaling", {"mean": "1e400"}, "at most 6 digits"),
    ("scaling", {"mean": "q"}, "already has a meaning"),
    ("scaling", {"seed": -1}, "seed"),
    ("jacobian", {"tokens": 1}, "from 2 to"),
    ("shift", {"tokens": 3}, "has no parameter n; it takes none"),
    ("gqa", {"heads": 65}, "from 1 to"),
    ("attention", {"dk": 60}, "from 1 to"),
    ("attention", {"mask": "soft"}, "mask"),
    ("attention", {"alignment": "middle"}, "alignment"),
    ("attention", {"scale": "big"}, "not an exact number"),
    ("attention", {"heads": 2, "keys": 5}, "hint: cross, or leave n_k out"),
]


@pytest.mark.parametrize(("name", "parameters", "message"), WRONG)
def test_bad_requests(name: str, parameters: dict[str, Any], message: str) -> None:
    refuses(derive, name, says=message, **parameters)


# The scaling of other numbers prints the formulas of these with other digits, and takes two seconds each.
COMPILED = [(name, of) for name, of in ASKED if name != "scaling" or of in ({}, {"dk": 4, "mean": "mu"})]


@pytest.mark.latex
@pytest.mark.parametrize("documents", [COMPILED, pytest.param(ASKED, marks=pytest.mark.exhaustive)], ids=len)
def test_every_formula_compiles(documents: list[tuple[str, dict[str, Any]]], tmp_path: Path) -> None:
    assert "Overfull \\hbox" not in together(((asked[0], made(asked)) for asked in documents), tmp_path)


def table(document: Document) -> pr.Table:
    return next(block for block in document.blocks if isinstance(block, pr.Table))


def column(document: Document, index: int) -> list[str]:
    return [pr.text(row[index][0]) for row in table(document).rows]  # type: ignore[arg-type]


def lines(document: Document) -> list[str]:
    return [pr.text(s.formula) for b in document.blocks if isinstance(b, pr.Steps) for s in b.items]


@cache
def scaling(**parameters: Any) -> Document:
    return derive("scaling", **parameters)


@pytest.mark.deep
def test_the_table() -> None:
    document = scaling(dk=256)
    assert column(document, 0) == ["1", "4", "16", "64", "256"]
    assert column(document, 2)[-1] == "2.35e-07"  # the median collapses
    assert column(document, 3)[-1] == "0.0176"  # its mean does not
    assert column(document, 1)[-1] == "22.63"
    assert table(document).shaded == (4,)


@pytest.mark.deep
@pytest.mark.parametrize(("d_k", "row"), one_row_in(4, [(37, 3), (1, 0), (2, 1), (1000, 5)]))
def test_the_asked_row_is_shaded_in_its_place(d_k: int, row: int) -> None:
    document = scaling(dk=d_k)
    sizes = [int(x) for x in column(document, 0)]
    assert sizes == sorted({1, 4, 16, 64, 256, d_k})
    assert table(document).shaded == (row,)


@pytest.mark.deep
def test_the_results() -> None:
    document = scaling(dk=4)
    results = [pr.text(f) for b in document.blocks if isinstance(b, pr.Result) for f in b.formulas]
    assert "Var(q·k) = d_k σ⁴    Var(q·k) |_{d_k=4} = 4σ⁴" in results
    assert "Var(q·k/√d_k) = σ⁴  for every d_k" in results
    assert "Var(s₁ − s₂) = 2d_k σ⁴    Var((s₁ − s₂)/√d_k) = 2σ⁴  for every d_k" in results
    assert "checked: all 256 points of {±1}⁸" in pr.render(document, "text")
    assert "Var(s) |_{d_k=4} = 4σ⁴ + 8μ²σ²" in lines(document)


@pytest.mark.deep
def test_means() -> None:
    general = lines(scaling(dk=4, mean="mu"))
    assert "Var(s) = d_k σ²(σ² + 2μ²)" in general
    assert "A3" not in pr.render(scaling(dk=4, mean="mu", all=True), "text")
    assert "If the means are nonzero" not in pr.render(scaling(dk=4, mean=0, all=True), "text")
    assert "μ" not in pr.render(scaling(dk=4, mean="m", all=True), "text").replace("at μ = 0", "")
    third = pr.render(scaling(dk=2, mean="1/3", all=True), "text")
    assert "Var(q·k) |_{μ=1/3} = d_k σ²(σ² + 2/9)" in third
    assert "Var(s)       = 22/9" in third
    # Squares of such scores go beyond 64 bits.
    assert Grade.CHECKED in {evidence.grade for evidence in scaling(dk=2, mean="999983").evidence()}


@pytest.mark.deep
def test_sections_are_named_rightly() -> None:
    for mean in (None, 0, "mu"):
        document = scaling(dk=4) if mean is None else scaling(dk=4, mean=mean)
        titles = [b.title[0] for b in document.blocks if isinstance(b, pr.Heading)]
        printed = " ".join(pr.render(document.whole(), "text").split())
        assert f"for “{titles[titles.index('The typical row, and the mean over rows')]}” alone" in printed
        assert ("dropped in “If the means are nonzero”" in printed) is (mean is None)
        assert "If the means are nonzero" in titles or mean is not None


@pytest.mark.deep
def test_standard_errors() -> None:
    """Those of 20,000 scores of 32 normal components, whose excess kurtosis is 6/d_k."""
    rows, d = 20_000, 32
    printed = " ".join(pr.render(scaling(dk=d).whole(), "text").split())
    errors = [float(error) for error in re.findall(r"standard error ([\d.]+)", printed)]
    of_variance = sqrt((2 + 6 / d) / rows)
    assert errors == pytest.approx([sqrt(d / rows), d * of_variance, of_variance, 2 * d * of_variance], rel=0.06)


@pytest.mark.deep
def test_paragraphs_name_the_seed() -> None:
    words = [b.text[0] for b in scaling(dk=64, seed=7).blocks if isinstance(b, pr.Paragraph)]
    assert any("seed 7" in str(w) for w in words)


@pytest.mark.parametrize("part", ["moments", "independent", "centred"])
def test_no_grade_goes_without_an_assumption_that_its_law_makes(part: str) -> None:
    made = letters_of(4)
    claim = pr.formula("Var(s) = d_k σ⁴")
    assert str(Section(made).claim(claim, "").evidence) == "proved: all sizes, under A1–A3"
    fewer = {label: words for label, words in made.labels.items() if words != part}
    with pytest.raises(FalseStep, match=rf"no assumption says how . is drawn \({part}\)"):
        Section(replace(made, labels=fewer)).claim(claim, "")


def test_any_mean_does_not_need_that_it_is_zero() -> None:
    claim = pr.formula("E[s] = d_k μ²")
    assert str(Section(letters_of(4, section="any").where("s = q·k")).claim(claim, "").evidence).endswith(
        "under A1 and A2"
    )


@pytest.mark.deep
@pytest.mark.parametrize(("parameters", "numbers"), [({"dk": 1}, "0 1 1 2"), ({"dk": 2, "mean": "1"}, "2 6 3 8")])
def test_small_cubes_have_the_moments_of_the_formulas(parameters: dict[str, Any], numbers: str) -> None:
    """E[s] = d_k μ², Var(s) = d_k (1 + 2 μ²), and d_k times less and 2 d_k (1 + μ²) for scaled ones and gaps."""
    steps = [step for b in scaling(**parameters).whole().blocks if isinstance(b, pr.Steps) for step in b.items]
    counted = [pr.text(s.formula).rpartition("= ")[2] for s in steps if "points" in pr.plain_text(s.reason)]
    assert counted == numbers.split()
