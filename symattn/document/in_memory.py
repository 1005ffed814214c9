"""Compare symattn's modules in memory with their files, so that results of a changed program are not kept.

A notebook or a theorem file may set a function, a class attribute, a constant or an imported name of a module. The
byte code of the file says which functions, constants and imported objects its names stand for; functions are compared
by their code. Contents of tables and default arguments are not compared.
"""

from __future__ import annotations

import dis
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import EnumMeta
from functools import cache, cached_property, partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

_PACKAGE = __name__.partition(".")[0]
_ROOT = str(Path(__file__).resolve().parents[1])
_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_STDLIB = sysconfig.get_path("stdlib")
_GENERATED = "<string>"  # the file of functions that dataclasses and named tuples make


@dataclass
class Bindings:
    """The objects that the names of a module or a class stand for, by its byte code.

    ``functions`` holds the code of functions and classes, ``decorated`` the names of those that a decorator replaced;
    ``constants`` plain values; ``imported`` (module, name). A name that is bound more than once is in ``several``.
    """

    functions: dict[str, list[CodeType]] = field(default_factory=dict)
    decorated: set[str] = field(default_factory=set)
    constants: dict[str, Any] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    several: set[str] = field(default_factory=set)


def is_as_in_files() -> bool:
    """Return whether no loaded module of symattn was seen to differ from its file."""
    imported = list(sys.modules.items())
    own = ((name, module) for name, module in imported if name.partition(".")[0] == _PACKAGE)
    return all(_is_as_in_file(name, module) for name, module in own)


def _is_as_in_file(name: str, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None or type(module.__loader__).__module__.startswith("_pytest"):
        return True  # a folder without code, or a module whose assertions pytest has rewritten
    try:
        code = _code_of(name, file)
    except (OSError, SyntaxError, ImportError):
        return False
    return _is_namespace_unchanged(code, vars(module), module.__name__, module)


@cache
def _code_of(name: str, file: str) -> CodeType:
    code = SourceFileLoader(name, file).get_code(name)
    if code is None:
        raise ImportError(name)
    return code


@cache
def _codes_of(name: str, file: str) -> frozenset[CodeType]:
    """Return the code of every function of a file."""
    return frozenset(_yield_nested_code(_code_of(name, file)))


def _yield_nested_code(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _yield_nested_code(constant)


@cache
def _collect_code_bindings(code: CodeType) -> Bindings:
    """Return what the names stand for that a module or class body binds."""
    result, bound = Bindings(), set[str]()
    last_code: CodeType | None = None  # the function or class that was made last
    source = ""  # the module from which names are imported
    before: tuple[str, Any] = ("", None)
    calls = 0
    for operation, value in _yield_binding_operations(code):
        if operation == "LOAD_CONST" and isinstance(value, CodeType):
            last_code, calls = value, 0
        elif operation == "CALL":
            calls += 1
        elif operation == "IMPORT_NAME":
            source = value
        elif operation in ("STORE_NAME", "STORE_GLOBAL", "DELETE_NAME"):
            result.several |= {value} & bound
            bound.add(value)
            if last_code is not None and last_code.co_name == value:
                result.functions.setdefault(value, []).append(last_code)
                result.decorated |= {value} if calls else set()
            elif before[0] == "LOAD_CONST" and value != "__doc__":
                result.constants[value] = before[1]
            elif before[0] == "IMPORT_FROM":
                result.imported[value] = (source, before[1])
            last_code = None
        before = (operation, value)
    return result


@cache
def _set_by_functions(code: CodeType) -> frozenset[str]:
    """Return the names of globals that functions of a module set when they run."""
    return frozenset(name for inner in _yield_nested_code(code) for name in _global_names(inner))


def _yield_binding_operations(code: CodeType) -> Iterator[tuple[str, Any]]:
    """Yield the operations that bind names, with the name or constant; others as ("", None)."""
    extended, known = 0, _known_operations()
    # Operations are two bytes each: the operation and its argument.
    for operation, argument in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        name = known.get(operation, "")
        argument |= extended
        # A larger argument is continued by the operation behind.
        extended = argument << 8 if name == "EXTENDED_ARG" else 0
        if name == "LOAD_CONST":
            yield name, code.co_consts[argument]
        # Newer versions of Python hold small integers in the operation.
        elif name == "LOAD_SMALL_INT":
            yield "LOAD_CONST", argument
        elif name in ("STORE_NAME", "STORE_GLOBAL", "DELETE_NAME", "IMPORT_NAME", "IMPORT_FROM"):
            yield name, code.co_names[argument]
        elif name not in ("CACHE", "EXTENDED_ARG"):
            yield name, None


@cache
def _known_operations() -> dict[int, str]:
    return {number: name for name, number in dis.opmap.items()}


def _global_names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals that a function may set."""
    number = dis.opmap["STORE_GLOBAL"]
    if number in code.co_code[::2]:
        yield from (
            value
            for operation, value in _yield_binding_operations(code)
            if operation == "STORE_GLOBAL"
        )


def _is_namespace_unchanged(
    code: CodeType, live: Mapping[str, Any], module: str, owner: object
) -> bool:
    """Return whether the names of a module or class stand for what its byte code says."""
    bindings = _collect_code_bindings(code)
    verified = {name for name in bindings.functions if name not in bindings.decorated} | {
        *bindings.imported
    }
    for name, codes in bindings.functions.items():
        if name in live and not _is_made_of(live[name], codes, name in bindings.decorated, module):
            return False
    for name, expected in bindings.constants.items():
        changed = (
            name in live
            and name not in bindings.several
            and not _is_constant(owner, live[name], expected)
        )
        if changed and name not in _set_by_functions(code):
            return False
    for name, (source, of) in bindings.imported.items():
        loaded = vars(sys.modules[source]) if source in sys.modules else {}
        if name not in live or name in bindings.several or of not in loaded:
            continue
        # A module in a package may have the name of an object of that package.
        imported = sys.modules.get(f"{source}.{of}")
        if live[name] is not loaded[of] and live[name] is not imported:
            return False
    return all(
        _is_known(value, owner) for name, value in list(live.items()) if name not in verified
    )


def _is_made_of(value: object, codes: list[CodeType], decorated: bool, module: str) -> bool:
    """Return whether a value is the function or class of one of the codes, or what a decorator may have made of it."""
    if isinstance(value, type):
        return value.__module__ == module and any(
            _is_namespace_unchanged(code, vars(value), module, value)
            for code in codes
            if code.co_name == value.__name__
        )
    function = _unwrap_decorated_function(value)
    # A decorator may have put another function in its place.
    if isinstance(function, FunctionType):
        return function.__code__ in codes or decorated
    return decorated


def _is_constant(owner: object, value: object, expected: object) -> bool:
    """Return whether a name stands for a constant; classes may replace constants by members and fields."""
    if not isinstance(expected, _PLAIN) or value is expected:
        return True
    # Members of an enumeration stand in place of their values.
    if isinstance(owner, EnumMeta) or isinstance(value, MemberDescriptorType):
        return True
    is_member = isinstance(owner, type) and (
        hasattr(owner, "_fields") or not isinstance(value, _PLAIN)
    )
    return is_member or (type(value) is type(expected) and value == expected)


def _is_known(value: object, owner: object) -> bool:
    """Return whether a function belongs to the file that it names, and that file is symattn's or an installed one."""
    function = _unwrap_decorated_function(value)
    if not isinstance(function, FunctionType):
        return True
    file = function.__code__.co_filename
    # A function of another module is compared with the file of that module.
    if file.startswith(_ROOT):
        module = sys.modules.get(function.__module__ or "")
        return getattr(module, "__file__", None) != file or function.__code__ in _codes_of(
            function.__module__, file
        )
    # Methods that dataclasses generate have no file.
    if file == _GENERATED:
        return isinstance(owner, type) and function.__name__.startswith("_")
    return (
        file.startswith((_STDLIB, "<frozen")) or "site-packages" in file or "dist-packages" in file
    )


def _unwrap_decorated_function(value: Any) -> Any:
    """Return the function behind descriptors, caches and wrappers."""
    for _ in range(20):
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, cached_property | partial):
            value = value.func
        elif isinstance(value, FunctionType | BuiltinFunctionType) and not hasattr(
            value, "__wrapped__"
        ):
            return value
        elif isinstance(value, Callable) and "__wrapped__" in getattr(value, "__dict__", {}):  # type: ignore[arg-type]
            value = value.__wrapped__
        else:
            return value
    return value
