"""Tasks in a copy of this process: what they change stays there, and they have a limit of time."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import pickle
import select
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from symattn.programs.process import Waiting


class NotDone(Exception):
    """The task gave no result: no copy could be made, it did not end in time, or it ended the process."""


def apart(task: Callable[[], Iterable[Any]], seconds: float) -> list[Any]:
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
    opened = [*_opened(answers)]
    results = [content for done, content in opened if done]
    if not results:
        ending = "it ended its process" if ended else f"it did not end within {seconds:g} s"
        raise NotDone(opened[0][1] if opened else ending)
    return results


def _work(task: Callable[[], Iterable[Any]], writing: int, seconds: float) -> None:
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


def _opened(answers: bytes) -> Iterator[tuple[bool, Any]]:
    """Yield what came whole."""
    with io.BytesIO(answers) as file, contextlib.suppress(EOFError, pickle.UnpicklingError):
        while True:
            yield pickle.load(file)
