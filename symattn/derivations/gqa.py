"""``gqa``: several query heads read one head of keys and values."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.groups import grouped_attention, tile_heads
from symattn.attention.notation import D_K, D_V, H
from symattn.attention.spec import Attention
from symattn.derivations.exactly import value
from symattn.derivations.parameters import LIMITS, whole
from symattn.derivations.proving import hypotheses, known
from symattn.derivations.steps import together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Column, Document, Heading, Paragraph, Table
from symattn.document.notation import Name, equals, name
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.section import Section
from symattn.theorems import heads as theorems

_G, _R, _T = Name("g"), Name("r"), Name("t")
_HEADS = {"Q": "g*r n_q d_k", "K": "g n_k d_k", "V": "g n_k d_v"}
_O = name("O", role="output")
_ROLES: tuple[tuple[str, Any], ...] = (("Q", "query"), ("K", "key"), ("V", "value"))
_ATTENTION = Attention()
_EXAMPLE = {"Q": [[1, 1, 1, 1]], "K": [[0, 0]], "V": [[1, 2]]}  # a number for each head


def derivation(heads: int = 8, dk: int = 64, dv: int = 64) -> Document:
    """Query head t reads head ⌊t/r⌋: multi-head attention with each head of keys and values r times in a row."""
    for parameter, number in (("heads", heads), ("dk", dk), ("dv", dv)):
        whole(parameter, number, LIMITS[parameter])
    return Document(
        "derivation",
        "gqa",
        ("Grouped-query attention",),
        _blocks(heads, dk, dv),
        subtitle=("the table is for ", equals(H, heads), ", ", equals(D_K, dk), ", ", equals(D_V, dv)),
        parameters={"heads": heads, "dk": dk, "dv": dv},
        hints=("symattn derive kv-cache          what is kept of each token", "symattn derive mla"),
    )


def _implemented(reader: Reader) -> Array:
    """The outputs of all query heads, as they are implemented."""
    return grouped_attention(_ATTENTION, *(reader.arrays[letter] for letter in "QKV"))


def _section() -> Section:
    index = {"t": "g*r", "a": "g", "b": "r"}
    return Section(Glossary(_HEADS, {"g": "g", "r": "r"}, index, {"O": _implemented}, first=0))


def _blocks(heads: int, dk: int, dv: int) -> tuple[Block, ...]:
    grouped, relabelled, extremes = map(
        known, (theorems.gqa_is_mha, theorems.gqa_tile_is_a_relabelling, theorems.mqa_is_gqa_one)
    )
    section = _section()
    reads = nt.call("Attention", name("Q", _T, role="query"), _shared("K", "key"), _shared("V", "value"))
    return (
        hypotheses((grouped,)),
        Heading(("Groups",)),
        together(
            section.claim(equals(name("O", _T, role="output"), reads), "as it is implemented"),
            section.claim(
                equals(name("O", _member(), role="output"), _of_group()),
                ("the ", _R, " query heads of group ", Name("a"), ": ",
                 nt.Relation(nt.node(0), (("≤", Name("b")), ("<", _R)))),
            ),
        ),
        *grouped.result(),
        grouped.wrong(),
        Heading(("Both ends",)),
        *extremes.result(),
        extremes.wrong(),
        Heading(("The other order",)),
        Paragraph(("Some code tiles the heads instead: query head t reads head t mod g.",)),
        *relabelled.result(),
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
    return name(letter, nt.Fence("floor", _T / _R), role=role)


def _member() -> nt.Node:
    return Name("a") * _R + Name("b")


def _of_group() -> nt.Node:
    a = Name("a")
    return nt.call(
        "Attention", name("Q", _member(), role="query"), name("K", a, role="key"), name("V", a, role="value")
    )


def _one_number(tiled: bool) -> Any:
    """The output of each query head, where every head has one query or key of one number."""

    def computed(reader: Reader) -> Any:
        q, k, v = (reader.arrays[letter][:, None, None] for letter in "QKV")
        if not tiled:
            return grouped_attention(_ATTENTION, q, k, v)[:, 0, 0]
        times = q.shape[0] // k.shape[0]
        return _ATTENTION(q, tile_heads(k, times), tile_heads(v, times))[:, 0, 0]

    return computed


def _example() -> tuple[Block, ...]:
    """Which head each of four query heads reads, by its value."""
    given, other = {"Q": "h", "K": "g", "V": "g"}, name("O", "tiled")
    defined = {"O": _one_number(False), "O_tiled": _one_number(True)}
    section = Section(Glossary(given, index={"t": "h"}, defined=defined, example=True, first=0))
    numbers = [equals(name(x, role=role), nt.matrix(_EXAMPLE[x])) for x, role in _ROLES]
    said = section.let(
        (
            "Four query heads of one query and two heads of one key, each a number: ", numbers[0], ", ", numbers[1],
            " and ", numbers[2], ", so that the outputs ", _O, " tell which head was read:",
        )
    )  # fmt: skip
    times = len(_EXAMPLE["Q"][0]) // len(_EXAMPLE["V"][0])
    repeated = [x for x in _EXAMPLE["V"][0] for _ in range(times)]
    tiled = _EXAMPLE["V"][0] * times
    differs = nt.Relation(_O, (("=", nt.matrix([repeated])), ("≠", nt.matrix([tiled])), ("=", other)))
    return (
        Heading(("In numbers",)),
        Paragraph(said),
        together(
            section.claim(equals(_O, nt.matrix([repeated])), "each head twice in a row"),
            section.claim(differs, "the heads tiled"),
        ),
    )


def _table(heads: int, dk: int, dv: int) -> Table:
    """Numbers that are kept of each token, for each number of groups."""
    formulas = (_G, H / _G, _G * nt.Fence("round", D_K + D_V), _G / H)
    columns = tuple(Column(head) for head in ((_G,), (_R,), ("kept: ", formulas[2]), ("share: ", formulas[3])))
    numbers = {"h": heads, "d_k": dk, "d_v": dv}
    groups = [g for g in range(heads, 0, -1) if heads % g == 0]
    rows = tuple(tuple((value(x, {**numbers, "g": g}).notation(),) for x in formulas) for g in groups)
    return Table(columns, rows, caption=("Numbers kept of each token and layer.",))
