"""``symattn compare``: which of my two back-ends is wrong?"""

from __future__ import annotations

import click

from .calling import judging
from .fields import fields, given
from .groups import Grouped
from .output import Output, concise, options
from .progress import progress
from .promises import promised, promises
from .variants import specified, variants


@click.command("compare", cls=Grouped)
@click.argument("first")
@click.argument("second")
@fields
@variants
@judging
@click.option(
    "--first-call",
    multiple=True,
    metavar="NAME=VALUE",
    help="Pass this keyword to FIRST, such as is_causal=true.",
)
@click.option(
    "--second-call", multiple=True, metavar="NAME=VALUE", help="Pass this keyword to SECOND."
)
@promises
@concise
@options
def command(
    first: str,
    second: str,
    output: Output,
    first_call: tuple[str, ...],
    second_call: tuple[str, ...],
    **wishes: object,
) -> int:
    """Find which of FIRST and SECOND, two functions for the same attention, is wrong.

    \b
    symattn compare attn.py:eager attn.py:fused --causal
    symattn compare eager.safetensors fused.safetensors --causal --heads 8
    symattn compare a.py:f torch.nn.functional:scaled_dot_product_attention

    Both are package.module:function or file.py:function, or both are traces: .safetensors or .npz files with the arrays
    q, k, v and o of a run. Each is judged by the bound proved for every correct implementation in this arithmetic, not
    by the other. The exit code is 1 if one of them is wrong, and 0 if they differ only by rounding.
    """
    from symattn.models.comparing.compared import compare_targets
    from symattn.programs.names import is_trace

    from . import files

    if is_trace(first) or is_trace(second):
        return output.emit(
            files.compared(click.get_current_context(), first, second, wishes).document()
        )
    settings = given(wishes)
    domain = promised(settings)
    spec, cut, origin = specified(settings)
    settings["call"] = (first_call, second_call)
    with progress("trying") as show:
        answer = compare_targets(
            first,
            second,
            spec,
            domain=domain,
            origin=origin,
            notes=(cut,) if cut else (),
            progress=show,
            **settings,
        )
    return output.emit(answer.document())
