"""The corpus of faults: each is wrong where it is sampled, right programs are right, and files hold what they say."""

import ast
import json
from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Alibi, Attention, Rotary, Verdict, verify
from symattn.faults.detection import RULES
from symattn_cli.main import main

_POSITIONS = {"alibi": Alibi(), "rotary": Rotary()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus as `faults export` writes it, with two samples of each fault."""
    path = tmp_path_factory.mktemp("exported") / "corpus"
    assert main(["faults", "export", "-o", str(path), "--seeds", "2"]) == 0
    return path


def entries(folder: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))["faults"]
    return listed


def families(folder: Path) -> list[dict[str, Any]]:
    return list({fault["family"]: fault for fault in entries(folder)}.values())


def specification(fault: dict[str, Any]) -> Attention:
    """Read a specification from the fields that an entry lists."""
    fields: dict[str, Any] = {}
    for name, text in fault["specification"].items():
        try:
            fields[name] = ast.literal_eval(text)
        except ValueError:
            fields[name] = _POSITIONS.get(text, text)
    return Attention(**fields)


def samples(folder: Path, fault: dict[str, Any]) -> Iterator[SimpleNamespace]:
    for name in fault["files"]:
        with np.load(folder / name, allow_pickle=False) as stored:
            arrays = dict(stored)
        inputs = {n.removeprefix("input_"): arrays.pop(n) for n in sorted(arrays) if n.startswith("input_")}
        yield SimpleNamespace(inputs=inputs, **arrays)


def program(spec: Attention, names: list[str]) -> Callable[..., Any]:
    """A right program, with the inputs as parameters."""

    def run(**inputs: Any) -> Any:
        return np.asarray(spec(**inputs), dtype=inputs["q"].dtype)

    run.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in names])  # type: ignore[attr-defined]
    return run


def test_names_are_unique_and_reports_are_cited(folder: Path) -> None:
    listed = entries(folder)
    assert len({fault["name"] for fault in listed}) == len(listed)
    reports = [report for fault in listed for report in fault["reports"]]
    assert len(reports) > 20
    assert all(r["repository"].count("/") == 1 and r["number"] > 0 and r["words"] for r in reports)


def test_every_fault_shows_in_its_sample_and_the_right_program_does_not(folder: Path) -> None:
    for fault in entries(folder):
        for got in samples(folder, fault):
            scale = np.abs(got.exact).max()
            assert not np.allclose(got.wrong, got.exact, rtol=0, atol=1e-3 * scale), fault["name"]
            assert np.abs(got.right - got.exact).max() < 1e-6 * scale, fault["name"]


def test_the_exact_output_is_the_definition(folder: Path) -> None:
    for fault in families(folder):
        for got in samples(folder, fault):
            wide = {n: a.astype(float) if a.dtype.kind == "f" else a for n, a in got.inputs.items()}
            assert np.allclose(got.exact, specification(fault)(**wide), rtol=1e-12, atol=0)


def test_a_seed_gives_the_same_bytes_again(tmp_path: Path, folder: Path) -> None:
    for name, seed in (("first", "1"), ("again", "1"), ("other", "2")):
        assert main(["faults", "run", "window-short", "--seed", seed, "-o", str(tmp_path / f"{name}.npz")]) == 0
    first, again, other = ((tmp_path / f"{name}.npz").read_bytes() for name in ("first", "again", "other"))
    assert first == again != other
    assert first == (folder / "window-short-1.npz").read_bytes()


def test_an_export_holds_the_samples(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = {fault["name"]: fault for fault in entries(folder)}
    assert len([*folder.iterdir()]) == 1 + 2 * len(listed)
    entry = listed["padding-inverted"]
    assert entry["reports"] == []
    assert entry["step"] == "mask"
    assert len(entry["files"]) == 2
    with np.load(folder / entry["files"][1], allow_pickle=False) as stored:
        assert set(stored) == {"input_q", "input_k", "input_v", "input_keep", "exact", "right", "wrong"}
    assert main(["faults", "export", "-o", str(folder)]) == 2
    assert "corpus" in capsys.readouterr().err


def test_bad_input_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = str(tmp_path / "new.npz")
    for words, answer in (
        (["run", "window-shrt"], "did you mean window-short"),
        (["export", "-o", str(tmp_path / "new"), "--seeds", "101"], "seeds"),
        (["run", "no-scale", "-o", new, "--seed", "-1"], "seed"),
    ):
        assert main(["faults", *words]) == 2
        assert answer in capsys.readouterr().err


def test_rules_accept_what_is_right_and_refuse_what_is_not(folder: Path) -> None:
    for got in samples(folder, entries(folder)[0]):
        assert all(rule(got, got.right) for rule in RULES.values())  # type: ignore[arg-type]
        assert not any(rule(got, got.wrong) for rule in RULES.values())  # type: ignore[arg-type]


def test_the_width_of_the_values_shows_in_no_everyday_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults", "run", "scale-of-values", "-f", "json"]) == 0
    (answers,) = json.loads(capsys.readouterr().out)["faults"]
    assert answers.pop("name") == "scale-of-values"
    assert isinstance(answers.pop("symattn"), int)
    assert {*answers} == {*RULES}
    assert not any(answers.values())


@pytest.mark.deep
def test_the_inputs_of_verify_show_every_fault_and_accuse_no_right_program(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["faults", "run", "--all", "-f", "json"]) == 0
    detected = json.loads(capsys.readouterr().out)["faults"]
    assert [fault["name"] for fault in detected] == [fault["name"] for fault in entries(folder)]
    assert [fault["name"] for fault in detected if not isinstance(fault["symattn"], int)] == []
    for fault in families(folder):
        (got, *_) = samples(folder, fault)
        spec = specification(fault)
        report = verify(program(spec, [*got.inputs]), spec, examples=8)
        assert report.verdict is Verdict.NO_FAULT, fault["family"]


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["faults", "list", "-f", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["faults"]) > 30
    assert main(["faults", "show", "cap-after-mask"]) == 0
    assert "onnx/onnx#7865" in capsys.readouterr().out
    assert main(["faults", "run", "no-scale", "-o", "one.npz"]) == 0
    assert main(["faults", "run", "no-scale", "-o", "one.npz"]) == 2
    assert main(["faults", "run"]) == 2
    assert main(["faults", "show", "nothing"]) == 2
    assert "there is no code 'nothing'" in capsys.readouterr().err
