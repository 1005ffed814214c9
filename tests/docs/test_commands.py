"""Every command of the README and the documentation does what the page shows."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from symattn_cli.defaults import spelled
from symattn_cli.main import commands as main_group
from symattn_cli.main import main
from tests.docs.pages import PAGES, Command, commands, elided, files, matches, typed, unmade

# What a block names or imports → the package without which it cannot be played.
TOOLS = {".onnx": "onnx", "transformers": "transformers", "safetensors": "transformers", "torch": "torch"}

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
            assert program in ("symattn", "python"), f"a console block runs symattn, and files of its page: {command}"
            status = main(arguments) if program == "symattn" else scripted(arguments)
            out, err = capsys.readouterr()
            if following is None or following.words != "echo $?":
                assert status == 0, f"{command.words}: exit code {status}\n{err}"
            shown = not command.printed or matches(command, out) or matches(command, out + err)
            assert shown, f"{command.words}\n{command.printed}\n{out}{err}"


def scripted(arguments: list[str]) -> int:
    """Run a file that the page makes."""
    assert Path(arguments[0]).is_file(), arguments[0]
    return subprocess.run([sys.executable, *arguments], capture_output=True, check=False).returncode


def tool(block: list[Command], made: dict[str, str]) -> str:
    """The optional package that a block needs, by what it names and by what its files import."""
    words = [word for command in block for word in command.words.split()]
    contents = [made.get(word.partition(":")[0], "") for word in words]
    text = "\n".join((*words, *re.findall(r"^(?:import|from) .*", "\n".join(contents), re.MULTILINE)))
    return next((name for sign, name in TOOLS.items() if sign in text), "")


def blocks(page: Path, name: str) -> list[list[Command]]:
    """The blocks of a page that need this package, or none."""
    text = page.read_text(encoding="utf-8")
    return [block for block in commands(text) if tool(block, files(text)) == name]


def prepare(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text(encoding="utf-8")
    for name, content in files(text).items():
        folder.joinpath(name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("page", SHORT_FIRST, ids=lambda page: page.name)
def test_commands_of_a_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(page, tmp_path, monkeypatch)
    play(blocks(page, ""), capsys)


WITH_TOOLS = [
    pytest.param(page, name, marks=getattr(pytest.mark, name), id=f"{page.name}-{name}")
    for page in PAGES
    for name in dict.fromkeys(TOOLS.values())
    if blocks(page, name)
]


@pytest.mark.parametrize(("page", "name"), WITH_TOOLS)
def test_commands_with_tools(
    page: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(page, tmp_path, monkeypatch)
    play(blocks(page, name), capsys)


def unreadable(line: str) -> list[str]:
    """The words of a command line that symattn has not: another command, other options."""
    words = shlex.split(line, comments=True)[1:]
    context = click.Context(main_group)
    if words[0].startswith("-"):
        return []
    command = main_group.get_command(context, words[0])
    known = spelled(command) | {"version", "help"} if command else set()
    options = (word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word))
    return [words[0]] * (command is None) + [word for word in options if word.lstrip("-") not in known]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_can_be_typed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    wrong = {line: words for line in typed(text) if "…" not in line and (words := unreadable(line))}
    assert wrong == {}
    assert unmade(text) == [], "a page makes the files that its commands read"


def test_a_command_that_cannot_be_typed_is_seen() -> None:
    text = "Say `symattn wlak`.\n\n```text\nsymattn verify a.py:f --casual\n```\n"
    assert [unreadable(line) for line in typed(text)] == [["--casual"], ["wlak"]]
    assert unmade(text) == ["symattn verify a.py:f --casual"]
    assert unmade(f"```{{symattn-file}} a.py\nf\n```\n{text}") == []
    assert unmade("Run `symattn audit script.py`, `symattn audit SCRIPT.py`.") == ["symattn audit script.py"]
    assert unmade("Run `symattn generation ./model`.\n") == ["symattn generation ./model"]
    assert [unreadable(line) for line in ("symattn derive --dk 4", "symattn claim weights .5 -.5", "symattn -h")] == [
        [],
        [],
        [],
    ]


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
