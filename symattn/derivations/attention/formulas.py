"""How the entries of each array of attention are written: textbook sums, typed, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from symattn.attention.flow import Step
from symattn.attention.inputs import shape as shape_of
from symattn.attention.notation import ARRAYS, N_K, SIZES, SYMBOLS
from symattn.attention.positions.fields import Alibi, Buckets, Disentangled, Rotary, Shaw
from symattn.attention.spec import Attention
from symattn.attention.stages.weights import root_entries
from symattn.derivations.attention.inputs import DerivationRequest
from symattn.derivations.attention.letters import entry
from symattn.derivations.attention.words import SEES
from symattn.document.formulas import formula, running_text
from symattn.document.model import Text
from symattn.document.notation import Like, Name, Node, Power, Row, Words, commas, node, total

Formulas = list[tuple[Node, Text | str]]
A_, I_, J_ = (Name(x) for x in "aij")
_HEADS = re.compile(r"a\?(?:,|·(\w+) \+ )")
_PLACE = re.compile(r"(?P<array>\w+)\[(?P<index>[^]]*)\]|\b(?P<axis>rows|width)(?:_(?P<of>\w+))?\b")


def entry_formulas(request: DerivationRequest, step: Step) -> Formulas:
    """The formulas of a step as its record types them, or made for this document; none that no textbook has."""
    if step.typed:
        return _lines(request, step, *step.entries.lines, **step.entries.letters)
    writer = _WRITERS.get(step.name)
    return writer(request, step) if writer else []


def _lines(request: DerivationRequest, step: Step, *typed: str, **values: Like) -> Formulas:
    """Read entries as ``symattn.attention.flow`` says that they are typed; ``@name`` is one of ``values``."""
    many = request.spec.heads > 1
    known: dict[str, Like] = {"head": A_ if many else 1, "distance": commas("δ", "l"), **values}

    def named(array: str) -> str:
        return step.of[int(array)] if array.isdigit() else step.name if array == "out" else array

    def place(match: re.Match[str]) -> str:
        if match["axis"]:
            result = _size(request, named(match["of"] or "out"), 0 if match["axis"] == "rows" else -1)
        else:
            result = entry(named(match["array"]), *map(read, match["index"].split(",")))
        known[key := f"place{len(known)}"] = result
        return f"@{key}"

    def read(part: str) -> Node:
        return formula(_PLACE.sub(place, part), {}, known)

    def line(written: str) -> tuple[Node, Text]:
        heads = _HEADS.sub(lambda m: (f"{{a − 1}} {m[1]} + " if m[1] else "a,") if many else "", written)
        whole, _, reason = heads.partition(" -- ")
        relation, _, when = whole.partition(" for ")
        condition = read(when.strip("$")) if "$" in when else Words(when)
        return Row((read(relation), Words("for"), condition)) if when else read(relation), running_text(
            reason, {}, known
        )

    return [line(each) for each in typed]


def _size(request: DerivationRequest, array: str, axis: int) -> Node:
    """The letter of the length of an axis, of heads side by side that of one head."""
    letters = shape_of(array, request.spec, request.names).split()
    return SIZES[letters[axis].split("*")[-1].rstrip("?")]


# -- from tokens to queries, keys and values ---------------------------------------------------------------------------
def _of_role(request: DerivationRequest, step: Step) -> Formulas:
    """q_il = Σ_m x_im w_ml, or for head a the columns from (a − 1)d_k + 1 on."""
    if len(step.of) == 1:
        return _lines(request, step, "out[i,l] = 0[i,l]")
    several, latent, last = "[" in ARRAYS[step.name].shape, request.spec.latent, len(step.of) > 2
    column = "a?·width + l" if several else "l"
    right = f"Σ_{{m=1}}^rows_1 0[i,m] 1[m,{column}]"
    if step.name in ("c_q", "c_kv") and latent is not None and latent.norm:
        before = f"r_il = {right} -- before it is normalised"
        normed = root_entries("r_il", "r_im", latent.eps, "2[l]" * last)
        return _lines(request, step, before, f"out[i,l] = {normed}", eps=Fraction(latent.eps))
    reason = " -- head $a$, column $l$" if several and request.spec.heads > 1 else ""
    return _lines(request, step, f"out[{'a?,' * several}i,l] = {right}{f' + 2[{column}]' * last}{reason}")


def _weighted(step: Step) -> str:
    """Σ_j a_ij v_jl, of values with a relative part Σ_j a_ij (v_jl + r_δl)."""
    return "Σ_{j=1}^n_k 0[i,j] " + ("{1[j,l] + 2[@distance]}" if len(step.of) > 2 else "1[j,l]")


def _attended(request: DerivationRequest, step: Step) -> Formulas:
    if step.of[0] == "attended_latents":
        return _lines(request, step, "out[a?,i,l] = Σ_{m=1}^rows_1 0[i,m] 1[m,a?·d_v + l]")
    return _lines(request, step, f"out[i,l] = {_weighted(step)}{' -- in each head' * (request.spec.heads > 1)}")


def _output(request: DerivationRequest, step: Step) -> Formulas:
    many = request.spec.heads > 1
    if step.of[0] not in ("attended", "attended_latents"):
        return _lines(request, step, f"out[i,l] = {_weighted(step)}")
    if "w_o" not in step.of:
        side_by_side = "out[i,a?·d_v + l] = 0[a?,i,l]" + " -- the heads side by side" * many
        return _lines(request, step, side_by_side)
    merged = f"out[i,l] = Σ_{{m=1}}^{{{'h ' * many}d_v}} 0[i,m] w_o[m,l]{' + b_o[l]' * ('b_o' in step.of)}"
    return _lines(request, step, merged + " -- the heads side by side: column $m$ is head $m/d_v$, rounded up" * many)


# -- weights -----------------------------------------------------------------------------------------------------------
def _weights(request: DerivationRequest, step: Step) -> Formulas:
    spec = request.spec
    reason = " -- $e^{−∞} = 0$" if spec.masks_anything else ""
    match spec.normaliser:
        case "sigmoid":
            right = "1/(1 + e^{−0[i,j]})" if spec.bias else "1/(1 + e^{−{0[i,j] − log(n_k)}})"
            return _lines(request, step, f"out[i,j] = {right}{reason}")
        case "relu":
            return _lines(request, step, "out[i,j] = max(0[i,j], 0)/n_k")
    if spec.normaliser != "softmax":
        return []
    values = {"base": _base(spec), "below": below(spec, step.of[0], Name("l"), _sink(spec))}
    lines = [f"out[i,j] = @base^0[i,j]/@below{reason}"]
    if spec.masks_anything and not spec.sink and spec.fully_masked == "zeros" and not request.every_row_has_a_key():
        lines = [f"out[i,j] = @base^0[i,j]/@below for {SEES}{reason}", "out[i,j] = 0 for all others"]
    return _lines(request, step, *lines, **values)


def _base(spec: Attention) -> Node:
    return node(2) if spec.base else Name("e")


def _sink(spec: Attention) -> Node:
    return entry("sink", A_) if spec.heads > 1 else SYMBOLS["sink"]


def below(spec: Attention, scores: str, letter: Name, sink: Node) -> Node:
    """Σ_l e^{s_il}, with powers of two and the sink where they are asked for."""
    base = _base(spec)
    powers: Node = total(letter, 1, N_K, Power(base, entry(scores, I_, letter)))
    return (node(1) if spec.sink == "zero" else Power(base, sink)) + powers if spec.sink else powers


def _lse(request: DerivationRequest, step: Step) -> Formulas:
    spec = request.spec
    right = below(spec, step.of[0], J_, _sink(spec))
    return _lines(request, step, f"out[i] = log{'_2' if spec.base else ''}(@right)", right=right)


# -- positions ---------------------------------------------------------------------------------------------------------
def _table(request: DerivationRequest, step: Step) -> Formulas:
    asked = request.spec.position
    assert isinstance(asked, Rotary)
    place = "1[i]" if len(step.of) > 1 else "{i − 1 + @start}" if asked.start else "{i − 1}"
    right = f"{step.name[:3]}({place} {'θ' if asked.triples else 'ω'}_l)"
    return _lines(request, step, f"out[i,l] = {right}", start=asked.start)


def _rotated(request: DerivationRequest, step: Step) -> Formulas:
    asked = request.spec.position
    assert isinstance(asked, Rotary)
    i = "j" if step.name[0] == "k" else "i"
    last = i == "i" and not step.of[1].endswith("_q") and request.n_q != request.n_k
    p, reason = ("p", " -- $p$ is the place of query $i$ among the keys") if last else (i, "")
    first, second = ("l", "l + width_1") if asked.layout == "half" else ("2l − 1", "2l")
    a, b, c, s = f"0[{i},{first}]", f"0[{i},{second}]", f"1[{p},l]", f"2[{p},l]"
    return _lines(
        request, step, f"out[{i},{first}] = {a} {c} − {b} {s}{reason}", f"out[{i},{second}] = {b} {c} + {a} {s}"
    )


def _positioned(request: DerivationRequest, step: Step) -> Formulas:
    asked, many = request.spec.position, request.spec.heads > 1
    shifted = request.spec.alignment == "bottom-right" and request.n_q != request.n_k
    behind = f"$δ = i{' + n_k − n_q' if shifted else ''} − j$"  # both counted so that the last ones stand together
    match asked:
        case Alibi():
            more = f"− {'slopes[a]' if many else 'm_1'} {'|δ|' if asked.two_sided else 'δ'} -- {behind}"
            more += ", in head $a$" * many
        case Buckets():
            more = f"+ b_rel[β,@head] -- $β$ is the bucket of $−δ$; {behind}"
        case Shaw():
            more = "+ Σ_{l=1}^width_1 1[i,l] a_k[@distance] -- the row for the distance of query and key"
        case _:
            more = f"+ {_by_content(step, asked)} -- rows for the distance of query and key"
    return _lines(request, step, f"out[i,j] = 0[i,j] {more}")


def _by_content(step: Step, asked: object) -> str:
    """u·k_j + (q_i + w)·r_δ, or q_i·k_δ + k_j·q_δ with those that there are."""
    if isinstance(asked, Disentangled):
        return " + ".join(
            f"Σ_{{l=1}}^width_{at} {at}[{'i' if step.of[at + 1] == 'p_k' else 'j'},l] {at + 1}[@distance]"
            for at in range(1, len(step.of), 2)
        )
    return "Σ_{l=1}^width_1 4[@head,l] 2[j,l] + Σ_{l=1}^width_1 (1[i,l] + 5[@head,l]) 3[@distance]"


#: The entries that depend on the sizes of a document, or on which arrays there are.
_WRITERS: dict[str, Callable[[DerivationRequest, Step], Formulas]] = {
    **dict.fromkeys(("q", "k", "v", "c_q", "c_kv", "k_r", "k_n", "r_k", "p_k", "p_q"), _of_role),
    **dict.fromkeys(("cos", "sin", "cos_q", "sin_q"), _table), "positioned": _positioned,
    **dict.fromkeys(("q_rotated", "k_rotated", "q_r_rotated", "k_r_rotated"), _rotated),
    "weights": _weights, "lse": _lse, "attended": _attended, "attended_latents": _attended, "output": _output,
}  # fmt: skip
