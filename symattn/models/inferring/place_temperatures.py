"""Temperatures of queries by their places: factors that a run shows, compared with those that fields give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from symattn.attention.temperatures import Temperature, by_place
from symattn.models.auditing.setting import Floats
from symattn.models.inferring import column_sources, inferred_call, tiny_models
from symattn.models.inferring.promised_numbers import expressions

#: Places of the first token: Ministral 3 counts from 0, Llama 4 from 1.
_STARTS = (0, 1)


def settle_temperature(
    facts: inferred_call.CallFacts, runs: Sequence[tuple[int, inferred_call.CallFacts]], config: Any
) -> None:
    """Give a call's facts the temperature whose numbers are fields, and that all runs show.

    ``runs`` are the facts of the same call at other places of the first token. The scale is then what is left of the
    factors. Without such fields the factor stays a form without a field.
    """
    # A model that counts its own tokens shows the same factors wherever a run is said to begin.
    places = [0 if _has_same_factors(one, facts) else first for first, one in runs]
    factors = np.concatenate([_read_factors(one) for _, one in runs])
    for temperature in _yield_temperatures(config, facts.d_k):
        known = np.concatenate([_temperatures_from(temperature, first) for first in places])
        scales = factors / known
        if np.ptp(scales) > column_sources.EQUAL * abs(scales[0]):
            continue
        facts.temperature, facts.scale = temperature, float(scales[0])
        facts.missing = [form for form in facts.missing if form != inferred_call.FACTOR_OF_POSITION]
        return


def _has_same_factors(one: inferred_call.CallFacts, other: inferred_call.CallFacts) -> bool:
    if one.factors is None or other.factors is None:
        return False
    return bool(np.abs(one.factors - other.factors).max() <= column_sources.EQUAL)


def _read_factors(facts: inferred_call.CallFacts) -> Floats:
    """Return the factor of the scores of each token: the scale, times what else multiplies its query."""
    by_token = np.ones(tiny_models.TOKENS) if facts.factors is None else facts.factors
    return np.asarray(facts.scale * by_token)


def _temperatures_from(temperature: Temperature, first: int) -> Floats:
    """Return the temperatures of a run whose first token has this place."""
    later = temperature._replace(start=temperature.start + first)
    return np.asarray(
        by_place(np.zeros((tiny_models.TOKENS, tiny_models.TOKENS)), later), dtype=float
    )


def _yield_temperatures(config: Any, d_k: int) -> Iterator[Temperature]:
    """Yield the temperatures whose numbers are fields of a configuration with such names."""
    named = expressions(config, d_k)
    slopes = [Fraction(str(x)) for x in named["temperature"].values() if x > 0]
    rates = [int(x) for x in named["temperature_rate"].values() if x > 1 and x == int(x)]
    for rate in dict.fromkeys(rates):
        for slope in dict.fromkeys((*slopes, None)):
            for start in _STARTS:
                yield Temperature(slope, rate, start)
