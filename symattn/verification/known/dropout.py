"""Mistakes in dropout."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import softmax
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Mistake,
    final,
    in_inputs,
    in_steps,
    number,
    own,
    weights,
)
from symattn.verification.reference import Values


def _rate(spec: Attention) -> Fraction:
    return Fraction(str(spec.dropout))


def dropped(power: int, spec: Attention, values: Values) -> Any:
    """What is kept, times (1 − r)^p."""
    a = own(spec, values, "dropped")
    factor = number(a, (1 - _rate(spec)) ** (1 + power))
    return a * factor


def by_rate(spec: Attention, values: Values) -> Any:
    """What is kept, over r."""
    a = own(spec, values, "dropped")
    return a * number(a, (1 - _rate(spec)) / _rate(spec))


def renormalised(spec: Attention, values: Values) -> Any:
    """What is kept, normalised again."""
    a = own(spec, values, "dropped")
    return softmax.normalise(a)


def not_dropped(spec: Attention, values: Values) -> Any:
    """All weights are kept."""
    return before(spec, values)


def before(spec: Attention, values: Values) -> Any:
    """The weights before dropout."""
    return values["weights"] * 1


def dropped_scores(spec: Attention, values: Values) -> Any:
    """Dropout of the scores, before the softmax."""
    s = final(spec, values)
    xp = namespace_of(s)
    finite = own(spec, values, "dropped", xp.where(xp.isfinite(s), s, 0))
    return weights(spec, values, xp.where(xp.isfinite(s), finite, s))


def _drops(spec: Attention) -> bool:
    return bool(spec.dropout)


def of_output(spec: Attention, values: Values) -> Any:
    """The output with as many of its columns dropped."""
    o = own(spec, values, "output")
    keep = np.asarray(values["drop"])[..., : int(o.shape[-1])]
    if keep.shape[-1] < int(o.shape[-1]) or int(values["weights"].shape[-2]) != int(o.shape[-2]):
        raise KeyError("there are too few numbers to drop by")
    xp = namespace_of(o)
    return xp.where(keep, o, 0) / number(o, 1 - _rate(spec))


MISTAKES: tuple[Mistake, ...] = (
    in_steps("dropout", "what is kept is not scaled by 1/(1 − r)", _drops, dropped=partial(dropped, 0)),
    in_steps("dropout", "what is kept is multiplied by 1 − r, not divided", _drops, dropped=partial(dropped, 1)),
    in_steps("dropout", "what is kept is divided by 1 − r twice", _drops, dropped=partial(dropped, -2)),
    in_steps("dropout", "what is kept is divided by the rate r", _drops, dropped=by_rate),
    in_steps("dropout", "what is kept is normalised again", _drops, dropped=renormalised),
    in_steps("dropout", "dropout is left out", _drops, dropped=not_dropped),
    in_inputs(
        "dropout", "what should be kept is dropped: the mask of dropout is inverted", _drops, drop=lambda spec, a: ~a
    ),
    in_steps("dropout", "scores are dropped, not weights", _drops, weights=dropped_scores, dropped=not_dropped),
    in_steps(
        "dropout", "columns of the output are dropped, not weights", _drops, dropped=not_dropped, output=of_output
    ),
)
