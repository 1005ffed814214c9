"""Limits on what the process of a candidate may use, set before any of its code, and of its libraries, is loaded.

On Linux the process gets a network of its own without any interface, in a user namespace of its own, which also keeps
it from reading the judge's memory. Memory, and the size of files that it writes, are limited. Only the standard library
is imported here: a namespace can be entered only while the process has a single thread.
"""

from __future__ import annotations

import ctypes
import os
import sys

GIB = 1 << 30
#: Private memory of a candidate's process, unless another limit is chosen.
MEMORY_GIB = 8.0
#: What one file may hold that the process writes, its standard output and standard error among them.
MAX_FILE_BYTES = GIB // 4
_NEWUSER, _NEWNET = 0x10000000, 0x40000000  # of unshare(2)
_CHILD_SUBREAPER = 36  # of prctl(2)

#: What could not be limited on this system, as notes, and the limit of memory that holds for this process, if any.
left_open: tuple[str, ...] = ()
memory_limit: float | None = None


def confine(memory_gib: float) -> None:
    """Limit this process, and note in ``left_open`` what the system does not permit."""
    global left_open, memory_limit
    memory_limit = memory_gib
    found = (_limit_memory(memory_gib), _limit_files(), _leave_network())
    left_open = tuple(words for words in found if words)
    if sys.platform == "linux":
        # processes that lose their parent become children of this one, so that all are found at its end
        _c_library().prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)


def _limit_memory(memory_gib: float) -> str:
    """Limit private writable memory; what a driver of a GPU only reserves is not counted."""
    if sys.platform != "linux":
        return "the candidate's memory was not limited: this system has no such limit"
    import resource

    most = int(memory_gib * GIB)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    return ""


def _limit_files() -> str:
    """Limit the size of files, so that endless output of native code does not fill the disk."""
    if sys.platform == "win32":
        return "the size of files that the candidate writes was not limited: this system has no such limit"
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hard == resource.RLIM_INFINITY or hard > MAX_FILE_BYTES:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    return ""


def _leave_network() -> str:
    """Enter a user namespace and a network namespace, with the same user; return why that failed, or ""."""
    if sys.platform != "linux":
        return "the network was not closed to the candidate: this system has no namespaces"
    user, group = os.getuid(), os.getgid()
    if _c_library().unshare(_NEWUSER | _NEWNET) != 0:
        reason = os.strerror(ctypes.get_errno())
        return f"the network was not closed to the candidate: this system permits no namespaces ({reason})"
    for name, content in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        try:
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(content)
        except OSError:  # the user is then called nobody, which changes nothing of what may be read
            break
    return ""


def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
