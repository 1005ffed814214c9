"""Who says that a function does not take its inputs: an error that was raised on purpose is a refusal, and no fault.

The rule. An error is a refusal

  1. where the function's own code raises it by ``raise`` or ``assert``;
  2. where a library that it calls raises it by ``raise`` or ``assert``, or ends in an error of compiled code, unless
     what was called is an operation on arrays (``numpy``, ``torch.matmul``, a method of an array, ``einops``).

It is an error that the code runs into, and so a fault, where it arises at an operator, an index or an operation on
arrays: there the mistake is in the shapes that the code itself made. The same holds of an error of compiled code that
says no more than that sizes of arrays do not fit each other. Own code is that of the function's package, and what is
not installed.

An operation that names strides or contiguous memory, such as ``view``, refuses arrays that lie apart in memory; where
they lie without gaps and in order, the code itself has made what it does not take.
"""

from __future__ import annotations

import ast
import dis
import linecache
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from types import FrameType, ModuleType, TracebackType

from symattn.bounds.called_target import APART, Failure, Memory, Refusal
from symattn.programs.loading import installed, one_line, own_frame

_OWN = (ValueError, TypeError, AssertionError, NotImplementedError)
_LIBRARYS = (RuntimeError, ValueError, AssertionError)
_ENDS = (SyntaxError, RecursionError)  # no check of anybody's
#: Modules, and what lies in them, whose functions are operations on arrays.
_ARRAYS = (
    "numpy", "torch.functional", "torch._tensor", "torch._C._linalg", "torch._C._fft", "jax.numpy", "jax._src.numpy",
    "jax.lax", "jax._src.lax", "einops", "opt_einsum", "tensorflow.python", "keras.src.ops", "mlx.core", "cupy",
)  # fmt: skip
_ALONE = ("torch", "torch._C")  # the same, but what lies in them is something else
_PLUMBING = ("jax._src.traceback_util", "jax._src.api", "jax._src.pjit", "torch._ops", "torch.nn.modules.module")
_MISFIT = re.compile(
    r"must match|must be equal|equal size|same (shape|size)|cannot be multiplied|broadcast|mismatch|inconsistent"
    r"|invalid for input of size|out of (range|bounds)|[Ee]xpected size|input with shape|incompatible|subscript"
)
_LIES = re.compile(r"\bstrides?\b|\bcontiguous\b")
_SLIPS = ("NameError", "UnboundLocalError", "AttributeError", "KeyError", "ImportError", "ModuleNotFoundError")


def refuses(error: BaseException, function: object = None) -> Refusal:
    """Who says that the function does not take such inputs: it itself, a library that it calls, or nobody."""
    if isinstance(error, _ENDS) or error.__traceback__ is None:
        return ""
    function = _inner(function)
    package = _package(function)
    frames = [(f, at) for f, at in _frames(error.__traceback__) if _mine(f, package) or _librarys(f, package)]
    mine = [k for k, (f, _) in enumerate(frames) if _mine(f, package)]
    if mine and mine[-1] == len(frames) - 1 and _last(error) is frames[-1][0] and _raises(*frames[-1]):
        return "own" if isinstance(error, _OWN) else ""
    if not isinstance(error, _LIBRARYS):
        return ""
    below = frames[mine[-1] + 1 :] if mine else frames
    if _on_arrays(below, frames[mine[-1]] if mine else None, function):
        return ""
    on_purpose = bool(below) and _last(error) is below[-1][0] and _raises(*below[-1])
    return "library" if on_purpose or not _MISFIT.search(one_line(error)) else ""


def by_memory(failure: Failure | None, memory: Memory) -> Failure | None:
    """The failure, as a refusal where an operation does not take arrays that lie in memory as these do.

    A name that there is not, such as ``contiguous`` of an array of NumPy, is the code's own mistake.
    """
    if failure is None or memory not in APART or failure.reason != "raised" or failure.type in _SLIPS:
        return failure
    if not _LIES.search(failure.message):
        return failure
    return replace(failure, refused=failure.refused or "library")


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """The frames, from the outermost in, each with the instruction at which it stopped."""
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lasti
        traceback = traceback.tb_next


def _last(error: BaseException) -> FrameType:
    return list(_frames(error.__traceback__))[-1][0]


def _inner(function: object) -> object:
    """Return what partials, decorators and symattn's own adapters wrap."""
    while True:
        name = "func" if isinstance(function, partial) else "__wrapped__"
        ours = type(function).__module__.startswith("symattn.programs.")
        inner = getattr(function, "_function" if ours else name, None)
        if inner is None:
            return function
        function = inner


def _package(function: object) -> str:
    """The package of a function; empty where it has none."""
    module = getattr(function, "__module__", None) or type(function).__module__
    return "" if function is None else str(module).partition(".")[0]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _mine(frame: FrameType, package: str) -> bool:
    """Return whether it is the function's own code."""
    file = frame.f_code.co_filename
    return own_frame(file) and (not installed(file) or _module(frame).partition(".")[0] == package)


def _librarys(frame: FrameType, package: str) -> bool:
    file = frame.f_code.co_filename
    return own_frame(file) and installed(file) and _module(frame).partition(".")[0] != package


def _raises(frame: FrameType, at: int) -> bool:
    """Return whether it stopped at a ``raise`` or an ``assert``."""
    return dis.opname[frame.f_code.co_code[at]] == "RAISE_VARARGS"


def _on_arrays(below: list[tuple[FrameType, int]], caller: tuple[FrameType, int] | None, function: object) -> bool:
    """Return whether the outermost call of ``below`` works on arrays, or is unknown and belongs to no library."""
    called = _called(*caller) if caller is not None else function if not below else None
    if called is not None and not isinstance(called, ModuleType):
        home = getattr(called, "__module__", None)
        if isinstance(home, str) and home not in _PLUMBING:
            return _elementary(home)
    for frame, _ in below:
        if _module(frame) not in _PLUMBING:
            return _elementary(_module(frame))
    return not below  # an operator, an index, a method of an array


def _elementary(module: str) -> bool:
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    return module in _ALONE or any(module == m or module.startswith(f"{m}.") for m in _ARRAYS)


def _called(frame: FrameType, at: int) -> object:
    """The function of a library that this instruction calls, read from the source; None where it calls none."""
    where = next(islice(frame.f_code.co_positions(), at // 2, None), None)
    if where is None or None in where:
        return None
    first, last, start, end = (n or 0 for n in where)
    lines = [linecache.getline(frame.f_code.co_filename, n).encode() for n in range(first, last + 1)]
    if not any(lines):
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        call = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except SyntaxError:
        return None
    return _resolved(call.func, frame) if isinstance(call, ast.Call) else None


def _resolved(node: ast.expr, frame: FrameType) -> object:
    """A name, or an attribute of a module, as the frame knows it."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        base = _resolved(node.value, frame)
        return getattr(base, node.attr, None) if isinstance(base, ModuleType) else None
    return None
