"""Every error is one line on stderr, with the exit code of its kind."""

import subprocess
import sys
from errno import ENAMETOOLONG, ENOENT, ENOSPC
from importlib.metadata import version
from pathlib import Path

import click
import pytest

import symattn
from symattn import InputError, MissingExtra, Refused, Undecided
from symattn_cli import choices
from symattn_cli.errors import Status, report
from symattn_cli.main import GROUPS, TABLE, commands

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (
            InputError("d_k must be an integer from 1 to 65536, got 0"),
            2,
            "symattn: d_k must be an integer from 1 to 65536, got 0",
        ),
        (Refused("exact has no sort"), 2, "exact has no sort"),
        (MissingExtra("torch", "torch"), 2, "pip install 'symattn[torch]'"),
        (Undecided("is it zero?"), 3, "undecided: is it zero?"),
        (click.UsageError("no such thing"), 2, "no such thing"),
        (KeyboardInterrupt(), 130, "symattn: interrupted"),
        (ZeroDivisionError("division by zero"), 70, "ZeroDivisionError: division by zero"),
        (RuntimeError("two\nlines"), 70, "two lines"),
        (OSError(ENAMETOOLONG, "File name too long", "x.py"), 2, "x.py cannot be used: File name too long"),
        (OSError(ENOSPC, "No space left on device"), 2, "a file cannot be used: No space left on device"),
        (FileNotFoundError(ENOENT, "No such file", symattn.__file__), 70, "a defect of symattn"),
        (MemoryError("Unable to allocate 8 GiB"), 2, "not enough memory; hint: smaller sizes. Unable to allocate"),
        (SystemExit(0), 4, "ended the process: SystemExit: 0"),
        (InputError("\x1b[31mred.json is not a file"), 2, r"\x1b[31mred.json"),
        (InputError(f"{'9' * 5000} is not a size"), 2, f"{'9' * 60}…(5000 characters) is not a size"),
    ],
)
def test_an_error_is_one_line_with_its_code(
    error: BaseException, status: int, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SYMATTN_DEBUG", raising=False)
    assert report(error) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


def test_a_defect_says_where_and_shows_its_traceback_when_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise AssertionError("broken")

    def caught() -> AssertionError:
        with pytest.raises(AssertionError) as info:
            broken()
        return info.value

    monkeypatch.delenv("SYMATTN_DEBUG", raising=False)
    assert report(caught()) == Status.DEFECT
    assert "test_errors.py:" in capsys.readouterr().err
    monkeypatch.setenv("SYMATTN_DEBUG", "1")
    assert report(caught()) == Status.DEFECT
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("derve",), "Did you mean 'derive'?"),
        (("--versoin",), "--version"),
        (("completion", "bsh"), "Did you mean 'bash'?"),
        (("completion",), "Missing argument"),
        (("completion", "bash", "more"), "more"),
        (("zzz",), "there is no command 'zzz'"),
        (("claim",), "a command is missing: weights, similarity, closer, equal"),
        (("derive", "--check", ""), "symattn derive: --check is empty"),
        (("derive", "-o", ""), "--output is empty"),
        (("bound", "--config="), "--config is empty"),
        (("walk", "--step"), "symattn walk: Option '--step' requires an argument"),
        (
            ("verify", "a.py:f", "--scale", "--causal"),
            "--scale has no value: --causal is an option; hint: --scale VALUE",
        ),
        (("verify", "--budget", "-v", "a.py:f"), "--budget has no value: -v is an option; hint: --budget VALUE -v"),
        (("verify", "a.py:f", "--seed", "-1"), "seed must be an integer of at least 0, got -1"),
        (("bound", "--inputs", "a.npz", "--seed", "0"), "seed is for a bound without inputs"),
        (("bound", "--inputs", "a.npz", "--compare"), "compare is for a bound without inputs"),
        (("prove", "--search", "variance", "masks"), "no theorem of masks mentions 'variance'"),
        (("prove", "--search", "xyzzy"), "no theorem mentions 'xyzzy'"),
        (("bound", "--tile", "x"), "'x' is not a valid integer"),
        (("verify", "a.py:f", "--array", "w_q=x"), "--array is for an ONNX model, and a.py:f is a function"),
        (("verify", "a.py:f", "--no-prove"), "--prove is for an ONNX model, and a.py:f is a function"),
        (("verify", "a.py:f", "--rows", "3"), "--rows is for a trace, and a.py:f is a function"),
        (("campaign", "a.py:f"), "symattn campaign: Missing -o DIR, the folder of the results"),
        (("campaign", "-o", "x"), "symattn campaign: Missing targets"),
        (("campaign", "a.py:f", "-o", "x", "--jobs", "0"), "0 is not in the range x>=1"),
        (("campaign", "a.py:f", "-o", "x", "--scheduler", "tcp://h:1"), "it goes with --backend dask"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_with_2(run, arguments: tuple[str, ...], words: str) -> None:
    assert words in run(*arguments).refusal


@pytest.mark.transformers
def test_a_model_that_ends_the_process_is_no_answer(run, tmp_path: Path) -> None:
    target = tmp_path / "model.py"
    target.write_text("import sys\n\n\ndef make():\n    sys.exit(0)\n")
    assert run("generation", f"{target}:make").status == 4


MISTYPED = {
    "derive scaling dk=4": "; did you mean --dk 4?",
    "derive scaling d_k=4": "; did you mean --dk 4?",
    "walk eight-step causal=true": "; did you mean --causal?",
    "walk eight-step foo=1": "extra argument (foo=1) (see",
    "walk eight-step --position RoPE": "Did you mean 'rotary'?",
    "derive attention --position t5": "Did you mean 'buckets'?",
    "claim weights 50% 30% 20%": "write 1/2 in place of 50%",
    "claim weights 0.5%": "write 1/200 in place of 0.5%",
    "claim weights 50 % 30 %": "write a fraction in place of a percentage, such as 1/2",
    "claim weights 0,5 0,5": "write 0.5, with a point",
    "claim weights 5:3:2": "the shares of a ratio are 1/2 3/10 1/5",
    "derive scaling dk:4": "; did you mean --dk 4?",
    "walk --list": "`symattn examples list` lists the examples",
    "here.py:attention": "Did you mean `symattn verify here.py:attention`?",
    "verify here.py attention": "; did you mean here.py:attention?",
    "verify here.py:attention --layout bshd": "Did you mean 'bnhd'?",
    "verify here.py:attention --layout sbhd": "Did you mean 'nbhd'?",
    "verify here.py:attention --window 4": "hint: --causal, or --window left,right",
    "verify here.py:attention --position alibi": "--causal without a prefix, or --position alibi:two_sided=true",
    "verify here.py:attention --prefix 3": "hint: --causal",
    "prove nosuch": "topics: scaling, softmax, ",
    "verify here.py:nope": "no function `nope` in here.py; it defines attention",
    "verify here.py:atention": "did you mean attention?",
}


@pytest.mark.deep
def test_a_mistyped_word_gets_the_hint_that_helps(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.py").write_text("import numpy as np\ndef attention(q, k, v): ...\ndef _own(): ...\n")
    for typed, words in MISTYPED.items():
        ran = run(*typed.split())
        assert words in ran.stderr
        assert (ran.status in (2, 4), ran.stderr.count("\n")) == (True, 1)


def test_no_picture_is_written_to_a_terminal(run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("draw", "weights").stdout.startswith("<!-- Made with symattn")
    monkeypatch.setattr("symattn_cli.draw._is_terminal", lambda: True)
    ran = run("draw", "weights")
    assert (ran.status, ran.stdout) == (2, "")
    assert "write it with -o FILE.svg" in ran.stderr


@pytest.mark.parametrize("stream", ["2>/dev/full", "2>&-"])
@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
def test_an_exit_code_and_stdout_do_not_hang_on_stderr(stream: str) -> None:
    command = f"{sys.executable} -m symattn_cli derve {stream}"
    ended = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, b"")


def test_a_name_that_is_no_text_is_printed_all_the_same(run, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.json"
    sheet.write_text(r'{"title": "a\udcffb", "q": [[1]], "k": [[1]], "v": [[1]]}')
    assert run("walk", str(sheet), "--step", "1").stdout.startswith("a?b")
    assert run("walk", str(sheet), "-o", str(tmp_path / "walk.md")).status == 0


# -- The table of commands: help, version, completion ------------------------------------------------------------------
def test_help_names_every_command(run) -> None:
    ran = run("--help")
    assert ran.status == 0
    assert all(f"\n  {name}" in ran.stdout for name in TABLE)
    assert ran.stdout == run().stdout == run("-h").stdout == run("help").stdout
    titles = [f"\n{title}:\n" for title in GROUPS]
    assert [ran.stdout.index(title) for title in titles] == sorted(ran.stdout.index(title) for title in titles)
    assert ran.stdout.index("\n  verify") < ran.stdout.index(titles[1])


@pytest.mark.parametrize("name", TABLE)
def test_every_command_of_the_table_is_there_and_has_help(run, name: str) -> None:
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    assert command.name == name
    choices._hinted.clear()
    ran = run(name, "--help")
    assert f"Usage: symattn {name}" in ran.stdout
    assert run(name, "-h").stdout == ran.stdout
    assert "float8-e4m3fn" not in ran.stdout, "values are offered as they are typed"
    assert (ran.stdout.isascii(), ran.stderr) == (True, "")


def test_version(run) -> None:
    assert run("--version").stdout == run("version").stdout == f"symattn {version('symattn')}\n"


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


def test_a_specification_as_an_option_is_answered_by_the_options_there_are(run) -> None:
    for command, more in (("verify", "--definition"), ("bound", "--heads 2 (see")):
        ran = run(command, "program.py:f", "--spec", "Attention()")
        assert ran.status == 2
        assert "there is no --spec; fields of Attention are options" in ran.stderr
        assert more in ran.stderr
