"""A function in a process of its own: limits hold, ends are told, and nothing is left running."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, CannotRun, InputError, MissingExtra
from symattn.programs.child import Child, ProcessLimits
from symattn.programs.process import NotDone, apart, seldom
from symattn.programs.request import Request
from tests.programs.programs import RIGHT, Program
from tests.refusals import refuses

INPUTS = {"q": np.ones((2, 4)), "k": np.ones((3, 4)), "v": np.arange(15.0).reshape(3, 5)}
NUMPY = Request(framework="numpy")
SHORT = ProcessLimits(call=0.5)
# One program for what goes wrong, so that every test starts one child.
WRONG = """
    import ctypes, os, sys, time
    calls = []

    def forever(q, k, v):
        while True:
            pass

    def asleep(q, k, v):
        time.sleep(3600)

    def once(q, k, v):
        if len(q) == 1:
            forever(q, k, v)
        calls.append(1)
        return v * 0 + len(calls)

    def leaves(q, k, v):
        os._exit(3)

    def exits(q, k, v):
        sys.exit("bye")

    def crashes(q, k, v):
        ctypes.string_at(0)

    def talks(q, k, v):
        print("python")
        os.write(1, b"descriptor")
        os.system("echo process")
        print("error", file=sys.stderr)
        return v

    def reads(q, k, v):
        return v * len(sys.stdin.read() + input())

    def forks(q, k, v):
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(4)

    def changes(q, k, v):
        v += 1
        return v
"""


def child(name: str, request: Request = NUMPY, limits: ProcessLimits = SHORT) -> Child:
    return Child(f"attn.py:{name}", request, limits)


def alive(pid: int) -> bool:
    """Whether a process runs (one that is only waiting to be reaped does not)."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.deep
def test_a_right_function(program: Program) -> None:
    program(RIGHT)
    with child("attention") as runner:
        contract: Any = runner
        outcome = contract.run(INPUTS, "strided")
        assert contract.describe() == "attn.py:attention(q, k, v)"
        assert runner.display == "attn.py:attention(q, k, v)"
        assert contract.notes == ()
    assert outcome.output is not None
    np.testing.assert_allclose(outcome.output, np.tile(INPUTS["v"].mean(0), (2, 1)))


@pytest.mark.deep
def test_opened_as_the_command_line_does(program: Program) -> None:
    program("def attention(q, k, v, causal=False, more=0): return v + more")
    spec = Attention(causal=True)
    request = Request.of(spec, call=(("more", 2),), dtype="float32")
    with child("attention", request, ProcessLimits(call=5.0)) as runner:
        assert runner.describe() == "attn.py:attention(q, k, v, causal=True, more=2)"
        outcome = runner.run(INPUTS)
    assert outcome.output is not None
    np.testing.assert_array_equal(outcome.output, INPUTS["v"] + 2)


@pytest.mark.deep
def test_the_parent_imports_nothing_of_the_user(program: Program) -> None:
    program(RIGHT)
    with child("attention"):
        assert "attn" not in sys.modules
        assert str(Path.cwd()) not in sys.path


@pytest.mark.deep
@pytest.mark.parametrize("name", ["forever", "asleep"])
def test_what_never_returns_is_ended(program: Program, name: str) -> None:
    program(WRONG)
    with child(name) as runner:
        outcome = runner.run(INPUTS)
    assert outcome.output is None
    assert outcome.error is not None
    assert outcome.error.reason == "time limit"
    assert str(outcome.error) == "TimeLimit: did not return within 0.5 s"


@pytest.mark.deep
def test_cases_that_are_sent_ahead_are_called_in_order(program: Program) -> None:
    program(WRONG)
    stuck, other = {**INPUTS, "q": np.ones((1, 4))}, dict(INPUTS)
    with child("once") as runner:

        def counted(inputs: dict[str, np.ndarray]) -> float | None:
            output = runner.run(inputs).output
            return None if output is None else float(output.max())

        runner.ahead([(INPUTS, "contiguous")] * 3)
        assert [counted(INPUTS) for _ in range(3)] == [1, 2, 3]
        runner.ahead([(INPUTS, "contiguous")] * 3)
        assert [counted(INPUTS), counted(other)] == [4, 7]  # two were called in vain
        runner.ahead([(INPUTS, "contiguous"), (stuck, "contiguous"), (INPUTS, "contiguous")])
        assert [counted(INPUTS), counted(stuck), counted(INPUTS)] == [8, None, 1]
        lacking = {"q": INPUTS["q"]}
        runner.ahead([(lacking, "contiguous"), (INPUTS, "contiguous")])
        refuses(runner.run, lacking, says="needs the input k")
        assert counted(INPUTS) == 2


@pytest.mark.deep
@pytest.mark.parametrize("name", ["leaves", "crashes"])
def test_a_crash_among_cases_sent_ahead_is_told_of_each(program: Program, name: str) -> None:
    program(WRONG)
    with child(name) as runner:
        runner.ahead([(INPUTS, "contiguous"), (INPUTS, "strided")])
        errors = [runner.run(INPUTS).error, runner.run(INPUTS, "strided").error]
    assert [error and error.reason for error in errors] == ["ended", "ended"]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("leaves", "ended the process with exit code 3"),
        pytest.param(
            "crashes",
            "ended the process with signal SIGSEGV (attn.py:25)",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="signals are for POSIX"),
        ),
    ],
)
def test_an_end_is_told(program: Program, name: str, words: str) -> None:
    program(WRONG)
    with child(name) as runner:
        first, second = runner.run(INPUTS), runner.run(INPUTS)
    assert str(first.error) == words == str(second.error)
    assert first.error is not None
    assert first.error.reason == "ended"


@pytest.mark.deep
def test_an_exit_is_an_exception(program: Program) -> None:
    program(WRONG)
    with child("exits") as runner:
        outcome = runner.run(INPUTS)
        assert str(outcome.error) == "SystemExit: bye (attn.py:22)"
        assert runner.run(INPUTS).error == outcome.error


@pytest.mark.deep
def test_prints_reach_nobody(program: Program, capfd: pytest.CaptureFixture[str]) -> None:
    program("print('imported')" + WRONG.replace("\n    ", "\n"))
    with child("talks") as runner:
        outcome = runner.run(INPUTS)
    assert outcome.stdout == "python\nerror\n"
    assert outcome.output is not None
    assert capfd.readouterr() == ("", "")


@pytest.mark.deep
def test_there_is_nothing_to_read(program: Program) -> None:
    program(WRONG)
    with child("reads") as runner:
        error = runner.run(INPUTS).error
    assert error is not None
    assert error.type == "EOFError"


@pytest.mark.deep
def test_changed_inputs_are_named(program: Program) -> None:
    program(WRONG)
    with child("changes") as runner:
        assert runner.run(INPUTS).mutated == ("v",)


@pytest.mark.deep
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes fork on POSIX only")
def test_what_the_target_started_does_not_keep_it_alive(program: Program) -> None:
    program(WRONG)
    with child("forks", limits=ProcessLimits(call=20.0)) as runner:
        outcome = runner.run(INPUTS)
    assert str(outcome.error) == "ended the process with exit code 4"
    assert runner.spent[0] < 10


@pytest.mark.deep
def test_no_bytecode_is_written(program: Program, tmp_path: Path) -> None:
    program(RIGHT, "helper.py")
    program("def attention(q, k, v):\n    from helper import attention\n    return attention(q, k, v)")
    with child("attention") as runner:
        assert runner.run(INPUTS).error is None
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.deep
def test_files_of_the_user_do_not_replace_our_own_imports(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    program(RIGHT)
    program("raise RuntimeError('the wrong one')", "queue.py")
    program("raise RuntimeError('the wrong one')", "symattn.py")
    with child("attention") as runner:
        assert runner.run(INPUTS).error is None


@pytest.mark.deep
@pytest.mark.parametrize(
    ("target", "kind", "words"),
    [
        ("attn.py:nothing", InputError, "no function `nothing` in attn.py"),
        ("attn.py:calls", InputError, "of type list"),
        ("no_such_module:f", CannotRun, "No module named 'no_such_module'"),
    ],
)
def test_refusals_come_through(program: Program, target: str, kind: type[Exception], words: str) -> None:
    program(WRONG)
    with pytest.raises(kind, match=words):
        Child(target, NUMPY)


@pytest.mark.deep
def test_torch_missing_comes_through(program: Program) -> None:
    program("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    refuses(child, "attention", kind=MissingExtra, says="symattn[torch]")


@pytest.mark.deep
def test_bad_inputs_are_refused_and_the_child_lives_on(program: Program) -> None:
    program(WRONG)
    with child("once") as runner:
        refuses(runner.run, {name: a for name, a in INPUTS.items() if name != "v"}, says="needs the input v")
        outcome = runner.run(INPUTS)
    assert outcome.output is not None
    assert outcome.output.max() == 1


@pytest.mark.deep
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import time\ntime.sleep(3600)", "its import did not return within 0.5 s"),
        ("import os\nos._exit(5)", r"its import ended the process with exit code 5"),
        ("1 / 0", r"attn.py cannot be imported: ZeroDivisionError: division by zero \(attn.py:1\)"),
    ],
)
def test_imports_that_fail(program: Program, text: str, words: str) -> None:
    program(text)
    with pytest.raises(CannotRun, match=words):
        child("attention", limits=ProcessLimits(start=0.5 if "sleep" in text else 60.0))


@pytest.mark.deep
def test_a_trial_that_never_returns_is_left_to_the_calls(program: Program) -> None:
    program(WRONG)
    with child("forever", Request()) as runner:
        assert runner.convention.framework == "numpy"
        error = runner.run(INPUTS).error
    assert error is not None
    assert error.reason == "time limit"


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_close_ends_the_child(program: Program) -> None:
    program("import os, numpy as np\ndef pid(q, k, v): return np.array(float(os.getpid()))")
    runner = child("pid")
    output: Any = runner.run(INPUTS).output
    assert alive(int(output))
    runner.close()
    assert not alive(int(output))
    runner.close()


PARENT = """
    import numpy as np
    from symattn.programs.child import Child, ProcessLimits
    from symattn.programs.request import Request
    a = np.ones((2, 2))
    runner = Child("attn.py:forever", Request(framework="numpy"), ProcessLimits(call=60.0))
    runner.run({"q": a, "k": a, "v": a})
"""


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and sends signals")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_parent(program: Program, tmp_path: Path, sent: signal.Signals) -> None:
    program(
        "import os\nfrom pathlib import Path\ndef forever(q, k, v):\n"
        "    Path('new').write_text(str(os.getpid()))\n    Path('new').rename('pid')\n    while True: pass\n"
    )
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT)], env=environment, stderr=subprocess.PIPE, text=True
    )
    written = tmp_path / "pid"
    wait(written.exists)
    parent.send_signal(sent)
    _, errors = parent.communicate(timeout=20)
    assert ("KeyboardInterrupt" in errors) == (sent == signal.SIGINT)
    wait(lambda: not alive(int(written.read_text())))


def wait(until: Any, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_result_comes_back_and_what_was_changed_does_not() -> None:
    kept: list[int] = []

    def task() -> Iterator[list[int]]:
        kept.append(1)
        yield [*kept, *range(100_000)]
        yield kept

    first, second = apart(task, 20.0)
    assert (first[:3], second) == ([1, 0, 1], [1])
    assert kept == []


@pytest.mark.parametrize("end", [lambda: time.sleep(60), lambda: os._exit(3), lambda: 1 / 0])
def test_what_came_before_the_end_counts(end: Callable[[], Any]) -> None:
    def task() -> Iterator[int]:
        yield 7
        end()
        yield 8

    assert apart(task, 0.3) == [7]


def test_what_the_task_writes_into_the_pipe_is_no_result() -> None:
    before = _open_files()

    def task() -> Iterator[int]:
        yield 7
        for number in _open_files() - before:
            os.write(number, pickle.dumps(None))
        yield 8

    assert apart(task, 20.0) == [7]


def _open_files() -> set[int]:
    result = set()
    for number in range(256):
        with contextlib.suppress(OSError):
            os.fstat(number)
            result.add(number)
    return result


def _raising() -> Any:
    raise ValueError("not today")


def _leaving() -> Any:
    os._exit(3)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (_raising, "ValueError: not today"),
        (_leaving, "it ended its process"),
        (lambda: time.sleep(60), "it did not end within 0.3 s"),
        (lambda: [lambda: 0], "Can't pickle|local object|pickle"),
    ],
)
def test_what_gives_no_result_says_why(task: Any, words: str) -> None:
    start = time.monotonic()
    with pytest.raises(NotDone, match=words):
        apart(task, 0.3 if "0.3" in words else 20.0)
    assert time.monotonic() - start < 20


def test_what_is_said_again_in_a_moment_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    times, said = [0.0, 0.001, 0.019, 0.021, 5.0], list[float]()
    monkeypatch.setattr("symattn.programs.process.time.monotonic", lambda: times[0])
    say = seldom(lambda: said.append(times[0]))
    while times:
        say()
        times.pop(0)
    assert said == [0.0, 0.021, 5.0]
