"""Mistakes in the temperatures of queries: left out, of other places, other functions of the place, at another step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import log
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.spec import Attention
from symattn.attention.temperatures import Temperature, by_place, temperature_of
from symattn.bounds.mistake import At, Mistake, Wrong, in_fields, in_steps
from symattn.verification.rules.steps import left_out

#: Temperatures from the places of queries, as float64.
Function = Callable[[Temperature, np.ndarray], Any]


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes in the temperatures of a specification that has them."""
    yield in_steps("score", "the temperatures of queries are left out", tempered=left_out)
    # Places count from 0 in some models and from 1 in others.
    for words, off in (("large", 1), ("small", -1)):
        words = f"the temperatures' places are one too {words}"
        yield in_steps("score", words, tau=partial(_of_other_places, off))
    words = "the temperatures' places take the other alignment of queries and keys"
    yield in_steps("score", words, tau=_of_other_alignment)
    for words, place in (("last", -1), ("first", 0)):
        words = f"the temperature of the {words} query is used for all"
        yield in_steps("score", words, tau=partial(_of_one_query, place))
    functions = _OF_LOGARITHM if spec.temperature == "log" else _OF_SLOPE
    for words, function in functions.items():
        yield in_steps("score", words, tau=partial(_of_function, function))
    for words, wrong in _ELSEWHERE.items():
        yield in_steps("score", words, tempered=wrong)
    # Such weights do not sum to 1, hence the False.
    words = "weights are multiplied by the temperatures, not scores"
    yield in_steps("score", words, False, tempered=left_out, weights=_times_weights)
    for words, rate in _other_rates(spec):
        yield in_fields("score", f"the rate of the temperatures is {words}", temperature_rate=rate)


def _other_rates(spec: Attention) -> Iterator[tuple[str, int]]:
    f, least = spec.temperature_rate, 2 if spec.temperature == "log" else 1
    half = "f/2" if f % 2 == 0 else "⌊f/2⌋"
    rates = {"f + 1": f + 1, "f − 1": f - 1, "2f": 2 * f, half: f // 2}
    yield from ((words, rate) for words, rate in rates.items() if rate >= least)


# -- places ------------------------------------------------------------------------------------------------------------
def _temperatures(at: At, temperature: Temperature) -> Any:
    return by_place(at.first, temperature)


def _of_other_places(off: int, at: At) -> Any:
    right = temperature_of(at.spec)
    return _temperatures(at, right._replace(start=right.start + off))


def _of_other_alignment(at: At) -> Any:
    right = temperature_of(at.spec)
    other = "bottom-right" if right.alignment == "top-left" else "top-left"
    return _temperatures(at, right._replace(alignment=other))


def _of_one_query(place: int, at: At) -> Any:
    right = at.right()
    return right * 0 + right[place]


# -- functions of the place --------------------------------------------------------------------------------------------
def _of_function(function: Function, at: At) -> Any:
    """Return temperatures that are another function of the places, from float64."""
    right, (n_q, n_k) = temperature_of(at.spec), at.first.shape[-2:]
    places = np.array(right.places(n_q, n_k))
    floats = np.asarray(function(right, places), dtype=np.float64)
    return namespace_of(at.first).asarray(floats, dtype=at.first.dtype)


def _slope(t: Temperature) -> float:
    return float(t.slope or 0)


def _whole(t: Temperature, p: np.ndarray) -> Any:
    return p // t.rate


#: Functions that stand for 1 + β log(⌊p/f⌋ + 1), with words.
_OF_SLOPE: dict[str, Function] = {
    "the temperatures are β log(⌊p/f⌋ + 1): 1 is not added": lambda t, p: (
        _slope(t) * np.log(_whole(t, p) + 1.0)
    ),
    "the temperatures are 1 + log(⌊p/f⌋ + 1): the factor β is left out": lambda t, p: (
        1 + np.log(_whole(t, p) + 1.0)
    ),
    "the temperatures are 1 + β log max(1, ⌊p/f⌋): 1 is not added within the logarithm": lambda t, p: (
        1 + _slope(t) * np.log(np.maximum(_whole(t, p), 1.0))
    ),
    "the temperatures are 1 + β log(p/f + 1): the quotient is not rounded down": lambda t, p: (
        1 + _slope(t) * np.log(p / t.rate + 1)
    ),
    "the temperatures are 1 + β log(⌈p/f⌉ + 1): the quotient is rounded up": lambda t, p: (
        1 + _slope(t) * np.log(np.ceil(p / t.rate) + 1)
    ),
    "the temperatures are 1 + β ⌊p/f⌋: the logarithm is left out": lambda t, p: (
        1 + _slope(t) * _whole(t, p)
    ),
    "the temperatures are 1 + β log₂(⌊p/f⌋ + 1): the logarithm has the base 2": lambda t, p: (
        1 + _slope(t) * np.log2(_whole(t, p) + 1.0)
    ),
    "the temperatures are 1 + β log₁₀(⌊p/f⌋ + 1): the logarithm has the base 10": lambda t, p: (
        1 + _slope(t) * np.log10(_whole(t, p) + 1.0)
    ),
}
#: Functions that stand for max(1, log p/log f), with words.
_OF_LOGARITHM: dict[str, Function] = {
    "the temperatures are log p/log f also where p is below f: they are not at least 1": lambda t, p: (
        np.log(np.maximum(p, 1.0)) / log(t.rate)
    ),
    "the temperatures are max(1, log p): they are not divided by log f": lambda t, p: np.maximum(
        1.0, np.log(np.maximum(p, 1.0))
    ),
    "the temperatures are max(1, p/f): the logarithms are left out": lambda t, p: np.maximum(
        1.0, p / t.rate
    ),
    "the temperatures are max(1, log₂ p/log f): the bases of the logarithms differ": lambda t, p: (
        np.maximum(1.0, np.log2(np.maximum(p, 1.0)) / log(t.rate))
    ),
    "the temperatures are min(1, log p/log f)": lambda t, p: np.minimum(
        1.0, np.log(np.maximum(p, 1.0)) / log(t.rate)
    ),
}


def by_slope(x: float, at: At) -> Any:
    """Return temperatures with another slope β."""
    return _of_function(lambda t, p: 1 + x * np.log(_whole(t, p) + 1.0), at)


# -- other steps -------------------------------------------------------------------------------------------------------
def _of_keys(at: At) -> Any:
    """Return the temperatures of the keys by their places: (n_k,)."""
    n_k = int(at.first.shape[-1])
    square = namespace_of(at.first).zeros((n_k, n_k), dtype=at.first.dtype)
    return by_place(square, temperature_of(at.spec))


def _times_weights(at: At) -> Any:
    return at.right() * at.values["tau"][:, None]


_ELSEWHERE: dict[str, Wrong] = {
    "scores are divided by the temperatures of queries": lambda at: (
        at.first / at.values["tau"][:, None]
    ),
    "scores are multiplied twice by the temperatures of queries": lambda at: at.right(at.right()),
    "the temperatures are those of the keys' places, not of the queries'": lambda at: (
        at.first * _of_keys(at)
    ),
    "keys have temperatures as queries have": lambda at: at.right() * _of_keys(at),
}
