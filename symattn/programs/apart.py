"""A task done in a copy of this process: what it changes stays there, and it has a limit of time."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import signal
import warnings
from collections.abc import Callable
from typing import Any

from symattn.programs.process import Waiting


class NotDone(Exception):
    """The task gave no result: no copy could be made, it did not end in time, or it ended the process."""


def apart(task: Callable[[], Any], seconds: float) -> Any:
    """Run ``task`` in a copy of this process, and return its result; its exception is raised here as ``NotDone``."""
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
        answer = _read(reading, Waiting(copy, seconds))
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)
    if answer is None:
        raise NotDone(f"it did not end within {seconds:g} s")
    return _opened(answer)


def _work(task: Callable[[], Any], writing: int, seconds: float) -> None:
    """In the copy: the result, or the words of the exception, and the end of the process in every case."""
    import resource  # there is none where a process cannot be copied

    gc.freeze()  # to look through what was there before would copy its memory
    try:
        with contextlib.suppress(ValueError):  # a lower limit holds already
            most = int(seconds) + 2  # it ends, too, where nobody is left to end it
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        try:
            answer = pickle.dumps((True, task()))
        except BaseException as error:
            answer = pickle.dumps((False, f"{type(error).__name__}: {error}"))
        with os.fdopen(writing, "wb") as file:
            file.write(answer)
    finally:
        os._exit(0)


def _read(reading: int, waiting: Waiting) -> bytes | None:
    """All that comes, or None after the time."""
    result = b""
    while True:
        if select.select([reading], [], [], 0.1)[0]:
            part = os.read(reading, 1 << 16)
            if not part:
                return result
            result += part
        elif waiting.over:
            return None


def _opened(answer: bytes) -> Any:
    if not answer:
        raise NotDone("it ended its process")
    done, content = pickle.loads(answer)
    if not done:
        raise NotDone(content)
    return content
