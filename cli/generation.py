"""``symattn generation``: does a model say the same of the same tokens, however they come?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from .arguments import line
from .choices import Choice, Whole
from .errors import Status, say
from .groups import Grouped, under
from .numbers import ids as numbered
from .output import Output, options
from .progress import progress

_MODEL, _TRIED = under("The model"), under("What is tried")


@click.command("generation", cls=Grouped, short_help="Do caches, padding and batches give the prefill's logits?")
@click.argument("target")
@_MODEL("--random", is_flag=True, help="Weights at random, of config.json or of its folder.")
@_MODEL("--set", "changed", multiple=True, metavar="NAME=VALUE", help="With --random: another value of a field.")
@_MODEL("--dtype", type=Choice(("float32", "bfloat16", "float16", "float64")), help="Its type; by default its own.")
@_TRIED("--tokens", type=Whole(1), help="How many tokens are drawn; by default some more than a window has.")
@_TRIED("--ids", metavar="N,N,...", help="The tokens of one sequence by their numbers.")
@_TRIED("--way", "ways", multiple=True, metavar="NAME", help="One way, such as 'left padding'; by default all.")
@_TRIED("--cache", "caches", multiple=True, metavar="FILE.py:FUNCTION", help="A cache of your own: f(config, length).")
@_TRIED("--seed", type=Whole(0), help="Seed of tokens and of weights at random.")
@options
def command(target: str, output: Output, **wishes: Any) -> int:
    """Ask the model TARGET the same in every way: prefill, token by token, caches, padding, batches, drafts.

    TARGET is a folder with config.json and weights in safetensors, config.json with --random, or file.py:function that
    makes a model of transformers. Which ways are wrong is judged by symattn's definition of attention and the model's
    configuration. The exit code is 1 where a way is wrong, and 3 where one that was asked for cannot be run.

    \b
    symattn generation ./checkpoint
    symattn generation config.json --random --set num_hidden_layers=2
    symattn generation model.py:make --way "left padding" --way "token by token"
    symattn generation ./checkpoint --cache mycache.py:paged
    """
    from symattn.comparing.generation import generation
    from symattn.comparing.opened import fields, opened
    from symattn.sources.loading import CannotRun, load
    from symattn.verification.engine import SEED

    seed = SEED if wishes["seed"] is None else wishes["seed"]
    tokens = _tokens(wishes["tokens"], wishes["ids"])
    try:
        with progress("generating"):
            caches = {name: load(target).function for name, target in _named(wishes["caches"]).items()}
            model = opened(target, wishes["random"], fields(wishes["changed"]), seed)
            model = model if wishes["dtype"] is None else _cast(model, wishes["dtype"])
            ways = [*wishes["ways"]] or None
            found = generation(model, tokens, ways=ways, caches=caches, seed=seed)
    except CannotRun as error:
        say(f"symattn: {error}")
        return Status.TARGET
    return output.emit(replace(found.document(), command=line(click.get_current_context())))


def _tokens(count: int | None, ids: str | None) -> int | list[int] | None:
    """How many, or which."""
    if ids is None:
        return count
    if count is not None:
        raise click.UsageError("--tokens and --ids exclude each other; give one of them.")
    return numbered(ids)


def _named(targets: Sequence[str]) -> dict[str, str]:
    """``mycache.py:paged`` by its name, ``paged``."""
    found: dict[str, str] = {}
    for target in targets:
        name = target.rpartition(":")[2]
        if name in found:
            raise click.UsageError(f"--cache: {found[name]} and {target} have the same name; give one of them another.")
        found[name] = target
    return found


def _cast(model: Any, dtype: str) -> Any:
    import torch

    return model.to(getattr(torch, dtype))
