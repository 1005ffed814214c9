"""SHA-256 of a candidate's file and of symattn's own code, so that a judgement says what it is about."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Iterator
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
    for name, path in sorted(yield_own_files(str(_ROOT), "")):
        with open(path, "rb") as file:
            # The separator marks where a name ends and its content begins.
            result.update(name.encode() + b"\0" + file.read())
    return result.hexdigest()


def yield_own_files(folder: str, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the names of symattn's files within its folder, with slashes, and their paths."""
    for entry in os.scandir(folder):
        name = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from yield_own_files(entry.path, name + "/")
        elif entry.name.endswith(_READ):
            yield name, entry.path
