"""``symattn explore``: a page on which the inputs of a walk are edited."""

from __future__ import annotations

from pathlib import Path

import click

from .errors import Status
from .groups import Grouped
from .output import compared
from .progress import progress


@click.command("explore", cls=Grouped)
@click.argument("source", default="eight-step", metavar="[EXAMPLE|FILE]")
@click.option(
    "-o", "--output", "path", metavar="FILE", help="Write the page to FILE, which ends with .html."
)
@click.option("--force", is_flag=True, help="Replace FILE even if symattn did not write it.")
@click.option(
    "--check", metavar="FILE", help="Write nothing, and exit with 1 if FILE is out of date."
)
def command(source: str, path: str | None, force: bool, check: str | None) -> int:
    """Write a page on which the inputs of an EXAMPLE or a FILE are edited, and every step is recomputed exactly.

    \b
    symattn explore -o page.html
    symattn explore E1 -o page.html
    symattn explore scaling -o page.html

    Tokens and weights are edited in place; scale, mask, temperature, heads and floating-point format are chosen there,
    and a link holds the state. EXAMPLE may be `scaling`: scores and weights as d_k grows. The page loads nothing, and
    works without a network.
    """
    from symattn.derivations.explore import explore, named
    from symattn.document import files

    if (path is None) == (check is None):
        raise click.UsageError(
            "give -o FILE to write a page, or --check FILE to check whether it is up to date."
        )
    if path is not None:
        files.check(named(path), force)
    with progress("walking"):
        exploration = explore(source)
    if check is not None:
        return compared(Path(check), exploration.html())
    exploration.save(str(path), force=force)
    return Status.HOLDS
