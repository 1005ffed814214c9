"""Index expressions: the elements of arrays with letters for sizes, such as Σ_k Q[i,k] K[j,k].

Expressions are interned: equal ones are the same object, so comparing and memoising cost nothing. They are built by
the functions in ``building``, in the normal form described there; nothing here computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from itertools import count
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

from symattn.arrays.notes import assigned
from symattn.document.errors import Refused

# Numbers of index variables, so that no two fresh ones are equal.
_numbers = count()
Signed = tuple[int, "Index"]


class Index(NamedTuple):
    """An index variable over a sort; ``image`` names the permutations applied to it: π(i) is ``image=("pi",)``."""

    sort: str
    number: int
    image: tuple[str, ...] = ()


def fresh(sort: str) -> Index:
    """Return a new index variable of ``sort``."""
    return Index(sort, next(_numbers))


class Expression:
    """The base of all nodes. ``parts`` are its arguments, ``children`` the expressions among them, and ``free`` its
    index variables that are not bound."""

    __slots__ = ("__weakref__", "_order", "children", "free", "parts")
    # Weak references: expressions that nobody uses leave the table.
    _table: ClassVar[WeakValueDictionary[tuple[Any, ...], Expression]] = WeakValueDictionary()
    parts: tuple[Any, ...]
    children: tuple[Expression, ...]
    free: frozenset[Index]
    _order: tuple[Index, ...]

    def __new__(cls, *parts: object) -> Expression:
        # The class is part of the key: a sum and a product may have equal parts.
        key = (cls, *parts)
        result = Expression._table.get(key)
        if result is None:
            result = object.__new__(cls)
            below: Any = parts[0] if issubclass(cls, Many) else parts
            result.parts, result.children = (
                parts,
                tuple([x for x in below if isinstance(x, Expression)]),
            )
            result.free = result._collect_free_indices()
            Expression._table[key] = result
        return result

    def _collect_free_indices(self) -> frozenset[Index]:
        return frozenset().union(*[x.free for x in self.children])

    @property
    def order(self) -> tuple[Index, ...]:
        """The index variables of ``free``, sorted."""
        # Sorted at the first use only, as most nodes are never canonised.
        try:
            return self._order
        except AttributeError:
            self._order = tuple(sorted(self.free))
            return self._order

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.parts!r}"


def _make_property_of_part(place: int | slice) -> Any:
    """Return a property for the part at a place."""
    return property(lambda self: self.parts[place])


class Constant(Expression):
    """A rational number."""

    __slots__ = ()
    value: Fraction = _make_property_of_part(0)


class Count(Expression):
    """n_s, the size of a sort: Σ_i 1."""

    __slots__ = ()
    sort: str = _make_property_of_part(0)


class Letter(Expression):
    """An entry of an array of letters: name and indices."""

    __slots__ = ()
    name: str = _make_property_of_part(0)
    indices: tuple[Index, ...] = _make_property_of_part(1)

    def _collect_free_indices(self) -> frozenset[Index]:
        return frozenset(self.indices)


class PositiveLetter(Letter):
    """An entry of an array whose entries are declared to be positive numbers."""

    __slots__ = ()


class Predicate(Expression):
    """1 where ``left relation right`` holds, else 0; the relation is =, ≤ or <."""

    __slots__ = ()
    relation: str = _make_property_of_part(0)
    sides: tuple[Index, Index] = _make_property_of_part(slice(1, None))

    def _collect_free_indices(self) -> frozenset[Index]:
        return frozenset(self.sides)


class Many(Expression):
    """A node with two children or more."""

    __slots__ = ()


class Sum(Many):
    """A sum of at least two terms."""

    __slots__ = ()


class Product(Many):
    """A product of at least two factors."""

    __slots__ = ()


class Ratio(Expression):
    """numerator / denominator."""

    __slots__ = ()


class Exponential(Expression):
    """e to the power of the child."""

    __slots__ = ()


class Binder(Expression):
    """An index variable, and a body in which it is bound."""

    __slots__ = ()
    index: Index = _make_property_of_part(0)
    body: Expression = _make_property_of_part(1)

    def _collect_free_indices(self) -> frozenset[Index]:
        return self.body.free - {self.index}


class Total(Binder):
    """Σ over an index variable of a body in which it occurs."""

    __slots__ = ()


class Opaque(Expression):
    """A function of which only one thing is known, that equal arguments give equal values: max, rsqrt, tanh."""

    __slots__ = ()
    name: str = _make_property_of_part(0)


class BoundIndex(Binder):
    """An index bound in the argument of an opaque function, such as max over i; it has no value of its own."""

    __slots__ = ()


class Masked(Expression):
    """``value`` where ``allowed`` is 1, and −∞ where it is 0. Only exp takes it."""

    __slots__ = ()
    allowed: Expression = _make_property_of_part(0)
    value: Expression = _make_property_of_part(1)


class Position(Expression):
    """``offset`` (an ``axes.Linear``) + Σ sign · index: an element of ``arange``. See ``positions``."""

    __slots__ = ()
    offset: Any = _make_property_of_part(0)
    indices: tuple[Signed, ...] = _make_property_of_part(1)

    def _collect_free_indices(self) -> frozenset[Index]:
        return frozenset(i for _, i in self.indices)


# Interned, so that code can test with ``is``.
ZERO: Expression = Constant(Fraction(0))
ONE: Expression = Constant(Fraction(1))
# Masked everywhere: allowed is 0.
FORBIDDEN: Expression = Masked(ZERO, ZERO)
PI = "π"  # a positive letter without other properties


# -- side conditions ---------------------------------------------------------------------------------------------------
# They are noted when a division is built, since simplifying may lose it: 0 / x is 0 only if x ≠ 0.

TESTED = "= 0?"  # the relation of an expression that the code compares with zero, in order not to divide by it


class Demand(NamedTuple):
    """The condition ``expression`` ``relation`` 0 at all places; the relation is ≠, > or ≥, or ``TESTED``."""

    relation: str
    expression: Expression


# The demands of the current block, None outside of ``recorded``.
_noted: ContextVar[dict[Demand, None] | None] = ContextVar("symattn_demands", default=None)


def demand(relation: str, x: Expression) -> None:
    """Note that ``x`` ``relation`` 0 is needed."""
    noted = _noted.get()
    if noted is not None:
        # A dictionary as an ordered set: each demand once, in the order of the code.
        noted[Demand(relation, x)] = None


def recorded() -> AbstractContextManager[dict[Demand, None]]:
    """Collect the demands of the block."""
    return assigned(_noted, {})


# -- normal form -------------------------------------------------------------------------------------------------------
Canonical = tuple[Any, ...]


def canonical(x: Expression, names: Mapping[Index, object] | None = None) -> Canonical:
    """Return ``x`` as nested tuples, the same for expressions that differ only in bound names and order.

    ``names`` gives names to free indices; others stay as they are. (Sound, not complete: terms are sorted with bound
    names by depth, so two equal sums may get different tuples, but never two different ones equal tuples.)
    """
    return _canonical_form_of_letters(x, tuple(sorted((names or {}).items())), 0)


# Common parts of large expressions are canonised once; the limit bounds the memory.
@lru_cache(maxsize=100_000)
def _canonical_form_of_letters(
    x: Expression, names: tuple[tuple[Index, object], ...], depth: int
) -> Canonical:
    name_of = dict(names)
    if isinstance(x, Letter):
        return ("letter", x.name, *[name_of.get(i, i) for i in x.indices])
    if isinstance(x, Predicate):
        sides = [name_of.get(i, i) for i in x.sides]
        # Equality is symmetric, so the order of its sides is no difference.
        return (x.relation, *(sorted(sides, key=repr) if x.relation == "=" else sides))
    if isinstance(x, (Constant, Count)):
        return (type(x).__name__, *x.parts)
    if isinstance(x, Binder):
        # Bound indices are named by depth, so that their own numbers do not matter.
        inner = tuple(sorted({**name_of, x.index: ("bound", depth)}.items()))
        return (
            type(x).__name__,
            x.index.sort,
            _canonical_form_of_letters(x.body, inner, depth + 1),
        )
    if isinstance(x, Position):
        raise Refused("a bare position is not a number; see positions.as_number")
    below = [_canonical_form_of_letters(y, names, depth) for y in x.children]
    # Sums and products commute; other nodes keep the order of their children.
    if isinstance(x, Many):
        below.sort(key=repr)
    label = [p for p in x.parts if isinstance(p, str)]
    return (type(x).__name__, *label, *below)
