"""A target by its name, ``file.py:function``: called in a process of its own, with time limits, and verified."""

from __future__ import annotations

import contextlib
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
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from symattn.attention.spec import Attention
from symattn.bounds.called_target import (
    CAUSAL_MASK,
    Alignment,
    Convention,
    Failure,
    Framework,
    Inputs,
    Memory,
    Outcome,
)
from symattn.bounds.domain import Domain
from symattn.document.codec import command, differing
from symattn.document.errors import CannotRun, CannotRunHere, NeedsMemory, SymattnError
from symattn.programs.answers import (
    has_declared_types,
    is_convention,
    is_identity,
    is_outcome,
)
from symattn.programs.fork_server import ForkedProcess, ForkServer, libraries_of
from symattn.programs.guard import Tampered
from symattn.programs.loading import place_of
from symattn.programs.process import (
    Inbox,
    Waiting,
    descendants_of,
    end_descendants,
    receive,
    time_spent,
)
from symattn.programs.refusing import users_frame
from symattn.programs.request import Request, RequestOrigin
from symattn.programs.specifications import Specification, kind_of
from symattn.programs.verifying import Options, check_numbers, checked, verified
from symattn.verification.effort import ready_time
from symattn.verification.report import Report

if TYPE_CHECKING:
    from symattn.programs.judging.kernel_form import KernelForm
    from symattn.programs.repairing.apart import TrialsInChild
    from symattn.programs.repairing.trials import Samples
    from symattn.verification.semantics import IdentityResult

#: The folder from which symattn is imported.
_ROOT = str(Path(__file__).resolve().parents[2])
# Import the parent's symattn, wherever it is, without changing what else can be imported.
_PROGRAM = f"""
import sys
sys.path.insert(0, {_ROOT!r})
import symattn
del sys.path[0]
from symattn.programs.worker import main
main()
"""
# The same for a candidate of a judge: limits come first, while there is a single thread.
_CONFINED_PROGRAM = _PROGRAM.replace(
    "del sys.path[0]",
    "from symattn.programs.confining import confine\nconfine(float(sys.argv[1]), sys.argv[2:])\ndel sys.path[0]",
)
# The same for a process whose copies run workers.
_SERVER_PROGRAM = _PROGRAM.replace(
    "from symattn.programs.worker import main",
    "from symattn.programs.worker import main\n"
    "from symattn.programs.fork_server import serve\nserve(int(sys.argv[1]), sys.argv[2:])",
)
# Only the parent receives Ctrl-C, and then ends the child with all that it started.
_OWN_GROUP: dict[str, Any] = {"start_new_session": True}
if sys.platform == "win32":
    _OWN_GROUP = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
#: Private memory of a candidate's process, unless another limit is chosen.
_MEMORY_GIB = 8.0
#: Stands in the queue of answers for the end of the worker's pipe.
_ENDED = object()
#: Stands there for what is no answer, but was written into the pipe by the target.
_UNREADABLE = object()
_WRITES = "it writes into the pipe of the judge's answers"
_ENDING_SECONDS = 60.0  # for the end of a process whose pipe is closed
_CALL = ("call",)  # the worker announces another call of the function
#: Calls that a worker may announce before it answers a question, each with a limit of time: many small ones until one
#: fits, or those of edits. Other questions are a single call.
_MOST_CALLS = {
    "prepare": 1 << 12, "benchmark": 1 << 12, "open_trials": 1 << 17, "trials": 1 << 17, "edited": 1 << 17,
}  # fmt: skip
_BETWEEN_LOOKS = 0.1  # seconds between looks at the limits
#: All these calls together, in limits of one.
_LIMITS_OF_ANSWER = 16
#: The share of the time for which a process that is not trusted has to work, or it is idle.
_IDLE_IF_CONFINED = 0.2
_CALLS_WITHOUT_END = "it announces calls without end in the pipe of the judge's answers"
MAX_PROCESSES = 64  # that a confined process may have started and not ended


def _receive_and_close(replies: IO[bytes], *passed_on: Any) -> None:
    """Receive messages until there are no more, and close the pipe.

    A process that was not reached may hold the pipe open: then the reader waits, and closing it elsewhere would, too.
    """
    with replies:
        receive(replies, *passed_on)


class Process:
    """A running worker. ``ask`` returns the worker's answer, or a ``Failure`` after which the process is gone.

    ``spent`` is its processor time at its last message, or at its end, and how long it was ready to run. With
    ``memory_gib`` it is confined (``confining``), all that it has started ends with it, and ``hidden`` files are empty.
    With a ``server`` it is a copy of that.
    """

    spent = (0.0, 0.0)

    def __init__(
        self,
        memory_gib: float | None = None,
        hidden: Sequence[str] = (),
        server: ForkServer | None = None,
    ) -> None:
        self._confined = memory_gib is not None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in end)
        self._process = _start_process(memory_gib, hidden, server, self._errors)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        # Written in parts, so that a process that reads nothing ends no wait of the judge's.
        self._is_stoppable = sys.platform != "win32"
        if self._is_stoppable:
            os.set_blocking(self._requests.fileno(), False)
        self._began, self._expected, self._calls_left = time.monotonic(), 0, 0
        # A thread reads the pipe, so that waiting for an answer can be limited.
        self._answers = Inbox()
        marks = (partial(self._answers.put, mark) for mark in (_ENDED, _UNREADABLE))
        # Objects of the user that answers name instead of bringing them.
        self._known: dict[str, object] = {}
        passed_on = self._process.stdout, self._answers, *marks, self._known
        self._reader = threading.Thread(target=_receive_and_close, args=passed_on, daemon=True)
        self._reader.start()

    def ask(self, message: tuple[object, ...], limit: float) -> Any:
        """Send ``message``, and wait at most ``limit`` seconds for each call that begins. Ctrl-C ends the process."""
        failure = self.send(message, limit)
        return self.answer(limit) if failure is None else failure

    def send(self, message: tuple[object, ...], limit: float, answers: int = 1) -> Failure | None:
        """Send ``message``, which has so many answers; return a ``Failure`` if the process does not take it in time."""
        # An answer may name these objects, so that they are known before the question is sent.
        for part in message:
            if isinstance(part, Request | Convention):
                self._known.update(part.objects())
        try:
            # The worker answers nothing before it is asked; whether its pipe has ended is found out below.
            if not self._expected and self._answers.holds_other_than(_ENDED):
                raise Tampered(_WRITES)
            is_sent = self._write_within_limit(pickle.dumps(message), limit)
        except OSError:
            # A broken pipe: the process has ended.
            return self._diagnose_process_end()
        except BaseException:
            # A part of the message may be sent already, so the process is of no more use.
            self.end()
            raise
        if not is_sent:
            self.end()
            words = f"did not return within {limit:g} s, and reads nothing"
            return Failure("time limit", words, "TimeLimit")
        self._expected += answers
        self._calls_left = _MOST_CALLS.get(str(message[0]), 0)
        return None

    def _write_within_limit(self, data: bytes, limit: float) -> bool:
        """Write data into the worker's pipe; return False if it does not read all of it within the limit."""
        if not self._is_stoppable:
            self._requests.write(data)
            self._requests.flush()
            return True
        pipe, left = self._requests.fileno(), memoryview(data)
        waiting = self._wait_at_most(limit)
        while left:
            try:
                left = left[os.write(pipe, left) :]
            except BlockingIOError:
                # The pipe is full.
                if not select.select([], [pipe], [], 0.1)[1] and waiting.over:
                    return False
        return True

    def answer(self, limit: float) -> Any:
        """Return the next answer, or a ``Failure`` if there is none within ``limit`` seconds."""
        try:
            answer = self._wait_for_worker_answer(limit)
        except BaseException:
            # A late answer would be taken for the one to the next question.
            self.end()
            raise
        if isinstance(answer, Failure):
            self.end()
        if answer is _ENDED:
            return self._diagnose_process_end()
        return answer

    def end(self) -> None:
        """Kill the process and all that it started, and wait for its end."""
        # Before the process is waited for, since the system then forgets its time.
        self._measure_processor_time()
        if self._confined and not self._is_number_of_another():
            # Descendants first, while they can be reached from the process.
            end_descendants(self._process.pid)
        if sys.platform == "win32":
            self._process.kill()
        elif not self._is_number_of_another():
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended by itself
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._answers.close()
        # A process that was not reached may hold the pipe open, and the reader then never ends.
        self._reader.join(timeout=1.0)
        for stream in (self._requests, self._errors):
            with contextlib.suppress(OSError):  # unflushed data has no reader any more
                stream.close()

    def _is_number_of_another(self) -> bool:
        """Return whether the process has ended, and another one has its number, which a group that lives on keeps."""
        process = self._process
        if not isinstance(process, ForkedProcess) or process.poll() is None:
            return False
        return process.is_forgotten and Path(f"/proc/{process.pid}").exists()

    def _has_ended(self) -> bool:
        """Return whether the process has ended, without forgetting its processor time."""
        if self._process.returncode is not None or not hasattr(os, "waitid"):
            return self._process.poll() is not None
        try:
            state = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:  # somebody else has waited for it
            return self._process.poll() is not None
        return state is not None

    def _measure_processor_time(self) -> None:
        """Take the processor time from the system, which knows that of a call without an answer, too."""
        if self._process.returncode is None and Path("/proc/self/stat").exists():
            worked, ready = time_spent(self._process.pid)
            self.spent = max(worked, self.spent[0]), max(ready, self.spent[1])

    def _wait_for_worker_answer(self, limit: float) -> Any:
        waiting = self._wait_at_most(limit)
        every, looked = self._wait_at_most(_LIMITS_OF_ANSWER * limit), time.monotonic()
        of_call = f"did not return within {limit:g} s"
        of_calls = f"did not end its calls within {_LIMITS_OF_ANSWER * limit:g} s"
        while True:
            try:
                # Short waits, since a limit of processor time has to be looked up again and again.
                answer = self._answers.get(timeout=min(limit, _BETWEEN_LOOKS))
            except queue.Empty:
                # A process that the target has started may hold the pipe open after the worker's own end.
                if self._has_ended() and self._answers.empty():
                    return _ENDED
                if self._confined and len(descendants_of(self._process.pid)) > MAX_PROCESSES:
                    raise Tampered(f"it starts more than {MAX_PROCESSES} processes") from None
                if waiting.over:
                    return self._fail_late(waiting, of_call)
                if every.over:
                    return self._fail_late(waiting, of_calls)
                continue
            if answer is _ENDED:
                return answer
            if answer is _UNREADABLE or not _is_answer(answer):
                raise Tampered(_WRITES)
            spent, answer = answer
            self.spent = self._limit_spent_time(spent)
            if answer != _CALL:
                self._expected -= 1
                return answer
            self._calls_left -= 1
            if self._calls_left < 0:
                raise Tampered(_CALLS_WITHOUT_END)
            # Calls may follow each other so closely that no answer is waited for.
            if time.monotonic() - looked > _BETWEEN_LOOKS:
                looked = time.monotonic()
                if every.over:
                    return self._fail_late(waiting, of_calls)
            # Each call has a limit of its own, within that of all.
            waiting = self._wait_at_most(limit)

    def _fail_late(self, waiting: Waiting, words: str) -> Failure:
        """Return the failure of a call at its limit of time; the worker no longer states its processor time."""
        self.spent = _add_spent_times(self.spent, waiting.spent)
        return Failure("time limit", words, "TimeLimit")

    def _wait_at_most(self, limit: float) -> Waiting:
        """Return a wait for the process. One that is not trusted could work a little now and then, and hold longer."""
        idle = _IDLE_IF_CONFINED if self._confined and _is_ready_time_counted() else None
        return Waiting(self._process.pid, limit, idle)

    def _limit_spent_time(self, spent: tuple[float, float]) -> tuple[float, float]:
        """Return the times that a worker states, as far as they can be: it may be the target that states them.

        They never shrink, and no process works for longer than all processors of the machine.
        """
        most = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        worked, ready = (
            max(before, min(now, most)) if isfinite(now) else before
            for now, before in zip(spent, self.spent, strict=True)
        )
        return worked, ready

    def _diagnose_process_end(self) -> Failure:
        """Return how the process ended: its exit code or signal, and the place that ``faulthandler`` reported."""
        # Neither a busy machine nor a slow end of a process counts as idle time of its own.
        waiting, pause = Waiting(self._process.pid, _ENDING_SECONDS), threading.Event()
        while not self._has_ended() and not waiting.over:
            pause.wait(0.005)
        # The target has closed the pipe, and goes on.
        if not self._has_ended():
            self.end()
            raise Tampered("it closes the pipe of the judge's answers")
        self._measure_processor_time()  # the system knows its time until it is waited for
        code = self._process.wait()
        if isinstance(self._process, ForkedProcess):  # whoever waited for it knows its time
            self.spent = max(self._process.worked, self.spent[0]), self.spent[1]
        self._errors.seek(0)
        # The target may have written there without end.
        written = self._errors.read(100_000).decode("utf-8", errors="replace")
        self.end()
        signals = {s.value: s.name for s in signal.Signals}
        ending = f"exit code {code}" if code >= 0 else f"signal {signals.get(-code, -code)}"
        frames = [
            (name, int(line)) for name, line in re.findall(r'File "([^"]+)", line (\d+)', written)
        ]
        # ``faulthandler`` lists the innermost frame first.
        place = users_frame(frames[::-1])
        return Failure("ended", f"ended the process with {ending}", "", place, exit_code=code)


@cache
def _is_ready_time_counted() -> bool:
    """Return whether the system counts how long processes are ready to run; where not, one seems idle on a busy one."""
    return ready_time() > 0


def _is_answer(message: Any) -> bool:
    """Return whether a message has the form of a worker's: its times, and a call that begins, or a reply."""
    match message:
        case ((float(), float()), ("call",) | ("done", _) | ("defect", str())):
            return True
        case ((float(), float()), ("refused", type() as kind, str())):
            return issubclass(kind, SymattnError)
    return False


def _start_process(
    memory_gib: float | None,
    hidden: Sequence[str],
    server: ForkServer | None,
    errors: IO[bytes],
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start a worker as a copy of the server, or as a process of its own if there is none, or it has ended."""
    if server is not None:
        # The server may have ended, and then a process is started as without one.
        with contextlib.suppress(OSError):
            return server.start(() if memory_gib is None else (memory_gib, hidden), errors)
    # A memory limit is set before any import, hence another program.
    program = [_PROGRAM] if memory_gib is None else [_CONFINED_PROGRAM, str(memory_gib), *hidden]
    return subprocess.Popen(
        [*_INTERPRETER, *program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=_environment(),
        **_OWN_GROUP,
    )


#: -B: no .pyc next to the user's file. -P: files in the current folder must not replace our own imports.
_INTERPRETER = (sys.executable, "-B", "-P", "-c")


def _environment() -> dict[str, str]:
    """Return the variables of a worker: one thread of BLAS, since most calls are small, and threads then cost more.

    Threads of OpenMP stay, as a target may be wrong only with several; between tasks they sleep, where they would spin.
    """
    return {"OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **os.environ}


def _kind_of(failure: Failure) -> type[CannotRun]:
    """Return whether a target without an answer may have one elsewhere."""
    kinds = {"time limit": CannotRunHere, "memory limit": NeedsMemory}
    return kinds.get(failure.reason, CannotRun)


def _add_spent_times(spent: tuple[float, float], more: tuple[float, float]) -> tuple[float, float]:
    return spent[0] + more[0], spent[1] + more[1]


# -- a function called in a child process ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits in seconds for a call and for importing the target, of processor time or of waiting; see ``process``.

    ``memory_gib`` limits the memory of a target that is watched.
    """

    call: float = 10.0
    start: float = 60.0
    memory_gib: float = _MEMORY_GIB


class Child(AbstractContextManager["Child"]):
    """A ``Runner`` of a target in a process of its own.

    One child serves all calls, so that a second call sees state left by the first; after a time-out or a crash the
    next call starts a new one. If there is a tuple of ``secret`` files, the target is watched (``guard``). Raises what
    ``loading.load`` and ``target.target`` raise, and ``CannotRun`` if the target's import ends the process or takes
    longer than ``limits.start``.
    """

    notes: tuple[str, ...] = ()
    display = ""
    #: Whether its process is given no definition.
    _has_arrays_alone = False

    def __init__(
        self,
        target: str,
        request: Request,
        limits: ProcessLimits | None = None,
        process: Process | None = None,
        secret: tuple[str, ...] | None = None,
        started: Callable[[Process], None] = lambda process: None,
        server: ForkServer | None = None,
    ) -> None:
        self._target, self._request, self._limits = target, request, limits or ProcessLimits()
        self._tell, self._server = started, server
        self._spent = (0.0, 0.0)  # by processes that have ended
        # cases sent to the worker whose outcomes are pending
        self._sent: deque[tuple[Inputs, Memory]] = deque()
        self._process, self._secret = process, secret
        self._convention: Convention | None = None
        try:
            self.convention = self._convention = self._agree_on_convention()
        except BaseException:
            # The constructor fails, so no caller could close the process.
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe(self) -> str:
        """Return the function with its arguments: ``attn.py:attention(q, k, v)``."""
        return f"{self._target}({self.convention.printed})"

    @property
    def spent(self) -> tuple[float, float]:
        """The processor time of all processes so far, and how long they were ready to run."""
        return self._spent_by_itself

    @property
    def _spent_by_itself(self) -> tuple[float, float]:
        return (
            self._spent
            if self._process is None
            else _add_spent_times(self._spent, self._process.spent)
        )

    def close(self) -> None:
        """End the child."""
        if self._process is not None:
            self._process.end()
        self._forget_ended_process()

    def _forget_ended_process(self) -> None:
        self._spent, self._process = self._spent_by_itself, None
        self._sent.clear()

    def ahead(self, cases: Sequence[tuple[Inputs, Memory]]) -> None:
        """Send the cases for which ``run`` is called next, in this order, so that the child does not wait between them.

        Cases for which it is not called are computed in vain.
        """
        if not isinstance(self._restart_target_if_ended(), Failure):
            self._discard_sent_outcomes()
        if self._process is None:
            return
        message = "ahead", [(dict(i), memory) for i, memory in cases]
        failure = self._process.send(message, self._limits.call, len(cases))
        if failure is None:
            self._sent.extend(cases)
        else:
            # The calls themselves then start another process.
            self._forget_ended_process()

    def run(self, inputs: Inputs, memory: Memory = "contiguous") -> Outcome:
        """Call the function once in the child; see ``Runner``. ``error`` also reports time-outs and crashes."""
        # By identity: the caller passes the very arrays that were sent ahead.
        if self._sent and self._sent[0][0] is inputs and self._sent[0][1] == memory:
            answer = self._receive_next_outcome()
        else:
            answer = self._restart_target_if_ended()
            if not isinstance(answer, Failure):
                answer = self._ask_worker("run", dict(inputs), memory)
        if isinstance(answer, Failure):
            return Outcome(error=answer)
        return _checked(answer, Outcome, is_outcome)

    def semantics(
        self,
        spec: Attention,
        seconds: float,
        domain: Domain | None = None,
        refutes_at_large_sizes: bool = False,
    ) -> IdentityResult | None:
        """Return the identity test on residues, run in a copy of the child, or None if the child is gone."""
        answer = self._restart_target_if_ended()
        if not isinstance(answer, Failure):
            answer = self._ask_worker("semantics", spec, seconds, domain, refutes_at_large_sizes)
        if isinstance(answer, Failure):
            return None
        # slow to import, and an answer brings it
        from symattn.verification.semantics import IdentityResult

        return _checked(
            answer, IdentityResult, lambda x: is_identity(x, isinstance(spec, Attention))
        )

    def trials(self, samples: Samples) -> TrialsInChild:
        """Return the trials of edits of the target's source, made in the child."""
        from symattn.programs.repairing.apart import (
            TrialsInChild,
        )  # most functions are right, and never edited

        return TrialsInChild(self, samples)

    def ask(self, question: str, *rest: Any, seconds: float = 0.0) -> Any:
        """Return the worker's answer, or a ``Failure``, after which the process is gone; ``seconds`` are added to the
        limit of a call."""
        answer = self._restart_target_if_ended()
        if not isinstance(answer, Failure):
            self._discard_sent_outcomes()
            answer = self._read_worker_reply(
                lambda process: process.ask((question, *rest), self._limits.call + seconds)
            )
        return answer

    def turn_to(self, request: Request) -> None:
        """Agree on how the same target is called for another request."""
        # None until a new convention is agreed on, or a restart meanwhile would call by the old one.
        self._request, self._convention = request, None
        self.convention = self._convention = self._agreed_call()

    @property
    def is_trusted(self) -> bool:
        """Return whether the target computes the same where NumPy runs what JAX would compile: else it is watched."""
        return self._secret is None

    @property
    def returns_lists(self) -> bool:
        """Return whether outputs may come as a list, which stands for a tuple."""
        return self.convention.returns_lists

    @property
    def process(self) -> object:
        """The process that answers, by which a restart is noticed; None if there is none."""
        return self._process

    def _agree_on_convention(self) -> Convention:
        """Find the target and agree on the call, for the first time."""
        result = self._ask_worker("find", self._target, self._request)
        if isinstance(result, Failure):
            raise _kind_of(result)(
                f"{self._target} cannot be imported: its import {result.message}"
            )
        # The answer comes from an untrusted process.
        display, settled = (
            result if isinstance(result, tuple) and len(result) == 2 else (None, None)
        )
        self.display = _checked(display, str, lambda x: has_declared_types(x, str))
        likely = getattr(_checked(settled, Request), "likely", None)
        if not has_declared_types(likely, Framework | None):
            raise Tampered(_WRITES)
        self._request = replace(self._request, likely=likely)
        return self._agreed_call()

    def _agreed_call(self) -> Convention:
        """Agree on the call of the target that was found."""
        answer = self._ask_worker("prepare", self._request)
        if isinstance(answer, Failure):  # the first small call failed: let the cases show that
            layout = "nd" if self._request.layout == "auto" else self._request.layout
            self._request = replace(
                self._request, framework=self._request.frameworks[0], layout=layout
            )
            answer = self._restart_target_if_ended()
        if isinstance(answer, Failure):
            raise _kind_of(answer)(f"{self._target} cannot be called: it {answer.message}")
        return _checked(answer, Convention, is_convention)

    def _restart_target_if_ended(self) -> Any:
        """Restart the target if its process has ended; return a ``Failure`` if that is impossible."""
        if self._process is not None:
            return None
        # A new process has to find the target, and agree on the call, again.
        result = self._ask_worker("find", self._target, self._request)
        return (
            result
            if isinstance(result, Failure)
            else self._ask_worker("prepare", self._request, self._convention)
        )

    def _ask_worker(self, question: str, *rest: Any) -> Any:
        """Return the worker's answer, or a failure, after which there is no process."""
        # Answers come in order, so pending outcomes have to be read first.
        self._discard_sent_outcomes()
        limit = (
            self._limits.start if question in ("find", "hold", "semantics") else self._limits.call
        )
        # the test runs twice, each with its own limit
        limit += 2 * rest[1] if question == "semantics" else 0.0
        return self._read_worker_reply(lambda process: process.ask((question, *rest), limit))

    def _receive_next_outcome(self) -> Any:
        """Return the outcome of the next case that was sent ahead."""
        self._sent.popleft()
        return self._read_worker_reply(lambda process: process.answer(self._limits.call))

    def _discard_sent_outcomes(self) -> None:
        """Wait for the outcomes of cases that were sent ahead, and discard them."""
        while self._sent:
            with contextlib.suppress(SymattnError):
                self._receive_next_outcome()

    def _read_worker_reply(self, reply_of: Callable[[Process], Any]) -> Any:
        """Return the contents of a reply within the limits, or a failure, after which there is no process.

        Raises the worker's error.
        """
        if self._process is None:
            self._process = self._start_target_process()
            self._tell(self._process)
            if self._secret is not None:
                self._watch_target_process(self._process, self._secret)
        reply = reply_of(self._process)
        if isinstance(reply, Failure):
            self._forget_ended_process()
            # An exit code of 0 is no crash: the target itself ended the process.
            if self._secret is not None and reply.exit_code == 0:
                raise Tampered(f"it {reply.message}")
            return reply
        # A target that is not trusted may have caused it, so that a judge gives a status rather than a traceback.
        if self._secret is not None and reply[0] == "defect":
            last = reply[1].strip().splitlines()[-1:]
            raise CannotRunHere(
                f"{self._target} cannot be judged: symattn's own code failed in its process: {''.join(last)}"
            )
        return _content_of(reply)

    def _start_target_process(self) -> Process:
        """Start a process: confined, and without the secret files, if the target is watched."""
        if self._secret is None:
            return Process(server=self._server)
        # a target may stand in the reference's own file
        own = os.path.realpath(place_of(self._target))
        hidden = [
            path
            for path in map(os.path.realpath, self._secret)
            if path != own and os.path.isfile(path)
        ]
        return Process(self._limits.memory_gib, hidden, self._server)

    def _watch_target_process(self, process: Process, secret: tuple[str, ...]) -> None:
        """Have a new process watched before the target is imported; what could not be limited there is a note."""
        question = "watch", place_of(self._target), secret, os.getpid(), self._has_arrays_alone
        left_open = process.ask(question, self._limits.start)
        if not isinstance(left_open, Failure):
            self.notes = _checked(_content_of(left_open), tuple, _are_texts)


class WithArraysAlone(Child):
    """A ``Child`` whose process is given nothing but the target's name, how it is called, and arrays.

    What needs the definition (how it is called, whether it agrees on residues) is asked of an ``adviser``, the same
    target in a process of its own, which ends with this one unless it is ``shared``.
    """

    _has_arrays_alone = True

    def __init__(self, adviser: Child, secret: tuple[str, ...], shared: bool = False) -> None:
        self._adviser, self._shared = adviser, shared
        arguments = adviser._target, adviser._request, adviser._limits
        super().__init__(*arguments, secret=secret, started=adviser._tell, server=adviser._server)

    def close(self) -> None:
        """End the process, and that of its own adviser."""
        if not self._shared:
            self._adviser.close()
        super().close()

    @property
    def spent(self) -> tuple[float, float]:
        """Return the time with that of the adviser, in whose process edits run: limits hold for both."""
        return _add_spent_times(self._spent_by_itself, self._adviser.spent)

    def semantics(
        self,
        spec: Attention,
        seconds: float,
        domain: Domain | None = None,
        refutes_at_large_sizes: bool = False,
    ) -> IdentityResult | None:
        """Return the adviser's identity test on residues."""
        return self._adviser.semantics(spec, seconds, domain, refutes_at_large_sizes)

    def trials(self, samples: Samples) -> TrialsInChild:
        """Return the trials of edits of the target's source, made by the adviser."""
        return self._adviser.trials(samples)

    def ask(self, question: str, *rest: Any, seconds: float = 0.0) -> Any:
        """Return the adviser's answer."""
        return self._adviser.ask(question, *rest, seconds=seconds)

    def _agree_on_convention(self) -> Convention:
        self.display = self._adviser.display
        failure = self._restart_target_if_ended()
        if isinstance(failure, Failure):
            raise _kind_of(failure)(
                f"{self._target} cannot be imported: its import {failure.message}"
            )
        return self._adviser.convention

    def _restart_target_if_ended(self) -> Any:
        if self._process is not None:
            return None
        how = self._adviser.convention
        # the one argument that an alignment decides
        has_causal_mask = any(a.input == CAUSAL_MASK for a in how.arguments)
        # An alignment is part of the definition, so it is passed only where an argument needs it.
        alignment: Alignment = how.alignment if has_causal_mask else "bottom-right"
        convention = Convention(how.arguments, how.framework, how.dtype, how.layout, alignment)
        return self._ask_worker(
            "hold", self._target, self._request.form, convention, self._adviser.returns_lists
        )


class SharedAdviser(AbstractContextManager["SharedAdviser"]):
    """The adviser of a target that is judged by several definitions, one after the other.

    What residues need to run a function of torch takes seconds to import, so that one process does it for all.
    """

    def __init__(self) -> None:
        self._child: Child | None = None

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.close()

    def turned_to(self, request: Request, opened: Callable[[], Child]) -> Child:
        """Return the adviser for a request: the one of the last request if its process lives, else one just opened."""
        if self._child is None or self._child.process is None:
            self._child = opened()
        else:
            # The target is not imported again: code that registers operators can do so only once.
            likely = self._child._request.likely
            self._child.turn_to(replace(request, likely=likely))
        return self._child


T = TypeVar("T")


def _checked(content: Any, kind: type[T], is_right: Callable[[Any], bool] = lambda x: True) -> T:
    """Return a content of a reply. Raises ``Tampered`` unless it is of this kind, and right: the worker's own are."""
    if not (isinstance(content, kind) and is_right(content)):
        raise Tampered(_WRITES)
    return content


def _are_texts(x: Any) -> bool:
    return has_declared_types(x, tuple[str, ...])


def _content_of(reply: Any) -> Any:
    """Return what a worker has replied. Raises the worker's error."""
    words, content, *text = reply
    if words == "done":
        return content
    if words == "defect":
        raise RuntimeError(f"a call in the child process failed\n{content}")
    # not content(text): MissingExtra takes other arguments
    error: SymattnError = content.__new__(content)
    error.args = (*text,)
    raise error


def ask_first(
    question: str, *rest: object, seconds: float = 60.0, server: ForkServer | None = None
) -> tuple[Any, Process]:
    """Return the answer of a new worker, or a ``Failure``, and its process, for a ``Child``; raise its error."""
    process = Process(server=server)
    try:
        reply = process.ask((question, *rest), seconds)
        return reply if isinstance(reply, Failure) else _content_of(reply), process
    except BaseException:
        process.end()
        raise


# -- verified by its name ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class TargetOptions(Options):
    """The options of ``verify_target`` and of other functions that call targets in a child.

    ``origin`` is the preset or configuration that the command of the report names, and ``notes`` are further notes for
    the report that limit its verdict, such as on heads that were cut. If there is a tuple of ``secret`` files, what the
    target does against its judge is noticed, these files are none that it may read, and its memory is limited to
    ``memory_limit`` GiB. ``form`` is how the kernel of a benchmark takes its inputs.
    ``started`` is called with each process that is started for the target, as a copy of the ``server`` if there is one.
    An ``adviser`` is shared by all definitions by which the target is judged.
    """

    origin: RequestOrigin | None = None
    notes: tuple[str, ...] = ()
    time_limit: float | None = None
    memory_limit: float | None = None
    secret: tuple[str, ...] | None = None
    form: KernelForm | None = None
    started: Callable[[Process], None] = lambda process: None
    server: ForkServer | None = None
    adviser: SharedAdviser | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be used."""
        Options.__post_init__(self)
        check_numbers(time_limit=self.time_limit, memory_limit=self.memory_limit)

    def request(self, spec: Specification) -> Request:
        """Return the request of these options, in the form in which the kernel of a benchmark takes its inputs."""
        return replace(Options.request(self, spec), form=self.form)

    def opened(self, function: str, spec: Specification) -> Child:
        """Open the target in a process of its own, with time limits."""
        limit_options = {"call": self.time_limit, "memory_gib": self.memory_limit}
        limits = ProcessLimits(
            **{name: limit for name, limit in limit_options.items() if limit is not None}
        )
        request = self.request(spec)
        open_child = partial(
            Child,
            function,
            request,
            limits,
            secret=self.secret,
            started=self.started,
            server=self.server,
        )
        if self.secret is None:
            return open_child()
        adviser = self.adviser
        child = open_child() if adviser is None else adviser.turned_to(request, open_child)
        # A call that needs the definition cannot do with arrays alone.
        if child.convention.needs_definition:
            return child
        try:
            return WithArraysAlone(child, self.secret, shared=adviser is not None)
        except BaseException:
            child.close()
            raise

    def command(
        self, *targets: str, spec: Specification, name: str = "verify", **others: object
    ) -> str:
        """Return the command line that reproduces a report; ``others`` are further options, with a value or None."""
        domain, request = self.domain or Domain(), self.request(spec)
        changed = {
            n: x if (x := getattr(self, n)) not in (_USUAL[n], "auto") else None for n in _COMMANDED
        } | others
        changed["call"] = [f"{keyword}={value!r}" for keyword, value in request.call]
        # rows without any key are an option of the specification
        promised = {n: getattr(domain, n) for n in domain.promises if n != "fully_masked_rows"}
        said = _yield_request_options(spec, domain, self.origin or RequestOrigin())
        return command(name, *targets, options=[*promised.items(), *said, *changed.items()])


@contextlib.contextmanager
def with_fork_server(how: Options, *paths: Path | None) -> Iterator[Options]:
    """Yield the options with a server of processes that has imported the libraries of Python files.

    Options that have a server, or of a function in this process, are yielded as they are; so are all elsewhere than on
    Linux.
    """
    if not isinstance(how, TargetOptions) or how.server is not None or sys.platform != "linux":
        yield how
        return
    command = [*_INTERPRETER, _SERVER_PROGRAM]
    with ForkServer(command, libraries_of(paths), _environment()) as server:
        yield replace(how, server=server)


@contextlib.contextmanager
def with_shared_adviser(how: Options) -> Iterator[Options]:
    """Yield the options of a watched target with an adviser for all definitions by which it is judged; others as they
    are."""
    if not isinstance(how, TargetOptions) or how.secret is None:
        yield how
        return
    with SharedAdviser() as adviser:
        yield replace(how, adviser=adviser)


#: Options that a command line repeats where they differ from their defaults.
_COMMANDED = (
    "dtype", "mask_arg", "mask_axes", "layout", "framework", "contract", "time_limit", "memory_limit",
    "budget", "examples", "seed",
)  # fmt: skip
#: The defaults of the options.
_USUAL = {field.name: field.default for field in fields(TargetOptions)}


def verify_target(target: str, spec: Specification | None = None, **options: Any) -> Report:
    """Verify ``package.module:function`` or ``file.py:function``, called in a child process with time limits.

    ``options`` are those of ``TargetOptions``. Also raises ``CannotRun`` if the target cannot be imported.
    """
    how = TargetOptions(**options)
    spec = checked(spec, how.domain)
    report = verified(target, spec, how)
    power = [f"{step}={float(share)!r}" for step, share in (how.power or {}).items()]
    report = replace(report, command=how.command(target, spec=spec, power=power))
    return report.with_reservations(*how.notes)


def _yield_request_options(
    spec: Specification, domain: Domain, origin: RequestOrigin
) -> Iterator[tuple[str, object]]:
    """Yield the options of a specification: its fields, or for a definition those of its attention."""
    yield from kind_of(spec).options(spec).items()
    attention = kind_of(spec).attention_of(spec)
    if attention is not None:
        # the options of the origin, and of the fields in which a specification differs from it
        usual = Attention()
        yield from origin.options.items()
        changed = differing(attention, origin.spec)
        if domain.fully_masked_rows:
            changed["fully_masked"] = attention.fully_masked
        for name, value in changed.items():
            # A usual value that the origin sets otherwise is an option to leave out.
            left_out = (
                value == getattr(usual, name)
                and name != "fully_masked"
                and not isinstance(value, bool)
            )
            yield ("without", name.replace("_", "-")) if left_out else (name, value)
