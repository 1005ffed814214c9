"""The answer in short, one step and one part of a derivation; everything on request, and always in JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from symattn import Document, InputError, derivations, derive, printing
from symattn_cli.main import main

LONG = ("scaling", "kv-cache", "rope", "gqa", "linear-rnn", "delta-rule", "erasing")
BY_PAGES = ("variants",)  # it takes a quarter of a minute, and is a page as well, of which the same is asserted
FORMATS = ("text", "latex", "markdown", "html")


@pytest.fixture(scope="module")
def scaling() -> Document:
    return derive("scaling", dk=4)


def test_why_the_root_is_answered_on_one_screen(scaling: Document) -> None:
    short = scaling.text()
    assert len(short.splitlines()) <= 50
    assert max(map(len, short.splitlines())) <= 80
    for words in ("A1", "A3", " 11 ", "Result 1", "Var(s/√d_k)", "nonzero means", "What this does not say", "--part"):
        assert words in short
    assert "A4" not in short  # an assumption of one of the other parts alone


@pytest.mark.deep
@pytest.mark.parametrize("parameters", [{"dk": 1}, {"dk": 64}, {"dk": 16, "mean": "mu"}, {"dk": 3, "mean": "1/2"}])
def test_other_sizes_and_means_fit_on_one_screen(parameters: dict[str, Any]) -> None:
    lines = derive("scaling", **parameters).text().splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80


@pytest.mark.deep
@pytest.mark.parametrize("name", LONG)
def test_many_results_are_answered_in_short_and_json_holds_all(name: str) -> None:
    document = derive(name)
    whole = document.whole()
    for form in FORMATS:
        assert len(getattr(document, form)()) < len(getattr(whole, form)())
    for key in ("steps", "results", "verdict"):
        assert json.loads(document.json())[key] == json.loads(whole.json())[key]
    assert whole.command == f"{document.command} --all"
    assert whole.text().count("\nResult ") > document.text().count("\nResult ") == 1


@pytest.mark.deep
def test_a_derivation_of_one_or_two_results_is_printed_whole() -> None:
    for name in derivations.names():
        if name not in LONG and name not in BY_PAGES:
            document = derive(name)
            assert sum(isinstance(block, printing.Result) for block in document.blocks) <= 2
            assert document.whole() == document
            assert "--all" not in document.text()


def numbered_lines(text: str) -> dict[int, str]:
    """The first line of each step, by its number."""
    lines = (line for line in text.splitlines() if line[:3].strip().isdecimal() and line[3:5] == "  ")
    return {int(line[:3]): line[5:].split("  ")[0] for line in lines}


def test_steps_and_parts_keep_their_numbers(scaling: Document) -> None:
    whole = numbered_lines(scaling.whole().text())
    answer = numbered_lines(scaling.text())
    assert set(answer) == {*range(1, 15), 17}
    for number in (7, 12):
        assert answer[number].split()[0] == whole[number].split()[0]
    part = derivations.chosen(scaling, part="jacobian").text()
    assert set(numbered_lines(part)) == set(range(26, 37))
    assert "\n6  The softmax Jacobian\n" in part
    assert "Steps 26–29, 31–36 are proved" in part
    step = derivations.chosen(scaling, step=28)
    (one,) = (block for block in step.blocks if isinstance(block, printing.Steps))
    assert one.numbers == (28,)
    assert "Let p = softmax(s)" in step.text()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"step": 0}, "steps 1 to 49, not 0"),
        ({"step": 50}, "steps 1 to 49, not 50"),
        ({"part": "10"}, "no part '10': 1 The score and its mean; 2"),
        ({"part": "mean"}, "3 parts of derive scaling have 'mean' in their title: 1 "),
        ({"part": "jacobean"}, "no part 'jacobean'"),
        ({"part": 1, "step": 1}, "give one of them"),
        ({"all": True, "step": 1}, "leave out --all"),
    ],
)
def test_what_a_derivation_does_not_have_is_refused(scaling: Document, wanted: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        derivations.chosen(scaling, **wanted)


@pytest.mark.deep
@pytest.mark.parametrize("options", [(), ("--all",), ("--step", "12"), ("--part", "typical row")])
def test_a_file_is_compared_with_what_its_options_print(options: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "scaling.tex"
    assert main(["derive", "--dk", "4", *options, "-o", str(path)]) == 0
    assert main(["derive", "--dk", "4", *options, "--check", str(path)]) == 0
    assert main(["check", str(path)]) == 0
    assert main(["derive", "--dk", "4", "--step", "1", "--check", str(path)]) == 1
