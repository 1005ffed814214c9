"""The command line that a document ends in: a shell reads from it the words and numbers that were typed."""

import re
import shlex
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def made_with(text: str) -> list[str]:
    """The words of the command line that made a document."""
    (line,) = re.findall("Made with symattn: (symattn.*)", text)
    return shlex.split(line)


@pytest.mark.parametrize("number", [0.123456789, 1 / 3, 1e-7, 60.0, 2.0**-30, 1234567.0])
def test_a_command_line_gives_a_float_again(number: float, run) -> None:
    *_, option, value = made_with(run("bound", "--n", "4", "--largest", repr(number)).stdout)
    assert (option, float(value)) == ("--largest", number)


def test_options_are_flags_words_and_rows(run) -> None:
    fields = ["--causal", "--no-stabilised", "--position", "Rotary(base=500)", "--scale", "1/3", "--window", "2,none"]
    made = shlex.split(run("walk", "alibi", *fields, "-f", "json").json["command"])
    assert made[:3] == ["symattn", "walk", "alibi"]
    assert sorted(made[3:]) == sorted(fields)


@pytest.mark.deep
def test_calls_are_repeated_and_definitions_quoted_as_they_are_typed(run) -> None:
    Path("my file.py").write_text("def f(q, k, v, g, a=0, b=''):\n    return v\n")
    definition = "LinearAttention(normalised=False, gate='token')"
    ran = run(
        "verify", "my file.py:f", "--definition", definition, "--examples", "0", "--call", "a=1", "--call", "b='c'"
    )
    assert ran.stdout.rstrip().endswith(
        f"""symattn verify 'my file.py:f' --definition "{definition}" --examples 0 --call a=1 --call "b='c'\""""
    )
