"""Temperatures of queries by their places: factors that grow with the logarithm of the place.

>>> import numpy as np
>>> by_place(np.zeros((4, 4)), Temperature(Fraction(1, 2), 2)).ravel().round(3)
array([1.   , 1.347, 1.347, 1.549])
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import made_wide, number, numbers

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


class Temperature(NamedTuple):
    """The numbers of a temperature: β, None for ``log``; the rate f; the place of the first token; the alignment."""

    slope: Fraction | None
    rate: int
    start: int = 1
    alignment: str = "bottom-right"

    def places(self, n_q: int, n_k: int) -> list[int]:
        """Return p_i = i + o + ``start`` of every query; places before the first key count as 0."""
        first = self.start + (0 if self.alignment == "top-left" else n_k - n_q)
        return [max(first + i, 0) for i in range(n_q)]

    def counts(self, n_q: int, n_k: int) -> tuple[Fraction, ...]:
        """Return c_i, with whose logarithm the temperature of query i grows.

        c_i = ⌊p_i/f⌋ + 1 for a slope β; c_i = max(1, p_i/f) for ``log``.
        """
        places = self.places(n_q, n_k)
        if self.slope is None:
            return tuple(Fraction(max(p, self.rate), self.rate) for p in places)
        return tuple(Fraction(p // self.rate + 1) for p in places)


def temperature_of(spec: Attention) -> Temperature:
    """Return the temperature of a specification that has one."""
    # 0.1 is meant to be 1/10.
    slope = None if spec.temperature == "log" else Fraction(str(spec.temperature))
    return Temperature(slope, spec.temperature_rate, spec.temperature_start, spec.alignment)


def counts_places_from_last_key(spec: Attention) -> bool:
    """Return whether the last query has the temperature of the last key's place, so that n_q ≤ n_k is needed."""
    return spec.temperature is not None and spec.alignment == "bottom-right"


def least_tokens_of_temperatures(spec: Attention) -> int:
    """Return the least number of tokens at which a temperature differs from 1; 0 without temperatures."""
    if spec.temperature is None:
        return 0
    # For ``log`` the temperature of the place f is still 1.
    least = spec.temperature_rate + (spec.temperature == "log")
    return max(least + 1 - spec.temperature_start, 1)


def by_place(s: Array, temperature: Temperature) -> Any:
    """Return τ_i for the scores of every query, as elements of their kind: 1 + β log c_i, or 1 + log c_i/log f.

    The latter is max(1, log p_i/log f). Shapes: s (…, n_q, n_k) → (n_q,). Residues have the numbers that float64 has.

    Source: Meta, Llama 4 (2025), with β = 0.1, f = 8192, after Nakanishi, Scalable-Softmax Is Superior for Attention
    (2025); Bai et al., Qwen (2023), §2.3, "LogN-scaling", with f the length of training.
    """
    n_q, n_k = s.shape[-2:]
    # Lengths in letters are refused here.
    of_places = temperature.counts(int(n_q), int(n_k))
    kind = getattr(namespace_of(s), "kind", None)
    # A logarithm of residues is no number by which scores could be multiplied.
    if "modular" in getattr(kind, "name", ""):
        floats = by_place(np.zeros((n_q, n_k)), temperature)
        return namespace_of(s).asarray(floats, dtype=s.dtype)
    return made_wide(lambda wide: _temperatures_of_counts(of_places, temperature, wide), s)


def _temperatures_of_counts(
    of_places: tuple[Fraction, ...], temperature: Temperature, like: Any
) -> Any:
    xp = namespace_of(like)
    # A temperature of 1 has no logarithm, so that kinds without logarithms can hold it.
    known = {Fraction(1): number(1, like)}
    above = [c for c in dict.fromkeys(of_places) if c != 1]
    if above:
        logarithms = xp.log(numbers(above, like))
        slope = (
            1 / xp.log(number(temperature.rate, like))
            if temperature.slope is None
            else number(temperature.slope, like)
        )
        known |= dict(zip(above, _rows(logarithms * slope + number(1, like)), strict=True))
    return xp.stack([known[c] for c in of_places])


def _rows(x: Any) -> Iterator[Any]:
    return (x[i] for i in range(x.shape[0]))


def tempered(s: Array, tau: Array) -> Array:
    """τ_i s_ij. Shapes: s (…, n_q, n_k), tau (n_q,)."""
    return s * tau[:, None]
