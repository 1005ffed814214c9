"""``symattn.compare`` and ``symattn compare``: the verdict, its words, and the exit code."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from symattn import InputError, Verdict, compare
from symattn_cli.main import main
from tests.models.comparing import programs

FEW: dict[str, Any] = {"examples": 4}


@pytest.mark.deep
def test_rounding_alone_is_no_fault() -> None:
    found = compare(programs.plain, programs.late, **FEW)
    assert found.verdict is Verdict.NO_FAULT
    assert found.exit_code == 0
    assert found.wrong == ()
    assert found.words == "Both have no fault, and they differ by rounding alone"


@pytest.mark.deep
def test_one_function_twice_is_equal() -> None:
    assert compare(programs.plain, programs.plain, **FEW).words.endswith("they are equal")


@pytest.mark.deep
@pytest.mark.parametrize("turned", [False, True])
def test_the_wrong_one_is_named(turned: bool) -> None:
    pair = (programs.of_values, programs.plain) if turned else (programs.plain, programs.of_values)
    found = compare(*pair, **FEW)
    wrong, right = ("first", "second") if turned else ("second", "first")
    assert found.wrong == (wrong,)
    assert found.exit_code == 1
    assert f"The {wrong} is wrong, the {right} has no fault." in found.text()
    assert "1/√d_v" in found.text()


@pytest.mark.deep
def test_two_that_agree_may_both_be_wrong() -> None:
    found = compare(programs.unscaled, programs.unscaled, **FEW)
    assert found.wrong == ("first", "second")
    assert found.document().record["together"]["equal"] == found.together.cases


def test_what_is_no_function_is_refused() -> None:
    wrong: Callable[..., Any] = 3  # type: ignore[assignment]
    with pytest.raises(InputError, match="cannot be called"):
        compare(programs.plain, wrong)


@pytest.mark.deep
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("attn.py").write_text(inspect.getsource(programs), encoding="utf-8")
    options = ["--examples", "2", "--seed", "5"]
    assert main(["compare", "attn.py:plain", "attn.py:late", *options]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "differ by rounding alone" in told
    assert "symattn compare attn.py:plain attn.py:late --examples 2 --seed 5" in told
    assert main(["compare", "attn.py:plain", "attn.py:unscaled", *options, "-f", "json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert record["wrong"] == ["second"]
    assert record["verdict"] == "fault"
    assert record["sides"]["second"]["faults"][0]["step"] == "scale"
    assert record["together"]["faulty"]["second"]["error / allowed"] > 1


@pytest.mark.deep
def test_a_target_that_is_not_there_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "no_such_module:f", "no_such_module:g"]) == 4
    assert "no_such_module" in capsys.readouterr().err
