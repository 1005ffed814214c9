"""``symattn derive``: parameters are options; what is told is kept, and never read from a broken file."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest

from symattn import Document, derivations, derive
from symattn.document import stored_results
from symattn_cli.derive import command
from tests.cli.conftest import Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    """The folder of kept derivations, empty."""
    monkeypatch.setenv("SYMATTN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "derivations"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the derivations that are told from now on."""
    found: list[str] = []
    honest = derivations.derive
    monkeypatch.setattr(derivations, "derive", lambda name, **p: (found.append(name), honest(name, **p))[1])
    return found


def test_a_derivation_is_told_once(run: Run, folder: Path, told: list[str]) -> None:
    first, second = run("derive", "shift"), run("derive", "shift")
    assert (first.status, first.stdout) == (second.status, second.stdout)
    assert told == ["shift"]
    assert run("derive", "shift", "--no-cache").stdout == first.stdout
    assert len(list(folder.iterdir())) == 1


@pytest.mark.deep
def test_other_parameters_are_told_anew(folder: Path, told: list[str]) -> None:
    wanted: list[dict[str, Any]] = [{}, {"causal": True}, {"block": 2}, {"softcap": "2"}, {"softcap": 2}]
    documents = [derivations.cached("attention", **p) for p in wanted]
    assert len(told) == len(wanted)
    assert [derivations.cached("attention", **p) for p in wanted] == documents
    assert len(told) == len(wanted)


def test_another_source_is_told_anew(folder: Path, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    derivations.cached("shift")
    monkeypatch.setattr(stored_results, "ground", lambda *rooms: "another source")
    derivations.cached("shift")
    assert told == ["shift", "shift"]


def test_nothing_is_kept_of_a_copy_that_is_not_installed(
    folder: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_results, "version", lambda name: version(f"{name}-of-nobody"))
    stored_results.ground.cache_clear()
    try:
        assert derivations.cached("shift") == derivations.cached("shift")
    finally:
        stored_results.ground.cache_clear()
    assert told == ["shift", "shift"]
    assert not folder.exists()


@pytest.mark.deep
def test_files_that_cannot_be_trusted_are_as_good_as_none(folder: Path, told: list[str]) -> None:
    document = derivations.cached("shift")
    (file,) = folder.iterdir()
    text = file.read_text(encoding="utf-8")
    altered = text.replace("all sizes", "no sizes")
    assert altered != text
    rewritten = "\n".join((stored_results.digest(['{"is": "Code", "text": "x"}']), '{"is": "Code", "text": "x"}'))
    for broken in ("", "{", altered, text[:-1], text + " ", rewritten, "[" * 99999, " " * 5_000_000):
        file.write_text(broken, encoding="utf-8")
        told.clear()
        assert derivations.cached("shift") == document
        assert told == ["shift"]
    told.clear()
    assert derivations.cached("shift") == document
    assert not told
    file.unlink()
    file.mkdir()
    assert derivations.cached("shift") == document


@pytest.mark.skipif(sys.platform == "win32", reason="files have other owners there")
def test_a_file_that_others_may_write_is_as_good_as_none(folder: Path, told: list[str]) -> None:
    derivations.cached("shift")
    (file,) = folder.iterdir()
    file.chmod(0o666)
    derivations.cached("shift")
    assert told == ["shift", "shift"]
    file.unlink()
    os.mkfifo(file)
    derivations.cached("shift")
    assert len(told) == 3


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SYMATTN_CACHE", str(tmp_path / "file"))
    assert run("derive", "shift").status == 0


@pytest.mark.deep
def test_what_is_kept_is_told_without_the_prover(folder: Path) -> None:
    program = "import sys, cli.main as c; c.main(['derive', 'shift']); print([m for m in sys.modules if 'proof' in m])"
    program = program.replace("cli.main", "symattn_cli.main")
    lines = [subprocess.check_output([sys.executable, "-c", program], text=True) for _ in range(2)]
    assert "symattn.proof.prover" in lines[0].splitlines()[-1]
    assert lines[1].splitlines()[-1] == "[]"
    assert lines[0].splitlines()[:-1] == lines[1].splitlines()[:-1]


SOME = ("shift", "attention")
OTHERS = sorted({*derivations.names()} - {"variants", *SOME})


@pytest.mark.parametrize("name", [*SOME, *(pytest.param(name, marks=pytest.mark.deep) for name in OTHERS)])
def test_documents_are_read_as_they_were_written(name: str) -> None:
    document = derive(name)
    assert stored_results.read(stored_results.written(document), Document) == document


def test_every_parameter_of_every_derivation_is_an_option() -> None:
    known = {option.name for option in command.params if isinstance(option, click.Option)}
    for entry in derivations.names().values():
        assert set(entry.parameters) <= known


def test_the_list_names_every_derivation(run) -> None:
    ran = run("derive", "--list")
    assert ran.status == 0
    assert all(name in ran.stdout for name in derivations.names())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("scalling",), "did you mean scaling?"),
        (("--dk", "0"), "d_k must be an integer from 1 to 65536, got 0"),
        (("--dk", "-1"), "d_k must be an integer from 1 to 65536, got -1"),
        (("--dk", "1000000000"), "d_k must be an integer from 1 to 65536, got 1000000000"),
        (("--dk", "four"), "four"),
        (("shift", "--dk", "4"), "has no parameter d_k"),
        (("--mean", "a b"), "a b"),
        (("attention", "--mask", "bool"), "Did you mean 'boolean'?"),
        (("attention", "--scale", "1/0"), "1/0"),
        (("attention", "--tokens", "1000"), "n must be an integer from 1 to 64, got 1000"),
        (("scaling", "more"), "more"),
    ],
)
def test_bad_input_is_one_line(run, arguments: tuple[str, ...], words: str) -> None:
    assert words in run("derive", *arguments).refusal
