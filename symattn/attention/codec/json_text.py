"""Untrusted JSON: bounded, without repeated keys, NaN or guesses."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from symattn.document.errors import InputError, near


class TypedNumber(str):
    """A number as it was typed."""

    __slots__ = ()


def content(path: str, most: int, hint: str) -> bytes:
    """Return the at most ``most`` bytes of a file. Raises InputError, with ``hint`` at its end if there are more."""
    file = Path(path)
    try:
        if file.is_dir():
            raise InputError(f"{path} is a directory; hint: name a file in it")
        with file.open("rb") as opened:
            # One byte more than allowed shows that there is more, without reading it.
            result = opened.read(most + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise InputError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if len(result) > most:
        raise InputError(f"{path} is larger than {most // 2**20} MiB{hint}")
    return result


def decoded(content: bytes, where: str, exact: bool = True) -> Any:
    """Return the value of a JSON text, its numbers ``TypedNumber`` if ``exact``, else Python's. Raises InputError."""
    strict: dict[str, Any] = {
        "parse_float": TypedNumber,
        "parse_int": TypedNumber,
        "parse_constant": lambda word: _refuse_json_text(
            f"{where}: {word} is not a number that a sheet may hold"
        ),
        "object_pairs_hook": lambda pairs: _build_object_without_repeats(pairs, where),
    }
    try:
        # A byte order mark is no error.
        return json.loads(content.decode("utf-8-sig"), **(strict if exact else {}))
    except InputError:
        raise
    except UnicodeDecodeError as error:
        hint = "save it as UTF-8" + ", or give an npz" * exact
        raise InputError(f"{where} is not UTF-8 text (byte {error.start}); hint: {hint}") from None
    except json.JSONDecodeError as error:
        place, more = (
            f"line {error.lineno}, column {error.colno}",
            '; fractions are texts, "1/3"' * exact,
        )
        raise InputError(f"{where} is not valid JSON at {place}: {error.msg}{more}") from None
    except (RecursionError, ValueError):  # an integer of thousands of digits is a ValueError
        raise InputError(
            f"{where} is nested too deeply, or holds a number too long, to be read"
        ) from None


def loaded(path: Path, most: int, toml: bool = False) -> Any:
    """Return the value of a JSON or TOML file, with Python's numbers. Raises InputError."""
    data = content(str(path), most, "")
    if not toml:
        return decoded(data, str(path), exact=False)
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {str(error).splitlines()[0]}") from None


def refuse_unknown(data: Iterable[str], names: Iterable[str], where: str) -> None:
    """Raise InputError, with a suggestion, for the first key that is not one of ``names``."""
    names = list(names)
    for key in data:
        if key not in names:
            raise InputError(
                f"{where}: unknown name {short(key)!r}.{near(key, names)} Known: {', '.join(names)}"
            )


def check_fields(description: type, data: Iterable[str], where: str) -> None:
    """Raise InputError for a key that is not a field of a description, and for missing fields."""
    known = fields(description)
    refuse_unknown(data, [f.name for f in known], where)
    missing = [
        f.name for f in known if f.default is f.default_factory is MISSING and f.name not in data
    ]
    if missing:
        example = f"{description.__name__}({', '.join(f'{name}=…' for name in missing)})"
        raise InputError(f"{where} lacks {' and '.join(missing)}; hint: {example}")


def short(text: str, most: int = 40) -> str:
    """Return a text shortened for an error message."""
    return text if len(text) <= most else text[: most - 3] + "…"


def shown(value: object) -> str:
    """Return a JSON value in the words of an error message."""
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "null"}[value]
    return (
        "an object"
        if isinstance(value, dict)
        else "a list"
        if isinstance(value, list)
        else repr(short(str(value)))
    )


def _build_object_without_repeats(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    result = dict(pairs)
    # JSON permits repeated keys, of which one would be ignored silently.
    if len(result) < len(pairs):
        keys: set[str] = set()
        twice = next(key for key, _ in pairs if key in keys or keys.add(key))  # type: ignore[func-returns-value]
        _refuse_json_text(f"{where}: {short(twice)!r} is given twice in one object")
    return result


def _refuse_json_text(message: str) -> Any:
    raise InputError(message)
