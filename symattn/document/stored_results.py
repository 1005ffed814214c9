"""Results in the user's cache folder: texts in files, named by the digest of everything that the text depends on.

Files that cannot be read, are broken, or could have been written by other users are ignored, and so are failures to
write. No file is ever executed or unpickled: documents, and what is made of their parts, are texts, and of the classes
named here, and those that the reader names, alone can be read back.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, TypeVar

from symattn.document import model
from symattn.document import notation as nt
from symattn.document.evidence import Evidence, Grade, Verdict
from symattn.document.files import replaced

ROOT = Path(__file__).resolve().parents[1]
_LARGEST = 4_000_000  # bytes
# Keys are digests by SHA-256.
_KEY = re.compile(r"[0-9a-f]{64}")
# The name at the start of a requirement.
_DISTRIBUTION = re.compile(r"[\w.-]+")


def folder() -> Path:
    """Return ``SYMATTN_CACHE``, else symattn's folder among this system's user caches."""
    # The user's own folder comes first.
    chosen = os.environ.get("SYMATTN_CACHE")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        return (
            Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
            / "symattn"
            / "Cache"
        )
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "symattn"
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The standard ignores a relative path.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "symattn"


def get(kind: str, key: str) -> str | None:
    """Return the text stored under a key, or None if there is none that can be trusted."""
    try:
        path = _make_stored_result_path(kind, key)
        state = path.stat()
        # Only this user, or the system's administrator, could have written the file.
        ours = sys.platform == "win32" or (
            state.st_uid in (os.getuid(), 0) and not state.st_mode & 0o022
        )
        if not ours or not stat.S_ISREG(state.st_mode) or state.st_size > _LARGEST:
            return None
        result, _, text = path.read_text(encoding="utf-8").partition("\n")
    # A result that cannot be read is computed again.
    except (OSError, ValueError, RuntimeError):
        return None
    return text if result == digest([kind, key, text]) else None


def put(kind: str, key: str, text: str) -> None:
    """Store a text atomically, with its key, so that a copy under another name is ignored."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        path = _make_stored_result_path(kind, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        checked = digest([kind, key, text])
        replaced(path, f"{checked}\n{text}".encode(), 0o600)


def sizes() -> dict[str, tuple[int, int]]:
    """Return the number of stored files of each kind, or for Coq of compiled theories, and their bytes."""
    result: dict[str, list[int]] = {}
    for entry in _yield_stored_entries():
        # Another process may remove files meanwhile.
        with contextlib.suppress(OSError):
            result.setdefault(entry.parent.name, []).append(
                sum(file.stat().st_size for file in _list_files_of_entry(entry))
            )
    in_order = sorted(result.items())
    return {kind: (len(each), sum(each)) for kind, each in in_order}


def clear() -> int:
    """Remove every stored file and compiled theory, and nothing else in the folder; return how many there were."""
    gone = 0
    for entry in _yield_stored_entries():
        with contextlib.suppress(OSError):
            for file in _list_files_of_entry(entry):
                file.unlink()
            if entry.is_dir():
                entry.rmdir()
            gone += 1
    return gone


def _yield_stored_entries() -> Iterator[Path]:
    """Yield the files that ``put`` writes, and the folders of compiled theories, all named by digests."""
    with contextlib.suppress(OSError, RuntimeError):
        for path in sorted(folder().glob("*/*")):
            theory = path.parent.name == "coq" and path.is_dir() and not path.is_symlink()
            written = path.suffix == ".json" and path.is_file()
            if (theory or written) and _KEY.fullmatch(path.name.removesuffix(".json")):
                yield path


def _list_files_of_entry(entry: Path) -> list[Path]:
    return [*entry.iterdir()] if entry.is_dir() else [entry]


def digest(parts: Iterable[str]) -> str:
    """Return the digest of several texts."""
    sha = hashlib.sha256()
    for part in parts:
        # Lengths distinguish parts that are joined to the same text.
        sha.update(f"{len(part)}:{part}".encode("utf-8", "surrogatepass"))
    return sha.hexdigest()


@cache
def ground() -> str:
    """Return the digest of symattn's source and texts, and of the versions of Python and of all dependencies.

    Raises OSError if a file cannot be read, or if symattn runs from a folder and its dependencies are not known.
    """
    try:
        # Optional dependencies change no result.
        needed = [_DISTRIBUTION.match(r) for r in requires("symattn") or () if "extra ==" not in r]
        of_needed = (f"{name[0]} {version(name[0])}" for name in needed if name)
        versions = [sys.version, *of_needed]
    except PackageNotFoundError as error:
        raise OSError(f"{error} is not installed") from error
    every = sorted(
        f"{folder}/{name}"
        for folder, _, names in os.walk(ROOT)
        for name in names
        if name.endswith((".py", ".txt"))
    )
    files = (
        f"{path[len(str(ROOT)) :]} {hashlib.sha256(Path(path).read_bytes()).hexdigest()}"
        for path in every
    )
    return digest([*versions, *files])


def _make_stored_result_path(kind: str, key: str) -> Path:
    return folder() / kind / f"{key}.json"


_Stored = TypeVar("_Stored")
_ENUMS: dict[str, type[Enum]] = {"Grade": Grade, "Verdict": Verdict}
_CLASSES: dict[str, type[Any]] = {
    c.__name__: c
    for c in (Evidence, *vars(model).values(), *vars(nt).values())
    if isinstance(c, type) and is_dataclass(c)
}


def written(x: object) -> str:
    """Return ``x`` as JSON. Raises TypeError for types that do not occur in documents."""
    return json.dumps(_convert_to_plain_json(x), ensure_ascii=False)


def read(source: str, kind: type[_Stored], *parts: type[Any]) -> _Stored:
    """Return the object of class ``kind`` that ``written`` wrote; it may contain ``parts`` besides those of documents.

    Raises ValueError for any other text.
    """
    # A text that somebody has changed restores nothing.
    try:
        result = _restore_from_plain_json(
            json.loads(source), {**_CLASSES, **{c.__name__: c for c in (kind, *parts)}}
        )
    except (KeyError, TypeError, AttributeError, RecursionError, ZeroDivisionError) as error:
        raise ValueError(f"no {kind.__name__}: {error}") from error
    if not isinstance(result, kind):
        raise ValueError(f"no {kind.__name__}")
    return result


def _convert_to_plain_json(x: object) -> Any:
    # Classes are named, so that only known ones are restored.
    if isinstance(x, Grade | Verdict):
        return {"is": type(x).__name__, "value": x.value}
    if isinstance(x, Fraction):
        return {"is": "Fraction", "value": str(x)}
    if isinstance(x, tuple | list):
        return [_convert_to_plain_json(y) for y in x]
    if isinstance(x, Mapping):
        return {
            "is": "Mapping",
            "value": [
                [_convert_to_plain_json(key), _convert_to_plain_json(y)] for key, y in x.items()
            ],
        }
    if is_dataclass(x):
        return {
            "is": type(x).__name__,
            **{f.name: _convert_to_plain_json(getattr(x, f.name)) for f in fields(x)},
        }
    if x is None or isinstance(x, bool | int | float | str):
        return x
    raise TypeError(f"{type(x).__name__} is not kept")


def _restore_from_plain_json(x: object, classes: Mapping[str, type[Any]]) -> Any:
    if isinstance(x, list):
        return tuple(_restore_from_plain_json(y, classes) for y in x)
    if not isinstance(x, dict):
        return x
    # Parts are restored before what contains them.
    kind, values = (
        x["is"],
        {name: _restore_from_plain_json(y, classes) for name, y in x.items() if name != "is"},
    )
    if kind in _ENUMS:
        return _ENUMS[kind](values["value"])
    if kind == "Fraction":
        return Fraction(values["value"])
    return dict(values["value"]) if kind == "Mapping" else classes[kind](**values)
