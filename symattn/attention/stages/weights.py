"""Weights of the keys for each query, the logarithms of their divisors, and dropout."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.attention import masks, scores, softmax
from symattn.attention.flow import Flow, Stage

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


def weighing(flow: Flow) -> None:
    """Add the weights of the keys for each query."""
    spec = flow.spec
    names = ("scores", "sink") if spec.sink == "given" else ("scores",)
    written, reason, typed = (
        partial(f, spec) for f in (_weights_formula, _weights_reason, _weights_entries)
    )
    flow.add(
        "weights",
        _make_weight_function(spec),
        written,
        names,
        role="weights",
        reason=reason,
        entries=typed,
        errors="own",
    )


def _make_weight_function(spec: Attention) -> Callable[..., Any]:
    # Without a mask no row is empty, so the plain quotient suffices.
    fully_masked = spec.fully_masked if spec.masks_anything else "nan"
    if not spec.is_softmax:
        weights = softmax.NORMALISERS[spec.normaliser].weights
        return partial(
            weights, bias=spec.bias, stabilised=spec.stabilised, fully_masked=fully_masked
        )
    match spec.sink:
        case "zero":
            # A sink keeps every row from being empty, so ``fully_masked`` does not matter.
            return partial(softmax.sink_weights, sink=0, stabilised=spec.stabilised, base=spec.base)
        case "given":
            return lambda s, sink: softmax.sink_weights(
                s, of_rows(spec, sink), spec.stabilised, spec.base
            )
        case None:
            return partial(
                softmax.softmax,
                stabilised=spec.stabilised,
                fully_masked=fully_masked,
                base=spec.base,
            )


def of_rows(spec: Attention, sink: Array) -> Array:
    """Shape the sinks so that they broadcast to rows: (h, 1, 1) if there are several heads."""
    return scores.per_head(sink) if spec.heads > 1 else sink


def _weights_formula(spec: Attention) -> str:
    if spec.is_softmax:
        return _with_sink(spec, "softmax")
    return softmax.NORMALISERS[spec.normaliser].at_bias(spec.bias).formula


def _with_sink(spec: Attention, word: str) -> str:
    return (
        word
        + "_2" * bool(spec.base)
        + {"zero": "(@0, 0)", "given": "(@0, @1)", None: "(@0)"}[spec.sink]
    )


def _weights_reason(spec: Attention) -> str:
    if not spec.is_softmax:
        alone = not softmax.NORMALISERS[spec.normaliser].sums_to_one
        return (
            "score by score; rows need not sum to one"
            if alone
            else "row by row; keys with low scores get nothing"
        )
    words = ["row by row"]
    if spec.sink:
        words += ["the sink takes its share, and gives nothing"]
    if spec.stabilised:
        words += [
            "the row maximum is subtracted first"
            + (", the sink's logit included" if spec.sink else "")
        ]
    return "; ".join(words)


def _weights_entries(spec: Attention) -> str:
    """a_ij = e^{s_ij}/Σ_l e^{s_il}, or a function of one score; projections to the simplex have no such formula."""
    reason = " -- $e^{−∞} = 0$" * spec.masks_anything
    if not spec.is_softmax:
        other = softmax.NORMALISERS[spec.normaliser].at_bias(spec.bias)
        return other.entry + reason * other.takes_exponentials
    quotient = f"out[i,j] = {spec.base or 'e'}^0[i,j]/({_total_entries(spec, 'l')})"
    # Only with masks and without a sink may a row be empty.
    if not spec.masks_anything or spec.sink or spec.fully_masked != "zeros":
        return quotient + reason
    return f"{quotient}⟦ for a query that sees a key⟧{reason}\n⟦out[i,j] = 0 for all others⟧"


def _total_entries(spec: Attention, letter: str) -> str:
    """Σ_l e^{s_il}, with powers of two and the sink if the specification has them."""
    base = spec.base or "e"
    sink = {"zero": "1 + ", "given": f"{base}^{'sink[a]' if spec.heads > 1 else 'z'} + ", None: ""}[
        spec.sink
    ]
    return f"{sink}Σ_{{{letter}=1}}^n_k {base}^0[i,{letter}]"


def summing(flow: Flow) -> None:
    """Add the logarithm of the sums that rows are divided by."""
    spec = flow.spec
    names = ("scores", "sink") if spec.sink == "given" else ("scores",)
    written, reason = _with_sink(spec, "lse"), "the logarithm of what each row is divided by"
    typed = f"out[i] = log{'_2' if spec.base else ''}({_total_entries(spec, 'j')})"
    flow.add(
        "lse",
        partial(_log_sums, spec),
        written,
        names,
        role="lse",
        reason=reason,
        entries=typed,
        errors="own",
    )


def _log_sums(spec: Attention, s: Array, sink: Any = None) -> Array:
    if spec.sink is None:
        return softmax.log_sum_exp(s, spec.masks_anything, spec.base)[..., 0]
    logit = 0 if spec.sink == "zero" else of_rows(spec, sink)
    return softmax.sink_log_sum_exp(s, logit, spec.base)[..., 0]


def dropping(flow: Flow) -> None:
    """Apply dropout: the kept weights, rescaled, and 0 for the others."""
    rate = Fraction(str(flow.spec.dropout))  # 0.1 is meant to be 1/10
    reason = f"each weight is dropped with probability {rate}; the mean stays what it was"
    several = flow.spec.heads > 1

    def run(a: Array, keep: Array) -> Array:
        return softmax.dropout(a, masks.for_heads(keep, a) if several else keep, rate)

    of, typed = (
        ("weights", "drop"),
        "out[i,j] = 0[i,j]/@kept for a weight that is kept\nout[i,j] = 0 for all others",
    )
    constants = {"kept": 1 - rate}
    flow.add(
        "dropped",
        run,
        "@0 ⊙ @1/@kept",
        of,
        role="weights",
        reason=reason,
        entries=typed,
        values=constants,
        errors="own",
    )


#: The stages of weights, in order.
STAGES: tuple[Stage, ...] = (("", weighing), ("lse", summing), ("dropout", dropping))
