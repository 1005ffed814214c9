"""``symattn version``: the version, as ``symattn --version`` prints it."""

from __future__ import annotations

import click


@click.command("version")
def command() -> None:
    """Print the version, the same as `symattn --version`."""
    from symattn import __version__

    click.echo(f"symattn {__version__}")
