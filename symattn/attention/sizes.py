"""Shapes in letters: whether arrays fit shapes such as ``… n_q d_k``, with an error of one line if they do not.

A shape names its axes. A leading ``…`` stands for batch axes; ``h*d_k`` is h blocks of d_k; ``n_k?`` may have the
length 1, and ``(h)`` may be missing; the empty shape is that of one number. Lengths may be letters themselves, so they
are only compared for equality.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.document.errors import InputError, Undecided

# Numbers of axes in words; no array of attention needs more.
_WORDS = ("no axis", "one axis", "two axes", "three axes", "four axes", "five axes", "six axes")
# What an input must hold, for errors.
_HOLDS = {
    "booleans": "booleans, True where a query may attend",
    "whole numbers": "whole numbers",
    "numbers": "numbers in floating point",
    "summands": "numbers, not booleans",
}
#: Their names in the array standard. Summands are cast to the dtype of the scores, and may be integers.
_DTYPES = {
    "booleans": "bool",
    "whole numbers": "integral",
    "numbers": "real floating",
    "summands": ("real floating", "integral"),
}


@dataclass
class AxisLengths:
    """The lengths bound so far, each with the first array that has it; ``known`` lengths are given beforehand."""

    known: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    found: dict[str, tuple[Any, tuple[str, Any]]] = field(default_factory=dict)

    def bind(
        self, name: str, array: Array, shape: str, batch: tuple[object, ...] | None = None
    ) -> None:
        """Compare an array with its shape in letters; its leading axes must broadcast to ``batch``, if given."""
        if not hasattr(array, "shape"):
            raise InputError(f"{name} is a {type(array).__name__}; give an array")
        # Read once: a kind may make a length of its own for each axis.
        whole_shape = array.shape
        named, loose = _split_shape_into_axes(shape)
        axes: Sequence[str] = named
        if any(a[0] == "(" for a in named):  # optional axes, which the array may lack
            whole_rank = len(named) + len(batch or ())
            axes = [
                a[1:-1] if a[0] == "(" else a
                for a in named
                if a[0] != "(" or len(whole_shape) >= whole_rank
            ]
        _check_axes(name, array, whole_shape, axes, loose)
        own = len(whole_shape) - len(axes)
        lengths = whole_shape[own:]
        for axis, length in zip(axes, lengths, strict=True):
            self._fit_axis_with_factors(name, array, axis, length)
        if batch is not None:
            front = whole_shape[:own]
            if not fits(front, batch):
                last = "the last" if len(axes) == 1 else f"the last {_WORDS[len(axes)].split()[0]}"
                wanted = (
                    f"the axes before {last} are not {_join_batch_sizes(batch)}"
                    if batch
                    else f"it needs none before {last}"
                )
                whole = _join_batch_sizes((*batch, *(axis.strip("()?") for axis in named)))
                raise InputError(f"{name} has shape {written(array)}; {wanted}; hint: {whole}")

    def check_sum(self, name: str, whole: str, parts: tuple[str, ...]) -> None:
        """Raise InputError unless the length ``whole`` is the sum of the lengths ``parts``."""
        lengths = [self.found[part][0] for part in parts]
        if not same(self.found[whole][0], sum(lengths[1:], lengths[0])):
            spelt = " + ".join(
                f"{part} = {length}" for part, length in zip(parts, lengths, strict=True)
            )
            raise InputError(
                f"{name} has {whole} = {self.found[whole][0]} columns a head; they must be {spelt}"
            )

    def _fit_axis_with_factors(self, name: str, array: object, axis: str, length: Any) -> None:
        if axis.endswith("?"):
            # Length 1 broadcasts and says nothing about the letter.
            if same(length, 1):
                return
            axis = axis[:-1]
        *factors, letter = axis.split("*")
        for factor in factors:
            number = int(factor) if factor.isdecimal() else self.known[factor]
            # Lengths in letters need no division by 1, which they might refuse.
            if number != 1 and length % number:
                blocks = self.words.get(factor, "blocks")
                raise InputError(
                    f"{name} has {length} columns, which {number} {blocks} do not divide"
                )
            length = length if number == 1 else length // number
        self._fit_length_to_letter(name, array, letter, length)

    def _fit_length_to_letter(self, name: str, array: Any, letter: str, length: Any) -> None:
        if letter.isdecimal() or letter in self.known:
            number = int(letter) if letter.isdecimal() else self.known[letter]
            if not same(length, number):
                axis = (
                    "an axis"
                    if letter.isdecimal()
                    else f"the axis {self.words.get(letter, letter)}"
                )
                raise InputError(
                    f"{name} has shape {written(array)}; {axis} must have the length {number}"
                )
            return
        # The first array with a letter sets its length, and is named beside one that differs.
        before, (first, its) = self.found.setdefault(letter, (length, (name, array)))
        if not same(before, length):
            spelt = self.words.get(letter, letter)
            raise InputError(
                f"{first} has shape {written(its)} and {name} {written(array)}: {spelt} differs"
            )


@cache
def _split_shape_into_axes(shape: str) -> tuple[tuple[str, ...], bool]:
    """Return the axes that a shape names, and whether batch axes may precede them."""
    axes = tuple(shape.split())
    return (axes[1:], True) if axes[:1] == ("…",) else (axes, False)


def _check_axes(
    name: str, array: Array, whole_shape: Sequence[Any], axes: Sequence[str], loose: bool
) -> None:
    number = len(whole_shape)
    if number < len(axes) or (number > len(axes) and not loose):
        wanted = _WORDS[len(axes)] + (" or more" if loose else "")
        listed = f": {', '.join(axes)}" if axes else ""
        raise InputError(f"{name} has shape {written(array)}; it needs {wanted}{listed}")
    if any(n == 0 for n in whole_shape):
        raise InputError(f"{name} has shape {written(array)}: an empty array has no attention")


def check_holds(name: str, array: Array, holds: str) -> None:
    """Raise InputError unless the elements are of the kind ``holds``; letters have no dtype.

    Numbers must be of a dtype whose operations stay in it: integers would round a factor 1/2 to 0, and NumPy's own
    arrays of bfloat16 give float32.
    """
    if array.dtype is None:
        return
    try:
        known = namespace_of(array).isdtype(array.dtype, _DTYPES[holds])
    except TypeError:  # NumPy's ``isdtype`` does not know dtypes of other packages
        hint = f"symattn.arrays.kind('{array.dtype}').lift({name})"
        raise InputError(
            f"{name} holds {array.dtype}, in which NumPy does not compute; hint: {hint}"
        ) from None
    if not known:
        raise InputError(f"{name} must hold {_HOLDS[holds]}, got {array.dtype}")


def check_batches(arrays: Mapping[str, Any], last: Mapping[str, int]) -> tuple[Any, ...]:
    """Return the shape that the leading axes broadcast to; ``last`` is the number of other axes of each array."""
    fronts = {
        name: tuple(array.shape[: len(array.shape) - last[name]]) for name, array in arrays.items()
    }
    if not any(fronts.values()):
        return ()
    for (left, a), (right, b) in combinations(fronts.items(), 2):
        if broadcast(a, b) is None:
            shapes = (
                f"{left} has shape {written(arrays[left])} and {right} {written(arrays[right])}"
            )
            raise InputError(
                f"{shapes}: the axes before the last {_WORDS[last[left]].split()[0]} differ"
            )
    whole: tuple[Any, ...] = ()
    for front in fronts.values():
        # Fronts fit each other in pairs, so joining them cannot fail.
        whole = broadcast(whole, front) or whole
    return whole


def broadcast(a: Iterable[object], b: Iterable[object]) -> tuple[Any, ...] | None:
    """Return the shape that two shapes broadcast to, or None."""
    short, long = sorted((tuple(a), tuple(b)), key=len)
    if not short:
        return long
    pairs = list(zip((1,) * (len(long) - len(short)) + short, long, strict=True))
    if any(not (same(m, n) or same(m, 1) or same(n, 1)) for m, n in pairs):
        return None
    return tuple(n if same(m, 1) else m for m, n in pairs)


def fits(shape: Iterable[object], target: tuple[object, ...]) -> bool:
    """Return whether ``shape`` broadcasts to ``target``."""
    wide = broadcast(shape, target)
    return wide is not None and len(wide) == len(target) and all(map(same, wide, target))


def same(m: object, n: object) -> bool:
    """Return whether two lengths are known to be equal; different letters are not."""
    try:
        return bool(m == n)
    # Different letters may be equal at some sizes, but code must not rely on it.
    except Undecided:
        return False


def written(array: Array) -> str:
    """Return the shape in Python's notation: (2, 3)."""
    return "(" + ", ".join(map(str, array.shape)) + ("," if len(array.shape) == 1 else "") + ")"


def _join_batch_sizes(batch: tuple[object, ...]) -> str:
    return " × ".join(map(str, batch))
