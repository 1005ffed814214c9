"""The child process itself, seen from the parent: messages with a limit of time, and an end in every case.

The limit is processor time, or time on the wall where the process and what it has started are idle.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from symattn.bounds.called_target import Failure
from symattn.programs.loading import users_frame
from symattn.verification.effort import exhausted

_ROOT = str(Path(__file__).resolve().parents[2])
# The symattn of the parent, wherever it lies, without a change of what else can be imported.
_PROGRAM = f"""
import sys
sys.path.insert(0, {_ROOT!r})
import symattn
del sys.path[0]
from symattn.programs.worker import main
main()
"""
# Ctrl-C is for the parent alone, which then ends the child with all that it started.
_OWN_GROUP: dict[str, Any] = {"start_new_session": True}
if sys.platform == "win32":
    _OWN_GROUP = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
_ENDED = object()
_CALL = ("call",)  # the worker begins another call of the function


def processor_time(process: int) -> float:
    """Return the processor time of a process, of the session that it leads, and of what both have waited for.

    Where the system has no ``/proc``, time on the wall stands for it.
    """
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            words = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            ticks += sum(map(int, words[11:15])) if str(process) in (path.parent.name, words[3]) else 0
    return ticks / os.sysconf("SC_CLK_TCK") if Path("/proc/self/stat").exists() else time.monotonic()


class Waiting:
    """A wait for a process; ``over`` once it has worked, or been idle, for ``limit`` seconds."""

    def __init__(self, process: int, limit: float) -> None:
        self._process, self._limit, self._began = process, limit, time.monotonic()
        self._before: float | None = None

    @property
    def over(self) -> bool:
        """Return whether the limit is reached. It is asked for the first time when the answer is not there at once."""
        if self._before is None:
            self._before = processor_time(self._process)
        wall = time.monotonic() - self._began
        return wall > self._limit and exhausted(self._limit, wall, self.worked)

    @property
    def worked(self) -> float:
        """The processor time of the process since then."""
        return 0.0 if self._before is None else processor_time(self._process) - self._before


class Process:
    """A running worker. ``ask`` gives the worker's answer, or a ``Failure`` after which the process is gone.

    ``worked`` is its processor time when it last said something, or was ended.
    """

    worked = 0.0

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in end)
        # -B: no .pyc beside the user's file. -P: what lies in the current folder must not replace our own imports.
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-P", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={"OPENBLAS_NUM_THREADS": "1", **os.environ},  # most calls are small, and threads then cost more
            **_OWN_GROUP,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self._replies = self._process.stdout
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._reader = threading.Thread(target=_receive, args=(self._replies, self._answers), daemon=True)
        self._reader.start()

    def ask(self, message: tuple[Any, ...], limit: float) -> Any:
        """Send ``message`` and wait ``limit`` seconds at most, anew from each call that begins. Ctrl-C ends it too."""
        return self.answer(limit) if self.send(message) else self._autopsy()

    def send(self, message: tuple[Any, ...]) -> bool:
        """Send ``message``; False where the process has ended."""
        try:
            pickle.dump(message, self._requests)
            self._requests.flush()
        except OSError:
            return False
        except BaseException:
            self.end()
            raise
        return True

    def answer(self, limit: float) -> Any:
        """The next answer, within ``limit`` seconds."""
        try:
            answer = self._received(limit)
        except BaseException:
            self.end()
            raise
        if answer is None:
            self.end()
            return Failure("time limit", f"did not return within {limit:g} s", "TimeLimit")
        if answer is _ENDED:
            return self._autopsy()
        return answer

    def end(self) -> None:
        """Kill the process and all that it started, and wait for its end."""
        if sys.platform == "win32":
            self._process.kill()
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended by itself
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(timeout=1.0)
        for stream in (self._requests, self._replies, self._errors):
            with contextlib.suppress(OSError):  # what was left to flush has no reader any more
                stream.close()

    def _received(self, limit: float) -> Any:
        waiting = Waiting(self._process.pid, limit)
        while True:
            try:
                answer = self._answers.get(timeout=min(limit, 0.1))
                if answer is _ENDED:
                    return answer
                self.worked, answer = answer
                if answer != _CALL:
                    return answer
                waiting = Waiting(self._process.pid, limit)
            except queue.Empty:
                # A process that the target has started may hold the pipe open after the worker's own end.
                if self._process.poll() is not None and self._answers.empty():
                    return _ENDED
                if waiting.over:
                    self.worked += waiting.worked
                    return None

    def _autopsy(self) -> Failure:
        """How the process ended: its exit code or signal, and the place that ``faulthandler`` wrote down."""
        code = self._process.wait()
        self._errors.seek(0)
        written = self._errors.read(100_000).decode("utf-8", errors="replace")
        self.end()
        frames = [(name, int(line)) for name, line in re.findall(r'File "([^"]+)", line (\d+)', written)]
        return Failure("ended", f"ended the process with {_code(code)}", "", users_frame(frames[::-1]))


def _receive(replies: IO[bytes], answers: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            answers.put(pickle.load(replies))
    except (EOFError, OSError, ValueError, pickle.UnpicklingError):
        answers.put(_ENDED)


def _code(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
