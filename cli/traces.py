"""``symattn verify`` of a trace: a file of q, k, v and the output, of which nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .arguments import line, typed
from .fields import NAMES, chosen
from .output import given
from .variants import specified

if TYPE_CHECKING:
    from symattn.verification.report import Report

_OWN = ("target", "dtype", "layout", "contract", "rows", "like", "without", *NAMES)
_SHARED = ("form", "path", "force", "fragment", "check", "ascii", "colour")
SUFFIXES = (".safetensors", ".npz")


def meant(target: str) -> bool:
    """Whether TARGET is a trace, by its suffix."""
    return Path(target).suffix.lower() in SUFFIXES


def report(context: click.Context, target: str, wishes: dict[str, Any]) -> Report:
    """What is said of the trace; options that say how a function is called are refused."""
    from symattn.sources.traces import verify_trace

    names = typed(context)
    for name in names:
        if name not in (*_OWN, *_SHARED):
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for a function that is called, and {target} is none."
            )
    told = {**given(wishes), **chosen(wishes)}
    own = {name: told.pop(name) for name in ("dtype", "layout", "contract", "rows") if name in told}
    spec, _ = specified(told)
    dtype = own.pop("dtype")
    precision = dtype if "dtype" in names else None  # that of q, unless it is typed
    return verify_trace(target, spec, precision=precision, command=line(context), **own)
