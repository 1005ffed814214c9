"""Compare the output of a quantising cache with its input: they may differ by one step of quantisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symattn.arrays.formats import Format
from symattn.models.auditing.setting import Tensor, numbers
from symattn.models.comparing.generation_ways import Array
from symattn.programs.frameworks import dtype_name

_NAMES = ("keys", "values")
_ROUNDINGS = 8  # of numbers up to the largest: in the range, in the step, and in the numbers restored from them
# In place of 0 in denominators.
_LEAST = 1e-300
#: Returns how far each stored number may move, given the numbers and the largest of the first ones stored.
Step = Callable[[Array, float], Array]


@dataclass(frozen=True)
class Lost:
    """The first layer in which a cache returns something else than was stored; columns include padding."""

    layer: int
    words: str


@dataclass
class Recorded:
    """A record of a cache: for each call in each layer what was stored and returned, (k, v) (b, h, n, d), or the length
    at which it was cropped, counted from the end if it is negative."""

    calls: dict[int, list[tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]] | int]] = field(
        default_factory=dict
    )
    steps: dict[int, Step] = field(default_factory=dict)

    def on(self, cache: Any) -> Any:
        """Record the calls of a cache, if it quantises; return the cache."""
        self.calls, self.steps = {}, {}
        for k, layer in enumerate(getattr(cache, "layers", ())):
            if (step := _quantisation_step_of_layer(layer)) is not None:
                self.steps[k] = step
        # A cache that stores numbers exactly needs no record.
        if self.steps:
            update, crop = cache.update, cache.crop

            def cropped(length: int, *arguments: object) -> None:
                for layer in self.calls:
                    self.calls[layer].append(length)
                crop(length, *arguments)

            def updated(
                key: Tensor, value: Tensor, layer: int, *arguments: object, **keywords: object
            ) -> Tensor:
                # Copies, since the cache may write into these arrays.
                stored = key.clone(), value.clone()
                back = update(key, value, layer, *arguments, **keywords)
                self.calls.setdefault(layer, []).append(
                    (stored, (back[0].clone(), back[1].clone()))
                )
                return back

            cache.update, cache.crop = updated, cropped
        return cache

    def lost(self) -> Lost | None:
        """Return the first layer and columns that differ by more than a step of quantisation, or None."""
        # Only layers that quantise have a step.
        for layer in sorted(self.steps.keys() & self.calls.keys()):
            for which in (0, 1):
                calls = [
                    call
                    if isinstance(call, int)
                    else (numbers(call[0][which]), numbers(call[1][which]))
                    for call in self.calls[layer]
                ]
                first = next(
                    call[0][which] for call in self.calls[layer] if not isinstance(call, int)
                )
                # Roundings of the arrays themselves are within their format.
                u = float(Format(dtype_name(first)).u)
                if words := _describe_first_cache_loss(calls, self.steps[layer], u, _NAMES[which]):
                    return Lost(layer, words)
        return None

    def again(self, config: object, length: int) -> Any:
        """Return a cache that returns the recorded numbers again, and is exact in everything else."""
        from transformers import DynamicCache

        # Outputs are returned in the order of calls.
        calls = {
            n: iter([call[1] for call in result if not isinstance(call, int)])
            for n, result in self.calls.items()
        }

        class ReplayingCache(DynamicCache):
            def update(self, *arguments: Any, **keywords: Any) -> Any:
                super().update(*arguments, **keywords)
                return next(calls[arguments[2] if len(arguments) > 2 else keywords["layer_idx"]])

        return ReplayingCache()


def _quantisation_step_of_layer(layer: object) -> Step | None:
    """Return how far a number may move when a layer of a cache quantises it, or None if it does not.

    ``nbits`` = b: the 2ᵇ levels of a group are (max − min)/(2ᵇ − 1) apart, 0 among them, and a number and the zero
    point are each rounded by at most half of that; no group has a wider range than the whole. Float8 (e4m3): half a
    unit in the last place of 4 bits, and of the smallest number, 2⁻⁹ if the largest is 448; the scale is that of the
    first numbers stored, and larger ones are clipped.
    """
    bits = getattr(layer, "nbits", None)
    if isinstance(bits, int) and 0 < bits <= 16:
        # A range of values including 0, in 2^b − 1 steps.
        return lambda x, _: np.full(
            x.shape, (max(x.max(), 0.0) - min(x.min(), 0.0)) / (2**bits - 1)
        )
    if "float8_e4m3" in str(getattr(layer, "fp8_dtype", "")):
        return lambda x, most: (
            np.abs(x) * 2.0**-4 + most * 2.0**-18 + np.maximum(np.abs(x) - most, 0)
        )
    return None


def _describe_first_cache_loss(
    calls: Sequence[tuple[Array, Array] | int], step: Step, u: float, what: str
) -> str:
    """Describe the first loss, or return ""; columns may move by one step from the last output, or from the input."""
    last: Array | None = None
    most = 0.0
    for call in calls:
        if isinstance(call, int):
            # The cache was cut: a rollback to so many columns.
            last = None if last is None else last[:, :, :call]
            continue
        stored, back = call
        # The scale is that of the first numbers.
        most = most if last is not None else float(np.abs(stored).max())
        # Stored numbers follow what is there.
        wanted = stored if last is None else np.concatenate([last, stored], axis=2)
        if back.shape != wanted.shape:
            return f"{back.shape[2]} columns of {what} are returned where {wanted.shape[2]} were stored"
        of_roundings = _ROUNDINGS * u * np.abs(wanted).max()
        room = step(wanted, most) + of_roundings
        # Written this way NaN counts as beyond.
        beyond = ~(np.abs(back - wanted) <= room)
        if beyond.any():
            columns = np.flatnonzero(beyond.any(axis=(0, 1, 3)))
            many = (
                f"{len(columns)} columns, column {columns[0]} first,"
                if len(columns) > 1
                else f"column {columns[0]}"
            )
            return f"the {what} in {many} are returned {_describe_returned_columns(back, wanted, room, columns)}"
        # What was returned is what the next call builds on.
        last = back
    return ""


def _describe_returned_columns(back: Array, wanted: Array, room: Array, columns: Array) -> str:
    """Describe how columns are returned, by one mistake that explains all of them if there is one."""
    a, b, r = (x[:, :, columns] for x in (back, wanted, room))
    if not np.isfinite(a).all():
        return "as NaN or infinity"
    square = max((b * b).sum(), _LEAST)
    c = float((a * b).sum() / square)
    off = np.abs(a - c * b)
    if (off <= r * max(1.0, abs(c))).all():
        return f"{c:.3g} times as large as they were stored"
    # Perhaps another column was returned in its place.
    first = int(columns[0])
    column = back[:, :, first : first + 1]
    errors = np.abs(column - wanted) - room
    other = int(errors.max(axis=(0, 1, 3)).argmin())
    if errors[:, :, other].max() <= 0:
        return f"as those in column {other}"
    steps = np.abs(a - b) / np.maximum(r, _LEAST)
    times = float(steps.max())
    return f"{times:.2g} steps of quantisation from what was stored"
