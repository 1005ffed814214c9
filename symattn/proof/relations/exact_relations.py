"""Decide relations about the numbers that a document prints, in exact numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays.exact import Exact
from symattn.document import notation as nt
from symattn.document.notation import Name, Node, Relation
from symattn.document.text import text
from symattn.proof.relations import comparing
from symattn.proof.relations.compiling import links, sides_of
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Unread
from symattn.proof.relations.reader import Reader


def decide(relation: Relation, glossary: Glossary) -> None:
    """Raise FalseStep if the relation is false for these numbers, Unread if it cannot be read."""
    reader = _make_exact_reader(glossary)
    _every_group_is_named(relation)
    for link in links(relation):
        if link.sign == "≈":
            # ≈ promises that these digits are the rounded value.
            if not isinstance(link.right, nt.Decimal):
                raise Unread("≈ without digits")
            (entry,) = reader.one(link.left).array.entries.flat
            # Significant digits: neither sign nor leading zeros nor the exponent.
            count = len(link.right.digits.partition("e")[0].replace(".", "").lstrip("-0"))
            if entry.decimal(count) != link.right.digits:
                raise comparing.FalseStep(f"{text(link.left)} is not {link.right.digits}, rounded")
            continue
        sides = list(sides_of(reader, link.left, link.right))
        # Sides of several entries differ if one of them does.
        if link.sign == "≠":
            true = any(not comparing.holds(a, "=", b) for a, b in sides)
        else:
            true = all(comparing.holds(a, link.sign, b) for a, b in sides)
        if not true:
            raise comparing.FalseStep(
                f"{text(link.left)} {link.sign} {text(link.right)} is false in this example"
            )


def _make_exact_reader(g: Glossary) -> Reader:
    lengths: dict[str, int] = {}
    # Without arrays the reader still needs to know the kind of number.
    arrays: dict[str, Any] = {} if g.given else {"": Exact.lift(1)}
    for key, shape in g.given.items():
        if key not in g.fixed:
            raise Unread(f"{key} has no numbers")
        rows, axes = (
            [[_read_printed_fraction(e) for e in row] for row in g.fixed[key]],
            shape.split(),
        )
        flat = [e for row in rows for e in row]
        # A matrix of one row or column may stand for a vector.
        is_vector = 1 in (len(rows), len(rows[0]))
        if (len(axes) < 2 and not is_vector) or (not axes and len(flat) > 1):
            raise Unread("more numbers than the shape has axes for")
        entries: Any = rows if len(axes) == 2 else flat if len(axes) == 1 else flat[0]
        arrays[key] = Exact.lift(np.array(entries, dtype=object))
        own = {
            axis: n
            for axis, n in zip(axes, arrays[key].plain_shape, strict=True)
            if not axis.isdigit()
        }
        own_lengths = own.items()
        # One size has one length.
        if any(lengths.setdefault(axis, n) != n for axis, n in own_lengths):
            raise Unread(f"{key} has another length than the arrays before")
    return Reader(g, arrays, lengths)


def _every_group_is_named(relation: Relation) -> None:
    """Raise Unread for a group between ≠ signs without a letter: a bare number could be any number."""
    groups: list[list[Node]] = [[relation.first]]
    for sign, side in relation.rest:
        # Groups are separated by ≠; within one all are equal.
        if sign == "≠":
            groups.append([side])
        else:
            groups[-1].append(side)
    letters = [
        [x for x in nt.within(*g) if isinstance(x, Name) and x.base not in ("e", "π")]
        for g in groups
    ]
    if len(groups) > 1 and not all(letters):
        raise Unread("a number beside ≠ that no letter stands for")


def _read_printed_fraction(x: Node) -> Any:
    if isinstance(x, nt.Neg):
        return -_read_printed_fraction(x.body)
    if isinstance(x, nt.Number):
        return x.value
    raise Unread(f"{text(x)} is not a number")
