"""The definition with some intermediate arrays stored in a narrower format: one of them, or several at once.

Rounded inputs and constants are exact other inputs and constants. A number that is computed before it is rounded may
lie on either side of a rounding boundary; so each variant comes with two whose numbers are moved slightly up and down,
and the function's output may be as far away as theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from math import inf, sqrt
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.formats import Format
from symattn.arrays.namespace import namespace_of
from symattn.arrays.precision import Precision
from symattn.arrays.rounding.array import ComputedNumber
from symattn.arrays.tensors import is_tensor
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs
from symattn.bounds.mistake import At, Mistake, change, in_inputs, in_steps
from symattn.bounds.reference import Change, Variant

#: Formats too narrow, in which arrays may be stored or arithmetic may run by mistake.
FORMATS = ("float32", "float16", "bfloat16")
#: Formats by their names in words; TF32 has the digits of float16.
_NARROW: Mapping[str, Grid] = {
    "float16 (or TF32, which has as many digits)": Format("float16"),
    "bfloat16": Format("bfloat16"),
    "float8": Format("float8_e4m3fn"),
}
#: More than float32's relative error without cancellation: both neighbours lie on either side of a boundary.
MOVED = 2.0**-20


class Multiples(NamedTuple):
    """Numbers that are multiples of a unit, as a format; ``to`` takes the nearest ones, or those on one side."""

    unit: float
    to: Callable[[Any], Any]
    name: str = "multiples"
    largest: float = inf

    def rounded(self, x: object) -> Any:
        """Return x rounded to multiples of the unit."""
        return self.to(np.asarray(x) / self.unit) * self.unit


Grid = Format | Multiples
Round = Callable[[float, Grid, At], Any]
# Steps of decimal and of binary fixed point, whole numbers included.
_UNITS = (*(10.0**-k for k in range(7)), *(2.0**-k for k in range(1, 13)))
_SIDES: Mapping[str, Callable[[Any], Any]] = {
    "": np.rint,
    ", towards 0": np.trunc,
    ", downwards": np.floor,
}
#: In words, after “rounded to”.
MULTIPLES: Mapping[str, Grid] = {
    f"multiples of {unit:g}{words}": Multiples(unit, to)
    for (words, to), unit in product(_SIDES.items(), _UNITS)
}


def rounded(f: Grid, x: object) -> Any:
    """Round numbers within the range of the format; larger ones, and infinities, stay.

    Arrays with bounds have to be inputs, which are known exactly.
    """
    if isinstance(x, ComputedNumber):
        return type(x).lift(rounded(f, x.exact_floats()))
    xp = namespace_of(x) if is_tensor(x) else np
    a = xp.asarray(x, dtype=xp.float64)
    # Beyond the range a format has ∞ or its largest number, which is another mistake.
    in_range = xp.abs(a) <= float(f.largest)
    return xp.where(in_range, f.rounded(xp.where(in_range, a, 0.0)), a)


def _round_step_result(by: float, f: Grid, at: At) -> Array:
    """Return a step's result, rounded."""
    x = np.asarray(at.right())
    # Masked scores are −∞ and stay so.
    finite = np.where(np.isfinite(x), x, 0.0)
    stored = rounded(f, finite * (1 + by))
    return np.where(np.isfinite(x), stored, x)


def _divide_stored_exponentials(where: str, by: float, f: Grid, at: At) -> Any:
    """Divide exponentials by their sum, rounding the sum, or exponentials for the values alone or before both."""
    e = np.asarray(at.e)
    total = np.asarray(at.total)
    if where == "sum":
        return e / rounded(f, total * (1 + by))
    e = rounded(f, e * (1 + by))
    if where != "values":
        # The sum that divides is that of the stored exponentials.
        total = e.sum(axis=-1, keepdims=True) + np.asarray(at.sink)
    return e / total


def _weights_of_stored_differences(by: float, f: Grid, at: At) -> Any:
    """Return the weights from e^{s − m} in the format: in float32 as NumPy computes it, else rounded."""
    x = np.asarray(at.first - at.top, dtype=np.float64) * (1 + by)
    e = np.exp(x.astype(np.float32)) if f.name == "float32" else f.rounded(np.exp(f.rounded(x)))
    e = e.astype(np.float64)
    return e / e.sum(axis=-1, keepdims=True)


# -- one array ---------------------------------------------------------------------------------------------------------
_INPUTS = {"qk": ("queries and keys", "score"), "q": ("queries", "score"), "k": ("keys", "score"),
           "v": ("values", "values"), "qkv": ("queries, keys and values", "score")}  # fmt: skip
# The names of a step, words for it, the format in which it is stored, and how it is rounded.
_StoredStep = tuple[tuple[str, ...], str, str, Round]
_STEPS: tuple[_StoredStep, ...] = (
    (("scores",), "scores are, before they are scaled,", "score", _round_step_result),
    (("scaled",), "scaled scores are", "score", _round_step_result),
    (("weights",), "weights are", "values", _round_step_result),
    (("output",), "the output is", "output", _round_step_result),
    (("cos", "sin"), "cosines and sines of positions are", "position", _round_step_result),
    (("weights",), "exponentials are", "exp", partial(_divide_stored_exponentials, "")),
    (
        ("weights",),
        "exponentials are, where they meet the values,",
        "values",
        partial(_divide_stored_exponentials, "values"),
    ),
    (
        ("weights",),
        "the sum that weights are divided by is",
        "normalize",
        partial(_divide_stored_exponentials, "sum"),
    ),
)


def singles(
    spec: Attention, given: frozenset[str], to: Mapping[str, Grid] = _NARROW
) -> Iterator[Mistake]:
    """Yield the mistakes of rounding one array, or one constant."""
    plain = spec.plain_softmax
    result = {s.name for s in spec.pipeline(given)}
    for words, f in to.items():
        # Latents have no queries or keys of their own to round.
        for names, (role, step) in _INPUTS.items() if spec.latent is None else ():
            of: Any = dict.fromkeys(names, partial(rounded, f))
            if "x" in given:  # they are projections, so computed before they are rounded
                yield _make_mistake_with_nearby(
                    step,
                    f"{role} are rounded to {words}",
                    partial(_in_steps, tuple(names), _round_step_result, f),
                )
            else:
                yield in_inputs(step, f"{role} are rounded to {words}", **of)
        if spec.score == "dot" and spec.scale not in ("given", "1/d_k") and spec.position is None:
            yield in_steps(
                "scale",
                f"the scale is rounded to {words}",
                scaled=partial(_scale_by_stored_constant, f),
            )
        for steps, noun, step, round_ in _STEPS:
            if given.issuperset(steps):  # tables that are given
                yield in_inputs(
                    step, f"{noun} rounded to {words}", **dict.fromkeys(steps, partial(rounded, f))
                )
            # Exponentials exist in a softmax alone.
            elif (plain or round_ is _round_step_result) and result.issuperset(steps):
                yield _make_mistake_with_nearby(
                    step, f"{noun} rounded to {words}", partial(_in_steps, steps, round_, f)
                )


def _scale_by_stored_constant(f: Grid, at: At) -> Any:
    scale = 1 / sqrt(at.size("q")) if at.spec.scale is None else float(at.spec.scale)
    return at.first * float(f.rounded(np.asarray(scale)))


def _in_steps(names: tuple[str, ...], round_: Round, f: Grid, by: float) -> dict[str, Change]:
    return {name: change(name, partial(round_, by, f)) for name in names}


def _make_mistake_with_nearby(
    step: str, cause: str, make: Callable[[float], dict[str, Change]]
) -> Mistake:
    around = tuple(Variant(make(by), False) for by in (MOVED, -MOVED))
    return Mistake(step, cause, Variant(make(0.0), False), around=around)


# -- several at once ---------------------------------------------------------------------------------------------------
_POWERS: Mapping[str, tuple[str, Round | None]] = {
    "": ("", None),
    "exponentials": ("exp", partial(_divide_stored_exponentials, "")),
    "exponentials, and the differences that they are of,": ("exp", _weights_of_stored_differences),
    "exponentials, where they meet the values,": (
        "values",
        partial(_divide_stored_exponentials, "values"),
    ),
    "the sum of exponentials": ("normalize", partial(_divide_stored_exponentials, "sum")),
    "weights": ("values", _round_step_result),
}


def mistakes(spec: Attention, precision: Precision) -> Iterator[Mistake]:
    """Yield every choice of arrays that are stored in one format, those with few before others."""
    for name in FORMATS:
        f = Format(name)
        # A format at least as fine as the contract's is no mistake.
        if f.u > precision.roughest.u:
            choices = product((0, 1), (0, 1), (0, 1), _POWERS, (0, 1))
            # Few stores first, as a report names the first mistake that fits.
            for stored in sorted(choices, key=lambda c: sum(map(bool, c))):
                if any(stored):
                    yield _make_mistake_of_stores(f, *stored)


def _make_mistake_of_stores(
    f: Grid, inputs: int, scores: int, scaled: int, powers: str, out: int
) -> Mistake:
    all_parts = [
        ("score", "inputs", inputs),
        ("score", "scores before they are scaled", scores),
        ("score", "scaled scores", scaled),
        (_POWERS[powers][0], powers, powers),
        ("output", "outputs", out),
    ]
    parts = [(step, words) for step, words, chosen in all_parts if chosen]
    first_words = ", ".join(w for _, w in parts[:-1])
    words = " and ".join((first_words, parts[-1][1])) if len(parts) > 1 else parts[0][1]
    names = tuple(
        n for n, chosen in (("scores", scores), ("scaled", scaled), ("output", out)) if chosen
    )
    round_ = _POWERS[powers][1]

    def steps(by: float) -> dict[str, Change]:
        return _in_steps(names, _round_step_result, f, by) | (
            _in_steps(("weights",), round_, f, by) if round_ else {}
        )

    verb = "is" if parts == [("normalize", "the sum of exponentials")] else "are"
    mistake = _make_mistake_with_nearby(
        parts[0][0] or "values", f"{words} {verb} rounded to {f.name}", steps
    )

    def round_inputs(spec: Attention, given: Inputs) -> Inputs:
        # An additive mask has −∞ and large numbers, which a narrow format would change.
        return {
            n: rounded(f, a) if a.dtype.kind == "f" and n != "mask" else a for n, a in given.items()
        }

    variant, *around = (
        replace(v, inputs=round_inputs if inputs else None)
        for v in (mistake.variant, *mistake.around)
    )
    return replace(mistake, way=variant, around=tuple(around), in_floats=True)
