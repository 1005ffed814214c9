"""Mistakes that are made for some items of a batch or some heads alone, as their wrong outputs show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.bounds.case_result import CaseResult

#: The axes of an output by what they count, batch items or heads: negative numbers, counted from the end.
Axes = Mapping[str, int]


@dataclass(frozen=True)
class OutputPart:
    """Some batch items or heads of an output: in words, the axis, and which of its n places."""

    words: str
    axis: int
    holds: Callable[[np.ndarray, int], np.ndarray]

    def places(self, shape: Sequence[int]) -> np.ndarray:
        """Return which entries of an output belong to the part, as booleans that broadcast to its shape.

        An output without the axis has one place.
        """
        ones = [1] * len(shape)
        # Outputs without the axis have one place, which may or may not belong to the part.
        if len(shape) < -self.axis:
            return self.holds(np.arange(1), 1).reshape(ones)
        axis = len(shape) + self.axis
        n = int(shape[axis])
        mask = self.holds(np.arange(n), n)
        return mask.reshape(*ones[:axis], n, *ones[axis + 1 :])

    def joined(self, wrong: Any, right: Any) -> Any:
        """Return the wrong output in the part, and the right one elsewhere, on any kind of array."""
        places = np.broadcast_to(
            self.places(tuple(map(int, right.shape))), tuple(map(int, right.shape))
        )
        return namespace_of(right).where(places, wrong, right)


def of_errors(wrong: Sequence[CaseResult], axes: Axes, group: int) -> Iterator[OutputPart]:
    """Yield the parts that hold all wrong entries of every case, and not every entry of those with several places.

    ``group`` is the number of heads that share a key head. Of parts with the same places in every case, the first.
    """
    errors = [
        np.asarray(part.ratios > 1) for r in wrong for part in r.parts if part.ratios is not None
    ]
    for counted, axis in axes.items():
        before: list[list[np.ndarray]] = []
        for words, holds in _yield_places_on_axis(counted, group):
            part = OutputPart(words, axis, holds)
            inside = [part.places(off.shape) for off in errors]
            holds_all = not any(
                (off & ~there).any() for off, there in zip(errors, inside, strict=True)
            )
            repeats = any(all(map(np.array_equal, inside, earlier)) for earlier in before)
            # A part that is everything, or repeats an earlier one, says nothing new.
            if holds_all and not repeats and not all(there.all() for there in inside):
                before.append(inside)
                yield part


Holds = Callable[[np.ndarray, int], np.ndarray]


def _yield_places_on_axis(counted: str, group: int) -> Iterator[tuple[str, Holds]]:
    """Yield places on an axis in words, the fewest first."""
    one, every = _NOUNS[counted]
    # The ends come first: an index that is off by one loses the first or the last item.
    yield f"the first {one} alone", lambda i, n: i == 0
    yield f"the last {one} alone", lambda i, n: i == n - 1
    if counted == "heads":
        # Grouped queries: code that mistakes a group of heads for a head shows here.
        if group > 1:
            yield "the heads of the first key head alone", lambda i, n: i < group
            yield "the first head of each key head alone", lambda i, n: i % group == 0
            yield "the last head of each key head alone", lambda i, n: i % group == group - 1
            yield "the heads of each key head but its first", lambda i, n: i % group != 0
            yield "the heads of all key heads but the first", lambda i, n: i >= group
        yield "the first half of the heads alone", lambda i, n: i < n // 2
        yield "the second half of the heads alone", lambda i, n: i >= n // 2
        yield "heads 1, 3, … alone", lambda i, n: i % 2 == 0
        yield "heads 2, 4, … alone", lambda i, n: i % 2 == 1
    yield f"{every} but the first", lambda i, n: i > 0
    yield f"{every} but the last", lambda i, n: i < n - 1


_NOUNS = {"items": ("item of the batch", "all items of the batch"), "heads": ("head", "all heads")}
