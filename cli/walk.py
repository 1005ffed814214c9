"""``symattn walk``: an example of attention in exact numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .fields import NAMES, chosen, fields
from .groups import Grouped
from .numbers import ids as numbered
from .output import Output, given, options
from .progress import progress

if TYPE_CHECKING:
    from symattn.document.model import Document


MODEL = ("config", "weights", "layer", "head", "ids")


@click.command("walk", cls=Grouped, short_help="Walk through an example in exact numbers.")
@click.argument("source", default="eight-step", metavar="[EXAMPLE|FILE]")
@click.option("--step", type=int, help="This step alone.")
@click.option("--why", is_flag=True, help="With the reason of every step.")
@click.option("--query", type=int, help="The query to follow; the first is 1.")
@click.option("--all", is_flag=True, help="All queries.")
@click.option(
    "--tokens", type=int, metavar="N", help="The first N tokens alone. To cut columns and not tokens: --truncate."
)
@click.option("--dtype", help="Beside the exact numbers, what is computed in this type; by default float32.")
@click.option("--rounding", help="How weights are rounded to one decimal: exact, nearest or sum (keeps each sum).")
@click.option("--blank", metavar="STEPS", help="Leave these steps empty for a pupil: 5,6.")
@click.option("--answers", is_flag=True, help="With --blank: add what belongs there at the end.")
@click.option("--seed", type=int, help="Draw other numbers: small, whole, with scores that stay readable.")
@click.option("--config", metavar="FILE", help="One head of a model: its config.json, with --weights.")
@click.option("--weights", metavar="FILE", help="Of --config: the weights, in safetensors; those in its folder.")
@click.option("--layer", type=int, help="Of --config: the layer, counted from 0.")
@click.option("--head", type=int, help="Of --config: the head, counted from 0.")
@click.option("--ids", metavar="N,N,...", help="Of --config: the tokens by their numbers; by default 0,1,2.")
@fields
@options
def command(source: str, output: Output, **wishes: Any) -> int:
    """Walk through an example: every step exact, beside its decimal and what floating point gives.

    EXAMPLE is one of `symattn examples`; FILE is your own, JSON (fractions as "1/3") or npz with the arrays x, w_q,
    w_k, w_v (y, b_q, ..., w_o, b_o, mask, keep) or q, k, v, and what else its attention takes. An option that is a
    field of the attention replaces that of the example.

    \b
    symattn walk eight-step --step 5 --why
    symattn walk eight-step --dtype float16 --no-stabilised --all
    symattn walk eight-step --seed 3 --blank 5,6 -o sheet.tex
    symattn examples show eight-step -f json -o sheet.json; symattn walk sheet.json
    symattn walk --config config.json --weights model.safetensors --layer 0 --head 1 --ids 5,7
    """
    from symattn.derivations import walks

    model = {name: wishes.pop(name) for name in MODEL}
    others = {name: wish for name, wish in wishes.items() if name not in NAMES}
    with progress("walking"):
        if model["config"] is not None:
            found = _of_head(model, **given(others), **chosen(wishes))
        elif lost := next((name for name in MODEL if model[name] is not None), None):
            raise click.UsageError(f"--{lost} belongs to --config, which is not given")
        else:
            found = walks.walk(source, **given(others), **chosen(wishes))
    return output.emit(found)


def _of_head(model: dict[str, Any], **wishes: Any) -> Document:
    """The walk through one head of a model."""
    from cli.model_walk import walk_head

    weights = model["weights"] or _of_folder(model["config"])
    if weights is None and not Path(model["config"]).exists():
        raise click.UsageError(f"--config {model['config']}: there is no such folder or file")
    if weights is None:
        raise click.UsageError("--config names no numbers; mend: --weights model.safetensors")
    tokens = numbered(model["ids"] or "0,1,2")
    return walk_head(model["config"], weights, model["layer"] or 0, model["head"] or 0, tokens, **wishes)


def _of_folder(config: str) -> str | None:
    """The weights of a checkpoint in one file, where its folder is named and not its config.json."""
    found = Path(config) / "model.safetensors"
    return str(found) if found.is_file() else None
