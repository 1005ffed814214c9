"""Mistakes in linear biases."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import made_wide, power
from symattn.attention.positions import alibi, relative, rotary
from symattn.attention.positions.fields import Alibi
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Mistake,
    before,
    in_inputs,
    in_steps,
    number,
    own,
    position_is,
    shape,
    step,
)
from symattn.verification.reference import Values


def _slopes(make: Callable[[int, Any], Any], spec: Attention, values: Values) -> Any:
    like = values[step(spec, values, "slopes").of[0]]
    return make(spec.heads, like)


def _exponents(*of: Fraction, like: Any) -> Any:
    return made_wide(lambda wide: rotary.powers_of(2, [-e for e in of], wide), like)


def geometric(heads: int, like: Any) -> Any:
    """2^(−8t/h) for any number of heads."""
    return _exponents(*(Fraction(8 * (t + 1), heads) for t in range(heads)), like=like)


def from_one(heads: int, like: Any) -> Any:
    """The slopes of the head before: the first one is 1."""
    first = alibi.slope_exponents(heads)[0]
    return _exponents(*(e - first for e in alibi.slope_exponents(heads)), like=like)


def by_whole(heads: int, like: Any) -> Any:
    """2^(−1), 2^(−2), … whatever the number of heads is."""
    return _exponents(*(Fraction(t + 1) for t in range(heads)), like=like)


def of_next_power(heads: int, like: Any) -> Any:
    """The slopes of the next power of two, as many as there are heads."""
    m = 1 << (heads - 1).bit_length()
    return _exponents(*(Fraction(8 * (t + 1), m) for t in range(heads)), like=like)


def of_base_e(heads: int, like: Any) -> Any:
    """e^(−8t/h) in place of 2^(−8t/h)."""
    xp = namespace_of(like)
    exponents = [power(2, Fraction(0), like) * 0 + number(like, -e) for e in alibi.slope_exponents(heads)]
    return xp.exp(xp.stack(exponents))


def backwards(heads: int, like: Any) -> Any:
    """The slopes of the heads in the opposite order."""
    return _exponents(*alibi.slope_exponents(heads)[::-1], like=like)


def first_for_all(heads: int, like: Any) -> Any:
    """The first head's slope for all."""
    return _exponents(*(alibi.slope_exponents(heads)[:1] * heads), like=like)


def alibi_by(factor: Any, spec: Attention, values: Values) -> Any:
    """The bias times a number."""
    s = before(spec, values, "positioned")
    return s + (own(spec, values, "positioned") - s) * number(s, factor)


def placed_before_scale(spec: Attention, values: Values) -> Any:
    """Scores with their bias, scaled together."""
    s = before(spec, values, "positioned")
    return s + own(spec, values, "scaled", own(spec, values, "positioned") - s)


def alibi_from_other_corner(spec: Attention, values: Values) -> Any:
    """Distances as if the first tokens stood together, or the last ones."""
    asked = spec.position
    assert isinstance(asked, Alibi)
    where = "bottom-right" if spec.alignment == "top-left" else "top-left"
    return alibi.biased(before(spec, values, "positioned"), values["slopes"], True, where)


def alibi_by_squares(spec: Attention, values: Values) -> Any:
    """Squares of distances."""
    s = before(spec, values, "positioned")
    xp, m = namespace_of(s), values["slopes"]
    n_q, n_k = shape(values)[-2:]
    far = relative.ahead(n_q, n_k, s, spec.alignment)
    return s - (m[:, None, None] if spec.heads > 1 else m[:, None]) * xp.astype(far * far, s.dtype)


def _slope(words: str, make: Callable[[int, Any], Any]) -> Mistake:
    return in_steps("bias", words, position_is(Alibi, slopes="computed"), slopes=partial(_slopes, make))


MISTAKES: tuple[Mistake, ...] = (
    _slope("slopes are 2^(−8t/h) for any number of heads, not those of powers of two", geometric),
    _slope("slopes begin with 1: they are those of the head before", from_one),
    _slope("slopes are 1/2, 1/4, … whatever the number of heads is", by_whole),
    _slope("slopes are those of the next power of two of heads", of_next_power),
    _slope("slopes are powers of e, not of 2", of_base_e),
    _slope("slopes are those of another head: heads are in the opposite order", backwards),
    _slope("the first head's slope is taken for all", first_for_all),
    in_inputs(
        "bias",
        "slopes are those of another head: heads are in the opposite order",
        position_is(Alibi, slopes="given"),
        slopes=lambda spec, a: a[::-1],
    ),
    in_inputs(
        "bias",
        "slopes are those of the next head",
        position_is(Alibi, slopes="given"),
        slopes=lambda spec, a: np.roll(a, -1),
    ),
    in_inputs(
        "bias",
        "the first head's slope is taken for all",
        position_is(Alibi, slopes="given"),
        slopes=lambda spec, a: np.full_like(a, a[0]),
    ),
    in_steps(
        "bias",
        "the sign of the linear bias is flipped: far keys are favoured",
        position_is(Alibi),
        positioned=partial(alibi_by, -1),
    ),
    in_steps(
        "bias",
        "the linear bias comes before the scale, and is scaled too",
        position_is(Alibi),
        positioned=placed_before_scale,
    ),
    in_steps("bias", "the linear bias counts twice", position_is(Alibi), positioned=partial(alibi_by, 2)),
    in_steps("bias", "the linear bias is left out", position_is(Alibi), positioned=partial(alibi_by, 0)),
    in_steps(
        "bias", "distances are counted from the other corner", position_is(Alibi), positioned=alibi_from_other_corner
    ),
    in_steps("bias", "linear biases go by the square of the distance", position_is(Alibi), positioned=alibi_by_squares),
)
