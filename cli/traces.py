"""``symattn verify`` of a trace: a file of q, k, v and the output, of which nothing is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .arguments import line, refuse_others
from .fields import NAMES, chosen
from .output import given
from .variants import specified

if TYPE_CHECKING:
    from symattn.verification.report import Report

_OWN = ("target", "dtype", "layout", "contract", "rows", "like", "config", "layer", "kind", "without", *NAMES)


def report(context: click.Context, target: str, wishes: dict[str, Any]) -> Report:
    """What is said of the trace; options that say how a function is called are refused."""
    from symattn.sources.traces import verify_trace

    names = refuse_others(context, target, _OWN)
    told = {**given(wishes), **chosen(wishes)}
    own = {name: told.pop(name) for name in ("dtype", "layout", "contract", "rows") if name in told}
    spec = specified(told, whole=True).spec
    dtype = own.pop("dtype")
    precision = dtype if "dtype" in names else None  # that of q, unless it is typed
    return verify_trace(target, spec, precision=precision, command=line(context), **own)
