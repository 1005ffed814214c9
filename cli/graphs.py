"""``symattn verify`` of a graph: an ONNX model, which is read and not run by any runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .arguments import line, refuse_others
from .fields import NAMES, chosen
from .output import given
from .variants import specified

if TYPE_CHECKING:
    from symattn.verification.report import Report

_OWN = ("target", "array", "prove", "seed", "like", "config", "layer", "kind", "without", *NAMES)


def meant(target: str) -> bool:
    """Whether TARGET is a graph, by its suffix."""
    return Path(target).suffix.lower() == ".onnx"


def report(context: click.Context, target: str, wishes: dict[str, Any]) -> Report:
    """What is said of the graph; options that say how a function is called are refused."""
    from symattn.graphs import verify_graph

    refuse_others(context, target, _OWN)
    told = {**given(wishes), **chosen(wishes)}
    names = dict(_named(word) for word in told.pop("array", ()))
    own = {name: told.pop(name) for name in ("prove", "seed") if name in told}
    if wishes.get("prove") is False:
        own["prove"] = False
    spec = specified(told, whole=True).spec
    return verify_graph(target, spec, names=names, command=line(context), **own)


def _named(word: str) -> tuple[str, str]:
    name, sign, key = word.partition("=")
    if not sign or not name or not key:
        raise click.UsageError(f"--array {word}: give NAME=NAME, such as w_q=onnx::MatMul_57.")
    return name, key
