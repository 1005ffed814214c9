"""Where code of a user has failed, and who refuses its inputs: an error raised on purpose is a refusal, and no fault.

The rule. An error is a refusal

  1. if the function's own code raises it by ``raise`` or ``assert``;
  2. if a library that it calls raises it by ``raise`` or ``assert``, or ends in an error of compiled code, unless the
     call is an operation on arrays (``numpy``, ``torch.matmul``, a method of an array, ``einops``).

The code runs into an error, which is a fault, if it arises at an operator, an index or an operation on arrays: there
the mistake is in the shapes that the code itself made. The same applies to an error of compiled code which only says
that sizes of arrays do not fit each other. Own code is that of the function's package, and any that is not installed.

An operation that names strides or contiguous memory, such as ``view``, refuses arrays with gaps or another order in
memory; if the inputs are contiguous, the code itself has made the arrays that are refused.
"""

from __future__ import annotations

import ast
import dis
import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import FrameType, ModuleType, TracebackType

from symattn.bounds.called_target import Failure, Refusal
from symattn.document.errors import InputError

#: Beginnings of files without code of the user: compiled texts, and symattn.
_NOT_USERS = ("<", str(Path(__file__).parents[1]) + os.sep)
#: The folder of Python's standard library.
LIBRARY = str(Path(os.__file__).parent) + os.sep


class NotCallable(InputError):
    """Raised if a target exists, but cannot be called as it is."""


_LONGEST_LINE = 10_000  # characters of a message that are read


def one_line(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message, like the last line of a traceback."""
    try:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # an exception that cannot even be printed
        message = ""
    lines = message.strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:_LONGEST_LINE]}" if lines else type(error).__name__


def where(error: BaseException) -> str:
    """Return ``file.py:line`` of the innermost frame in the user's code, else of the outermost in installed code."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{Path(error.filename).name}:{error.lineno}"
    return users_frame(
        [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    )


def installed(file: str) -> bool:
    """Return whether a file belongs to an installed package."""
    return "site-packages" in file


def is_users_file(file: str) -> bool:
    """Return whether a text is the user's to change: not of an installed package, Python's library or symattn."""
    return not installed(file) and not file.startswith((LIBRARY, _NOT_USERS[1]))


def own_frame(file: str) -> bool:
    """Return whether a file belongs neither to symattn nor to Python's standard library."""
    return not file.startswith(_NOT_USERS) and (installed(file) or not file.startswith(LIBRARY))


def users_frame(frames: Sequence[tuple[str, int]]) -> str:
    """Return ``file.py:line`` of the frame to show to a user; frames are ordered from the outermost inwards."""
    known = [f for f in frames if own_frame(f[0])]
    own = [f for f in known if not installed(f[0])]
    result = own[-1:] or known[:1]
    return f"{Path(result[0][0]).name}:{result[0][1]}" if result else ""


#: Exceptions by which a function refuses inputs on purpose.
_OWN = (ValueError, TypeError, AssertionError, NotImplementedError)
#: The same for libraries, whose compiled code raises ``RuntimeError``.
_LIBRARYS = (RuntimeError, ValueError, AssertionError)
_ENDS = (SyntaxError, RecursionError)  # never a deliberate check
#: Modules, with their submodules, whose functions are operations on arrays.
_ARRAYS = (
    "numpy", "torch.functional", "torch._tensor", "torch._C._linalg", "torch._C._fft", "jax.numpy", "jax._src.numpy",
    "jax.lax", "jax._src.lax", "einops", "opt_einsum", "tensorflow.python", "keras.src.ops", "mlx.core", "cupy",
)  # fmt: skip
_ALONE = ("torch", "torch._C")  # the same, without their submodules
#: Modules between a call and the function that is meant.
_PLUMBING = (
    "jax._src.traceback_util",
    "jax._src.api",
    "jax._src.pjit",
    "torch._ops",
    "torch.nn.modules.module",
)
#: Messages that only say that sizes do not fit each other.
_MISFIT = re.compile(
    r"must match|must be equal|equal size|same (shape|size)|cannot be multiplied|broadcast|mismatch|inconsistent"
    r"|invalid for input of size|out of (range|bounds)|[Ee]xpected size|input with shape|incompatible|subscript"
)
#: Messages about the memory layout of an array.
_STRIDES = re.compile(r"\bstrides?\b|\bcontiguous\b")
#: Exceptions that are slips of the code, whatever the memory layout.
_SLIPS = (
    "NameError",
    "UnboundLocalError",
    "AttributeError",
    "KeyError",
    "ImportError",
    "ModuleNotFoundError",
)


def refuses(error: BaseException, function: object = None) -> Refusal:
    """Return who refuses the inputs: "own" for the function itself, "library" for one that it calls, "" for nobody."""
    if isinstance(error, _ENDS) or error.__traceback__ is None:
        return ""
    function = _unwrap_user_function(function)
    module = getattr(function, "__module__", None) or type(function).__module__
    package = "" if function is None else str(module).partition(".")[0]
    frames = [
        (f, at)
        for f, at in _yield_frames_inwards(error.__traceback__)
        if _is_own_code_frame(f, package) or _is_library_code_frame(f, package)
    ]
    mine = [k for k, (f, _) in enumerate(frames) if _is_own_code_frame(f, package)]
    # The innermost frame is of the user's code, and stopped at a ``raise`` or an ``assert``.
    if (
        mine
        and mine[-1] == len(frames) - 1
        and _innermost_frame_of_error(error) is frames[-1][0]
        and _is_stopped_at_raise(*frames[-1])
    ):
        return "own" if isinstance(error, _OWN) else ""
    if not isinstance(error, _LIBRARYS):
        return ""
    below = frames[mine[-1] + 1 :] if mine else frames
    if _on_arrays(below, frames[mine[-1]] if mine else None, function):
        return ""
    on_purpose = (
        bool(below)
        and _innermost_frame_of_error(error) is below[-1][0]
        and _is_stopped_at_raise(*below[-1])
    )
    return "library" if on_purpose or not _MISFIT.search(one_line(error)) else ""


def by_memory(failure: Failure) -> Failure:
    """Return the failure, as a refusal if an operation does not take arrays in another memory layout.

    A missing name, such as ``contiguous`` of a NumPy array, is the code's own mistake.
    """
    # Slips such as a missing name are no refusals.
    if failure.reason != "raised" or failure.type in _SLIPS:
        return failure
    # The message must speak of strides.
    if not _STRIDES.search(failure.message):
        return failure
    return replace(failure, refused=failure.refused or "library")


def _yield_frames_inwards(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames from the outermost inwards, each with the instruction at which it stopped."""
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lasti
        traceback = traceback.tb_next


def _innermost_frame_of_error(error: BaseException) -> FrameType:
    return list(_yield_frames_inwards(error.__traceback__))[-1][0]


def _unwrap_user_function(function: object) -> object:
    """Return the function inside partials, decorators and symattn's own adapters."""
    while True:
        name = "func" if isinstance(function, partial) else "__wrapped__"
        ours = type(function).__module__.startswith("symattn.programs.")
        inner = getattr(function, "_function" if ours else name, None)
        if inner is None:
            return function
        function = inner


def _module_name_of_frame(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_own_code_frame(frame: FrameType, package: str) -> bool:
    """Return whether a frame runs the function's own code."""
    file = frame.f_code.co_filename
    return own_frame(file) and (
        not installed(file) or _module_name_of_frame(frame).partition(".")[0] == package
    )


def _is_library_code_frame(frame: FrameType, package: str) -> bool:
    file = frame.f_code.co_filename
    return (
        own_frame(file)
        and installed(file)
        and _module_name_of_frame(frame).partition(".")[0] != package
    )


def _is_stopped_at_raise(frame: FrameType, at: int) -> bool:
    """Return whether a frame stopped at a ``raise`` or an ``assert``."""
    return dis.opname[frame.f_code.co_code[at]] == "RAISE_VARARGS"


def _on_arrays(
    below: list[tuple[FrameType, int]], caller: tuple[FrameType, int] | None, function: object
) -> bool:
    """Return whether the outermost call of ``below`` is an operation on arrays, or is unknown and in no library."""
    called = (
        _resolve_called_function(*caller) if caller is not None else function if not below else None
    )
    if called is not None and not isinstance(called, ModuleType):
        home = getattr(called, "__module__", None)
        if isinstance(home, str) and home not in _PLUMBING:
            return _is_elementary_library(home)
    for frame, _ in below:
        if _module_name_of_frame(frame) not in _PLUMBING:
            return _is_elementary_library(_module_name_of_frame(frame))
    return not below  # an operator, an index, a method of an array


def _is_elementary_library(module: str) -> bool:
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    return module in _ALONE or any(module == m or module.startswith(f"{m}.") for m in _ARRAYS)


def _resolve_called_function(frame: FrameType, at: int) -> object:
    """Return the function of a library that an instruction calls, read from the source, or None."""
    # Positions are listed by instruction, and an instruction has two bytes.
    where = next(islice(frame.f_code.co_positions(), at // 2, None), None)
    if where is None or None in where:
        return None
    first, last, start, end = (n or 0 for n in where)
    lines = [
        linecache.getline(frame.f_code.co_filename, n).encode() for n in range(first, last + 1)
    ]
    if not any(lines):
        return None
    # The end first: if there is one line only, cutting its start would move the end.
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        # In parentheses, since the call may go over several lines.
        call = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except SyntaxError:
        return None
    return _evaluate_name_in_frame(call.func, frame) if isinstance(call, ast.Call) else None


def _evaluate_name_in_frame(node: ast.expr, frame: FrameType) -> object:
    """Return the value of a name, or of an attribute of a module, in the frame."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        base = _evaluate_name_in_frame(node.value, frame)
        # An attribute of another object may run code of the user.
        return getattr(base, node.attr, None) if isinstance(base, ModuleType) else None
    return None
