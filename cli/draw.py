"""``symattn draw``: pictures from the numbers that the documents print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import stream
from .choices import Choice
from .errors import Status, say
from .fields import NAMES, chosen, fields
from .groups import Grouped, under
from .output import given
from .progress import progress

if TYPE_CHECKING:
    from symattn.drawing.picture import Picture

_PICTURE = under("The picture")
_FORMS = ("svg", "pdf", "png")


@click.command("draw", cls=Grouped, short_help="Draw a picture: SVG, PDF or PNG.")
@click.argument("topic", default="scaling")
@click.argument("source", required=False, metavar="[EXAMPLE|FILE]")
@click.option("--list", "wanted", is_flag=True, help="List the pictures and their parameters.")
@click.option("--example", metavar="NAME", help="The same as EXAMPLE.")
@click.option("--dk", type=int, help="d_k, the largest one drawn.")
@click.option("--tokens", type=int, help="Of masks and rope, n, the number of tokens.")
@click.option("--keys", type=int, help="Of masks, n_k, the number of keys, where it is another.")
@click.option("--head", type=int, help="The head whose weights are drawn; the first is 1.")
@click.option("--query", type=int, help="Of geometry and tiles, the query that is drawn; the first is 1.")
@click.option("--tile", type=int, help="Of tiles, how many keys come at once; by default 1.")
@click.option("--draws", type=int, help="How many scores are drawn for each size; by default 200.")
@click.option("--seed", type=int, help="Seed of what is drawn at random.")
@fields
@_PICTURE("-f", "--format", "form", type=Choice(_FORMS), help="Form; by default that of FILE, else svg.")
@_PICTURE("-o", "--output", "path", metavar="FILE", help="Write FILE: .svg, .pdf or .png (these by matplotlib).")
@_PICTURE("--force", is_flag=True, help="Replace FILE even if symattn did not write it.")
@_PICTURE("--fragment", is_flag=True, help="SVG to put into a page, whose colours it takes.")
@_PICTURE("--check", metavar="FILE", help="Write nothing; exit with 1 if FILE is stale.")
def command(topic: str, wanted: bool, **wishes: Any) -> int:
    """Draw a picture of TOPIC: scaling, saturation, weights, geometry, masks, shapes, rope, tiles, error.

    Its numbers are those of the documents: exact, enclosed, or drawn with a seed that the picture states. Title and
    description say in words what is seen. Without -o the SVG is printed.

    \b
    symattn draw scaling --dk 512 -o scaling.svg
    symattn draw weights cross -o weights.pdf
    symattn draw masks --causal --window 3,0 --fragment
    """
    if wanted:
        return _listing()
    form, target = _form(wishes.pop("form"), wishes["path"] or wishes["check"], wishes["fragment"])
    path, check, force, fragment = (wishes.pop(name) for name in ("path", "check", "force", "fragment"))
    if path and check:
        raise click.UsageError("--check writes nothing, so it goes without -o.")
    if path:
        from symattn.render import files

        files.check(target, force)
    picture = _drawn(topic, wishes)
    content = picture.bytes(form, fragment)
    if check:
        return _compared(target, content)
    if path:
        files.write(target, content, force)
    elif form == "svg":
        stream.write(content.decode())
    else:
        sys.stdout.buffer.write(content)
    return Status.HOLDS


def _drawn(topic: str, wishes: dict[str, Any]) -> Picture:
    from symattn.drawing import draw

    told = given({name: wish for name, wish in wishes.items() if name not in NAMES})
    example = told.pop("example", None)
    if example is not None and "source" in told:
        raise click.UsageError(f"the example is given twice: {told['source']} and --example {example}.")
    told |= {} if example is None else {"source": example}
    with progress(f"drawing {topic}"):
        return draw(topic, **told, **chosen(wishes))


def _form(form: str | None, path: str | None, fragment: bool) -> tuple[str, Path]:
    from symattn.drawing.picture import form_of

    target = Path(path or "")
    found = form or (form_of(target) if path else "svg")
    if fragment and found != "svg":
        raise click.UsageError(f"--fragment belongs to svg, and the form is {found}.")
    if found != "svg" and not path and sys.stdout.isatty():
        raise click.UsageError(f"{found} is no text for a terminal; mend: -o FILE.{found}.")
    return found, target


def _compared(path: Path, content: bytes) -> Status:
    try:
        there = path.read_bytes()
    except OSError as error:
        from symattn.errors import InputError

        raise InputError(f"{path} cannot be compared: {error.strerror or error}") from error
    if there.replace(b"\r\n", b"\n") == content.replace(b"\r\n", b"\n"):
        return Status.HOLDS
    say(f"symattn: {path} is stale; mend: the same command with -o {path} in place of --check")
    return Status.FAULT


def _listing() -> int:
    from symattn.document.model import Code
    from symattn.drawing import names
    from symattn.render import render

    from .listing import listing

    rows = [
        ((Code(e.name),), (e.shows,), (Code(" ".join(f"--{p}" for p in e.taken) + (" fields" if e.fields else "")),))
        for e in names().values()
    ]
    found = listing("pictures", "Pictures", ("name", "shows", "parameters"), rows, "symattn draw --list")
    stream.write(render(found, "text", columns=stream.columns()))
    return Status.HOLDS
