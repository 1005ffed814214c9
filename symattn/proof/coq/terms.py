"""Expressions of certificates as terms of the Coq theory: see ``Meaning.v`` for what they mean there.

Indices are counted from the innermost binder outwards. Sorts, arrays and functions get numbers in the order in which
they occur. Numbers in sums and products are joined. An array whose index went through a permutation is an array of its
own, and so is a relation between such indices: what holds for all arrays holds for these. ``exp`` of what is masked is
the mask times ``exp``. A maximum over two indices is the largest of maxima over one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, reduce
from math import prod
from typing import Any

from symattn.document.errors import Refused
from symattn.proof.checker_reading import CheckedNode, node

RELATIONS = {"=": "Equal", "≤": "AtMost", "<": "Below"}


@dataclass(frozen=True)
class Term:
    """A node: its constructor, the numbers that it holds, and the terms below. ``One`` and ``Over`` are arguments.

    Terms are looked up and sorted by their text many times, so it is kept.
    """

    head: str
    numbers: tuple[int, ...] = ()
    below: tuple[Term, ...] = ()

    def __str__(self) -> str:
        return self._format_coq_syntax

    def __hash__(self) -> int:
        return hash(self._format_coq_syntax)

    @cached_property
    def _format_coq_syntax(self) -> str:
        if self.head == "Letter":
            name, *indices = self.numbers
            return f"(Letter {name} [{'; '.join(map(str, indices))}])"
        if self.head == "Fun":
            arguments = "End"
            # Arguments are nested from the last one.
            for a in reversed(self.below):
                applied = " ".join(map(str, (a.head, *a.numbers, *a.below)))
                arguments = f"({applied} {arguments})"
            return f"(Fun {self.numbers[0]} {arguments})"
        # A minus needs brackets in Coq.
        numbers = [f"({n})" if n < 0 else str(n) for n in self.numbers]
        parts = map(str, self.below)
        return f"({' '.join([self.head, *numbers, *parts])})"

    @property
    def seats(self) -> tuple[int, ...]:
        """The indices that the node itself holds."""
        return (
            self.numbers[1:]
            if self.head == "Letter"
            else self.numbers
            if self.head.startswith("Is")
            else ()
        )

    def binds(self) -> bool:
        """Return whether the term binds an index in the term below."""
        return self.head in ("Sum", "Over")


def number(value: Fraction | int) -> Term:
    """Return a rational number."""
    q = Fraction(value)
    top = Term("Num", (q.numerator,))
    if q.denominator == 1:
        return top
    return Term("Div", (), (top, Term("Num", (q.denominator,))))


def value(x: Term) -> Fraction | None:
    """Return the number that a term is, or None."""
    if x.head == "Num":
        return Fraction(x.numbers[0])
    if x.head == "Div" and all(y.head == "Num" for y in x.below) and x.below[1].numbers[0]:
        return Fraction(x.below[0].numbers[0], x.below[1].numbers[0])
    return None


def joined(head: str, parts: Sequence[Term]) -> Term:
    """Return a sum or a product of several terms with its numbers combined: 1 x is x, 0 x is 0 and x + 0 is x."""
    # Numbers are combined exactly, as the checker does.
    numbers = [v for x in parts if (v := value(x)) is not None]
    rest = [x for x in parts if value(x) is None]
    if head == "Add":
        whole = sum(numbers, Fraction(0))
        remaining = [*rest, number(whole)] if whole or not rest else rest
    else:
        whole = prod(numbers, start=Fraction(1))
        remaining = [number(whole), *rest] if whole != 1 or not rest else rest
        # 0 · x is 0.
        remaining = remaining if whole else [number(0)]
    return reduce(lambda left, x: Term(head, (), (left, x)), remaining)


@dataclass
class Names:
    """The numbers of sorts, arrays and functions; the key of an array holds its images under permutations."""

    sorts: dict[str, int] = field(default_factory=dict)
    arrays: dict[tuple[Any, ...], int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    arities: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def sort(self, name: str) -> int:
        return self.sorts.setdefault(name, len(self.sorts))

    def array(self, key: tuple[object, ...], sorts: Sequence[int]) -> int:
        key_with_sorts = (*key, tuple(sorts))
        result = self.arrays.setdefault(key_with_sorts, len(self.arrays))
        self.arities[result] = tuple(sorts)
        return result

    def function(self, name: str) -> int:
        return self.functions.setdefault(name, len(self.functions))

    def with_name(self, name: str) -> list[int]:
        """Return the numbers of the arrays with this name."""
        return [n for key, n in self.arrays.items() if key[0] == name]


Scope = tuple[tuple[str, int], ...]  # names of indices with their sorts, the innermost first


def term(x: CheckedNode, scope: Scope, names: Names) -> Term:
    """Return an expression of a certificate as a term. Raises Refused if the theory has no term for it."""
    if x.kind == "number":
        return number(x.label)
    if x.kind == "size":
        return Term("Size", (names.sort(x.label),))
    if x.kind == "letter":
        images = [i[1:] for i in x.indices]
        return _make_letter_term((x.label, *images), x.indices, scope, names)
    if x.kind == "is":
        return _make_relation_term(x, scope, names)
    if x.kind in ("sum", "product"):
        operation = "Add" if x.kind == "sum" else "Mul"
        return joined(operation, [term(y, scope, names) for y in x.below])
    if x.kind == "ratio":
        return Term("Div", (), tuple(term(y, scope, names) for y in x.below))
    # A masked exponential is a product of truths and e to the score.
    if x.kind == "exp":
        allowed, power = masks(x.below[0])
        return joined(
            "Mul",
            [
                *[term(a, scope, names) for a in allowed],
                Term("Exp", (), (term(power, scope, names),)),
            ],
        )
    if x.kind == "total":
        return _make_binding_term("Sum", x, scope, names)
    if x.kind == "function":
        # max over two indices is the maximum of maxima.
        below = map(_nest_maximum_over_indices, x.below) if x.label == "max" else x.below
        return Term(
            "Fun",
            (names.function(x.label),),
            tuple(_make_argument_term(y, scope, names) for y in below),
        )
    raise Refused(f"coq: {x.kind} outside of an exponential or a function")


def masks(x: CheckedNode) -> tuple[list[CheckedNode], CheckedNode]:
    """Split a masked term into the masks and the value there, of −∞ or a sum with it."""
    if x.kind == "masked":
        allowed, inside = masks(x.below[1])
        return [x.below[0], *allowed], inside
    if x.kind == "sum":
        parts = [masks(y) for y in x.below]
        return [a for allowed, _ in parts for a in allowed], x.of(inside for _, inside in parts)
    return [], x


def _make_letter_term(
    key: tuple[object, ...], indices: Sequence[Sequence[str]], scope: Scope, names: Names
) -> Term:
    seats = [_seat_in_scope(i, scope) for i in indices]
    sorts = [scope[s][1] for s in seats]
    return Term("Letter", (names.array(key, sorts), *seats))


def _seat_in_scope(index: Sequence[str], scope: Scope) -> int:
    return next(n for n, (name, _) in enumerate(scope) if name == index[0])


def _make_relation_term(x: CheckedNode, scope: Scope, names: Names) -> Term:
    a, b = x.indices
    symmetric = x.label == "=" or not a[1:]
    if a[1:] == b[1:] and symmetric:  # a permutation takes no two places to one
        return Term(
            f"Is {RELATIONS[x.label]}", (_seat_in_scope(a, scope), _seat_in_scope(b, scope))
        )
    key = (f"is {x.label}", a[1:], b[1:])
    return _make_letter_term(key, (a, b), scope, names)


def _make_binding_term(head: str, x: CheckedNode, scope: Scope, names: Names) -> Term:
    sort = names.sort(x.sorts[0])
    # The innermost index is number 0.
    inside = ((x.label, sort), *scope)
    below = (
        _make_element_term(x.below[0], inside, names)
        if head == "Over"
        else term(x.below[0], inside, names)
    )
    return Term(head, (sort,), (below,))


def _nest_maximum_over_indices(x: CheckedNode) -> CheckedNode:
    """Return a maximum over two indices as the largest of the maxima over one, if all its entries are real."""
    if (
        x.kind != "bound"
        or x.below[0].kind != "bound"
        or any(y.kind == "masked" for y in x.below[0].all())
    ):
        return x
    inside = _nest_maximum_over_indices(x.below[0])
    return x.of([node("function", [inside], "max")])


def _make_argument_term(x: CheckedNode, scope: Scope, names: Names) -> Term:
    """Return an argument of a function: a number, or one for each index of a sort."""
    if x.kind == "bound":
        return _make_binding_term("Over", x, scope, names)
    return Term("One", (), (_make_element_term(x, scope, names),))


def _make_element_term(x: CheckedNode, scope: Scope, names: Names) -> Term:
    """Return a function's argument: a masked one as an opaque function of mask and value."""
    if x.kind == "bound":
        raise Refused("coq: a function over two indices at once")
    allowed, inside = masks(x)
    result = term(inside, scope, names)
    # A mask is an argument of its own, since −∞ is no number of the theory.
    if not allowed:
        return result
    mask = joined("Mul", [term(a, scope, names) for a in allowed])
    return Term(
        "Fun", (names.function("masked"),), (Term("One", (), (mask,)), Term("One", (), (result,)))
    )


def circles(rules: Sequence[Sequence[str]], names: Names) -> list[tuple[int, int]]:
    """Return the pairs of arrays that are cosine and sine of the same angles, at the same permutations."""
    numbered = names.arrays.items()
    keys: Mapping[int, tuple[Any, ...]] = {n: key for key, n in numbered}
    result = []
    for cosine, sine in rules:
        for c in names.with_name(cosine):
            sines = names.with_name(sine)
            # At different permutations they are of different angles.
            result += [(c, s) for s in sines if keys[s][1:] == keys[c][1:]]
    return result
