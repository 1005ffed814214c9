"""Rounding, the formats: scales, sums, masks and merges, in the numbers of each format."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np

from symattn.arrays import kind
from symattn.arrays.array import Array
from symattn.arrays.formats import NARROW, Format
from symattn.attention.masks import forbid
from symattn.attention.softmax import exponentials, row_max
from symattn.attention.softmax import softmax as soft
from symattn.attention.streaming.states import SoftmaxState, merge
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.printed_roundings import beyond, fl, of_format, overflow
from symattn.proof.same_bits import InFormats, SameBits

INFINITE = ("float32", "bfloat16", "float16", "float8_e5m2")  # formats with an infinity


FORMAT_LETTERS = Glossary(
    {"x": ""},
    defined={
        "u": of_format(lambda f: f.u),
        "η": of_format(lambda f: f.smallest),
        "e_max": of_format(lambda f: int(f.power_beyond).bit_length() - 2),
        "∞": beyond("inf"),
        "NaN": beyond("nan"),
    },
    families={"fl": fl},
    formats=INFINITE,
)
"""The meanings of the letters of a format."""


def values(x: Array) -> np.ndarray:
    """Return an array of any floating kind as float64."""
    return np.asarray(x.numpy() if hasattr(x, "numpy") else x).astype(np.float64)


# -- scales ------------------------------------------------------------------------------------------------------------
POWERS, OTHERS = (1, 3), 11


def _products(a: Array, b: Array) -> np.ndarray:
    return np.asarray(a * b)


def _exact(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def _scaled_bits(f: Format) -> list[bool]:
    """Return whether c x is exact, and (c x) y = x (c y) = c (x y), c x + c y = c (x + y) in bits, for c = 2^−k."""
    # all numbers of an 8-bit format, or a few spread over all of a wider one
    every = f.numbers()
    some = every if every.size <= 256 else every[:: every.size // (OTHERS - 1)][:OTHERS]
    x, y = f.numbers(), some
    with np.errstate(all="ignore"):
        return [t for k in POWERS for t in _scaled_by(f, x, y, f.cast(2.0**-k))]


def _scaled_by(f: Format, x: np.ndarray, y: np.ndarray, c: np.ndarray) -> list[bool]:
    least = float(f.smallest_normal) / float(_exact(c))
    alone = _stays(x, least)
    a, b = x[alone][:, None], y[_stays(y, least)][None, :]
    products, sums = _products(a, b), np.asarray(a + b)
    p, s = _stays(products, least), _stays(sums, least)
    return [
        bool((_exact(x[alone] * c) == _exact(x[alone]) * float(_exact(c))).all()),
        bool((_products(a * c, b) == products * c)[p].all()),
        bool((_products(a, b * c) == products * c)[p].all()),
        bool((np.asarray(a * c + b * c) == sums * c)[s].all()),
    ]


def _stays(x: np.ndarray, least: float) -> np.ndarray:
    """Return where a number is 0, or has neither overflowed nor underflows when it is scaled."""
    size = abs(_exact(x))
    return np.asarray((size == 0) | (size >= least) & np.isfinite(size))


def _any_scale(f: Format) -> list[bool]:
    """Check that d = 8 and d = 80 give the same bits, with 1/√d rounded to the format."""
    numbers = f.numbers()
    x = numbers[(_exact(numbers) >= 1) & (_exact(numbers) < 2)]
    with np.errstate(all="ignore"):
        scales = [f.cast(d**-0.5) for d in (8, 80)]
        return [bool((_products(x * c, x[-1]) == _products(x, x[-1]) * c).all()) for c in scales]


power_of_two_scale = InFormats(
    NARROW,
    _scaled_bits,
    _any_scale,
    "every number of",
    (
        f"Scaled and unscaled operands were multiplied and added for k = {' and '.join(map(str, POWERS))}: in "
        f"formats of 8 bits every pair, in wider ones every number with {OTHERS} others. Dot products in one and "
        "the same order are made of such operations.",
    ),
)


# -- sums --------------------------------------------------------------------------------------------------------------
def _sum_of_ones(f: Format, n: int) -> int:
    """Return n ones added one at a time."""
    one = f.cast(1.0)[()]
    total = f.cast(0.0)[()]
    for _ in range(n):
        total = f.dtype.type(total + one)
    return int(float(total))


def _stagnates(f: Format) -> list[bool]:
    """Return whether the sum of n ones is n up to 2^p, and 2^p from there on."""
    stop = 2**f.digits
    return [_sum_of_ones(f, n) == min(n, stop) for n in (1, stop - 1, stop, stop + 1, 4 * stop)]


def _errors_cancel(f: Format) -> bool:
    """Return whether the relative error of a sum of n ones is at most √n u, for n = 4 · 2^p."""
    n = 4 * 2**f.digits
    return bool((n - _sum_of_ones(f, n)) * 2**f.digits <= n * isqrt(n))


low_precision_sum = InFormats(
    NARROW,
    _stagnates,
    _errors_cancel,
    argument=("The sums of 2^p − 1, 2^p, 2^p + 1 and 4 · 2^p ones were taken; each later one adds nothing.",),
)


# -- masks -------------------------------------------------------------------------------------------------------------
def _mask_constants(f: Format) -> list[Any]:
    """Check that −10⁹ is −∞ iff it is beyond the threshold, −largest + s iff s ≤ −(half the last step)."""
    every = f.numbers()
    least = f.cast(-float(f.largest))
    with np.errstate(all="ignore"):
        sums = np.asarray(every + least)
    step = float((f.power_beyond - f.largest) / 2)
    return [
        np.isneginf(float(f.cast(-1e9))) == (overflow(f) <= 10**9),
        np.isneginf(_exact(sums)) == (_exact(every) <= -step),
    ]


fp16_mask_constant = InFormats(
    ("float16", "bfloat16", "float8_e5m2"),
    _mask_constants,
    lambda f: np.isfinite(float(f.cast(-1e9))),
    "every number of",
    ("In each format s was every finite number, with that format's largest number for 65504 and its step for 16.",),
)


def _masked_row(f: Format) -> Array:
    """Return a row of scores in which no key is allowed."""
    return forbid(kind(f.name).lift([[0, 1]]), np.zeros((1, 2), dtype=bool))


def _nan_steps(f: Format) -> list[Any]:
    """Check that −∞ − (−∞) is NaN; with the maximum 0, exponentials and sum are 0, and 0/0 is NaN unless guarded."""
    s = _masked_row(f)
    xp = s.__array_namespace__()
    e = exponentials(s)
    return [
        np.isnan(values(s - xp.max(s, axis=-1, keepdims=True))),
        values(row_max(s)) == 0,
        values(xp.sum(e, axis=-1)) == 0,
        np.isnan(values(soft(s))),
        values(soft(s, fully_masked="zeros")) == 0,
    ]


masked_row_nan = InFormats(INFINITE, _nan_steps, lambda f: values(soft(_masked_row(f))) == 0)


# -- merging -----------------------------------------------------------------------------------------------------------
def _states(x: tuple[Array, ...]) -> list[SoftmaxState]:
    return [SoftmaxState(*x[i : i + 3]) for i in (0, 3, 6)]


def _either_way(*x: Array) -> tuple[SoftmaxState, SoftmaxState]:
    """merge(a, b) and merge(b, a)."""
    a, b, _ = _states(x)
    return merge(a, b), merge(b, a)


def _other_bracketing(*x: Array) -> tuple[SoftmaxState, SoftmaxState]:
    """merge(merge(a, b), c) and merge(a, merge(b, c))."""
    a, b, c = _states(x)
    return merge(merge(a, b), c), merge(a, merge(b, c))


merge_commutes = SameBits(9, _either_way, _other_bracketing, tied=(0, 3, 6))
