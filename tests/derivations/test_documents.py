"""Every derivation as a document: grades, formats, commands, and what is asked wrongly."""

import json
import shlex
import subprocess
import sys
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from symattn.derivations import derive, names
from symattn.derivations.exactly import value
from symattn.document import notation as nt
from symattn.document.evidence import Grade
from symattn.document.model import Caveat, Document, Result, Steps
from symattn.document.notation import Relation
from symattn.document.render import render
from symattn.proof.relations.part_values import Unread
from symattn_cli.main import main
from tests.document.render.test_latex_compiles import together
from tests.lanes import one_in
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
    ("gqa", {}),
    ("gqa", {"heads": 6, "dk": 3, "dv": 5}),
    ("mla", {}),
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
    assert {name for name, _ in ASKED} | set(BY_PAGES) == set(names())


@pytest.mark.deep
@pytest.mark.parametrize("asked", SOME, ids=str)
def test_what_is_told_is_known(asked: tuple[str, dict[str, Any]]) -> None:
    document = made(asked)
    grades = {evidence.grade for evidence in document.evidence()}
    assert grades <= {Grade.PROVED, Grade.ARGUED, Grade.CHECKED, Grade.ENCLOSED, Grade.SAMPLED}
    steps = [step for block in document.blocks if isinstance(block, Steps) for step in block.items]
    for step in steps:
        assert step.evidence or step.reason, f"a definition says so: {step.formula}"
    assert sum(step.evidence is not None for step in steps) > len(steps) / 2
    assert all(block.evidence for block in document.blocks if isinstance(block, Result))
    assert any(isinstance(block, Caveat) for block in document.blocks)
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
    "gqa": {"this example"},
    "mla": {"this example"},
}
"""What is checked at sizes or in examples alone; all else is proved or argued, or enclosed where it is a number."""
FOR_ALL = (Grade.PROVED, Grade.ARGUED)


@pytest.mark.deep
@pytest.mark.parametrize("name", AT_SIZES)
def test_what_is_for_all_sizes(name: str) -> None:
    evidence = [e for e in made((name, {})).evidence() if e.grade is not Grade.ENCLOSED]
    assert {e.where for e in evidence if e.grade not in FOR_ALL} == AT_SIZES[name]
    assert sum(e.grade in FOR_ALL for e in evidence) > len(evidence) / 2


#: Derivations that print a maximum, a merge or a bound between arrays, whose cells are walked in SymPy.
COMPARING = {"online-softmax", "kv-cache", "sinks", "lookup", "initialisation"}


@pytest.mark.deep
@pytest.mark.parametrize(
    "names",
    [("shift", "jacobian"), (*AT_SIZES.keys() - COMPARING,)],
    ids=("some", "all"),
)
def test_no_sympy(names: tuple[str, ...]) -> None:
    """What the prover shows needs no SymPy, whose import takes longer than the proof."""
    code = (
        "import sys; from symattn_cli.main import main\n"
        f"for name in {names!r}:\n    main(['derive', name])\n    assert 'sympy' not in sys.modules, name"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.deep
@pytest.mark.parametrize("asked", SOME, ids=str)
def test_all_formats(asked: tuple[str, dict[str, Any]]) -> None:
    document = made(asked)
    assert "\\operatorname" not in render(document, "markdown")
    assert render(document, "latex").count("\\begin{") == render(document, "latex").count("\\end{")
    found = json.loads(render(document, "json"))
    assert found["kind"] == "derivation"
    assert found["name"] == asked[0]
    assert len(found["steps"]) == sum(len(b.items) for b in document.blocks if isinstance(b, Steps))


@pytest.mark.deep
@pytest.mark.parametrize("asked", one_in(30, ASKED), ids=str)
def test_the_command_makes_it_again(asked: tuple[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    document = made(asked)
    program, *arguments = shlex.split(document.command)
    assert program == "symattn"
    assert main([*arguments, "-f", "json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == json.loads(render(document, "json"))


@pytest.mark.deep
def test_the_same_document_every_time() -> None:
    texts = [render(derive("scaling", dk=9, seed=seed), "text") for seed in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("scalling", {}, "did you mean scaling"),
    ("xyz", {}, "known: scaling"),
    ("scaling", {"dk": 0}, "from 1 to"),
    ("scaling", {"dk": -1}, "from 1 to"),
    ("scaling", {"dk": 10**9}, "from 1 to"),
    ("scaling", {"dk": True}, "from 1 to"),
    ("scaling", {"dk": 4.0}, "from 1 to"),
    ("scaling", {"heads": 2}, "has no parameter heads; it takes d_k, mean, seed"),
    ("scaling", {"mean": "1//2"}, "neither a number nor a letter"),
    ("scaling", {"mean": "nan"}, "mean"),
    ("scaling", {"mean": "1e400"}, "at most 6 digits"),
    ("scaling", {"mean": "q"}, "already has a meaning"),
    ("scaling", {"seed": -1}, "seed"),
    ("jacobian", {"tokens": 1}, "from 2 to"),
    ("jacobian", {"tokens": 60}, "from 2 to"),
    ("shift", {"tokens": 3}, "has no parameter n; it takes none"),
    ("initialisation", {"dmodel": 0}, "from 1 to"),
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


@pytest.mark.deep
def test_formulas_are_relations_or_rows() -> None:
    for asked in ASKED[:1]:
        for block in made(asked).blocks:
            if isinstance(block, Steps):
                assert all(isinstance(step.formula, Relation) for step in block.items)


@pytest.mark.latex
def test_every_formula_compiles(tmp_path: Path) -> None:
    assert "Overfull \\hbox" not in together(((asked[0], made(asked)) for asked in ASKED), tmp_path)


def test_numbers_of_tables_come_from_the_formulas_above() -> None:
    size = nt.name("d", "k")
    assert value(2 / nt.Root(size), {"d_k": 16}) == Fraction(1, 2)
    with pytest.raises(Unread, match="no meaning"):
        value(2 / size, {})
