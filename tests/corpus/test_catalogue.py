"""Every code has a page: what it is, an input made from the definition, how to mend it, where it was seen."""

import json
import re

import numpy as np
import pytest

from symattn import InputError
from symattn.document.render import render
from symattn.faults.catalogue import page_of, reason_without_input, shown_code
from symattn.faults.corpus import corpus
from symattn.faults.examples import _load_stored_examples, example_of, found
from symattn.verification.codes import codes, read_code
from symattn_cli.main import main

#: Codes without an input: named from calls, from bits, or in models alone; or shown by inputs that are not searched.
_WITHOUT = {
    "argument-changed", "arithmetic-narrower", "bias-as-mask", "call-fails", "call-reuses-earlier", "call-stale",
    "dtype-changed", "exp-loses-digits", "input-ignored", "keys-miscounted", "keys-skipped", "max-missing",
    "max-of-tile", "max-of-whole-array", "max-other", "max-starts-finite", "not-deterministic",
    "operation-other", "part-missing", "residual-twice", "result-overwritten",
    "rotary-frequencies-rounded", "scores-overflow", "up-projection-missing",
    "variance-cancels", "views-misread",
    "state-transposed", "delta-undecayed", "chunk-token-lost", "gate-of-chunk-missing",
    "output-gate-late",
}  # fmt: skip
_PLAIN = (
    "scale-missing", "mask-top-left", "kv-heads-tiled", "rescale-sum", "window-short", "scale-off",
    "padding-of-other-item", "cache-order", "positions-equal", "gradient-dropout-missing", "gradient-dropout-factor",
)  # fmt: skip


def _fresh(code: str) -> None:
    """Fail unless the stored input still shows a mistake with this code."""
    example = example_of(code)
    assert example is not None
    read = read_code(example.cause, example.step)
    assert read is not None
    assert read.code == code
    assert not np.allclose(example.right, example.wrong, rtol=1e-8, atol=0, equal_nan=True)


@pytest.mark.parametrize("code", _PLAIN)
def test_a_stored_input_shows_the_mistake(code: str) -> None:
    _fresh(code)


@pytest.mark.deep
def test_every_stored_input_shows_its_mistake() -> None:
    for code in _load_stored_examples():
        _fresh(code)


def test_every_code_that_a_rule_computes_has_an_input() -> None:
    assert {*codes()} - {*_load_stored_examples()} == _WITHOUT
    assert {*_load_stored_examples()} <= {*codes()}
    assert {code for code in codes() if reason_without_input(code)} == _WITHOUT
    printed = " ".join(render(shown_code(page_of("max-missing")), "text").split())
    assert "No input is shown: in exact arithmetic the mistake changes nothing" in printed


@pytest.mark.deep
def test_the_search_finds_a_small_input() -> None:
    (example,) = found(["mask-top-left"]).values()
    assert {name: a.tolist() for name, a in example.inputs.items()} == {"q": [[0]], "k": [[0], [0]], "v": [[0], [1]]}


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json", "latex"])
def test_a_page_prints_in_every_format(form: str) -> None:
    printed = render(shown_code(page_of("window-long")), form)
    assert "ml-explore/mlx-lm" in printed
    assert "window-long" in printed


def test_a_page_has_the_sentence_the_parameters_the_input_the_step_and_the_report() -> None:
    printed = " ".join(render(shown_code(page_of("scale-off")), "text").split())
    assert "First wrong step: scale." in printed
    assert "Parameters: factor, head." in printed
    assert "scale-off: factor = 2" in printed
    assert "q = [[1]] k = [[0], [1]] v = [[0], [1]]" in printed
    assert "verify FILE.py:FUNCTION --fix" in printed
    seen = " ".join(render(shown_code(page_of("scale-missing")), "text").split())
    assert "fla-org/flash-linear-attention#395" in seen
    assert "https://github.com/fla-org/flash-linear-attention/issues/395" in seen


def test_names_of_the_corpus_stand_for_their_codes() -> None:
    assert page_of("no-scale").code == "scale-missing"
    assert page_of("heads-in-turn").code == "kv-heads-tiled"
    assert all(page_of(fault.name).code in codes() for fault in corpus()[:3])


def test_an_unknown_code_is_refused_in_a_line_with_near_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"there is no code 'scale-mising'; did you mean scale-missing"):
        page_of("scale-mising")
    assert main(["faults", "show", "mask-topleft"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "mask-top-left" in line
    with pytest.raises(InputError, match=r"codes that begin so: scale-missing, scale-twice, .*…$"):
        page_of("scale")


def test_a_code_is_shown_as_a_verdict_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert page_of("[scale-off: factor = 1.02].").code == "scale-off"
    assert main(["faults", "show", "scale-missing", "+", "mask-top-left"]) == 2
    assert "these are 2 codes; hint: symattn faults show scale-missing" in capsys.readouterr().err


def test_the_command_alone_lists_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults"]) == 0
    printed = capsys.readouterr().out
    assert not [code for code in codes() if not re.search(rf"^\s*{re.escape(code)}\b", printed, re.MULTILINE)]
    assert main(["faults", "codes", "-f", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["codes"]
    assert [entry["code"] for entry in listed] == [*codes()]
