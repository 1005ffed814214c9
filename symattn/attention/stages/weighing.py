"""From scores to weights."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.attention import masks, pointwise, sinks, softmax, sparse
from symattn.attention.dropout import dropout
from symattn.attention.flow import Flow
from symattn.attention.notation import N_K, SYMBOLS, TIMES
from symattn.attention.scores import per_head
from symattn.document.notation import Name, Node, Over, call, commas, name, node

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


def weighing(flow: Flow) -> None:
    """The weights of the keys for each query."""
    spec = flow.spec
    names = ("sink",) if spec.sink == "given" else ()
    formula = _formula(spec, flow.symbol("scores"))
    flow.add("weights", _run(spec), formula, ("scores", *names), role="weights", reason=_reason(spec))


def _run(spec: Attention) -> Callable[..., Any]:
    # Without a mask no row is empty, and the plain quotient says all.
    fully_masked = spec.fully_masked if spec.masks_anything else "nan"
    if spec.normaliser == "sigmoid":
        return partial(pointwise.sigmoid_weights, bias=0 if spec.bias else None, stabilised=spec.stabilised)
    if spec.normaliser == "relu":
        return pointwise.relu_weights
    if spec.normaliser in ("sparsemax", "entmax"):
        weigh = sparse.sparsemax if spec.normaliser == "sparsemax" else sparse.entmax15
        return partial(weigh, fully_masked=fully_masked)
    if spec.sink == "zero":
        return partial(sinks.off_by_one, stabilised=spec.stabilised, base=spec.base)
    if spec.sink == "given":
        return partial(_sink_weights, spec)
    return partial(softmax.softmax, stabilised=spec.stabilised, fully_masked=fully_masked, base=spec.base)


def _sink_weights(spec: Attention, s: Array, sink: Array) -> Any:
    return sinks.sink_weights(s, of_rows(spec, sink), spec.stabilised, spec.base)


def of_rows(spec: Attention, sink: Array) -> Array:
    """One sink for all rows, or one for those of each head, (h, 1, 1)."""
    return per_head(sink) if spec.heads > 1 else sink


def _formula(spec: Attention, s: Node) -> Node:
    if spec.normaliser == "sigmoid":
        return call("sigmoid", s if spec.bias else s - call("log", N_K))
    if spec.normaliser == "relu":
        return Over(call("relu", s), N_K)
    if spec.normaliser == "entmax":
        return call(name("entmax", Fraction(3, 2)), s)
    function = name(spec.normaliser, 2) if spec.base else Name(spec.normaliser)
    sink = {"zero": node(0), "given": SYMBOLS["sink"]}.get(spec.sink or "")
    return call(function, s if sink is None else commas(s, sink))


def _reason(spec: Attention) -> str:
    if spec.normaliser in ("sigmoid", "relu"):
        return "score by score; rows need not sum to one"
    if spec.normaliser != "softmax":
        return "row by row; keys with low scores get nothing"
    words = ["row by row"]
    if spec.sink:
        words += ["the sink takes its share, and gives nothing"]
    if spec.stabilised:
        words += ["the row maximum is subtracted first" + (", the sink's logit included" if spec.sink else "")]
    return "; ".join(words)


def summing(flow: Flow) -> None:
    """The logarithm of the sums that rows are divided by."""
    spec = flow.spec
    if not spec.lse:
        return
    names = ("sink",) if spec.sink == "given" else ()
    s = flow.symbol("scores")
    sink = {"zero": node(0), "given": SYMBOLS["sink"]}.get(spec.sink or "")
    formula = call(name("lse", 2) if spec.base else "lse", s if sink is None else commas(s, sink))
    reason = "the logarithm of what each row is divided by"
    flow.add("lse", partial(_log_sums, spec), formula, ("scores", *names), role="lse", reason=reason)


def _log_sums(spec: Attention, s: Any, sink: Any = None) -> Any:
    if spec.sink is None:
        return softmax.log_sum_exp(s, spec.masks_anything, spec.base)[..., 0]
    if spec.sink == "zero":
        return sinks.sink_log_sum_exp(s, 0, spec.base)[..., 0]
    return sinks.sink_log_sum_exp(s, of_rows(spec, sink), spec.base)[..., 0]


def dropping(flow: Flow) -> None:
    """The weights that are kept, the others 0."""
    if not flow.spec.dropout:
        return
    rate = Fraction(str(flow.spec.dropout))  # 0.1 is meant to be 1/10
    formula = Over(flow.symbol("weights") * TIMES * SYMBOLS["drop"], node(1 - rate))
    run = partial(_drop, flow.spec.heads, rate)
    reason = f"each weight is dropped with probability {rate}; the mean stays what it was"
    flow.add("dropped", run, formula, ("weights", "drop"), role="weights", reason=reason)


def _drop(heads: int, rate: Fraction, a: Array, keep: Array) -> Array:
    return dropout(a, masks.for_heads(keep, a) if heads > 1 else keep, rate)
