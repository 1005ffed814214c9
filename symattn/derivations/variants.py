"""``variants``: every variant of attention on every kind of array, found out by running it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from symattn.attention.variants import AGREES, VARIANTS
from symattn.derivations.support import KINDS, Support, support
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Block, Caveat, Column, Document, Heading, Items, Paragraph, Result, Table, Text

_COLUMNS = {"float32": "NumPy"}
_YES = "yes"
CHECKED = Evidence(Grade.CHECKED, "one example of each")


def derivation() -> Document:
    """Which variant runs on which kind, and why not where it does not."""
    rows = [support(name, variant) for name, variant in VARIANTS.items()]
    return Document(
        "derivation",
        "variants",
        ("Variants of attention, and what they run on",),
        tuple(_blocks(rows)),
        hints=("symattn derive attention --help   the fields of a specification",),
    )


def _blocks(rows: list[Support]) -> Iterator[Block]:
    yield Paragraph(
        (
            "Each variant is one specification, run here on an example in which all sizes differ. Exact and NumPy"
            " arrays must give the value that balls enclose, NumPy within what rounding in float32 may do; the"
            " intervals of enclosures must hold it; gradients"
            " are taken forwards and backwards and must agree; where sizes or entries are letters, and on residues, it"
            " must run. Tests compare all kinds element by element, every variant with plain loops, and those named"
            " with the functions of others.",
        )
    )  # fmt: skip
    for family, group in groupby(rows, lambda row: row.variant.family):
        yield from _family(family, list(group))
    cells = [reason for row in rows for reason in row.found.values()]
    passed = sum(reason is None for reason in cells)
    words = f"{len(rows)} variants in {len(KINDS)} ways: {passed} of {len(cells)} hold, the others are explained"
    yield Result("Result", (), (CHECKED,), (words,))
    yield Caveat(
        ("An example says nothing of other sizes and entries. What holds for all sizes is proved: symattn prove.",)
    )


def _family(family: str, rows: list[Support]) -> Iterator[Block]:
    yield Heading((family.capitalize(),))
    reasons = list(dict.fromkeys(r for row in rows for r in row.found.values() if r is not None))
    titles = ["variant", *(_COLUMNS.get(k, k) for k in KINDS), "agrees with"]
    columns = tuple(Column((title,), "left") for title in titles)
    yield Table(columns, tuple(_row(row, reasons) for row in rows))
    if reasons:
        yield Items(tuple((f"({_letter(reasons, r)}) {r}",) for r in reasons))


def _row(row: Support, reasons: list[str]) -> tuple[Text, ...]:
    cells = [_YES if r is None else f"({_letter(reasons, r)})" for r in row.found.values()]
    others = ", ".join(other for other, names in AGREES.items() if row.name in names)
    return ((row.name,), *((cell,) for cell in cells), (others or "loops alone",))


def _letter(reasons: list[str], reason: str) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[reasons.index(reason)]
