"""Rounding: thresholds, masks, sums and scales in number formats; bounds of errors are in ``rounding_bounds``."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays import kind
from symattn.arrays.array import Array, Functions
from symattn.arrays.formats import Format
from symattn.attention.softmax import exponentials, row_max
from symattn.attention.softmax import softmax as soft
from symattn.document.notation import Decimal
from symattn.document.text import text
from symattn.proof.enclosure import EnclosedOverBox
from symattn.proof.listed import InFormats
from symattn.proof.relations.rounding import overflow
from symattn.proof.theorem import state
from symattn.proof.together import Together, bound
from symattn.theorems.rounding_bounds import TOPIC
from symattn.theorems.rounding_formats import FORMAT_LETTERS, INFINITE, NEAREST, values
from symattn.theorems.sums import add_up, beside, exp, weight_beside, weights

KEPT = (*INFINITE, "float8_e4m3fn")
PLACES = 6


# -- numbers in the statements -----------------------------------------------------------------------------------------
def _log(x: Fraction) -> Any:
    """log x as an Arb ball."""
    from symattn.arrays.ball import Ball

    return Ball.function("log", Ball.scalar(x))


def nearest(of: Callable[[], Any], places: int = PLACES) -> Decimal:
    """The number that ``of`` encloses, correctly rounded to so many places."""
    from symattn.arrays.ball import Ball, rising
    from symattn.document.errors import Undecided

    def digits() -> int:
        units = (of() * 10**places + Ball.scalar(Fraction(1, 2))).floor().unique_fmpz()
        if units is None:
            raise Undecided("the last digit")
        return int(units)

    units = rising(digits)
    whole, rest = divmod(abs(units), 10**places)
    return Decimal(f"{'-' if units < 0 else ''}{whole}.{rest:0{places}d}")


def underflow(f: Format) -> Fraction:
    """Half the smallest positive number."""
    return f.smallest / 2


def _listed(threshold: Callable[[Format], Fraction], names: tuple[str, ...]) -> str:
    """log of the threshold ≈ 88.722839 in float32, …"""
    return ", ".join(f"${text(nearest(partial(_log, threshold(Format(n)))))}$ in {n}" for n in names)


def _between_neighbours(f: Format, threshold: Fraction) -> bool:
    """Return whether e^x crosses the threshold between two neighbouring numbers of the format."""
    from symattn.arrays.ball import Ball

    low, high = f.neighbours(float(_log(threshold).mid()))
    below, above = (Ball.function("exp", Ball.scalar(Fraction(x))) for x in (low, high))
    return bool(below < Ball.scalar(threshold)) and bool(above > Ball.scalar(threshold))


# -- overflow and underflow --------------------------------------------------------------------------------------------
def _overflows(f: Format) -> list[bool]:
    """Check that numbers at the threshold become infinite, and those just below the largest number."""
    t = overflow(f)
    below = np.nextafter(f.wider(t), f.wider(0))
    scores = [[float(f.largest), 1, -float(f.largest)], [-1, -2, -3]]
    return [
        f.power_beyond - t == t - f.largest,
        float(f.cast(float(t))) == np.inf,
        float(f.cast(below)) == float(f.largest),
        _between_neighbours(f, t),
        bool((values(exponentials(kind(f.name).lift(scores))) <= 1).all()),
    ]


_NEVER_ABOVE_ONE = bound(
    {"s": "n m"},
    lambda s: (exponentials(s), 1),
    lambda below: exp(-below) * (exp(below) - 1),
    assumed={"below": ("n m", lambda s: row_max(s) - s)},
)

exp_overflow_threshold = state(
    "exp-overflow-threshold",
    TOPIC,
    "$fl(e^x) = ∞$ iff $e^x ≥ (2 − u) 2^{e_max}$, that is from x ≈ "
    + _listed(overflow, ("float32", "bfloat16", "float16"))
    + "; after the row's maximum is subtracted, never",
    Together(
        (
            _NEVER_ABOVE_ONE,
            InFormats(
                INFINITE,
                _overflows,
                lambda f: np.isfinite(values(soft(kind(f.name).lift([[20, 0]]), stabilised=False))),
                argument=(
                    "The threshold is midway between the largest number and the power of two beyond it; what is there "
                    "and just below it was rounded, and Arb balls show on which side the exponentials of the two "
                    "numbers next to its logarithm lie. Rounding and the exponential grow, which decides all others.",
                ),
            ),
        ),
    ),
    "folklore",
    "scores up to 20 are safe in float16 without the maximum",
    "A tie goes to the even neighbour, which here is the power of two that the format lacks.",
    (f"{NEAREST}; fl is the correctly rounded value, and u the unit roundoff of the format",),
    FORMAT_LETTERS,
)


def _underflows(f: Format) -> list[bool]:
    """Check that numbers at the threshold become 0, and those just above it the smallest number."""
    t = underflow(f)
    above = np.nextafter(f.wider(t), f.wider(1))
    return [
        float(f.cast(float(t))) == 0,
        float(f.cast(above)) == float(f.smallest),
        _between_neighbours(f, t),
    ]


underflow_threshold = state(
    "underflow-threshold",
    TOPIC,
    "$fl(e^x) = 0$ iff $e^x ≤ η/2$ with the smallest positive number $η$, that is up to x ≈ "
    + _listed(underflow, ("float32", "bfloat16", "float16"))
    + "; a key so far below the maximum has the weight 0",
    InFormats(
        KEPT,
        _underflows,
        lambda f: values(soft(kind(f.name).lift([[0, -110]]))) > 0,
        argument=(
            "What is at the threshold and just above it was rounded, and Arb balls show on which side the exponentials "
            "of the two numbers next to its logarithm lie. Rounding and the exponential grow: that decides all others.",
        ),
    ),
    "folklore",
    "computed softmax weights are positive",
    "A tie goes to the even neighbour, and that is 0.",
    (f"{NEAREST}; subnormal numbers are kept, not flushed to 0; fl is the correctly rounded value",),
    FORMAT_LETTERS.also(formats=KEPT),
)


# -- saturation --------------------------------------------------------------------------------------------------------
SATURATED = {"top": "n 1", "delta": "n 1", "u": "n r", "half": ""}


def _saturation_gap(delta: Any, more: Any, room: Any) -> Any:
    rest = add_up(exp(-delta - more))
    return room + add_up(exp(-delta - more) * (exp(more) - 1)) + rest * rest / (1 + rest)


def _gap_of_two(xp: Functions) -> Array:
    """log(2/u) in float32."""
    return -xp.log(xp.asarray(Format("float32").u / 2))


def _gap_is_more(xp: Functions) -> Array:
    """The gap for two keys is larger than what is printed, less half a unit of its last digit."""
    return _gap_of_two(xp) - (Fraction(_LOG_OF_HALF_U.digits) - Fraction(1, 2 * 10**PLACES))


def _gap_is_less(xp: Functions) -> Array:
    """It is smaller than what is printed and half such a unit."""
    return Fraction(_LOG_OF_HALF_U.digits) + Fraction(1, 2 * 10**PLACES) - _gap_of_two(xp)


def _eighteen_is_not_enough(xp: Functions) -> Array:
    """1 − u/2 less the weight of the larger of two scores with the gap 18, which is below 88."""
    return 1 - Format("float32").u / 2 - 1 / (1 + xp.exp(xp.asarray(-18)))


def _largest_weight(reader: Any) -> Any:
    """The weight of a score 0 beside others that are no more than −Δ."""
    s = -reader.array("Δ") - reader.array("t")
    return weights(beside(0 * s[:1], s))[0]


_LOG_OF_HALF_U = nearest(lambda: -_log(Format("float32").u / 2))
one_hot_saturation = state(
    "one-hot-saturation",
    TOPIC,
    f"$fl(p_max) = 1$ for $Δ ≥ log(2/u) + log(n_k − 1)$, a gap of ≈ ${_LOG_OF_HALF_U.digits}$ for two keys in float32;"
" then p (1 − p), computed from it, is 0",
    Together(
        (
            bound(
                SATURATED,
                lambda top, delta, u, half: (1 - half, weight_beside(top, top - delta - u)),
                _saturation_gap,
                assumed={
                    "more": ("n r", lambda u: u),
                    "room": ("n 1", lambda delta, half, r: half - r * exp(-delta)),
                },
                chosen={
                    "u": lambda u: u * u,
                    "half": lambda delta, r: (r * exp(-delta)).max(),
                },
            ),
            EnclosedOverBox(_gap_is_more, {}, _eighteen_is_not_enough),
            EnclosedOverBox(_gap_is_less, {}, _eighteen_is_not_enough),
        ),
        (
            "With half = u/2 the hypothesis is that (n_k − 1) e^{−Δ} ≤ u/2, and then p is between 1 − u/2 and 1. The "
            "number next to 1 is 1 − u, and the tie at 1 − u/2 goes to 1, which is even; and 1 · (1 − 1) is 0.",
        ),
    ),
    "folklore",
    "a gap of 88 is needed",
    "The other keys together get less than half of the distance from 1 to the number below it.",
    ("Δ is the gap between the largest score and all others; p is correctly rounded, ties to even",),
    FORMAT_LETTERS.also(
        {"Δ": "", "t": "r"},
        sizes={"n_k": "1+r"},
        nonnegative=("t",),
        defined={"p_max": _largest_weight},
    ),
)  # fmt: skip
