"""Where and in which format a document is written: the options that all commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

import click

from . import stream
from .arguments import again
from .choices import Choice
from .errors import Status, say
from .groups import under

if TYPE_CHECKING:
    from symattn.document.model import Document, Text

_HINT_WIDTH = 80  # columns
COQ = "coq"  # no document: see ``prove``
PATCHES = (".diff", ".patch")  # see ``verify --fix``
FORMATS = ("text", "latex", "markdown", "html", "json")
SARIF = "sarif"  # of commands that judge code
_DOCUMENT = under("Output", "output")
Detail = Literal["quiet", "usual", "verbose"]
_SHARED = ("form", "path", "force", "fragment", "check", "ascii", "colour")
_CONCISE = ("verbose", "quiet")


@dataclass(frozen=True, slots=True)
class Output:
    """The shared options, checked before any work is done."""

    format: str
    path: Path | None = None
    force: bool = False
    fragment: bool = False
    check: Path | None = None
    ascii: bool = False
    colour: stream.Colour = "auto"
    detail: Detail = "usual"
    accepted: str | None = None

    @classmethod
    def of(
        cls,
        form: str | None,
        path: str | None,
        force: bool,
        fragment: bool = False,
        check: str | None = None,
        ascii: bool | None = None,
        colour: stream.Colour = "auto",
        verbose: bool = False,
        quiet: bool = False,
        formats: Sequence[str] = FORMATS,
    ) -> Output:
        """Return the options, checked. Raises UsageError, or InputError if the file must not be written."""
        target = Path(path) if path and path != "-" else None
        compared_file = Path(check) if check else None
        if target and compared_file:
            raise click.UsageError("--check writes nothing, so it goes without -o.")
        if target:
            from symattn.document import files

            files.check(target, force)
        chosen = form or _by_suffix(target or compared_file)
        if chosen == SARIF and SARIF not in formats:
            raise click.UsageError("SARIF is what verify, judge and audit write.")
        if fragment and chosen not in ("latex", "html"):
            raise click.UsageError(
                f"--fragment belongs to latex and html, and the form is {chosen}."
            )
        if verbose and quiet:
            raise click.UsageError("-v prints more and -q prints less: give one of them.")
        if quiet and chosen != "text" and not target:
            raise click.UsageError(
                f"-q prints the answer alone, and not as {chosen}; hint: add -o FILE."
            )
        detail: Detail = "verbose" if verbose else "quiet" if quiet else "usual"
        plain = (
            ascii if ascii is not None else not (target or compared_file or stream.speaks_utf8())
        )
        return cls(chosen, target, force, fragment, compared_file, plain, colour, detail)

    def emit(self, document: Document, sarif: Callable[[], str] | None = None) -> Status:
        """Print, write or compare the document, and return the exit code; ``sarif`` gives its text in that format."""
        if sarif is not None and self.format == SARIF:
            compared_status = self.give(sarif(), answer_of(document))
            return status(document) if compared_status is None else compared_status
        document = document.whole() if self.detail == "verbose" else document
        compared_status = self.give(self.rendered(document), answer_of(document))
        if compared_status is not None:
            return compared_status
        printed = self.detail != "quiet" and not self.path
        if printed and self.format == "text":
            for line in hint_lines(document.hints):
                stream.tell(line)
        return status(document, self.accepted)

    def give(self, text: str, answer: str) -> Status | None:
        """Print or write the text, or with ``-q`` print the ``answer``; return the exit code of a comparison."""
        if self.check:
            return compared(self.check, text)
        if self.path:
            from symattn.document import files

            files.write(self.path, text, self.force)
        if self.detail == "quiet":
            stream.write(answer + "\n")
        elif not self.path:
            stream.write(text)
        return None

    def rendered(self, document: Document) -> str:
        """Return the text of a document in the chosen format."""
        from symattn.document.render import render

        if self.format == COQ:
            raise click.UsageError(
                "a file for Coq is what `symattn prove NAME --coq` writes, and nothing else."
            )

        options: dict[str, Any] = {}
        if self.format == "text":
            to_stdout = not (self.path or self.check)
            options = {"ascii": self.ascii, "colour": to_stdout and stream.colours(self.colour)}
            options |= {"columns": stream.columns()} if to_stdout else {}
        elif self.fragment:
            options = {"fragment": True}
        return render(document, self.format, **options)


def hint_lines(hints: Sequence[str]) -> Iterator[str]:
    """Yield the lines of what to try next: commands, and what they are for in a column of its own.

    What would end beyond the column 80 stands on a line of its own.

    >>> list(hint_lines(["symattn derive rope   rotations", "symattn prove"]))
    ['Next    symattn derive rope   rotations', '        symattn prove']
    """
    lead, room = "Next    ", _HINT_WIDTH - len("Next    ")
    pairs = [re.split(r" {2,}", hint, maxsplit=1) for hint in hints]
    fitting = [len(pair[0]) for pair in pairs if len("  ".join(pair)) < room and len(pair) > 1]
    longest = max((len(pair[-1]) for pair in pairs if len(pair) > 1), default=0)
    column = min(max(fitting, default=0) + 3, room - longest)
    for command, *meaning in pairs:
        fits = meaning and len(command) + 2 <= column
        below = [f"    {words}" for words in meaning]
        for line in (
            [f"{command:{column}}{meaning[0]}"] if fits else [*_in_lines(command, room), *below]
        ):
            yield lead + line
            lead = " " * len(lead)


def _in_lines(hint: str, width: int) -> list[str]:
    """Return a sentence in lines of this width; a command, which may be copied, in one line."""
    return [hint] if hint.startswith("symattn ") else wrap(hint, width, subsequent_indent="    ")


def answer_of(document: Document) -> str:
    """Return the answer alone: the verdict in capitals, else the title."""
    from symattn.document.text import plain_text

    return document.verdict.value.upper() if document.verdict else plain_text(document.title)


def status(document: Document, accepted: str | None = None) -> Status:
    """Return 0 if the document's claim holds, 1 for a fault or a false statement, 3 if it is undecided.

    ``accepted`` is a grade that counts as undecided otherwise.
    """
    from symattn.document.evidence import Grade

    holds = document.holds_if(Grade(accepted)) if accepted else document.holds
    return {True: Status.HOLDS, False: Status.FAULT, None: Status.UNDECIDED}[holds]


def accepting(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command with ``options`` the option that accepts statements of the grade ``searched``."""

    @click.option(
        "--accept",
        type=Choice(("searched",)),
        help="Exit with 0 for this grade, which says that no counterexample was found.",
    )
    @wraps(command)
    def with_grade(*arguments: Any, accept: str | None, output: Output, **wishes: Any) -> int:
        return command(*arguments, output=replace(output, accepted=accept), **wishes)

    return with_grade


def compared(path: Path, content: str | bytes) -> Status:
    """Return whether the file has this content, apart from times and line ends. Raises InputError if unreadable."""
    try:
        existing = path.read_bytes()
    except OSError as error:
        from symattn.document.errors import InputError

        raise InputError(f"{path} cannot be compared: {error.strerror or error}") from error
    if _timeless(existing) == _timeless(
        content.encode(errors="replace") if isinstance(content, str) else content
    ):
        return Status.HOLDS
    say(f"symattn: {path} is out of date; hint: {again(path)}")
    return Status.FAULT


def _timeless(content: bytes) -> bytes:
    """Return the content without the times in JSON documents, which differ from run to run."""
    text = content.replace(b"\r\n", b"\n")
    return re.sub(rb'^( *"seconds": )[\d.e-]+', rb"\g<1>0", text, flags=re.MULTILINE)


def options(command: Callable[..., int], formats: Sequence[str] = FORMATS) -> Callable[..., int]:
    """Give a command the shared options; it receives them as ``output``."""

    @_DOCUMENT(
        "-f",
        "--format",
        "form",
        type=Choice(formats),
        help="Format of the output. Default: text, or by the suffix of FILE.",
    )
    @_DOCUMENT(
        "-o", "--output", "path", metavar="FILE", help="Write FILE, in the format of its suffix."
    )
    @_DOCUMENT("--force", is_flag=True, help="Replace FILE even if symattn did not write it.")
    @_DOCUMENT(
        "--fragment",
        is_flag=True,
        help="Omit the preamble, for inclusion in a document (latex, html).",
    )
    @_DOCUMENT(
        "--check", metavar="FILE", help="Write nothing, and exit with 1 if FILE is out of date."
    )
    @_DOCUMENT(
        "--ascii/--unicode",
        "ascii",
        default=None,
        help="Print ASCII only. Default: where stdout needs it.",
    )
    @_DOCUMENT(
        "--color",
        "colour",
        type=Choice(("auto", "always", "never")),
        default="auto",
        help="Colour. Default: auto, on a terminal unless NO_COLOR is set.",
    )
    @wraps(command)
    def with_output(*arguments: Any, **wishes: Any) -> int:
        shared = {name: wishes.pop(name) for name in _SHARED}
        shared |= {name: wishes.pop(name) for name in _CONCISE if name in wishes}
        return command(*arguments, output=Output.of(**shared, formats=formats), **wishes)

    return with_output


def options_with_sarif(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command that judges code the shared options, SARIF among the formats."""
    return options(command, (*FORMATS, SARIF))


def concise(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command whose documents have details the options ``-v`` and ``-q``; it stands above ``options``."""
    more = _DOCUMENT(
        "-v", "--verbose", is_flag=True, help="Print all details: how the answer was reached."
    )
    less = _DOCUMENT("-q", "--quiet", is_flag=True, help="Print the answer alone.")
    return more(less(command))


def _by_suffix(path: Path | None) -> str:
    if path is None or path.suffix in PATCHES:
        return "text"
    if path.suffix == ".v":
        return COQ
    if path.suffix == ".sarif":
        return SARIF
    from symattn.document.render import format_of

    return str(format_of(path))


def listing(
    name: str, title: str, columns: tuple[str, ...], rows: Iterable[tuple[Text, ...]], command: str
) -> Document:
    """Return a document that lists the choices: a table of left-aligned columns under a title."""
    from symattn.document.model import Document, Table, headers

    heads = headers(*columns)
    return Document("listing", name, (title,), (Table(heads, tuple(rows)),), command=command)
