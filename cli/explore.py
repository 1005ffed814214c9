"""``symattn explore``: a page on which scale, mask and format of a walk are chosen."""

from __future__ import annotations

from pathlib import Path

import click

from .errors import Status
from .groups import Grouped
from .output import compared
from .progress import progress


@click.command("explore", cls=Grouped, short_help="Write a page to explore an example: scale, mask, format.")
@click.argument("source", default="eight-step", metavar="[EXAMPLE|FILE]")
@click.option("-o", "--output", "path", metavar="FILE", help="Write FILE, a page: .html.")
@click.option("--force", is_flag=True, help="Replace FILE even if symattn did not write it.")
@click.option("--check", metavar="FILE", help="Write nothing; exit with 1 if FILE is stale.")
def command(source: str, path: str | None, force: bool, check: str | None) -> int:
    """Write a page with all walks through an EXAMPLE or a FILE, on which the scale, the mask and the floating format
    are chosen.

    Every number is made when the page is written; it loads nothing, and works without a network.

    \b
    symattn explore -o page.html
    symattn explore E1 -o page.html
    """
    from symattn.drawing.explore import explore, named
    from symattn.render import files

    if (path is None) == (check is None):
        raise click.UsageError("give -o FILE to write a page, or --check FILE to look whether it is stale.")
    if path is not None:
        files.check(named(path), force)
    with progress("walking"):
        found = explore(source)
    if check is not None:
        return compared(Path(check), found.html())
    found.save(str(path), force=force)
    return Status.HOLDS
