"""Scores of queries and keys: their kinds, scale, temperatures, cap and bias."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import mul
from typing import Any, NamedTuple

from symattn.arrays.array import Array
from symattn.attention import masks, scores, temperatures
from symattn.attention.flow import EACH, Flow, Stage
from symattn.attention.letters_of_attention import query_place
from symattn.attention.stages import positions
from symattn.document.notation import Like, WrittenNumber


class _Score(NamedTuple):
    """A kind of score: its function and formula, its inputs besides queries and keys, the reason, and its entries."""

    run: Callable[..., Any]
    written: str
    names: tuple[str, ...]
    reason: str
    entries: str


# The sum that several kinds of score share.
_DOT = "Σ_{l=1}^width_0 0[i,l] 1[j,l]"
# Each value of ``Attention.score``, with what a reader needs to know of the step.
_SCORES = {
    "dot": _Score(
        scores.dot_scores, "@0 @1ᵀ", (), "one dot product for each query and key",
        f"out[i,j] = {_DOT}",
    ),
    "general": _Score(
        scores.general_scores, "@0 @2 @1ᵀ", ("w_s",), "a dot product with the matrix between",
        "out[i,j] = Σ_{l=1}^width_0 Σ_{m=1}^width_1 0[i,l] w_s[l,m] 1[j,m]",
    ),
    "additive": _Score(
        scores.additive_scores, "additive(@0, @1)", ("w_s", "u_s", "v_s"), "$s_ij = tanh(q_i @2 + k_j @3) @4ᵀ$",
        "x_i_j_m = Σ_{l=1}^width_0 0[i,l] w_s[l,m] + Σ_{l=1}^width_1 1[j,l] u_s[l,m] -- of each unit of the hidden "
        "layer\nout[i,j] = Σ_{m=1}^width_v_s v_s[m] tanh(x_i_j_m)",
    ),
    "cosine": _Score(
        scores.cosine_scores, "unit(@0) unit(@1)ᵀ", (),
        "the cosine of the angle between query and key",
        f"out[i,j] = ({_DOT})/(‖0[i]‖ ‖1[j]‖) -- by the lengths of query and key",
    ),
    "distance": _Score(
        scores.distance_scores, "distance(@0, @1)", (), "$s_ij = −‖q_i − k_j‖²/2$",
        "out[i,j] = −(Σ_{l=1}^width_0 (0[i,l] − 1[j,l])²)/2",
    ),
}  # fmt: skip


def scoring(flow: Flow) -> None:
    """Add the scores of every query and key."""
    run, written, names, reason, typed = _SCORES[flow.spec.score]
    flow.add(
        "scores",
        run,
        written,
        ("q", "k", *names),
        role="scores",
        reason=reason,
        entries=typed,
        errors="products",
    )


def scaling(flow: Flow) -> None:
    """Multiply the scores by the scale."""
    scale, terms = flow.spec.scale, flow.terms
    # Only dot products grow with the width, so only these are scaled by default.
    if scale is None and flow.spec.score != "dot":
        return
    # absorbed or truncated queries have another width
    width = "width" if "width" in flow.now else "q"
    several, of = flow.spec.heads > 1, ["scores", width]
    run: Callable[..., Any]
    typed, values = EACH, {}
    if scale is None:
        run, reason = partial(scores.scale_by_root, terms=terms), "keeps the variance of the scores"
        # Each term of the scores adds its variance.
        written = f"@0/√{{{terms} d_k}}" if terms > 1 else "@0/√d_k"
    elif scale == "1/d_k":
        run, reason, written = scores.scale_by_width, "by the width itself", "@0/d_k"
    elif scale == "given":
        # A single head needs no axis for its factor.
        run, reason = scores.scale_by_heads if several else mul, "a factor for each head"
        written, of = "@1 @0", ["scores", "scale"]
        typed = "out[i,j] = scale[a] 0[i,j] -- head $a$" if several else "out[i,j] = t 0[i,j]"
    else:
        run, reason, of = partial(scores.scale_by, factor=scale), "as specified", ["scores"]
        written, values = "@0" if scale == 1 else "@scale @0", {"scale": WrittenNumber(scale)}
    flow.add(
        "scaled",
        run,
        written,
        of,
        role="scores",
        reason=reason,
        entries=typed,
        values=values,
        errors="scales",
    )


def tempering(flow: Flow) -> None:
    """Multiply the scores of each query by the temperature of its place."""
    temperature = temperatures.temperature_of(flow.spec)
    place = query_place(temperature.alignment, temperature.start - 1)
    values: dict[str, Like] = {"rate": temperature.rate}
    if temperature.slope is None:
        count, logarithm = f"max(1, {{{place}}}/@rate)", "{log c}/{log @rate}"
    else:
        count, logarithm = f"⌊{{{place}}}/@rate⌋ + 1", "@slope log c"
        values["slope"] = temperature.slope
    flow.add(
        "tau",
        partial(temperatures.by_place, temperature=temperature),
        f"1 + {logarithm}",
        ["scores"],
        reason=f"$c_i = {count}$",
        entries=f"out[i] = 1 + {logarithm.replace('log c', 'log c_i')}",
        values=values,
        errors="own",
    )
    flow.add(
        "tempered",
        temperatures.tempered,
        "diag(@1) @0",
        ["scores", "tau"],
        role="scores",
        reason="by a factor that grows with the place of the query",
        entries="out[i,j] = 1[i] 0[i,j]",
        errors="scales",
    )


def capping(flow: Flow) -> None:
    """Cap the scores softly between −c and c."""
    cap = flow.spec.softcap
    assert cap is not None
    run, written, values = (
        partial(scores.softcap, cap=cap),
        "@cap tanh(@0/@cap)",
        {"cap": WrittenNumber(cap)},
    )
    flow.add(
        "capped",
        run,
        written,
        ["scores"],
        role="scores",
        reason="capped softly",
        entries=EACH,
        values=values,
        errors="own",
    )


def biasing(flow: Flow) -> None:
    """Add the input ``bias`` to the scores."""
    several = flow.spec.heads > 1

    def run(s: Array, bias: Array) -> Array:
        return masks.add_mask(s, masks.for_heads(bias, s) if several else bias)

    flow.add(
        "biased",
        run,
        "@0 + @1",
        ("scores", "bias"),
        role="scores",
        reason="bias given",
        entries=EACH,
        errors="adds",
    )


#: The stages of scores, in order.
STAGES: tuple[Stage, ...] = (
    ("", scoring),
    ("position", positions.relating),
    ("", scaling),
    ("temperature", tempering),
    ("softcap", capping),
    ("position", positions.placing),
    ("bias", biasing),
)
