"""Every code has a page: what it is, an input made from the definition, how to mend it, where it was seen."""

import json
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import symattn
from symattn import Precision, reports
from symattn.faults.examples import found
from symattn.programs.specifications import definitions_of
from symattn_cli.main import main

#: Codes without an input: named from calls, from bits, or in models alone; or shown by inputs that are not searched.
_WITHOUT = {
    "argument-changed", "arithmetic-narrower", "bias-as-mask", "call-fails", "call-reuses-earlier", "call-stale",
    "dtype-changed", "exp-loses-digits", "input-ignored", "keys-miscounted", "keys-skipped", "max-missing",
    "max-of-tile", "max-of-whole-array", "max-other", "max-starts-finite", "not-deterministic",
    "operation-other", "part-missing", "residual-twice", "result-overwritten",
    "rotary-frequencies-rounded", "scores-overflow", "up-projection-missing",
    "variance-cancels", "views-misread",
    "state-transposed", "output-gate-late",
    "term-limit", "term-missing", "term-of-other-head", "term-off", "term-sign", "term-twice",
}  # fmt: skip
_PLAIN = (
    "scale-missing", "mask-top-left", "kv-heads-tiled", "rescale-sum", "window-short", "scale-off",
    "padding-of-other-item", "cache-order", "cache-slot", "cache-unread", "dropout-of-scores", "positions-equal",
    "gradient-dropout-missing", "gradient-dropout-factor",
)  # fmt: skip


def _shown(capsys: pytest.CaptureFixture[str], code: str, form: str = "text") -> str:
    """Print the page of a code, its lines joined."""
    assert main(["faults", "show", code, "-f", form]) == 0
    return " ".join(capsys.readouterr().out.split())


def _codes(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """List every code."""
    assert main(["faults", "codes", "-f", "json"]) == 0
    return [entry["code"] for entry in json.loads(capsys.readouterr().out)["codes"]]


def _fresh(code: str, step: str, cause: str, right: Any, wrong: Any) -> None:
    """Fail unless an input shows a mistake with this code."""
    assert [read.code for read in reports.Fault(step, cause, "").codes] == [code]
    right, wrong = (np.array(x, dtype=float) for x in (right, wrong))
    assert not np.allclose(right, wrong, rtol=1e-8, atol=0, equal_nan=True)


@pytest.mark.deep
@pytest.mark.parametrize("code", _PLAIN)
def test_a_stored_input_shows_the_mistake(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = json.loads(_shown(capsys, code, "json"))
    assert page["code"] == code
    _fresh(code, *(page["example"][name] for name in ("step", "cause", "expected", "got")))


@pytest.mark.deep
def test_every_stored_input_shows_its_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    for code in _codes(capsys):
        example = json.loads(_shown(capsys, code, "json"))["example"]
        assert (example is None) == (code in _WITHOUT)
        if example is not None:
            _fresh(code, *(example[name] for name in ("step", "cause", "expected", "got")))


def test_every_code_without_an_input_has_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert {*_codes(capsys)} >= _WITHOUT
    for code in _WITHOUT:
        notes = json.loads(_shown(capsys, code, "json"))["notes"]
        assert any(re.match(r"No input is shown: [a-z].*[a-z]\.$", note) for note in notes), code
    printed = _shown(capsys, "max-missing")
    assert "No input is shown: in exact arithmetic the mistake changes nothing" in printed


def test_a_page_without_an_input_and_a_reason_names_no_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Every code has an input or a reason; one whose search has not been run yet has neither.
    monkeypatch.setattr("symattn.faults.catalogue.example_of", lambda code: None)
    printed = _shown(capsys, "scale-missing")
    assert "No input that shows it is stored." in printed
    assert ": ." not in printed


@pytest.mark.parametrize("code", ["cache-unread", "cache-not-updated", "gradient-sign", "rotary-cos-sin-exchanged"])
def test_inputs_that_are_made_of_others_fit_what_is_shown(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not a cache of two slots of which four are filled, nor an output that no queries and keys of the page have."""
    example = json.loads(_shown(capsys, code, "json"))["example"]
    inputs = {name: np.array(array) for name, array in example["inputs"].items()}
    definitions = definitions_of(eval(example["specification"], {n: getattr(symattn, n) for n in symattn.__all__}))
    (definition, *_) = (d for d in definitions if {i.name for i in d.inputs} >= inputs.keys())
    drawn = {i.name for i in definition.inputs if i.made is None}
    made = definition.filled(inputs, Precision.of("float64"))
    assert made.keys() - drawn
    for name, array in inputs.items():
        np.testing.assert_allclose(made[name], array, err_msg=name)


@pytest.mark.deep
def test_the_search_finds_a_small_input() -> None:
    (example,) = found(["mask-top-left"]).values()
    assert {name: a.tolist() for name, a in example.inputs.items()} == {"q": [[0]], "k": [[0], [0]], "v": [[0], [1]]}


def _search(*codes: str) -> str:
    """The line by which a search for inputs is refused, before it writes anything."""
    command = [sys.executable, "-m", "symattn.faults.examples", *codes]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    return ran.stderr


@pytest.mark.deep
def test_a_search_refuses_a_code_that_is_not_in_the_registry() -> None:
    assert re.search("no code 'exp-softpluss'.*did you mean exp-softplus", _search("scale-missing", "exp-softpluss"))


@pytest.mark.deep
def test_a_search_refuses_a_code_that_no_rule_states() -> None:
    told = _search("scale-missing", "exp-softplus", "call-fails")
    assert "no rule states a mistake with the code call-fails for" in told


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json", "latex"])
def test_a_page_prints_in_every_format(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = _shown(capsys, "window-long", form)
    assert "ml-explore/mlx-lm" in printed
    assert "window-long" in printed


def test_a_page_has_the_sentence_the_parameters_the_input_the_step_and_the_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = _shown(capsys, "scale-off")
    assert "First wrong step: scale." in printed
    assert "Parameters: factor, head." in printed
    assert "scale-off: factor = 2" in printed
    assert "q = [[1]] k = [[0], [1]] v = [[0], [1]]" in printed
    assert "verify FILE.py:FUNCTION --fix" in printed
    seen = _shown(capsys, "scale-missing")
    assert "fla-org/flash-linear-attention#395" in seen
    assert "https://github.com/fla-org/flash-linear-attention/issues/395" in seen


def test_names_of_the_corpus_stand_for_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    def code_of(name: str) -> str:
        code: str = json.loads(_shown(capsys, name, "json"))["code"]
        return code

    assert code_of("no-scale") == "scale-missing"
    assert code_of("heads-in-turn") == "kv-heads-tiled"
    assert main(["faults", "list", "-f", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["faults"]
    known = _codes(capsys)
    assert all(code_of(fault["name"]) in known for fault in listed[:3])


def test_an_unknown_code_is_refused_in_a_line_with_near_ones(capsys: pytest.CaptureFixture[str]) -> None:
    for code, answer in (
        ("scale-mising", r"there is no code 'scale-mising'; did you mean scale-missing"),
        ("mask-topleft", r"mask-top-left"),
        ("scale", r"codes that begin so: scale-missing, scale-twice, .*…$"),
    ):
        assert main(["faults", "show", code]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert re.search(answer, line)


def test_a_code_is_shown_as_a_verdict_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(_shown(capsys, "[scale-off: factor = 1.02].", "json"))["code"] == "scale-off"
    assert main(["faults", "show", "scale-missing", "+", "mask-top-left"]) == 2
    assert "these are 2 codes; hint: symattn faults show scale-missing" in capsys.readouterr().err


def test_the_command_alone_lists_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults"]) == 0
    printed = capsys.readouterr().out
    listed = _codes(capsys)
    assert len({*listed}) == len(listed) > 100
    assert not [code for code in listed if not re.search(rf"^\s*{re.escape(code)}\b", printed, re.MULTILINE)]
