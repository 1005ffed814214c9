"""SHA-256 of a candidate's file and of symattn's own code, so that a judgement says what it is about."""

from __future__ import annotations

import hashlib
import inspect
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

from symattn.programs.loading import place_of
from symattn.programs.names import Function

#: The folder of symattn's own code.
_ROOT = Path(__file__).parents[2]
#: Files on which a judgement may depend: code and data.
_READ = (".py", ".pyi", ".txt", ".json")


def hash_of_target(candidate: Function | str) -> str:
    """Return the hash of the file that defines a candidate; "" if there is none. Nothing is imported."""
    path = file_of_target(candidate)
    try:
        return "" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def file_of_target(candidate: Function | str) -> Path | None:
    """Return the file that defines a candidate; None if there is none. Nothing is imported."""
    return _file_of(place_of(candidate)) if isinstance(candidate, str) else _source_of(candidate)


def _file_of(place: str) -> Path | None:
    """Return the file of ``file.py`` or ``package.module``, found without importing a package."""
    if place.endswith(".py"):
        return Path(place)
    folders: list[str] | None = None
    for name in place.split("."):
        # The working directory comes first, as when the candidate is loaded.
        spec = PathFinder.find_spec(name, [str(Path.cwd())]) if folders is None else None
        spec = spec or PathFinder.find_spec(name, folders)
        if spec is None:
            return None
        folders = list(spec.submodule_search_locations or ())
    return None if spec is None or spec.origin is None else Path(spec.origin)


def _source_of(function: Function) -> Path | None:
    try:
        return Path(inspect.getsourcefile(inspect.unwrap(function)) or "")
    except (TypeError, ValueError):
        return None


@cache
def hash_of_symattn() -> str:
    """Return the hash of the names and contents of symattn's own files."""
    result = hashlib.sha256()
    # Sorted, since the order of a folder's entries differs between machines.
    for path in sorted(p for p in _ROOT.rglob("*") if p.suffix in _READ):
        # The separator marks where a name ends and its content begins.
        result.update(path.relative_to(_ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return result.hexdigest()
