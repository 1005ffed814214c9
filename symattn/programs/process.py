"""Copies of this process for single tasks, and limits on how long a process works or waits.

A limit is processor time, or wall-clock time if the process and its children are idle. Changes by a task stay in its
copy.
"""

from __future__ import annotations

import contextlib
import gc
import io
import mmap
import os
import pickle
import queue
import select
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import IO, Any

from symattn.programs.messages import MAX_BYTES, DataAlone
from symattn.verification.effort import exhausted, ready_time


def time_spent(process: int) -> tuple[float, float]:
    """Return the processor time of a process, of the session that it leads, and of their ended children; and how long
    those that live were ready to run.

    Without ``/proc``, return wall-clock time instead.
    """
    ticks = 0
    ready = 0.0
    for number, words in _yield_stats():
        if process in (number, int(words[3])):
            # User and system time in ticks, of the process and of its ended children.
            ticks += sum(map(int, words[11:15]))
            ready += ready_time(number)
    return (
        (ticks / os.sysconf("SC_CLK_TCK"), ready)
        if Path("/proc/self/stat").exists()
        else (time.monotonic(), 0.0)
    )


def _yield_stats() -> Iterator[tuple[int, list[bytes]]]:
    """Yield each process with the words about it, from its state on; none without ``/proc``.

    All processes of the machine are read several times a second, which ``pathlib`` would make three times as slow.
    """
    numbers: list[str] = []
    with contextlib.suppress(OSError):
        numbers = [name for name in os.listdir("/proc") if name.isdecimal()]
    for number in numbers:
        try:
            words = _read_stat(int(number))
        except OSError:
            continue  # the process has ended
        yield int(number), words


def _read_stat(process: int) -> list[bytes]:
    """Return the words about a process, from its state on. Raises ``OSError`` if it has ended."""
    with open(f"/proc/{process}/stat", "rb") as file:
        text = file.read()
    # The name in parentheses may contain parentheses; the text after the last one counts.
    return text.rpartition(b")")[2].split()


def descendants_of(process: int) -> set[int]:
    """Return the processes that a process has started, and those that these have, and so on; none without ``/proc``."""
    # Most candidates start none, and all processes of the machine are many.
    if (chain := _list_chain_of_children(process)) is not None:
        return chain
    children: dict[int, list[int]] = {}
    for number, (state, parent, *_) in _yield_stats():
        # A zombie has ended, and starts nothing.
        if state != b"Z":
            children.setdefault(int(parent), []).append(number)
    descendants = set[int]()
    following = [process]
    while following:
        started = children.get(following.pop(), [])
        descendants.update(started)
        following += started
    return descendants


def _list_chain_of_children(process: int) -> set[int] | None:
    """Return the descendants of a process if each one has a single child, or none; None if the system does not say.

    While children end, a list may lack others behind them, but it is empty only if there is none; and of those that it
    names, one that has ended has no list itself.
    """
    chain = set[int]()
    try:
        while children := _read_children(process):
            if len(children) > 1 or not chain.isdisjoint(children):
                return None
            process = children[0]
            # A zombie has ended, and is none.
            if _read_stat(process)[0] == b"Z":
                return None
            chain.add(process)
    except OSError:  # a process has ended, or the system has no such lists
        return None
    return chain


def _read_children(process: int) -> list[int]:
    """Return the children of all threads of a process. Raises ``OSError`` if the system does not list them."""
    threads = f"/proc/{process}/task"
    children = list[int]()
    for thread in os.listdir(threads):
        with open(f"{threads}/{thread}/children", "rb") as file:
            children += map(int, file.read().split())
    return children


def end_descendants(process: int) -> None:
    """Kill all processes that a process has started, itself excluded, also those in sessions of their own.

    They are stopped first, so that none starts another one meanwhile.
    """
    stopped = set[int]()
    for _ in range(_MAX_ROUNDS):
        new = descendants_of(process) - stopped
        if not new:
            break
        _send_signal_to_processes([process, *new], signal.SIGSTOP)
        stopped |= new
    _send_signal_to_processes(stopped, signal.SIGKILL)


_MAX_ROUNDS = 100  # of looking for processes that started while others were stopped


def _send_signal_to_processes(processes: Iterable[int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended
            os.kill(process, number)


class Waiting:
    """A wait for a process, ``over`` once it has worked, or been idle, for ``limit`` seconds.

    It is idle if it works, or waits for a processor, for less than a share ``idle`` of the time: usually 2 %. Of a
    process that ``is_new`` all processor time counts.
    """

    def __init__(
        self, process: int, limit: float, idle: float | None = None, is_new: bool = False
    ) -> None:
        self._process, self._limit, self._began = process, limit, time.monotonic()
        self._idle = idle
        # To read what another process has spent so far, all processes of the machine are read.
        self._before: tuple[float, float] | None = (0.0, 0.0) if is_new else None

    @property
    def over(self) -> bool:
        """Return whether the limit is reached. Processor time counts from the first call, unless the process is new."""
        if self._before is None:
            self._before = time_spent(self._process)
        wall = time.monotonic() - self._began
        return wall > self._limit and exhausted(self._limit, wall, *self.spent, self._idle)

    @property
    def spent(self) -> tuple[float, float]:
        """The processor time of the process since ``over`` was first used, and how long it was ready to run."""
        (worked, ready), (before, ready_before) = (
            time_spent(self._process),
            self._before or time_spent(self._process),
        )
        return worked - before, ready - ready_before


#: Seconds after the beginning of a call within which that of another is not said: most edits are called for less than
#: a message takes. A call that does not return is then stopped by so much earlier.
_BETWEEN_CALLS = 0.02


def seldom(say: Callable[[], None]) -> Callable[[], None]:
    """Return what says that a call begins, unless it has said so a moment ago."""
    last = -inf

    def begun() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _BETWEEN_CALLS:
            last = now
            say()

    return begun


class Inbox:
    """Messages that were read and not taken yet. Whoever reads more waits while these have too many bytes.

    A process that is not trusted may write without end: so it fills its pipe, and no memory.
    """

    def __init__(self, most_bytes: int = MAX_BYTES) -> None:
        self._most, self._bytes, self._is_closed = most_bytes, 0, False
        self._messages: deque[tuple[Any, int]] = deque()
        self._changed = threading.Condition()

    def put(self, message: Any, read_bytes: int = 0) -> None:
        """Add a message of so many bytes, once there is room; a closed inbox takes all, and forgets them."""
        size = read_bytes + _BYTES_OF_OBJECTS
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._has_room(size))
            if not self._is_closed:
                self._messages.append((message, size))
                self._bytes += size
                self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        return not self._messages or self._bytes + size <= self._most

    def get(self, timeout: float | None = None) -> Any:
        """Take the oldest message. Raises ``queue.Empty`` if none comes in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._messages, timeout):
                raise queue.Empty
            message, size = self._messages.popleft()
            self._bytes -= size
            self._changed.notify_all()
            return message

    def empty(self) -> bool:
        """Return whether there is no message."""
        return not self._messages

    def holds_other_than(self, mark: object) -> bool:
        """Return whether there is a message, and the oldest is not this one."""
        with self._changed:
            return bool(self._messages) and self._messages[0][0] is not mark

    def close(self) -> None:
        """Forget all messages, and those that come."""
        with self._changed:
            self._is_closed = True
            self._messages.clear()
            self._changed.notify_all()


_BYTES_OF_OBJECTS = 1 << 10  # of the objects of the shortest message


def receive(
    messages: IO[bytes],
    into: Inbox,
    ended: Callable[[], None],
    unreadable: Callable[[], None] | None = None,
    known: Mapping[str, object] | None = None,
) -> None:
    """Put messages ``into`` an inbox until there are no more, then call ``ended``.

    With ``unreadable`` the other end is not trusted: only data are read, and it is called at the first other message.
    Such a message may name the objects that are ``known`` here.
    """
    while True:
        reader = pickle.Unpickler(messages) if unreadable is None else DataAlone(messages, known)
        try:
            message = reader.load()
        except (EOFError, OSError):
            return ended()
        except Exception:  # broken data can make any operation of the format fail
            # A process that ends while it writes leaves a part of a message.
            is_part = isinstance(reader, DataAlone) and reader.ended
            return ended() if unreadable is None or is_part else unreadable()
        into.put(message, reader.most_bytes_taken if isinstance(reader, DataAlone) else 0)


class NotDone(Exception):
    """Raised if a task has no result: no copy could be made, the task timed out, or it ended the process."""


class SharedMark:
    """A mark that copies of this process can set, and that this process then sees."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1)  # shared with copies
        self._process = os.getpid()

    def set(self) -> bool:
        """Set the mark if this is a copy; return whether it is."""
        is_copy = os.getpid() != self._process
        if is_copy:
            self._memory[0] = 1
        return is_copy

    def take(self) -> bool:
        """Return whether the mark is set, and remove it."""
        is_set, self._memory[0] = bool(self._memory[0]), 0
        return is_set


def apart(task: Callable[[], Iterable[object]], seconds: float) -> list[Any]:
    """Run ``task`` in a copy of this process, and return the results that it yields in time.

    Raises ``NotDone`` if there are none, with the message of the task's exception.
    """
    if not hasattr(os, "fork"):
        raise NotDone("this system cannot copy a process")
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about threads that the copy lacks
        copy = os.fork()
    if copy == 0:
        _work_in_process_copy(task, writing, seconds)
    os.close(writing)
    try:
        answers, ended = _read_pipe_until_limit(reading, Waiting(copy, seconds, is_new=True))
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)
    opened = [*_yield_answers_of_copy(answers)]
    results = [content for done, content in opened if done]
    if not results:
        ending = "it ended its process" if ended else f"it did not end within {seconds:g} s"
        raise NotDone(opened[0][1] if opened else ending)
    return results


def _yield_answers_of_copy(written: bytes) -> Iterator[tuple[bool, Any]]:
    """Yield what a copy wrote, up to the first that is incomplete, or none: the task's own code may write as well.

    Only data are read, whose objects the copy cannot have changed.
    """
    with io.BytesIO(written) as file, contextlib.suppress(Exception):
        while True:
            match DataAlone(file).load():
                case (True, result):
                    yield True, result
                case (False, str() as words):
                    yield False, words
                case _:
                    return


def _work_in_process_copy(
    task: Callable[[], Iterable[object]], writing: int, seconds: float
) -> None:
    """Send the results or the message of an exception from the copy, and end it in every case."""
    import resource  # missing on systems that cannot copy a process

    gc.freeze()  # collecting existing objects would copy their memory
    try:
        with contextlib.suppress(ValueError):  # a lower limit is set already
            most = int(seconds) + 2  # end it even if the parent is gone
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        with os.fdopen(writing, "wb", buffering=0) as file:
            try:
                for result in task():
                    file.write(pickle.dumps((True, result)))
            except BaseException as error:
                file.write(pickle.dumps((False, f"{type(error).__name__}: {error}")))
    finally:
        # At once: Python's own exit would run handlers, and flush buffers, of the original process.
        os._exit(0)


def _read_pipe_until_limit(reading: int, waiting: Waiting) -> tuple[bytes, bool]:
    """Return the bytes received in time, and whether they are complete; no more than a message may have."""
    result = bytearray()
    parts = 0
    while len(result) < MAX_BYTES:
        # A short wait, so that the limit is looked at even if nothing comes.
        if select.select([reading], [], [], 0.1)[0]:
            part = os.read(reading, 1 << 16)
            # An empty read is the end of the pipe.
            if not part:
                return bytes(result), True
            result += part
            parts += 1
            # Now and then, also if there is always more to read.
            if parts % _PARTS_BETWEEN_LOOKS:
                continue
        if waiting.over:
            break
    return bytes(result), False


_PARTS_BETWEEN_LOOKS = 64  # at the limit of time
