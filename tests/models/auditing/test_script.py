"""``symattn audit script.py``: the script runs as by Python, its exit code is told, and the audit's own decides."""

import json
from pathlib import Path

import pytest

from symattn_cli.main import main

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """
import sys, torch
q = torch.randn(1, 2, 5, 4)
right = torch.nn.functional.scaled_dot_product_attention
print("arguments", sys.argv[1:], __name__)
right(q, q, q)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("code", [0, 7])
def test_the_exit_code_of_the_script_is_kept_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    assert main(["audit", str(path), str(code), "--flag"]) == 0
    said = capsys.readouterr()
    assert f"arguments ['{code}', '--flag'] __main__" in said.out
    assert "PASS AS GIVEN: 1 of 1 calls read, 0 compared with a configuration." in said.out
    assert f"ended with exit code {code}" in said.err


def test_a_traceback_begins_at_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "script.py"
    path.write_text("def fail():\n    return [][1]\n\nfail()\n")
    main(["audit", str(path)])
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:3] == [f'  File "{path}", line 4, in <module>', "    fail()"]


def test_json_is_alone_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    assert main(["audit", "-f", "json", str(path), "3"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["script_exit_code"], told["read"], told["seen"]) == ("audit", 3, 1, 1)


def test_a_script_that_raises_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "script.py"
    path.write_text("raise ValueError('lost')")
    assert main(["audit", str(path)]) == 3
    said = capsys.readouterr()
    assert "ValueError: lost" in said.err
    assert "no attention call was seen" in said.out


def test_the_command_that_is_told_judges_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    assert main(["audit", "-f", "json", "--contract", "eager", "--rows", "3", str(path), "0"]) == 0
    assert f"symattn audit --contract eager --rows 3 {path} 0" in capsys.readouterr().out
    assert main(["audit", "-f", "json", "--all-rows", str(path), "0"]) == 0
    assert f"symattn audit --all-rows {path} 0" in capsys.readouterr().out


def test_rows_and_all_rows_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--rows", "3", "--all-rows", "nowhere.py"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_no_script_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "nowhere.py"]) == 2
    assert "there is no file nowhere.py" in capsys.readouterr().err


LAYERED = """
import sys, torch
from transformers import LlamaConfig, LlamaModel
sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
model = LlamaModel(LlamaConfig(vocab_size=8, rms_norm_eps=0.01, **sizes)).eval()
model.layers[0].post_attention_layernorm.variance_epsilon *= int(sys.argv[1])
with torch.no_grad():
    model(torch.arange(6)[None])
"""


@pytest.mark.transformers
@pytest.mark.parametrize(
    ("times", "code", "words"),
    [("1", 0, "1 of 1 whole layers judged"), ("10", 1, "CERTIFIED WRONG: mlp_norm: ε is 0.1, expected 0.01")],
)
def test_whole_layers_are_judged_where_they_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], times: str, code: int, words: str
) -> None:
    pytest.importorskip("transformers")
    path = tmp_path / "script.py"
    path.write_text(LAYERED)
    assert main(["audit", str(path), times]) == 0
    capsys.readouterr()
    assert main(["audit", "--layers", str(path), times]) == code
    assert words in " ".join(capsys.readouterr().out.split())
