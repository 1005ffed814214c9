"""How rotary frequencies are stretched, as descriptions: each says what becomes of ω_l, and of cosines and sines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from symattn.arrays.array import Array
from symattn.attention.constants import Number, number
from symattn.attention.fields import Described, check, finite, refusal
from symattn.attention.positions import rotary_scaling as scaling
from symattn.document.errors import InputError
from symattn.document.model import Text
from symattn.document.notation import Node, Over, Power, Root, call, equals, name, node


class _Scaling(Described):
    """A scaling; usually it does not ask how many positions there are, and queries and keys keep their length."""

    @property
    def by_length(self) -> bool:
        """Return whether frequencies depend on the number of positions."""
        return False

    def magnitude(self, like: Array) -> Array:
        """Return what cosines and sines are multiplied by."""
        return number(1, like)

    @property
    def multiplier(self) -> Node | None:
        """Return the factor of cosines and sines as a formula; None where it is 1."""
        return None


def _written(x: Number) -> Node:
    return node(Fraction(x))


def _check_numbers(spec: object, *fields: str) -> None:
    """Raise InputError unless the fields are finite numbers above 0."""
    for field in fields:
        value = getattr(spec, field)
        if not finite(value) or value <= 0:
            raise refusal(spec, field, "be a finite number above 0")


@dataclass(frozen=True, kw_only=True, repr=False)
class LinearScaling(_Scaling):
    """Divide the frequencies by s, ω_l / s: see ``rotary_scaling.linear``.

    >>> from symattn import Rotary
    >>> Rotary(scaling=LinearScaling(factor=4))
    Rotary(scaling=LinearScaling(factor=4))
    """

    factor: Number

    def __post_init__(self) -> None:
        _check_numbers(self, "factor")

    def frequencies(self, frequencies: Any, base: Number, n: int) -> Any:
        """ω_l / s."""
        return scaling.linear(frequencies, self.factor)

    def words(self, wave: Node) -> Text:
        """ω_l / s."""
        return (Over(wave, _written(self.factor)),)


@dataclass(frozen=True, kw_only=True, repr=False)
class NTKScaling(_Scaling):
    """Use a larger base: see ``rotary_scaling.ntk_aware``. With a trained ``length`` L, only for n > L, growing with n.

    Keys that were rotated when n was smaller had another base, so a cache of rotated keys does not hold what this
    gives.

    >>> from symattn import Rotary
    >>> Rotary(scaling=NTKScaling(factor=4))
    Rotary(scaling=NTKScaling(factor=4))
    """

    factor: Number
    length: int | None = None

    def __post_init__(self) -> None:
        _check_numbers(self, "factor")
        check(self, length=1)

    @property
    def by_length(self) -> bool:
        """Return whether there is a trained length."""
        return self.length is not None

    def frequencies(self, frequencies: object, base: Number, n: int) -> Any:
        """ω_l s^(−2l/(r−2)), with s n / L − (s − 1) for s if there is a length."""
        factor = self.factor if self.length is None else scaling.dynamic_factor(n, self.length, self.factor)
        return scaling.ntk_aware(frequencies, factor)

    def words(self, wave: Node) -> Text:
        """ω_l s^(−2l/(r−2))."""
        s, power = name("s"), -Over(2 * name("ℓ"), name("r") - 2)
        if self.length is None:
            return (wave * Power(_written(self.factor), power),)
        grown = _written(self.factor) * Over(name("n"), node(self.length)) - _written(Fraction(self.factor) - 1)
        return (wave * Power(s, power), ", ", equals(s, grown), f" for n > {self.length} positions, else 1")


@dataclass(frozen=True, kw_only=True, repr=False)
class YarnScaling(_Scaling):
    """Leave fast pairs, divide slow ones by s, with a ramp between them; L is the trained ``length``.

    slow, fast   α and β: pairs that turn α times or less in L are slow, β times or more fast
    ramp         ``index``: even in the number of the pair, as it is run; ``turns``: as it is written, and in Llama 3.1
    whole        whether the ends of the ramp over indices are whole numbers
    weight       w of 1 + w log(s) / 10, by which cosines and sines are multiplied; 0 for 1
    shared       a weight whose factor is divided by (``mscale_all_dim``); 0 for none

    See ``rotary_scaling.by_index``, ``by_parts`` and ``yarn_magnitude``. Llama 3.1 is ``ramp="turns"``, ``fast=4``,
    ``weight=0``.

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
        if self.slow >= self.fast:
            raise InputError(f"YarnScaling: slow = {self.slow} turns must be fewer than fast = {self.fast}")
        if self.ramp == "turns" and not self.whole:
            raise InputError("YarnScaling: whole belongs to the ramp over indices; hint: whole=True")

    def frequencies(self, frequencies: Any, base: Number, n: int) -> Array:
        """((1 − γ) / s + γ) ω_l."""
        s, length, slow, fast = self.factor, self.length, self.slow, self.fast
        if self.ramp == "turns":
            return scaling.by_parts(frequencies, s, length, slow, fast)
        return scaling.by_index(frequencies, base, s, length, slow, fast, self.whole)

    def magnitude(self, like: Array) -> Array:
        """1 + w log(s) / 10, divided by the same of the shared weight."""
        m = scaling.yarn_magnitude(self.factor, like, self.weight)
        return m / scaling.yarn_magnitude(self.factor, like, self.shared) if self.shared else m

    @property
    def multiplier(self) -> Node | None:
        """1 + w log(s) / 10, over the same of the shared weight."""
        if self.factor <= 1 or self.weight == self.shared:
            return None
        log = call("log", _written(self.factor))
        above, below = (1 + Over(log, node(10 / Fraction(w))) if w else node(1) for w in (self.weight, self.shared))
        return Over(above, below) if self.shared else above

    def words(self, wave: Node) -> Text:
        """((1 − γ) / s + γ) ω_l, where γ is 1 and where 0, and the factor of cosines and sines."""
        share = name("γ", "ℓ")
        slow, fast = f"{self.slow} times or less", f"{self.fast} times or more"
        even = "the number of turns" if self.ramp == "turns" else "ℓ"
        ends = ", from one whole number to another" if self.ramp == "index" and self.whole else ""
        mixed = wave * (Over(1 - share, _written(self.factor)) + share)
        where = f"1 for pairs that turn {fast} in {self.length} positions, 0 for {slow}, even in {even} between{ends}"
        if not self.weight and not self.shared:
            return (mixed, ", ", share, f": {where}")
        weights = f"weight {self.weight}" + (f", divided by that of the weight {self.shared}" if self.shared else "")
        m = 1 + Over(name("w") * call("log", _written(self.factor)), node(10))
        return (mixed, ", ", share, f": {where}; cosines and sines times ", m, f", {weights}")


@dataclass(frozen=True, kw_only=True, repr=False)
class LongRopeScaling(_Scaling):
    """A factor for each pair of columns, other factors beyond L tokens: see ``rotary_scaling.longrope``.

    short, long  the factors; L is the trained ``length``; cosines and sines are multiplied by √(1 + log s / log L)

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
            given = getattr(self, field)
            if not isinstance(given, tuple) or not given or not all(finite(x) and x > 0 for x in given):
                raise refusal(self, field, "be a tuple of finite numbers above 0")

    @property
    def by_length(self) -> bool:
        """True."""
        return True

    def frequencies(self, frequencies: object, base: Number, n: int) -> Any:
        """ω_l / λ_l."""
        factors: Sequence[Number] = self.long if n > self.length else self.short
        return scaling.longrope(frequencies, factors)

    def magnitude(self, like: Array) -> Array:
        """√(1 + log s / log L), 1 for s ≤ 1."""
        return scaling.longrope_magnitude(self.factor, self.length, like)

    @property
    def multiplier(self) -> Node | None:
        """√(1 + log s / log L)."""
        if self.factor <= 1:
            return None
        return Root(1 + Over(call("log", _written(self.factor)), call("log", self.length)))

    def words(self, wave: Node) -> Text:
        """ω_l / λ_l, and which factors those are."""
        lists = [", ".join(map(str, factors)) for factors in (self.short, self.long)]
        m = Root(1 + Over(call("log", _written(self.factor)), call("log", self.length)))
        which = f" = {lists[0]} up to {self.length} positions, else {lists[1]}; cosines and sines times "
        return (Over(wave, name("λ", "ℓ")), ", ", name("λ", "ℓ"), which, m)


@dataclass(frozen=True, kw_only=True, repr=False)
class ProportionalScaling(_Scaling):
    """Rotate a share of the pairs, not the slower ones: see ``rotary_scaling.proportional``.

    >>> from symattn import Rotary
    >>> Rotary(scaling=ProportionalScaling(share=0.25))
    Rotary(scaling=ProportionalScaling(share=0.25))
    """

    share: Number

    def __post_init__(self) -> None:
        if not finite(self.share) or not 0 <= Fraction(self.share) <= 1:
            raise refusal(self, "share", "be a number from 0 to 1")

    def frequencies(self, frequencies: object, base: Number, n: int) -> Any:
        """ω_l for the first pairs, 0 for the others."""
        return scaling.proportional(frequencies, self.share)

    def words(self, wave: Node) -> Text:
        """ω_l or 0."""
        return (wave, f" for a share of {self.share} of the pairs, else 0")


Scaling: TypeAlias = LinearScaling | NTKScaling | YarnScaling | LongRopeScaling | ProportionalScaling
