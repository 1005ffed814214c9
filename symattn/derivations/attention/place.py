"""The entries of each array of attention by their textbook sums, one by one, and what they are computed from.

They use no array code but plain loops on elements, so that their agreement says something. An element is whatever an
``Algebra`` computes with: SymPy expressions in a derivation, exact numbers and balls in a walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.special import Forbidden, Undefined
from symattn.attention.flow import Step
from symattn.attention.notation import ARRAYS
from symattn.attention.spec import Attention

Front = tuple[int, ...]
Index = tuple[int, ...]


class NoTextbook(Exception):
    """There is no textbook entry for what is asked."""


class Algebra(Protocol):
    """Functions of elements; ``+ − * /`` are those of the elements themselves."""

    def number(self, value: int | Fraction) -> Any:
        """A rational number as an element."""

    def apply(self, name: str, x: Any) -> Any:
        """exp, exp2, log, log2, sqrt, tanh, cos or sin of an element."""

    def power(self, base: Fraction, exponent: Fraction) -> Any:
        """base^exponent for a base above 0."""

    def larger(self, x: object, y: object) -> Any:
        """The larger of two elements."""

    def less(self, x: Any, y: Any) -> bool:
        """Return whether x < y."""


@dataclass(frozen=True)
class Place:
    """A step of a specification with its inputs as arrays of objects, truth values or whole numbers."""

    spec: Attention
    step: Step
    arrays: Mapping[str, Any]
    shape: tuple[int, ...]
    algebra: Algebra

    def of(self, index: int) -> Any:
        """An input of the step, by its place among them."""
        return self.arrays[self.step.of[index]]

    def given(self, name: str) -> Any:
        """An input of the step by name, or None."""
        return self.arrays[name] if name in self.step.of else None

    @property
    def headed(self) -> bool:
        """Return whether the array that is made has an axis of heads."""
        return self.spec.heads > 1 and "[" in ARRAYS[self.step.name].shape

    def split(self, front: Front) -> tuple[Front, int]:
        """The places of batches, and the head; 0 where there are no heads."""
        return (front[:-1], front[-1]) if self.headed else (front, 0)

    def number(self, value: int | float | Fraction) -> Any:
        """A number of the specification as an element, a float at its exact value."""
        return self.algebra.number(Fraction(value))

    def sum(self, terms: Iterable[Any]) -> Any:
        """Σ of elements."""
        result = list(terms)
        total = result[0] if result else self.algebra.number(0)
        for term in result[1:]:
            total = total + term
        return total

    def dot(self, xs: Sequence[Any], ys: Sequence[Any]) -> Any:
        """Σ x y."""
        return self.sum(x * y for x, y in zip(xs, ys, strict=True))


def part(array: Any, front: Front, last: int) -> Any:
    """The last axes of an array at these places of the axes in front; an axis of length 1, or a missing one, serves
    all places."""
    own = array.ndim - last
    places = front[len(front) - own :]
    return array[tuple(0 if n == 1 else p for p, n in zip(places, array.shape, strict=False))]


def for_head(array: Array, batch: Front, head: int, heads: int, last: int, batches: int) -> Any:
    """The last axes of an array that may have an axis of heads, or not, after those of batches.

    With as many axes in front as batches and heads together it has one; without any it is the same for all.
    """
    own = array.ndim - last
    if heads > 1 and own and own > batches:
        return part(array, (*batch, head), last)
    return part(array, batch, last)


# -- which keys a query sees -------------------------------------------------------------------------------------------
def allowed(
    spec: Attention, arrays: Mapping[str, Any], batch: Front, sizes: tuple[int, ...], pair: tuple[int, ...]
) -> bool:
    """Return whether query i may attend to key j, by all but a mask that is given."""
    i, j = pair
    if spec.padding and not part(arrays["keep"], batch, 1)[j]:
        return False
    if not spec.documents:
        n_q, n_k = sizes
        return _by_place(spec, i + (n_k - n_q if spec.alignment == "bottom-right" else 0), j)
    of_queries, of_keys = (
        list(part(arrays[name if name in arrays else "doc"], batch, 1)) for name in ("doc_q", "doc_k")
    )
    label = of_queries[i]
    if of_keys[j] != label:
        return False
    query, key = of_queries[:i].count(label), of_keys[:j].count(label)
    offset = of_keys.count(label) - of_queries.count(label) if spec.alignment == "bottom-right" else 0
    return _by_place(spec, query + offset, key)


def _by_place(spec: Attention, place: int, j: int) -> bool:
    """Causal, within the window, in the same block."""
    left, right = spec.sides
    causal = j <= place or (spec.prefix is not None and j < spec.prefix)
    near = (left is None or place - j <= left) and (right is None or j - place <= right)
    together = spec.block is None or place // spec.block == j // spec.block
    return (causal or not spec.causal) and near and together


def table(spec: Attention, arrays: Mapping[str, Any], sizes: tuple[int, int]) -> np.ndarray:
    """Which key each query may attend to, the mask included, without batches: (n_q, n_k) or (h, n_q, n_k)."""
    values = np.array([[allowed(spec, arrays, (), sizes, (i, j)) for j in range(sizes[1])] for i in range(sizes[0])])
    if spec.mask is None:
        return values
    mask = arrays["mask"]
    finite = np.vectorize(lambda x: not isinstance(x, Forbidden), otypes=[bool])
    seen: np.ndarray = np.asarray(mask, dtype=bool) if spec.mask == "boolean" else finite(mask)
    values &= seen
    return values


# -- every entry of a step ---------------------------------------------------------------------------------------------
Entry = Callable[[Place, tuple[int, ...]], Any]


@cache
def entries() -> dict[str, Entry]:
    """Name of a step → its entry at an index."""
    modules = ("tokens", "positions", "scores")
    results = (import_module(f"symattn.derivations.attention.{module}").ENTRIES for module in modules)
    return {name: entry for named in results for name, entry in named.items()}


def expected(
    spec: Attention, step: Step, arrays: Mapping[str, Any], shape: tuple[int, ...], algebra: Algebra
) -> Any | None:
    """Every entry of a step, as an array of objects; None for a step that has no textbook entries here."""
    entry = entries().get(step.name)
    if entry is None:
        return None
    place = Place(spec, step, arrays, shape, algebra)
    values = np.empty(shape, dtype=object)
    try:
        for index in np.ndindex(*shape):
            try:
                values[index] = entry(place, index)
            except ZeroDivisionError:
                values[index] = Undefined(f"{step.name} is divided by 0")
    except NoTextbook:
        return None
    return values
