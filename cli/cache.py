"""``symattn cache``: results stored from one call to the next."""

from __future__ import annotations

import click

from .choices import Choice
from .groups import Grouped
from .output import Output, options


@click.command("cache", cls=Grouped)
@click.argument("action", type=Choice(("show", "clear")), default="show")
@options
def command(action: str, output: Output) -> int:
    """Show the location and size of the cache of theorems and derivations, or clear it.

    \b
    symattn cache
    symattn cache clear

    Entries are found by their content, so none is out of date when symattn or a theorem changes. SYMATTN_CACHE sets
    another folder.
    """
    from symattn.document import stored_results
    from symattn.document.model import Code, Document, Paragraph, Table, headers

    cleared = stored_results.clear() if action == "clear" else None
    kinds = stored_results.sizes()
    files, size = (
        (sum(numbers) for numbers in zip(*kinds.values(), strict=True)) if kinds else (0, 0)
    )
    rows = tuple(((kind,), (str(n),), (_size(b),)) for kind, (n, b) in kinds.items())
    columns = headers("what", ">files", ">size")
    message = f"{files} files, {_size(size)}" if cleared is None else f"{cleared} files are cleared"
    where = Paragraph(("The folder is ", Code(str(stored_results.folder())), "."))
    record = {"folder": str(stored_results.folder()), "files": files, "bytes": size}
    return output.emit(
        Document(
            "listing",
            "cache",
            ("What is kept",),
            (where, *((Table(columns, rows),) if rows else ())),
            (message,),
            f"symattn cache{' clear' if cleared is not None else ''}",
            record=record if cleared is None else {**record, "cleared": cleared},
        )
    )


def _size(size: int) -> str:
    return (
        f"{size} B"
        if size < 1000
        else f"{size / 1e3:.0f} kB"
        if size < 1e6
        else f"{size / 1e6:.1f} MB"
    )
