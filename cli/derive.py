"""``symattn derive``: derive a fact about attention step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .fields import fields, given
from .groups import Grouped
from .output import Output, accepting, listing, options
from .progress import progress

if TYPE_CHECKING:
    from symattn.document.model import Document


@click.command("derive", cls=Grouped)
@click.argument("name", default="scaling")
@click.option("--list", "wanted", is_flag=True, help="List the derivations and their parameters.")
@click.option(
    "--all",
    is_flag=True,
    help="Print every step and every part of a long derivation, not only the answer.",
)
@click.option("--step", type=int, metavar="N", help="Print one step, by its number.")
@click.option(
    "--part", metavar="NAME", help="Print one part, by its number or by words of its title."
)
@click.option("--dk", type=int, help="d_k, the size of queries and keys.")
@click.option("--dv", type=int, help="d_v, the size of values.")
@click.option("--dmodel", type=int, help="d_model, the size of inputs.")
@click.option("--tokens", type=int, help="n, the number of tokens.")
@click.option("--keys", type=int, help="n_k, the number of keys, if it is not n.")
@click.option("--mean", help="Mean of a component: 0, another number, or a letter such as mu.")
@click.option("--cross", is_flag=True, help="Keys and values come from another sequence.")
@click.option("--biases", is_flag=True, help="The projections have biases.")
@click.option(
    "--size", metavar="LETTER=N,...", help="Other sizes by letter, such as l=4,d_r=2 for latents."
)
@fields
@click.option(
    "--config", metavar="FILE", help="Attention of a model: its config.json, or its folder."
)
@click.option(
    "--layer", type=int, default=0, show_default=True, help="Layer of --config, counted from 0."
)
@click.option(
    "--kind",
    default="self",
    show_default=True,
    help="Part of --config: self, encoder, decoder, cross.",
)
@click.option("--seed", type=int, help="Seed of random samples.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache.")
@options
@accepting
def command(
    name: str, wanted: bool, all: bool, step: int | None, part: str | None, no_cache: bool, output: Output,
    **parameters: Any,
) -> int:  # fmt: skip
    """Derive a fact about attention, step by step, each step with its reason and its grade.

    \b
    symattn derive scaling --dk 4
    symattn derive scaling --dk 4 --all
    symattn derive scaling --dk 4 --part jacobian
    symattn derive jacobian --tokens 3 -f latex -o jacobian.tex
    symattn derive attention --causal --heads 2

    NAME is one of `symattn derive --list`. Default: scaling, why the scores are divided by sqrt(d_k). The fields of an
    attention (`symattn help fields`) are parameters of `symattn derive attention`. A derivation of more than two
    results prints its answer in short; --all prints the rest, and JSON always holds everything.
    """
    if wanted:
        return output.emit(_listing())
    config, layer, kind = (parameters.pop(option) for option in ("config", "layer", "kind"))
    from symattn import derivations

    if config is not None:
        return output.emit(
            derivations.chosen(_of_model(name, config, layer, kind, parameters), all, step, part)
        )
    with progress(f"deriving {name}"):
        make = derivations.derive if no_cache else derivations.cached
        document = make(name, all=all, step=step, part=part, **given(parameters))
    return output.emit(document)


def _of_model(
    name: str, config: str, layer: int, kind: str, parameters: dict[str, Any]
) -> Document:
    """Return the formulas of one layer of a model. Raises InputError unless ``name`` is ``attention``."""
    from symattn.document.errors import InputError

    from .model_formulas import formulas

    if name != "attention":
        raise InputError(f"--config belongs to `symattn derive attention`, not to {name}")
    with progress("deriving attention"):
        return formulas(config, layer, kind, **given(parameters))


def _listing() -> Document:
    from symattn import derivations
    from symattn.document.model import Code

    rows = [
        (
            (Code(entry.name),),
            (entry.proves,),
            (Code(" ".join(f"--{p.replace('_', '-')}" for p in entry.parameters)),),
        )
        for entry in derivations.names().values()
    ]
    return listing(
        "derivations",
        "Derivations",
        ("name", "proves", "parameters"),
        rows,
        "symattn derive --list",
    )
