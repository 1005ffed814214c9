"""``symattn bound``: how far may correct code be off?"""

from __future__ import annotations

from pathlib import Path

import click

from .arguments import line
from .choices import Choice, Whole, Wholes
from .fields import fields, given
from .groups import Grouped
from .output import Output, concise, options
from .progress import progress
from .variants import specified, variants


def words(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[str, ...] | None:
    """Return the words of a comma-separated list."""
    return None if text is None else tuple(part.strip() for part in text.split(","))


def path(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Return the name of a file. Two words that were once accepted here are refused with what to write instead."""
    if text in ("normal", "bounded") and not Path(text).exists():
        raise click.BadParameter(
            f"{text!r} is not a file; hint: leave it out, and say --largest X for bounded entries."
        )
    return text


@click.command("bound", cls=Grouped)
@click.option(
    "--n", type=Wholes(1, 2**24), help="Number of keys, or several: 256,1024. Default: 1024."
)
@click.option("--dk", type=Wholes(1, 2**24), help="d_k, or several: 64,128. Default: 64.")
@click.option(
    "--dtype",
    default="float32",
    callback=words,
    help="Arithmetic, or several: float32,bf16,fp16. Default: float32.",
)
@click.option(
    "--contract",
    type=Choice(("eager", "fused")),
    help="Whether scores are stored in the input type or wider. Default: fused.",
)
@click.option(
    "--accumulate", metavar="FORMAT", help="Arithmetic of sums: float32, fp32-truncated, fp22, ..."
)
@click.option(
    "--tile", type=Whole(1), metavar="KEYS", help="Number of keys in a tile of a streaming kernel."
)
@click.option(
    "--largest",
    type=float,
    metavar="X",
    help="Largest absolute entry. Default: entries from N(0, 1).",
)
@click.option(
    "--inputs",
    "--input",
    callback=path,
    metavar="FILE",
    help="An npz file with q, k, v, ...: bound each element.",
)
@click.option(
    "--compare/--no-compare",
    default=None,
    help="Also show what common tolerances accept and refuse.",
)
@click.option("--seed", type=Whole(0), help="Seed of the inputs of --compare.")
@click.option(
    "--alpha",
    type=float,
    default=1e-9,
    metavar="P",
    help="Probability that a correct output exceeds the sharp tolerance.",
)
@fields
@variants
@concise
@options
def command(output: Output, **wishes: object) -> int:
    """Print the tolerance that a test of correct attention needs, the step it comes from, and why it holds.

    \b
    symattn bound --n 4096 --dk 128 --dtype bfloat16 --contract fused
    symattn bound --n 256,1024,4096 --dk 64,128 --dtype fp32,fp16,bf16
    symattn bound --inputs qkv.npz --dtype float16 --causal
    """
    from symattn.verification.tolerances.tolerance import document

    settings = given(wishes)
    names = (
        "n",
        "dk",
        "dtype",
        "compare",
        "contract",
        "accumulate",
        "tile",
        "inputs",
        "largest",
        "seed",
        "alpha",
    )
    own = {name: settings.pop(name, wishes[name]) for name in names if wishes[name] is not None}
    spec = specified(settings, whole=True).spec
    with progress("bounding"):
        answer = document(spec, line(click.get_current_context()), **own)
    return output.emit(answer)
