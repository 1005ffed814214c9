"""Limits on what the process of a candidate may use, set before any of its code, and of its libraries, is loaded.

On Linux the process gets namespaces of its own: a network without any interface; users, which keeps it from reading the
judge's memory; processes, so that it finds none of the judge's under /proc; and files, in which the reference is empty,
and symattn and Python are read-only. Memory, and the size of files that it writes, are limited. Only the standard
library is imported here: a namespace can be entered only while the process has a single thread.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence

GIB = 1 << 30
#: What one file may hold that the process writes, its standard output and standard error among them.
MAX_FILE_BYTES = GIB // 4
_NEWNS, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000  # of unshare(2)
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC = 1, 32, 4096, 16384  # of mount(2)
_MS_PRIVATE, _MS_RELATIME = 1 << 18, 1 << 21
_CHILD_SUBREAPER, _NO_NEW_PRIVILEGES = 36, 38  # of prctl(2)
_CAPABILITIES_OF_THIS = (
    0x20080522,
    0,
)  # the version of capset(2) for 64 capabilities, and this thread
#: symattn's folders that compute definitions; a process that is given arrays alone needs none of them.
_DEFINING = (
    "attention", "campaigns", "derivations", "faults", "models", "proof", "theorems", "verification",
)  # fmt: skip
#: Checks of fields, which no definition is computed by, and which records in memory use.
_HARMLESS = ("symattn.attention.fields", "symattn.verification.effort")

#: What could not be limited on this system, as notes, and the limit of memory that holds for this process, if any.
left_open: tuple[str, ...] = ()
memory_limit: float | None = None


def confine(memory_gib: float, hidden: Sequence[str] = (), judge: int | None = None) -> None:
    """Limit this process, and note in ``left_open`` what the system does not permit; ``hidden`` files are then empty.

    ``judge`` is the process to be hidden, by default the parent.
    The process that goes on may be a copy of this one, which ends as the copy does.
    """
    global left_open, memory_limit
    memory_limit = memory_gib
    messages = (
        _limit_memory(memory_gib),
        _limit_files(),
        *_enter_namespaces(hidden, judge or os.getppid()),
    )
    left_open = tuple(words for words in messages if words)
    if sys.platform == "linux":
        # processes that lose their parent become children of this one, so that all are found at its end
        _c_library().prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)


def leave_definitions() -> None:
    """Take symattn's definitions from this process, and from all that it starts, as no module and no file has them.

    Else a candidate could call them in place of a kernel: by a module caught between calls, in a process of its own,
    or under another name. What the system does not permit is noted in ``left_open``.
    """
    global left_open
    defining = tuple(f"symattn.{folder}" for folder in _DEFINING)
    for name in [*sys.modules]:
        if name.startswith(defining) and name not in _HARMLESS:
            # Emptied as well, since classes in memory lead to functions, and these to their module.
            vars(sys.modules.pop(name)).clear()
    # Without namespaces of its own, this process must mount nothing.
    if sys.platform != "linux" or left_open:
        return
    # A list, so that every folder is hidden even if one cannot be.
    if not all([_hide_folder(folder) for folder in _defining_folders()]):
        left_open = ("symattn's definitions were not hidden from the candidate",)


def leave_capabilities() -> None:
    """Give up, in this thread and all that it starts, what a first process of namespaces may do, such as to unmount.

    Each thread that runs before the candidate is imported has to: code can be made to run in any of them.
    """
    global left_open
    if sys.platform != "linux" or memory_limit is None or left_open:
        return
    if not _drop_capabilities():
        left_open = ("what was hidden from the candidate can be shown again",)


def _defining_folders() -> Iterator[str]:
    """Yield the folders with definitions, of every symattn that this process, or one that it starts, could import."""
    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    listed = (own, *sys.path, *os.environ.get("PYTHONPATH", "").split(os.pathsep))
    for place in dict.fromkeys(os.path.realpath(path) for path in listed):
        folders = (os.path.join(place, "symattn", name) for name in _DEFINING)
        yield from filter(os.path.isdir, folders)


def _drop_capabilities() -> bool:
    header, none = (ctypes.c_uint32 * 2)(*_CAPABILITIES_OF_THIS), (ctypes.c_uint32 * 6)()
    library = _c_library()
    refused = library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or library.capset(header, none)
    return not refused


def _hide_folder(folder: str) -> bool:
    return _call_system_mount("none", folder, _MS_RDONLY, "tmpfs")


def _limit_memory(memory_gib: float) -> str:
    """Limit private writable memory; what a driver of a GPU only reserves is not counted."""
    if sys.platform != "linux":
        return "the candidate's memory was not limited: this system has no such limit"
    import resource

    most = int(memory_gib * GIB)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    # A lower limit of the system stays.
    if hard == resource.RLIM_INFINITY or hard > most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    return ""


def _limit_files() -> str:
    """Limit the size of files, so that endless output of native code does not fill the disk."""
    if sys.platform == "win32":
        return "the size of files that the candidate writes was not limited: this system has no such limit"
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A hard limit that is lower already must not be raised.
    if hard == resource.RLIM_INFINITY or hard > MAX_FILE_BYTES:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    return ""


def _enter_namespaces(hidden: Sequence[str], judge: int) -> Iterator[str]:
    """Enter namespaces of users, networks, files and processes, with the same user; yield what failed.

    This process then waits for a copy of itself, which goes on as the first process of the new namespace.
    """
    if sys.platform != "linux":
        yield "the network and files were not closed to the candidate: this system has no namespaces"
        return
    user, group = os.getuid(), os.getgid()
    closed = _c_library().unshare(_NEWUSER | _NEWNET | _NEWNS | _NEWPID) == 0
    # Without namespaces of files and processes, the network can still be closed.
    if not closed and _c_library().unshare(_NEWUSER | _NEWNET) != 0:
        reason = os.strerror(ctypes.get_errno())
        yield f"the network and files were not closed to the candidate: this system permits no namespaces ({reason})"
        return
    # Linux maps groups only after ``setgroups`` is denied.
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        try:
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(content)
        except OSError:  # the user is then called nobody, which changes nothing of what may be read
            break
    if not closed:
        yield "files were not closed to the candidate: this system permits no namespace of files"
        return
    # Private, so that mounts do not reach the rest of the system.
    _call_system_mount("none", "/", _MS_REC | _MS_PRIVATE)
    # A list, so that every file is tried even after one fails.
    if not all([_call_system_mount("/dev/null", path, _MS_BIND) for path in hidden]):
        yield "the reference was not hidden from the candidate: this system permits no mounts"
    if not all([_make_folder_read_only(folder) for folder in _list_protected_folders()]):
        yield "symattn's files, and those of Python, were not closed to writing: this system permits no mounts"
    # ``/proc`` shows the processes of the namespace in which it is mounted.
    _continue_as_first_process()
    if not _call_system_mount("proc", "/proc", 0, "proc") and not _hide_process(judge):
        yield "the judge's process was not hidden from the candidate: this system permits no mounts"


def _list_protected_folders() -> list[str]:
    """Return the folders whose files decide later judgements: symattn's, and those of this Python."""
    own = os.path.dirname(os.path.dirname(__file__))
    folders = sorted({os.path.realpath(f) for f in (own, sys.prefix, sys.base_prefix)}, key=len)
    result: list[str] = []
    for folder in folders:
        # A folder within another one is read-only with it.
        if folder != "/" and not any(folder.startswith(outer + os.sep) for outer in result):
            result.append(folder)
    return result


def _make_folder_read_only(folder: str) -> bool:
    """Make a folder read-only for this process and what it starts."""
    # A remount must repeat flags that the system has locked.
    flags = os.statvfs(folder).f_flag
    mount_flags = flags & (
        os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME
    )
    relative = _MS_RELATIME if flags & os.ST_RELATIME else 0
    if not _call_system_mount(folder, folder, _MS_BIND | _MS_REC):
        return False
    return _call_system_mount(
        "none", folder, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | mount_flags | relative
    )


def _hide_process(process: int) -> bool:
    """Hide the files of a process under /proc behind an empty folder."""
    return _hide_folder(f"/proc/{process}")


def _call_system_mount(source: str, target: str, flags: int, kind: str | None = None) -> bool:
    name = None if kind is None else kind.encode()
    return bool(
        _c_library().mount(source.encode(), os.fsencode(target), name, ctypes.c_ulong(flags), None)
        == 0
    )


def _continue_as_first_process() -> None:
    """Go on in a copy of this process, which ends as the copy does."""
    copy = os.fork()
    if copy == 0:
        return
    _, status = os.waitpid(copy, 0)
    if os.WIFSIGNALED(status):
        import resource
        import signal

        # One crash gives one core file.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        # The parent is to see the same signal, which a handler of Python could take.
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
