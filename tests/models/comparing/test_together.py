"""Two functions on the same inputs: which is beyond the bound, by how much, and where they differ first."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, InputError, Precision, Verdict, compare, reports
from symattn.models.comparing.comparison import together
from symattn.programs.target import target
from symattn.programs.verifying import requested
from symattn.verification import engine
from symattn.verification.definitions import attention_output
from symattn_cli.main import main
from tests.models.comparing import programs


def session(function: Callable[..., Any], examples: int = 4) -> engine.Session:
    spec, precision = Attention(), Precision.of("float32")
    runner = target(function, requested(spec, dtype="float32", layout="nd", framework="numpy"))
    return engine.Session(
        runner, attention_output.subject(spec), precision, Domain(), 7, examples=examples, budget=60.0
    )


def held(first: Callable[..., Any], second: Callable[..., Any], *faults: reports.Fault) -> Any:
    return together((session(first), session(second)), faults, most=16)


def test_two_right_ones_differ_by_rounding_alone() -> None:
    found = held(programs.plain, programs.late)
    assert found.cases > 10
    assert found.wrong == (0, 0)
    assert found.faulty is None
    assert found.first is not None
    assert 0 < found.apart <= 2
    assert found.equal < found.cases


def test_one_function_is_equal_to_itself() -> None:
    found = held(programs.plain, programs.plain)
    assert found.cases == found.equal > 10
    assert found.first is found.worst is found.faulty is None


def test_the_wrong_side_is_told_whichever_it_is() -> None:
    found = held(programs.plain, programs.of_values)
    turned = held(programs.of_values, programs.plain)
    assert found.wrong[0] == turned.wrong[1] == 0
    assert found.wrong[1] == turned.wrong[0] > 0
    assert found.faulty is not None
    assert turned.faulty is not None
    assert found.faulty.first.ratio <= 1 < found.faulty.second.ratio
    assert turned.faulty.second.ratio <= 1 < turned.faulty.first.ratio


def test_the_place_holds_what_both_give() -> None:
    place = held(programs.plain, programs.of_values).faulty
    assert place is not None
    given = {name: np.asarray(a, dtype=np.float32) for name, a in place.inputs.items()}
    one, other = programs.plain(**given), programs.of_values(**given)
    assert (place.first.got, place.second.got) == (one[place.index], other[place.index])
    assert place.exact == pytest.approx(
        float(Attention()(**{n: a.astype(float) for n, a in given.items()})[place.index])
    )
    assert place.apart == pytest.approx(abs(place.first.got - place.second.got) / place.allowed)


def test_two_wrong_ones_that_agree_are_wrong() -> None:
    found = held(programs.unscaled, programs.unscaled)
    assert found.equal == found.cases
    assert found.wrong[0] == found.wrong[1] > 0


def test_inputs_that_one_refuses_are_left_out() -> None:
    found = held(programs.plain, programs.refusing)
    assert 0 < found.cases < held(programs.plain, programs.plain).cases
    assert found.wrong == (0, 0)


def test_the_counterexample_of_a_fault_comes_first() -> None:
    inputs = {"q": [[1.0, 0.0]], "k": [[0.0, 0.0], [1.0, 0.0]], "v": [[0.0], [1.0]]}
    fault = reports.Fault("scale", None, "", reports.Counterexample(inputs, (0, 0)))
    place = held(programs.plain, programs.of_values, fault).faulty
    assert place is not None
    assert place.inputs == inputs
    assert place.case.startswith("counterexample")


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
    assert f"FAULT: the {wrong} is wrong, the {right} has no fault." in found.text()
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
