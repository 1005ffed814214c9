"""``symattn walk``: an example of attention in exact numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .choices import Wholes
from .fields import fields, given
from .groups import Grouped
from .output import Output, accepting, options
from .progress import progress

if TYPE_CHECKING:
    from symattn.document.model import Document


MODEL = ("config", "weights", "layer", "head", "ids")


@click.command("walk", cls=Grouped)
@click.argument("source", default="eight-step", metavar="[EXAMPLE|FILE]")
@click.option("--step", type=int, help="Print one step.")
@click.option("--why", is_flag=True, help="Print the reason for every step.")
@click.option("--query", type=int, help="Query to follow, counted from 1.")
@click.option("--all", is_flag=True, help="Print all queries.")
@click.option(
    "--tokens",
    type=int,
    metavar="N",
    help="Use the first N tokens. To cut columns instead, use --truncate.",
)
@click.option(
    "--dtype", help="Type of the floating-point numbers beside the exact ones. Default: float32."
)
@click.option(
    "--rounding", help="Round weights to one decimal: exact, nearest or sum (keeps each sum)."
)
@click.option("--blank", metavar="STEPS", help="Leave these steps blank for students: 5,6.")
@click.option("--answers", is_flag=True, help="With --blank: add the solutions at the end.")
@click.option("--seed", type=int, help="Draw other small whole numbers with readable scores.")
@click.option(
    "--config", metavar="FILE", help="Walk one head of a model: its config.json, with --weights."
)
@click.option(
    "--weights",
    metavar="FILE",
    help="Weights of --config, in safetensors. Default: those in its folder.",
)
@click.option("--layer", type=int, help="Layer of --config, counted from 0.")
@click.option("--head", type=int, help="Head of --config, counted from 0.")
@click.option(
    "--ids",
    type=Wholes(0, 10**9),
    metavar="N,N,...",
    help="Token ids for --config. Default: 0,1,2.",
)
@fields
@options
@accepting
def command(source: str, output: Output, **wishes: object) -> int:
    """Walk through an example: every step in exact numbers, decimals and floating point.

    \b
    symattn walk eight-step --step 5 --why
    symattn walk eight-step --dtype float16 --no-stabilised --all
    symattn walk eight-step --seed 3 --blank 5,6 -o sheet.tex
    symattn examples show eight-step -f json -o my.json; symattn walk my.json
    symattn walk --config config.json --weights a.safetensors --ids 5,7

    EXAMPLE is one of `symattn examples`; FILE is JSON (fractions as "1/3") or npz with the arrays x, w_q, w_k, w_v (y,
    b_q, ..., w_o, b_o, mask, keep) or q, k, v, and the other inputs of its attention. Options that are fields of the
    attention replace those of the example.
    """
    from symattn.derivations import walks

    model = {name: wishes.pop(name) for name in MODEL}
    with progress("walking"):
        if model["config"] is not None:
            document = _of_head(model, **given(wishes))
        elif orphan := next((name for name in MODEL if model[name] is not None), None):
            raise click.UsageError(f"--{orphan} belongs to --config, which is not given")
        else:
            document = walks.walk(source, **given(wishes))
    return output.emit(document)


def _of_head(model: dict[str, Any], **wishes: object) -> Document:
    """Return the walk through one head of a model."""
    from .model_walk import walk_head

    stored_weights = Path(model["config"]) / "model.safetensors"
    weights = model["weights"] or (str(stored_weights) if stored_weights.is_file() else None)
    if weights is None and not Path(model["config"]).exists():
        raise click.UsageError(f"--config {model['config']}: there is no such folder or file")
    if weights is None:
        raise click.UsageError("--config names no numbers; hint: --weights model.safetensors")
    tokens = model["ids"] or (0, 1, 2)
    return walk_head(
        model["config"], weights, model["layer"] or 0, model["head"] or 0, tokens, **wishes
    )
