"""``symattn report``: all theorems as one volume."""

from __future__ import annotations

import click

from .choices import Whole
from .groups import Grouped
from .output import Output, accepting, options
from .prove import proved


@click.command("report", cls=Grouped)
@click.option("--book", is_flag=True, help="All theorems as one volume. This is the default.")
@click.option("--explain", is_flag=True, help="Include the equations of every proof.")
@click.option(
    "--jobs", type=Whole(1, 256), default=1, metavar="N", help="Number of processes. Default: 1."
)
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache.")
@options
@accepting
def command(book: bool, explain: bool, jobs: int, no_cache: bool, output: Output) -> int:
    """Write all theorems as one volume: contents, statements, hypotheses, proofs, grades and false variants.

    \b
    symattn report -o book.tex
    symattn report --explain -o book.md
    """
    from symattn.document.codec import command as command_of
    from symattn.theorems.documents import book as volume

    results = proved((), explain=explain, jobs=jobs, cached=not no_cache)
    return output.emit(
        volume(results, command_of("report", options={"book": True, "explain": explain or None}))
    )
