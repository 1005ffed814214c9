"""``symattn draw``: pictures from the numbers that the documents print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import stream
from .choices import Choice
from .errors import Status
from .fields import fields, given
from .groups import Grouped, under
from .output import compared, listing
from .progress import progress

if TYPE_CHECKING:
    from symattn.document.drawing.picture import Picture

_PICTURE = under("Output")
_FORMS = ("svg", "pdf", "png")


@click.command("draw", cls=Grouped)
@click.argument("topic", default="scaling")
@click.argument("source", required=False, metavar="[EXAMPLE|FILE]")
@click.option("--list", "wanted", is_flag=True, help="List the pictures and their parameters.")
@click.option("--example", metavar="NAME", help="Same as EXAMPLE.")
@click.option("--dk", type=int, help="Largest d_k in the picture.")
@click.option("--tokens", type=int, help="masks, rope: number of tokens n.")
@click.option("--keys", type=int, help="masks: number of keys n_k, if it is not n.")
@click.option("--head", type=int, help="Head whose weights are drawn, counted from 1.")
@click.option("--query", type=int, help="geometry, tiles: query that is drawn, counted from 1.")
@click.option("--tile", type=int, help="tiles: number of keys in a tile. Default: 1.")
@click.option("--draws", type=int, help="Number of scores drawn for each size. Default: 200.")
@click.option("--seed", type=int, help="Seed of random numbers.")
@fields
@_PICTURE(
    "-f",
    "--format",
    "form",
    type=Choice(_FORMS),
    help="Format. Default: by the suffix of FILE, or svg.",
)
@_PICTURE(
    "-o",
    "--output",
    "path",
    metavar="FILE",
    help="Write FILE: .svg, .pdf or .png (the last two need matplotlib).",
)
@_PICTURE("--force", is_flag=True, help="Replace FILE even if symattn did not write it.")
@_PICTURE(
    "--fragment", is_flag=True, help="SVG for inclusion in a page, in the colours of that page."
)
@_PICTURE("--check", metavar="FILE", help="Write nothing, and exit with 1 if FILE is out of date.")
def command(topic: str, wanted: bool, **wishes: Any) -> int:
    """Draw a picture of TOPIC: scaling, saturation, weights, geometry, masks, shapes, rope, tiles, error.

    \b
    symattn draw scaling --dk 512 -o scaling.svg
    symattn draw weights cross -o weights.pdf
    symattn draw masks --causal --window 3,0 --fragment

    The numbers are those of the documents: exact, enclosed, or drawn with a seed that the picture states. Title and
    description put the picture into words. Without -o the SVG is printed.
    """
    if wanted:
        return _listing()
    form, target = _form(wishes.pop("form"), wishes["path"] or wishes["check"], wishes["fragment"])
    path, check, force, fragment = (
        wishes.pop(name) for name in ("path", "check", "force", "fragment")
    )
    if path and check:
        raise click.UsageError("--check writes nothing, so it goes without -o.")
    if path:
        from symattn.document import files

        files.check(target, force)
    picture = _drawn(topic, wishes)
    content = picture.bytes(form, fragment)
    if check:
        return compared(target, content)
    if path:
        files.write(target, content, force)
    elif form == "svg":
        stream.write(content.decode())
    else:
        sys.stdout.buffer.write(content)
    return Status.HOLDS


def _drawn(topic: str, wishes: dict[str, Any]) -> Picture:
    from symattn.drawing import draw

    settings = given(wishes)
    example = settings.pop("example", None)
    if example is not None and "source" in settings:
        raise click.UsageError(
            f"the example is given twice: {settings['source']} and --example {example}."
        )
    settings |= {} if example is None else {"source": example}
    with progress(f"drawing {topic}"):
        return draw(topic, **settings)


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _form(form: str | None, path: str | None, fragment: bool) -> tuple[str, Path]:
    from symattn.document.drawing.picture import form_of

    target = Path(path or "")
    chosen = form or (form_of(target) if path else "svg")
    if fragment and chosen != "svg":
        raise click.UsageError(f"--fragment belongs to svg, and the form is {chosen}.")
    if not path and _is_terminal():
        raise click.UsageError(f"a terminal cannot show {chosen}; write it with -o FILE.{chosen}.")
    return chosen, target


def _listing() -> int:
    from symattn.document.model import Code
    from symattn.document.render import render
    from symattn.drawing import names

    rows = [
        (
            (Code(e.name),),
            (e.shows,),
            (Code(" ".join(f"--{p}" for p in e.taken) + (" fields" if e.fields else "")),),
        )
        for e in names().values()
    ]
    document = listing(
        "pictures", "Pictures", ("name", "shows", "parameters"), rows, "symattn draw --list"
    )
    stream.write(render(document, "text", columns=stream.columns()))
    return Status.HOLDS
