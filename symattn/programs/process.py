"""Other processes: one that calls a function, with limits of time, and copies of this one for single tasks.

The limit is processor time, or time on the wall where the process and what it has started are idle.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import pickle
import queue
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from symattn.attention.spec import Attention
from symattn.bounds.called_target import Convention, Failure, Inputs, Memory, Outcome
from symattn.bounds.domain import Domain
from symattn.document.errors import CannotRun, SymattnError
from symattn.programs.loading import users_frame
from symattn.programs.request import Request
from symattn.verification.effort import exhausted

if TYPE_CHECKING:
    from symattn.verification.semantics import IdentityResult


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
        passed_on = self._replies, self._answers, partial(self._answers.put, _ENDED)
        self._reader = threading.Thread(target=receive, args=passed_on, daemon=True)
        self._reader.start()

    def ask(self, message: tuple[object, ...], limit: float) -> Any:
        """Send ``message`` and wait ``limit`` seconds at most, anew from each call that begins. Ctrl-C ends it too."""
        return self.answer(limit) if self.send(message) else self._autopsy()

    def send(self, message: tuple[object, ...]) -> bool:
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


def receive(messages: IO[bytes], into: queue.SimpleQueue[Any], ended: Callable[[], None]) -> None:
    """Pass messages on, until there are no more."""
    with contextlib.suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):
        while True:
            into.put(pickle.load(messages))
    ended()


def _code(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


# -- a function called in a child process ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Seconds for one call and for importing the target, of processor time or of waiting; see ``process``."""

    call: float = 10.0
    start: float = 60.0


class Child:
    """A target in a process of its own: a ``Runner``.

    One child serves all calls, so that a second call sees what the first left behind; after a limit or a crash the
    next call starts a new one. Raises what ``loading.load`` and ``target.target`` raise, and ``CannotRun`` where the
    target's import ends the process or takes longer than ``limits.start``.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, target: str, request: Request, limits: ProcessLimits | None = None) -> None:
        self._target, self._request, self._limits = target, request, limits or ProcessLimits()
        self._worked = 0.0  # by processes that have ended
        self._sent: deque[tuple[Inputs, Memory]] = deque()  # cases that the worker has, and whose outcomes come
        self._process: Process | None = None
        self._convention: Convention | None = None
        try:
            self.convention = self._convention = self._agreed()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def describe(self) -> str:
        """The function and what is passed to it: ``attn.py:attention(q, k, v)``."""
        return f"{self._target}({self.convention.printed})"

    @property
    def worked(self) -> float:
        """The processor time of all processes so far."""
        return self._worked + (self._process.worked if self._process is not None else 0.0)

    def close(self) -> None:
        """End the child."""
        if self._process is not None:
            self._process.end()
        self._gone()

    def _gone(self) -> None:
        self._worked, self._process = self.worked, None
        self._sent.clear()

    def ahead(self, cases: Sequence[tuple[Inputs, Memory]]) -> None:
        """Send the cases for which ``run`` is called next, in this order: the child need not wait for each of them.

        Those for which it is not called are computed in vain.
        """
        if not isinstance(self._ready(), Failure):
            self._skip()
        if self._process is not None and self._process.send(("ahead", [(dict(i), memory) for i, memory in cases])):
            self._sent.extend(cases)

    def run(self, inputs: Inputs, memory: Memory = "contiguous") -> Outcome:
        """Call the function once in the child. See ``Runner``; ``error`` tells of limits and crashes too."""
        if self._sent and self._sent[0][0] is inputs and self._sent[0][1] == memory:
            answer = self._next()
        else:
            answer = self._ready()
            if not isinstance(answer, Failure):
                answer = self._ask("run", dict(inputs), memory)
        if isinstance(answer, Failure):
            return Outcome(error=answer)
        outcome: Outcome = answer
        return outcome

    def semantics(self, spec: Attention, seconds: float, domain: Domain | None = None) -> IdentityResult | None:
        """The identity test on residues, in a copy of the child; None where the child is gone."""
        answer = self._ready()
        if not isinstance(answer, Failure):
            answer = self._ask("semantics", spec, seconds, domain)
        return None if isinstance(answer, Failure) else answer

    def _agreed(self) -> Convention:
        """Find the target and agree on the call, for the first time."""
        result = self._ask("find", self._target, self._request)
        if isinstance(result, Failure):
            raise CannotRun(f"{self._target} cannot be imported: its import {result.message}")
        self.display, self._request = result
        answer = self._ask("prepare", self._request)
        if isinstance(answer, Failure):  # the one small call did not come back: let the calls themselves show it
            layout = "nd" if self._request.layout == "auto" else self._request.layout
            self._request = replace(self._request, framework=self._request.frameworks[0], layout=layout)
            answer = self._ready()
        if isinstance(answer, Failure):
            raise CannotRun(f"{self._target} cannot be called: it {answer.message}")
        return answer  # type: ignore[no-any-return]

    def _ready(self) -> Any:
        """A failure if the target cannot be brought up again after the process has ended."""
        if self._process is not None:
            return None
        result = self._ask("find", self._target, self._request)
        return result if isinstance(result, Failure) else self._ask("prepare", self._request, self._convention)

    def _ask(self, question: str, *rest: Any) -> Any:
        """The worker's answer, or a failure, after which there is no process."""
        self._skip()
        limit = self._limits.start if question in ("find", "semantics") else self._limits.call
        limit += 2 * rest[1] if question == "semantics" else 0.0  # it is made twice, and ends by itself
        return self._reply(lambda process: process.ask((question, *rest), limit))

    def _next(self) -> Any:
        """The outcome of the next case that was sent ahead."""
        self._sent.popleft()
        return self._reply(lambda process: process.answer(self._limits.call))

    def _skip(self) -> None:
        """Wait for the outcomes of cases that were sent ahead, and let go of them."""
        while self._sent:
            with contextlib.suppress(SymattnError):
                self._next()

    def _reply(self, reply_of: Callable[[Process], Any]) -> Any:
        """A reply within the limits, opened; or a failure, after which there is no process."""
        self._process = self._process or Process()
        reply = reply_of(self._process)
        if isinstance(reply, Failure):
            self._gone()
            return reply
        return _opened(*reply)


def _opened(words: str, content: Any, text: str = "") -> Any:
    """Return the contents of a reply; an error of the worker's is raised here."""
    if words == "done":
        return content
    if words == "defect":
        raise RuntimeError(f"a call in the child process failed\n{content}")
    error: SymattnError = content.__new__(content)  # not content(text): MissingExtra is made of other words
    error.args = (text,)
    raise error


# -- tasks in a copy of this process: what they change stays there, and they have a limit of time ----------------------
class NotDone(Exception):
    """The task gave no result: no copy could be made, it did not end in time, or it ended the process."""


def apart(task: Callable[[], Iterable[object]], seconds: float) -> list[Any]:
    """Run ``task`` in a copy of this process, and return the results that it yields in time.

    Raises ``NotDone`` where there are none, with the words of its exception.
    """
    if not hasattr(os, "fork"):
        raise NotDone("this system cannot copy a process")
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads that the copy does not have
        copy = os.fork()
    if copy == 0:
        _work(task, writing, seconds)
    os.close(writing)
    try:
        answers, ended = _read(reading, Waiting(copy, seconds))
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)
    opened: list[tuple[bool, Any]] = []
    with io.BytesIO(answers) as file, contextlib.suppress(EOFError, pickle.UnpicklingError):
        while True:  # as far as they came whole
            opened.append(pickle.load(file))
    results = [content for done, content in opened if done]
    if not results:
        ending = "it ended its process" if ended else f"it did not end within {seconds:g} s"
        raise NotDone(opened[0][1] if opened else ending)
    return results


def _work(task: Callable[[], Iterable[object]], writing: int, seconds: float) -> None:
    """In the copy: the results, or the words of an exception, and the end of the process in every case."""
    import resource  # there is none where a process cannot be copied

    gc.freeze()  # to look through what was there before would copy its memory
    try:
        with contextlib.suppress(ValueError):  # a lower limit holds already
            most = int(seconds) + 2  # it ends, too, where nobody is left to end it
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        with os.fdopen(writing, "wb", buffering=0) as file:
            try:
                for result in task():
                    file.write(pickle.dumps((True, result)))
            except BaseException as error:
                file.write(pickle.dumps((False, f"{type(error).__name__}: {error}")))
    finally:
        os._exit(0)


def _read(reading: int, waiting: Waiting) -> tuple[bytes, bool]:
    """Return all that comes in time, and whether that is all."""
    result = b""
    while True:
        if select.select([reading], [], [], 0.1)[0]:
            part = os.read(reading, 1 << 16)
            if not part:
                return result, True
            result += part
        elif waiting.over:
            return result, False
