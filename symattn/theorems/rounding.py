"""Rounding: thresholds, masks, sums and scales in number formats; bounds of errors."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays import kind
from symattn.arrays.array import Array, Functions
from symattn.arrays.formats import NARROW, Format
from symattn.attention.softmax import exponentials, row_max
from symattn.attention.softmax import softmax as soft
from symattn.document.formulas import formula
from symattn.document.notation import Decimal
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.printed_roundings import fl, overflow
from symattn.proof.same_bits import InFormats
from symattn.proof.together import Together, above_zero, bound
from symattn.theorems import rounding_formats
from symattn.theorems.letters import exp, side_by_side, weights
from symattn.theorems.rounding_formats import FORMAT_LETTERS, INFINITE, values
from symattn.theorems.streaming import STATE_LETTERS, named_state
from symattn.theorems.texts import of_file

KEPT = (*INFINITE, "float8_e4m3fn")
PLACES = 6


# -- numbers in the statements -----------------------------------------------------------------------------------------
def _log(x: Fraction) -> Any:
    """Return log x as an Arb ball."""
    from symattn.arrays.ball import Ball

    return Ball.function("log", Ball.scalar(x))


def nearest(of: Callable[[], Any], places: int = PLACES) -> Decimal:
    """Return the number that ``of`` encloses, correctly rounded to ``places`` places."""
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

exp_overflow_threshold = Together(
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


underflow_threshold = InFormats(
    KEPT,
    _underflows,
    lambda f: values(soft(kind(f.name).lift([[0, -110]]))) > 0,
    argument=(
        "What is at the threshold and just above it was rounded, and Arb balls show on which side the exponentials "
        "of the two numbers next to its logarithm lie. Rounding and the exponential grow: that decides all others.",
    ),
)


# -- saturation --------------------------------------------------------------------------------------------------------
_LAST_DIGIT = Fraction(1, 2 * 10**PLACES)  # half a unit of it


def _off(xp: Functions) -> Array:
    """Return the gap for two keys, log(2/u) in float32, minus the printed number."""
    return -xp.log(xp.asarray(Format("float32").u / 2)) - Fraction(LOG_OF_HALF_U.digits)


def _eighteen_is_not_enough(xp: Functions) -> Array:
    """Return 1 − u/2 minus the weight of the larger of two scores with the gap 18, which is below 88."""
    return 1 - Format("float32").u / 2 - 1 / (1 + xp.exp(xp.asarray(-18)))


def _largest_weight(reader: Any) -> Any:
    """Return the weight of a score 0 among others that are at most −Δ."""
    s = -reader.array("Δ") - reader.array("t")
    return weights(side_by_side(0 * s[:1], s))[0]


LOG_OF_HALF_U = nearest(lambda: -_log(Format("float32").u / 2))
printed_digits = Together(
    (
        above_zero({}, lambda xp: _LAST_DIGIT + _off(xp), _eighteen_is_not_enough),
        above_zero({}, lambda xp: _LAST_DIGIT - _off(xp), _eighteen_is_not_enough),
    )
)


TWO_TO_P = formula("2^p", {})
LARGEST_HALF = Format("float16").largest
HALF_STEP = (Format("float16").power_beyond - LARGEST_HALF) / 2
NUMBERS = {f"sum_{n}": 2 ** Format(n).digits for n in NARROW} | {
    f"{word}_{n}": nearest(partial(_log, threshold(Format(n))))
    for word, threshold in (("overflow", overflow), ("underflow", underflow))
    for n in ("float32", "bfloat16", "float16")
}


THEOREMS = of_file(
    "rounding",
    {
        "": FORMAT_LETTERS,
        "rounded": Glossary(families={"fl": fl}),
        "underflow-threshold": FORMAT_LETTERS.also(formats=KEPT),
        "largest": FORMAT_LETTERS.also(defined={"p_max": _largest_weight}),
        "low-precision-sum-stagnates": None,
        "fp16-mask-constant": FORMAT_LETTERS.also({"s": ""}, formats=("float16",)),
        "masked-row-nan": FORMAT_LETTERS.also(
            {"x": "n_k"},
            index={"j": "n_k"},
            defined={"s": lambda reader: 0 * reader.array("x") - reader.letter("∞").array},
        ),
        "merge-rounding-commutes": STATE_LETTERS.also(
            defined={letter: named_state(i) for i, letter in enumerate("abc")},
            families={"fl": fl},
            alike=None,
            formats=("float32", "float16", "bfloat16"),
        ),
    },
    vars(rounding_formats) | globals() | NUMBERS,
)
