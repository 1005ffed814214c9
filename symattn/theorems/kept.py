"""Store findings in the user's cache folder, by the content of the theorem, never by its name."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache, partial
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, PathFinder
from importlib.metadata import packages_distributions, version
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.document import stored_results
from symattn.document.in_memory import is_as_in_files
from symattn.document.stored_results import read, written
from symattn.proof.code import is_cell_filled, names
from symattn.proof.theorem import Theorem
from symattn.theorems import findings
from symattn.theorems.reading import Reading, ReadRelation


class Cache:
    """A cache of findings by content. With ``on`` false, nothing is read or written.

    Nothing is read or written either once a module of symattn differs in memory from its file.
    """

    def __init__(self, on: bool = True) -> None:
        self.on = on and is_as_in_files()

    def get(self, theorem: Theorem) -> findings.TheoremFinding | None:
        """Return the stored finding, if all that it depends on is unchanged."""
        key = digest(theorem) if self.on else None
        text = key and stored_results.get("theorems", key)
        try:
            return read(text, findings.TheoremFinding, Reading, ReadRelation) if text else None
        # A stored text of another version is as good as none.
        except ValueError:
            return None

    def put(self, theorem: Theorem, finding: findings.TheoremFinding) -> None:
        """Store a finding, whole or not at all."""
        # The statement's code has run since, and may have set a name of a module.
        self.on = self.on and is_as_in_files()
        key = digest(theorem) if self.on else None
        if key is not None:
            # A finding that cannot be written is decided again next time.
            with contextlib.suppress(TypeError, ValueError):
                stored_results.put("theorems", key, written(finding))


# -- content -----------------------------------------------------------------------------------------------------------
# Names that run, read or draw something unknown beforehand, by whatever package.
_UNSEEN = re.compile(
    "(?i:.*(rand|open|read|load|file|memmap|import|pkg|builtins).*|from.+)|runpy|modules|exec|eval|compile"
    "|input|breakpoint|globals|vars|locals|id|hash"
)
# Python's own modules that say the same in each run; of others, such as os, pathlib and time, nothing is known.
_STEADY = {
    *(
        "__future__",
        "abc",
        "bisect",
        "cmath",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "decimal",
        "enum",
    ),
    *(
        "fractions",
        "functools",
        "heapq",
        "inspect",
        "itertools",
        "json",
        "math",
        "numbers",
        "operator",
        "re",
    ),
    *("statistics", "string", "textwrap", "types", "typing", "warnings"),
}
# Types whose repr says all about a value.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, Fraction, type(...), range)


class UnknownValue(Exception):
    """Raised for a value of an unknown type, on which no digest can depend."""


def digest(theorem: Theorem) -> str | None:
    """Return the digest of a theorem; None if it depends on a value of an unknown type."""
    walk = _Walk()
    try:
        printed = (
            (theorem.letters, theorem.says, theorem.false_says, theorem.hypotheses)
            if theorem.letters
            else ()
        )
        method = (theorem.method, printed)
        parts = [ground(), *walk.parts(method)]
        # Complete only now: the walk meets files, and what they import, on its way.
        parts += sorted(walk.versions)
        hashed = ((path, hashlib.sha256(path.read_bytes()).hexdigest()) for path in walk.files)
        files = sorted(hashed)
    # An unreadable file, or an unknown value, may change without a trace.
    except (UnknownValue, OSError):
        return None
    return stored_results.digest([*parts, *(content for _, content in files)])


def ground() -> str:
    """Return the digest of what all theorems depend on: symattn's mathematics, and the versions of its libraries."""
    return stored_results.ground()


class _Walk:
    """A traversal of the parts of a value, each object once."""

    def __init__(self) -> None:
        self.files: set[Path] = set()
        self.versions: set[str] = set()  # of installed packages that files of the user's import
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no identity is used twice

    def parts(self, x: Any) -> Iterator[str]:
        """Yield the parts of ``x``, in order."""
        if isinstance(x, _PLAIN):
            yield f"{type(x).__name__} {x!r}"
            return
        # An enum's name identifies it, whatever its value.
        if isinstance(x, Enum):
            yield f"{type(x).__qualname__} {x.name}"
            return
        # Cycles and shared parts: a number says which earlier part it is.
        if id(x) in self._seen:
            yield f"again {self._seen[id(x)]}"
            return
        self._seen[id(x)] = len(self._seen)
        # While an object lives, no other has its identity.
        self._kept.append(x)
        yield from self._made_of(x)

    def _made_of(self, x: Any) -> Iterator[str]:
        if isinstance(x, (tuple, list)):
            yield f"{type(x).__name__} of {len(x)}"
            for y in x:
                yield from self.parts(y)
        elif isinstance(x, Mapping):
            yield f"mapping of {len(x)}"
            for key, y in x.items():
                yield from self.parts(key)
                yield from self.parts(y)
        elif isinstance(x, (set, frozenset)):
            # Sets have no order, so parts are sorted.
            walks = [_Walk() for _ in x]
            yield from sorted(
                part for y, walk in zip(x, walks, strict=True) for part in walk.parts(y)
            )
            for walk in walks:
                self.files |= walk.files
                self.versions |= walk.versions
        elif isinstance(x, FunctionType):
            yield from self._yield_function_parts(x)
        elif isinstance(x, CodeType):
            yield from self._yield_code_parts(x)
        elif isinstance(x, MethodType):
            yield from self.parts((x.__func__, x.__self__))
        # A cached function depends on the function behind it, not on its cache.
        elif hasattr(x, "cache_info") and hasattr(x, "__wrapped__"):
            yield from self.parts(x.__wrapped__)
        elif isinstance(x, partial):
            yield from self.parts((x.func, x.args, x.keywords))
        elif isinstance(x, ModuleType):
            yield "module" if self._note_user_module(x) else f"module {x.__name__}"
        elif isinstance(x, (type, BuiltinFunctionType)):
            users = self._note_user_module(sys.modules.get(x.__module__ or ""))
            yield x.__qualname__ if users else f"{x.__module__} {x.__qualname__}"
        elif is_dataclass(x):
            yield from self.parts(type(x))
            for f in fields(x):
                yield f.name
                yield from self.parts(getattr(x, f.name))
        else:
            yield from self._yield_array_content(x)

    def _yield_function_parts(self, f: FunctionType) -> Iterator[str]:
        """Yield the code and the values it holds and, for a user's function, the globals that it looks up."""
        users = _is_file_of_user(Path(f.__code__.co_filename))
        yield "a user's function" if users else f"function of {f.__module__}"
        yield from self.parts((f.__code__, f.__defaults__, f.__kwdefaults__))
        cells = f.__closure__ or ()
        yield from self.parts([c.cell_contents for c in cells if is_cell_filled(c)])
        if not users:
            return
        self._note_user_file(Path(f.__code__.co_filename))
        # Only globals that the code names can change its result.
        for name in sorted(names(f.__code__)):
            if name in f.__globals__:
                yield name
                yield from self.parts(f.__globals__[name])

    def _yield_code_parts(self, code: CodeType) -> Iterator[str]:
        yield f"{code.co_code!r} {code.co_names} {code.co_varnames} {code.co_argcount} {code.co_kwonlyargcount}"
        yield from self.parts(code.co_consts)

    def _yield_array_content(self, x: Array) -> Iterator[str]:
        # Arrays of objects have no bytes that say what they are.
        if isinstance(x, (np.ndarray, np.generic)) and not x.dtype.hasobject:
            yield f"{x.dtype} {x.shape} {x.tobytes()!r}"
            return
        raise UnknownValue(type(x).__name__)

    def _note_user_module(self, module: ModuleType | None) -> bool:
        """Return whether it is a user's module; if so, note its file and those of all its imports."""
        file = getattr(module, "__file__", None)
        if module is None or file is None or not _is_file_of_user(Path(file)):
            return False
        self._note_user_file(Path(file))
        return True

    def _note_user_file(self, path: Path) -> None:
        """Note a user's file and everything that it imports, at any depth. Raises UnknownValue."""
        # Imports may go round in circles.
        if path in self.files:
            return
        self.files.add(path)
        for name in sorted(_names_of_imported_modules(path)) if path.suffix == ".py" else ():
            if name:
                self._note_imported_module(name, path)
            else:
                # the folder of the outermost package that contains a file
                folder = path.parent
                while (folder.parent / "__init__.py").is_file():
                    folder = folder.parent
                self._note_package_files(folder)

    def _note_package_files(self, folder: Path) -> None:
        for path in sorted(folder.rglob("*")):
            if path.name.endswith((*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)):
                self._note_user_file(path)

    def _note_imported_module(self, name: str, near: Path) -> None:
        """Note a user's module or package by the content of its files, an installed package by its version."""
        places = [str(near.parent), *sys.path]
        spec = getattr(sys.modules.get(name), "__spec__", None) or PathFinder.find_spec(
            name, places
        )
        own = (
            spec is not None
            and bool(spec.has_location)
            and _is_file_of_user(Path(spec.origin or ""))
        )
        # symattn's own files are in the digest of the ground.
        if name == stored_results.ROOT.name or (name in _STEADY and not own):
            return
        if spec is None or (name in sys.stdlib_module_names and not own):
            # Of other modules of Python the result may depend on the machine.
            raise UnknownValue(name)
        folders = [Path(p) for p in spec.submodule_search_locations or ()]
        if not all(map(_is_file_of_user, folders or [Path(spec.origin or "")])):
            owners = _owners().get(name)
            if not owners:
                raise UnknownValue(name)
            self.versions.update(f"{owner} {version(owner)}" for owner in owners)
        elif folders:
            for folder in folders:
                self._note_package_files(folder)
        else:
            self._note_user_file(Path(spec.origin or ""))


_owners = lru_cache(packages_distributions)


def _names_of_imported_modules(path: Path) -> set[str]:
    """Return the names of the modules that a file imports, up to the first dot; "" for those of its own package."""
    result: set[str] = set()
    names: set[str] = set()
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise UnknownValue(path) from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            result |= {a.name.partition(".")[0] for a in node.names}
            names |= {part for a in node.names for part in a.name.split(".")}
        elif isinstance(node, ast.ImportFrom):
            result.add("" if node.level else (node.module or "").partition(".")[0])
            module_parts = (node.module or "").split(".")
            names |= {*module_parts, *(a.name for a in node.names)}
        elif isinstance(node, (ast.Name, ast.Attribute)):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    if unseen := sorted(filter(_UNSEEN.fullmatch, names)):
        raise UnknownValue(f"{path} {unseen}")
    return result


def _is_file_of_user(path: Path) -> bool:
    """Return whether a file belongs neither to Python, nor to an installed package, nor to symattn."""
    path = path.resolve()
    return "site-packages" not in path.parts and not any(
        place in (path, *path.parents) for place in _folders_of_installed_code()
    )


@lru_cache
def _folders_of_installed_code() -> list[Path]:
    """Return the folders of symattn and of Python's own modules."""
    return [
        stored_results.ROOT,
        *(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib")),
    ]
