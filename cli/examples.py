"""``symattn examples``: the worked examples that ship with symattn."""

from __future__ import annotations

import click

from .choices import Choice
from .groups import Grouped
from .output import Output, listing, options


@click.command("examples", cls=Grouped)
@click.argument("action", type=Choice(("list", "show")), default="list")
@click.argument("name", required=False)
@options
def command(action: str, name: str | None, output: Output) -> int:
    """List the worked examples that `symattn walk` takes by name, or show one: its arrays as given.

    \b
    symattn examples
    symattn examples show eight-step
    """
    from symattn.derivations import examples

    if (action == "show") != (name is not None):
        raise click.UsageError("give `show NAME`, or `list` alone.")
    if name is not None:
        return output.emit(examples.show(name))
    rows = [((name,), (title,)) for name, title in examples.names().items()]
    return output.emit(
        listing("examples", "Worked examples", ("name", "shows"), rows, "symattn examples")
    )
