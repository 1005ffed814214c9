"""Every command of the README and the documentation does what the page shows."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from symattn_cli.main import main
from tests.docs.pages import PAGES, Command, answers, commands, elided, files, matches

SHORT_FIRST = [pytest.param(p, marks=() if p.name in ("claim.md", "walk.md") else pytest.mark.docs) for p in PAGES]


def play(blocks: list[list[Command]], capsys: pytest.CaptureFixture[str]) -> None:
    """Run the commands in order. Without ``echo $?`` behind it, a command must succeed."""
    for block in blocks:
        status = 0
        for command, following in zip(block, [*block[1:], None], strict=True):
            if command.words == "echo $?":
                assert command.printed == (str(status),)
                continue
            program, *arguments = shlex.split(command.words, comments=True)
            assert program == "symattn", f"a console block runs symattn alone: {command.words}"
            status = main(arguments)
            out, err = capsys.readouterr()
            if following is None or following.words != "echo $?":
                assert status == 0, f"{command.words}: exit code {status}\n{err}"
            shown = not command.printed or matches(command, out) or matches(command, out + err)
            assert shown, f"{command.words}\n{command.printed}\n{out}{err}"


def needs_torch(block: list[Command]) -> bool:
    return any("torch" in command.words for command in block)


def prepare(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[Command]]:
    text = page.read_text(encoding="utf-8")
    for name, content in files(text).items():
        folder.joinpath(name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    return [*commands(text), *answers(text)]


@pytest.mark.parametrize("page", SHORT_FIRST, ids=lambda page: page.name)
def test_commands_of_a_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play([block for block in prepare(page, tmp_path, monkeypatch) if not needs_torch(block)], capsys)


@pytest.mark.torch
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_with_torch(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play([block for block in prepare(page, tmp_path, monkeypatch) if needs_torch(block)], capsys)


def test_a_page_that_is_wrong_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    play(commands("```console\n$ symattn completion bas\n$ echo $?\n2\n```\n"), capsys)
    for wrong in (
        "$ symattn completion bas\n",
        "$ symattn completion bas\n$ echo $?\n0\n",
        "$ symattn --version\nsymattn 99\n",
        "$ ls\n",
    ):
        with pytest.raises(AssertionError):
            play(commands(f"```console\n{wrong}```\n"), capsys)


def test_a_directive_that_is_wrong_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    page = "```{{symattn}} completion {}\n:terminal:\n{}```\n"
    play(answers(page.format("bas", ":exit: 2\n")), capsys)
    play(answers(page.format("bash", "")), capsys)
    play(answers(page.format("bash", ':says: "_symattn_completion"\n')), capsys)
    for wrong in (("bas", ""), ("bash", ":exit: 2\n"), ("bash", ":says: nowhere\n")):
        with pytest.raises(AssertionError):
            play(answers(page.format(*wrong)), capsys)
    assert answers(f"````text\n{page.format('bas', '')}````\n") == []


def test_files_are_read_from_both_forms() -> None:
    assert files("<!-- file: a.py -->\n```python\na\n```\n```{symattn-file} b.py\nb\n```\n") == {
        "a.py": "a\n",
        "b.py": "b\n",
    }


def test_whole_outputs_and_parts_of_them() -> None:
    whole, part = Command("", ("a", "b")), Command("", ("b", "c"), cut=True)
    assert matches(whole, "a  \nb\n")
    assert not matches(whole, "a\nb\nc\n")
    assert matches(part, "a\nb\nc\nd\n")
    assert not matches(part, "b\nd\nc\n")
    assert commands("<!-- cut -->\n```console\n$ symattn\na\n```\n")[0][0].cut


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_output_is_elided(page: Path) -> None:
    """The README alone shows parts, and says so; the documentation has all of them."""
    text = page.read_text(encoding="utf-8")
    assert elided(text) == []
    assert page.name == "README.md" or not any(command.cut for block in commands(text) for command in block)


def test_an_elided_output_is_seen() -> None:
    for line in ("...", "  …", ">>> f()  # doctest: +ELLIPSIS"):
        assert elided(f"```console\n$ symattn walk\n{line}\n```\n") == [line]
    assert elided(">>> for x in y:\n...     f(x)\nsymattn [OPTIONS] COMMAND [ARGS]...\n") == []
