"""``symattn verify``: does my code do it?"""

from __future__ import annotations

from typing import Any

import click

from .choices import Choice
from .errors import Status, say
from .output import Output, given, options
from .specification import FIELDS, specification

DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@click.command("verify", short_help="Verify a function against exact mathematics.")
@click.argument("target")
@click.option("--dtype", type=Choice(DTYPES), default="float32", help="Type of the inputs; by default float32.")
@specification
@click.option("--fully-masked", type=Choice(("zeros", "nan", "error")), help="What a row without any key gives.")
@click.option("--call", multiple=True, metavar="NAME=VALUE", help="A keyword to pass, such as is_causal=true.")
@click.option("--mask-arg", metavar="NAME", help="The parameter that takes the mask.")
@click.option("--layout", type=Choice(("nd", "bhnd", "bnhd")), help="Order of the axes.")
@click.option("--framework", type=Choice(("numpy", "torch")), help="What the function's arrays are.")
@click.option("--contract", type=Choice(("eager", "fused")), help="Are scores stored in the input type, or wider?")
@click.option("--time-limit", type=float, metavar="SECONDS", help="Longest time for one call.")
@click.option("--budget", type=float, metavar="SECONDS", help="Time to spend in all.")
@click.option("--seed", type=int, help="Seed of the inputs that are tried.")
@options
def command(target: str, output: Output, **wishes: Any) -> int:
    """Verify TARGET, a function that computes attention, against exact mathematics.

    TARGET is package.module:function or file.py:function. No tolerance is picked: the error allowed is the one that
    is proved for every implementation in this arithmetic.
    """
    from symattn import Attention, sources
    from symattn.sources.loading import CannotRun

    told = given(wishes)
    spec = Attention(**{name: told.pop(name) for name in (*FIELDS, "fully_masked") if name in told})
    try:
        report = sources.verify_target(target, spec, **told)
    except CannotRun as error:
        say(f"symattn: {error}")
        return Status.TARGET
    return output.emit(report.document())
