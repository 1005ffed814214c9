"""Processes that are copies of one which has imported a target's libraries: they are imported once for all of them.

Most of the processor time of a short judgement is the import of PyTorch or JAX. The server imports libraries and
symattn's worker, but neither a definition nor the target, and is asked for copies of itself. A copy starts as a new
process does: with pipes of its own, as the leader of a session, and confined before it reads anything. Linux alone:
elsewhere libraries may not survive a copy.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import re
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import IO, Any

from symattn.programs.process import time_spent

#: Libraries that are imported before the target is, if its text or that of a reference imports them.
LIBRARIES = ("torch", "jax")
#: Of these, the libraries that read the environment when they are imported, which code may have set before.
_CONFIGURED_BEFORE = frozenset(["jax"])
#: Words of code that sets such variables.
_SETTING = ("environ", "putenv")
#: Such code in packages, of which most read the environment.
_SETS_VARIABLE = re.compile(
    r"environ\b[^\n=]*\][^\S\n]*=(?!=)|environ\.(?:setdefault|update)\b|environ[^\S\n]*\|=|\bputenv\b"
)
_MAX_FILES_OF_PACKAGE = 1000  # that are read for it
#: Modules that set nothing, or nothing else if JAX imports them itself, as it does in the server.
_NEUTRAL = frozenset(
    [*sys.stdlib_module_names, *LIBRARIES, "jaxlib", "ml_dtypes", "numpy", "opt_einsum", "scipy"]
)
_START_SECONDS = 60.0  # for the imports of the server, before a process is started without it
_END_SECONDS = 60.0  # for the end of a process that was killed
_PID, _STATUS = struct.Struct("i"), struct.Struct("id")
_MAX_MESSAGE = 1 << 16  # bytes of a request, which holds paths
_MAX_TEXT = 1 << 22  # bytes of a file whose imports are looked up


def libraries_of(paths: Sequence[Path | None]) -> tuple[str, ...]:
    """Return the libraries that Python files import, or a definition in JSON with a reference in Python.

    A library is left out if a module beside a file, or in the working directory, has its name. If it reads variables
    of the environment when it is imported, it is also left out where a file, a module beside it, or an installed
    package that the file imports, may set them.
    """
    files = [path for path in paths if path is not None]
    texts = [_text_of(path) for path in files]
    names = {name for text in texts for name in _names_of_imports(text)}
    wanted = [name for name in LIBRARIES if name in names and find_spec(name) is not None]
    if not wanted:
        return ()
    # Such a module would be imported in place of the library.
    beside = names & _modules_in(Path.cwd(), *(path.parent for path in files))
    may_configure = bool(beside) or any(word in text for text in texts for word in _SETTING)
    if not may_configure and _CONFIGURED_BEFORE & {*wanted}:
        may_configure = any(map(_sets_environment, sorted(names - _NEUTRAL)))
    left_out = beside | (_CONFIGURED_BEFORE if may_configure else frozenset())
    return tuple(name for name in wanted if name not in left_out)


def _sets_environment(name: str) -> bool:
    """Return whether a file of an installed package sets a variable of the environment, perhaps as it is imported.

    Packages that it imports itself are not read. One with more files than are read may set them.
    """
    if not name:
        return False
    try:
        spec = find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False  # no package, or one whose own finder fails
    if spec is None or spec.origin is None:
        return False
    files = [Path(spec.origin)]
    for folder in spec.submodule_search_locations or ():
        files += islice(Path(folder).rglob("*.py"), _MAX_FILES_OF_PACKAGE)
    if len(files) > _MAX_FILES_OF_PACKAGE:
        return True
    return any(_SETS_VARIABLE.search(_text_of(path)) for path in files if path.suffix == ".py")


def _modules_in(*folders: Path) -> set[str]:
    """Return the names by which modules and packages in folders would be imported, and other names there."""
    result: set[str] = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            result |= {name.removesuffix(".py") for name in os.listdir(folder)}
    return result


#: The names after an import, and the module after "from". In JSON, a statement follows the letter of an escaped end of
#: line. Each character can be matched in one way only, so that no text takes long.
_IMPORTS = re.compile(r"import\s+([\w.][\w. ]*(?:,\s*[\w.][\w. ]*)*)|from\s+(\w+)")


def _names_of_imports(text: str) -> Iterator[str]:
    for names, module in _IMPORTS.findall(text):
        yield module
        # A list that ends with a comma may go on with the next statement: "a, import b".
        yield from (
            re.split(r"[. ]", name.strip().removeprefix("import "))[0] for name in names.split(",")
        )


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_TEXT).decode("utf-8", "replace")
    except OSError:
        return ""


# -- in the process that asks ------------------------------------------------------------------------------------------
class ForkServer(contextlib.AbstractContextManager["ForkServer"]):
    """A running server, by the words of a command that imports symattn, calls ``serve``, and then runs a worker.

    Its imports go on while the caller does other things.
    """

    def __init__(
        self, command: Sequence[str], libraries: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        # Packets keep requests apart, which a stream would not.
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), *libraries],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                # A session of its own: a Ctrl-C in the terminal is for the caller.
                start_new_session=True,
            )

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def spent(self) -> tuple[float, float]:
        """The processor time of the server itself, without its copies, and how long it was ready to run."""
        return (0.0, 0.0) if self._process.returncode is not None else time_spent(self._process.pid)

    def start(self, confined: Sequence[Any], errors: IO[bytes]) -> ForkedProcess:
        """Start a process, with ``confined`` as the arguments of ``confining.confine``, if there are any.

        Raises ``OSError`` if the server has ended, or does not answer.
        """
        return ForkedProcess(self._connection, (os.getpid(), tuple(confined)), errors)

    def close(self) -> None:
        """End the server; processes that were started go on."""
        self._connection.close()
        self._process.kill()
        self._process.wait()


class ForkedProcess:
    """A copy of the server, with the attributes and methods of ``subprocess.Popen`` that are used of a worker."""

    returncode: int | None = None
    #: Whether it was waited for, so that another process may have its number.
    is_forgotten = False
    #: The processor time of the process and of its ended children, once it was waited for.
    worked = 0.0

    def __init__(
        self, connection: socket.socket, request: tuple[Any, ...], errors: IO[bytes]
    ) -> None:
        their_input, own_input = os.pipe()
        own_output, their_output = os.pipe()
        self._status, their_status = os.pipe()
        self.stdin, self.stdout = os.fdopen(own_input, "wb"), os.fdopen(own_output, "rb")
        theirs = their_input, their_output, their_status
        try:
            given = their_input, their_output, errors.fileno(), their_status
            # Descriptors are passed on the socket, so that the copy writes to our pipes.
            socket.send_fds(connection, [pickle.dumps(request)], given)
        except BaseException:
            self._close()
            raise
        finally:
            # Our copies of the child's ends would keep its pipes open after it has ended.
            for descriptor in theirs:
                os.close(descriptor)
        self.pid = self._receive_pid()

    def _receive_pid(self) -> int:
        """Return the number of the process. Raises ``OSError`` if the server starts none."""
        answered = select.select([self._status], [], [], _START_SECONDS)[0]
        number = os.read(self._status, _PID.size) if answered else b""
        if not number:
            self._close()
            raise OSError("the server of processes gives no answer")
        return int(_PID.unpack(number)[0])

    def poll(self) -> int | None:
        """Return the exit code if the process has ended, negative for a signal; else None."""
        if self.returncode is None and self._is_said(0):
            return self.wait()
        return self.returncode

    def _is_said(self, seconds: float) -> bool:
        """Return whether the process was said to have ended within so many seconds."""
        return bool(select.select([self._status], [], [], seconds)[0])

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        if self.returncode is None:
            # Whoever waits for the process may have been stopped by it, and says nothing.
            said = self._is_said(_END_SECONDS)
            ending = os.read(self._status, _STATUS.size) if said else b""
            os.close(self._status)
            # Nothing is read if whoever waits for the process was killed, as all of a machine may be.
            code, self.worked = _STATUS.unpack(ending) if ending else (signal.SIGKILL, 0.0)
            self.returncode, self.is_forgotten = os.waitstatus_to_exitcode(code), bool(ending)
        return self.returncode

    def kill(self) -> None:
        """Kill the process."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _close(self) -> None:
        self.stdin.close()
        self.stdout.close()
        os.close(self._status)


# -- in the server, and in its copies ----------------------------------------------------------------------------------
def serve(control: int, libraries: Sequence[str]) -> None:
    """Import libraries, and make copies on request; return in each copy, and exit once nobody asks any more."""
    from symattn.programs import confining

    for library in libraries:
        # The target's own import then reports the error.
        with contextlib.suppress(Exception):
            importlib.import_module(library)
    gc.freeze()  # collecting existing objects would copy their memory
    request, descriptors = _copy_on_request(socket.socket(fileno=control))
    judge, confined = request
    _continue_as_waited_for(*descriptors)
    if confined:
        memory_gib, hidden = confined
        confining.confine(memory_gib, hidden, judge)


def _copy_on_request(connection: socket.socket) -> tuple[Any, list[int]]:
    """Go on in a copy of this process for each request, and return it with its descriptors; exit after the last one."""
    # Copies are then forgotten as they end: each has told how.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with connection:
        while True:
            message, descriptors, *_ = socket.recv_fds(connection, _MAX_MESSAGE, 4)
            if not message:
                sys.exit()
            if os.fork() == 0:
                break
            for descriptor in descriptors:
                os.close(descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return pickle.loads(message), descriptors


def _continue_as_waited_for(given: int, replies: int, errors: int, status: int) -> None:
    """Go on in a copy of this process with three streams of its own; this one waits, and says how the copy ended."""
    copy = os.fork()
    if copy == 0:
        os.close(status)
        os.setsid()
        for place, descriptor in enumerate((given, replies, errors)):
            os.dup2(descriptor, place)
            os.close(descriptor)
        return
    for descriptor in (given, replies, errors):
        os.close(descriptor)
    # The reader may be gone, which ends nothing here.
    with contextlib.suppress(OSError):
        os.write(status, _PID.pack(copy))
        _, code, used = os.wait4(copy, 0)
        os.write(status, _STATUS.pack(code, used.ru_utime + used.ru_stime))
    os._exit(0)
