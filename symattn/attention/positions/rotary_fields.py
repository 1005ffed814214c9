"""Scalings of rotary frequencies for longer contexts: how ω_l, and cosines and sines, change if n is s times the length
L of training. There are f frequencies, half as many as rotated columns.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache
from typing import Any, Literal, TypeAlias

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import Number, number, numbers, pi
from symattn.attention.fields import Described, check, finite, refusal
from symattn.attention.positions.rotary import powers_of
from symattn.document.errors import InputError, Undecided
from symattn.document.notation import WrittenNumber


class _Scaling(Described):
    """A scaling; by default it does not depend on the number of positions, and queries and keys keep their length."""

    least = 2  # the smallest number of rotated columns

    @property
    def by_length(self) -> bool:
        """Return whether frequencies depend on the number of positions."""
        return False

    def magnitude(self, like: Array) -> Array:
        """Return the factor of cosines and sines."""
        return number(1, like)

    @property
    def multiplier(self) -> str:
        """The factor of cosines and sines as the text of a formula; "" if it is 1."""
        return ""

    @property
    def numbers(self: Any) -> dict[str, Fraction]:
        """The fields that are numbers; formulas refer to them as ``@factor``."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: WrittenNumber(x) for name, x in values.items() if finite(x)}


def _write_tenth_of_log(weight: Number) -> str:
    """Return w log(s)/10 as the text of a formula."""
    written = WrittenNumber(weight).typed
    # A decimal stays as it was written, as 10 divided by it would have other digits.
    if "." in written:
        return f"{written} log(@factor)/10"
    return f"log(@factor)/{{{10 / Fraction(weight)}}}"


def _check_numbers(spec: object, *fields: str) -> None:
    """Raise InputError unless the fields are finite numbers above 0."""
    for field in fields:
        value = getattr(spec, field)
        if not finite(value) or value <= 0:
            raise refusal(spec, field, "be a finite number above 0")


@dataclass(frozen=True, kw_only=True, repr=False)
class LinearScaling(_Scaling):
    """Divide the frequencies by s, ω_l / s: position interpolation.

    Source: Chen et al., Extending Context Window … (2023), equation 4.

    >>> from symattn import Rotary
    >>> Rotary(scaling=LinearScaling(factor=4))
    Rotary(scaling=LinearScaling(factor=4))
    """

    factor: Number

    def __post_init__(self) -> None:
        _check_numbers(self, "factor")

    def frequencies(self, frequencies: Array, base: Number, n: int) -> Array:
        """ω_l / s."""
        return frequencies / number(self.factor, frequencies)

    @property
    def words(self) -> str:
        """The scaled frequency in terms of φ_ℓ, in words and formulas: ω_l / s."""
        return "$φ_ℓ/@factor$"


@dataclass(frozen=True, kw_only=True, repr=False)
class NTKScaling(_Scaling):
    """Use the larger base θ s^(r/(r−2)), so that ω_0 stays and the slowest frequency is divided by s.

    With a trained ``length`` L, only for n > L, growing with n. Keys that were rotated when n was smaller had another
    base, so a cache of rotated keys differs from this definition. Sources: bloc97, NTK-Aware Scaled RoPE (2023), as
    described by Peng et al., YaRN (2023), §3.1; with a length emozilla, Dynamically Scaled RoPE (2023), as in Hugging
    Face Transformers; Peng et al. (2023), §3.3, has max(1, n / L) for s.

    >>> from symattn import Rotary
    >>> Rotary(scaling=NTKScaling(factor=4))
    Rotary(scaling=NTKScaling(factor=4))
    """

    factor: Number
    length: int | None = None
    least = 4

    def __post_init__(self) -> None:
        _check_numbers(self, "factor")
        check(self, length=1)

    @property
    def by_length(self) -> bool:
        """Return whether there is a trained length."""
        return self.length is not None

    def grown(self, n: int) -> Fraction:
        """Return s, or with a length s n / L − (s − 1) for n > L, else 1."""
        s = Fraction(self.factor)
        if self.length is None:
            return s
        # Up to the trained length nothing is scaled.
        return s * Fraction(n, self.length) - (s - 1) if n > self.length else Fraction(1)

    def frequencies(self, frequencies: Any, base: Number, n: int) -> Any:
        """ω_l s^(−2l/(r−2)). Raises InputError for r = 2, whose only frequency is ω_0."""
        f = len(frequencies)
        if f < 2:
            raise InputError(
                "NTK-aware scaling of one frequency: the exponent r/(r − 2) is infinite for r = 2 columns"
            )
        # The exponents leave ω_0 and divide the slowest frequency by s.
        return frequencies * powers_of(self.grown(n), range(0, -f, -1), frequencies, f - 1)

    @property
    def words(self) -> str:
        """ω_l s^(−2l/(r−2))."""
        if self.length is None:
            return "$φ_ℓ @factor^{−2 ℓ/{r − 2}}$"
        # The difference of a float and 1 would have other digits.
        whole = self.factor % 1 == 0
        rest = self.factor - 1 if whole else "@factor − 1"
        grown = f"@factor {{n/@length}} − {{{rest}}}"
        return f"$φ_ℓ s^{{−2 ℓ/{{r − 2}}}}$, $s = {grown}$ for n > {self.length} positions, else 1"


@dataclass(frozen=True, kw_only=True, repr=False)
class YarnScaling(_Scaling):
    """Leave fast pairs, divide slow ones by s, with a ramp between them; L is the trained ``length``.

    slow, fast   α and β: pairs that turn α times or less in L are slow, β times or more fast
    ramp         ``index``: linear in the index of the pair, as in code; ``turns``: as in the paper and Llama 3.1
    whole        whether the ends of the ramp over indices are whole numbers
    weight       w of 1 + w log(s) / 10 (for s ≤ 1: 1), by which cosines and sines are multiplied; 0 for 1
    shared       a weight by whose factor the former is divided (``mscale_all_dim``); 0 for none

    Llama 3.1 is ``ramp="turns"``, ``fast=4``, ``weight=0``.

    Sources: Peng et al., YaRN (2023), §3.2, for ``turns``; the ramp over indices is YaRN as it is run, in
    jquesnelle/yarn, whose issue 60 asks why; §3.4 for the factor of cosines and sines, √(1/t), of which the weight is
    ``mscale`` in DeepSeek-V2.

    >>> from symattn import Rotary
    >>> Rotary(scaling=YarnScaling(factor=8, length=8192, fast=4, ramp="turns", weight=0)).scaling.factor
    8
    """

    factor: Number
    length: int
    slow: Number = 1
    fast: Number = 32
    ramp: Literal["index", "turns"] = "index"
    whole: bool = True
    weight: Number = 1
    shared: Number = 0

    def __post_init__(self) -> None:
        _check_numbers(self, "factor", "slow", "fast")
        check(self, length=1)
        for field in ("weight", "shared"):
            if not finite(getattr(self, field)):
                raise refusal(self, field, "be a finite number")
        # The ramp divides by the difference of its ends.
        if self.slow >= self.fast:
            raise InputError(
                f"YarnScaling: slow = {self.slow} turns must be fewer than fast = {self.fast}"
            )
        if self.ramp == "turns" and not self.whole:
            raise InputError(
                "YarnScaling: whole belongs to the ramp over indices; hint: whole=True"
            )

    def frequencies(self, frequencies: Array, base: Number, n: int) -> Array:
        """((1 − γ) / s + γ) ω_l with γ between 0 and 1."""
        xp = namespace_of(frequencies)
        # Beyond the ends of the ramp the share is 0 or 1.
        share = xp.minimum(xp.maximum(self._yarn_ramp_share(frequencies, base), 0), 1)
        return ((1 - share) / number(self.factor, frequencies) + share) * frequencies

    def _yarn_ramp_share(self, frequencies: Any, base: Number) -> Any:
        """Return γ before clipping: (L ω_l / 2π − α) / (β − α), or linear in l, from 1 for β turns to 0 for α turns;
        ``whole`` rounds the indices of these two outwards."""
        if self.ramp == "turns":
            turns = frequencies * self.length / (2 * pi(frequencies))
            low, high = number(self.slow, frequencies), number(self.fast, frequencies)
            return (turns - low) / (high - low)
        xp, f = namespace_of(frequencies), len(frequencies)
        # Rounded ends are integers, so the ramp is rational and needs no logarithms.
        if self.whole:
            first, last = correction_range(f, base, self.length, self.slow, self.fast)
            return numbers(
                [1 - Fraction(pair - first) / (last - first) for pair in range(f)], frequencies
            )
        start, end = (
            _pair_index_for_turns(f, base, self.length, turns, frequencies)
            for turns in (self.fast, self.slow)
        )
        # Clipped as in implementations, to r − 1 and not to f − 1.
        start, end = xp.maximum(start, 0), xp.minimum(end, 2 * f - 1)
        return 1 - (numbers(range(f), frequencies) - start) / (end - start)

    def magnitude(self, like: Array) -> Array:
        """1 + w log(s) / 10, divided by the same for the shared weight."""
        # A context that does not grow needs no factor.
        if self.factor <= 1:
            return number(1, like)
        log = namespace_of(like).log(number(self.factor, like))
        weights = [self.weight, self.shared] if self.shared else [self.weight]
        m, *shared = [1 + log * number(Fraction(w) / 10, like) for w in weights]
        return m / shared[0] if shared else m

    @property
    def multiplier(self) -> str:
        """1 + w log(s) / 10, divided by the same for the shared weight, as a formula."""
        # Equal weights cancel.
        if self.factor <= 1 or self.weight == self.shared:
            return ""
        weights = (self.weight, self.shared) if self.shared else (self.weight,)
        sides = (f"{{1 + {_write_tenth_of_log(w)}}}" if w else "1" for w in weights)
        return "/".join(sides)

    @property
    def words(self) -> str:
        """((1 − γ) / s + γ) ω_l, the ends of the ramp γ, and the factor of cosines and sines."""
        slow, fast = f"{self.slow} times or less", f"{self.fast} times or more"
        even = "the number of turns" if self.ramp == "turns" else "ℓ"
        ends = ", from one whole number to another" if self.ramp == "index" and self.whole else ""
        ramp = f"1 for pairs that turn {fast} in {self.length} positions, 0 for {slow}, even in {even} between{ends}"
        where = f"$φ_ℓ {{{{1 − γ_ℓ}}/@factor + γ_ℓ}}$, $γ_ℓ$: {ramp}"
        if not self.weight and not self.shared:
            return where
        weights = f"weight {self.weight}" + (
            f", divided by that of the weight {self.shared}" if self.shared else ""
        )
        return f"{where}; cosines and sines times $1 + w log(@factor)/10$, {weights}"


# The factor of cosines and sines in formulas.
_LONG_ROPE = "√{1 + log(@factor)/log(@length)}"


@dataclass(frozen=True, kw_only=True, repr=False)
class LongRopeScaling(_Scaling):
    """A factor for each pair of columns, other factors beyond L tokens.

    short, long  the factors; L is the trained ``length``; cosines and sines are multiplied by √(1 + log s / log L)

    Sources: Ding et al., LongRoPE (2024), §2; the factor of cosines and sines: Abdin et al., Phi-3 (2024), its code.

    >>> LongRopeScaling(short=(1, 1), long=(2, 4), factor=4, length=4096).length
    4096
    """

    short: tuple[Number, ...]
    long: tuple[Number, ...]
    factor: Number
    length: int

    def __post_init__(self) -> None:
        _check_numbers(self, "factor")
        check(self, length=2)
        for field in ("short", "long"):
            factors = getattr(self, field)
            if (
                not isinstance(factors, tuple)
                or not factors
                or not all(finite(x) and x > 0 for x in factors)
            ):
                raise refusal(self, field, "be a tuple of finite numbers above 0")

    @property
    def by_length(self) -> bool:
        """True."""
        return True

    def frequencies(self, frequencies: Any, base: Number, n: int) -> Any:
        """ω_l / λ_l."""
        factors = self.long if n > self.length else self.short
        if len(factors) != len(frequencies):
            wanted = f"a factor for each of {len(frequencies)} pairs"
            raise InputError(f"LongRoPE needs {wanted}; {len(factors)} were given")
        return frequencies / numbers(factors, frequencies)

    def magnitude(self, like: Array) -> Array:
        """√(1 + log s / log L), 1 for s ≤ 1."""
        if self.factor <= 1:
            return number(1, like)
        log = namespace_of(like).log
        return namespace_of(like).sqrt(
            1 + log(number(self.factor, like)) / log(number(self.length, like))
        )

    @property
    def multiplier(self) -> str:
        """√(1 + log s / log L)."""
        return "" if self.factor <= 1 else _LONG_ROPE

    @property
    def words(self) -> str:
        """ω_l / λ_l, and the factors λ_l."""
        short, long = (", ".join(map(str, factors)) for factors in (self.short, self.long))
        which = f"{short} up to {self.length} positions, else {long}; cosines and sines times ${_LONG_ROPE}$"
        return f"$φ_ℓ/λ_ℓ$, $λ_ℓ$ = {which}"


@dataclass(frozen=True, kw_only=True, repr=False)
class ProportionalScaling(_Scaling):
    """Rotate only the first ⌊share · f⌋ pairs, the fastest ones.

    Source: Barbero et al., Round and Round We Go! What Makes Rotary Positional Encodings Useful? (2025), p-RoPE.

    >>> from symattn import Rotary
    >>> Rotary(scaling=ProportionalScaling(share=0.25))
    Rotary(scaling=ProportionalScaling(share=0.25))
    """

    share: Number

    def __post_init__(self) -> None:
        if not finite(self.share) or not 0 <= Fraction(self.share) <= 1:
            raise refusal(self, "share", "be a number from 0 to 1")

    def frequencies(self, frequencies: Any, base: Number, n: int) -> Any:
        """ω_l for the first pairs, 0 for the others."""
        f = len(frequencies)
        # A float stands for its decimal: 0.3 is 3/10, whose share of 10 pairs is 3, and the nearest float is below it.
        share = Fraction(str(self.share)) if isinstance(self.share, float) else Fraction(self.share)
        rotated = int(share * f)
        return frequencies * numbers([int(pair < rotated) for pair in range(f)], frequencies)

    @property
    def words(self) -> str:
        """ω_l or 0."""
        return f"$φ_ℓ$ for a share of {self.share} of the pairs, else 0"


Scaling: TypeAlias = (
    LinearScaling | NTKScaling | YarnScaling | LongRopeScaling | ProportionalScaling
)


# -- the ramp over indices ------------------------------------------------------------------------------------------
@cache
def correction_range(
    f: int, base: Number, length: int, slow: Number, fast: Number
) -> tuple[int, Fraction]:
    """Return the integers around the indices of the pairs that turn β and α times, clipped to 0 … r − 1.

    If they are equal, the second is a thousandth larger, as in implementations: the ramp is a step. The rounding is
    rigorous: L / 2πt is transcendental, so no index is an integer, and balls find the nearest integers.
    """
    first, last = (
        max(_floor_of_pair_index(f, base, length, fast), 0),
        min(_floor_of_pair_index(f, base, length, slow) + 1, 2 * f - 1),
    )
    return first, Fraction(last) if last != first else first + Fraction(1, 1000)


def _floor_of_pair_index(f: int, base: Number, length: int, turns: Number) -> int:
    from symattn.arrays.ball import Ball, rising

    def work() -> int:
        # A ball has one floor only if it holds no integer inside.
        floor = (
            _pair_index_for_turns(f, base, length, turns, Ball.lift(0)).item().floor().unique_fmpz()
        )
        if floor is None:
            raise Undecided(
                f"the pair that turns {turns} times has an index close to a whole number"
            )
        return int(floor)

    # More bits shrink the ball until it lies between two integers.
    return rising(work)


def _pair_index_for_turns(f: int, base: Number, length: int, turns: Number, like: Any) -> Any:
    """r log(L / 2πt) / (2 log θ): the index of the pair that turns t times in L positions, not rounded."""
    xp = namespace_of(like)
    inside = number(Fraction(length) / Fraction(turns), like) / (2 * pi(like))
    return f * xp.log(inside) / xp.log(number(base, like))
