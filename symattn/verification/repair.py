"""``Repair``: an edit of a function's source after which it computes the definition, as a report shows it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Literal

from symattn.document import files
from symattn.document.errors import InputError
from symattn.document.evidence import Evidence, Grade

#: Whether an edit leaves the path of execution as it is, see ``Repair``.
ExecutionPath = Literal["same", "beyond", "wider", "other"]
_RESERVATIONS: dict[ExecutionPath, str] = {
    "same": "",
    "beyond": (
        "; its number is larger than every length that was tried, "
        "so it may only move the mistake to longer calls"
    ),
    "wider": "; its output then has a wider format, so it may only avoid the mistake",
    "other": "; the code then takes another path, so it may only avoid the mistake",
}
#: What a repair claims no more than.
NOT_MEANT = "The smallest edit found, not necessarily what you meant."


@dataclass(frozen=True, order=True)
class Replacement:
    """A new text in place of a part of a file: lines are counted from 1, columns of characters from 0."""

    line: int
    column: int
    end_line: int
    end_column: int
    new: str


def replaced(
    lines: Sequence[str], replacements: Iterable[Replacement], first: int = 1
) -> list[str]:
    """Return the lines of a text, the first of which has the number ``first``, with parts replaced.

    >>> replaced(["a = b  # why", "c"], [Replacement(1, 4, 1, 5, "2 * b")])
    ['a = 2 * b  # why', 'c']
    """
    result = list(lines)
    # From the end of the text to its start, so that the places before stay valid.
    for r in sorted(replacements, reverse=True):
        start, end = r.line - first, r.end_line - first
        text = result[start][: r.column] + r.new + result[end][r.end_column :]
        result[start : end + 1] = text.split("\n")
    return result


@dataclass(frozen=True)
class FilePosition:
    """A place in a file: line and column, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class RepairPart:
    """One of the edits of a repair that takes two: its first line, and the text before and after.

    The same text is changed at so many ``places``. Without ``old`` text the new one is a line of its own.
    """

    line: int
    old: str
    new: str
    places: int = 1

    RECORD = "line, old, new, places"

    @property
    def change(self) -> str:
        """The text before and after, each in backquotes: acc → acc * a."""
        # An inserted line has no old text, a removal no new one.
        if not self.new:
            return f"remove `{self.old}`"
        if not self.old:
            return f"insert the line `{self.new}`"
        several = f" at {self.places} places" if self.places > 1 else ""
        return f"`{self.old}` → `{self.new}`{several}"


@dataclass(frozen=True)
class Repair:
    """An edit of the source, and what is known of the function that it gives.

    file       the file that holds the function
    line       the first line that changes, counted from 1; ``column`` the first column there, ``end`` the end
    old, new   the text before and after, in one line each; of two edits those of both
    rule       the rule that made the edit
    path       "other" if lines of the code run that did not run before, or another number of times; "beyond" if they
               do not, and a new whole number is larger than every length that was tried; "wider" if the output has
               another format; else "same"
    grade      ``tested`` with its ``epsilon`` if the edited code agrees on residues, else ``sampled``
    tried      how many edits were tried, and ``possible`` how many the tiers that were searched have; each pair is one
    repaired   for how many of the ``wrong`` calls it gives what the definition does
    parts      two edits that make the repair together, in the order of the text; none if it is a single one
    places     at how many places the same text is changed
    within     the promises, as options, on whose inputs alone this holds; empty if on all of the domain
    tier       the tier of its rule, as docs/fix.md lists them; 4 for two edits
    """

    file: str
    replacements: tuple[Replacement, ...]
    old: str
    new: str
    rule: str
    path: ExecutionPath
    grade: Grade
    epsilon: float | None
    tried: int
    possible: int
    repaired: int
    wrong: int
    digest: str = ""
    parts: tuple[RepairPart, ...] = ()
    places: int = 1
    tier: int = 1
    within: str = ""

    RECORD = (
        "file, line, column, end, old, new, places, parts?, rule, path, grade, epsilon, "
        "tried, possible, repaired, wrong, within?"
    )

    @property
    def line(self) -> int:
        """The first line that changes."""
        return min(self.replacements).line

    @property
    def column(self) -> int:
        """The first column that changes."""
        return min(self.replacements).column + 1

    @property
    def end(self) -> FilePosition:
        """The place after the last part that changes."""
        last = max(self.replacements)
        return FilePosition(last.end_line, last.end_column + 1)

    @property
    def is_whole(self) -> bool:
        """Return whether the edited function has no fault that was found."""
        return self.repaired == self.wrong

    @property
    def change(self) -> str:
        """The place and the change: line 22 of attn.py, and ``change``; of two edits those of both."""
        parts = self.parts or (RepairPart(self.line, self.old, self.new, self.places),)
        first, *others = (f"{part.line}: {part.change}" for part in parts)
        place, _, change = first.partition(":")
        both = "".join(f", and line {other}" for other in others)
        return f"line {place} of {Path(self.file).name}:{change}{both}"

    @property
    def words(self) -> str:
        """The repair as a sentence of a report, without its end."""
        return f"{self.change} {self.outcome}"

    @property
    def words_of_both(self) -> str:
        """The repair as such a sentence if its two edits are listed below it."""
        return f"two edits of {Path(self.file).name} together {self.outcome}"

    @property
    def outcome(self) -> str:
        """The verb of the sentence and its end: what the code does then, how that is known, of how many edits."""
        tried = f"1 of {self.tried:,} edit{'s' * (self.tried != 1)} tried"
        if self.parts:
            tried = f"{tried}, each pair counted as one"
        within = f" with {self.within}" if self.within else ""
        if not self.is_whole:
            verb = "repair" if self.parts else "repairs"
            return f"{verb} {self.repaired} of {self.wrong} wrong calls{within} (sampled; {tried})"
        verb, evidence = "make" if self.parts else "makes", Evidence(self.grade, "", self.epsilon)
        equal = f"{verb} it equal to the definition{within}"
        return f"{equal} ({evidence}; {tried}){_RESERVATIONS[self.path]}"

    def diff(self, text: str | None = None) -> str:
        """Return the repair as a unified diff of its file. Raises ``InputError`` if the file has changed."""
        import difflib  # most functions are right, and have no diff

        old = self._read_unchanged_source() if text is None else text
        new = self._apply_repair_edits(old)
        name = _shown_path(self.file)
        lines = difflib.unified_diff(_kept_lines(old), _kept_lines(new), f"a/{name}", f"b/{name}")
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )

    def write(self) -> None:
        """Write the edited file in place. Raises ``InputError`` if it has changed since it was read."""
        old = self._read_unchanged_source()
        files.write(Path(self.file), self._apply_repair_edits(old).encode(), force=True)

    def _read_unchanged_source(self) -> str:
        try:
            content = Path(self.file).read_bytes()
        except OSError as error:
            raise InputError(f"{self.file} cannot be read: {error.strerror}") from None
        if hashlib.sha256(content).hexdigest() != self.digest:
            raise InputError(
                f"{self.file} has changed since it was verified; hint: verify it again"
            )
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise InputError(f"{self.file} is not UTF-8; hint: edit it by hand") from None

    def _apply_repair_edits(self, text: str) -> str:
        # The ends of lines stay those of the file, of which some may be others.
        end = "\r\n" if "\r\n" in text else "\n"
        edits = [replace(r, new=r.new.replace("\n", end)) for r in self.replacements]
        return "\n".join(replaced(text.split("\n"), edits))


@dataclass(frozen=True)
class Repairs:
    """The repairs that were found, best first, and a note if there is none or the search was cut short."""

    repairs: tuple[Repair, ...] = ()
    note: str = ""

    @property
    def were_sought(self) -> bool:
        """Return whether edits of the source were tried."""
        return bool(self.repairs or self.note)

    @property
    def explain(self) -> bool:
        """Return whether an edit makes the function right after which its code keeps its path."""
        return any(r.is_whole and r.path == "same" for r in self.repairs)


NO_REPAIRS = Repairs()


def _kept_lines(text: str) -> list[str]:
    # Patches end lines at newlines alone; str.splitlines also splits at form feeds.
    return [*StringIO(text, newline="\n")]


def _shown_path(file: str) -> str:
    """Return the path from the current folder if the file lies in it, as patches name files."""
    path = os.path.relpath(file)
    return (
        Path(path).as_posix()
        if not path.startswith(os.pardir)
        else Path(file).as_posix().lstrip("/")
    )
