"""The array of ``indexed``: its axes, and the expression at each place. ``indexed`` sets its namespace."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from symattn.arrays.base import ArrayBase
from symattn.arrays.index import building as build
from symattn.arrays.index import expressions
from symattn.arrays.index.axes import ONE_LONG, Axis, Linear, axis, same_length
from symattn.arrays.notes import assigned, meet
from symattn.document.errors import InputError, Meaningless, Refused
from symattn.document.model import Document

# the number of a block, and one index (or number) for each of its factors
Place = tuple[int, tuple[Any, ...]]
Places = tuple[Place, ...]
# Elements within ``once``; a context variable, so that threads do not share them.
_CACHE: ContextVar[dict[Any, tuple[Indexed, expressions.Expression]] | None] = ContextVar(
    "symattn_elements", default=None
)


def once() -> AbstractContextManager[object]:
    """Cache elements within the block; notes and demands of their computation are recorded only the first time."""
    return assigned(_CACHE, {})


@dataclass(frozen=True)
class Permutation:
    """A declared permutation of a sort: ``x[pi]`` has the rows of x in another order."""

    name: str
    sort: str


class Indexed(ArrayBase):
    """An array whose sizes are letters: its axes, and the expression at each place."""

    name = "indexed"
    holds = "expressions of its indices, for all sizes at once"
    dtype: Any = None  # a letter may stand for a number or a boolean

    def __init__(
        self,
        axes: Sequence[Any],
        at: Callable[[Places], expressions.Expression],
        declared: bool = False,
    ) -> None:
        self.shape = tuple(axis(a) for a in axes)
        self._computed = at
        # whether all elements are letters; then the first along any axis is one
        self._declared = declared

    def at(self, places: Places) -> expressions.Expression:
        """Return the element at a place."""
        result = _CACHE.get()
        # Outside ``once`` nothing is cached, so that notes are recorded each time.
        if result is None:
            return self._computed(places)
        # Elements as written and simplified ones differ, so the key says which.
        # the array is kept alive, so that its id is not reused
        key = (id(self), places, build.kept())
        known = result.get(key) or result.setdefault(key, (self, self._computed(places)))
        return known[1]

    @classmethod
    def letters(cls, name: str, *axes: object, positive: bool = False) -> Indexed:
        """Return an array of letters: ``letters("q", "n", "d")`` has the elements q[i, k], positive if declared so."""
        lengths = [axis(a) for a in axes]
        kind = expressions.PositiveLetter if positive else expressions.Letter

        def at(places: Places) -> expressions.Expression:
            # An array of one block needs no number of blocks in its letters.
            blocks = (
                ""
                if all(len(a.blocks) == 1 for a in lengths)
                else "@" + ",".join(str(b) for b, _ in places)
            )
            entries = [
                i
                for place, a in zip(places, lengths, strict=True)
                for i in _check_place_fits_axis(place, a)
            ]
            fixed: list[Any] = [i for i in entries if isinstance(i, int)]
            sorts = [
                f for (block, _), a in zip(places, lengths, strict=True) for f in a.blocks[block]
            ]
            # The first entry along a sort is a fixed number beside variables.
            if any(
                isinstance(i, int) and isinstance(f, str)
                for i, f in zip(entries, sorts, strict=True)
            ):
                # x[0, ·] is not x[·, 0]
                fixed = [i if isinstance(i, int) else "·" for i in entries]
            fixed_indices = f"[{', '.join(map(str, fixed))}]" if fixed else ""
            label = name + blocks + fixed_indices
            return kind(label, tuple(i for i in entries if not isinstance(i, int)))

        return cls(lengths, at, True)

    @classmethod
    def lift(cls, x: object) -> Indexed:
        """Return a number, a size or a single expression as an array without axes."""
        if isinstance(x, cls):
            return x
        if isinstance(x, ArrayBase):
            raise Refused(f"mixed kinds: indexed with {x.name}; convert one of them first")
        return cls((), lambda _: expression(x))

    of = lift

    @classmethod
    def literal(cls, values: np.ndarray) -> Indexed:
        """Return an array of known numbers, with numbers as lengths."""

        def at(places: Places) -> expressions.Expression:
            index = tuple(
                int(np.ravel_multi_index(t, [n] if n != 1 else [])) if t else 0
                for (_, t), n in zip(places, values.shape, strict=True)
            )
            return cls.lift(values[index]).at(())

        return cls(values.shape, at)

    def __getitem__(self, key: object) -> Indexed:
        keys = key if isinstance(key, tuple) else (key,)
        # Permuting rows is the one gather: it renames an index.
        if any(isinstance(k, Permutation) for k in keys):
            return self._permute_indexed_axis(keys)
        axes: list[Axis] = []
        sources: list[Callable[[Places], Place]] = []
        for k, a in self._pair_keys_with_axes(keys):
            if k is None:
                axes.append(ONE_LONG)
            elif isinstance(k, slice):
                # A slice cuts between blocks only: a bound in a block has no meaning for all sizes.
                start, stop = (
                    _count_blocks_before_bound(a, k.start, 0),
                    _count_blocks_before_bound(a, k.stop, len(a.blocks)),
                )
                if k.step not in (None, 1):
                    raise Refused(
                        "indexed: a strided slice; hint: reshape to (f, 2) and take [..., 0]"
                    )
                sources.append(_shift_block_number(len(axes), start))
                axes.append(Axis(a.blocks[start:stop]))
            else:
                sources.append(_make_constant_place(_place_of_axis_element(a, k, self._declared)))
        return Indexed(
            axes,
            lambda places: self.at(tuple(source(places) for source in sources)),
            self._declared,
        )

    def _pair_keys_with_axes(self, keys: tuple[object, ...]) -> list[tuple[Any, Any]]:
        """Return each key with its axis; an ellipsis, also the implicit one at the end, becomes full slices."""
        used = sum(k is not None and k is not Ellipsis for k in keys)
        if used > self.ndim:
            raise InputError(f"indexed: {used} indices for {self.ndim} axes")
        # An index without an ellipsis has one at its end.
        ellipses = (i for i, k in enumerate(keys) if k is Ellipsis)
        at = next(ellipses, len(keys))
        whole = [slice(None)] * (self.ndim - used)
        after = keys[at + 1 :]
        full = (*keys[:at], *whole, *after)
        axes = iter(self.shape)
        return [(k, None if k is None else next(axes)) for k in full]

    def _permute_indexed_axis(self, keys: tuple[object, ...]) -> Indexed:
        used = [k for k, a in self._pair_keys_with_axes(keys) if a is not None]
        permutations = ((i, k) for i, k in enumerate(used) if isinstance(k, Permutation))
        at, pi = next(permutations)
        if sum(isinstance(k, Permutation) for k in used) > 1:
            raise Refused("indexed: two permutations at once pick a diagonal; hint: x[pi][:, rho]")
        # A permutation of a sort has no effect that is known on an axis with other blocks.
        if self.shape[at].blocks != ((pi.sort,),):
            raise InputError(
                f"indexed: the permutation {pi.name} is of {pi.sort}, the axis of length {self.shape[at]}"
            )

        def image(place: Place) -> Place:
            block, indices = place
            # The image names the permutations from the inside out.
            return block, tuple(i._replace(image=(*i.image, pi.name)) for i in indices)

        def entry(places: Any) -> Any:
            return self.at((*places[:at], image(places[at]), *places[at + 1 :]))

        moved = Indexed(self.shape, entry)
        # Other keys apply after the permutation, in which it is a full slice.
        remaining = (slice(None) if isinstance(k, Permutation) else k for k in keys)
        return moved[tuple(remaining)]

    def document(self) -> Document:
        """Return a document of the element at each place, for all sizes."""
        from symattn.arrays.index.writing import document

        return document(self)

    def __setitem__(self, index: object, value: object) -> None:
        raise Refused("indexed: no assignment; hint: concat or stack the parts")

    def __invert__(self) -> Any:
        return self.xp.logical_not(self)

    def __and__(self, other: object) -> Any:
        return self.xp.logical_and(self, other)

    def __or__(self, other: object) -> Any:
        return self.xp.logical_or(self, other)

    __rand__, __ror__ = __and__, __or__

    def astype(self, dtype: Any, copy: bool = True, **_: object) -> Indexed:
        """Return the same elements if the cast changes none of them. Raises Meaningless for any other cast."""
        to = None if dtype is None else np.dtype(dtype)
        # Elements are exact numbers, which float64 stands for.
        if to is None or to == np.float64:
            return self
        fits = (
            build.is_truth
            if to.kind == "b"
            else build.is_whole
            if to.kind in "iu"
            else lambda _: False
        )
        return Indexed(
            self.shape, lambda places: _check_cast_keeps_letters(self.at(places), fits, to)
        )

    def places(self) -> list[Places]:
        """Return places that cover the array: fresh indices for each choice of blocks and of indices along numbers."""
        # The factors of a block are sorts and numbers; a number stands for all smaller ones.
        block_of = [
            [[(f,) if isinstance(f, str) else range(f) for f in block] for block in a.blocks]
            for a in self.shape
        ]
        every = [
            [(b, entry) for b, fs in enumerate(of) for entry in itertools.product(*fs)]
            for of in block_of
        ]
        return [
            tuple(
                (b, tuple(expressions.fresh(i) if isinstance(i, str) else i for i in entry))
                for b, entry in chosen
            )
            for chosen in itertools.product(*every)
        ]

    def holds_conditions(self) -> bool:
        """Return whether all elements are conditions on positions. Raises Refused if letters may be conditions."""
        elements = [self.at(places) for places in self.places()]
        if all(map(build.is_truth, elements)):
            return True
        # A letter deep inside may be a boolean, so all parts are searched.
        while elements:
            x = elements.pop()
            if isinstance(x, expressions.Letter):
                raise Refused(
                    "a mask of letters may be of booleans or of numbers: that is undecided for all sizes"
                )
            elements += x.children
        return False


def _check_place_fits_axis(place: Place, a: Axis) -> tuple[Any, ...]:
    """Return the indices of a place in an axis. Raises AssertionError if they are not of its sorts."""
    block, indices = place
    for i, f in zip(indices, a.blocks[block], strict=True):
        if not (
            i.sort == f
            if isinstance(i, expressions.Index)
            else i == 0
            if isinstance(f, str)
            else 0 <= i < f
        ):
            raise AssertionError(f"the index {i} in an axis of length {a}")
    return indices


def _check_cast_keeps_letters(
    x: expressions.Expression, fits: Callable[[expressions.Expression], bool], to: object
) -> expressions.Expression:
    # Positions are integers already.
    if isinstance(x, expressions.Position) or fits(build.simplified(x) if build.kept() else x):
        return x
    raise Meaningless(
        f"indexed: astype({to}) would change elements that are letters; hint: leave it out"
    )


def expression(x: Any) -> expressions.Expression:
    """Return a plain value as an index expression; −∞ is the forbidden score."""
    if isinstance(x, expressions.Expression):
        return x
    if isinstance(x, Axis):
        return x.linear().expression()
    if isinstance(x, Linear):
        return expressions.Position(x, ())
    if isinstance(x, np.ndarray) and not x.ndim:
        x = x.item()
    if isinstance(x, numbers.Real | np.bool_):
        if x == -np.inf:
            return expressions.FORBIDDEN
        if x != x or x == np.inf:
            raise InputError(f"indexed: {x} in the data; only a mask may hold -inf")
        # A float near to π is a rational number, and the statement would be another one.
        if isinstance(x, float | np.floating) and (name := irrational(float(x))):
            raise Meaningless(
                f"indexed: the float {float(x)!r} is not {name}; hint: the pi of the array's namespace"
            )
        meet(x)
        number = x.item() if isinstance(x, np.generic) else x
        return build.constant(Fraction(number))  # type: ignore[arg-type]
    raise Refused(f"indexed: a plain array of shape {np.shape(x)} has numbers for sizes")


def _shift_block_number(axis_number: int, start: int) -> Callable[[Places], Place]:
    return lambda places: (places[axis_number][0] + start, places[axis_number][1])


def _make_constant_place(place: Place) -> Callable[[Places], Place]:
    return lambda _: place


def _count_blocks_before_bound(a: Axis, bound: object, default: int) -> int:
    """Return the number of blocks before ``bound``, which must be a prefix sum of the axis. Raises Refused."""
    if bound is None:
        return default
    # A negative bound counts from the end, as in NumPy.
    negative = isinstance(bound, int) and bound < 0
    boundary = a.linear() + bound if negative else bound
    for k in range(len(a.blocks) + 1):
        if same_length(Axis(a.blocks[:k]), boundary):
            return k
    raise Refused(f"indexed: {bound} is not a boundary between the blocks of an axis of length {a}")


def _place_of_axis_element(a: Axis, k: object, declared: bool) -> Place:
    """Return the place of element ``k``; the first along a sort, which exists at every size, is a letter."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
        raise Refused("indexed: a gather by an array; hint: declare a Permutation")
    # Without letters every element has a place, and any index is allowed.
    if not any(isinstance(f, str) for b in a.blocks for f in b):
        every = [
            (b, tuple(map(int, t)))
            for b, fs in enumerate(a.blocks)
            for t in np.ndindex(*map(int, fs))
        ]
        return every[int(k)]
    # The last block is one element, such as the token added to a cache.
    if k == -1 and a.blocks[-1] == ():
        return len(a.blocks) - 1, ()
    # Every sort has a first element; only an array of letters has a letter for it.
    if k == 0 and (a.blocks[0] == () or (declared and len(a.blocks[0]) == 1)):
        return 0, (0,) * len(a.blocks[0])
    raise Refused(f"indexed: an axis of length {a} does not have element {k} at every size")


def index_variables(places: Places) -> tuple[expressions.Index, ...]:
    """Return the index variables of a place."""
    return tuple(i for _, t in places for i in t if isinstance(i, expressions.Index))


# Constants that code writes as floats although they are irrational.
_KNOWN = {"π": math.pi, "e": math.e}
_TYPED = 2**30  # a float with a denominator up to this was typed, not computed


def irrational(x: float) -> str:
    """Return the constant of which the float ``x`` is a simple multiple or part, in words, or ""."""
    if not math.isfinite(x) or x == 0 or x.as_integer_ratio()[1] <= _TYPED:
        return ""
    for name, value in _KNOWN.items():
        # Denominators that multiples of π have in code: parts of a turn, and degrees.
        for below in (1, 2, 3, 4, 6, 8, 12, 180):
            times = round(x / value * below)
            if (
                times
                # Two turns in degrees: larger multiples would fit too many floats.
                and abs(times) <= 720
                and math.isclose(x, value * times / below, rel_tol=1e-15)
            ):
                return name if times == below else f"a multiple of {name}"
            inverse = round(1 / (x * value) * below) if abs(x) > 1e-9 else 0
            if (
                inverse
                # Larger multiples of the inverse would fit too many floats.
                and inverse <= 12
                and math.isclose(1 / x, value * inverse / below, rel_tol=1e-15)
            ):
                return f"a part of 1/{name}"
    return ""
