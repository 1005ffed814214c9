"""Rotary frequencies for longer contexts: how ω_l changes when n is s times the length that was trained on.

Every function takes the frequencies (f,) and gives (f,), f half of the columns that are rotated.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import Number, number, numbers, pi
from symattn.attention.positions.rotary import powers_of
from symattn.document.errors import InputError, Undecided


def linear(frequencies: Array, factor: Number) -> Array:
    """ω_l / s, position interpolation. Source: Chen et al., Extending Context Window … (2023), equation 4."""
    return frequencies / number(factor, frequencies)


def ntk_aware(frequencies: Any, factor: Number) -> Any:
    """ω_l s^(−2l/(r−2)): the base is θ s^(r/(r−2)), so that ω_0 stays and the slowest frequency is divided by s.

    Raises InputError for r = 2, whose only frequency is ω_0. Source: bloc97, NTK-Aware Scaled RoPE (2023), as told by
    Peng et al., YaRN (2023), §3.1.
    """
    f = len(frequencies)
    if f < 2:
        raise InputError("NTK-aware scaling of one frequency: the exponent r/(r − 2) is infinite for r = 2 columns")
    return frequencies * powers_of(factor, [Fraction(-pair, f - 1) for pair in range(f)], frequencies)


def dynamic_factor(n: int, length: int, factor: Number) -> Fraction:
    """s n / L − (s − 1) for n > L, else 1: what ``ntk_aware`` is given when n tokens are there and L were trained on.

    Source: emozilla, Dynamically Scaled RoPE (2023), as in Hugging Face Transformers; Peng et al. (2023), §3.3, has
    max(1, n / L) for s.
    """
    s = Fraction(factor)
    return s * Fraction(n, length) - (s - 1) if n > length else Fraction(1)


def by_parts(frequencies: Array, factor: Number, length: int, slow: Number = 1, fast: Number = 32) -> Array:
    """((1 − γ) / s + γ) ω_l with γ = (L ω_l / 2π − α) / (β − α) between 0 and 1.

    A pair that turns β times or more within the trained length L keeps its frequency, one that turns α times or less is
    slowed by s. Source: Peng et al., YaRN (2023), §3.2, α = 1 and β = 32; Llama 3.1 is the same with α = 1 and β = 4.
    """
    turns = frequencies * length / (2 * pi(frequencies))
    low, high = number(slow, frequencies), number(fast, frequencies)
    return _mixed(frequencies, factor, (turns - low) / (high - low))


def by_index(
    frequencies: Any, base: Number, factor: Number, length: int, slow: Number = 1, fast: Number = 32, whole: bool = True
) -> Array:
    """((1 − γ) / s + γ) ω_l with γ falling evenly in l, from 1 where a pair turns β times to 0 where it turns α times.

    A pair of the index r log(L / 2πt) / (2 log θ) turns t times in L positions; ``whole`` rounds the two indices
    outwards to whole numbers. This is YaRN as it is run; its paper writes ``by_parts``, whose ramp is even in the
    number of turns. Source: the implementation of Peng et al. (2023), jquesnelle/yarn, whose issue 60 asks why.
    """
    f = len(frequencies)
    if whole:
        first, last = correction_range(f, base, length, slow, fast)
        falling = numbers([1 - Fraction(pair - first) / (last - first) for pair in range(f)], frequencies)
    else:
        start, end = (_index(f, base, length, turns, frequencies) for turns in (fast, slow))
        xp = namespace_of(frequencies)
        start, end = xp.maximum(start, 0), xp.minimum(end, 2 * f - 1)
        falling = 1 - (numbers(range(f), frequencies) - start) / (end - start)
    return _mixed(frequencies, factor, falling)


@cache
def correction_range(f: int, base: Number, length: int, slow: Number, fast: Number) -> tuple[int, Fraction]:
    """The whole numbers around the indices of the pairs that turn β and α times, kept within 0 and r − 1.

    The second one is a thousandth larger than the first if they are equal, as in the implementations: the ramp is a
    step. The rounding is decided: L / 2πt is transcendental, so no index is a whole number. Balls find the next ones.
    """
    first, last = max(_floor(f, base, length, fast), 0), min(_floor(f, base, length, slow) + 1, 2 * f - 1)
    return first, Fraction(last) if last != first else first + Fraction(1, 1000)


def _floor(f: int, base: Number, length: int, turns: Number) -> int:
    from symattn.arrays.ball import Ball, rising

    def work() -> int:
        floor = _index(f, base, length, turns, Ball.lift(0)).item().floor().unique_fmpz()
        if floor is None:
            raise Undecided(f"the pair that turns {turns} times has an index close to a whole number")
        return int(floor)

    return rising(work)


def _index(f: int, base: Number, length: int, turns: Number, like: Any) -> Any:
    """r log(L / 2πt) / (2 log θ): the index of the pair that turns t times in L positions, which need not be whole."""
    xp = namespace_of(like)
    inside = number(Fraction(length) / Fraction(turns), like) / (2 * pi(like))
    return f * xp.log(inside) / xp.log(number(base, like))


def _mixed(frequencies: Array, factor: Number, share: Array) -> Array:
    """γ of each frequency and 1 − γ of it divided by s, with γ cut to between 0 and 1."""
    xp = namespace_of(frequencies)
    values = xp.minimum(xp.maximum(share, 0), 1)
    return ((1 - values) / number(factor, frequencies) + values) * frequencies


def proportional(frequencies: Any, share: Number) -> Any:
    """ω_l for the first ⌊share · f⌋ pairs and 0 for the others, which do not turn.

    Source: Barbero et al., Round and Round We Go! What Makes Rotary Positional Encodings Useful? (2025), p-RoPE.
    """
    f = len(frequencies)
    value = int(Fraction(share) * f)
    return frequencies * numbers([int(pair < value) for pair in range(f)], frequencies)


def longrope(frequencies: Any, factors: Sequence[Number]) -> Any:
    """ω_l / λ_l for a factor λ_l of each pair. Source: Ding et al., LongRoPE (2024), §2."""
    if len(factors) != len(frequencies):
        raise InputError(f"LongRoPE needs a factor for each of {len(frequencies)} pairs; {len(factors)} were given")
    return frequencies / numbers(factors, frequencies)


def yarn_magnitude(factor: Number, like: Array, weight: Number = 1) -> Array:
    """m = 1 + w log(s) / 10 for s > 1, else 1: what cosines and sines are multiplied by, so that scores are by m².

    Source: Peng et al., YaRN (2023), §3.4, with m = √(1/t); the weight w is ``mscale`` of DeepSeek-V2.
    """
    if Fraction(factor) <= 1:
        return number(1, like)
    return 1 + namespace_of(like).log(number(factor, like)) * number(Fraction(weight) / 10, like)


def longrope_magnitude(factor: Number, length: int, like: Array) -> Array:
    """√(1 + log s / log L) for s > 1, else 1. Source: Abdin et al., Phi-3 (2024), its code."""
    if Fraction(factor) <= 1:
        return number(1, like)
    xp = namespace_of(like)
    return xp.sqrt(1 + xp.log(number(factor, like)) / xp.log(number(length, like)))
