"""Positions: queries and keys rotated, terms of the scores by distance, and of the values."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import masks, scores
from symattn.attention.constants import made_wide
from symattn.attention.flow import EntryLines, Flow, Reason, entries
from symattn.attention.letters_of_attention import query_place
from symattn.attention.positions import relative, rotary
from symattn.attention.positions.position_fields import Alibi, Buckets, Disentangled, Rotary, Shaw, TransformerXL
from symattn.attention.stages.tokens import project
from symattn.document.model import Text
from symattn.document.notation import Fence, Node, Over, Power, Transposed, call, commas, equals, name, node

I_, J_, L_, P_, R_ = (name(x) for x in ("i", "j", "ℓ", "p", "r"))
OMEGA, THETA = name("ω", "ℓ"), name("θ", "ℓ")


# -- queries and keys rotated ------------------------------------------------------------------------------------------
def rotating(flow: Flow) -> None:
    """The tables of cosines and sines, and the queries and keys rotated by them."""
    asked = flow.spec.position
    if not isinstance(asked, Rotary):
        return
    query, key = flow.rotated
    for role, letter in ((key, ""), (query, "_q")):
        _tables(flow, asked, role, letter)
    own = "cos_q" in flow.given or "positions_q" in flow.given
    other = "ℓ and ℓ + r/2" if asked.layout == "half" else "2ℓ and 2ℓ + 1"
    for role in (query, key):
        letter = "_q" if own and role == query else ""
        last = flow.spec.alignment if role == query and not own else None
        reason = f"the columns {other} of each pair rotated by the angle of the position"
        names = (role, f"cos{letter}", f"sin{letter}")
        heads = flow.spec.heads > 1 and role != "k_r"  # the part of a latent's keys is shared by all heads
        run, written = partial(_turn, asked.layout, last, heads), partial(call, "rotate")
        typed = partial(_rotated_entries, asked.layout, "j" if role[0] == "k" else "i", last is not None)
        flow.add(f"{role}_rotated", run, written, names, role=role, reason=reason, entries=typed)


def _rotated_entries(layout: str, i: str, last: bool) -> EntryLines:
    p, reason = ("⟨p|i⟩", "⟨ -- $p$ is the place of query $i$ among the keys⟩") if last else (i, "")
    first, second = ("l", "l + width_1") if layout == "half" else ("2l − 1", "2l")
    a, b, cos, sin = f"0[{i},{first}]", f"0[{i},{second}]", f"1[{p},l]", f"2[{p},l]"
    turned = f"out[{i},{first}] = {a} {cos} − {b} {sin}{reason}", f"out[{i},{second}] = {b} {cos} + {a} {sin}"
    return entries(*turned, f"⌈out[{i},l] = 0[{i},l] for $l > 2 width_1$⌉")


def _turn(layout: str, alignment: str | None, heads: bool, x: Array, cos: Array, sin: Array) -> Array:
    if alignment is not None:
        cos, sin = (rotary.for_queries(table, x.shape[-2], alignment) for table in (cos, sin))
    if heads:
        cos, sin = masks.for_every_head(cos), masks.for_every_head(sin)
    return rotary.rotate(x, cos, sin, layout)


def _tables(flow: Flow, asked: Rotary, role: str, letter: str) -> None:
    """Cosines and sines, unless they are given, or are those of the keys."""
    positions = f"positions{letter}"
    if asked.given == "tables" or (letter and positions not in flow.given):
        return
    names = (role, positions) if positions in flow.given else (role,)
    place = "1[i]" if len(names) > 1 else "{i − 1 + @start}" if asked.start else "{i − 1}"
    for index, function in enumerate(("cos", "sin")):
        reason = partial(_of_triples if asked.triples else _of_frequencies, asked, function)
        written = partial(_angles_formula, asked, function)
        times = None if asked.scaling is None else asked.scaling.multiplier
        right = f"{'@times ' if times else ''}{function}({place} {'θ' if asked.triples else 'ω'}_l)"
        typed = partial(entries, f"out[i,l] = {right}", start=asked.start, times=times or 1)
        flow.add(f"{function}{letter}", partial(_table, asked, index), written, names, reason=reason, entries=typed)


def _angles_formula(asked: Rotary, function: str, *_: Node) -> Node:
    entry, times = call(function, P_ * (THETA if asked.triples else OMEGA)), asked.scaling and asked.scaling.multiplier
    return times * entry if times else entry


def _of_frequencies(asked: Rotary, function: str) -> Text:
    frequency = Power(node(Fraction(asked.base)), -Over(2 * L_, R_))
    if asked.scaling is None:
        return (equals(OMEGA, frequency),)
    if function == "sin":
        return ("of the same angles",)
    before = name("φ", "ℓ")
    return (equals(before, frequency), ", and ", OMEGA, " = ", *asked.scaling.words(before))


def _of_triples(asked: Rotary, function: str) -> Text:
    sides = [Fraction(t[function == "sin"], t[2]) for t in asked.triples or ()]
    pairs = [equals(call(function, name("θ", index)), node(side)) for index, side in enumerate(sides)]
    return tuple(part for index, pair in enumerate(pairs) for part in ((", ", pair) if index else (pair,)))


def _frequencies(asked: Rotary, n: Any, width: Any, like: Any) -> Any:
    frequencies = rotary.inverse_frequencies(width, asked.base, like)
    if asked.scaling is None:
        return frequencies
    return asked.scaling.frequencies(frequencies, asked.base, n + asked.start)


@lru_cache(maxsize=4)  # cosines and sines are steps of their own, and are made of the same
def _short_tables(asked: Rotary, n: int, width: int, kind: Any) -> tuple[rotary.Tables, rotary.Tables]:
    return rotary.short_tables(asked.start, n, _frequencies(asked, n, width, kind.lift(np.zeros(()))))


def _table(asked: Rotary, index: int, x: Array, positions: np.ndarray | None = None) -> Any:
    """Cosines (``index`` 0) or sines (1) for the rows of x."""

    def make(like: Array) -> Any:
        n, width, kind = x.shape[-2], asked.width or x.shape[-1], type(like)
        if asked.triples:
            return rotary.pythagorean_tables(n, asked.triples, like, asked.start)[index]
        stand_ins = getattr(kind, "tables", None)
        if stand_ins and (positions is None or isinstance(positions, np.ndarray)):
            frequencies = _frequencies(asked, n, width, np.zeros(()))
            counted = np.arange(n) + asked.start if positions is None else positions
            result = stand_ins(("cos", "sin")[index], rotary.angles(counted, frequencies))
        elif positions is None and getattr(kind, "name", "") == "enclosure":
            result = rotary.joined(*_short_tables(asked, int(n), int(width), kind), n)[index]
        else:
            xp = namespace_of(like)
            places = xp.arange(n) + asked.start if positions is None else positions
            result = (xp.cos, xp.sin)[index](rotary.angles(places, _frequencies(asked, n, width, like)))
        return result if asked.scaling is None else result * asked.scaling.magnitude(like)

    return made_wide(make, x)


# -- terms of the scores before they are scaled ------------------------------------------------------------------------
def relating(flow: Flow) -> None:
    """Terms beside q_i · k_j that have part in the scale."""
    asked = flow.spec.position
    if isinstance(asked, Shaw):
        most, alignment = asked.most, flow.spec.alignment

        def run(s: Array, q: Array, table: Array) -> Array:
            return relative.relative_keys(s, q, table, relative.clipped(relative.ahead(s, alignment), most))

        words = "rel: each row with the row of the table for the distance "
        reason: Text = (words, J_ - I_, f", cut to −{most} … {most}")
        typed = "out[i,j] = 0[i,j] + Σ_{l=1}^width_1 1[i,l] a_k[@distance] -- the row for the distance of query and key"
        flow.add("positioned", run, _rows_formula, ("scores", "q", "a_k"), role="scores", reason=reason, entries=typed)
    elif isinstance(asked, TransformerXL):
        _transformer_xl(flow)
    elif isinstance(asked, Disentangled):
        _disentangled(flow, asked)


def _rows_formula(before: Node, x: Node, table: Node) -> Node:
    return before + call("rel", x, table)


def _transformer_xl(flow: Flow) -> None:
    project(flow, "r_k", "r", "w_r", heads=flow.spec.heads, reason="keys for distances, from far to near")
    names = ("scores", "q", "k", "r_k", "b_u", "b_w")
    reason: Text = ("rel: each row with the row of the table for the distance ", I_ - J_)

    def run(s: Array, q: Array, k: Array, table: Array, u: Array, w: Array) -> Array:
        index = relative.from_far_to_near(relative.ahead(s, "bottom-right"), s.shape[-1], table.shape[-2])
        return relative.with_biases(s, q, k, table, index, u, w)

    def formula(s: Node, q: Node, k: Node, table: Node, u: Node, w: Node) -> Node:
        return (q + u) * Transposed(k) + call("rel", q + w, table)

    typed = f"out[i,j] = 0[i,j] + {_WITH_BIASES} -- {_ROWS}"
    flow.add("positioned", run, formula, names, role="scores", reason=reason, entries=typed)


_ROWS = "rows for the distance of query and key"
_WITH_BIASES = "Σ_{l=1}^width_1 4[@head,l] 2[j,l] + Σ_{l=1}^width_1 (1[i,l] + 5[@head,l]) 3[@distance]"


def _disentangled(flow: Flow, disentangled: Disentangled) -> None:
    names = ["scores"]
    if disentangled.to_position:
        project(flow, "p_k", "p", "w_pk", "b_pk", heads=flow.spec.heads, reason="keys for distances")
        names += ["q", "p_k"]
    if disentangled.to_content:
        project(flow, "p_q", "p", "w_pq", "b_pq", heads=flow.spec.heads, reason="queries for distances")
        names += ["k", "p_q"]
    what = "distance" if disentangled.max_distance is None else "bucket of the distance"
    reason = (
        f"rel: each row with the row of the table for the {what}, cut to −{disentangled.span} … {disentangled.span - 1}"
    )
    flow.terms = disentangled.terms
    run, written = (
        partial(_disentangle, disentangled, flow.spec.alignment),
        partial(_disentangled_formula, disentangled),
    )
    terms = [
        f"Σ_{{l=1}}^width_{at} {at}[{'i' if names[at + 1] == 'p_k' else 'j'},l] {at + 1}[@distance]"
        for at in range(1, len(names), 2)
    ]
    typed = f"out[i,j] = 0[i,j] + {' + '.join(terms)} -- {_ROWS}"
    flow.add("positioned", run, written, names, role="scores", reason=reason, entries=typed)


def _disentangled_formula(disentangled: Disentangled, s: Node, *arguments: Node) -> Node:
    rest = list(arguments)
    if disentangled.to_position:
        s = _rows_formula(s, rest.pop(0), rest.pop(0))
    return s + Transposed(call("rel", *rest)) if disentangled.to_content else s


def _disentangle(disentangled: Disentangled, alignment: str, s: Array, *arguments: Array) -> Array:
    behind = -relative.ahead(s, alignment)
    rest = list(arguments)
    if disentangled.to_position:
        q, table = rest.pop(0), rest.pop(0)
        s = relative.relative_keys(s, q, table, _row(disentangled, behind))
    if disentangled.to_content:
        k, table = rest
        s = relative.relative_queries(s, k, table, _row(disentangled, -behind if disentangled.backwards else behind))
    return s


def _row(disentangled: Disentangled, behind: Array) -> Array:
    if disentangled.max_distance is not None:
        behind = relative.deberta_bucket(behind, disentangled.span, disentangled.max_distance)
    return relative.clipped(behind, disentangled.span, disentangled.span - 1)


# -- terms of the scores after they are scaled -------------------------------------------------------------------------
def placing(flow: Flow) -> None:
    """Numbers that are added to the scaled scores by distance."""
    asked = flow.spec.position
    if isinstance(asked, Alibi):
        _linear(flow, asked)
    elif isinstance(asked, Buckets):
        bucket = call("bucket", J_ - _query(flow))
        reason: Reason = ("one number for each head and bucket ", equals(name("β", "i", "j"), bucket))
        run, names = partial(_bucket_bias, asked, flow.spec.alignment), ("scores", "b_rel")
        typed = f"out[i,j] = 0[i,j] + b_rel[β,@head] -- $β$ is the bucket of $−δ$; {_behind(flow)}"
        writes: Callable[..., Node] = lambda s, b: s + call("rows", b, name("β"))  # noqa: E731
        flow.add("positioned", run, writes, names, role="scores", reason=reason, entries=typed)


def _behind(flow: Flow) -> str:
    """The distance, both places counted so that the last ones stand together."""
    return f"$δ = i{'⟨ + n_k − n_q⟩' * (flow.spec.alignment == 'bottom-right')} − j$"


def _query(flow: Flow) -> Node:
    """The place of a query among the keys."""
    alone = "x" in flow.given and "y" not in flow.given
    return I_ if alone else query_place(flow.spec.alignment)


def _bucket_bias(buckets: Buckets, alignment: str, s: Array, table: Array) -> Array:
    index = relative.t5_bucket(
        relative.ahead(s, alignment), buckets.number, buckets.max_distance, buckets.bidirectional
    )
    return relative.bucket_bias(s, table, index)


def _linear(flow: Flow, alibi: Alibi) -> None:
    if alibi.slopes == "computed":
        reason = (equals(name("e", "h"), commas(*relative.slope_exponents(flow.spec.heads))),)
        run = partial(relative.slopes, flow.spec.heads)
        writes: Callable[..., Node] = lambda s: Power(node(2), -name("e", "h"))  # noqa: E731
        typed = "out[a] = 2^{−e_a} -- the slope of head a"
        flow.add("slopes", run, writes, ("scores",), reason=reason, entries=typed)
    behind = _query(flow) - J_
    distances = Fence("abs", behind) if alibi.two_sided else behind
    run = partial(relative.biased, two_sided=alibi.two_sided, alignment=flow.spec.alignment)
    distance: Text = ("one slope for each head; ", equals(name("d", "i", "j"), distances))
    several, delta = flow.spec.heads > 1, "|δ|" if alibi.two_sided else "δ"
    typed = f"out[i,j] = 0[i,j] − {'slopes[a]' if several else 'm_1'} {delta} -- {_behind(flow)}"
    typed, names = typed + ", in head $a$" * several, ("scores", "slopes")
    writes = lambda s, m: s - m * name("D")  # noqa: E731
    flow.add("positioned", run, writes, names, role="scores", reason=distance, entries=typed)


# -- values ------------------------------------------------------------------------------------------------------------
def valued(shaw: Shaw, alignment: str) -> tuple[Callable[..., Any], Callable[..., Node], tuple[str, ...]]:
    """How weights and values make the output, how that is written, and of what."""

    def run(p: Array, v: Array, table: Array) -> Array:
        index = relative.clipped(relative.ahead(p, alignment), shaw.most)
        return relative.relative_values(scores.weighted_values(p, v), p, table, index)

    return run, lambda p, v, table: _rows_formula(p * v, p, table), ("weights", "v", "a_v")
