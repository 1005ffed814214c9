"""``symattn models``: the attention of model types of Transformers, inferred from runs of tiny models."""

from __future__ import annotations

from dataclasses import replace

import click

from .arguments import line
from .choices import Choice
from .groups import Grouped
from .output import Output, options


@click.command("models", cls=Grouped)
@click.argument("action", type=Choice(("infer", "lock", "check")))
@click.argument("names", metavar="[TYPE|FILE]...", nargs=-1)
@options
def command(action: str, names: tuple[str, ...], output: Output) -> int:
    """Infer the attention of model types of transformers from runs of tiny models with random weights.

    \b
    symattn models infer qwen3
    symattn models lock qwen3 gemma3_text > models.lock
    symattn models check models.lock

    ``infer`` prints each layer's attention of one type as a specification, with its numbers as expressions in fields of
    the configuration, and compares it with what the fields say. The exit code is 1 if fields and run differ, and 3 if a
    part that mixes tokens has no specification. ``lock`` prints a line for each kind of part, of all causal language
    models if no type is named; ``check`` infers the lines of such a file again, and ends with 1 if any differs.
    """
    from symattn.models.inferring.inference import infer
    from symattn.models.inferring.lock import check_lock, lock_text

    if action == "lock":
        click.echo(lock_text(names))
        return 0
    if len(names) != 1:
        raise click.UsageError(
            f"models {action} takes one {'TYPE' if action == 'infer' else 'FILE'}."
        )
    document = (infer(names[0]) if action == "infer" else check_lock(names[0])).document()
    return output.emit(replace(document, command=line(click.get_current_context())))
