"""How the entries of each array of attention are written: textbook sums, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from symattn.attention.flow import Step
from symattn.attention.inputs import shape as shape_of
from symattn.attention.notation import D_V, SIZES, H
from symattn.derivations.attention.inputs import Request
from symattn.derivations.attention.letters import entry
from symattn.document.model import Text
from symattn.document.notation import Name, Node, Over, Root, Row, Words, commas, equals, name, node, relation, total

Formulas = list[tuple[Node, Text | str]]
Writer = Callable[[Request, Step], Formulas]
A_, I_, J_, L_, M_ = (Name(x) for x in "aijlm")


def entry_formulas(request: Request, step: Step) -> Formulas:
    """The formulas of a step; none for one that no textbook has."""
    from symattn.derivations.attention import formulas_scores as of_scores

    writer = (_WRITERS | of_scores.WRITERS).get(step.name)
    return writer(request, step) if writer else []


def size(request: Request, array: str, axis: int) -> Node:
    """The letter of the length of an axis, of heads side by side that of one head."""
    letters = shape_of(array, request.spec, request.names).split()
    return SIZES[letters[axis].split("*")[-1].rstrip("?")]


def said(first: Node, side: Node, when: Node | str) -> Node:
    """first = side, for …"""
    return Row((equals(first, side), Words("for"), when if isinstance(when, Node) else Words(when)))


def _of_role(request: Request, step: Step) -> Formulas:
    """q_il = Σ_m x_im w_ml, or for head a the columns from (a − 1)d_k + 1 on."""
    if len(step.of) == 1:
        return [(equals(entry(step.name, I_, L_), entry(step.of[0], I_, L_)), "")]
    several = _headed(request, step)
    column: Node = (A_ - 1) * size(request, step.name, -1) + L_ if several else L_
    left = entry(step.name, A_, I_, L_) if several else entry(step.name, I_, L_)
    source = step.of[0]
    right: Node = total(M_, 1, size(request, step.of[1], 0), entry(source, I_, M_) * entry(step.of[1], M_, column))
    if step.name in ("c_q", "c_kv") and request.spec.latent is not None and request.spec.latent.norm:
        return _normed_latent(request, step, right)
    right = right + entry(step.of[2], column) if len(step.of) > 2 else right
    return [(equals(left, right), ("head ", A_, ", column ", L_) if several else "")]


def _headed(request: Request, step: Step) -> bool:
    """Whether the array has an axis of heads."""
    from symattn.attention.notation import ARRAYS

    return request.spec.heads > 1 and "[" in ARRAYS[step.name].shape


def _normed_latent(request: Request, step: Step, right: Node) -> Formulas:
    assert request.spec.latent is not None
    row = name("r", I_, L_)
    gain = entry(step.of[2], L_) if len(step.of) > 2 else None
    formula = over_root(
        name("r", I_, L_), name("r", I_, M_), size(request, step.name, -1), request.spec.latent.eps, gain
    )
    return [(equals(row, right), "before it is normalised"), (equals(entry(step.name, I_, L_), formula), "")]


def over_root(x: Node, member: Node, length: Node, eps: int | float | Fraction, gain: Node | None) -> Node:
    """g x / √(1/d Σ_m x_m² + ε)."""
    mean: Node = Over(total(M_, 1, length, member**2), length)
    below = Root(mean + node(Fraction(eps)) if eps else mean)
    return Over(x if gain is None else gain * x, below)


def _unpacked(request: Request, step: Step) -> Formulas:
    """w_ml = w_{in,m,l+start}."""
    d = size(request, "w_in", -1)
    h, g = request.spec.heads, request.spec.key_heads
    before = {"q": 0, "k": h, "v": h + g}[step.name[-1]]
    start = L_ if not before else L_ + d if before == 1 else L_ + node(before) * d
    index = (M_,) if step.name[0] == "w" else ()
    return [(equals(entry(step.name, *index, L_), entry(step.of[0], *index, start)), "columns q, k, v in order")]


def _first(request: Request, step: Step) -> Formulas:
    return [(equals(entry(step.name, I_, L_), entry(step.of[0], I_, L_)), "")]


def _last(request: Request, step: Step) -> Formulas:
    column = L_ + size(request, "q_n", -1)
    return [(equals(entry(step.name, I_, L_), entry(step.of[0], I_, column)), "")]


def _joined(request: Request, step: Step) -> Formulas:
    own, shared = step.of
    index = J_ if step.name[0] == "k" else I_
    width = size(request, own, -1)
    left = entry(step.name, index, L_)
    return [
        (said(left, entry(own, index, L_), relation(L_, "≤", width)), ""),
        (said(left, entry(shared, index, L_ - width), relation(L_, ">", width)), ""),
    ]


def _absorbed(request: Request, step: Step) -> Formulas:
    d_n, heads = size(request, "q_n", -1), request.spec.heads > 1
    row = (A_ - 1) * d_n + M_ if heads else M_
    right = total(M_, 1, d_n, entry(step.of[0], I_, M_) * entry(step.of[1], L_, row))
    return [(equals(entry(step.name, *([A_] if heads else []), I_, L_), right), "")]


def _latents(request: Request, step: Step) -> Formulas:
    return [(equals(entry(step.name, J_, L_), entry(step.of[0], J_, L_)), "the same for every head")]


def _normed(request: Request, step: Step) -> Formulas:
    role, source = step.name[0], step.of[0]
    row = J_ if role == "k" else I_
    length = size(request, step.name, -1)
    x, member = entry(source, row, L_), entry(source, row, M_)
    left = entry(step.name, row, L_)
    if request.spec.qk_norm == "l2":
        return [(equals(left, Over(x, Root(total(M_, 1, length, member**2)))), "")]
    given = {n: entry(n, L_) for n in step.of[1:]}
    gain, bias = given.get(f"g_{role}"), given.get(f"beta_{role}")
    first: Formulas = []
    if request.spec.qk_norm == "layer":
        first = [(equals(name("r", row, L_), x - Over(total(M_, 1, length, member), length)), "less the mean")]
        x, member = name("r", row, L_), name("r", row, M_)
    right = over_root(x, member, length, request.spec.eps, gain)
    return [*first, (equals(left, right + bias if bias is not None else right), "")]


def _shared(request: Request, step: Step) -> Formulas:
    times = request.spec.heads // request.spec.key_heads
    head = Over(A_, node(times))
    return [(equals(entry(step.name, A_, J_, L_), entry(step.of[0], name("b"), J_, L_)),
             (equals(name("b"), head), ", rounded up"))]  # fmt: skip


def _attended(request: Request, step: Step) -> Formulas:
    if step.of[0] != "attended_latents":
        return [(equals(entry(step.name, I_, L_), weighted(request, step)), "in each head" * (request.spec.heads > 1))]
    heads = request.spec.heads > 1
    column = (A_ - 1) * D_V + L_ if heads else L_
    right = total(M_, 1, size(request, step.of[1], 0), entry(step.of[0], I_, M_) * entry(step.of[1], M_, column))
    return [(equals(entry(step.name, *([A_] if heads else []), I_, L_), right), "")]


def weighted(request: Request, step: Step) -> Node:
    """Σ_j a_ij v_jl, of values with a relative part Σ_j a_ij (v_jl + r_δl)."""
    value = entry(step.of[1], J_, L_)
    if len(step.of) > 2:
        value = value + entry(step.of[2], commas("δ", L_))
    return total(J_, 1, SIZES["n_k"], entry(step.of[0], I_, J_) * value)


def _output(request: Request, step: Step) -> Formulas:
    output = entry("output", I_, L_)
    if step.of[0] not in ("attended", "attended_latents"):
        return [(equals(output, weighted(request, step)), "")]
    side_by_side: Text = ("the heads side by side: column ", M_, " is head ", Over(M_, D_V), ", rounded up")
    if "w_o" not in step.of and request.spec.heads == 1:
        return [(equals(output, entry(step.of[0], I_, L_)), "")]
    if "w_o" not in step.of:
        column = (A_ - 1) * D_V + L_
        return [(equals(entry("output", I_, column), entry(step.of[0], A_, I_, L_)), "the heads side by side")]
    width = H * D_V if request.spec.heads > 1 else D_V
    merged: Node = total(M_, 1, width, entry(step.of[0], I_, M_) * entry("w_o", M_, L_))
    body = merged + entry("b_o", L_) if "b_o" in step.of else merged
    return [(equals(output, body), side_by_side if request.spec.heads > 1 else "")]


_WRITERS: dict[str, Writer] = {
    **dict.fromkeys(("q", "k", "v", "c_q", "c_kv", "k_r", "k_n", "r_k", "p_k", "p_q"), _of_role),
    **dict.fromkeys(("w_q", "w_k", "w_v", "b_q", "b_k", "b_v"), _unpacked),
    "q_n": _first, "q_cut": _first, "k_cut": _first, "q_r": _last, "q_joined": _joined, "k_joined": _joined,
    "q_absorbed": _absorbed, "v_absorbed": _latents, "q_normed": _normed, "k_normed": _normed,
    "k_shared": _shared, "v_shared": _shared, "attended": _attended, "attended_latents": _attended, "output": _output,
}  # fmt: skip
