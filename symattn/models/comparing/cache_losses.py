"""The output of a cache that quantises, compared with its input: within a step of its quantisation, and no more."""

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
_ROUNDINGS = 8  # of numbers up to the largest: of the range and the step, and of what is made of them again
_LEAST = 1e-300
#: Of what is stored, and of the largest number that came first: how far each number may move.
Step = Callable[[Array, float], Array]


@dataclass(frozen=True)
class Lost:
    """The first layer in which a cache gives back something else than it was handed; columns count padding, too."""

    layer: int
    words: str


@dataclass
class Recorded:
    """A cache that is looked at: of each layer, what each call was handed and gave back, (k, v) (b, h, n, d), or at
    which length it was cropped, which is counted from the end where it is negative."""

    calls: dict[int, list[tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]] | int]] = field(default_factory=dict)
    steps: dict[int, Step] = field(default_factory=dict)

    def on(self, cache: Any) -> Any:
        """Look at a cache, if it quantises; it is given back."""
        self.calls, self.steps = {}, {}
        for k, layer in enumerate(getattr(cache, "layers", ())):
            if (step := _step(layer)) is not None:
                self.steps[k] = step
        if self.steps:
            update, crop = cache.update, cache.crop

            def taken_back(length: int, *arguments: object) -> None:
                for layer in self.calls:
                    self.calls[layer].append(length)
                crop(length, *arguments)

            def seen(key: Tensor, value: Tensor, layer: int, *arguments: object, **keywords: object) -> Tensor:
                handed = key.clone(), value.clone()
                back = update(key, value, layer, *arguments, **keywords)
                self.calls.setdefault(layer, []).append((handed, (back[0].clone(), back[1].clone())))
                return back

            cache.update, cache.crop = seen, taken_back
        return cache

    def lost(self) -> Lost | None:
        """The first layer and column in which more than a step of quantisation is between both (None: nowhere)."""
        for layer in sorted(self.steps.keys() & self.calls.keys()):
            for which in (0, 1):
                calls = [
                    call if isinstance(call, int) else (numbers(call[0][which]), numbers(call[1][which]))
                    for call in self.calls[layer]
                ]
                first = next(call[0][which] for call in self.calls[layer] if not isinstance(call, int))
                u = float(Format(dtype_name(first)).u)
                if words := _lost(calls, self.steps[layer], u, _NAMES[which]):
                    return Lost(layer, words)
        return None

    def again(self, config: object, length: int) -> Any:
        """A cache that gives back the same again, and is exact in everything else."""
        from transformers import DynamicCache

        calls = {n: iter([call[1] for call in result if not isinstance(call, int)]) for n, result in self.calls.items()}

        class Replay(DynamicCache):
            def update(self, *arguments: Any, **keywords: Any) -> Any:
                super().update(*arguments, **keywords)
                return next(calls[arguments[2] if len(arguments) > 2 else keywords["layer_idx"]])

        return Replay()


def _step(layer: object) -> Step | None:
    """How far a number may move when a layer of a cache quantises it; None of a layer that does not.

    ``nbits`` = b: the 2ᵇ levels of a group stand (max − min)/(2ᵇ − 1) apart, 0 among them, and a number and the zero
    point are each rounded by half of that at most; no group is wider than the whole. Float8 (e4m3): half a unit in
    the last place of 4 bits, and of the smallest number, 2⁻⁹ where the largest is 448; the scale is that of what came
    first, beyond which numbers are cut off.
    """
    bits = getattr(layer, "nbits", None)
    if isinstance(bits, int) and 0 < bits <= 16:
        return lambda x, _: np.full(x.shape, (max(x.max(), 0.0) - min(x.min(), 0.0)) / (2**bits - 1))
    if "float8_e4m3" in str(getattr(layer, "fp8_dtype", "")):
        return lambda x, most: np.abs(x) * 2.0**-4 + most * 2.0**-18 + np.maximum(np.abs(x) - most, 0)
    return None


def _lost(calls: Sequence[tuple[Array, Array] | int], step: Step, u: float, what: str) -> str:
    """Call by call: earlier columns may move by a step from what came back last, new ones from what is handed in."""
    last: Array | None = None
    most = 0.0
    for call in calls:
        if isinstance(call, int):
            last = None if last is None else last[:, :, :call]
            continue
        handed, back = call
        most = most if last is not None else float(np.abs(handed).max())
        wanted = handed if last is None else np.concatenate([last, handed], axis=2)
        if back.shape != wanted.shape:
            return f"{back.shape[2]} columns of {what} are returned where {wanted.shape[2]} were stored"
        room = step(wanted, most) + _ROUNDINGS * u * np.abs(wanted).max()
        beyond = ~(np.abs(back - wanted) <= room)
        if beyond.any():
            columns = np.flatnonzero(beyond.any(axis=(0, 1, 3)))
            many = f"{len(columns)} columns, column {columns[0]} first," if len(columns) > 1 else f"column {columns[0]}"
            return f"the {what} in {many} are returned {_named(back, wanted, room, columns)}"
        last = back
    return ""


def _named(back: Array, wanted: Array, room: Array, columns: Array) -> str:
    """As what columns come back, where one mistake explains all of them."""
    a, b, r = (x[:, :, columns] for x in (back, wanted, room))
    if not np.isfinite(a).all():
        return "as NaN or infinity"
    c = float((a * b).sum() / max((b * b).sum(), _LEAST))
    if (np.abs(a - c * b) <= r * max(1.0, abs(c))).all():
        return f"{c:.3g} times as large as they were stored"
    first = int(columns[0])
    errors = np.abs(back[:, :, first : first + 1] - wanted) - room
    other = int(errors.max(axis=(0, 1, 3)).argmin())
    if errors[:, :, other].max() <= 0:
        return f"as those in column {other}"
    times = float((np.abs(a - b) / np.maximum(r, _LEAST)).max())
    return f"{times:.2g} steps of quantisation from what was stored"
