"""``symattn walk``: an example of attention in exact numbers."""

from __future__ import annotations

from typing import Any

import click

from .output import Output, given, options


@click.command("walk", short_help="Walk through an example in exact numbers.")
@click.argument("source", default="eight-step", metavar="[EXAMPLE|FILE]")
@click.option("--step", type=int, help="This step alone.")
@click.option("--why", is_flag=True, help="With the reason of every step.")
@click.option("--query", type=int, help="The query to follow; the first is 1.")
@click.option("--all", is_flag=True, help="All queries.")
@click.option("--dtype", help="Beside the exact numbers, what NumPy gives in this type: float16, float32.")
@click.option("--rounding", help="How weights are rounded: exact, nearest or sum.")
@options
def command(source: str, output: Output, **wishes: Any) -> int:
    """Walk through an example: every step exact, beside its decimal.

    EXAMPLE is one of `symattn examples`; FILE is your own, JSON (fractions as "1/3") or npz.
    """
    from symattn.derivations import walks

    return output.emit(walks.walk(source, **given(wishes)))
