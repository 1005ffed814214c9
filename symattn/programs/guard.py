"""Notice what a candidate does against its judge, in the process in which its code runs.

While the candidate is imported and called, symattn's modules are hidden, and an audit hook of the interpreter sees
imports, opened files, signals, connections and looks at the stack. Code that reaches the memory of the process by other
ways, such as ``ctypes``, is not noticed: the answers are judged in another process, which holds what is expected.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from symattn.document.errors import SymattnError

#: symattn's packages, which a candidate has no reason to import.
_OWN = ("symattn", "symattn_cli")
#: Audit events of code that looks at the stack, or at all objects.
_STACK = ("sys._getframe", "sys._current_frames", "gc.get_objects", "gc.get_referrers")
# of the standard library, between a look and who looks
_BETWEEN = ("inspect.py", "traceback.py", "contextlib.py")
#: Where the code of libraries is, and symattn's own.
_SITE = {"site-packages", "dist-packages"}
_LIBRARIES = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in (
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        os.path.dirname(__file__) + "/..",
    )
)
#: Audit events of connections.
_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.sendto")
#: Audit events of signals.
_SIGNALS = ("os.kill", "os.killpg")
#: Audit events of new processes.
_STARTS = ("os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen")
#: Processes that a candidate starts, such as compilers, before this counts as an attack.
MAX_STARTED = 64
#: Functions by which tests compare and measure; a candidate has no reason to replace them.
_WATCHED = (
    "time.time", "time.perf_counter", "time.process_time", "time.monotonic", "time.perf_counter_ns", "time.time_ns",
    "numpy.allclose", "numpy.isclose", "numpy.array_equal", "numpy.testing.assert_allclose",
    "numpy.testing.assert_array_equal", "numpy.testing.assert_array_almost_equal", "torch.allclose", "torch.equal",
    "torch.isclose", "torch.testing.assert_close", "torch.cuda.synchronize", "torch.cuda.Event.elapsed_time",
)  # fmt: skip
#: Libraries of whose own functions none may be replaced by code of another place, since symattn calls them as well.
_WHOLE = ("numpy", "torch")


class Tampered(SymattnError):
    """The candidate acted against the judge; the message says how."""


class Guard:
    """Notices what the code of a candidate does while ``watching``.

    The ``secret`` files and the ``judge``'s process are none of its business.
    """

    def __init__(self, place: str, secret: tuple[str, ...] = (), judge: int = 0) -> None:
        self._candidate = os.path.realpath(place) if place.endswith(".py") else ""
        # a candidate that stands in the reference's own file is imported from it
        self._secret = frozenset(map(os.path.realpath, secret)) - {self._candidate}
        self._before = {name: _resolve_loaded_object(name) for name in _WATCHED}
        self._functions = {library: _functions_of(library) for library in _WHOLE}
        self._active, self._inside, self._thread = False, False, threading.get_ident()
        # threads that run already are symattn's own; those that the candidate starts are watched between calls, too
        self._helpers = frozenset(t.ident for t in threading.enumerate()) - {self._thread}
        self._import = builtins.__import__
        self.events: list[str] = []
        self._process, self._started = os.getpid(), 0
        # 0 and −1 stand for groups of processes, which may include the judge. The first process of a namespace, whose
        # parent is 0, cannot reach the judge, and its number may be that of another process there.
        parent = os.getppid()
        self._judges = {parent, 0, -1} | ({judge} if parent else set())
        # No code can remove a hook of this kind, so the candidate cannot either.
        sys.addaudithook(self._hear_audit_event)

    @contextlib.contextmanager
    def watching(self, hiding: bool = True) -> Iterator[None]:
        """Watch the code that runs within; with ``hiding``, it finds no module of symattn.

        Raises ``Tampered`` at the end if something was noticed.
        """
        hidden = {
            name: sys.modules.pop(name)
            for name in [*sys.modules]
            if hiding and name.split(".")[0] in _OWN
        }
        traced, profiled = sys.gettrace(), sys.getprofile()
        builtins.__import__ = self._import_and_note_symattn  # type: ignore[assignment]
        sys.meta_path.insert(0, self)
        self._active = True
        try:
            yield
        finally:
            self._active = False
            # A function that follows each step of Python would follow the judge's own.
            sys.settrace(traced)
            sys.setprofile(profiled)
            builtins.__import__ = self._import
            # The candidate may have moved the finder, so the whole list is searched.
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
            sys.modules.update(hidden)
            self._look_for_replaced()
        self.check()

    def check(self) -> None:
        """Raise ``Tampered`` if something was noticed."""
        if self.events:
            raise Tampered(self.events[0])

    def _note_guarded_event(self, words: str) -> None:
        if words not in self.events:
            self.events.append(words)

    def _import_and_note_symattn(
        self, name: str, spaces: Any = None, *rest: Any, **named: Any
    ) -> Any:
        """Import as usual, and note that the candidate's own code imports symattn."""
        if name.split(".")[0] in _OWN and self._is_candidates((spaces or {}).get("__file__")):
            self._note_guarded_event(f"it imports {name}")
            raise ImportError(f"No module named {name!r}")
        return self._import(name, spaces, *rest, **named)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Refuse to find modules of symattn, as the first finder on ``sys.meta_path``; leave others to the rest."""
        if self._active and name.split(".")[0] in _OWN and not self._by_symattn(sys._getframe(1)):
            self._note_guarded_event(f"it imports {name}")
            raise ImportError(f"No module named {name!r}")

    def _is_candidates(self, file: object) -> bool:
        """Return whether a file of code belongs to the candidate: neither to a library nor to symattn."""
        if not isinstance(file, str) or file.startswith("<"):
            return False
        real = os.path.realpath(file)
        return real == self._candidate or not (
            _SITE & set(real.split(os.sep)) or real.startswith(_LIBRARIES)
        )

    def _hear_audit_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Hear an audit event; those of symattn's own threads, and of this hook itself, are left out."""
        thread = threading.get_ident()
        if self._inside or thread in self._helpers or (thread == self._thread and not self._active):
            return
        # The hook itself opens and resolves paths, whose events are not the candidate's.
        self._inside = True
        try:
            words = self._words_of(event, arguments)
            if event in _STARTS:
                self._count_start(event)
        finally:
            self._inside = False
        if words:
            self._note_guarded_event(words)

    def _words_of(self, event: str, arguments: tuple[Any, ...]) -> str:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            return self._describe_opened_path(os.fsdecode(arguments[0]))
        if event in _SIGNALS and arguments[0] in self._judges:
            return "it sends a signal to the judge"
        if event in _NETWORK:
            return "it opens a network connection"
        # Two frames up, beyond this function and the hook, is the code that looks.
        if event in _STACK and self._is_candidate_looking(sys._getframe(2)):
            return f"it looks at the judge's memory ({event})"
        return ""

    def _count_start(self, event: str) -> None:
        """Count a process that the candidate starts. Raises ``OSError``, as at a limit of the system, for too many."""
        self._started += 1
        # A copy that copies itself again could multiply without being counted.
        copies_itself = event.startswith("os.fork") and os.getpid() != self._process
        if self._started > MAX_STARTED:
            self._note_guarded_event(f"it starts more than {MAX_STARTED} processes")
        if self._started > MAX_STARTED or copies_itself:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def _describe_opened_path(self, path: str) -> str:
        real = os.path.realpath(path)
        if real in self._secret:
            # Who reads the reference reads the answer.
            return f"it reads the reference, {path}"
        parts = real.split("/")
        others = (
            len(parts) > 3
            and parts[1] == "proc"
            # Files of other processes hold memory and descriptors, the judge's among them.
            and parts[2].isdecimal()
            and parts[2] != str(os.getpid())
        )
        return f"it reads {path}, of another process" if others else ""

    def _is_candidate_looking(self, frame: FrameType | None) -> bool:
        """Return whether the candidate's own code looks: itself, by a text, or through the standard library."""
        while frame is not None and _is_between(frame.f_code.co_filename):
            frame = frame.f_back
        return frame is not None and self._is_candidates(frame.f_code.co_filename)

    def _by_symattn(self, frame: FrameType | None) -> bool:
        """Return whether code of symattn, which adapts the candidate, imports more of symattn."""
        while frame is not None and (
            "importlib" in frame.f_code.co_filename or frame.f_code.co_filename == __file__
        ):
            frame = frame.f_back
        return frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OWN

    def _look_for_replaced(self) -> None:
        for name, before in self._before.items():
            now = _resolve_loaded_object(name)
            # A library loaded since then has its own function, unless the candidate replaced it.
            if now is not before and (before is not None or not _is_function_of_library(now, name)):
                self._note_guarded_event(f"it replaces {name}")
        for library, functions in self._functions.items():
            names = vars(sys.modules[library]) if library in sys.modules else {}
            for name, before in functions.items():
                now = names.get(name)
                if now is not before and not self._is_replaced_by_library(now, f"{library}.{name}"):
                    self._note_guarded_event(f"it replaces {library}.{name}")

    def _is_replaced_by_library(self, now: Any, name: str) -> bool:
        """Return whether a function is a library's, which may wrap functions as more of it is loaded, or symattn's."""
        now = now.__func__ if isinstance(now, MethodType) else now
        # One function of a library in the place of another one is the candidate's deed.
        if any(now is other for other in self._functions[name.split(".")[0]].values()):
            return False
        if isinstance(now, FunctionType):
            file = now.__code__.co_filename
            is_own = os.path.realpath(file).startswith(_folder_of(name.split(".")[0]))
            return not file.startswith("<") and (is_own or not self._is_candidates(file))
        if isinstance(now, type):
            return not self._is_candidates(getattr(sys.modules.get(now.__module__), "__file__", ""))
        if isinstance(now, BuiltinFunctionType):
            # A method of an object, such as of a list, is no function of a library.
            return now.__self__ is None or isinstance(now.__self__, ModuleType | type)
        return now is not None and _is_function_of_library(now, name)


def _folder_of(library: str) -> str:
    """Return the folder of a loaded library, which need not be installed: it may be imported where it is built."""
    file = getattr(sys.modules.get(library), "__file__", None) or os.devnull
    return os.path.join(os.path.dirname(os.path.realpath(file)), "")


def _functions_of(library: str) -> dict[str, Any]:
    """Return the functions that a loaded library has under its own name; classes are none, and may be renamed."""
    names = vars(sys.modules[library]) if library in sys.modules else {}
    return {
        name: value
        for name, value in names.items()
        if callable(value) and not isinstance(value, type)
    }


def _is_between(file: str) -> bool:
    return os.path.basename(file) in _BETWEEN or (
        file.startswith("<") and not file.startswith("<frozen")
    )


def _resolve_loaded_object(name: str) -> Any:
    """Return what a dotted name stands for among loaded modules; None if it is not loaded."""
    parts = name.split(".")
    # The longest prefix that is a module; the rest are attributes.
    for k in range(len(parts) - 1, 0, -1):
        result: Any = sys.modules.get(".".join(parts[:k]))
        if result is not None:
            for part in parts[k:]:
                result = getattr(result, part, None)
            return result
    return None


def _is_function_of_library(function: Any, name: str) -> bool:
    """Return whether a function that was loaded since is one of the library of its name."""
    library = name.split(".")[0]
    if function is None or isinstance(function, BuiltinFunctionType):
        return True
    if isinstance(function, FunctionType):
        return os.path.join(os.sep, library, "") in function.__code__.co_filename
    return type(function).__module__.split(".")[0] in (library, "builtins")


#: The guard of this process, if its candidate is watched.
_guard: Guard | None = None


def install(place: str, secret: tuple[str, ...], judge: int) -> None:
    """Watch the candidate of this process from now on; ``judge`` is the process that asks."""
    global _guard
    _guard = Guard(place, secret, judge)


def is_installed() -> bool:
    """Return whether the candidate of this process is watched."""
    return _guard is not None


def watched(hiding: Callable[[], bool] = lambda: True) -> contextlib.AbstractContextManager[None]:
    """Return a context in which the candidate's code is watched, if there is a guard."""
    return contextlib.nullcontext() if _guard is None else _guard.watching(hiding())


def replaced() -> str:
    """Return what the candidate of this process has replaced, or done else, if it is watched; "" for nothing."""
    if _guard is None:
        return ""
    _guard._look_for_replaced()
    return _guard.events[0] if _guard.events else ""


def check() -> None:
    """Raise ``Tampered`` if the guard of this process has noticed something."""
    if _guard is not None:
        _guard.check()
