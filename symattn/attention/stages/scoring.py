"""Scores of queries and keys, and what is done to them before masks."""

from __future__ import annotations

from functools import partial

from symattn.attention import scores
from symattn.attention.flow import Flow
from symattn.attention.notation import scale_formula
from symattn.document.notation import Transposed


def scoring(flow: Flow) -> None:
    """The scores of every query and key."""
    formula = flow.symbol("q") * Transposed(flow.symbol("k"))
    reason = "one dot product for each query and key"
    flow.add("scores", scores.dot_scores, formula, ("q", "k"), role="scores", reason=reason)


def scaling(flow: Flow) -> None:
    """The scores times the scale."""
    scale = flow.spec.scale
    formula = scale_formula(scale, flow.symbol("scores"))
    if scale is None:
        reason = "keeps the variance of the scores"
        flow.add("scaled", scores.scale_by_root, formula, ("scores", _width(flow)), role="scores", reason=reason)
    else:
        run = partial(scores.scale_by, factor=scale)
        flow.add("scaled", run, formula, ("scores",), role="scores", reason="as specified")


def _width(flow: Flow) -> str:
    """The role of the queries whose width is d_k: absorbed ones have another."""
    return "width" if "width" in flow.now else "q"
