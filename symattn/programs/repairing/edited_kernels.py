"""Kernels of Triton and Helion as sources: found behind their decorators, and rebuilt for interpretation.

A kernel that is interpreted is an object around a function of Python, perhaps within objects that tune it. The
interpreter reads the function's file, changes its tree, and keeps the result. An edited kernel has no file: its
tree is changed in the same way, and the code is put in the place of what the interpreter would keep.

Helion's interpreter calls the function of its kernel as it is: an edited one is a function on tensors of torch.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from symattn.programs.frameworks import INTERPRETER
from symattn.programs.repairing.stores import SeesStores, Span

#: The module of Triton's objects that choose configurations.
_TUNER = "triton.runtime.autotuner"
#: Helion's modules, and the one of its objects around a function.
HELION = "helion."
_HELION_KERNEL = f"{HELION}runtime.kernel"
#: The module of the values of kernels.
LANGUAGE = "triton.language"
#: Statements as the interpreter compiles them, by line, column and text.
Statements = dict[tuple[int, int, str], Any]
#: The blocks within a statement.
_BLOCKS = ("body", "orelse")


def is_kernel(x: object) -> bool:
    """Return whether Triton interprets this object as a kernel, or as a helper of kernels."""
    if type(x).__module__ != INTERPRETER:
        return False
    return isinstance(getattr(x, "fn", None), types.FunctionType) and hasattr(x, "rewrite")


def is_tuned(x: object) -> bool:
    """Return whether an object chooses configurations for a kernel."""
    return type(x).__module__ == _TUNER and hasattr(x, "fn")


def is_helion_kernel(x: object) -> bool:
    """Return whether Helion calls the function of this object as it is, and makes no kernel of Triton."""
    if type(x).__module__ != _HELION_KERNEL or not isinstance(
        getattr(x, "fn", None), types.FunctionType
    ):
        return False
    mode = getattr(getattr(x, "settings", None), "ref_mode", None)
    return getattr(mode, "name", "OFF") != "OFF"


def with_helion_function(kernel: Any, function: types.FunctionType) -> Any:
    """Return a kernel of Helion with the settings of another one, for another function."""
    # A copy would share the calls that the user's kernel has bound to its own function.
    key = getattr(kernel, "_key_fn", None)
    return type(kernel)(function, configs=kernel.configs, settings=kernel.settings, key=key)


def with_function(kernel: Any, function: types.FunctionType) -> Any:
    """Return a kernel that runs another function, whose code is as the interpreter needs it."""
    # A copy, since the user's kernel must stay as it is.
    result = copy(kernel)
    result.fn = function
    # The interpreter rewrites a function from its file, which edited code does not have.
    result.rewrite = lambda: function
    return result


def with_kernel(tuner: Any, kernel: Any, base: Any) -> Any:
    """Return a copy of what chooses configurations, for another kernel; ``base`` is the innermost function."""
    result = copy(tuner)
    result.fn = kernel
    if hasattr(result, "base_fn"):
        result.base_fn = base
    return result


def interpreted(source: Any, known: Statements | None = None) -> Any:
    """Return a text, or a tree, as Triton's interpreter compiles it; a given tree stays as it is.

    Statements of a text that are ``known`` from another one are shared; new ones are added.
    """
    if isinstance(source, str):
        tree = ast.parse(source)
        tree.body = _interpreted_block(
            tree.body, source.split("\n"), {} if known is None else known
        )
        return tree
    return ast.fix_missing_locations(_transformer().visit(deepcopy(source)))


def _transformer() -> Any:
    return sys.modules[INTERPRETER].FunctionRewriter.ast_transformer


def _interpreted_block(block: list[Any], lines: list[str], known: Statements) -> list[Any]:
    """Return the statements of a block as the interpreter compiles them: an edit changes one of a hundred."""
    result = []
    for statement in block:
        inner = {name: getattr(statement, name, []) for name in _BLOCKS}
        if not inner["body"] or isinstance(statement, ast.Try):
            # Equal text in an equal place gives an equal tree, which compiling leaves as it is.
            text = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
            place = statement.lineno, statement.col_offset, text
            if place not in known:
                known[place] = ast.fix_missing_locations(_transformer().visit(statement))
            result.append(known[place])
            continue
        # Of a loop or a condition, the line that begins it is visited apart from its blocks.
        vars(statement).update({name: [] for name, part in inner.items() if part})
        begun = ast.fix_missing_locations(_transformer().visit(statement))
        for name, part in inner.items():
            if part:
                setattr(begun, name, _interpreted_block(part, lines, known))
        result.append(begun)
    return result


def names_of_interpreter() -> dict[str, Any]:
    """Return the names that interpreted code may use beside those of its own file."""
    names = vars(sys.modules[INTERPRETER])
    return {name: x for name, x in names.items() if not name.startswith("__")}


# -- memory ------------------------------------------------------------------------------------------------------------
class OutOfBounds(Exception):
    """Raised where an edited kernel reads or writes beyond the tensors that its launch was given."""


class _GuardedMemory:
    """The memory of the tensors of a launch; accesses of the interpreter go through it, beyond it none does."""

    def __init__(self, interpreter: Any, seen_by: SeesStores | None) -> None:
        self._interpreter, self._seen_by = interpreter, seen_by
        self._ranges: list[Span] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._interpreter, name)

    def begin_launch(self) -> None:
        """Forget the tensors of earlier launches: their memory may be free."""
        self._ranges.clear()

    def permit(self, tensor: Any) -> None:
        """Permit accesses to the memory of a tensor."""
        storage = tensor.untyped_storage()
        first = storage.data_ptr()
        if (first, first + storage.nbytes()) not in self._ranges:
            self._ranges.append((first, first + storage.nbytes()))

    def _check(self, pointers: Any, mask: Any, width: int) -> np.ndarray:
        """Return the addresses of an access, all of which are permitted."""
        if mask.size != pointers.size:
            raise OutOfBounds("a mask has another shape than its pointers")
        # A masked access touches no memory.
        addresses: np.ndarray = pointers.reshape(-1)[mask.reshape(-1).astype(bool)].astype(np.int64)
        within = np.zeros(addresses.shape, bool)
        for first, end in self._ranges:
            within |= (addresses >= first) & (addresses + width <= end)
        if not within.all():
            raise OutOfBounds("an edited kernel reaches beyond its tensors")
        return addresses

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        """Load numbers; see the interpreter."""
        if other.size != pointers.size:
            raise OutOfBounds("other values have another shape than their pointers")
        self._check(pointers, mask, np.dtype(dtype).itemsize)
        return self._interpreter.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, value: Any, mask: Any) -> Any:
        """Store numbers; see the interpreter."""
        if value.size != pointers.size:
            raise OutOfBounds("values have another shape than their pointers")
        addresses = self._check(pointers, mask, value.itemsize)
        if self._seen_by is not None:
            numbers = value.reshape(-1)[mask.reshape(-1).astype(bool)]
            self._seen_by.stored(addresses, numbers, self._ranges)
        return self._interpreter.store(pointers, value, mask)

    def atomic_rmw(self, operator: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        """Change numbers; see the interpreter."""
        if value.size != pointers.size:
            raise OutOfBounds("values have another shape than their pointers")
        self._check(pointers, mask, value.itemsize)
        self._note_change()
        return self._interpreter.atomic_rmw(operator, pointers, value, mask, *rest)

    def atomic_cas(self, pointers: Any, expected: Any, value: Any, *rest: Any) -> Any:
        """Exchange numbers; see the interpreter."""
        self._check(pointers, np.ones(pointers.shape, bool), value.itemsize)
        self._note_change()
        return self._interpreter.atomic_cas(pointers, expected, value, *rest)

    def _note_change(self) -> None:
        if self._seen_by is not None:
            self._seen_by.changed()


@contextmanager
def within_memory(seen_by: SeesStores | None = None) -> Iterator[None]:
    """Let interpreted kernels reach the tensors of their launch alone: others raise, so that no edit spoils memory.

    ``seen_by`` is told of stores.
    """
    module: Any = sys.modules[INTERPRETER]
    memory = _GuardedMemory(module._interpreter, seen_by)
    # Patches end with the context, so that the interpreter is as before.
    launch, convert = module.GridExecutor.__call__, module._implicit_cvt

    def launched(executor: Any, *places: Any, **keywords: Any) -> Any:
        memory.begin_launch()
        run = partial(launch, executor, *places, **keywords)
        if seen_by is None:
            return run()
        tensors = [*_tensors_in((*places, *keywords.values()))]
        return seen_by.launch(executor.fn.__name__, tensors, run)

    def converted(x: Any) -> Any:
        if hasattr(x, "data_ptr"):
            memory.permit(_unwrapped(x))
        return convert(x)

    with (
        patch.object(module, "_interpreter", memory),
        patch.object(module.GridExecutor, "__call__", launched),
        patch.object(module, "_implicit_cvt", converted),
    ):
        yield


def _tensors_in(arguments: Iterable[Any]) -> Iterator[Any]:
    """Yield the tensors whose memory a launch may change: arguments, in tuples, and within descriptors."""
    for x in arguments:
        if hasattr(x, "data_ptr"):
            yield _unwrapped(x)
        elif isinstance(x, tuple):
            yield from _tensors_in(x)
        elif hasattr(getattr(x, "base", None), "data_ptr"):
            yield _unwrapped(x.base)


def _unwrapped(x: Any) -> Any:
    """Return the tensor whose memory is read, of one that is wrapped for a kernel."""
    return x if hasattr(x, "untyped_storage") else getattr(x, "base", x)
