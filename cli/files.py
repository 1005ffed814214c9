"""``symattn verify`` and ``compare`` for files, which are not run: traces (q, k, v and the output) and graphs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .arguments import line, refuse_others
from .fields import NAMES, given
from .variants import specified

if TYPE_CHECKING:
    from symattn.models.comparing.comparison import Comparison
    from symattn.verification.report import Report

_SHARED = ("target", "like", "config", "layer", "kind", "without", *NAMES)
_TRACES = ("dtype", "layout", "contract", "rows")
_GRAPHS = ("array", "prove", "seed")


def report(context: click.Context, target: str, wishes: dict[str, Any]) -> Report | None:
    """Return the report on a trace or a graph, None for other targets; options about calls are refused."""
    from symattn.programs.names import is_trace

    if is_trace(target):
        from symattn.graphs import verify_trace

        spec, own = _of_trace(context, target, wishes, _SHARED)
        return verify_trace(target, spec, command=line(context), **own)
    return _of_graph(context, target, wishes) if Path(target).suffix.lower() == ".onnx" else None


def compared(context: click.Context, first: str, second: str, wishes: dict[str, Any]) -> Comparison:
    """Return the comparison of two traces; a trace and a function are refused."""
    from symattn.models.comparing.compared import compare_traces
    from symattn.programs.names import is_trace

    for trace, other in ((first, second), (second, first)):
        if not is_trace(other):
            raise click.UsageError(
                f"{trace} is a trace and {other} is not; give two traces, or two functions."
            )
    spec, own = _of_trace(context, first, wishes, ("first", "second", *_SHARED))
    return compare_traces(first, second, spec, command=line(context), **own)


def _of_trace(
    context: click.Context, target: str, wishes: dict[str, Any], known: tuple[str, ...]
) -> tuple[Any, dict[str, Any]]:
    """Return the specification, and the options of traces that were given."""
    names = refuse_others(context, target, (*known, *_TRACES))
    settings = given(wishes)
    own: dict[str, Any] = {name: settings.pop(name) for name in _TRACES if name in settings}
    dtype = own.pop("dtype")
    precision = dtype if "dtype" in names else None  # None is the dtype of q
    return specified(settings, whole=True).spec, {"precision": precision, **own}


def _of_graph(context: click.Context, target: str, wishes: dict[str, Any]) -> Report:
    from symattn.graphs import verify_graph

    refuse_others(context, target, (*_SHARED, *_GRAPHS))
    settings = given(wishes)
    names = dict(_named(word) for word in settings.pop("array", ()))
    own = {name: wishes[name] for name in ("prove", "seed") if wishes[name] is not None}
    settings = {name: x for name, x in settings.items() if name not in own}
    return verify_graph(
        target, specified(settings, whole=True).spec, names=names, command=line(context), **own
    )


def _named(word: str) -> tuple[str, str]:
    name, sign, key = word.partition("=")
    if not sign or not name or not key:
        raise click.UsageError(f"--array {word}: give NAME=NAME, such as w_q=onnx::MatMul_57.")
    return name, key
