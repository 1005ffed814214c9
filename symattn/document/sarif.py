"""SARIF 2.1.0: results with their places and fixes, as code scanning reads them.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0 (2020), §3.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from symattn.document import characters

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
#: The folder from which paths are counted, which the reader of a log knows.
_ROOT = "%SRCROOT%"
#: The name and version of the fingerprint by which a result is known again.
_FINGERPRINT = "symattn/v1"

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class TextChange:
    """A new text in place of a region: lines and columns are counted from 1, the end is the column behind it."""

    line: int
    column: int
    end_line: int
    end_column: int
    new: str

    @property
    def as_dict(self) -> dict[str, Any]:
        """The change as a ``replacement`` (§3.57); an insertion deletes an empty region."""
        region = {
            "startLine": self.line,
            "startColumn": self.column,
            "endLine": self.end_line,
            "endColumn": self.end_column,
        }
        replacement: dict[str, Any] = {"deletedRegion": region}
        # A removal inserts nothing.
        return replacement | ({"insertedContent": {"text": self.new}} if self.new else {})


@dataclass(frozen=True)
class Fix:
    """An edit of one file that may be made as a whole, in words."""

    words: str
    file: str
    changes: tuple[TextChange, ...]

    @property
    def as_dict(self) -> dict[str, Any]:
        """The edit as a ``fix`` (§3.55)."""
        change = {
            "artifactLocation": _artifact_location(self.file),
            "replacements": [c.as_dict for c in self.changes],
        }
        return {"description": {"text": self.words}, "artifactChanges": [change]}


@dataclass(frozen=True)
class LogPlace:
    """A line of a file, counted from 1, and the function or the part of a model that is meant."""

    file: str
    line: int = 1
    name: str = ""

    @property
    def as_dict(self) -> dict[str, Any]:
        """The place as a ``location`` (§3.28)."""
        physical = {
            "artifactLocation": _artifact_location(self.file),
            "region": {"startLine": self.line},
        }
        logical = [{"fullyQualifiedName": self.name}] if self.name else []
        return {"physicalLocation": physical} | ({"logicalLocations": logical} if logical else {})


@dataclass(frozen=True)
class LogResult:
    """A finding: the name of its rule and what the rule means, how bad it is, in words, where, and its fixes.

    ``more`` is the command that explains the rule, if there is one.
    """

    rule: str
    meaning: str
    level: Level
    words: str
    place: LogPlace
    fixes: tuple[Fix, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    more: str = ""

    @property
    def fingerprint(self) -> str:
        """The hash by which the same finding is known again, wherever it moves within its file."""
        known = "\0".join((self.rule, _shown_path(self.place.file), self.place.name))
        return hashlib.sha256(os.fsencode(known)).hexdigest()[:32]


def sarif(results: Sequence[LogResult], version: str, command: str = "") -> str:
    """Return a log with one run that has these results; without any, nothing was found.

    >>> import json
    >>> json.loads(sarif([], "1.0"))["runs"][0]["results"]
    []
    """
    rules = {result.rule: result for result in results}
    numbers = {rule: number for number, rule in enumerate(rules)}
    driver = {
        "name": "symattn",
        "version": version,
        "rules": [_rule(result) for result in rules.values()],
    }
    run = {
        "tool": {"driver": driver},
        # Columns count characters, as those of Python do.
        "columnKind": "unicodeCodePoints",
        "results": [_result(result, numbers[result.rule]) for result in results],
    } | ({"properties": {"command": command}} if command else {})
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return characters.escaped_controls(json.dumps(log, indent=2, ensure_ascii=False) + "\n")


def _rule(result: LogResult) -> dict[str, Any]:
    """Return a ``reportingDescriptor`` (§3.49)."""
    return {
        "id": result.rule,
        "shortDescription": {"text": result.meaning},
        "help": {"text": "\n\n".join(filter(None, (result.meaning, result.more)))},
        "defaultConfiguration": {"level": result.level},
    }


def _result(result: LogResult, number: int) -> dict[str, Any]:
    """Return a ``result`` (§3.27)."""
    fixes = [fix.as_dict for fix in result.fixes]
    parts = {"fixes": fixes, "properties": dict(result.properties)}
    return {
        "ruleId": result.rule,
        "ruleIndex": number,
        "level": result.level,
        "message": {"text": result.words},
        "locations": [result.place.as_dict],
        "partialFingerprints": {_FINGERPRINT: result.fingerprint},
    } | {name: part for name, part in parts.items() if part}


def _artifact_location(file: str) -> dict[str, str]:
    """Return where a file is: relative to the root of the sources if it lies in it, else by its whole path."""
    path = _shown_path(file)
    if os.path.isabs(path):
        return {"uri": Path(path).as_uri()}
    # As bytes, since a name of a file need not be UTF-8.
    return {"uri": quote(os.fsencode(path)), "uriBaseId": _ROOT}


def _shown_path(file: str) -> str:
    """Return the path from the current folder if the file lies in it, else the whole path, with slashes."""
    try:
        path = os.path.relpath(file)
    except ValueError:  # on another drive
        path = os.pardir
    inside = not path.startswith(os.pardir)
    return Path(path).as_posix() if inside else Path(file).absolute().as_posix()
