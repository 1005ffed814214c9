"""Queries, keys and values: from tokens by projections, split into heads, or as they are given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from symattn.attention import groups, projections
from symattn.attention.flow import Flow
from symattn.attention.notation import SYMBOLS
from symattn.document.notation import call


def roles(flow: Flow) -> None:
    """q, k and v from x (and y): projected where weights are given, and split into heads."""
    if "x" not in flow.given:
        return
    if flow.spec.packed:
        _unpacked(flow)
    for role in "qkv":
        source = "y" if "y" in flow.given and role != "q" else "x"
        if f"w_{role}" in flow.given:
            _projected(flow, role, source)
        elif flow.spec.latent is None:
            flow.add(
                role, lambda x: x, SYMBOLS[source], (source,), role=role, reason="no parameters: the tokens themselves"
            )


def _unpacked(flow: Flow) -> None:
    """w_q, w_k, w_v (and the biases) from the columns q | k | v of one matrix."""
    for packed in [n for n in ("w_in", "b_in") if n in flow.given]:
        for role in "qkv":
            name = f"{packed[0]}_{role}"
            run = partial(projections.unpack, role=role, heads=flow.spec.heads, key_heads=flow.spec.key_heads)
            formula = call("columns", SYMBOLS[packed])
            flow.add(name, run, formula, (packed,), role=name, reason=f"the columns of {role}")
            flow.given |= {name}


def _projected(flow: Flow, role: str, source: str) -> None:
    heads = flow.spec.heads if role == "q" else flow.spec.key_heads
    weight, bias = f"w_{role}", f"b_{role}"
    given = [n for n in (weight, bias) if n in flow.given]
    formula = SYMBOLS[source] * SYMBOLS[weight]
    if bias in given:
        formula = formula + SYMBOLS[bias]
    split = partial(projections.split_heads, heads=heads) if flow.spec.heads > 1 else None
    reason = f"{heads} head{'s' * (heads > 1)}, one block of columns each" if split else ""
    flow.add(role, then(projections.project, split), formula, (source, *given), role=role, reason=reason)


def sharing(flow: Flow) -> None:
    """Each head of keys and values for all the heads of queries that read it."""
    times = flow.spec.heads // flow.spec.key_heads
    if times == 1:
        return
    for role in "kv":
        formula = call("repeat", flow.symbol(role), times)
        run = partial(groups.repeat_heads, times=times)
        reason = f"each head of {'keys' if role == 'k' else 'values'} is read by {times} heads of queries"
        flow.add(f"{role}_shared", run, formula, (role,), role=role, reason=reason)


def then(first: Callable[..., Any], second: Callable[..., Any] | None) -> Callable[..., Any]:
    """One function after another, if there is another."""
    return first if second is None else lambda *args: second(first(*args))
