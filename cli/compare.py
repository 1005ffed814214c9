"""``symattn compare``: which of my two back-ends is wrong?"""

from __future__ import annotations

from typing import Any

import click

from .calling import CALL, judging
from .errors import Status, say
from .fields import chosen, fields
from .groups import Grouped
from .output import Output, given, options
from .progress import progress
from .promises import promised, promises
from .variants import specified, variants


@click.command("compare", cls=Grouped, short_help="Which of two is wrong? Judge both by exact mathematics.")
@click.argument("first")
@click.argument("second")
@fields
@variants
@judging
@CALL("--first-call", multiple=True, metavar="NAME=VALUE", help="A keyword to pass to FIRST, such as is_causal=true.")
@CALL("--second-call", multiple=True, metavar="NAME=VALUE", help="The same for SECOND.")
@promises
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

    Both are package.module:function or file.py:function, or both are traces, .safetensors or .npz files to which a run
    has written its arrays q, k, v and o. They are judged by what is proved for every implementation in this arithmetic,
    never by each other. The exit code is 1 where one of them is wrong, and 0 where they differ by rounding alone.

    \b
    symattn compare attn.py:eager attn.py:fused --causal
    symattn compare eager.safetensors fused.safetensors --causal --heads 8
    symattn compare attn.py:mine torch.nn.functional:scaled_dot_product_attention --dtype bfloat16
    """
    from symattn.comparing.functions import compare_targets
    from symattn.sources.loading import CannotRun
    from symattn.sources.names import is_trace

    from . import traces

    if is_trace(first) or is_trace(second):
        return output.emit(traces.compared(click.get_current_context(), first, second, wishes).document())
    told = {**given(wishes), **chosen(wishes)}
    domain = promised(told)
    spec, cut, origin = specified(told)
    told["call"] = (first_call, second_call)
    try:
        with progress("trying") as show:
            answer = compare_targets(
                first, second, spec, domain=domain, origin=origin, notes=(cut,) if cut else (), progress=show, **told
            )
    except CannotRun as error:
        say(f"symattn: {error}")
        return Status.TARGET
    return output.emit(answer.document())
