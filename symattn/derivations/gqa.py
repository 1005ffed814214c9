"""``gqa``: several query heads read one head of keys and values."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.attention.groups import grouped_attention, repeat_heads, tile_heads
from symattn.attention.notation import D_K, D_V, H
from symattn.attention.spec import Attention
from symattn.derivations.exactly import THIS, entries, exact, same
from symattn.derivations.parameters import LIMITS, whole
from symattn.derivations.proving import hypotheses, known, shown
from symattn.derivations.steps import defined, hold, together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Column, Document, Heading, Paragraph, Table
from symattn.document.notation import Name, equals, name
from symattn.proof.theorem import Method
from symattn.proof.together import identity
from symattn.theorems import heads as theorems

_G, _R, _T = Name("g"), Name("r"), Name("t")
_HEADS = {"q": "g*r n_q d_k", "k": "g n_k d_k", "v": "g n_k d_v"}
_ATTENTION = Attention()
_EXAMPLE = {"k": [[[0]], [[0]]], "v": [[[1]], [[2]]]}  # two heads of one key
_QUERIES = 4


def derivation(heads: int = 8, dk: int = 64, dv: int = 64) -> Document:
    """Query head t reads head ⌊t/r⌋: multi-head attention with each head of keys and values r times in a row."""
    for parameter, value in (("heads", heads), ("dk", dk), ("dv", dv)):
        whole(parameter, value, LIMITS[parameter])
    return Document(
        "derivation",
        "gqa",
        ("Grouped-query attention",),
        _blocks(heads, dk, dv),
        subtitle=("the table is for ", equals(H, heads), ", ", equals(D_K, dk), ", ", equals(D_V, dv)),
        command=f"symattn derive gqa --heads {heads} --dk {dk} --dv {dv}",
        parameters={"heads": heads, "dk": dk, "dv": dv},
        hints=("symattn derive kv-cache          what is kept of each token", "symattn derive mla"),
    )


def one_head() -> Method:
    """The heads of group a are attention of the r queries of that group on head a of keys and values."""

    def sides(q: Any, k: Any, v: Any, g: Any, r: Any) -> Any:
        xp = q.__array_namespace__()
        *_, n, d = q.shape
        members = xp.reshape(q, (g, r, n, d))
        output = xp.reshape(grouped_attention(_ATTENTION, q, k, v), (g, r, n, v.shape[-1]))
        return output, _ATTENTION(members, k[:, None], v[:, None])

    return identity(_HEADS, sides)


def _blocks(heads: int, dk: int, dv: int) -> tuple[Block, ...]:
    grouped, relabelled, extremes = map(
        known, (theorems.gqa_is_mha, theorems.gqa_tile_is_a_relabelling, theorems.mqa_is_gqa_one)
    )
    reads = nt.call("Attention", name("Q", _T, role="query"), _shared("K", "key"), _shared("V", "value"))
    return (
        hypotheses((grouped,)),
        Heading(("Groups",)),
        together(
            defined(equals(name("O", _T, role="output"), reads), "heads are counted from 0"),
            shown(
                equals(name("O", _member(), role="output"), _of_group()),
                ("the r query heads of group a, ", nt.relation(Name("b"), "<", _R)),
                one_head(),
            ),
        ),
        grouped.result("Result 1"),
        grouped.wrong(),
        Heading(("Both ends",)),
        extremes.result("Result 2"),
        extremes.wrong(),
        Heading(("The other order",)),
        Paragraph(("Some code tiles the heads instead: query head t reads head t mod g.",)),
        relabelled.result("Result 3"),
        relabelled.wrong(),
        *_example(),
        Heading(("What is kept",)),
        _table(heads, dk, dv),
        Caveat(
            (
                "Shared heads are another model than h heads of their own: Result 1 says which multi-head attention it",
                " is, not that every one can be had.",
            )
        ),
    )  # fmt: skip


def _shared(letter: str, role: Any) -> nt.Node:
    return name(letter, Name("⌊t/r⌋"), role=role)


def _member() -> nt.Node:
    return Name("a") * _R + Name("b")


def _of_group() -> nt.Node:
    a = Name("a")
    return nt.call(
        "Attention", name("Q", _member(), role="query"), name("K", a, role="key"), name("V", a, role="value")
    )


def _example() -> tuple[Block, ...]:
    """Which head each of four query heads reads, by its value."""
    k, v = exact(_EXAMPLE["k"]), exact(_EXAMPLE["v"])
    q = exact([[[1]]] * _QUERIES)
    grouped = grouped_attention(_ATTENTION, q, k, v)[:, 0, 0]
    times = _QUERIES // k.shape[0]
    repeated = _ATTENTION(q, repeat_heads(k, times), repeat_heads(v, times))[:, 0, 0]
    tiled = _ATTENTION(q, tile_heads(k, times), tile_heads(v, times))[:, 0, 0]
    outputs = name("O", nt.commas(0, "…", _QUERIES - 1), role="output")
    return (
        Heading(("In numbers",)),
        Paragraph(
            (
                "Four query heads and two heads of one key, of values ", nt.node(1), " and ", nt.node(2),
                ", so that the output tells which head was read:",
            )
        ),
        together(
            hold(same(grouped, repeated), equals(outputs, entries(grouped)), "each head twice in a row", THIS),
            hold(
                not same(grouped, tiled),
                nt.Relation(outputs, (("≠", entries(tiled)),)),
                "the heads tiled",
                THIS,
            ),
        ),
    )  # fmt: skip


def _table(heads: int, dk: int, dv: int) -> Table:
    """Numbers that are kept of each token, for each number of groups."""
    columns = (Column((_G,)), Column((_R,)), Column(("kept: ", _G * nt.Fence("round", D_K + D_V))), Column(("share",)))
    groups = [g for g in range(heads, 0, -1) if heads % g == 0]
    rows = tuple(tuple((nt.node(x),) for x in (g, heads // g, g * (dk + dv), Fraction(g, heads))) for g in groups)
    return Table(columns, rows, caption=("Numbers kept of each token and layer; g = h is multi-head attention.",))
