"""``symattn prove``: prove theorems for all sizes."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .choices import Whole
from .errors import Status, say
from .groups import Grouped
from .output import COQ, Output, accepting, options
from .progress import progress

if TYPE_CHECKING:
    from symattn.document.model import Document, Text
    from symattn.proof.theorem import Theorem
    from symattn.theorems.documents import Decided

_SHORT = 200  # longest statement in a list, in characters: four lines


@click.command("prove", cls=Grouped)
@click.argument("names", nargs=-1, metavar="[NAME|TOPIC|FILE]...")
@click.option(
    "--all", "every", is_flag=True, help="Prove the whole catalogue, with a table for each topic."
)
@click.option("--list", "wanted", is_flag=True, help="List the theorems, and prove nothing.")
@click.option(
    "--search", metavar="WORDS", help="List the theorems that contain WORDS, and prove nothing."
)
@click.option(
    "--explain",
    is_flag=True,
    help="Print the whole argument and the verdict of the independent checker.",
)
@click.option(
    "--certificate",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the certificates of one theorem, for `symattn check`.",
)
@click.option(
    "--coq",
    is_flag=True,
    help="Let the proof assistant Coq check the equations; -o NAME.v writes them.",
)
@click.option(
    "--jobs", type=Whole(1, 256), default=1, metavar="N", help="Number of processes. Default: 1."
)
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache.")
@options
@accepting
def command(
    names: tuple[str, ...],
    every: bool,
    wanted: bool,
    search: str | None,
    explain: bool,
    certificate: Path | None,
    coq: bool,
    jobs: int,
    no_cache: bool,
    output: Output,
) -> int:
    """Prove theorems about attention for all sizes, and refute a false variant of each.

    \b
    symattn prove softmax-shift --explain
    symattn prove masks -f latex -o masks.tex
    symattn prove --search variance
    symattn prove mine.py
    symattn prove softmax-shift --coq -o softmax_shift.v

    NAME and TOPIC are listed by `symattn prove --list`; words such as rope, gqa or multihead work too. FILE is a Python
    file or module of yours that states theorems. The exit code is 0 if every grade is at least checked, 1 if a
    statement is refuted, and 3 if one is undecided or only searched.
    """
    if output.format == COQ and not coq:
        raise click.UsageError("a file for Coq goes with --coq.")
    if every and names:
        raise click.UsageError("--all is the whole catalogue, so it goes without names.")
    if wanted or search is not None:
        return output.emit(_listing(names, search))
    from symattn.document import files
    from symattn.proving import document, mistake_in

    if certificate:
        files.check(certificate, output.force, "certificates")
    results = proved(
        names, explain=explain or coq or bool(certificate), jobs=jobs, cached=not no_cache
    )
    if certificate:
        _write(results, certificate, output.force)
        results = (
            results if explain else [replace(d, explained=(), certificates=()) for d in results]
        )
    if coq:
        results, output = _by_coq(results, names, explain, jobs, output)
    status = output.emit(document(results, names, explain, coq))
    mistakes = [f"symattn: {why}" for why in map(mistake_in, results) if why]
    for line in mistakes:
        say(line)
    return Status.USAGE if mistakes else status


def proved(names: tuple[str, ...], *, explain: bool, jobs: int, cached: bool) -> list[Decided]:
    """Decide the theorems with these names, topics or files. What a user's file prints goes to stderr."""
    from symattn.proving import decided

    with redirect_stdout(sys.stderr), progress("proving") as show:

        def show_theorem(done: int, of: int, name: str) -> None:
            show(f"{done} of {of}, {name}")

        return decided(names, explain=explain, jobs=jobs, cached=cached, progress=show_theorem)


def _by_coq(
    results: list[Decided], names: tuple[str, ...], explain: bool, jobs: int, output: Output
) -> tuple[list[Decided], Output]:
    """Return the theorems with the verdict of Coq, and the output options; write the file for Coq if there is one."""
    from symattn.document import files
    from symattn.document.codec import command as command_of
    from symattn.theorems.coq import checked

    results = results if explain else [replace(d, explained=()) for d in results]
    coq_results = checked(
        results, command_of("prove", *names, options={"all": not names or None, "coq": True}), jobs
    )
    if output.format == COQ and output.path:
        if coq_results.file:
            files.write(output.path, coq_results.file, output.force)
        output = replace(output, format="text", path=None)
    return coq_results.found, output


def _write(results: list[Decided], path: Path, force: bool) -> None:
    """Write the certificates of a theorem. Raises InputError unless there is exactly one."""
    from symattn.document import files
    from symattn.document.errors import InputError
    from symattn.theorems.documents import certified

    if len(results) != 1:
        raise InputError(
            f"--certificate is for one theorem, and these are {len(results)}; hint: name one"
        )
    files.write(path, certified(results[0]), force, "certificates")


def _statement(theorem: Theorem) -> Text:
    """Return the line of a theorem in a list: its statement, or its title if that is longer than four lines."""
    from symattn.document.text import plain_text

    if theorem.title and len(plain_text(theorem.says)) > _SHORT:
        return (theorem.title, " …")
    return theorem.says if theorem.letters else ("In words: ", *theorem.says)


def _listing(names: tuple[str, ...], search: str | None) -> Document:
    """Return a list of the theorems and their statements, topic by topic."""
    from symattn.document.codec import command as command_of
    from symattn.document.errors import InputError
    from symattn.document.model import Block, Code, Document, Heading, Table, headers
    from symattn.proving import gathered
    from symattn.theorems import matching
    from symattn.theorems.documents import titled

    chosen = tuple(theorem for theorem, _ in gathered(names).values())
    chosen = chosen if search is None else matching(search, chosen)
    if not chosen:
        where = f" of {', '.join(names)}" if names else ""
        raise InputError(
            f"no theorem{where} mentions {search!r}; hint: fewer words, or symattn prove --list"
        )
    columns = headers("theorem", "says")
    blocks: list[Block] = []
    for topic in dict.fromkeys(t.topic for t in chosen):
        of_topic = (t for t in chosen if t.topic == topic)
        rows = tuple(((Code(t.name),), _statement(t)) for t in of_topic)
        blocks += [Heading((f"{titled(topic)} ({topic})",)), Table(columns, rows)]
    words = command_of("prove", *names, options={"list": search is None or None, "search": search})
    many = (f"{len(chosen)} theorem{'s' * (len(chosen) != 1)}",)
    record = {
        "theorems": [
            {"name": t.name, "topic": t.topic, "read": t.letters is not None} for t in chosen
        ]
    }
    return Document(
        "listing", "theorems", ("Theorems",), tuple(blocks), many, command=words, record=record
    )
