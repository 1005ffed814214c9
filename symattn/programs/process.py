"""Copies of this process for single tasks, and how long a process works, or waits.

A limit is processor time, or time on the wall where the process and what it has started are idle. What a task changes
stays in its copy.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import pickle
import queue
import select
import signal
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from symattn.verification.effort import exhausted


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


def receive(messages: IO[bytes], into: queue.SimpleQueue[Any], ended: Callable[[], None]) -> None:
    """Pass messages on, until there are no more."""
    with contextlib.suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):
        while True:
            into.put(pickle.load(messages))
    ended()


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
