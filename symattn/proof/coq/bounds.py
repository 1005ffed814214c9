"""Write the gap of an inequality in a form that Coq recognises as nonnegative: see ``at_least_0`` in ``Bounding.v``.

The checker accepts a few more forms. So equal factors are paired into squares, and e^u − 1 − u, or e^u − 1 with u not
negative, is written as e^u − (u + 1), plus u.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from symattn.document.errors import Refused
from symattn.proof.checker_reading import CheckedNode
from symattn.proof.checker_signs import Signs
from symattn.proof.coq.readable import Meant
from symattn.proof.coq.steps import in_order, is_positive
from symattn.proof.coq.terms import Term, number

Data = list[Any]
ONE: Data = ["number", "1"]
LESS: Data = ["number", "-1"]


def shaped(x: CheckedNode, signs: Signs) -> Data:
    """Return ``x`` in a form that Coq recognises as nonnegative."""
    if x.kind == "product":
        return _squares(x, signs)
    if x.kind == "sum":
        return _tangent(x, signs) or ["sum", *[shaped(y, signs) for y in x.below]]
    if x.kind == "total":
        return ["total", x.label, x.sorts[0], shaped(x.below[0], signs)]
    if x.kind == "ratio":
        return ["ratio", shaped(x.below[0], signs), data(x.below[1])]
    return data(x)


def _squares(x: CheckedNode, signs: Signs) -> Data:
    """Return a product with equal factors in pairs."""
    by_form = {y.own_form: y for y in x.below}
    times = Counter(y.own_form for y in x.below)
    pairs = [["product", data(by_form[key]), data(by_form[key])] for key, n in times.items() for _ in range(n // 2)]
    return ["product", *pairs, *[shaped(by_form[key], signs) for key, n in times.items() if n % 2]]


def _tangent(x: CheckedNode, signs: Signs) -> Data | None:
    """Return e^u − 1 − u + …, or e^u − 1 + … with u ≥ 0, in Coq's form if the rest is not negative; else None."""
    parts = signs.above_tangent(x)
    if parts is None:
        return None
    u, beyond = data(parts[0]), [shaped(y, signs) for y in parts[1]]
    return ["sum", ["sum", ["exp", u], ["product", LESS, ["sum", u, ONE]]], *beyond]


def forced(x: Term) -> Iterator[tuple[tuple[int, ...], Term]]:
    """Yield terms that may be 0 where ``x`` is, with the sorts of their places, as ``forced`` in ``Bounding.v``."""
    yield (), x
    if x.head == "Sum":
        yield from (((*more, x.numbers[0]), y) for more, y in forced(x.below[0]))
    elif x.head in ("Add", "Mul", "Div"):
        for y in x.below[:1] if x.head == "Div" else x.below:
            yield from forced(y)
            if x.head == "Add" and y.head == "Exp":
                yield (), y.below[0]


def forced_to_0(why: Term, free: tuple[int, ...], wanted: Meant) -> tuple[tuple[int, ...], Term]:
    """Return the wanted term as it occurs in ``why`` over the most sorts. Raises Refused if it does not occur."""
    result = [(more, x) for more, x in forced(why) if in_order(x, (*more, *free)) == wanted]
    if not result:
        raise Refused("coq: it says where both sides are equal, which is not seen")
    return max(result, key=lambda each: len(each[0]))


def unlogged(x: Term, log: int | None, plus: frozenset[int]) -> Term:
    """Rewrite e^(u + log y) as e^u y if y is positive by its form, as ``unlogged`` in ``Bounding.v``."""
    if x.head == "Exp":
        return _power(x.below[0], log, plus)
    if x.head in ("Add", "Mul", "Sum"):
        return Term(x.head, x.numbers, tuple(unlogged(y, log, plus) for y in x.below))
    return Term("Div", (), (unlogged(x.below[0], log, plus), x.below[1])) if x.head == "Div" else x


def _power(x: Term, log: int | None, plus: frozenset[int]) -> Term:
    if x.head == "Add":
        return Term("Mul", (), tuple(_power(y, log, plus) for y in x.below))
    if (y := _argument(x, log, plus)) is not None:
        return y
    if x.head == "Mul" and x.below[0] == number(-1) and (y := _argument(x.below[1], log, plus)) is not None:
        return Term("Div", (), (number(1), y))
    return Term("Exp", (), (x,))


def _argument(x: Term, log: int | None, plus: frozenset[int]) -> Term | None:
    if x.head != "Fun" or x.numbers[0] != log or [a.head for a in x.below] != ["One"]:
        return None
    (y,) = x.below[0].below
    return y if is_positive(y, plus) else None


def data(x: CheckedNode) -> Data:
    """Return an expression as stored in a certificate."""
    if x.kind == "number":
        return ["number", str(x.label)]
    if x.kind == "size":
        return ["size", x.label]
    if x.kind == "letter":
        return ["letter", x.label, [list(i) for i in x.indices]]
    if x.kind == "is":
        return ["is", x.label, *[list(i) for i in x.indices]]
    below = [data(y) for y in x.below]
    if x.kind in ("total", "bound"):
        return [x.kind, x.label, x.sorts[0], *below]
    return [x.kind, x.label, *below] if x.kind == "function" else [x.kind, *below]
