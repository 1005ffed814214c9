"""``symattn models``: the attention of a model type of Transformers, inferred from a run of a tiny model."""

from __future__ import annotations

from dataclasses import replace

import click

from .arguments import line
from .choices import Choice
from .groups import Grouped
from .output import Output, options


@click.command("models", cls=Grouped)
@click.argument("action", type=Choice(("infer",)))
@click.argument("model_type", metavar="TYPE")
@options
def command(action: str, model_type: str, output: Output) -> int:
    """Infer the attention of a model TYPE of transformers from a run of a tiny model with random weights.

    \b
    symattn models infer qwen3
    symattn models infer gemma3_text -f json

    Each layer's attention is printed as a specification, with its numbers as expressions in fields of the
    configuration, and compared with what the fields say. The exit code is 1 if fields and run differ, and 3 if a part
    that mixes tokens has no specification.
    """
    from symattn.models.inferring.inference import infer

    document = infer(model_type).document()
    return output.emit(replace(document, command=line(click.get_current_context())))
