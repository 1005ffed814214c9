"""A file is written whole or not at all, and nobody else's file is replaced."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from symattn import InputError, claim
from tests.refusals import refuses

OURS = "% Made with symattn: symattn derive scaling\n"
DOCUMENT = claim("equal", "1", "1")
WRITTEN = DOCUMENT.latex()


def test_a_new_file_gets_the_usual_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    DOCUMENT.save(path)
    assert path.read_bytes() == DOCUMENT.text().encode()
    assert not path.read_text(encoding="utf-8").isascii()
    path.with_name("other").touch()
    assert path.stat().st_mode == path.with_name("other").stat().st_mode
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "other"]


def test_our_own_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.tex"
    path.write_text(OURS + "old\n")
    path.chmod(0o640)
    DOCUMENT.save(path)
    assert path.read_text(encoding="utf-8") == WRITTEN
    assert stat.S_IMODE(path.stat().st_mode) == 0o640 or os.name == "nt"


@pytest.mark.parametrize(
    "content",
    [
        "my notes: Made with symattn\n",
        "{}",
        '{"schema": 1}',
        "\\documentclass{article}\n% Made with symattn: symattn derive\n",
        "% Made with sympy\n",
    ],
)
def test_a_file_of_another_is_kept_unless_forced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.tex"
    path.write_text(content)
    refuses(DOCUMENT.save, path, says="--force")
    assert path.read_text() == content
    DOCUMENT.save(path, force=True)
    assert path.read_text(encoding="utf-8") == WRITTEN


def test_an_empty_file_may_be_filled(tmp_path: Path) -> None:
    path = tmp_path / "a.tex"
    path.touch()
    DOCUMENT.save(path)
    assert path.read_text(encoding="utf-8") == WRITTEN


def test_a_directory_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder.tex").mkdir()
    refuses(DOCUMENT.save, tmp_path / "folder.tex", force=True, says="is a directory")
    refuses(DOCUMENT.save, tmp_path / "no" / "a.tex", force=True, says="does not exist")


def test_a_file_that_may_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tex"
    path.write_text(OURS)
    monkeypatch.setattr(os, "access", lambda found, mode: Path(found) != path)
    refuses(DOCUMENT.save, path, force=True, says="a.tex is not writable")


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old.tex").write_text(OURS)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path.resolve())
    for name in ("new.tex", "old.tex"):
        with pytest.raises(InputError, match=r"the folder .* is not writable; hint: change its mode"):
            DOCUMENT.save(tmp_path / name, force=True)


def test_a_full_disk_leaves_the_old_file_and_no_half_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tex"
    path.write_text(OURS + "old\n")
    opened = os.fdopen

    class Full:
        def __init__(self, handle: int, mode: str) -> None:
            self.file = opened(handle, mode)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, content: bytes) -> None:
            self.file.write(content[:3])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdopen", Full)
    refuses(DOCUMENT.save, path, says="No space left")
    assert path.read_text() == OURS + "old\n"
    assert [p.name for p in tmp_path.iterdir()] == ["a.tex"]


def test_an_interrupt_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        DOCUMENT.save(tmp_path / "a.tex")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.tex", tmp_path / "link.tex"
    real.write_text(OURS)
    link.symlink_to(real)
    DOCUMENT.save(link)
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8") == WRITTEN


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="no such device there")
def test_a_device_is_written_to_and_stays(run) -> None:
    assert run("claim", "equal", "1", "1", "-f", "text", "-o", "/dev/null").status == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device there")
def test_a_full_device_is_one_line(run) -> None:
    ran = run("claim", "equal", "1", "1", "-f", "text", "-o", "/dev/full")
    assert (ran.status, len(ran.stderr.splitlines())) == (2, 1)
    assert "/dev/full cannot be written: No space left" in ran.stderr


def test_files_that_commands_read_are_replaced_only_by_their_own_kind(run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    shift = ("prove", "softmax-shift", "--certificate")
    run("examples", "show", "cross", "-f", "json", "-o", "sheet.json")
    run(*shift, "kept.json")
    run("derive", "shift", "-o", "page.md")
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    refused = {
        ("walk", "sheet.json", "-o", "sheet.json"): "is a sheet",
        ("examples", "show", "cross", "-f", "json", "-o", "sheet.json"): "is a sheet",
        (*shift, "sheet.json"): "is a sheet",
        (*shift, "page.md"): "holds a document",
        ("derive", "shift", "-o", "kept.json"): "holds certificates",
        (*shift, "new.json", "-o", "./new.json"): "--certificate and --output name one file",
        ("verify", "a.py:f", "--write-test", "t.json", "-o", "t.json"): "name one file",
    }
    for arguments, why in refused.items():
        ran = run(*arguments)
        assert (ran.status, why in ran.stderr) == (2, True), ran.stderr
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before
    assert run(*shift, "kept.json").status == run(*shift, "page.md", "--force").status == 0
    assert run(*shift, "/dev/null", "-o", "/dev/null", "-f", "text").status == 0 or os.name == "nt"
