"""The source of a user's function, and of the helpers in its file, rebuilt in memory with parts of the text replaced.

Nothing is imported again and nothing is written: a replaced text is compiled, and its code runs in a copy of the
user's globals. Loops of rebuilt code count their passes, so that an edit that makes one endless is stopped by a count.
"""

from __future__ import annotations
import __future__

import ast
import functools
import hashlib
import inspect
import linecache
import types
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from symattn.programs.names import Function
from symattn.programs.refusing import LIBRARY, installed, is_users_file
from symattn.programs.repairing import edited_kernels
from symattn.programs.repairing.defined_operators import DefinedOperators
from symattn.programs.repairing.holding import (
    TABLES,
    copy_attributes,
    has_attributes_only,
    items_of_table,
)
from symattn.programs.repairing.torch_operators import (
    functions_of_operator,
    kernel_of_operator,
    rebuild_operator,
)
from symattn.verification.repair import Replacement, replaced

#: Code that reaches beyond numbers is never edited: a changed argument could delete a file.
OUTSIDE_NAMES = frozenset(
    (
        "open", "exec", "eval", "compile", "__import__", "breakpoint", "os", "subprocess", "shutil",
        "socket", "pathlib", "Path", "requests", "urllib", "http", "ftplib", "ctypes", "multiprocessing",
        "threading", "importlib", "tempfile", "pickle", "unlink", "rmtree", "rmdir", "system", "popen",
        "save", "savez", "savez_compressed", "savetxt", "tofile", "memmap", "setattr", "delattr", "globals",
    )
)  # fmt: skip
#: Flags of ``from __future__``, with which edited text is compiled as its file was.
_FUTURE_FLAGS = functools.reduce(
    lambda flags, name: flags | getattr(__future__, name).compiler_flag,
    __future__.all_feature_names,
    0,
)
#: The type of a function with ``functools.lru_cache``.
_CACHED = type(functools.lru_cache(lambda: None))
#: Returns what code gets for an object of a library that it names.
StandInOf = Callable[[Any], Any]
# containers without anything in them, as code writes them
EMPTY = ("{}", "[]", "dict()", "list()", "set()")
# copied among the globals, since a rebuilt function must not meet the user's caches
_CONTAINERS = (dict, list, set)
#: Names of the counting functions in rebuilt code.
_COUNTED, _PASS = "__symattn_counted__", "__symattn_pass__"


# No ``Exception``, so that handlers in the user's code let it pass.
class EndlessLoop(BaseException):
    """Raised in rebuilt code whose loops have passed more often than the limit."""


@dataclass
class SourceFunction:
    """A function of the user, its definition as a tree, and the lines of its file."""

    function: types.FunctionType
    tree: Any  # an ``ast.FunctionDef``
    lines: list[str]  # of the definition, without decorators
    first: int  # the number of the first of them
    is_kernel: bool = False  # of Triton, and interpreted

    def position(self, line: int, offset: int) -> int:
        """Return the column in characters of an offset in bytes, as trees give it."""
        text = self.lines[line - self.first]
        return offset if text.isascii() else len(text.encode()[:offset].decode())

    def span(self, node: ast.AST, new: str) -> Replacement:
        """Return the replacement of a whole node."""
        line, end = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        start = self.position(line, node.col_offset)  # type: ignore[attr-defined]
        return Replacement(line, start, end, self.position(end, node.end_col_offset), new)  # type: ignore[attr-defined]

    def text(self, node: ast.AST) -> str:
        """Return the text of a node as the user wrote it."""
        r = self.span(node, "")
        part = self.lines[r.line - self.first : r.end_line - self.first + 1]
        part[-1] = part[-1][: r.end_column]
        part[0] = part[0][r.column :]
        return "\n".join(part)

    def within(self, replacements: Iterable[Replacement]) -> list[Replacement]:
        """Return the replacements of the definition's own lines."""
        last = self.first + len(self.lines)
        return [r for r in replacements if self.first <= r.line < last]

    @property
    def defaults(self) -> list[tuple[ast.expr, Any]]:
        """The default values of parameters: expressions of the definition, with their values."""
        named = self.function.__kwdefaults__ or {}
        positional, keywords = _default_expressions(self.tree)
        result = list(zip(positional, self.function.__defaults__ or (), strict=False))
        return result + [(node, named[name]) for name, node in keywords.items() if name in named]

    @cached_property
    def _places_of_defaults(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """The first line and column of each default value, and the last ones."""
        spans = (self.span(node, "") for node, _ in self.defaults)
        return [((s.line, s.column), (s.end_line, s.end_column)) for s in spans]

    def edited_defaults(self, replacements: Sequence[Replacement]) -> ast.FunctionDef | None:
        """Return the definition with parts replaced if that changes default values, else None."""
        for r in replacements:
            begin, end = (r.line, r.column), (r.end_line, r.end_column)
            if any(a <= begin and end <= b for a, b in self._places_of_defaults):
                return self.parse(replaced(self.lines, replacements, self.first))
        return None

    def compile_lines(self, lines: Sequence[str]) -> types.CodeType:
        """Compile the lines of a definition in place of the function's own; free names stay free."""
        first, indented = self.first, lines[0][:1].isspace()
        # Within a function that has these names as parameters, they are free.
        if free := self.function.__code__.co_freevars:
            lines = [f"def outer({', '.join(free)}):", *lines] if indented else lines
        # A method is indented, and needs a block around it.
        elif indented:
            lines = ["if 1:", *lines]
        # Empty lines in front, so that code has the line numbers of its file.
        text = "\n" * (first - 1 - indented) + "\n".join(lines)
        return self._compile_source_function(text)

    def compile_tree(self, tree: ast.FunctionDef) -> types.CodeType:
        """Compile a definition in place of the function's own; free names stay free."""
        body: list[ast.stmt] = [tree]
        if free := self.function.__code__.co_freevars:
            outer = ast.parse(f"def outer({', '.join(free)}): pass").body[0]
            assert isinstance(outer, ast.FunctionDef)
            outer.body, body = body, [outer]
        return self._compile_source_function(ast.Module(body, []))

    def _compile_source_function(self, source: Any) -> types.CodeType:
        flags = self.function.__code__.co_flags & _FUTURE_FLAGS
        if self.is_kernel:
            source = edited_kernels.interpreted(source, self._interpreted_statements)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an edit such as ``1 is 2``
            code = compile(
                source, self.function.__code__.co_filename, "exec", flags, dont_inherit=True
            )
        # The definition is within what was added around it, so it is looked up by name.
        return next(c for c in _codes_within(code) if c.co_name == self.tree.name)

    @cached_property
    def _interpreted_statements(self) -> edited_kernels.Statements:
        """The statements of a kernel, as the interpreter compiles them, of all texts so far."""
        return {}

    @cached_property
    def counters(self) -> tuple[Replacement, ...]:
        """The insertions by which each pass of a loop is counted."""
        result = []
        for node in ast.walk(self.tree):
            # The iterable is wrapped: each pass goes through the counter.
            if isinstance(node, ast.For):
                whole = self.span(node.iter, "")
                result.append(
                    Replacement(whole.line, whole.column, whole.line, whole.column, f"{_COUNTED}(")
                )
                result.append(
                    Replacement(
                        whole.end_line, whole.end_column, whole.end_line, whole.end_column, ")"
                    )
                )
            # The counter comes first and is always true, so that the condition decides.
            elif isinstance(node, ast.While):
                whole = self.span(node.test, "")
                result.append(
                    Replacement(
                        whole.line, whole.column, whole.line, whole.column, f"{_PASS}() and ("
                    )
                )
                result.append(
                    Replacement(
                        whole.end_line, whole.end_column, whole.end_line, whole.end_column, ")"
                    )
                )
        return tuple(result)

    def compile_edited(self, replacements: Sequence[Replacement] = ()) -> types.CodeType:
        """Compile the definition with parts replaced, and with loops that count their passes."""
        if not self.counters:
            return self.compile_lines(replaced(self.lines, replacements, self.first))
        # A counter within a replaced part is lost, so passes are then counted in the tree.
        if not any(_is_insertion_inside(r, c) for r in replacements for c in self.counters):
            return self.compile_lines(
                replaced(self.lines, (*replacements, *self.counters), self.first)
            )
        tree = self.parse(replaced(self.lines, replacements, self.first))
        return self.compile_tree(_CountedLoops().visit(tree))

    def parse(self, lines: Sequence[str]) -> ast.FunctionDef:
        """Return the tree of a definition in place of this one, with the line numbers of the file."""
        indented = lines[0][:1].isspace()
        text = "\n".join(["if 1:", *lines] if indented else lines)
        tree = ast.parse(text)
        first = tree.body[0].body[0] if indented else tree.body[0]  # type: ignore[attr-defined]
        assert isinstance(first, ast.FunctionDef)
        ast.increment_lineno(first, self.first - 1 - indented)
        return first


def _content_of_code(code: types.CodeType) -> tuple[object, ...]:
    """Return what tells two compiled functions apart: place, instructions, names and constants."""
    # Codes of inner functions differ between two compilations, and are compared by their own content.
    constants = tuple(
        _content_of_code(c) if isinstance(c, types.CodeType) else (type(c).__name__, repr(c))
        for c in code.co_consts
    )
    return code.co_name, code.co_firstlineno, code.co_code, code.co_names, constants


def _default_expressions(tree: ast.FunctionDef) -> tuple[list[ast.expr], dict[str, ast.expr]]:
    """Return the default values of a definition: of parameters by position, and of keywords by name."""
    arguments = tree.args
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return arguments.defaults, {a.arg: node for a, node in pairs if node is not None}


def _codes_within(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes_within(constant)


def read_function(
    function: types.FunctionType, file: FileText, is_kernel: bool = False
) -> SourceFunction | None:
    """Return the definition of a function; None without one, or if its file is no longer what was loaded."""
    code, lines = function.__code__, file.lines
    if not 0 < code.co_firstlineno <= len(lines) or not file.gives(code):
        return None
    try:
        block = inspect.getblock(lines[code.co_firstlineno - 1 :])
        block = [line.rstrip("\r\n") for line in block]
        # Decorators stand before ``def``, and are no part of the definition.
        at = next(k for k, line in enumerate(block) if line.lstrip().startswith("def "))
        first = code.co_firstlineno + at
        source = SourceFunction(function, _NOTHING, block[at:], first, is_kernel)
        source = replace(source, tree=source.parse(source.lines))
        # Compiled here, so that a definition that cannot be rebuilt is left out.
        source.compile_tree(source.tree)
    except (
        OSError,
        SyntaxError,
        ValueError,
        IndexError,
        StopIteration,
        AssertionError,
        RecursionError,
    ):
        return None
    # Default values are no part of the code, so a change of them in the file shows here alone.
    if any(
        isinstance(node, ast.Constant) and _differs(x, node.value) for node, x in source.defaults
    ):
        return None
    return source if source.tree.name == code.co_name else None


def _differs(value: object, literal: object) -> bool:
    """Return whether a value is another one than a literal, also by its type."""
    return type(value) is not type(literal) or value != literal


#: Stands for a tree until the text is parsed.
_NOTHING = ast.parse("def nothing(): pass").body[0]


class FileText:
    """The text of a file of functions: from the disk, or as a notebook keeps it, with a hash of what was read."""

    def __init__(self, name: str, space: Mapping[str, Any]) -> None:
        self.name, self.digest = name, ""
        self._codes: dict[int, types.CodeType | None] = {}
        try:
            content = Path(name).read_bytes()
            text = content.decode()
            self.digest = hashlib.sha256(content).hexdigest()
        except (OSError, ValueError):
            # A cell of a notebook is no file; its text is in the cache of lines.
            text = "".join(linecache.getlines(name, dict(space)))
        self.lines = [f"{line}\n" for line in text.replace("\r\n", "\n").split("\n")]

    def code(self, flags: int = 0) -> types.CodeType | None:
        """Return the compiled text, or None if it is no code; ``flags`` are those of ``from __future__`` elsewhere."""
        if flags not in self._codes:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    text = "".join(self.lines)
                    self._codes[flags] = compile(text, self.name, "exec", flags, dont_inherit=True)
                except (SyntaxError, ValueError):
                    self._codes[flags] = None
        return self._codes[flags]

    def gives(self, code: types.CodeType) -> bool:
        """Return whether the text gives this code: it may have changed since it was loaded.

        A cell of a notebook has the future features of earlier cells, which its own text does not name.
        """
        whole = self.code(code.co_flags & _FUTURE_FLAGS)
        if whole is None:
            return False
        return any(_content_of_code(c) == _content_of_code(code) for c in _codes_within(whole))

    @cached_property
    def empty_at_first(self) -> frozenset[str]:
        """The names that the module sets to an empty container, such as a cache that calls fill."""
        # A file that cannot be compiled has nothing to read.
        if self.code() is None:
            return frozenset()
        result = set()
        for node in ast.parse("".join(self.lines)).body:
            targets = (
                node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            )
            value = getattr(node, "value", None)
            if value is not None and ast.unparse(value) in EMPTY:
                result |= {target.id for target in targets if isinstance(target, ast.Name)}
        return frozenset(result)

    @cached_property
    def numbers(self) -> dict[str, ast.Constant]:
        """The numbers that the module assigns to a name, each name once and on one line.

        None that is used while the module is loaded, as in a default value: there an edit would change more than a
        rebuilt function shows.
        """
        if self.code() is None:
            return {}
        module = ast.parse("".join(self.lines))
        names = _names_of_loading(module)
        result: dict[str, ast.Constant] = {}
        for statement in module.body:
            if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
                continue
            target, value = statement.targets[0], statement.value
            if not isinstance(target, ast.Name) or not isinstance(value, ast.Constant):
                continue
            is_on_one_line = statement.lineno == statement.end_lineno
            is_number = type(value.value) in (int, float)
            # A name that is assigned twice, or read while loading, has no single value.
            if is_number and is_on_one_line and names[target.id] == 1:
                result[target.id] = value
        return result

    @cached_property
    def idle_numbers(self) -> dict[str, ast.Constant]:
        """The numbers that the module assigns to a name which nothing reads: one may have been meant somewhere."""
        if not self.numbers:
            return {}
        names = [n for n in ast.walk(ast.parse("".join(self.lines))) if isinstance(n, ast.Name)]
        read = {n.id for n in names if isinstance(n.ctx, ast.Load)}
        return {name: node for name, node in self.numbers.items() if name not in read}


def _names_of_loading(module: ast.Module) -> Counter[str]:
    """Count the names that are set or read while a module is loaded, and those that a function declares as global.

    They stand outside of the bodies of functions, but for those of functions that are called then.
    """
    # By the name of a function, or of a class for its methods.
    bodies: dict[str, list[ast.stmt]] = {}
    result: Counter[str] = Counter()
    called: list[str] = []
    left: list[tuple[ast.AST, str]] = [(s, "") for s in module.body if not _is_main_block(s)]
    while left:
        node, owner = left.pop()
        below = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            bodies.setdefault(owner or node.name, []).extend(node.body)
            below = [child for child in below if child not in node.body]
        owner = owner or (node.name if isinstance(node, ast.ClassDef) else "")
        # A decorator is called as well.
        callees = [node.func] if isinstance(node, ast.Call) else getattr(node, "decorator_list", [])
        called += (callee.id for callee in callees if isinstance(callee, ast.Name))
        if isinstance(node, ast.Name):
            result[node.id] += 1
        left += ((child, owner) for child in below)
    while called:
        for statement in bodies.pop(called.pop(), []):
            inner = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name)]
            result.update(inner)
            called += inner
    for node in ast.walk(module):
        result.update(node.names if isinstance(node, ast.Global) else ())
    return result


def _is_main_block(statement: ast.stmt) -> bool:
    """Return whether a statement runs only where the file is run as a program: ``if __name__ == "__main__"``."""
    return isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test)


def reaches_outside(found: SourceFunction) -> bool:
    """Return whether a definition names files, sockets, processes or code made from text."""
    for node in ast.walk(found.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            # Both the module and what is imported from it may be such a name.
            modules = [a.name for a in node.names] + [getattr(node, "module", "") or ""]
            if any(word in OUTSIDE_NAMES for m in modules for word in m.split(".")):
                return True
        name = (
            node.id
            if isinstance(node, ast.Name)
            else node.attr
            if isinstance(node, ast.Attribute)
            else ""
        )
        if name in OUTSIDE_NAMES:
            return True
    return False


class _CountedLoops(ast.NodeTransformer):
    """Count each pass of a loop: in the iterator, or before the condition."""

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        call = ast.Call(ast.Name(_COUNTED, ast.Load()), [node.iter], [])
        node.iter = ast.fix_missing_locations(ast.copy_location(call, node.iter))
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        test = ast.BoolOp(ast.And(), [ast.Call(ast.Name(_PASS, ast.Load()), [], []), node.test])
        node.test = ast.fix_missing_locations(ast.copy_location(test, node.test))
        return node


def _is_insertion_inside(one: Replacement, other: Replacement) -> bool:
    """Return whether an insertion lies inside a replaced part."""
    at = (other.line, other.column)
    return (one.line, one.column) < at < (one.end_line, one.end_column)


class Sources:
    """A function with the helpers that it reaches in its own file, by ``id``, and how to rebuild it.

    ``rebuild`` returns the function with other definitions for some of them. ``passes`` counts the passes of loops in
    rebuilt code since it was set to 0; more than ``most_passes`` raise ``EndlessLoop``.
    """

    def __init__(self, root: Function | None) -> None:
        self.root, self.passes, self.most_passes = root, 0, 10**9
        # by id: kept alive, and the order in which they were reached
        self._objects: dict[int, Any] = {}
        self.functions: dict[int, SourceFunction] = {}
        # tables and objects of libraries that hold reached functions, by id
        self._holders: dict[int, Any] = {}
        # by id: those whose parts are not all known yet
        self._undecided_holders: set[int] = set()
        self._codes: dict[int, types.CodeType] = {}
        code, space = _written_in(root)
        self.file = str(code.co_filename) if code else ""
        self.text = FileText(self.file, space)
        self.operators = DefinedOperators(self.text.lines, self.file, space)
        if self.file:
            self._collect_reachable_objects(root)

    @property
    def digest(self) -> str:
        """The hash of the file as it was read."""
        return self.text.digest

    @property
    def editable(self) -> list[int]:
        """The functions that may be edited.

        There are none if one of them reaches beyond numbers, nor in an installed package or Python's library, whose
        text is not the user's to change.
        """
        if installed(self.file) or self.file.startswith(LIBRARY):
            return []
        if any(map(reaches_outside, self.functions.values())):
            return []
        return list(self.functions)

    def place(self, key: int) -> int:
        """Return the number of a function in the order in which they were reached."""
        return list(self.functions).index(key)

    def at(self, place: int) -> int:
        """Return the ``id`` of the function with this number."""
        return list(self.functions)[place]

    def _collect_reachable_objects(self, x: Any) -> None:
        if id(x) in self._objects:
            return
        # Identities, since objects need not be hashable.
        if self.operators.holds(x):
            self._collect_holder(x, self.operators.parts_of(x))
        elif isinstance(x, functools.partial):
            self._objects[id(x)] = x
            for part in (x.func, *x.args, *x.keywords.values()):
                self._collect_reachable_objects(part)
        elif isinstance(x, _CACHED) or _is_jitted(x):
            self._objects[id(x)] = x
            # The function behind a decorator is what is edited.
            self._collect_reachable_objects(x.__wrapped__)
        elif edited_kernels.is_helion_kernel(x):
            self._objects[id(x)] = x
            self._collect_reachable_objects(x.fn)
        elif isinstance(x, types.MethodType):
            self._objects[id(x)] = x
            self._collect_reachable_objects(x.__func__)
            self._collect_reachable_objects(x.__self__)
        elif isinstance(x, types.FunctionType):
            self._objects[id(x)] = x
            # Functions of other files run as they are, except for what they wrap.
            if x.__code__.co_filename != self.file:
                self._collect_holder(x, self._functions_of_closure(x))
                return
            if (source := read_function(x, self.text)) is not None:
                self.functions[id(x)] = source
            for part in _values_used(x):
                self._collect_reachable_objects(part)
        elif edited_kernels.is_kernel(x):
            self._reach_kernel(x)
        elif edited_kernels.is_tuned(x):
            self._objects[id(x)] = x
            self._collect_reachable_objects(x.fn)
        elif isinstance(x, type):
            self._reach_class(x)
        elif (methods := self._methods_defined_in_file(x)) or modules_within(x):
            self._objects[id(x)] = x
            for part in (*methods.values(), *parts_of(x).values()):
                self._collect_reachable_objects(part)
        elif type(x) in TABLES:
            self._collect_holder(x, self._functions_of_table(x))
        elif kernel_of_operator(x) is not None:
            self._collect_holder(x, functions_of_operator(x))
        elif has_attributes_only(x):
            self._collect_holder(x, self._functions_of_attributes(x))

    def _collect_holder(self, x: Any, parts: Iterable[Any]) -> None:
        """Reach the parts of an object that no text of the file defines, and the object itself if it holds one."""
        # Recorded before its parts, which may refer to it.
        self._objects[id(x)] = self._holders[id(x)] = x
        self._undecided_holders.add(id(x))
        parts = list(parts)
        for part in parts:
            self._collect_reachable_objects(part)
        self._undecided_holders.remove(id(x))
        # An object that only leads back to itself runs as it is.
        reached = [part for part in parts if id(part) in self._objects]
        if all(id(part) in self._undecided_holders for part in reached):
            del self._objects[id(x)], self._holders[id(x)]

    def _functions_of_closure(self, f: types.FunctionType) -> Iterator[Any]:
        """Yield the functions and tables in the closure of another file's function."""
        for _, content in _yield_closure_contents(f):
            if type(content) in TABLES or self._is_function_to_reach(content):
                yield content

    def _functions_of_attributes(self, x: Any) -> Iterator[Any]:
        """Yield the functions and tables among the attributes of a library's object."""
        for part in vars(x).values():
            if type(part) in TABLES or self._is_function_to_reach(part):
                yield part

    def _is_function_to_reach(self, x: Any) -> bool:
        """Return whether an object is a function, or wraps one of the file."""
        return isinstance(x, types.FunctionType) or self._is_of_file(x)

    def _is_of_file(self, x: Any) -> bool:
        """Return whether the file defines a function or class, or the function that an object wraps or calls."""
        if isinstance(x, type):
            own = (f for member in vars(x).values() for f in functions_of_member(member))
            return any(f.__code__.co_filename == self.file for f in own)
        code, _ = _written_in(x.fn if edited_kernels.is_kernel(x) else x)
        return code is not None and code.co_filename == self.file

    def _functions_of_table(self, table: Any) -> Iterator[Any]:
        """Yield the tables in a table, and what the file defines outside of functions.

        A call may fill a table with functions of its own: a cache, which is another one in another process.
        """
        for item in items_of_table(table):
            if type(item) in TABLES:
                yield item
            elif self._is_of_file(item):
                code, _ = _written_in(item)
                if code is None or "<locals>" not in code.co_qualname:
                    yield item

    def _reach_kernel(self, x: Any) -> None:
        """Reach a kernel whose text can be read; one from elsewhere runs as it is."""
        if x.fn.__code__.co_filename != self.file:
            return
        source = read_function(x.fn, self.text, is_kernel=True)
        if source is None:
            return
        self._objects[id(x)] = x
        self._objects[id(x.fn)] = x.fn
        self.functions[id(x.fn)] = source
        for part in _values_used(x.fn):
            self._collect_reachable_objects(part)

    def _reach_class(self, x: type) -> None:
        """Reach a class of the file, whose methods are edited; one that cannot be built again is shared."""
        own = [f for member in vars(x).values() for f in functions_of_member(member)]
        in_file = [f for f in own if f.__code__.co_filename == self.file]
        # A metaclass or a hook of subclasses may do more than build, and slots are no plain members.
        is_plain = (type(x) is type or _is_of_autograd(x)) and "__slots__" not in vars(x)
        if not in_file or not is_plain or any(map(_has_hook_of_subclasses, x.__mro__[1:])):
            return
        self._objects[id(x)] = x
        tables = [member for member in vars(x).values() if type(member) in TABLES]
        for part in (*x.__bases__, *in_file, *tables):
            self._collect_reachable_objects(part)

    @cached_property
    def has_kernels(self) -> bool:
        """Return whether the function launches kernels that are edited."""
        return any(source.is_kernel for source in self.functions.values())

    @cached_property
    def has_loops(self) -> bool:
        """Return whether rebuilt code counts passes of loops."""
        return any(source.counters for source in self.functions.values())

    def _methods_defined_in_file(self, x: Any) -> dict[str, types.FunctionType]:
        """Return the methods of an instance that are defined in the file, by name."""
        # Classes and modules are shared; instances alone are copied.
        if isinstance(x, type | types.ModuleType):
            return {}
        result: dict[str, types.FunctionType] = {}
        # From the base classes on, so that overriding methods replace inherited ones.
        for owner in reversed(type(x).__mro__):
            for name, value in vars(owner).items():
                if (
                    isinstance(value, types.FunctionType)
                    and value.__code__.co_filename == self.file
                ):
                    result[name] = value
        return result

    def users_of(self, names: Collection[str]) -> set[str]:
        """Return the names of the functions that use functions of these names, directly or not, and these names."""
        result, before = set(names), 0
        # Until a round adds none: a function may be used through any number of others.
        while len(result) > before:
            before = len(result)
            for source in self.functions.values():
                code = source.function.__code__
                codes = code, *_codes_within(code)
                used = {n for c in codes for n in (*c.co_names, *c.co_freevars)}
                if used & result:
                    result.add(source.function.__name__)
        return result

    def _count_loop_pass(self) -> bool:
        self.passes += 1
        if self.passes > self.most_passes:
            raise EndlessLoop(f"more than {self.most_passes} passes of loops")
        return True

    def _iterate_counting_passes(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._count_loop_pass()
            yield item

    def code_of(self, key: int) -> types.CodeType:
        """Return the code of a function as it is, with loops that are counted."""
        if key not in self._codes:
            self._codes[key] = self.functions[key].compile_edited()
        return self._codes[key]

    def edited(
        self, key: int, replacements: Sequence[Replacement], stand_in: StandInOf | None = None
    ) -> Function:
        """Return the root with parts of the text of one function, or numbers of its module, replaced.

        ``stand_in`` is that of ``rebuild``. Raises ``SyntaxError`` or ``ValueError``.
        """
        source = self.functions[key]
        own = source.within(replacements)
        # Numbers of the module stand outside the function's text.
        numbers = self._edited_numbers([r for r in replacements if r not in own])
        try:
            code = source.compile_edited(own) if own else self.code_of(key)
        except (RecursionError, AssertionError, StopIteration, IndexError, AttributeError) as error:
            raise ValueError(str(error)) from None
        # A closure has its cells in the order of these names.
        if code.co_freevars != source.function.__code__.co_freevars:
            raise ValueError("a name of the closure is no longer used")
        definition = source.edited_defaults(own)
        definitions = {key: definition} if definition else None
        return self.rebuild({key: code}, numbers, definitions, stand_in)

    def numbers_of(self, key: int) -> dict[str, ast.Constant]:
        """Return the numbers that a function reads from its module, with the places where they are written."""
        function = self.functions[key].function
        read = {
            n for c in (function.__code__, *_codes_within(function.__code__)) for n in c.co_names
        }
        result = {}
        for name, node in self.text.numbers.items():
            # Of another type or value, it was assigned again, perhaps an array.
            if name in read and not _differs(function.__globals__.get(name), node.value):
                result[name] = node
        return result

    def idle_numbers_of(self, key: int) -> dict[str, ast.Constant]:
        """Return the numbers of a function's module that nothing reads; see ``numbers_of``."""
        space = self.functions[key].function.__globals__
        idle = self.text.idle_numbers.items()
        return {name: node for name, node in idle if not _differs(space.get(name), node.value)}

    def _edited_numbers(self, replacements: Sequence[Replacement]) -> dict[str, Any]:
        """Return the numbers of the module that are replaced, by name."""
        if not replacements:  # as for most edits
            return {}
        lines = [line.rstrip("\n") for line in self.text.lines]
        result = {}
        for r in replacements:
            # One statement on one line, as ``numbers`` admits them.
            (statement,) = ast.parse(replaced(lines, [r])[r.line - 1]).body
            if not isinstance(statement, ast.Assign) or not isinstance(
                statement.targets[0], ast.Name
            ):
                raise ValueError("no number of the module")
            result[statement.targets[0].id] = ast.literal_eval(statement.value)
        return result

    def rebuild(
        self,
        codes: Mapping[int, types.CodeType] | None = None,
        names: Mapping[str, Any] | None = None,
        definitions: Mapping[int, ast.FunctionDef] | None = None,
        stand_in: StandInOf | None = None,
    ) -> Function:
        """Return the root with other codes for some functions, in copied globals with further ``names``.

        ``definitions`` hold other default values. ``stand_in`` returns what code gets for an object of a library that
        it names. Raises ``ValueError`` if a default has no value.
        """
        # The counters are names that only rebuilt code knows.
        known = {
            _COUNTED: self._iterate_counting_passes,
            _PASS: self._count_loop_pass,
            **(names or {}),
        }
        rebuilt = _Rebuilt(self, codes or {}, known, definitions or {}, stand_in)
        result: Function = rebuilt.value(self.root)
        return result


class _Rebuilt:
    """One rebuilding: every reached object is rebuilt once."""

    def __init__(
        self,
        sources: Sources,
        codes: Mapping[int, types.CodeType],
        names: Mapping[str, Any],
        definitions: Mapping[int, ast.FunctionDef],
        stand_in: StandInOf | None = None,
    ) -> None:
        self._sources, self._codes, self._names = sources, codes, names
        self._definitions, self._stand_in = definitions, stand_in
        # By id, so that shared objects stay shared, and cycles end.
        self._made: dict[int, Any] = {}
        self._spaces: dict[int, dict[str, Any]] = {}

    def named_value(self, x: Any) -> Any:
        """Return what code gets for an object that it names: a rebuilt one, and what stands in for it."""
        if self._stand_in is None:
            return self.value(x)
        if id(x) in self._sources._objects and self._sources.operators.leads_on(x):
            # What leads to operators stands in by its other attributes.
            return self._sources.operators.rebuild(x, self.value, self._stand_in(x))
        return self._stand_in(self.value(x))

    def value(self, x: Any) -> Any:
        """Return the rebuilt object in place of a reached one; others as they are."""
        if id(x) in self._made:
            return self._made[id(x)]
        if id(x) not in self._sources._objects:
            return x
        if self._sources.operators.holds(x):
            self._made[id(x)] = self._sources.operators.rebuild(x, self.value, x)
        elif isinstance(x, functools.partial):
            keywords = {name: self.value(part) for name, part in x.keywords.items()}
            self._made[id(x)] = functools.partial(
                self.value(x.func), *map(self.value, x.args), **keywords
            )
        elif isinstance(x, _CACHED):
            # A cache of its own, since results of the original must not stand for those of edited code.
            wrapped, settings = x.__wrapped__, x.cache_parameters()
            self._made[id(x)] = functools.lru_cache(**settings)(self.value(wrapped))
        elif _is_jitted(x):
            # compiled for one call, it would take seconds
            self._made[id(x)] = self.value(x.__wrapped__)
        elif isinstance(x, types.MethodType):
            self._made[id(x)] = types.MethodType(self.value(x.__func__), self.value(x.__self__))
        elif isinstance(x, types.FunctionType):
            return self._rebuild_function(x)
        elif edited_kernels.is_helion_kernel(x):
            self._made[id(x)] = edited_kernels.with_helion_function(x, self.value(x.fn))
        elif edited_kernels.is_kernel(x):
            self._made[id(x)] = edited_kernels.with_function(x, self.value(x.fn))
        elif edited_kernels.is_tuned(x):
            base = self.value(getattr(x, "base_fn", None))
            self._made[id(x)] = edited_kernels.with_kernel(x, self.value(x.fn), base)
        elif isinstance(x, type):
            return self._rebuild_class(x)
        elif type(x) in TABLES:
            return self._rebuild_table(x)
        elif kernel_of_operator(x) is not None:
            self._made[id(x)] = rebuild_operator(x, self.value)
        elif id(x) in self._sources._holders:
            return self._rebuild_holder(x)
        else:
            self._made[id(x)] = self._rebuild_instance(x)
        return self._made[id(x)]

    def _rebuild_class(self, x: type) -> type:
        """Return a class with rebuilt methods, so that instances which the code creates are edited as well."""
        methods = {n: m for n, m in vars(x).items() if any(functions_of_member(m))}
        left_out = {*methods, "__dict__", "__weakref__"}
        # Copied, since a cache of the class belongs to the user's code.
        members = {
            n: self._copy_container(member) for n, member in vars(x).items() if n not in left_out
        }
        result = type(x)(x.__name__, tuple(map(self.value, x.__bases__)), members)
        # Recorded before its methods, which refer to it by name and by ``super()``.
        self._made[id(x)] = result
        for name, member in methods.items():
            setattr(result, name, self._rebuild_member(member))
        return result

    def _rebuild_member(self, member: Any) -> Any:
        """Return a member of a class that calls rebuilt functions."""
        if isinstance(member, staticmethod | classmethod):
            return type(member)(self.value(member.__func__))
        if isinstance(member, property):
            fget, fset, fdel = map(self.value, (member.fget, member.fset, member.fdel))
            return property(fget, fset, fdel, member.__doc__)
        return self.value(member)

    def _copy_container(self, x: Any) -> Any:
        """Return a copy of a container, or the rebuilt object in place of a reached one; others as they are."""
        is_shared = id(x) not in self._sources._objects and type(x) in _CONTAINERS
        return copy(x) if is_shared else self.value(x)

    def _rebuild_table(self, x: Any) -> Any:
        """Return a table of rebuilt items; functions may be its keys."""
        if type(x) is tuple:
            self._made[id(x)] = tuple(map(self.value, x))
            return self._made[id(x)]
        # Recorded before its items, which may refer to it.
        result = self._made[id(x)] = type(x)()
        if type(x) is list:
            result.extend(map(self.value, x))
        else:
            result.update((self.value(key), self.value(part)) for key, part in x.items())
        return result

    def _rebuild_holder(self, x: Any) -> Any:
        """Return a copy of a library's object that holds rebuilt functions."""
        result = copy_attributes(x)
        # Recorded before its parts, which may refer to it.
        self._made[id(x)] = result
        for name, part in vars(x).items():
            # Copied, since the library may keep results of the original there.
            vars(result)[name] = self._copy_container(part)
        return result

    def _rebuild_instance(self, x: Any) -> Any:
        """Return a copy of an instance, with its parts rebuilt, whose class has rebuilt methods."""
        methods = {
            name: self.value(method)
            for name, method in self._sources._methods_defined_in_file(x).items()
        }
        try:
            result = copy(x)
            # One class for all its instances, which code may compare.
            if id(type(x)) in self._sources._objects:
                result.__class__ = self.value(type(x))
            elif methods:
                # A subclass with the rebuilt methods, since the user's class must stay as it is.
                result.__class__ = type(type(x).__name__, (type(x),), methods)
        except TypeError:
            return x
        # Recorded before its parts, which may refer to it.
        self._made[id(x)] = result
        if within := modules_within(x):
            vars(result)["_modules"] = {name: self.value(part) for name, part in within.items()}
        for name, part in vars(x).items() if hasattr(x, "__dict__") else ():
            if id(part) in self._sources._objects:
                vars(result)[name] = self.value(part)
        return result

    def _rebuild_function(self, f: types.FunctionType) -> types.FunctionType:
        code = self._codes.get(id(f))
        if code is None:
            code = self._sources.code_of(id(f)) if id(f) in self._sources.functions else f.__code__
        contents = dict(_yield_closure_contents(f))
        cells = {name: types.CellType() for name in code.co_freevars}
        # A decorator of another file is exchanged for its closure alone: its names are none of the edited file.
        is_own = f.__code__.co_filename == self._sources.file
        space = self._rebuild_global_names(f.__globals__) if is_own else f.__globals__
        new_function = types.FunctionType(
            code, space, f.__name__, None, tuple(cells.values()) or None
        )
        # Recorded before its cells are filled: a function may refer to itself.
        self._made[id(f)] = new_function
        new_function.__defaults__ = self._rebuild_default_values(f)
        new_function.__kwdefaults__ = f.__kwdefaults__ and {
            n: self.value(x) for n, x in f.__kwdefaults__.items()
        }
        if id(f) in self._definitions:
            self._edit_default_values(new_function, id(f))
        new_function.__annotations__, new_function.__doc__, new_function.__module__ = (
            f.__annotations__,
            f.__doc__,
            f.__module__,
        )
        new_function.__qualname__ = f.__qualname__
        for name, cell in cells.items():
            if name in contents:
                cell.cell_contents = self.named_value(contents[name])
        return new_function

    def _rebuild_default_values(self, f: types.FunctionType) -> tuple[Any, ...] | None:
        """Return the default values; a container that is empty in the text is a cache, and begins anew."""
        source = self._sources.functions.get(id(f))
        written = [ast.unparse(node) for node in source.tree.args.defaults] if source else []
        # The text has other defaults than the function: somebody has set them since.
        if f.__defaults__ is None or len(written) != len(f.__defaults__):
            return f.__defaults__ and tuple(map(self.value, f.__defaults__))
        pairs = zip(f.__defaults__, written, strict=True)
        return tuple(
            type(x)() if text in EMPTY and type(x) in _CONTAINERS else self.value(x)
            for x, text in pairs
        )

    def _edit_default_values(self, new_function: types.FunctionType, key: int) -> None:
        """Compute the default values that an edited definition has in place of the original ones."""
        space = new_function.__globals__
        old_nodes, old_keywords = _default_expressions(self._sources.functions[key].tree)
        new_nodes, new_keywords = _default_expressions(self._definitions[key])
        values = new_function.__defaults__ or ()
        # An edit of a default keeps their number.
        if not len(old_nodes) == len(new_nodes) == len(values):
            raise ValueError("an edit changes the number of default values")
        new_function.__defaults__ = tuple(
            _edited_default(old, new, value, space)
            for old, new, value in zip(old_nodes, new_nodes, values, strict=True)
        )
        named = new_function.__kwdefaults__ or {}
        # Only keyword defaults that both texts have.
        for name in old_keywords.keys() & new_keywords.keys() & named.keys():
            pair = old_keywords[name], new_keywords[name]
            named[name] = _edited_default(*pair, named[name], space)

    def _rebuild_global_names(self, space: dict[str, Any]) -> dict[str, Any]:
        if id(space) in self._spaces:
            return self._spaces[id(space)]
        # Recorded before it is filled, since its functions lead back to it.
        new = self._spaces[id(space)] = dict(space)
        for name, x in space.items():
            # A cache that is empty in the text begins anew, but for a table of registered functions.
            is_table = id(x) in self._sources._objects
            if type(x) in _CONTAINERS and name != "__builtins__":
                is_cache = name in self._sources.text.empty_at_first and not is_table
                new[name] = type(x)() if is_cache else self._copy_container(x)
            elif self._stand_in is not None or id(x) in self._sources._objects:
                new[name] = self.named_value(x)
        new.update(self._names)
        if self._sources.has_kernels:
            for name, x in edited_kernels.names_of_interpreter().items():
                new.setdefault(name, x)
        return new


def _edited_default(old: ast.expr, new: ast.expr, value: Any, space: dict[str, Any]) -> Any:
    """Return the value of an edited default; one that is as before keeps its value."""
    if ast.unparse(old) == ast.unparse(new):
        return value
    code = compile(ast.Expression(new), "<default>", "eval")
    try:
        return eval(code, space)
    # An edit may compute anything that is no number here.
    except Exception as error:
        raise ValueError(f"a default value is {type(error).__name__}") from None


def functions_of_member(member: Any) -> list[types.FunctionType]:
    """Return the functions that a member of a class calls: a method, also a static one, or those of a property."""
    parts: tuple[Any, ...] = (member,)
    if isinstance(member, staticmethod | classmethod):
        parts = (member.__func__,)
    elif isinstance(member, property):
        parts = (member.fget, member.fset, member.fdel)
    return [part for part in parts if isinstance(part, types.FunctionType)]


def _is_of_autograd(x: type) -> bool:
    """Return whether a class is a function of torch's autograd, whose metaclass builds the class of its gradient."""
    return type(x).__module__ == "torch.autograd.function"


def _has_hook_of_subclasses(owner: type) -> bool:
    """Return whether a class is told of its subclasses; ``object`` and ``Generic`` do nothing then."""
    return "__init_subclass__" in vars(owner) and owner.__module__ not in ("builtins", "typing")


def modules_within(x: Any) -> dict[str, Any]:
    """Return the modules of torch within one, by name; none of anything else."""
    within = (
        vars(x).get("_modules")
        if hasattr(x, "__dict__") and not isinstance(x, type | types.ModuleType)
        else None
    )
    return dict(within) if isinstance(within, dict) else {}


def parts_of(x: Any) -> dict[str, Any]:
    """Return the attributes of an instance, by name, and the modules within it."""
    return {**(vars(x) if hasattr(x, "__dict__") else {}), **modules_within(x)}


def _is_wrapped_by_jax(x: Any) -> bool:
    """Return whether an object of JAX calls a function of Python: compiled, or with rules of its own."""
    return type(x).__module__.startswith("jax") and callable(getattr(x, "__wrapped__", None))


def _is_jitted(x: Any) -> bool:
    """Return whether JAX compiles a function of Python, without rules for its gradient."""
    if not _is_wrapped_by_jax(x):
        return False
    # A compiled function has copies of the attributes of what it wraps.
    if not has_attributes_only(x):
        return True
    functions = [part for part in vars(x).values() if isinstance(part, types.FunctionType)]
    return all(function is x.__wrapped__ for function in functions)


def _wrapped_by(x: Any) -> types.FunctionType | None:
    """Return the function that a decorator wraps, as ``torch.no_grad()`` does, or None."""
    wrapped = getattr(x, "__wrapped__", None)
    if not isinstance(x, types.FunctionType) or not isinstance(wrapped, types.FunctionType):
        return None
    # Only what the wrapper holds in its closure can be exchanged there.
    contents = (content for _, content in _yield_closure_contents(x))
    return wrapped if any(content is wrapped for content in contents) else None


def _innermost_of_user(f: types.FunctionType) -> types.FunctionType:
    """Return the last function within decorators whose text is the user's; the function itself if none is."""
    chain = [f]
    while (wrapped := _wrapped_by(chain[-1])) is not None and wrapped not in chain:
        chain.append(wrapped)
    own = [x for x in chain if is_users_file(x.__code__.co_filename)]
    return own[-1] if own else f


def _written_in(root: Any) -> tuple[types.CodeType | None, Mapping[str, Any]]:
    """Return the code of a function, or of the method that calls an instance, and its globals."""
    # Wrappers may be within each other in any order.
    while True:
        if isinstance(root, functools.partial):
            root = root.func
        elif isinstance(root, types.MethodType):
            root = root.__func__
        elif isinstance(root, _CACHED) or _is_wrapped_by_jax(root):
            root = root.__wrapped__
        elif edited_kernels.is_helion_kernel(root):
            root = root.fn
        elif (kernel := kernel_of_operator(root)) is not None:
            root = kernel
        else:
            break
    if isinstance(root, types.FunctionType):
        root = _innermost_of_user(root)
    # A module of torch is called through ``forward``.
    if not isinstance(root, types.FunctionType):
        methods = (
            inspect.getattr_static(type(root), name, None) for name in ("forward", "__call__")
        )
        root = next((m for m in methods if isinstance(m, types.FunctionType)), None)
    return (root.__code__, root.__globals__) if root is not None else (None, {})


def _yield_closure_contents(f: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a closure; empty cells are left out."""
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue


def _values_used(f: types.FunctionType) -> Iterator[Any]:
    """Yield the globals, closure values and defaults that a function may use."""
    codes = (f.__code__, *_codes_within(f.__code__))
    # Sorted, so that functions have the same numbers in every process.
    for name in sorted({n for c in codes for n in c.co_names}):
        if name in f.__globals__:
            yield f.__globals__[name]
    yield from dict(_yield_closure_contents(f)).values()
    yield from f.__defaults__ or ()
    yield from (f.__kwdefaults__ or {}).values()
