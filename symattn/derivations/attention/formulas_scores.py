"""How the entries of scores and weights are written, and those of positions."""

from __future__ import annotations

from fractions import Fraction

from symattn.attention.flow import Step
from symattn.attention.notation import N_K, N_Q, SYMBOLS, causal_condition, scale_formula
from symattn.attention.positions.fields import Alibi, Buckets, Disentangled, Rotary, Shaw
from symattn.derivations.attention.formulas import A_, I_, J_, L_, M_, Formulas, Writer, said, size
from symattn.derivations.attention.inputs import Request
from symattn.derivations.attention.letters import entry
from symattn.derivations.attention.words import SEES
from symattn.derivations.letters import E
from symattn.document.model import Text
from symattn.document.notation import (
    Fence,
    Name,
    Neg,
    Node,
    Over,
    Power,
    Row,
    Words,
    call,
    commas,
    equals,
    name,
    node,
    total,
)

_DELTA = name("δ")


def _of_pair(step: str) -> Node:
    return entry(step, I_, J_)


def _scores(request: Request, step: Step) -> Formulas:
    q, k = step.of[:2]
    of_q, of_k = entry(q, I_, L_), entry(k, J_, L_)
    width = size(request, q, -1)
    dot = total(L_, 1, width, of_q * of_k)
    left = _of_pair("scores")
    match request.spec.score:
        case "general":
            inner = total(M_, 1, size(request, k, -1), of_q * entry("w_s", L_, M_) * entry(k, J_, M_))
            return [(equals(left, total(L_, 1, width, inner)), "")]
        case "additive":
            hidden = name("x", I_, J_, M_)
            inside: Node = total(L_, 1, width, of_q * entry("w_s", L_, M_))
            inside = inside + total(L_, 1, size(request, k, -1), of_k * entry("u_s", L_, M_))
            summed = total(M_, 1, size(request, "v_s", -1), entry("v_s", M_) * call("tanh", hidden))
            return [(equals(hidden, inside), "of each unit of the hidden layer"), (equals(left, summed), "")]
        case "cosine":
            lengths = Fence("norm", entry(q, I_)) * Fence("norm", entry(k, J_))
            return [(equals(left, Over(dot, lengths)), "by the lengths of query and key")]
        case "distance":
            gap = total(L_, 1, width, Power(Fence("round", of_q - of_k), node(2)))
            return [(equals(left, Neg(Over(gap, node(2)))), "")]
    return [(equals(left, dot), "")]


def _scaled(request: Request, step: Step) -> Formulas:
    scale, terms = request.spec.scale, 1
    if isinstance(request.spec.position, Disentangled):
        terms = request.spec.position.terms
    before = _of_pair(step.of[0])
    if scale == "given":
        factor = entry("scale", A_) if request.spec.heads > 1 else name("t")
        return [(equals(_of_pair("scaled"), factor * before), ("head ", A_) if request.spec.heads > 1 else "")]
    return [(equals(_of_pair("scaled"), scale_formula(scale, before, terms)), "entry by entry")]


def _capped(request: Request, step: Step) -> Formulas:
    cap = node(Fraction(request.spec.softcap or 1))
    return [(equals(_of_pair("capped"), cap * call("tanh", Over(_of_pair(step.of[0]), cap))), "entry by entry")]


def _biased(request: Request, step: Step) -> Formulas:
    return [(equals(_of_pair("biased"), _of_pair(step.of[0]) + _of_pair("bias")), "entry by entry")]


def _masked(request: Request, step: Step) -> Formulas:
    """s″_ij = s′_ij where the query may see the key, −∞ elsewhere."""
    spec, before = request.spec, _of_pair(step.of[0])
    seen: Node = before + _of_pair("mask") if spec.mask == "additive" else before
    by_place = spec.causal or spec.window is not None or spec.block is not None or spec.documents
    if not (by_place or spec.padding or spec.mask == "boolean"):
        return [(equals(_of_pair("masked"), seen), "entry by entry")]
    left, right = equals(_of_pair("masked"), seen), equals(_of_pair("masked"), Neg(Name("∞")))
    others = (Row((right, Words("for all other keys"))), "")
    plain = not (spec.padding or spec.mask or spec.documents or spec.block or spec.prefix or spec.window is not None)
    if spec.causal and plain:
        return [(Row((left, Words("for"), causal_condition(spec.alignment))), ""), others]
    return [(Row((left, Words("for a key that may be seen"))), ""), others]


def _weights(request: Request, step: Step) -> Formulas:
    spec, s = request.spec, entry(step.of[0], I_, J_)
    left = entry("weights", I_, J_)
    reason: Text | str = (equals(E ** Neg(Name("∞")), 0),) if spec.masks_anything else ""
    if spec.normaliser == "sigmoid":
        x = s if spec.bias else s - call("log", N_K)
        return [(equals(left, Over(node(1), 1 + E ** Neg(x))), reason)]
    if spec.normaliser == "relu":
        return [(equals(left, Over(call("max", commas(s, 0)), N_K)), "")]
    if spec.normaliser != "softmax":
        return []
    base = node(2) if spec.base else E
    below: Node = total(L_, 1, N_K, Power(base, entry(step.of[0], I_, L_)))
    if spec.sink:
        own = node(1) if spec.sink == "zero" else Power(base, _sink(request))
        below = own + below
    weight = Over(Power(base, s), below)
    if spec.masks_anything and not spec.sink and spec.fully_masked == "zeros" and not request.every_row_has_a_key():
        return [(said(left, weight, SEES), reason), (said(left, node(0), "all others"), "")]
    return [(equals(left, weight), reason)]


def _sink(request: Request) -> Node:
    return entry("sink", A_) if request.spec.heads > 1 else SYMBOLS["sink"]


def _lse(request: Request, step: Step) -> Formulas:
    base = node(2) if request.spec.base else E
    below: Node = total(J_, 1, N_K, Power(base, entry(step.of[0], I_, J_)))
    if request.spec.sink:
        below = (node(1) if request.spec.sink == "zero" else Power(base, _sink(request))) + below
    log = name("log", 2) if request.spec.base else Name("log")
    return [(equals(entry("lse", I_), call(log, below)), "")]


def _dropped(request: Request, step: Step) -> Formulas:
    rate = Fraction(str(request.spec.dropout))
    left = _of_pair("dropped")
    return [
        (said(left, Over(_of_pair("weights"), node(1 - rate)), "a weight that is kept"), ""),
        (said(left, node(0), "all others"), ""),
    ]


def _table(request: Request, step: Step) -> Formulas:
    asked = request.spec.position
    assert isinstance(asked, Rotary)
    place = I_ - 1 + asked.start if asked.start else I_ - 1
    if len(step.of) > 1:
        place = entry(step.of[1], I_)
    angle = name("θ", L_) if asked.triples else name("ω", L_)
    return [(equals(entry(step.name, I_, L_), call(step.name[:3], place * angle)), "")]


def _rotated(request: Request, step: Step) -> Formulas:
    asked = request.spec.position
    assert isinstance(asked, Rotary)
    x, cos, sin = step.of
    half, row = size(request, cos, -1), J_ if step.name[0] == "k" else I_
    last = step.name[0] == "q" and not step.of[1].endswith("_q") and request.n_q != request.n_k
    place = name("p") if last else row
    c, s = entry(cos, place, L_), entry(sin, place, L_)
    first, second = (L_, L_ + half) if asked.layout == "half" else (2 * L_ - 1, 2 * L_)
    a, b = entry(x, row, first), entry(x, row, second)
    reason: Text | str = (name("p"), " is the place of query ", I_, " among the keys") if place != row else ""
    return [
        (equals(entry(step.name, row, first), a * c - b * s), reason),
        (equals(entry(step.name, row, second), b * c + a * s), ""),
    ]


def _positioned(request: Request, step: Step) -> Formulas:
    asked, before = request.spec.position, _of_pair(step.of[0])
    left = _of_pair("positioned")
    many = request.spec.heads > 1
    if isinstance(asked, Alibi):
        slope = entry("slopes", A_) if many else name("m", 1)
        size_ = Fence("abs", _DELTA) if asked.two_sided else _DELTA
        where: Text = (_behind(request), ", in head ", A_) if many else (_behind(request),)
        return [(equals(left, before - slope * size_), where)]
    if isinstance(asked, Buckets):
        bias = entry("b_rel", name("β"), A_ if many else node(1))
        return [(equals(left, before + bias), (name("β"), " is the bucket of ", Neg(_DELTA), "; ", _behind(request)))]
    if isinstance(asked, Shaw):
        term = total(L_, 1, size(request, step.of[1], -1), entry(step.of[1], I_, L_) * entry("a_k", commas(_DELTA, L_)))
        return [(equals(left, before + term), ("the row for the distance of query and key",))]
    return [(equals(left, before + _by_content(request, step, asked)), ("rows for the distance of query and key",))]


def _by_content(request: Request, step: Step, asked: object) -> Node:
    """u·k_j + (q_i + w)·r_δ, or q_i·k_δ + k_j·q_δ with those that there are."""
    if isinstance(asked, Disentangled):
        pairs = list(zip(step.of[1::2], step.of[2::2], strict=True))
        terms = [_times(request, content, table) for content, table in pairs]
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]
    _, q, k, table, u, w = step.of
    head = [A_] if request.spec.heads > 1 else [node(1)]
    width = size(request, q, -1)
    of_content = total(L_, 1, width, entry(u, *head, L_) * entry(k, J_, L_))
    moved = Fence("round", entry(q, I_, L_) + entry(w, *head, L_))
    return of_content + total(L_, 1, width, moved * entry(table, commas(_DELTA, L_)))


def _times(request: Request, content: str, table: str) -> Node:
    row = I_ if table == "p_k" else J_
    return total(L_, 1, size(request, content, -1), entry(content, row, L_) * entry(table, commas(_DELTA, L_)))


def _slopes(request: Request, step: Step) -> Formulas:
    return [(equals(entry("slopes", A_), Power(node(2), Neg(name("e", A_)))), "the slope of head a")]


def _behind(request: Request) -> Node:
    """δ = i − j, both counted so that the last ones stand together."""
    place: Node = I_
    if request.spec.alignment == "bottom-right" and request.n_q != request.n_k:
        place = I_ + N_K - N_Q
    return equals(_DELTA, place - J_)


WRITERS: dict[str, Writer] = {
    "scores": _scores, "scaled": _scaled, "capped": _capped, "biased": _biased, "masked": _masked,
    "slopes": _slopes, "weights": _weights, "lse": _lse, "dropped": _dropped, "positioned": _positioned,
    **dict.fromkeys(("cos", "sin", "cos_q", "sin_q"), _table),
    **dict.fromkeys(("q_rotated", "k_rotated", "q_r_rotated", "k_r_rotated"), _rotated),
}  # fmt: skip
