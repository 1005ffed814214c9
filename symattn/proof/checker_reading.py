"""Read the expressions of certificates, for ``checker``, which assumes nothing about them."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import count
from math import prod
from typing import Any

Record = Mapping[str, Any]  # a certificate, or a part of one
BINDERS = ("total", "bound")
# Kinds with a fixed number of parts; sums and products take any.
_FIXED = {"ratio": 2, "exp": 1, "masked": 2}
# Functions of one number; max, norms and means take several.
_OF_ONE = frozenset({"sqrt", "rsqrt", "1/", "log", "sign", "tanh", "erf", "cos", "sin"})
# Long numbers are refused before arithmetic with them costs time.
_NUMBER = re.compile(r"-?[0-9]{1,60}(/[0-9]{1,60})?")
_RELATIONS = frozenset({"=", "≤", "<"})


class Rejected(Exception):
    """Raised with the reason why a certificate is not accepted."""


def expect(condition: bool, message: str) -> None:
    """Reject unless the condition holds."""
    if not condition:
        raise Rejected(message)


MANY = 100_000  # limit of anything that is counted or cached


def expect_few(n: int) -> None:
    """Reject a certificate that takes more time or memory than an honest one."""
    if n > MANY:
        raise Rejected("it asks for more than the checker takes on")


# eq=False: equal expressions are one object, so that they are compared in constant time.
@dataclass(frozen=True, eq=False)
class CheckedNode:
    """An expression. ``label`` is its number, name or relation; a binder binds ``label``, of the sort ``sorts[0]``.

    ``indices`` are those of a letter or a relation, with their sorts in ``sorts``. Create it by ``node``.
    """

    kind: str
    label: Any
    indices: tuple[tuple[str, ...], ...]
    sorts: tuple[str, ...]
    below: tuple[CheckedNode, ...]

    @cached_property
    def free(self) -> frozenset[str]:
        """The names of the free indices."""
        free_below = [x.free for x in self.below]
        names = frozenset(i[0] for i in self.indices).union(*free_below)
        # A bound index is free inside its binder and nowhere else.
        return names - {self.label} if self.kind in BINDERS else names

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The free names, sorted."""
        return tuple(sorted(self.free))

    @cached_property
    def own_form(self) -> str:
        """The form in which free indices have their own names."""
        return _with_names(self, {})

    @cached_property
    def height(self) -> int:
        """How deep binders are nested, which names the outermost bound index unlike all others."""
        return (self.kind in BINDERS) + max((y.height for y in self.below), default=0)

    def all(self, into_functions: bool = False) -> list[CheckedNode]:
        """Return this node and all different ones below it, those in arguments of functions with ``into_functions``."""
        result, pending = dict[CheckedNode, None](), [self]
        while pending:
            x = pending.pop()
            if x not in result:
                # Shared parts are visited once: else the time would grow exponentially with depth.
                result[x] = None
                pending.extend(x.below if x.kind != "function" or into_functions else ())
        return list(result)

    def letters(self) -> list[CheckedNode]:
        """Return its letters, including those in arguments of functions."""
        return [x for x in self.all(into_functions=True) if x.kind == "letter"]

    def of(self, below: Iterable[CheckedNode], indices: Indices = ()) -> CheckedNode:
        """Return the node with other children."""
        return node(self.kind, below, self.label, self.sorts, indices)


Indices = tuple[tuple[str, ...], ...]
# Bounded, since a checker may run for many certificates.
_shared = lru_cache(MANY)(CheckedNode)


def node(
    kind: str,
    below: Iterable[CheckedNode] = (),
    label: object = "",
    sorts: tuple[str, ...] = (),
    indices: Indices = (),
) -> CheckedNode:
    """Return an expression with these children; a binder binds its label.

    Equal expressions are one object, unless there are very many, so that cached values are shared.
    """
    return _shared(kind, label, indices, sorts, tuple(below))


def scope_of(part: Record) -> dict[str, str]:
    """Return the free indices of a part, with their sorts."""
    scope = {str(name): str(sort) for name, sort in part["free"]}
    expect(len(scope) == len(part["free"]), "two indices of one name")
    return scope


def array_of(letter: str) -> str:
    """Return the name of the array to which a letter belongs, without the numbers of its blocks."""
    # Names of blocks follow "@", fixed entries follow "[".
    return letter.split("@")[0].split("[")[0]


def read(data: object, scope: Mapping[str, str]) -> CheckedNode:
    """Return the expression in ``data``; ``scope`` maps every index name to its sort. Raises ``Rejected``."""
    # Hostile data may be of any form, so the type is decided first.
    if not isinstance(data, list) or not data or not isinstance(data[0], str):
        raise Rejected(f"{data!r} is not an expression")
    kind, *rest = data
    try:
        if kind == "number":
            (text,) = rest
            return _written_number(text)
        if kind == "size":
            (sort,) = rest
            return node(kind, label=str(sort))
        if kind == "letter":
            name, indices = rest
            return _read_indexed_node(kind, str(name), indices, scope)
        if kind == "is":
            return _read_index_relation(rest, scope)
        if kind in BINDERS:
            return _read_binder_node(kind, rest, scope)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise Rejected(f"{data!r}: {error}") from error
    return _read_operator_node(kind, rest, scope)


@lru_cache(1000)
def _written_number(text: str) -> CheckedNode:
    if not isinstance(text, str) or not _NUMBER.fullmatch(text):
        raise Rejected("a number that is not written as '3/2' is, with 60 digits at most")
    return number(Fraction(text))


@lru_cache(1000)
def number(c: int | Fraction) -> CheckedNode:
    """Return a number as an expression."""
    return node("number", label=Fraction(c))


def _read_indexed_node(
    kind: str, label: str, indices: Any, scope: Mapping[str, str]
) -> CheckedNode:
    results = tuple(tuple(map(str, i)) for i in indices)
    for i in results:
        if not i or i[0] not in scope:
            # Each index must be bound: a free one would mean another statement.
            raise Rejected(f"the index {i} of {label} is bound nowhere")
    sorts = tuple(scope[i[0]] for i in results)
    return node(kind, (), label, sorts, results)


def _read_index_relation(rest: list[Any], scope: Mapping[str, str]) -> CheckedNode:
    relation, left, right = rest
    result = _read_indexed_node("is", relation, [left, right], scope)
    # Indices of two sorts have no common order.
    if relation not in _RELATIONS or result.sorts[0] != result.sorts[1]:
        raise Rejected(f"{rest} compares nothing")
    return result


def _read_binder_node(kind: str, rest: list[Any], scope: Mapping[str, str]) -> CheckedNode:
    name, sort, body = rest
    # No shadowing: renaming may then replace names without looking at binders.
    if not isinstance(name, str) or not isinstance(sort, str) or name in scope:
        raise Rejected(f"{kind} binds {name!r}, which is bound already")
    return node(kind, [read(body, {**scope, name: sort})], name, (sort,))


def _read_operator_node(kind: str, rest: list[Any], scope: Mapping[str, str]) -> CheckedNode:
    label = ""
    if kind == "function":
        label, *rest = rest
        # Several arguments would make these functions unknown ones.
        if not isinstance(label, str) or (label in _OF_ONE and len(rest) != 1):
            raise Rejected(f"{label!r} of {len(rest)} expressions is not a function")
    elif kind in _FIXED:
        if len(rest) != _FIXED[kind]:
            raise Rejected(f"{kind} of {len(rest)} expressions")
    elif kind not in ("sum", "product"):
        raise Rejected(f"{kind!r} is not a kind of expression")
    if not rest:
        raise Rejected(f"{kind} of nothing")
    return node(kind, (read(x, scope) for x in rest), label)


def form(x: CheckedNode, names: Mapping[str, object]) -> str:
    """Return ``x`` as a text, unique up to bound names and the order of terms and factors.

    ``names`` replace the free indices. Sums and products are flat, and the numbers of a product are one.
    """
    renaming = {i: names[i] for i in x.free if names[i] != i}
    return _form_with_index_names(x, renaming)


def _form_with_index_names(x: CheckedNode, names: Mapping[str, object]) -> str:
    """Return the form; free indices that are not in ``names`` keep their own names."""
    # A cached form serves if no free index has another name.
    if not names.keys().isdisjoint(x.free):
        return _with_names(x, names)
    return x.own_form


def _with_names(x: CheckedNode, names: Mapping[str, object]) -> str:
    if x.kind == "number":
        return str(x.label)
    if x.kind in ("letter", "is"):
        seats = [
            repr((names.get(i[0], i[0]), s, *i[1:]))
            for i, s in zip(x.indices, x.sorts, strict=True)
        ]
        # Equality of indices is symmetric.
        symmetric = x.label == "=" and x.kind == "is"
        return _format_node_text(x.kind, x.label, sorted(seats) if symmetric else seats)
    if x.kind in BINDERS:
        # By height, the outermost bound index differs from all inner ones, whatever its name.
        inside = {**names, x.label: ("bound", x.height)}
        return _format_node_text(x.kind, x.sorts[0], [_form_with_index_names(x.below[0], inside)])
    if x.kind not in ("sum", "product"):
        return _format_node_text(
            x.kind, x.label, [_form_with_index_names(y, names) for y in x.below]
        )
    # A product with 0 adds nothing.
    nonzero = (
        fs for fs in _expand_sum_terms(x) if not any(f.kind == "number" and not f.label for f in fs)
    )
    # Order of terms and factors does not matter, so both are sorted.
    terms = sorted(_form_of_product(factors, names) for factors in nonzero)
    return _format_node_text("sum", "", terms) if len(terms) > 1 else terms[0] if terms else "0"


def _form_of_product(factors: list[CheckedNode], names: Mapping[str, object]) -> str:
    """Return the form of a product, with its numbers as one, which is left out if it is 1."""
    parts = sorted(_form_with_index_names(f, names) for f in factors if f.kind != "number")
    value = prod(f.label for f in factors if f.kind == "number")
    # 1 is left out unless it is the whole product.
    if value != 1 or not parts:
        parts.append(str(value))
    return _format_node_text("product", "", parts) if len(parts) > 1 else parts[0]


def _format_node_text(kind: str, label: str, parts: list[str]) -> str:
    """Return a text from which kind, label and parts can be recovered: all labels and names in it are quoted."""
    text = f"{kind}({label!r}, {', '.join(parts)})"
    # A long text would take more memory than a certificate does.
    expect_few(len(text))
    return text


def _expand_sum_terms(x: CheckedNode) -> list[list[CheckedNode]]:
    """Return the factors of each term of a sum; inner sums are expanded, also behind a number."""
    if x.kind == "sum":
        return [term for y in x.below for term in _expand_sum_terms(y)]
    factors = _flatten_product_factors(x)
    rest = [f for f in factors if f.kind != "number"]
    # A number times a sum is multiplied out, so that 2(x + y) and 2x + 2y are one form.
    if len(factors) > 1 and len(rest) == 1 and rest[0].kind == "sum":
        numbers = [f for f in factors if f.kind == "number"]
        return [[*term, *numbers] for term in _expand_sum_terms(rest[0])]
    return [factors]


def _flatten_product_factors(x: CheckedNode) -> list[CheckedNode]:
    if x.kind == "product":
        return [f for y in x.below for f in _flatten_product_factors(y)]
    return [x]


def renamed(x: CheckedNode, old: str, new: str) -> CheckedNode:
    """Return ``x`` with another name for a free index; the name may not be bound in it."""
    return moved(x, old, (old,), (new,))


def moved(x: CheckedNode, name: str, old: tuple[str, ...], new: tuple[str, ...]) -> CheckedNode:
    """Return ``x`` with ``new`` in place of the beginning ``old`` of indices, which all indices of ``name`` share."""
    if old == new or name not in x.free:
        return x
    # Else a free index would come under a binder of its name.
    expect(x.kind not in BINDERS or x.label != new[0], "an index is bound twice")
    length = len(old)
    indices = tuple((*new, *i[length:]) if i[:length] == old else i for i in x.indices)
    return x.of((moved(y, name, old, new) for y in x.below), indices)


# -- expressions as they are written -----------------------------------------------------------------------------------
def holds_letter(data: object, names: Container[str]) -> bool:
    """Return whether one of these letters occurs. Skip indices, which may look like letters."""
    # Names of indices may be equal to names of letters.
    if not isinstance(data, list) or not data or data[0] in ("letter", "is"):
        return isinstance(data, list) and data[:1] == ["letter"] and data[1] in names
    return any(holds_letter(x, names) for x in data)


def rewritten(data: object, change: Callable[[list[Any]], object]) -> Any:
    """Return an expression with parts replaced by ``change``, which returns None to descend into a part.

    Skip indices, which may look like sizes.
    """
    if not isinstance(data, list) or not data:
        return data
    new = change(data)
    if new is not None or data[0] in ("letter", "is"):
        return data if new is None else new
    return [rewritten(x, change) for x in data]


def in_place(data: object, meant: Mapping[str, tuple[list[str], object]]) -> Any:
    """Return an expression with meanings in place of letters, each with fresh bound indices."""
    fresh = count()

    def change(x: list[Any]) -> Any:
        if x[0] != "letter" or x[1] not in meant:
            return None
        own, body = meant[x[1]]
        # Under a permutation the meaning would need the permuted index in each of its letters.
        plain_names = all(len(i) == 1 for i in x[2])
        plain = plain_names and len(own) == len(x[2])
        expect(plain, "a defined letter is permuted")
        arguments = [i[0] for i in x[2]]
        return reindexed(body, dict(zip(own, arguments, strict=True)), fresh)

    return rewritten(data, change)


def reindexed(data: object, to: Mapping[str, str], fresh: Iterator[int] | None = None) -> Any:
    """Return an expression with other names for its free indices and, with ``fresh``, for bound ones as well."""

    def change(x: list[Any]) -> Any:
        if x[0] in ("letter", "is"):
            # Relations list their indices directly, letters in a list of their own.
            head = x[1]
            indices = x[2:] if x[0] == "is" else x[2]
            if fresh:
                named = [[to[letter], *image] for letter, *image in indices]
            else:
                named = [[to.get(letter, letter), *image] for letter, *image in indices]
            if x[0] == "is":
                return [x[0], head, *named]
            return [x[0], head, named]
        if x[0] not in BINDERS:
            return None
        _, name, sort, body = x
        unbound = bool(fresh) or name not in to
        expect(unbound, f"{x[0]} binds {name!r}, which is bound already")
        # Fresh names, as the same meaning may be substituted twice on one path.
        # An index of the scope may have such a name, and would come under the binder.
        candidates = map("in place {}".format, fresh or ())
        free = (n for n in candidates if n not in to.values())
        new = next(free) if fresh else name
        return [x[0], new, sort, reindexed(body, {**to, name: new}, fresh)]

    return rewritten(data, change)
