"""``symattn verify`` and ``compare`` of traces: a file of q, k, v and the output, of which nothing is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .arguments import line, refuse_others
from .fields import NAMES, chosen
from .output import given
from .variants import specified

if TYPE_CHECKING:
    from symattn.models.comparing.answer import Comparison
    from symattn.verification.report import Report

_OWN = ("target", "dtype", "layout", "contract", "rows", "like", "config", "layer", "kind", "without", *NAMES)


def report(context: click.Context, target: str, wishes: dict[str, Any]) -> Report:
    """What is said of the trace; options that say how a function is called are refused."""
    from symattn.programs.traces import verify_trace

    spec, own = _asked(context, target, wishes, _OWN)
    return verify_trace(target, spec, command=line(context), **own)


def compared(context: click.Context, first: str, second: str, wishes: dict[str, Any]) -> Comparison:
    """What is said of two traces; a function beside a trace is refused."""
    from symattn.models.comparing.traces import compare_traces
    from symattn.programs.names import is_trace

    for one, other in ((first, second), (second, first)):
        if not is_trace(other):
            raise click.UsageError(f"{one} is a trace and {other} is none; give two traces, or two functions.")
    spec, own = _asked(context, first, wishes, ("first", "second", *_OWN))
    return compare_traces(first, second, spec, command=line(context), **own)


def _asked(
    context: click.Context, target: str, wishes: dict[str, Any], known: tuple[str, ...]
) -> tuple[Any, dict[str, Any]]:
    """The specification, and the options of traces that were given."""
    names = refuse_others(context, target, known)
    told = {**given(wishes), **chosen(wishes)}
    own: dict[str, Any] = {name: told.pop(name) for name in ("dtype", "layout", "contract", "rows") if name in told}
    spec = specified(told, whole=True).spec
    dtype = own.pop("dtype")
    return spec, {"precision": dtype if "dtype" in names else None, **own}  # that of q, unless it is typed
