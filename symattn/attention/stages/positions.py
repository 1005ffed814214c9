"""Positions: rotated queries and keys, and terms of the scores and values that depend on distance."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import masks, scores
from symattn.attention.constants import made_wide
from symattn.attention.flow import Flow
from symattn.attention.letters_of_attention import query_place
from symattn.attention.positions import relative, rotary, rotary_steps
from symattn.attention.positions.position_fields import (
    Alibi,
    Buckets,
    Disentangled,
    Rotary,
    Shaw,
    TransformerXL,
)
from symattn.attention.stages.tokens import project
from symattn.document.notation import Like, WrittenNumber


# -- queries and keys rotated ------------------------------------------------------------------------------------------
def rotating(flow: Flow) -> None:
    """Add the tables of cosines and sines, and the queries and keys rotated by them."""
    rope = flow.spec.position
    if not isinstance(rope, Rotary):
        return
    query, key = flow.rotated
    # Keys first, because queries without positions of their own use the tables of the keys.
    for role, letter in ((key, ""), (query, "_q")):
        _add_rotary_table_steps(flow, rope, role, letter)
    # Queries with own positions, as in cross-attention, must not be rotated by the places of keys.
    own_tables = "cos_q" in flow.given or "positions_q" in flow.given
    other = "ℓ and ℓ + r/2" if rope.layout == "half" else "2ℓ and 2ℓ + 1"
    for role in (query, key):
        letter = "_q" if own_tables and role == query else ""
        # Tables of the keys are cut to the places of the queries, as the alignment counts them.
        last = flow.spec.alignment if role == query and not own_tables else None
        reason = f"the columns {other} of each pair rotated by the angle of the position"
        names = (role, f"cos{letter}", f"sin{letter}")
        # the part of a latent's keys is shared by all heads
        heads = flow.spec.heads > 1 and role != "k_r"
        run, written = (
            partial(_rotate_rows_by_tables, rope.layout, last, heads),
            "rotate(@0, @1, @2)",
        )
        typed = partial(
            _rotated_entries, rope.layout, "j" if role[0] == "k" else "i", last is not None
        )
        flow.add(
            f"{role}_rotated",
            run,
            written,
            names,
            role=role,
            reason=reason,
            entries=typed,
            errors="rotates",
        )


def _rotated_entries(layout: str, i: str, last: bool) -> str:
    if last:
        p, reason = "⟨p|i⟩", "⟨ -- $p$ is the place of query $i$ among the keys⟩"
    else:
        p, reason = i, ""
    first, second = ("l", "l + width_1") if layout == "half" else ("2l − 1", "2l")
    a, b = f"0[{i},{first}]", f"0[{i},{second}]"
    cos, sin = f"1[{p},l]", f"2[{p},l]"
    lines = (
        f"out[{i},{first}] = {a} {cos} − {b} {sin}{reason}",
        f"out[{i},{second}] = {b} {cos} + {a} {sin}",
        f"⌈out[{i},l] = 0[{i},l] for $l > 2 width_1$⌉",
    )
    return "\n".join(lines)


def _rotate_rows_by_tables(
    layout: str, alignment: str | None, heads: bool, x: Array, cos: Array, sin: Array
) -> Array:
    # Queries take the rows of the table that belong to their places among the keys.
    if alignment is not None:
        cos, sin = (rotary.for_queries(table, x.shape[-2], alignment) for table in (cos, sin))
    # Tables of a batch need an axis of heads to broadcast to the rows of each head.
    if heads:
        cos, sin = masks.for_every_head(cos), masks.for_every_head(sin)
    return rotary.rotate(x, cos, sin, layout)


def _add_rotary_table_steps(flow: Flow, rope: Rotary, role: str, letter: str) -> None:
    """Add cosines and sines, unless they are given, or the queries use those of the keys."""
    positions = f"positions{letter}"
    # Tables that are inputs, or those of the keys for the queries, need no step.
    if rope.given == "tables" or (letter and positions not in flow.given):
        return
    names = (role, positions) if positions in flow.given else (role,)
    given_place = "1[σ,i]" if rope.sections else "1[i]"
    place = given_place if len(names) > 1 else "{i − 1 + @start}" if rope.start else "{i − 1}"
    angle = "θ" if rope.triples else "ω"
    numbers = rope.scaling.numbers if rope.scaling else {}
    values: dict[str, Like] = {"start": rope.start, "base": WrittenNumber(rope.base), **numbers}
    for index, function in enumerate(("cos", "sin")):
        reason = partial(_of_triples if rope.triples else _of_frequencies, rope, function)
        times = (
            f"{{{rope.scaling.multiplier}}} " if rope.scaling and rope.scaling.multiplier else ""
        )
        written, typed = (
            f"{times}{function}(p {angle}_ℓ)",
            f"out[i,l] = {times}{function}({place} {angle}_l)",
        )
        run = partial(_rotary_table_for_rows, rope, index)
        flow.add(
            f"{function}{letter}",
            run,
            written,
            names,
            reason=reason,
            entries=typed,
            values=values,
            errors="own",
        )


def _of_frequencies(rope: Rotary, function: str) -> str:
    words = "$ω_ℓ = @base^{−2 ℓ/r}$"
    if rope.scaling is not None:
        words = f"$φ_ℓ = @base^{{−2 ℓ/r}}$, and $ω_ℓ$ = {rope.scaling.words}"
    if rope.sections:
        words += f"; $p$ is in the row σ of the section of each pair: {_rows_in_words(rope)}"
    several = rope.scaling is not None or rope.sections
    return "of the same angles" if function == "sin" and several else words


def _rows_in_words(rope: Rotary) -> str:
    """Return the row of the positions of each pair, in order and from 1 on: 1 twice, 2 three times."""
    rows = rotary.rows_of_pairs(rope.sections or (), rope.section_order)
    return ", ".join(str(row + 1) for row in rows)


def _of_triples(rope: Rotary, function: str) -> str:
    sides = [Fraction(t[function == "sin"], t[2]) for t in rope.triples or ()]
    return ", ".join(f"${function}(θ_{index}) = {side}$" for index, side in enumerate(sides))


def _scaled_rotary_frequencies(rope: Rotary, n: Any, width: Any, like: Any) -> Any:
    frequencies = rotary.inverse_frequencies(width, rope.base, like)
    if rope.scaling is None:
        return frequencies
    # A scaling that grows with the length counts the tokens before ``start``, too.
    return rope.scaling.frequencies(frequencies, rope.base, n + rope.start)


@lru_cache(maxsize=4)  # cosines and sines are separate steps made of the same tables
def _short_tables(
    rope: Rotary, n: int, width: int, kind: Any
) -> tuple[rotary.Tables, rotary.Tables]:
    return rotary.short_tables(
        rope.start, n, _scaled_rotary_frequencies(rope, n, width, kind.lift(np.zeros(())))
    )


@lru_cache(maxsize=16)  # for the same reason, for floats
def _float_rotary_angles(rope: Rotary, n: int, width: int, dtype: Any) -> Any:
    return rotary.angles(
        np.arange(n) + rope.start, _scaled_rotary_frequencies(rope, n, width, np.zeros((), dtype))
    )


def _rotary_table_for_rows(
    rope: Rotary, index: int, x: Array, positions: np.ndarray | None = None
) -> Any:
    """Return the cosines (``index`` 0) or sines (1) for the rows of x."""

    def make(like: Array) -> Any:
        n, width, kind = x.shape[-2], rope.width or x.shape[-1], type(like)
        if rope.triples:
            return rotary.pythagorean_tables(n, rope.triples, like, rope.start)[index]
        # Residues have no cosines: such a kind puts numbers of its own at each angle.
        stand_ins = getattr(kind, "tables", None)
        if stand_ins and (positions is None or isinstance(positions, np.ndarray)):
            if positions is None:
                # Equal float angles identify the same stand-in in code and specification.
                angles = _float_rotary_angles(rope, int(n), int(width), np.dtype(np.float64))
            else:
                angles = rotary_steps.find_angles(
                    rope, positions, _scaled_rotary_frequencies(rope, n, width, np.zeros(()))
                )
            result = stand_ins(("cos", "sin")[index], angles)
        # Each enclosed cosine comes from Arb, so short tables are joined by the addition formulas.
        elif positions is None and getattr(kind, "name", "") == "enclosure":
            result = rotary.joined(*_short_tables(rope, int(n), int(width), kind), n, index)
        # Floats share the cached angles between the steps of cosines and sines.
        elif positions is None and isinstance(like, np.ndarray):
            result = (np.cos, np.sin)[index](_float_rotary_angles(rope, n, width, like.dtype))
        else:
            xp = namespace_of(like)
            # Positions are counted from ``start``, as in a cache that has tokens before these.
            places = xp.arange(n) + rope.start if positions is None else positions
            result = (xp.cos, xp.sin)[index](
                rotary_steps.find_angles(
                    rope, places, _scaled_rotary_frequencies(rope, n, width, like)
                )
            )
        return result if rope.scaling is None else result * rope.scaling.magnitude(like)

    return made_wide(make, x)


# -- terms of the scores before they are scaled ------------------------------------------------------------------------
def relating(flow: Flow) -> None:
    """Add terms of the scores besides q_i · k_j, which are scaled like it."""
    position = flow.spec.position
    if isinstance(position, Shaw):
        most, alignment = position.most, flow.spec.alignment

        def run(s: Array, q: Array, table: Array) -> Array:
            return relative.relative_keys(
                s, q, table, relative.clipped(relative.ahead(s, alignment), most)
            )

        reason = f"rel: each row with the row of the table for the distance $j − i$, cut to −{most} … {most}"
        typed = "out[i,j] = 0[i,j] + Σ_{l=1}^width_1 1[i,l] a_k[@distance] -- the row for the distance of query and key"
        names, written = ("scores", "q", "a_k"), "@0 + rel(@1, @2)"
        flow.add(
            "positioned",
            run,
            written,
            names,
            role="scores",
            reason=reason,
            entries=typed,
            errors="products",
        )
    elif isinstance(position, TransformerXL):
        _transformer_xl(flow)
    elif isinstance(position, Disentangled):
        _add_disentangled_steps(flow, position)


def _transformer_xl(flow: Flow) -> None:
    project(
        flow,
        "r_k",
        "r",
        "w_r",
        heads=flow.spec.heads,
        reason="keys for distances, from far to near",
    )
    names = ("scores", "q", "k", "r_k", "b_u", "b_w")
    reason = "rel: each row with the row of the table for the distance $i − j$"

    def run(s: Array, q: Array, k: Array, table: Array, u: Array, w: Array) -> Array:
        # The table of Transformer-XL runs from far to near, so its index is turned around.
        index = relative.from_far_to_near(
            relative.ahead(s, "bottom-right"), s.shape[-1], table.shape[-2]
        )
        return relative.with_biases(s, q, k, table, index, u, w)

    written, typed = (
        "{@1 + @4} @2ᵀ + rel(@1 + @5, @3)",
        f"out[i,j] = 0[i,j] + {_WITH_BIASES} -- {_ROWS}",
    )
    flow.add(
        "positioned",
        run,
        written,
        names,
        role="scores",
        reason=reason,
        entries=typed,
        errors="products",
    )


# The reason that is written beside sums over rows of a table by distance.
_ROWS = "rows for the distance of query and key"
# The two sums of Transformer-XL: by content with the bias u, by distance with the bias w.
_WITH_BIASES = (
    "Σ_{l=1}^width_1 4[@head,l] 2[j,l] + Σ_{l=1}^width_1 (1[i,l] + 5[@head,l]) 3[@distance]"
)


def _add_disentangled_steps(flow: Flow, disentangled: Disentangled) -> None:
    names, written = ["scores"], "@0"
    if disentangled.to_position:
        project(
            flow, "p_k", "p", "w_pk", "b_pk", heads=flow.spec.heads, reason="keys for distances"
        )
        names, written = [*names, "q", "p_k"], f"{written} + rel(@1, @2)"
    if disentangled.to_content:
        project(
            flow, "p_q", "p", "w_pq", "b_pq", heads=flow.spec.heads, reason="queries for distances"
        )
        written += f" + rel(@{len(names)}, @{len(names) + 1})ᵀ"
        names += ["k", "p_q"]
    # Without a largest distance each distance has a row of its own.
    what = "distance" if disentangled.max_distance is None else "bucket of the distance"
    reason = (
        f"rel: each row with the row of the table for the {what}, "
        f"cut to −{disentangled.span} … {disentangled.span - 1}"
    )
    # Each term adds the variance of q · k, so the scale counts the terms.
    flow.terms = disentangled.terms
    run = partial(_add_disentangled_scores, disentangled, flow.spec.alignment)
    terms = [
        f"Σ_{{l=1}}^width_{at} {at}[{'i' if names[at + 1] == 'p_k' else 'j'},l] {at + 1}[@distance]"
        for at in range(1, len(names), 2)
    ]
    typed = f"out[i,j] = 0[i,j] + {' + '.join(terms)} -- {_ROWS}"
    flow.add(
        "positioned",
        run,
        written,
        names,
        role="scores",
        reason=reason,
        entries=typed,
        errors="products",
    )


def _add_disentangled_scores(
    disentangled: Disentangled, alignment: str, s: Array, *arguments: Array
) -> Array:
    # DeBERTa counts from the query back to the key.
    behind = -relative.ahead(s, alignment)
    rest = list(arguments)
    if disentangled.to_position:
        q, table = rest.pop(0), rest.pop(0)
        s = relative.relative_keys(s, q, table, _table_row_of_distance(disentangled, behind))
    if disentangled.to_content:
        k, table = rest
        s = relative.relative_queries(
            s,
            k,
            table,
            # Implementations differ in the direction of the distances of queries from keys.
            _table_row_of_distance(disentangled, -behind if disentangled.backwards else behind),
        )
    return s


def _table_row_of_distance(disentangled: Disentangled, behind: Array) -> Array:
    if disentangled.max_distance is not None:
        behind = relative.deberta_bucket(behind, disentangled.span, disentangled.max_distance)
    # Bounds of the table: span rows for each direction, one of which has 0.
    return relative.clipped(behind, disentangled.span, disentangled.span - 1)


# -- terms of the scores after they are scaled -------------------------------------------------------------------------
def placing(flow: Flow) -> None:
    """Add biases by distance to the scaled scores."""
    position = flow.spec.position
    if isinstance(position, Alibi):
        _add_alibi_steps(flow, position)
    elif isinstance(position, Buckets):
        reason = f"one number for each head and bucket $β_ij = bucket(j − {{{_formula_of_query_place(flow)}}})$"
        run, names = partial(_bucket_bias, position, flow.spec.alignment), ("scores", "b_rel")
        typed = f"out[i,j] = 0[i,j] + b_rel[β,@head] -- $β$ is the bucket of $−δ$; {_formula_of_distance(flow)}"
        flow.add(
            "positioned",
            run,
            "@0 + rows(@1, β)",
            names,
            role="scores",
            reason=reason,
            entries=typed,
            errors="adds",
        )


def _formula_of_distance(flow: Flow) -> str:
    """Return the distance δ of query i and key j in letters, as the alignment counts it."""
    return f"$δ = i{'⟨ + n_k − n_q⟩' * (flow.spec.alignment == 'bottom-right')} − j$"


def _formula_of_query_place(flow: Flow) -> str:
    """Return the position of query i among the keys in letters."""
    # In self-attention both sides have the same places.
    alone = "x" in flow.given and "y" not in flow.given
    return "i" if alone else query_place(flow.spec.alignment)


def _bucket_bias(buckets: Buckets, alignment: str, s: Array, table: Array) -> Array:
    index = relative.t5_bucket(
        relative.ahead(s, alignment), buckets.number, buckets.max_distance, buckets.bidirectional
    )
    return relative.bucket_bias(s, table, index)


def _add_alibi_steps(flow: Flow, alibi: Alibi) -> None:
    # Slopes are a step of their own, so that they may also be an input.
    if alibi.slopes == "computed":
        reason = f"$e_h = {{{', '.join(map(str, relative.slope_exponents(flow.spec.heads)))}}}$"
        run = partial(relative.slopes, flow.spec.heads)
        typed = "out[a] = 2^{−e_a} -- the slope of head a"
        flow.add("slopes", run, "2^{−e_h}", ("scores",), reason=reason, entries=typed, errors="own")
    behind = f"{_formula_of_query_place(flow)} − j"
    run = partial(relative.biased, two_sided=alibi.two_sided, alignment=flow.spec.alignment)
    distance = f"one slope for each head; $d_ij = {f'|{behind}|' if alibi.two_sided else behind}$"
    several, delta = flow.spec.heads > 1, "|δ|" if alibi.two_sided else "δ"
    typed = f"out[i,j] = 0[i,j] − {'slopes[a]' if several else 'm_1'} {delta} -- {_formula_of_distance(flow)}"
    typed, names = typed + ", in head $a$" * several, ("scores", "slopes")
    flow.add(
        "positioned",
        run,
        "@0 − @1 D",
        names,
        role="scores",
        reason=distance,
        entries=typed,
        errors="adds",
    )


# -- values ------------------------------------------------------------------------------------------------------------
def valued(most: int, alignment: str, p: Array, v: Array, table: Array) -> Array:
    """Return the weighted values plus the weighted rows of a table by distance."""
    index = relative.clipped(relative.ahead(p, alignment), most)
    return relative.relative_values(scores.weighted_values(p, v), p, table, index)
