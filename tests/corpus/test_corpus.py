"""The corpus of faults: each is wrong where it is sampled, right programs are right, and files hold what they say."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn.faults.corpus import EVERYDAY, corpus, drawn, export, named, packed, sample
from symattn.faults.detection import RULES, detect, probed
from symattn_cli.main import main
from tests.refusals import refuses


def families() -> list[Any]:
    return list({fault.family: fault for fault in corpus()}.values())


def test_names_are_unique_and_reports_are_cited() -> None:
    assert len({fault.name for fault in corpus()}) == len(corpus())
    reports = [report for fault in corpus() for report in fault.reports]
    assert len(reports) > 20
    assert all(where.count("/") == 1 and number > 0 and words for where, number, words in reports)


def test_every_fault_shows_in_its_sample_and_the_right_program_does_not() -> None:
    for fault in corpus():
        got = sample(fault, 0)
        scale = np.abs(got.exact).max()
        assert not np.allclose(got.wrong, got.exact, rtol=0, atol=1e-3 * scale), fault.name
        assert np.abs(got.right - got.exact).max() < 1e-6 * scale, fault.name


def test_the_exact_output_is_the_definition() -> None:
    for fault in families():
        got = sample(fault, 3)
        wide = {n: a.astype(float) if a.dtype.kind == "f" else a for n, a in got.inputs.items()}
        assert np.allclose(got.exact, fault.spec(**wide), rtol=1e-12, atol=0)


def test_a_seed_gives_the_same_bytes_again() -> None:
    fault = named("window-short")
    assert packed(sample(fault, 5)) == packed(sample(fault, 5)) != packed(sample(fault, 6))
    assert sample(fault, 5, EVERYDAY).exact.shape == (16, 16)


def test_an_export_holds_the_samples(tmp_path: Path) -> None:
    paths = export(tmp_path / "corpus", 2, [named("no-scale"), named("padding-inverted")])
    assert len(paths) == 5
    record = json.loads((tmp_path / "corpus" / "corpus.json").read_text(encoding="utf-8"))
    entry = record["faults"][1]
    assert entry["reports"] == []
    assert entry["step"] == "mask"
    with np.load(tmp_path / "corpus" / entry["files"][1], allow_pickle=False) as held:
        assert set(held) == {"input_q", "input_k", "input_v", "input_keep", "exact", "right", "wrong"}
        assert np.array_equal(held["wrong"], sample(named("padding-inverted"), 1).wrong)
    refuses(export, tmp_path / "corpus", 1, [named("no-scale")], says="corpus")


def test_bad_input_is_refused(tmp_path: Path) -> None:
    refuses(named, "window-shrt", says="did you mean window-short")
    refuses(export, tmp_path / "new", 101, says="seeds")
    refuses(drawn, named("no-scale").spec, -1, EVERYDAY, says="seed")


def test_rules_accept_what_is_right_and_refuse_what_is_not() -> None:
    got = sample(named("no-scale"), 0)
    assert all(rule(got, got.right) for rule in RULES.values())
    assert not any(rule(got, got.wrong) for rule in RULES.values())


def test_the_width_of_the_values_shows_in_no_everyday_input() -> None:
    told = detect(named("scale-of-values"))
    assert not any(told.rules.values())
    assert told.after is not None


@pytest.mark.deep
def test_the_inputs_of_verify_show_every_fault_and_accuse_no_right_program() -> None:
    assert [fault.name for fault in corpus() if probed(fault) is None] == []
    assert [fault.family for fault in families() if probed(fault, right=True) is not None] == []


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["faults", "list", "-f", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["faults"]) == len(corpus())
    assert main(["faults", "show", "cap-after-mask"]) == 0
    assert "onnx/onnx#7865" in capsys.readouterr().out
    assert main(["faults", "run", "no-scale", "-o", "one.npz"]) == 0
    assert main(["faults", "run", "no-scale", "-o", "one.npz"]) == 2
    assert main(["faults", "run"]) == 2
    assert main(["faults", "show", "nothing"]) == 2
    assert "there is no code 'nothing'" in capsys.readouterr().err
