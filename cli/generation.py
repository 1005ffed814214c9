"""``symattn generation``: does a model give the same logits for the same tokens, however they arrive?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import click

from .arguments import line
from .choices import Choice, Whole, Wholes
from .groups import Grouped, under
from .output import Output, concise, options
from .progress import progress

_MODEL, _TRIED = under("The model"), under("Inputs and ways to generate")


@click.command("generation", cls=Grouped)
@click.argument("target")
@_MODEL("--random", is_flag=True, help="Use random weights for a config.json or its folder.")
@_MODEL(
    "--set",
    "changed",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --random: change a field of config.json.",
)
@_MODEL(
    "--dtype",
    type=Choice(("float32", "bfloat16", "float16", "float64")),
    help="Type of the weights. Default: as stored.",
)
@_TRIED(
    "--tokens", type=Whole(1), help="Number of random tokens. Default: slightly more than a window."
)
@_TRIED("--ids", type=Wholes(0, 10**9), metavar="N,N,...", help="Token ids of one sequence.")
@_TRIED(
    "--way",
    "ways",
    multiple=True,
    metavar="NAME",
    help="Try one way, such as 'left padding'. Default: all.",
)
@_TRIED(
    "--cache",
    "caches",
    multiple=True,
    metavar="FILE.py:FUNCTION",
    help="Also try your own cache: f(config, length).",
)
@_TRIED("--seed", type=Whole(0), help="Seed of random tokens and weights.")
@concise
@options
def command(target: str, output: Output, **wishes: Any) -> int:
    """Check that TARGET gives the same logits in every way: prefill, token by token, caches, padding, batches, drafts.

    \b
    symattn generation ./checkpoint
    symattn generation config.json --random --set num_hidden_layers=2
    symattn generation model.py:make --way "left padding" --way "token by token"
    symattn generation ./checkpoint --cache mycache.py:paged

    TARGET is a folder with config.json and weights in safetensors, a config.json with --random, or a file.py:function
    that returns a model of transformers. Each way is judged by symattn's definition of attention and the model's
    configuration. The exit code is 1 if a way is wrong, and 3 if a way that you asked for cannot be run.
    """
    from symattn.models.comparing.generation import generation
    from symattn.models.comparing.opened import fields, opened
    from symattn.programs.loading import load
    from symattn.verification.engine import SEED

    seed = SEED if wishes["seed"] is None else wishes["seed"]
    if None not in (wishes["tokens"], wishes["ids"]):
        raise click.UsageError("--tokens and --ids exclude each other; give one of them.")
    tokens = wishes["tokens"] if wishes["ids"] is None else [*wishes["ids"]]
    with progress("generating"):
        caches = {name: load(target).function for name, target in _named(wishes["caches"]).items()}
        model = opened(target, wishes["random"], fields(wishes["changed"]), seed)
        if wishes["dtype"] is not None:
            model = model.to(getattr(import_module("torch"), wishes["dtype"]))
        ways = [*wishes["ways"]] or None
        results = generation(model, tokens, ways=ways, caches=caches, seed=seed)
    return output.emit(replace(results.document(), command=line(click.get_current_context())))


def _named(targets: Sequence[str]) -> dict[str, str]:
    """Return targets such as ``mycache.py:paged`` by their names, ``paged``."""
    results: dict[str, str] = {}
    for target in targets:
        name = target.rpartition(":")[2]
        if name in results:
            raise click.UsageError(
                f"--cache: {results[name]} and {target} have the same name; give one of them another."
            )
        results[name] = target
    return results
