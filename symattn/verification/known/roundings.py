"""Mistakes of precision: numbers that are rounded to a narrower format on the way.

Rounded inputs and constants are other inputs and constants, exactly. A number that was computed before it is rounded
may lie on either side of a boundary; so beside the variant stand two whose numbers are moved a little, up and down, and
what the function gave may be as far away as these are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from symattn.arrays.formats import Format
from symattn.attention.positions.fields import Rotary
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Applies,
    Mistake,
    always,
    in_inputs,
    in_steps,
    own,
    parts,
    plain_softmax,
    size,
)
from symattn.verification.reference import Change, Values, Variant

#: A name in words, and the format whose roundings are meant; TF32 has the digits of float16.
_NARROW = {"float16 (or TF32, which has as many digits)": "float16", "bfloat16": "bfloat16", "float8": "float8_e4m3fn"}
_MOVED = 2.0**-20  # more than float32 is off by, where nothing cancels
Make = Callable[[float, Format, Attention, Values], Any]


def _narrowed(f: Format, x: Any) -> np.ndarray:
    """Rounded, where the format reaches; larger numbers stay."""
    a = np.asarray(x, dtype=np.float64)
    within = np.abs(a) <= float(f.largest)
    found: np.ndarray = np.where(within, f.rounded(np.where(within, a, 0.0)), a)
    return found


def of_inputs(f: Format, spec: Attention, a: np.ndarray) -> np.ndarray:
    """Inputs, rounded."""
    return _narrowed(f, a)


def of_scale(f: Format, spec: Attention, values: Values) -> Any:
    """S by a rounded scale."""
    d = size(values, "q")
    scale = 1 / sqrt(d) if spec.scale is None else float(spec.scale)
    return values["scores"] * float(f.rounded(np.asarray(scale)))


def of_step(name: str, moved: float, f: Format, spec: Attention, values: Values) -> Any:
    """A step's numbers, rounded; infinities stay."""
    x = np.asarray(own(spec, values, name))
    finite = np.isfinite(x)
    return np.where(finite, _narrowed(f, np.where(finite, x, 0.0) * (1 + moved)), x)


def of_powers(moved: float, f: Format, spec: Attention, values: Values) -> Any:
    """Exponentials rounded before they are summed."""
    p = parts(spec, values)
    e = _narrowed(f, np.asarray(p.e) * (1 + moved))
    return e / (e.sum(axis=-1, keepdims=True) + np.asarray(p.sink))


def of_powers_for_values(moved: float, f: Format, spec: Attention, values: Values) -> Any:
    """Exponentials rounded where they meet the values, and not where they are summed."""
    p = parts(spec, values)
    return _narrowed(f, np.asarray(p.e) * (1 + moved)) / np.asarray(p.total)


def of_sum(moved: float, f: Format, spec: Attention, values: Values) -> Any:
    """The sum, rounded."""
    p = parts(spec, values)
    return np.asarray(p.e) / _narrowed(f, np.asarray(p.total) * (1 + moved))


def _moved(step: str, cause: str, make: Callable[[float], dict[str, Change]], applies: Applies = always) -> Mistake:
    found = in_steps(step, cause, applies, rows=False, **make(0.0))  # type: ignore[arg-type]
    around = tuple(Variant(make(by), False) for by in (_MOVED, -_MOVED))
    return replace(found, around=around)


def _simple_scale(spec: Attention) -> bool:
    return spec.score == "dot" and spec.scale not in ("given", "1/d_k") and spec.position is None


def _mistakes(words: str, f: Format) -> Iterator[Mistake]:
    for names, role, step in _INPUTS:
        given = {name: partial(of_inputs, f) for name in names}
        yield in_inputs(step, f"{role} are rounded to {words}", lambda s: s.latent is None, **given)
    yield in_steps("scale", f"the scale is rounded to {words}", _simple_scale, scaled=partial(of_scale, f))
    for name, told, step in _STEPS:
        yield _moved(step, f"{told} rounded to {words}", partial(_in_steps, (name,), f))
    tables = partial(_in_steps, ("cos", "sin"), f)
    yield _moved("position", f"cosines and sines of positions are rounded to {words}", tables, _turns)
    for told, make, step in _SUMS:
        yield _moved(step, f"{told} rounded to {words}", partial(_in_weights, make, f), plain_softmax)


def _in_steps(names: tuple[str, ...], f: Format, by: float) -> dict[str, Change]:
    return {name: partial(of_step, name, by, f) for name in names}


def _in_weights(make: Make, f: Format, by: float) -> dict[str, Change]:
    return {"weights": partial(make, by, f)}


def _turns(spec: Attention) -> bool:
    return isinstance(spec.position, Rotary)


_INPUTS = (
    ("qk", "queries and keys", "score"),
    ("q", "queries", "score"),
    ("k", "keys", "score"),
    ("v", "values", "values"),
    ("qkv", "queries, keys and values", "score"),
)
_STEPS = (
    ("scores", "scores are, before they are scaled,", "score"),
    ("scaled", "scaled scores are", "score"),
    ("weights", "weights are", "values"),
    ("output", "the output is", "output"),
)
_SUMS = (
    ("exponentials are", of_powers, "exp"),
    ("exponentials are, where they meet the values,", of_powers_for_values, "values"),
    ("the sum that weights are divided by is", of_sum, "normalize"),
)

MISTAKES: tuple[Mistake, ...] = tuple(m for words, name in _NARROW.items() for m in _mistakes(words, Format(name)))
