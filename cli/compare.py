"""``symattn compare``: which of my two back-ends is wrong?"""

from __future__ import annotations

from typing import Any

import click

from .choices import Choice
from .errors import Status, say
from .fields import ATTENTION, chosen, fields
from .groups import Grouped, under
from .output import Output, given, options
from .progress import progress
from .promises import promised, promises
from .variants import specified, variants
from .verify import DTYPES

_CALL = under("How the functions are called")
_SEARCH = under("How much is tried")


@click.command("compare", cls=Grouped, short_help="Which of two is wrong? Judge both by exact mathematics.")
@click.argument("first")
@click.argument("second")
@click.option("--dtype", type=Choice(DTYPES), default="float32", help="Type of the inputs; by default float32.")
@fields
@variants
@ATTENTION(
    "--definition", metavar="NAME[(FIELD=VALUE, ...)]",
    help="In place of attention: lse, gradient, cached, LayerNorm, RMSNorm(eps=1e-6), Rotary, LinearAttention, Block.",
)  # fmt: skip
@_CALL("--first-call", multiple=True, metavar="NAME=VALUE", help="A keyword to pass to FIRST, such as is_causal=true.")
@_CALL("--second-call", multiple=True, metavar="NAME=VALUE", help="The same for SECOND.")
@_CALL("--contract", type=Choice(("eager", "fused")), help="Are scores stored in the input type, or wider?")
@promises
@_CALL("--time-limit", type=float, metavar="SECONDS", help="Longest time for one call; by default 10.")
@_SEARCH("--examples", type=click.IntRange(0), help="Number of inputs at random; by default 100.")
@_SEARCH("--budget", type=float, metavar="SECONDS", help="Upper limit of the time for each; by default 120.")
@_SEARCH("--seed", type=int, help="Seed of the inputs that are tried.")
@options
def command(
    first: str,
    second: str,
    output: Output,
    first_call: tuple[str, ...],
    second_call: tuple[str, ...],
    **wishes: Any,
) -> int:
    """Say which of FIRST and SECOND, two functions for the same attention, is wrong.

    Both are package.module:function or file.py:function, and are judged by what is proved for every implementation in
    this arithmetic, never by each other. The exit code is 1 where one of them is wrong, and 0 where they differ by
    rounding alone.

    \b
    symattn compare attn.py:eager attn.py:fused --causal
    symattn compare attn.py:mine torch.nn.functional:scaled_dot_product_attention --dtype bfloat16
    """
    from symattn.comparing.functions import compare_targets
    from symattn.sources.loading import CannotRun

    told = {**given(wishes), **chosen(wishes)}
    like, domain = told.get("like"), promised(told)
    spec, cut = specified(told)
    told["call"] = (first_call, second_call)
    try:
        with progress("trying") as show:
            answer = compare_targets(
                first, second, spec, domain=domain, like=like, notes=(cut,) if cut else (), progress=show, **told
            )
    except CannotRun as error:
        say(f"symattn: {error}")
        return Status.TARGET
    return output.emit(answer.document())
