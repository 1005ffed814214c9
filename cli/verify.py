"""``symattn verify``: does my code do it?"""

from __future__ import annotations

from typing import Any

import click

from .choices import Choice
from .errors import Status, say
from .output import Output, given, options
from .progress import progress
from .promises import promised, promises
from .specification import specification
from .variants import specified, variants

DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@click.command("verify", short_help="Verify a function against exact mathematics.")
@click.argument("target")
@click.option("--dtype", type=Choice(DTYPES), default="float32", help="Type of the inputs; by default float32.")
@specification
@variants
@click.option(
    "--definition", metavar="NAME[(FIELD=VALUE, ...)]",
    help="In place of attention: lse, gradient, cached, LayerNorm, RMSNorm(eps=1e-6), Rotary, LinearAttention, Block.",
)  # fmt: skip
@click.option("--fully-masked", type=Choice(("zeros", "nan")), help="Try rows without any key, which give this.")
@click.option("--call", multiple=True, metavar="NAME=VALUE", help="A keyword to pass, such as is_causal=true.")
@click.option("--mask-arg", metavar="NAME", help="The parameter that takes the mask; ~NAME takes its negation.")
@click.option(
    "--layout",
    type=Choice(("nd", "bnd", "nhd", "bhnd", "bnhd", "nc", "bnc")),
    help="Order of the axes; found by trial unless told.",
)
@click.option("--framework", type=Choice(("numpy", "torch")), help="What the function's arrays are.")
@click.option("--contract", type=Choice(("eager", "fused")), help="Are scores stored in the input type, or wider?")
@promises
@click.option("--time-limit", type=float, metavar="SECONDS", help="Longest time for one call; by default 10.")
@click.option("--examples", type=click.IntRange(0), help="Number of inputs at random; by default 100.")
@click.option("--budget", type=float, metavar="SECONDS", help="Upper limit of the time; by default 120.")
@click.option("--seed", type=int, help="Seed of the inputs that are tried.")
@click.option("--show-output", is_flag=True, help="Show what the function prints.")
@click.option("--case", "word", metavar="ID", help="Repeat one case of a report, and no other.")
@click.option("--write-test", metavar="FILE", help="Write the faults as tests for pytest.")
@click.option("--baseline", metavar="FILE", help="Accept the faults that FILE lists, and miss those that are gone.")
@click.option("--write-baseline", metavar="FILE", help="List the faults that were found in FILE, as accepted.")
@click.option("--reason", metavar="TEXT", help="Why they are accepted.")
@options
def command(
    target: str,
    output: Output,
    show_output: bool,
    word: str | None,
    write_test: str | None,
    baseline: str | None,
    write_baseline: str | None,
    reason: str | None,
    **wishes: Any,
) -> int:
    """Verify TARGET, a function that computes attention, against exact mathematics.

    TARGET is package.module:function or file.py:function. No tolerance is picked: the error allowed is the one that
    is proved for every implementation in this arithmetic.

    \b
    symattn verify mypkg.attn:attention --causal
    symattn verify attn.py:attention --like llama --heads 4 --kv-heads 2
    symattn verify torch.nn.functional:scaled_dot_product_attention
    symattn verify attn.py:attention --write-test test_attn.py
    symattn verify norms.py:rms_norm --definition "RMSNorm(eps=1e-6)"
    symattn verify attn.py:backward --definition gradient --causal
    """
    from symattn.sources.loading import CannotRun

    from .verifying import Wishes

    asked = Wishes.of(word, write_test, baseline, write_baseline, reason, output.force)
    told = given(wishes)
    like = told.get("like")
    domain = promised(told)
    spec, cut = specified(told)
    try:
        with progress("trying") as show:
            report = asked.report(
                target, spec, domain=domain, progress=show, like=like, notes=(cut,) if cut else (), **told
            )
    except CannotRun as error:
        say(f"symattn: {error}")
        return Status.TARGET
    return output.emit(report.document(show_output))
