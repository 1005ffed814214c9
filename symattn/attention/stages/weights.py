"""From queries and keys to the output: scores, what is done to them before masks, masks, weights, and A V.

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
from itertools import chain
from operator import add, mul
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from symattn.arrays.array import Array
from symattn.attention import latent, masks, norms, projections, scores, softmax
from symattn.attention import letters_of_attention as letters
from symattn.attention.flow import EntryLines, Flow, Reason, entries
from symattn.attention.positions.position_fields import Shaw
from symattn.attention.stages import positions, tokens
from symattn.document.model import Text
from symattn.document.notation import Fence, Name, Node, Over, Power, Transposed, call, commas, equals, name, node

if TYPE_CHECKING:
    from symattn.attention.spec import Attention

_OF = letters.SYMBOLS
_WORDS = {"rms": "RMSNorm", "layer": "LayerNorm", "l2": "unit"}
_Q, _K, _S = name("q", "i", role="query"), name("k", "j", role="key"), name("s", "i", "j", role="score")


# -- queries and keys --------------------------------------------------------------------------------------------------
def normed(flow: Flow) -> None:
    """The normalised queries and keys, with their gains and biases where those are given."""
    kind = str(flow.spec.qk_norm)
    for role in "qk":
        names = [n for n in (f"g_{role}", f"beta_{role}") if n in flow.given]
        run = norms.unit if kind == "l2" else partial(_normalised, kind, flow.spec.eps, tuple(n[0] for n in names))
        reason = "of length 1, head by head" if kind == "l2" else "head by head"
        writes, typed = partial(call, _WORDS[kind]), partial(_normed_entries, kind, flow.spec.eps, role, names)
        flow.add(f"{role}_normed", run, writes, (role, *names), role=role, reason=reason, entries=typed)


def _normed_entries(kind: str, eps: Any, role: str, names: list[str]) -> EntryLines:
    i = "j" if role == "k" else "i"
    x, member = f"0[{i},l]", f"0[{i},m]"
    if kind == "l2":
        return entries(f"out[{i},l] = {x}/√(Σ_{{m=1}}^width {member}²)")
    first = f"r_{i}l = {x} − (Σ_{{m=1}}^width {member})/width -- less the mean"
    if kind == "layer":
        x, member = f"r_{i}l", f"r_{i}m"
    gain, bias = (f"{n}[l]" if n in names else "" for n in (f"g_{role}", f"beta_{role}"))
    whole = f"out[{i},l] = {tokens.root_entries(x, member, eps, gain)}{f' + {bias}' if bias else ''}"
    return entries(*([first] if kind == "layer" else []), whole, eps=Fraction(eps))


def _normalised(kind: str, eps: Any, which: tuple[str, ...], x: Array, *parameters: Any) -> Array:
    inputs = dict(zip(which, parameters, strict=True))
    norm = norms.rms_norm if kind == "rms" else norms.layer_norm
    return norm(x, eps, inputs.get("g"), inputs.get("b"))


def truncating(flow: Flow) -> None:
    """The first columns of queries and keys. d_k stays the width of the whole."""
    width = flow.spec.truncate
    assert width is not None
    flow.now.setdefault("width", flow.now["q"])
    for role in "qk":
        run, reason = partial(scores.truncate, width=width), f"the first {width} columns"
        cut: Callable[..., Node] = lambda x: call("first", x, width)  # noqa: E731
        flow.add(f"{role}_cut", run, cut, (role,), role=role, reason=reason, entries="out[i,l] = 0[i,l]")


# -- scores ------------------------------------------------------------------------------------------------------------
class _Score(NamedTuple):
    """How scores are computed and written, the inputs beside queries and keys, and how one of them is made."""

    run: Callable[..., Any]
    writes: Callable[..., Node]
    names: tuple[str, ...]
    reason: Reason
    entries: str | Callable[[], EntryLines]


_DOT = "Σ_{l=1}^width_0 0[i,l] 1[j,l]"
_SCORES = {
    "dot": _Score(
        scores.dot_scores, lambda q, k: q * Transposed(k), (), "one dot product for each query and key",
        f"out[i,j] = {_DOT}",
    ),
    "general": _Score(
        scores.general_scores, lambda q, k, w: q * w * Transposed(k), ("w_s",), "a dot product with the matrix between",
        "out[i,j] = Σ_{l=1}^width_0 Σ_{m=1}^width_1 0[i,l] w_s[l,m] 1[j,m]",
    ),
    "additive": _Score(
        scores.additive_scores, lambda q, k, *_: call("additive", q, k), ("w_s", "u_s", "v_s"),
        lambda: (equals(_S, call("tanh", _Q * _OF["w_s"] + _K * _OF["u_s"]) * Transposed(_OF["v_s"])),),
        partial(
            entries, "x_i_j_m = Σ_{l=1}^width_0 0[i,l] w_s[l,m] + Σ_{l=1}^width_1 1[j,l] u_s[l,m]"
            " -- of each unit of the hidden layer", "out[i,j] = Σ_{m=1}^width_v_s v_s[m] tanh(x_i_j_m)",
        ),
    ),
    "cosine": _Score(
        scores.cosine_scores, lambda q, k: call("unit", q) * Transposed(call("unit", k)), (),
        "the cosine of the angle between query and key",
        f"out[i,j] = ({_DOT})/(‖0[i]‖ ‖1[j]‖) -- by the lengths of query and key",
    ),
    "distance": _Score(
        scores.distance_scores, lambda q, k: call("distance", q, k), (),
        lambda: (equals(_S, -Over(Power(Fence("norm", _Q - _K), node(2)), node(2))),),
        "out[i,j] = −(Σ_{l=1}^width_0 (0[i,l] − 1[j,l])²)/2",
    ),
}  # fmt: skip


def scoring(flow: Flow) -> None:
    """The scores of every query and key."""
    run, writes, names, reason, typed = _SCORES[flow.spec.score]
    flow.add("scores", run, writes, ("q", "k", *names), role="scores", reason=reason, entries=typed)


def scaling(flow: Flow) -> None:
    """The scores times the scale."""
    scale, terms = flow.spec.scale, flow.terms
    if scale is None and flow.spec.score != "dot":
        return
    width = "width" if "width" in flow.now else "q"  # of queries that are absorbed or truncated it is another
    of: tuple[str, ...] = ("scores", width)
    run: Callable[..., Any]
    if scale is None:
        run, reason = partial(scores.scale_by_root, terms=terms), "keeps the variance of the scores"
    elif scale == "1/d_k":
        run, reason = scores.scale_by_width, "by the width itself"
    elif scale == "given":
        run = scores.scale_by_heads if flow.spec.heads > 1 else mul
        reason, of = "a factor for each head", ("scores", "scale")
    else:
        run, reason, of = partial(scores.scale_by, factor=scale), "as specified", ("scores",)
    writes: Callable[..., Node] = lambda s, *_: letters.scale_formula(scale, s, terms)  # noqa: E731
    typed = partial(_scaled_entries, flow.spec.heads > 1, scale, terms)
    flow.add("scaled", run, writes, of, role="scores", reason=reason, entries=typed)


def _scaled_entries(several: bool, scale: Any, terms: int) -> EntryLines:
    if scale == "given":
        return entries("out[i,j] = " + ("scale[a] 0[i,j] -- head $a$" if several else "t 0[i,j]"))
    words = {None: f"0[i,j]/√({f'{terms} ' * (terms > 1)}d_k)", "1/d_k": "0[i,j]/d_k", 1: "0[i,j]"}
    right = words.get(scale, "@scale 0[i,j]")
    return entries(f"out[i,j] = {right} -- entry by entry", scale=0 if right in words.values() else Fraction(scale))


def capping(flow: Flow) -> None:
    """The scores between −c and c."""
    cap = flow.spec.softcap
    assert cap is not None

    def formula(s: Node) -> Node:
        c = node(Fraction(cap))
        return c * call("tanh", Over(s, c))

    run = partial(scores.softcap, cap=cap)
    typed = partial(entries, "out[i,j] = @cap tanh(0[i,j]/@cap) -- entry by entry", cap=Fraction(cap))
    flow.add("capped", run, formula, ("scores",), role="scores", reason="capped softly", entries=typed)


def biasing(flow: Flow) -> None:
    """The scores and a bias."""
    several = flow.spec.heads > 1

    def run(s: Array, bias: Array) -> Array:
        return masks.add_mask(s, masks.for_heads(bias, s) if several else bias)

    typed = "out[i,j] = 0[i,j] + bias[i,j] -- entry by entry"
    flow.add("biased", run, add, ("scores", "bias"), role="scores", reason="bias given", entries=typed)


# -- masks: the scores that no query may use become −∞ -----------------------------------------------------------------
def masking(flow: Flow) -> None:
    """Every mask of the specification in one step."""
    spec = flow.spec
    names = [n for n, used in (("mask", spec.mask), ("keep", spec.padding)) if used]
    if spec.documents:
        names += ["doc_q", "doc_k"] if "doc_q" in flow.given else ["doc", "doc"]
    run, reason = partial(_mask, spec, tuple(names)), partial(_mask_reason, spec)
    writes: Callable[..., Node] = lambda s, *_: call("mask", s)  # noqa: E731
    typed = partial(_masked_entries, spec)
    flow.add("masked", run, writes, ("scores", *names), role="scores", reason=reason, entries=typed)


def _masked_entries(spec: Attention) -> EntryLines:
    """s″_ij = s′_ij where the query may see the key, −∞ elsewhere."""
    seen = "out[i,j] = 0[i,j]" + " + mask[i,j]" * (spec.mask == "additive")
    by_place = spec.causal or spec.window is not None or spec.block is not None or spec.documents
    if not (by_place or spec.padding or spec.mask == "boolean"):
        return entries(f"{seen} -- entry by entry")
    plain = not (spec.padding or spec.mask or spec.documents or spec.block or spec.prefix or spec.window is not None)
    when = "for $@behind$" if spec.causal and plain else '"for a key that may be seen"'
    others = 'out[i,j] = −∞ "for all other keys"'
    return entries(f"{seen} {when}", others, behind=letters.causal_condition(spec.alignment))


def _mask_reason(spec: Attention) -> Text:
    """Return the rules of the masks, one after the other."""
    first, *rest = _mask_reasons(spec)
    return (*first, *chain.from_iterable(("; ", *words) for words in rest))


def _mask_reasons(spec: Attention) -> Iterator[Text]:
    if spec.prefix is not None:
        yield "causal after a prefix: ", letters.prefix_condition(spec.alignment, spec.prefix)
    elif spec.causal:
        yield "causal: ", letters.causal_condition(spec.alignment)
    if spec.window is not None:
        yield "window: ", letters.window_condition(spec.alignment, *spec.sides)
    if spec.block is not None:
        yield (f"blocks of {spec.block} places",)
    if spec.documents:
        yield ("within its own document, where places are counted",)
    if spec.mask:
        yield (f"{spec.mask} mask given",)
    if spec.padding:
        yield ("padded keys are forbidden",)


def _mask(spec: Attention, names: tuple[str, ...], s: Array, *inputs: Array) -> Array:
    """The scores with every mask of ``spec`` applied, in the order additive, boolean, padding, documents, places."""
    arrays = dict(zip(names[: len(names) - 2 * spec.documents], inputs, strict=False))
    if spec.mask is not None:
        change = masks.add_mask if spec.mask == "additive" else masks.forbid
        s = change(s, masks.for_heads(arrays["mask"], s) if spec.heads > 1 else arrays["mask"])
    allowed = [masks.padding(arrays["keep"])] if spec.padding else []
    if spec.documents:
        queries, keys = inputs[-2:]
        allowed += [masks.same_document(queries, keys)]
        allowed += by_place(spec, masks.document_places(queries, keys, spec.alignment))
    else:
        allowed += by_place(spec, s)
    for mask in allowed:
        s = masks.forbid(s, masks.for_every_head(mask) if spec.heads > 1 else mask)
    return s


def by_place(spec: Attention, s: Array | masks.Places, whole: masks.Places | None = None) -> Iterator[Any]:
    """The masks that go by position, of scores or of places of queries and keys: some of the ``whole``, if given."""
    if spec.prefix is not None:
        yield masks.prefix(s, spec.prefix, spec.alignment)
    elif spec.causal:
        yield masks.causal(s, spec.alignment)
    if spec.window is not None:
        yield masks.sides(s, *spec.sides, spec.alignment)
    if spec.block is not None:
        yield masks.blocks(s, masks.block_bounds(s if whole is None else whole, spec.block), spec.alignment)


# -- weights -----------------------------------------------------------------------------------------------------------
def weighing(flow: Flow) -> None:
    """The weights of the keys for each query."""
    spec = flow.spec
    names = ("scores", "sink") if spec.sink == "given" else ("scores",)
    run, writes, reason = _weigh(spec), partial(_weights_formula, spec), partial(_weights_reason, spec)
    flow.add("weights", run, writes, names, role="weights", reason=reason, entries=partial(_weights_entries, spec))


def _weigh(spec: Attention) -> Callable[..., Any]:
    # Without a mask no row is empty, and the plain quotient says all.
    fully_masked = spec.fully_masked if spec.masks_anything else "nan"
    match spec.normaliser:
        case "sigmoid":
            return partial(softmax.sigmoid_weights, bias=0 if spec.bias else None, stabilised=spec.stabilised)
        case "relu":
            return softmax.relu_weights
        case "sparsemax":
            return partial(softmax.sparsemax, fully_masked=fully_masked)
        case "entmax":
            return partial(softmax.entmax15, fully_masked=fully_masked)
        case "softmax":
            return _softmax(spec, fully_masked)
        case other:
            assert_never(other)


def _softmax(spec: Attention, fully_masked: str) -> Callable[..., Any]:
    if spec.sink == "zero":
        return partial(softmax.sink_weights, sink=0, stabilised=spec.stabilised, base=spec.base)
    if spec.sink == "given":
        return lambda s, sink: softmax.sink_weights(s, of_rows(spec, sink), spec.stabilised, spec.base)
    return partial(softmax.softmax, stabilised=spec.stabilised, fully_masked=fully_masked, base=spec.base)


def of_rows(spec: Attention, sink: Array) -> Array:
    """One sink for all rows, or one for those of each head, (h, 1, 1)."""
    return scores.per_head(sink) if spec.heads > 1 else sink


def _weights_formula(spec: Attention, s: Node, *sink: Node) -> Node:
    if spec.normaliser == "sigmoid":
        return call("sigmoid", s if spec.bias else s - call("log", letters.N_K))
    if spec.normaliser == "relu":
        return Over(call("relu", s), letters.N_K)
    if spec.normaliser == "entmax":
        return call(name("entmax", Fraction(3, 2)), s)
    return call(name(spec.normaliser, 2) if spec.base else Name(spec.normaliser), _sink_formula(spec, s, *sink))


def _sink_formula(spec: Attention, s: Node, *sink: Node) -> Node:
    keys = (node(0),) if spec.sink == "zero" else sink
    return commas(s, *keys) if keys else s


def _weights_reason(spec: Attention) -> Text:
    if spec.normaliser in ("sigmoid", "relu"):
        return ("score by score; rows need not sum to one",)
    if not spec.is_softmax:
        return ("row by row; keys with low scores get nothing",)
    words = ["row by row"]
    if spec.sink:
        words += ["the sink takes its share, and gives nothing"]
    if spec.stabilised:
        words += ["the row maximum is subtracted first" + (", the sink's logit included" if spec.sink else "")]
    return ("; ".join(words),)


def _weights_entries(spec: Attention) -> EntryLines:
    """a_ij = e^{s_ij}/Σ_l e^{s_il}, or a function of one score; projections to the simplex are not written so."""
    reason = " -- $e^{−∞} = 0$" * spec.masks_anything
    if spec.normaliser == "sigmoid":
        return entries(f"out[i,j] = 1/(1 + e^{{−{'0[i,j]' if spec.bias else '{0[i,j] − log(n_k)}'}}}){reason}")
    if spec.normaliser == "relu":
        return entries("out[i,j] = max(0[i,j], 0)/n_k")
    if not spec.is_softmax:
        return entries()
    quotient = f"out[i,j] = {spec.base or 'e'}^0[i,j]/({_total_entries(spec, 'l')})"
    if not spec.masks_anything or spec.sink or spec.fully_masked != "zeros":
        return entries(quotient + reason)
    return entries(f"{quotient}⟦ for a query that sees a key⟧{reason}", "⟦out[i,j] = 0 for all others⟧")


def _total_entries(spec: Attention, letter: str) -> str:
    """Σ_l e^{s_il}, with powers of two and the sink where they are asked for."""
    base = spec.base or "e"
    sink = {"zero": "1 + ", "given": f"{base}^{'sink[a]' if spec.heads > 1 else 'z'} + ", None: ""}[spec.sink]
    return f"{sink}Σ_{{{letter}=1}}^n_k {base}^0[i,{letter}]"


def summing(flow: Flow) -> None:
    """The logarithm of the sums that rows are divided by."""
    spec = flow.spec
    names = ("scores", "sink") if spec.sink == "given" else ("scores",)
    reason = "the logarithm of what each row is divided by"

    def formula(s: Node, *sink: Node) -> Node:
        return call(name("lse", 2) if spec.base else "lse", _sink_formula(spec, s, *sink))

    typed = f"out[i] = log{'_2' if spec.base else ''}({_total_entries(spec, 'j')})"
    flow.add("lse", partial(_log_sums, spec), formula, names, role="lse", reason=reason, entries=typed)


def _log_sums(spec: Attention, s: Array, sink: Any = None) -> Array:
    if spec.sink is None:
        return softmax.log_sum_exp(s, spec.masks_anything, spec.base)[..., 0]
    logit = 0 if spec.sink == "zero" else of_rows(spec, sink)
    return softmax.sink_log_sum_exp(s, logit, spec.base)[..., 0]


def dropping(flow: Flow) -> None:
    """The weights that are kept, the others 0."""
    rate = Fraction(str(flow.spec.dropout))  # 0.1 is meant to be 1/10
    reason = f"each weight is dropped with probability {rate}; the mean stays what it was"
    several = flow.spec.heads > 1

    def run(a: Array, keep: Array) -> Array:
        return softmax.dropout(a, masks.for_heads(keep, a) if several else keep, rate)

    def formula(a: Node, keep: Node) -> Node:
        return Over(a * letters.TIMES * keep, node(1 - rate))

    typed = partial(entries, "out[i,j] = weights[i,j]/@kept for a weight that is kept", "out[i,j] = 0 for all others",
                    kept=1 - rate)  # fmt: skip
    flow.add("dropped", run, formula, ("weights", "drop"), role="weights", reason=reason, entries=typed)


# -- output: A V, the heads side by side, and the output projection where one is given ---------------------------------
def closing(flow: Flow) -> None:
    """The weighted values, and what becomes of them where there are heads of tokens or a projection."""
    spec = flow.spec
    merge = spec.heads > 1 and "x" in flow.given
    absorbed = spec.latent is not None and spec.latent.absorbed
    last = not merge and "w_o" not in flow.given and not absorbed
    reason = f"each output is a weighted {'mean' if spec.averages else 'sum'} of the values"
    run: Callable[..., Any] = scores.weighted_values
    writes: Callable[..., Node] = letters.affine
    of: tuple[str, ...] = ("weights", "v")
    if isinstance(spec.position, Shaw) and spec.position.values:
        run, writes, of = positions.valued(spec.position, spec.alignment)
    attended = "output" if last else "attended_latents" if absorbed else "attended"
    typed = "out[i,l] = Σ_{j=1}^n_k 0[i,j] " + ("{1[j,l] + 2[@distance]}" if len(of) > 2 else "1[j,l]")
    typed += " -- in each head" * (spec.heads > 1 and not last)
    flow.add(attended, run, writes, of, role="output", reason=reason, entries=typed)
    if absorbed:
        reason = "values are made of the weighted latents alone"
        run = partial(latent.expand, heads=spec.heads)
        typed = "out[a?,i,l] = Σ_{m=1}^rows_1 0[i,m] 1[m,a?·d_v + l]"
        flow.add("attended", run, letters.affine, ("output", "w_uv"), role="output", reason=reason, entries=typed)
    if not last:
        names = [n for n in ("w_o", "b_o") if n in flow.given]
        reason = "output projection" if names else "the heads side by side" if merge else ""
        run, writes = partial(_merged, merge), partial(_merged_formula, merge)
        typed = _merged_entries(spec.heads > 1, names)
        flow.add("output", run, writes, ("output", *names), reason=reason, entries=typed)


def _merged_entries(several: bool, names: Sequence[str]) -> str:
    if not names:
        return "out[i,a?·d_v + l] = 0[a?,i,l]" + " -- the heads side by side" * several
    merged = f"out[i,l] = Σ_{{m=1}}^{{{'h ' * several}d_v}} 0[i,m] w_o[m,l]" + " + b_o[l]" * ("b_o" in names)
    return merged + " -- the heads side by side: column $m$ is head $m/d_v$, rounded up" * several


def _merged(merge: bool, x: Array, w: Array | None = None, b: Array | None = None) -> Array:
    heads = projections.merge_heads(x) if merge else x
    return heads if w is None else projections.project(heads, w, b)


def _merged_formula(merge: bool, x: Node, *parameters: Node) -> Node:
    heads = call("concat", x) if merge else x
    return letters.affine(heads, *parameters) if parameters else heads


#: The stages in order, each with the field, property or input that asks for it; the others are there for all.
STAGES: tuple[tuple[str, Callable[[Flow], None]], ...] = (
    *(("x", tokens.roles), ("latent", tokens.latents), ("qk_norm", normed), ("position", positions.rotating)),
    *(("latent", tokens.joining), ("kv_heads", tokens.sharing), ("truncate", truncating)),
    *(("", scoring), ("position", positions.relating), ("", scaling), ("softcap", capping)),
    *(("position", positions.placing), ("bias", biasing), ("masks_anything", masking)),
    *(("", weighing), ("lse", summing), ("dropout", dropping), ("", closing)),
)
