"""``symattn arithmetic``: what does my kernel store, and in which order does it add?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .calling import calling
from .choices import Choice, Whole
from .errors import say
from .fields import fields, given
from .groups import Grouped
from .output import Output, options
from .progress import progress
from .promises import promised, promises
from .variants import specified, variants

if TYPE_CHECKING:
    from symattn.verification.arithmetic.answer import Answer

DTYPES = ("bfloat16", "float16", "float32", "float64")


@click.command("arithmetic", cls=Grouped)
@click.argument("target")
@click.option("--dtype", type=Choice(DTYPES), help="Type of the inputs. Default: bfloat16.")
@click.option(
    "--definition", metavar="NAME[(...)]", help="Something else than attention: LayerNorm."
)
@fields
@variants
@calling
@promises
@click.option(
    "--keys", type=Whole(4, 512), metavar="N", help="Number of keys that are summed. Default: 128."
)
@click.option(
    "--draw", metavar="FILE", help="Also draw the summation tree to FILE: .svg, .pdf or .png."
)
@click.option("--seed", type=int, help="Seed of the inputs.")
@options
def command(target: str, output: Output, draw: str | None, **wishes: object) -> int:
    """Identify storage precision and summation order of TARGET, a function that computes attention.

    \b
    symattn arithmetic attn.py:kernel --causal --framework torch
    symattn arithmetic kernel.py:attention --dtype float16 --draw tree.svg
    symattn arithmetic norms.py:layer_norm --definition LayerNorm --dtype float32

    One call with 256 tokens is compared bit for bit with definitions that store scores, weights, exponentials, scaled
    queries or the scale. Mistakes of the function are reported as well. Further calls identify the order of summation
    over keys (tiles, lanes, parts) and its precision, in float32 and float64 too.
    """
    from symattn.programs.arithmetic import arithmetic_target

    settings = given(wishes)
    picture = _picture(draw, output.force)
    domain = promised(settings)
    spec, _, origin = specified(settings)
    with progress("comparing bits and sums"):
        answer = arithmetic_target(target, spec, domain=domain, origin=origin, **settings)
    if picture:
        _draw(answer, picture, output.force)
    return output.emit(answer.document())


def _picture(path: str | None, force: bool) -> Path | None:
    """Return the picture's path. Raises InputError, before any work is done, if it cannot be written."""
    if path is None:
        return None
    from symattn.document import files
    from symattn.document.drawing.picture import form_of

    form_of(Path(path))
    files.check(Path(path), force)
    return Path(path)


def _draw(answer: Answer, path: Path, force: bool) -> None:
    from symattn.document.codec import quote_word
    from symattn.verification.summing.drawing import picture

    if answer.order.tree is None:
        say(f"symattn: {path} is not written: there is no tree to draw")
    else:
        picture(answer.order, f"{answer.command} --draw {quote_word(str(path))}").save(
            path, force=force
        )
