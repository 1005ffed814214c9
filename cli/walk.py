"""``symattn walk``: an example of attention in exact numbers."""

from __future__ import annotations

from typing import Any

import click

from .choices import Choice
from .output import Output, given, options


@click.command("walk", short_help="Walk through an example in exact numbers.")
@click.argument("source", default="eight-step", metavar="[EXAMPLE|FILE]")
@click.option("--step", type=int, help="This step alone.")
@click.option("--why", is_flag=True, help="With the reason of every step.")
@click.option("--query", type=int, help="The query to follow; the first is 1.")
@click.option("--all", is_flag=True, help="All queries.")
@click.option("--dtype", help="Beside the exact numbers, what is computed in this type; by default float32.")
@click.option("--rounding", help="How weights are rounded to one decimal: exact, nearest or sum (keeps each sum).")
@click.option("--scale", metavar="NUMBER", help="Another factor of the scores: 1/8, none or 1/sqrt(d_k).")
@click.option("--causal/--no-causal", default=None, help="A query attends to no later key.")
@click.option("--alignment", type=Choice(("bottom-right", "top-left")), help="The corner where causal masks start.")
@click.option("--heads", type=int, help="h, the number of heads.")
@click.option("--fully-masked", type=Choice(("zeros", "nan", "error")), help="What a row without any key gives.")
@click.option("--stabilised/--no-stabilised", default=None, help="Subtract each row's maximum before exponentiating.")
@options
def command(source: str, output: Output, **wishes: Any) -> int:
    """Walk through an example: every step exact, beside its decimal and what floating point gives.

    EXAMPLE is one of `symattn examples`; FILE is your own, JSON (fractions as "1/3") or npz with the arrays x, w_q,
    w_k, w_v (y, b_q, ..., w_o, b_o, mask, keep) or q, k, v.

    \b
    symattn walk eight-step --step 5 --why
    symattn walk eight-step --dtype float16 --no-stabilised --all
    symattn examples show eight-step -f json -o sheet.json; symattn walk sheet.json
    """
    from symattn.derivations import walks

    fields = {name: wishes.pop(name) for name in ("causal", "stabilised") if wishes[name] is not None}
    wishes = {name: wish for name, wish in wishes.items() if name not in ("causal", "stabilised")}
    return output.emit(walks.walk(source, **given(wishes), **fields))
