"""From weights to the output: A V, the heads side by side, and the output projection where one is given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.attention import projections
from symattn.attention.flow import Flow
from symattn.attention.notation import SYMBOLS
from symattn.attention.stages.latent import expanding
from symattn.attention.stages.positions import valued
from symattn.document.notation import call


def closing(flow: Flow) -> None:
    """The weighted values, and what becomes of them where there are heads of tokens or a projection."""
    spec = flow.spec
    merge = projections.merge_heads if spec.heads > 1 and "x" in flow.given else None
    absorbed = spec.latent is not None and spec.latent.absorbed
    last = merge is None and "w_o" not in flow.given and not absorbed
    mean = spec.normaliser not in ("sigmoid", "relu") and spec.sink is None and not spec.dropout
    reason = f"each output is a weighted {'mean' if mean else 'sum'} of the values"
    run, formula, of = valued(flow)
    name = "output" if last else "attended_latents" if absorbed else "attended"
    flow.add(name, run, formula, of, role="output", reason=reason)
    expanding(flow)
    if not last:
        _merged(flow, merge)


def _merged(flow: Flow, merge: Callable[[Any], Any] | None) -> None:
    attended = flow.symbol("output")
    formula = call("concat", attended) if merge else attended
    names = [n for n in ("w_o", "b_o") if n in flow.given]
    if not names:
        run = merge or (lambda x: x)
        flow.add("output", run, formula, ("output",), role="output", reason="the heads side by side" if merge else "")
        return
    formula = formula * SYMBOLS["w_o"]
    if "b_o" in names:
        formula = formula + SYMBOLS["b_o"]
    run = partial(_project_merged, merge)
    flow.add("output", run, formula, ("output", *names), role="output", reason="output projection")


def _project_merged(merge: Callable[[Any], Any] | None, x: Array, w: Array, b: Array | None = None) -> Array:
    return projections.project(merge(x) if merge else x, w, b)
