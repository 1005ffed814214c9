"""From queries and keys to the output: scores, their scale, cap and bias, masks, weights, and A V.

Plain attention is the four steps ``scores``, ``scaled``, ``weights`` and ``output``, softmax(Q Kᵀ / √d_k) V:

>>> import numpy as np
>>> from symattn import Attention
>>> q, k, v = np.array([[1.0, 2.0]]), np.eye(2), np.array([[1.0], [3.0]])
>>> scaled = scores.scale_by_root(scores.dot_scores(q, k), q)
>>> bool(scores.weighted_values(softmax.softmax(scaled), v) == Attention()(q, k, v))
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple

from symattn.arrays.array import Array
from symattn.attention import latent, masks, norms, projections, scores, softmax, temperatures
from symattn.attention.flow import EACH, Flow
from symattn.attention.letters_of_attention import query_place
from symattn.attention.positions.position_fields import Shaw
from symattn.attention.stages import positions, tokens
from symattn.document.notation import Like, WrittenNumber

if TYPE_CHECKING:
    from symattn.attention.spec import Attention

# How formulas name the norms of queries, keys and values.
_WORDS = {"rms": "RMSNorm", "layer": "LayerNorm", "l2": "unit"}


# -- norms of queries, keys and values ---------------------------------------------------------------------------------
def norming(flow: Flow, place: str) -> None:
    """Normalise queries and keys, or keys alone, at this place beside their rotation.

    Over all heads: Groeneveld et al., OLMo 2 (2024), §3.3; MiniMax-M2 (2025). Keys alone: Kimi Team, Attention
    Residuals (2026), where the keys are outputs of layers and the query is learned.
    """
    if flow.spec.qk_norm_place == place:
        for role in flow.spec.normed_roles:
            across = flow.spec.qk_norm_over == "heads"
            _add_norm_step(flow, role, str(flow.spec.qk_norm), across)


def norming_values(flow: Flow) -> None:
    """Normalise values. Source: Gemma 3n, Gemma 4 (2025), with ε and without a gain."""
    _add_norm_step(flow, "v", str(flow.spec.value_norm))


def _add_norm_step(flow: Flow, role: str, kind: str, across: bool = False) -> None:
    """Normalise the vectors of a role, or those of all heads ``across``, with a gain and a bias if they are given."""
    names = [n for n in (f"g_{role}", f"beta_{role}") if n in flow.given]
    parameters = tuple(n[0] for n in names)
    run = (
        norms.unit if kind == "l2" else partial(_normalise_vectors, kind, flow.spec.eps, parameters)
    )
    reason = "head by head"
    # Vectors of length 1 have neither ε nor parameters.
    if kind == "l2":
        reason = "of length 1, head by head"
    elif across:
        run = partial(_across_heads, run, flow.spec.heads_of[role])
        reason = "over the columns of all heads together"
    written = f"{_WORDS[kind]}({', '.join(f'@{place}' for place in range(1 + len(names)))})"
    count = "h_kv" if role == "k" and flow.spec.group > 1 else "h"
    entries = partial(_normed_entries_across_heads, count) if across else _normed_entries
    typed, of = partial(entries, kind, bool(flow.spec.eps), role, names), (role, *names)
    values = {"eps": WrittenNumber(flow.spec.eps)}
    flow.add(
        f"{role}_normed",
        run,
        written,
        of,
        role=role,
        reason=reason,
        entries=typed,
        values=values,
        errors="rounded",
    )


def _normed_entries(kind: str, eps: bool, role: str, names: list[str]) -> str:
    i = "i" if role == "q" else "j"
    x, member = f"0[{i},l]", f"0[{i},m]"
    if kind == "l2":
        return f"out[{i},l] = {x}/√(Σ_{{m=1}}^width {member}²)"
    first = f"r_{i}l = {x} − (Σ_{{m=1}}^width {member})/width -- less the mean"
    if kind == "layer":
        x, member = f"r_{i}l", f"r_{i}m"
    gain, bias = (f"{n}[l]" if n in names else "" for n in (f"g_{role}", f"beta_{role}"))
    whole = (
        f"out[{i},l] = {tokens.root_entries(x, member, eps, gain)}{f' + {bias}' if bias else ''}"
    )
    return f"{first}\n{whole}" if kind == "layer" else whole


def _normed_entries_across_heads(
    count: str, kind: str, eps: bool, role: str, names: list[str]
) -> str:
    """Return the entries of a norm whose means are over the columns of all ``count`` heads."""
    i = "i" if role == "q" else "j"
    x, of_all = f"0[a,{i},l]", f"Σ_{{b=1}}^{count} Σ_{{m=1}}^width"
    centred = f"μ_{i} = ({of_all} 0[b,{i},m])/({count} width) -- the mean over all heads"
    less = f" − μ_{i}" if kind == "layer" else ""
    square = f"({of_all} (0[b,{i},m]{less})²)/({count} width)"
    gain, bias = (f"{n}[a?·width + l]" if n in names else "" for n in (f"g_{role}", f"beta_{role}"))
    member = f"({x}{less})" if less else x
    whole = f"({gain} {member})/√({square}{' + @eps' if eps else ''})"
    out = f"out[a,{i},l] = {whole}{f' + {bias}' if bias else ''}"
    return f"{centred}\n{out}" if kind == "layer" else out


def _across_heads(norm: Callable[..., Array], heads: int, x: Array, *parameters: Any) -> Array:
    """Return the norm of the columns of all heads side by side, in heads (…, h, n, d) as before."""
    merged = projections.merge_heads(x)
    return projections.split_heads(norm(merged, *parameters), heads)


def _normalise_vectors(
    kind: str, eps: Any, which: tuple[str, ...], x: Array, *parameters: Any
) -> Array:
    inputs = dict(zip(which, parameters, strict=True))
    norm = norms.rms_norm if kind == "rms" else norms.layer_norm
    return norm(x, eps, inputs.get("g"), inputs.get("b"))


def truncating(flow: Flow) -> None:
    """Keep the first columns of queries and keys; d_k stays the full width."""
    width = flow.spec.truncate
    assert width is not None
    # The scale still uses the full width, unless a latent has set it before.
    flow.now.setdefault("width", flow.now["q"])
    for role in "qk":
        run, reason = partial(scores.truncate, width=width), f"the first {width} columns"
        written, typed = f"first(@0, {width})", "out[i,l] = 0[i,l]"
        flow.add(
            f"{role}_cut",
            run,
            written,
            (role,),
            role=role,
            reason=reason,
            entries=typed,
            errors="moves",
        )


# -- scores ------------------------------------------------------------------------------------------------------------
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


# -- masks: the scores that no query may use become −∞ -----------------------------------------------------------------
def masking(flow: Flow) -> None:
    """Apply all masks of the specification in one step."""
    spec = flow.spec
    names = [n for n, used in (("mask", spec.mask), ("keep", spec.padding)) if used]
    # Queries and keys of one sequence have the same labels.
    if spec.documents:
        names += ["doc_q", "doc_k"] if "doc_q" in flow.given else ["doc", "doc"]
    run, reason, typed = (
        partial(_apply_score_masks, spec, tuple(names)),
        partial(_mask_reason, spec),
        partial(_masked_entries, spec),
    )
    flow.add(
        "masked",
        run,
        "mask(@0)",
        ("scores", *names),
        role="scores",
        reason=reason,
        entries=typed,
        errors="own",
    )


def _masked_entries(spec: Attention) -> str:
    """s″_ij = s′_ij where the query may see the key, −∞ elsewhere."""
    visible_entry = "out[i,j] = 0[i,j]" + " + mask[i,j]" * (spec.mask == "additive")
    by_place = spec.causal or spec.window is not None or spec.block is not None or spec.documents
    # An additive mask alone forbids only by its own −∞.
    if not (by_place or spec.padding or spec.mask == "boolean"):
        return f"{visible_entry} -- entry by entry"
    # The causal condition is written out only if no other mask adds to it.
    plain = not (
        spec.padding
        or spec.mask
        or spec.documents
        or spec.block
        or spec.prefix
        or spec.window is not None
    )
    behind = _causal_condition(spec.alignment)
    when = f"for ${behind}$" if spec.causal and plain else '"for a key that may be seen"'
    return f'{visible_entry} {when}\nout[i,j] = −∞ "for all other keys"'


def _causal_condition(alignment: str) -> str:
    """j ≤ i + n_k − n_q, or j ≤ i."""
    return f"j ≤ {query_place(alignment)}"


def _mask_reason(spec: Attention) -> str:
    """Return the rules of the masks, one after the other."""
    rules, behind = [], _causal_condition(spec.alignment)
    if spec.prefix is not None:
        rules.append(f'causal after a prefix: $j < {spec.prefix} "or" {behind}$')
    elif spec.causal:
        rules.append(f"causal: ${behind}$")
    if spec.window is not None:
        left, right = spec.sides
        first = "" if left is None else f"{query_place(spec.alignment, -left)} ≤ "
        last = "" if right is None else f" ≤ {query_place(spec.alignment, right)}"
        rules.append(f"window: ${first}j{last}$")
    if spec.block is not None:
        rules.append(f"blocks of {spec.block} places")
    if spec.documents:
        rules.append("within its own document, where places are counted")
    if spec.mask:
        rules.append(f"{spec.mask} mask given")
    if spec.padding:
        rules.append("padded keys are forbidden")
    return "; ".join(rules)


def _apply_score_masks(spec: Attention, names: tuple[str, ...], s: Array, *inputs: Array) -> Array:
    """Apply the masks of ``spec`` to scores in the order additive, boolean, padding, documents, position."""
    arrays = dict(zip(names[: len(names) - 2 * spec.documents], inputs, strict=False))
    if spec.mask is not None:
        change = masks.add_mask if spec.mask == "additive" else masks.forbid
        s = change(s, masks.for_heads(arrays["mask"], s) if spec.heads > 1 else arrays["mask"])
    allowed = [masks.padding(arrays["keep"])] if spec.padding else []
    if spec.documents:
        queries, keys = inputs[-2:]
        allowed += [masks.same_document(queries, keys)]
        # Within documents, places start again at 0.
        allowed += by_place(spec, masks.document_places(queries, keys, spec.alignment))
    else:
        allowed += by_place(spec, s)
    for mask in allowed:
        s = masks.forbid(s, masks.for_every_head(mask) if spec.heads > 1 else mask)
    return s


def by_place(
    spec: Attention, s: Array | masks.Places, whole: masks.Places | None = None
) -> Iterator[Any]:
    """Yield the masks by position for scores, or for positions ``s``, which may be a part of ``whole``."""
    # A prefix includes the causal mask after it.
    if spec.prefix is not None:
        yield masks.prefix(s, spec.prefix, spec.alignment)
    elif spec.causal:
        yield masks.causal(s, spec.alignment)
    if spec.window is not None:
        yield masks.sides(s, *spec.sides, spec.alignment)
    if spec.block is not None:
        yield masks.blocks(
            s, masks.block_bounds(s if whole is None else whole, spec.block), spec.alignment
        )


# -- weights -----------------------------------------------------------------------------------------------------------
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


# -- output: A V, the heads side by side, and the output projection if one is given ------------------------------------
def closing(flow: Flow) -> None:
    """Add the weighted values and, if needed, their expansion from latents, the merged heads and the projection."""
    spec = flow.spec
    # Without tokens the caller passed heads apart, and the output stays apart.
    merge = spec.heads > 1 and "x" in flow.given
    absorbed = spec.latent is not None and spec.latent.absorbed
    # The step whose array is the output itself has the name "output".
    last = not merge and "w_o" not in flow.given and not absorbed and not spec.output_gate
    reason = f"each output is a weighted {'mean' if spec.averages else 'sum'} of the values"
    run, written, of = scores.weighted_values, "@0 @1", ["weights", "v"]
    # Shaw's positions add rows of a table to the values, too.
    if isinstance(spec.position, Shaw) and spec.position.values:
        run, written = (
            partial(positions.valued, spec.position.most, spec.alignment),
            "@0 @1 + rel(@0, @2)",
        )
        of += ["a_v"]
    attended = "output" if last else "attended_latents" if absorbed else "attended"
    typed = "out[i,l] = Σ_{j=1}^n_k 0[i,j] " + (
        "{1[j,l] + 2[@distance]}" if len(of) > 2 else "1[j,l]"
    )
    typed += " -- in each head" * (spec.heads > 1 and not last)
    flow.add(attended, run, written, of, role="output", reason=reason, entries=typed, errors="own")
    if absorbed:
        reason = "values are made of the weighted latents alone"
        run = partial(latent.expand, heads=spec.heads)
        typed = "out[a?,i,l] = Σ_{m=1}^rows_1 0[i,m] 1[m,a?·d_v + l]"
        flow.add(
            "attended",
            run,
            "@0 @1",
            ("output", "w_uv"),
            role="output",
            reason=reason,
            entries=typed,
            errors="own",
        )
    if spec.output_gate and not spec.gates_projection:
        _add_gate_step(flow, "gated" if merge or "w_o" in flow.given else "output")
    if merge or "w_o" in flow.given or (absorbed and not spec.output_gate):
        names = [n for n in ("w_o", "b_o") if n in flow.given]
        reason = "output projection" if names else "the heads side by side" if merge else ""
        written = ("concat(@0)" if merge else "@0") + "".join((" @1", " + @2")[: len(names)])
        typed = _merged_entries(spec.heads > 1, names)
        flow.add(
            "projected" if spec.gates_projection else "output",
            partial(_merge_heads_and_project, merge),
            written,
            ("output", *names),
            role="output",
            reason=reason,
            entries=typed,
            errors="own",
        )
    if spec.gates_projection:
        _add_gate_step(flow, "output")


def _add_gate_step(flow: Flow, name: str) -> None:
    """Multiply each head's output, or the projected output, by the sigmoid of the gate.

    Source: Qiu et al., Gated Attention for Large Language Models (2025), §2.2: a gate after the weighted values (G1),
    for each element or each head, or after the output projection (G5); Qwen3-Next (2025), for each element of a head.
    """

    def run(h: Array, gate: Array) -> Array:
        return h * softmax.sigmoid_weights(gate, 0, flow.spec.stabilised)

    flow.add(
        name,
        run,
        "@0 ⊙ sigmoid(@1)",
        ("output", "gate"),
        role="output",
        reason="each number times a share that the query chooses",
        entries="out[i,l] = 0[i,l]/(1 + e^{−1[i,l]})",
        errors="own",
    )


def _merged_entries(several: bool, names: Sequence[str]) -> str:
    if not names:
        return "out[i,a?·d_v + l] = 0[a?,i,l]" + " -- the heads side by side" * several
    merged = f"out[i,l] = Σ_{{m=1}}^{{{'h ' * several}d_v}} 0[i,m] w_o[m,l]" + " + b_o[l]" * (
        "b_o" in names
    )
    return merged + " -- the heads side by side: column $m$ is head $m/d_v$, rounded up" * several


def _merge_heads_and_project(
    merge: bool, x: Array, w: Array | None = None, b: Array | None = None
) -> Array:
    heads = projections.merge_heads(x) if merge else x
    return heads if w is None else projections.project(heads, w, b)


#: The stages in order, each with the field, property or input that enables it; "" marks those that always run.
STAGES: tuple[tuple[str, Callable[[Flow], None]], ...] = (
    *(
        ("x", tokens.roles),
        ("latent", tokens.latents),
        ("qk_norm", partial(norming, place="before")),
        ("position", positions.rotating),
        ("qk_norm", partial(norming, place="after")),
        ("value_norm", norming_values),
    ),
    *(("latent", tokens.joining), ("kv_heads", tokens.sharing), ("truncate", truncating)),
    *(("", scoring), ("position", positions.relating), ("", scaling)),
    *(("temperature", tempering), ("softcap", capping)),
    *(("position", positions.placing), ("bias", biasing), ("masks_anything", masking)),
    *(("", weighing), ("lse", summing), ("dropout", dropping), ("", closing)),
)
