"""The table of commands: help, version, completion."""

import subprocess
import sys
from importlib.metadata import version

import click
import pytest

from symattn_cli.main import TABLE, commands

pytestmark = pytest.mark.smoke


def test_help_names_every_command(run) -> None:
    ran = run("--help")
    assert ran.status == 0
    assert all(f"\n  {name}" in ran.stdout for name in TABLE)
    assert ran.stdout == run().stdout == run("-h").stdout


@pytest.mark.parametrize("name", TABLE)
def test_every_command_of_the_table_is_there_and_has_help(run, name: str) -> None:
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    assert command.name == name
    assert f"Usage: symattn {name}" in run(name, "--help").stdout


def test_version(run) -> None:
    assert run("--version").stdout == f"symattn {version('symattn')}\n"


def test_no_help_imports_the_specification_or_anything_heavy() -> None:
    program = (
        "import sys; from symattn_cli.main import TABLE, main; main(['--help']);"
        "assert 'symattn' not in sys.modules; [main([name, '--help']) for name in TABLE];"
        "heavy = {'sympy', 'numpy', 'flint', 'torch', 'hypothesis', 'ml_dtypes', 'symattn.attention.spec'};"
        "heavy &= set(sys.modules); sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(run, shell: str) -> None:
    ran = run("completion", shell)
    assert ran.status == 0
    assert "_SYMATTN_COMPLETE" in ran.stdout


def test_completion_completes(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_SYMATTN_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "symattn completion z")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert run().stdout == "plain,zsh\n"
