"""``symattn derive``: why is it so?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .output import Output, given, options
from .specification import specification

if TYPE_CHECKING:
    from symattn.document.model import Document


@click.command("derive", short_help="Derive a fact about attention, step by step.")
@click.argument("name", default="scaling")
@click.option("--list", "wanted", is_flag=True, help="List the derivations and their parameters.")
@click.option("--dk", type=int, help="d_k, the size of queries and keys.")
@click.option("--dv", type=int, help="d_v, the size of values.")
@click.option("--dmodel", type=int, help="d_model, the size of inputs.")
@click.option("--tokens", type=int, help="n, the number of tokens.")
@click.option("--keys", type=int, help="n_k, the number of keys, where it is another.")
@click.option("--mean", help="Mean of a component: 0, another number, or a letter such as mu.")
@click.option("--cross", is_flag=True, help="Keys and values come from another sequence.")
@click.option("--bias", is_flag=True, help="The projections have biases.")
@specification
@click.option("--seed", type=int, help="Seed of what is sampled.")
@options
def command(name: str, wanted: bool, output: Output, **parameters: Any) -> int:
    """Derive a fact about attention, step by step, each with its reason and its grade.

    NAME is one of `symattn derive --list`; by default scaling: why the scores are divided by sqrt(d_k).
    """
    from symattn import derivations

    if wanted:
        return output.emit(_listing())
    return output.emit(derivations.derive(name, **given(parameters)))


def _listing() -> Document:
    from symattn import derivations
    from symattn.document.model import Code

    from .listing import listing

    rows = [
        ((Code(entry.name),), (entry.proves,), (Code(" ".join(f"--{parameter}" for parameter in entry.parameters)),))
        for entry in derivations.names().values()
    ]
    return listing("derivations", "Derivations", ("name", "proves", "parameters"), rows, "symattn derive --list")
