"""The definition with some of its arrays stored in a narrower format on the way, several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision
from symattn.attention.softmax import row_max
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import Mistake, final
from symattn.verification.known.roundings import of_inputs, of_powers, of_powers_for_values, of_step, of_sum
from symattn.verification.reference import Change, Values, Variant
from symattn.verification.target import Inputs

_FORMATS = ("float32", "float16", "bfloat16")
_MOVED = 2.0**-20  # a number on the other side of a boundary is rounded the other way


def _of_differences(by: float, f: Format, spec: Attention, values: Values) -> Any:
    """e^{s − m} in the format: of float32 as NumPy computes it, else rounded."""
    s = final(spec, values)
    x = np.asarray(s - row_max(s), dtype=np.float64) * (1 + by)
    e = np.exp(x.astype(np.float32)) if f.name == "float32" else f.rounded(np.exp(f.rounded(x)))
    e = e.astype(np.float64)
    return e / e.sum(axis=-1, keepdims=True)


_POWERS: Mapping[str, tuple[str, Callable[..., object] | None]] = {
    "": ("", None),
    "exponentials": ("exp", of_powers),
    "exponentials, and the differences that they are of,": ("exp", _of_differences),
    "exponentials, where they meet the values,": ("values", of_powers_for_values),
    "the sum of exponentials": ("normalize", of_sum),
    "weights": ("values", None),
}


def mistakes(spec: Attention, precision: Precision) -> Iterator[Mistake]:
    """Every choice of arrays that are stored in one format, those with few before others."""
    for name in _FORMATS:
        f = Format(name)
        if f.u > precision.roughest.u:
            choices = product((0, 1), (0, 1), (0, 1), _POWERS, (0, 1))
            for stored in sorted(choices, key=lambda c: sum(map(bool, c))):
                if any(stored):
                    yield _mistake(spec, name, f, *stored)


def _mistake(
    spec: Attention, name: str, f: Format, inputs: int, scores: int, scaled: int, powers: str, out: int
) -> Mistake:
    told = [
        ("score", "inputs", inputs), ("score", "scores before they are scaled", scores),
        ("score", "scaled scores", scaled), (_POWERS[powers][0], powers, powers), ("output", "outputs", out),
    ]  # fmt: skip
    said = [(step, words) for step, words, there in told if there]
    words = " and ".join((", ".join(w for _, w in said[:-1]), said[-1][1])) if len(said) > 1 else said[0][1]
    steps = [("scores", scores), ("scaled", scaled), ("weights", powers == "weights"), ("output", out)]
    names = [n for n, there in steps if there]
    make = partial(_variant, f, names, _POWERS[powers][1], bool(inputs))
    around = (make(_MOVED), make(-_MOVED))
    step = said[0][0] or "values"
    verb = "is" if said == [("normalize", "the sum of exponentials")] else "are"
    return Mistake(step, f"{words} {verb} rounded to {name}", make(0.0), around=around, in_floats=True)


def _variant(f: Format, names: list[str], powers: Callable[..., object] | None, inputs: bool, by: float) -> Variant:
    steps: dict[str, Change] = {n: partial(of_step, n, by, f) for n in names}
    if powers is not None:
        steps["weights"] = partial(powers, by, f)
    return Variant(steps, rows=False, inputs=partial(_rounded, f) if inputs else None)


def _rounded(f: Format, spec: Attention, given: Inputs) -> Inputs:
    return {n: of_inputs(f, spec, a) if a.dtype.kind == "f" and n != "mask" else a for n, a in given.items()}
