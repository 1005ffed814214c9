"""Scores of queries and keys, and what is done to them before masks."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.attention import masks, norms, scores
from symattn.attention.flow import Flow
from symattn.attention.notation import SYMBOLS, scale_formula
from symattn.attention.softcap import softcap
from symattn.document.model import Text
from symattn.document.notation import Fence, Node, Over, Power, Transposed, call, equals, name, node

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


def _normalised(kind: str, eps: Any, letters: tuple[str, ...], x: Array, *parameters: Any) -> Array:
    given = dict(zip(letters, parameters, strict=True))
    norm = norms.rms_norm if kind == "rms" else norms.layer_norm
    return norm(x, eps, given.get("g"), given.get("b"))


# -- queries and keys of a norm ----------------------------------------------------------------------------------------
#: By ``score``: how scores are computed, and the inputs for it beside queries and keys.
_SCORES: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "dot": (scores.dot_scores, ()),
    "general": (scores.general_scores, ("w_s",)),
    "additive": (scores.additive_scores, ("w_s", "u_s", "v_s")),
    "cosine": (scores.cosine_scores, ()),
    "distance": (scores.distance_scores, ()),
}


def truncating(flow: Flow) -> None:
    """The first columns of queries and keys. d_k stays the width of the whole."""
    width = flow.spec.truncate
    if width is None:
        return
    flow.now.setdefault("width", flow.now["q"])
    for role in "qk":
        formula = call("first", flow.symbol(role), width)
        run = partial(scores.truncate, width=width)
        flow.add(f"{role}_cut", run, formula, (role,), role=role, reason=f"the first {width} columns")


def scoring(flow: Flow) -> None:
    """The scores of every query and key."""
    run, matrices = _SCORES[flow.spec.score]
    formula, reason = _formula(flow.spec.score, flow.symbol("q"), flow.symbol("k"))
    flow.add("scores", run, formula, ("q", "k", *matrices), role="scores", reason=reason)


def _formula(score: str, q: Node, k: Node) -> tuple[Node, Text]:
    """The scores as a matrix, and how one of them is made."""
    s, of_q, of_k = name("s", "i", "j", role="score"), name("q", "i", role="query"), name("k", "j", role="key")
    if score == "dot":
        return q * Transposed(k), ("one dot product for each query and key",)
    if score == "general":
        return q * SYMBOLS["w_s"] * Transposed(k), ("a dot product with the matrix between",)
    if score == "additive":
        hidden = call("tanh", of_q * SYMBOLS["w_s"] + of_k * SYMBOLS["u_s"])
        return call("additive", q, k), (equals(s, hidden * Transposed(SYMBOLS["v_s"])),)
    if score == "cosine":
        return call("unit", q) * Transposed(call("unit", k)), ("the cosine of the angle between query and key",)
    gap = Power(Fence("norm", of_q - of_k), node(2))
    return call("distance", q, k), (equals(s, -Over(gap, node(2))),)


def scaling(flow: Flow) -> None:
    """The scores times the scale."""
    spec = flow.spec
    if spec.scale is None and spec.score != "dot":
        return
    formula = scale_formula(spec.scale, flow.symbol("scores"), flow.terms)
    of: tuple[str, ...] = ("scores", _width(flow))
    run: Callable[..., Any]
    if spec.scale is None:
        run, reason = partial(scores.scale_by_root, terms=flow.terms), "keeps the variance of the scores"
    elif spec.scale == "1/d_k":
        run, reason = scores.scale_by_width, "by the width itself"
    elif spec.scale == "given":
        run, reason, of = partial(_scale_heads, spec.heads), "a factor for each head", ("scores", "scale")
    else:
        run, reason, of = partial(scores.scale_by, factor=spec.scale), "as specified", ("scores",)
    flow.add("scaled", run, formula, of, role="scores", reason=reason)


def _width(flow: Flow) -> str:
    """The role of the queries whose width is d_k: absorbed and truncated ones have another."""
    return "width" if "width" in flow.now else "q"


def _scale_heads(heads: int, s: Array, t: Array) -> Array:
    return scores.scale_by_heads(s, t) if heads > 1 else s * t


def capping(flow: Flow) -> None:
    """The scores between −c and c."""
    cap = flow.spec.softcap
    if cap is None:
        return
    c = node(Fraction(cap))
    formula = c * call("tanh", Over(flow.symbol("scores"), c))
    flow.add("capped", partial(softcap, cap=cap), formula, ("scores",), role="scores", reason="capped softly")


def biasing(flow: Flow) -> None:
    """The scores and a bias."""
    spec = flow.spec
    if not spec.bias:
        return
    formula = flow.symbol("scores") + SYMBOLS["bias"]
    run = partial(_add_bias, spec.heads)
    flow.add("biased", run, formula, ("scores", "bias"), role="scores", reason="bias given")


def _add_bias(heads: int, s: Array, bias: Array) -> Array:
    return masks.add_mask(s, masks.for_heads(bias, s) if heads > 1 else bias)
