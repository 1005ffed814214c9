"""Queries and keys normalised, head by head, before positions."""

from __future__ import annotations

from functools import partial
from typing import Any

from symattn.attention import norms
from symattn.attention.flow import Flow
from symattn.attention.notation import SYMBOLS
from symattn.document.notation import call

_WORDS = {"rms": "RMSNorm", "layer": "LayerNorm", "l2": "unit"}


def normed(flow: Flow) -> None:
    """The normalised queries and keys, with their gains and biases where those are given."""
    kind = flow.spec.qk_norm
    if kind is None:
        return
    for role in "qk":
        names = [n for n in (f"g_{role}", f"beta_{role}") if n in flow.given]
        formula = call(_WORDS[kind], flow.symbol(role), *(SYMBOLS[n] for n in names))
        run = norms.unit if kind == "l2" else partial(_normalised, kind, flow.spec.eps, tuple(n[0] for n in names))
        reason = "of length 1, head by head" if kind == "l2" else "head by head"
        flow.add(f"{role}_normed", run, formula, (role, *names), role=role, reason=reason)


def _normalised(kind: str, eps: Any, letters: tuple[str, ...], x: Any, *parameters: Any) -> Any:
    given = dict(zip(letters, parameters, strict=True))
    norm = norms.rms_norm if kind == "rms" else norms.layer_norm
    return norm(x, eps, given.get("g"), given.get("b"))
