"""Values of the expressions of certificates at random points modulo a prime, for ``checker``.

At given sizes an expression is a quotient of polynomials in its letters and in one letter for e^{μ/12} for each
monomial μ of the exponents. A quotient that is not zero has the value zero at a random point modulo p with probability
at most degree / (p − 1) (Schwartz 1980, Zippel 1979), unless p divides all coefficients of its numerator. A number
below 2^b has at most b / 60 prime factors above 2^60, and there are more than 2^54 primes between 2^60 and 2^61, of
which p is drawn. Degrees and bits are carried along with the values. Values are taken modulo the product of two such
primes, which gives both residues at once: a letter drawn there has independent residues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from math import isqrt, prod
from random import Random
from typing import Any, NamedTuple, TypeVar

from symattn.proof.checker_reading import MANY as MOST
from symattn.proof.checker_reading import CheckedNode, Rejected, expect_few, form

PARTS = 12
LOW, HIGH, MANY = 2**60, 2**61, 2**54
Exponent = dict[tuple[Any, ...], Fraction]
_ONE = Fraction(1)
T = TypeVar("T")


def _kept(
    known: dict[Any, T], x: CheckedNode, at: Mapping[str, int], work: Callable[[CheckedNode, Mapping[str, int]], T]
) -> T:
    """Return ``work`` of ``x``, its free indices having the values ``at``; compute it once for each place."""
    key = (x, *[at[i] for i in x.order])
    if key not in known:
        expect_few(len(known))
        known[key] = work(x, at)
    return known[key]


class Dice:
    """The checker's own dice, and the two primes that one certificate is tested with."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.risk = 0.0  # that any of the tests made deceives
        self.functions = RandomFunctions()

    def tested(self, found: CheckedValue) -> None:
        """Count what a test at a random point risks."""
        self.risk += escape(found, self.primes)

    @cached_property
    def primes(self) -> tuple[int, int]:
        """Two primes, drawn once: of each test the probability of an error is over all draws of them."""
        first = second = random_prime(self.random)
        while second == first:
            second = random_prime(self.random)
        return first, second

    def point(self, sizes: Mapping[str, int], rules: Sequence[object], inverses: bool = True) -> Point:
        """A point modulo both primes."""
        return Point(sizes, prod(self.primes), self.random, rules, inverses, self.functions)


class CheckedValue(NamedTuple):
    """A value modulo the primes; the degrees of numerator and denominator, the bits of their sums of coefficients."""

    value: int
    up: int = 0
    down: int = 0
    bits: int = 1
    under: int = 1


class RandomFunctions:
    """A number for each function of arguments in letters, the same where the arguments have one form."""

    def __init__(self) -> None:
        self._forms: dict[Any, int] = {}
        self._found: dict[Any, tuple[str, int]] = {}

    def __call__(self, x: CheckedNode, at: Mapping[str, int]) -> tuple[str, int]:
        """The name of the function ``x``, its free indices having the values ``at``: it is the same at all sizes."""
        return _kept(self._found, x, at, self._name)

    def _name(self, x: CheckedNode, at: Mapping[str, int]) -> tuple[str, int]:
        what = form(x, {i: ("at", at[i]) for i in x.free})
        return "function", self._forms.setdefault(what, len(self._forms))


class Point:
    """A random point at given sizes: what every letter is there. ``inverses``: whether 1/Z means what it says."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        modulus: int,
        random: Random,
        rules: Sequence[Any] = (),
        inverses: bool = True,
        functions: RandomFunctions | None = None,
    ) -> None:
        self.functions = functions or RandomFunctions()
        self.sizes, self.modulus, self.random, self.inverses = sizes, modulus, random, inverses
        self.circle = {name: pair for pair in rules for name in pair}
        self._drawn: dict[Any, int] = {}
        self._known: dict[Any, CheckedValue] = {}
        self._powers: dict[Any, Exponent] = {}

    def with_other_functions(self) -> Point:
        """Return the same point, but for the values of functions of which nothing is known."""
        other = Point(self.sizes, self.modulus, self.random, inverses=self.inverses, functions=self.functions)
        other.circle = self.circle
        other._drawn = {key: value for key, value in self._drawn.items() if "'function'" not in repr(key)}
        return other

    @property
    def crowded(self) -> bool:
        """Return whether a tenth of what one test may keep is kept already."""
        return 10 * max(len(self._known), len(self._powers)) > MOST

    def draw(self, key: object) -> int:
        """The value of a letter; where one has no inverse, another point is tried."""
        result = self._drawn.get(key)
        if result is None:
            result = self._drawn[key] = self.random.randrange(1, self.modulus)
        return result

    def value(self, x: CheckedNode, at: Mapping[str, int]) -> CheckedValue:
        """``x`` at the point, its free indices having the values ``at``."""
        return _kept(self._known, x, at, self._value)

    def _value(self, x: CheckedNode, at: Mapping[str, int]) -> CheckedValue:
        if x.kind == "number":
            return self._number(x.label)
        if x.kind == "size":
            return self._number(Fraction(self.sizes[x.label]))
        if x.kind == "is":
            return CheckedValue(int(holds(x, at)))
        if x.kind == "letter":
            return self._letter(x, at)
        if x.kind == "sum":
            return self.add(self.value(y, at) for y in x.below)
        if x.kind == "total":
            return self.add(self.value(x.below[0], {**at, x.label: a}) for a in range(self.sizes[x.sorts[0]]))
        if x.kind == "product":
            return self._product(x, at)
        if x.kind == "ratio":
            return self.times(self.value(x.below[0], at), self.inverse(self.value(x.below[1], at)))
        if x.kind == "exp":
            return self._exponential(x, at)
        if x.kind == "function":
            if x.label == "1/" and self.inverses:
                return self.inverse(self.value(x.below[0], at))
            if x.label in ("sqrt", "rsqrt") and (root := self._root(x.below[0], at)):
                return self._number(root if x.label == "sqrt" else 1 / root)
            return CheckedValue(self.draw(self.functions(x, at)), 1)
        raise Rejected(f"{x.kind} has no value")

    def _root(self, x: CheckedNode, at: Mapping[str, int]) -> Fraction | None:
        """√x, where x is the square of a rational number at these sizes."""
        if x.free or any(y.kind not in ("number", "size", "product") for y in x.all()):
            return None
        square = self._whole(x)
        root = Fraction(isqrt(square.numerator), isqrt(square.denominator))
        return root if root > 0 and root * root == square else None

    def _whole(self, x: CheckedNode) -> Fraction:
        """A product of numbers and sizes."""
        if x.kind == "product":
            return prod(map(self._whole, x.below), start=Fraction(1))
        return Fraction(self.sizes[x.label] if x.kind == "size" else x.label)

    def _product(self, x: CheckedNode, at: Mapping[str, int]) -> CheckedValue:
        if any(y.kind == "is" and not holds(y, at) for y in x.below):
            return CheckedValue(0)
        result = CheckedValue(1)
        for y in x.below:
            result = self.times(result, self.value(y, at))
        return result

    def _number(self, c: Fraction) -> CheckedValue:
        value = c.numerator % self.modulus
        if c.denominator != 1:
            value = value * self._inverted(c.denominator) % self.modulus
        return CheckedValue(value, 0, 0, max(abs(c.numerator).bit_length(), 1), c.denominator.bit_length())

    def _letter(self, x: CheckedNode, at: Mapping[str, int]) -> CheckedValue:
        if x.label not in self.circle:
            return CheckedValue(self.draw(seat(x, at)), 1)
        pair = self.circle[x.label]
        t = self.draw(("circle", *pair, *seat(x, at)[2:]))
        above = 1 - t * t if x.label == pair[0] else 2 * t
        return CheckedValue(above * self._inverted(1 + t * t) % self.modulus, 2, 2, 2, 2)

    def _exponential(self, x: CheckedNode, at: Mapping[str, int]) -> CheckedValue:
        value, up, down = 1, 0, 0
        for monomial, c in self.power(x.below[0], at).items():
            times, rest = divmod(PARTS * c.numerator, c.denominator)
            if rest:
                raise Rejected(f"the coefficient {c} in an exponent")
            value = value * self._raised(monomial, times) % self.modulus
            up, down = up + max(times, 0), down + max(-times, 0)
        return CheckedValue(value, up, down)

    def _raised(self, monomial: tuple[object, ...], times: int) -> int:
        """e^{μ/12} to a power."""
        key = ("e", monomial, times)
        if key not in self._drawn:
            base = self.draw(("e", monomial))
            self._drawn[key] = pow(base if times > 0 else self._inverted(base), abs(times), self.modulus)
        return self._drawn[key]

    def _inverted(self, value: int) -> int:
        try:
            return pow(value, -1, self.modulus)
        except ValueError:
            raise Retry from None

    def power(self, x: CheckedNode, at: Mapping[str, int]) -> Exponent:
        """An exponent as a polynomial in letters: its monomials and their coefficients."""
        return _kept(self._powers, x, at, self._power)

    def _power(self, x: CheckedNode, at: Mapping[str, int]) -> Exponent:
        if x.kind == "number":
            return {(): x.label} if x.label else {}
        if x.kind == "is":
            return {(): _ONE} if holds(x, at) else {}
        if x.kind == "letter":
            return {(seat(x, at),): _ONE}
        if x.kind == "function" and x.label in ("sqrt", "rsqrt") and (root := self._root(x.below[0], at)):
            return {(): root if x.label == "sqrt" else 1 / root}
        if x.kind == "function":
            return {(self.functions(x, at),): _ONE}
        if x.kind == "sum":
            return _sum(self.power(y, at) for y in x.below)
        if x.kind == "total":
            return _sum(self.power(x.below[0], {**at, x.label: a}) for a in range(self.sizes[x.sorts[0]]))
        if x.kind == "product":
            result: Exponent = {(): _ONE}
            for y in x.below:
                result = _times(result, self.power(y, at))
            return result
        raise Rejected(f"{x.kind} in an exponent")

    def add(self, values: Iterable[CheckedValue]) -> CheckedValue:
        """The sum; terms over the same denominator are added as they are."""
        total = CheckedValue(0)
        for v in values:
            if not v.value and not v.up:
                continue
            total = CheckedValue(
                (total.value + v.value) % self.modulus,
                max(total.up + v.down, v.up + total.down),
                total.down + v.down,
                max(total.bits + v.under, v.bits + total.under) + 1,
                total.under + v.under,
            )
        return total

    def times(self, a: CheckedValue, b: CheckedValue) -> CheckedValue:
        """The product."""
        return CheckedValue(
            a.value * b.value % self.modulus, a.up + b.up, a.down + b.down, a.bits + b.bits, a.under + b.under
        )

    def inverse(self, a: CheckedValue) -> CheckedValue:
        """1/a; another point is needed where that has no value."""
        return CheckedValue(self._inverted(a.value), a.down, a.up, a.under, a.bits)


class Retry(Exception):
    """A divisor is zero at this point."""


def escape(v: CheckedValue, primes: Iterable[int]) -> float:
    """The probability that what has the value ``v`` = 0 modulo each of the primes is not zero."""
    return prod(min(1.0, v.up / (prime - 1) + v.bits / 60 / MANY) for prime in primes)


def seat(x: CheckedNode, at: Mapping[str, int]) -> tuple[Any, ...]:
    """A letter and the values of its indices."""
    return ("letter", x.label, *[(s, at[i[0]], *i[1:]) for i, s in zip(x.indices, x.sorts, strict=True)])


def holds(x: CheckedNode, at: Mapping[str, int]) -> bool:
    """Return whether a relation of indices is true; where a permutation puts things is not known."""
    (i, *more), (j, *others) = x.indices
    if more or others:
        raise Rejected("a relation of permuted indices")
    return {"=": at[i] == at[j], "≤": at[i] <= at[j], "<": at[i] < at[j]}[x.label]


def _sum(parts: Iterable[Exponent]) -> Exponent:
    out: Exponent = {}
    for part in parts:
        for m, c in part.items():
            out[m] = out[m] + c if m in out else c
    return {m: c for m, c in out.items() if c}


def _times(a: Exponent, b: Exponent) -> Exponent:
    if not a or not b:
        return {}
    if b.keys() == {()}:
        a, b = b, a
    if a.keys() == {()}:
        factor = a[()]
        return b if factor == 1 else {m: factor * c for m, c in b.items()}
    expect_few(len(a) * len(b))
    return _sum({tuple(sorted(m + n, key=repr)): c * d} for m, c in a.items() for n, d in b.items())


def random_prime(random: Random) -> int:
    """A prime between 2^60 and 2^61."""
    while True:
        n = random.randrange(LOW + 1, HIGH, 2)
        if _is_prime(n):
            return n


@lru_cache(maxsize=1000)
def _is_prime(n: int) -> bool:
    """Miller and Rabin's test with the bases that decide it below 2^64 (Sinclair 2011)."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 325, 9375, 28178, 450775, 9780504, 1795265022):
        x = pow(base, odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True
