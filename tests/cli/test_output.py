"""Where documents go: stdout, files, comparison; and what decides the exit code."""

import io
import os
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from symattn import Document, Evidence, Grade, Verdict, derivations, printing
from symattn_cli import stream
from symattn_cli.output import status

FORMS = {"text": "txt", "latex": "tex", "markdown": "md", "json": "json"}


def sample(*grades: Grade, **changes: object) -> Document:
    steps = printing.Steps(
        tuple(
            printing.Step(printing.equals(printing.name("σ"), Fraction(1, 2)), ("why",), Evidence(grade, "n = 1"))
            for grade in grades
        )
    )
    fields: dict[str, object] = {"hints": ("symattn derive shift",), "command": "symattn derive scaling", **changes}
    blocks = (printing.Paragraph(("Half of a × is √4.",)), steps)
    return Document("derivation", "scaling", ("A title",), blocks, **fields)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _derives_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derivations, "derive", lambda *_, **__: sample(Grade.CHECKED), raising=False)


def test_stdout_is_the_document_and_hints_go_to_stderr(run) -> None:
    ran = run("derive")
    assert ran.status == 0
    assert "A title" in ran.stdout
    assert "symattn derive shift" not in ran.stdout
    assert ran.stderr.split() == ["Next", "symattn", "derive", "shift"]
    assert run("derive").stdout == ran.stdout


@pytest.mark.parametrize("form", FORMS)
def test_a_file_gets_the_bytes_that_stdout_gets(run, form: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{FORMS[form]}"
    shown = run("derive", "-f", form).stdout
    ran = run("derive", "-o", str(path))
    assert (ran.status, ran.stdout, ran.stderr) == (0, "", "")
    assert path.read_bytes() == shown.encode()
    assert run("derive", "-o", str(path)).status == 0, "symattn knows its own file again"
    assert run("derive", "-f", form, "-o", "-").stdout == run("derive", "-f", FORMS[form]).stdout == shown


@pytest.mark.parametrize("form", FORMS)
def test_check_compares_and_writes_nothing(run, form: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{FORMS[form]}"
    run("derive", "-o", str(path))
    ran = run("derive", "--check", str(path))
    assert (ran.status, ran.stdout, ran.stderr) == (0, "", "")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert run("derive", "--check", str(path)).status == 0, "line ends of another system are no change"
    stale = path.read_bytes() + b" "
    path.write_bytes(stale)
    ran = run("derive", "--check", str(path))
    assert (ran.status, ran.stdout) == (1, "")
    assert "out of date" in ran.stderr
    assert path.read_bytes() == stale


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-f", "pdf"), "'pdf' is not one of text, latex, markdown, html, json"),
        (("-f", "latx"), "Did you mean 'latex'?"),
        (("--json",), "there is no --json; write -f json"),
        (("--tex",), "there is no --tex; write -f latex"),
        (("--fragment",), "--fragment belongs to latex"),
        (("-o", "a.tex", "--check", "b.tex"), "without -o"),
        (("-o", "a.xyz"), "a.xyz"),
        (("-o", "missing/a.tex"), "does not exist"),
        (("-o", "."), "directory"),
        (("-f", "text", "-o", "."), "directory"),
        (("--check", "missing.tex"), "missing.tex"),
        (("--color", "sometimes"), "sometimes"),
    ],
)
def test_wrong_options_are_one_line_and_write_nothing(
    run, arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in run("derive", *arguments).refusal
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_is_found_before_any_work(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.md"
    path.write_text("mine\n")
    monkeypatch.setattr(derivations, "derive", lambda *_, **__: pytest.fail("work was done"), raising=False)
    ran = run("derive", "-o", str(path))
    assert ran.status == 2
    assert "--force" in ran.stderr
    assert path.read_text() == "mine\n"


def test_ascii_where_stdout_is_not_utf8(run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not run("derive").stdout.isascii()
    assert run("derive", "--ascii").stdout.isascii()
    monkeypatch.setattr(stream, "speaks_utf8", lambda: False)
    assert run("derive").stdout.isascii()
    assert not run("derive", "--unicode").stdout.isascii()


@pytest.mark.parametrize(("encoding", "utf8"), [("UTF-8", True), ("utf8", True), ("cp1252", False), ("ascii", False)])
def test_what_speaks_utf8(encoding: str, utf8: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert stream.speaks_utf8() == utf8


def test_colour_only_where_it_is_shown(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name_ in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name_, raising=False)
    assert "\x1b" not in run("derive").stdout
    assert "\x1b" in run("derive", "--color", "always").stdout
    run("derive", "--color", "always", "-o", str(tmp_path / "a.txt"))
    assert "\x1b" not in (tmp_path / "a.txt").read_text(encoding="utf-8")


def test_no_color_and_dumb_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "")
    assert stream.colours("auto"), "an empty NO_COLOR asks for nothing"
    assert not stream.colours("never")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not stream.colours("auto")
    assert stream.colours("always")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not stream.colours("auto")


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (sample(Grade.CHECKED, Grade.SAMPLED), 0),
        (sample(), 0),
        (sample(Grade.CHECKED, Grade.UNDECIDED), 3),
        (sample(Grade.UNDECIDED, Grade.REFUTED), 1),
        (sample(verdict=Verdict.NO_FAULT), 0),
        (sample(verdict=Verdict.FAULT), 1),
        (sample(verdict=Verdict.UNDECIDED), 3),
        (Document("claim", "equal", (), (), record={"holds": True}), 0),
        (Document("claim", "equal", (), (), record={"holds": False}), 1),
        (Document("claim", "equal", (), (), record={"holds": None}), 3),
        (Document("claim", "equal", (), ()), 3),
    ],
)
def test_the_document_decides_the_exit_code(document: Document, code: int) -> None:
    assert status(document) == code


PROGRAM = """
import sys
from symattn import derivations
from symattn.document.model import Document, Paragraph
text = "word " * int(sys.argv[1])
derivations.derive = lambda *_, **__: Document("derivation", "scaling", ("T",), (Paragraph((text,)),))
from symattn_cli.main import main
sys.exit(main(["derive", "--no-cache"]))
"""


def process(words: int, **options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(words)], stderr=subprocess.PIPE, **options)  # type: ignore[call-overload, no-any-return]


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    running = process(200_000, stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline().strip()
    running.stdout.close()
    _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, b"")


@pytest.mark.skipif(os.name == "nt", reason="interrupts are sent in another way there")
def test_an_interrupted_process_exits_with_130() -> None:
    slow = 'print("begun", flush=True); import time; time.sleep(60)'
    program = PROGRAM.replace("derivations.derive = lambda *_, **__: ", f"def slow(*_, **__):\n    {slow}\n_ = ")
    program = program.replace("from symattn_cli.main", "derivations.derive = slow\nfrom symattn_cli.main")
    running = subprocess.Popen(
        [sys.executable, "-c", program, "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (130, "", "symattn: interrupted\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device there")
def test_a_full_stdout_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        running = process(10, stdout=full)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 2
    assert err.count(b"\n") == 1
    assert b"No space left" in err


@pytest.mark.skipif(os.name == "nt", reason="no shell to close stdout with")
def test_a_closed_stdout_is_one_line() -> None:
    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", PROGRAM, "10"], stderr=subprocess.PIPE, timeout=60
    )
    assert ended.returncode == 2
    assert ended.stderr.count(b"\n") == 1


def test_the_same_bytes_on_a_stdout_of_another_encoding() -> None:
    """Piped on a system whose encoding is not UTF-8, text comes in plain letters."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, "3"],
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        timeout=60,
    )
    assert ended.returncode == 0
    assert ended.stdout.isascii()
    assert b"\r" not in ended.stdout
