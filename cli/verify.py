"""``symattn verify``: does my code do it?"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import click

from .choices import Choice
from .errors import Status, say
from .output import Output, given, options

DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_SPEC = ("scale", "causal", "alignment", "mask", "padding", "heads", "fully_masked")


def _scale(_: click.Context, __: click.Parameter, text: str | None) -> Fraction | None:
    if text is None:
        return None
    try:
        return Fraction(1 if text == "none" else text)
    except (ValueError, ZeroDivisionError):
        raise click.BadParameter(f"{text!r} is neither a number, such as 0.125 or 1/8, nor none.") from None


@click.command("verify", short_help="Verify a function against exact mathematics.")
@click.argument("target")
@click.option("--dtype", type=Choice(DTYPES), default="float32", help="Type of the inputs; by default float32.")
@click.option("--causal", is_flag=True, help="A query attends to no later key.")
@click.option("--alignment", type=Choice(("bottom-right", "top-left")), help="The corner where causal masks start.")
@click.option("--scale", callback=_scale, help="Factor of the scores, or none; by default 1/sqrt(d_k).")
@click.option("--mask", type=Choice(("boolean", "additive")), help="The function takes a mask.")
@click.option("--padding", is_flag=True, help="The function takes a padding mask over the keys.")
@click.option("--heads", type=int, help="h, the number of heads.")
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
    spec = Attention(**{name: told.pop(name) for name in _SPEC if name in told})
    try:
        report = sources.verify_target(target, spec, **told)
    except CannotRun as error:
        say(f"symattn: {error}")
        return Status.TARGET
    return output.emit(report.document())
