"""``symattn arithmetic``: what does my kernel store, and in which order does it add?"""

from __future__ import annotations

from typing import Any

import click

from .calling import calling
from .choices import Choice
from .errors import Status, say
from .fields import chosen, fields
from .groups import Grouped
from .output import Output, given, options
from .progress import progress
from .promises import promised, promises
from .variants import specified, variants

DTYPES = ("bfloat16", "float16", "float32", "float64")


@click.command("arithmetic", cls=Grouped, short_help="Tell what a kernel stores, and in which order it adds.")
@click.argument("target")
@click.option("--dtype", type=Choice(DTYPES), help="Type of the inputs; by default bfloat16.")
@fields
@variants
@calling
@promises
@click.option("--keys", type=click.IntRange(4, 512), metavar="N", help="Keys that are added; by default 128.")
@click.option("--seed", type=int, help="Seed of the inputs.")
@options
def command(target: str, output: Output, **wishes: Any) -> int:
    """Tell what TARGET, a function that computes attention in half precision, stores on the way.

    One call with 256 tokens is compared, bit for bit, with the definition in which scores, weights, exponentials,
    scaled queries or the scale are stored. A mistake in the function is told with its arithmetic. Further calls tell
    in which order it adds over keys, in tiles, lanes and parts, and with how many digits, in float32 and float64 too.

    \b
    symattn arithmetic attn.py:kernel --causal --framework torch
    symattn arithmetic torch.nn.functional:scaled_dot_product_attention --dtype float16
    """
    from symattn.sources.arithmetic import arithmetic_target
    from symattn.sources.loading import CannotRun

    told = {**given(wishes), **chosen(wishes)}
    domain = promised(told)
    spec, _, origin = specified(told)
    try:
        with progress("comparing bits and sums"):
            answer = arithmetic_target(target, spec, domain=domain, origin=origin, **told)
    except CannotRun as error:
        say(f"symattn: {error}")
        return Status.TARGET
    return output.emit(answer.document())
