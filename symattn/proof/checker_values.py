"""Evaluate the expressions of certificates at random points modulo a prime, for ``checker``.

At given sizes an expression is a quotient of polynomials in its letters and in one letter for e^{μ/12} for each
monomial μ of the exponents. A nonzero quotient has the value zero at a random point modulo p with probability
at most degree / (p − 1) (Schwartz 1980, Zippel 1979), unless p divides all coefficients of its numerator. A number
below 2^b has at most b / 60 prime factors above 2^60, and p is drawn from the more than 2^54 primes between 2^60 and
2^61. Degrees and bits are carried along with the values. Values are taken modulo the product of two such primes, which
gives both residues at once: a letter drawn there has independent residues.
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

# Coefficients in exponents are whole twelfths, which covers halves, thirds and quarters.
PARTS = 12
# Bounds of the primes, and the number of primes between them that the error bound uses.
LOW, HIGH, MANY = 2**60, 2**61, 2**54
# A number of fewer bits that is 0 modulo a prime is 0.
BITS_OF_A_PRIME = 60
Exponent = dict[tuple[Any, ...], Fraction]
_ONE = Fraction(1)
T = TypeVar("T")


def _compute_once_per_place(
    known: dict[Any, T],
    x: CheckedNode,
    at: Mapping[str, int],
    work: Callable[[CheckedNode, Mapping[str, int]], T],
) -> T:
    """Return ``work(x, at)``, where ``at`` holds the values of the free indices; compute it once for each place."""
    # Only free indices matter: a part without them is computed once for all places.
    key = (x, *[at[i] for i in x.order])
    if key not in known:
        # The cache is limited, since a hostile certificate could fill the memory.
        expect_few(len(known))
        known[key] = work(x, at)
    return known[key]


class Dice:
    """The checker's own random numbers, and the two primes with which a certificate is tested."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.risk = 0.0  # the probability that any test so far took a nonzero value for zero
        self.functions = RandomFunctions()

    def tested(self, value: CheckedValue) -> None:
        """Add the risk of a test at a random point."""
        self.risk += escape(value, self.primes)

    @cached_property
    def primes(self) -> tuple[int, int]:
        """Two primes, drawn once: the error probability of each test is over all draws of them."""
        # Two different primes: residues modulo their product are then independent.
        first = second = random_prime(self.random)
        while second == first:
            second = random_prime(self.random)
        return first, second

    def point(
        self, sizes: Mapping[str, int], rules: Sequence[object], inverses: bool = True
    ) -> Point:
        """Return a random point modulo both primes."""
        return Point(sizes, prod(self.primes), self.random, rules, inverses, self.functions)


class CheckedValue(NamedTuple):
    """A value modulo the primes; degrees of numerator and denominator, and bits of the sums of their coefficients."""

    value: int
    up: int = 0
    down: int = 0
    bits: int = 1
    under: int = 1


class RandomFunctions:
    """A number for each opaque function call, the same for arguments of the same form."""

    def __init__(self) -> None:
        self._forms: dict[Any, int] = {}
        self._names: dict[Any, tuple[str, int]] = {}

    def __call__(self, x: CheckedNode, at: Mapping[str, int]) -> tuple[str, int]:
        """Return the name of the call ``x`` at index values ``at``; it is the same at all sizes."""
        return _compute_once_per_place(self._names, x, at, self._name_random_function)

    def _name_random_function(self, x: CheckedNode, at: Mapping[str, int]) -> tuple[str, int]:
        # The form at these index values: equal arguments must get equal values in every test.
        key = form(x, {i: ("at", at[i]) for i in x.free})
        return "function", self._forms.setdefault(key, len(self._forms))


class Point:
    """A random point at given sizes: a value for every letter. ``inverses``: 1/Z is the inverse of Z, not a letter."""

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
        """Return the same point with other values for opaque functions."""
        other = Point(
            self.sizes, self.modulus, self.random, inverses=self.inverses, functions=self.functions
        )
        other.circle = self.circle
        # Keys of functions occur within keys of exponentials too, so the whole text is searched.
        other._drawn = {
            key: value for key, value in self._drawn.items() if "'function'" not in repr(key)
        }
        return other

    @property
    def crowded(self) -> bool:
        """Whether a tenth of the cache of one test is used."""
        return 10 * max(len(self._known), len(self._powers)) > MOST

    def draw(self, key: object) -> int:
        """Return the value of a letter; ``inverse`` raises Retry if it turns out to have no inverse."""
        result = self._drawn.get(key)
        if result is None:
            result = self._drawn[key] = self.random.randrange(1, self.modulus)
        return result

    def value(self, x: CheckedNode, at: Mapping[str, int]) -> CheckedValue:
        """Return ``x`` at the point, where ``at`` holds the values of its free indices."""
        return _compute_once_per_place(self._known, x, at, self._evaluate_node_at_point)

    def _evaluate_node_at_point(self, x: CheckedNode, at: Mapping[str, int]) -> CheckedValue:
        if x.kind == "number":
            return self._reduce_number_modulo(x.label)
        if x.kind == "size":
            return self._reduce_number_modulo(Fraction(self.sizes[x.label]))
        if x.kind == "is":
            return CheckedValue(int(holds(x, at)))
        if x.kind == "letter":
            return self._evaluate_letter_node(x, at)
        if x.kind == "sum":
            return self.add(self.value(y, at) for y in x.below)
        if x.kind == "total":
            places = range(self.sizes[x.sorts[0]])
            return self.add(self.value(x.below[0], {**at, x.label: a}) for a in places)
        if x.kind == "product":
            return self._evaluate_product_node(x, at)
        if x.kind == "ratio":
            # Letters are drawn when they are first met: the numerator's before the divisor's.
            numerator = self.value(x.below[0], at)
            return self.times(numerator, self.inverse(self.value(x.below[1], at)))
        if x.kind == "exp":
            return self._evaluate_exponential_node(x, at)
        if x.kind == "function":
            # Without ``inverses`` a reciprocal is a free letter, which its form names.
            if x.label == "1/" and self.inverses:
                return self.inverse(self.value(x.below[0], at))
            # √4 must be 2, or numbers would differ that are equal.
            if x.label in ("sqrt", "rsqrt") and (root := self._find_rational_root(x.below[0], at)):
                return self._reduce_number_modulo(root if x.label == "sqrt" else 1 / root)
            return CheckedValue(self.draw(self.functions(x, at)), 1)
        raise Rejected(f"{x.kind} has no value")

    def _find_rational_root(self, x: CheckedNode, at: Mapping[str, int]) -> Fraction | None:
        """Return √x if x is the square of a rational number at these sizes, else None."""
        # Only products: the root of a sum of sizes would need a decision for each size.
        if x.free or any(y.kind not in ("number", "size", "product") for y in x.all()):
            return None
        square = self._multiply_numbers_and_sizes(x)
        root = Fraction(isqrt(square.numerator), isqrt(square.denominator))
        # Root 0 is left to the letter: its reciprocal has no value.
        return root if root > 0 and root * root == square else None

    def _multiply_numbers_and_sizes(self, x: CheckedNode) -> Fraction:
        """Return the value of a product of numbers and sizes."""
        if x.kind == "product":
            return prod(map(self._multiply_numbers_and_sizes, x.below), start=Fraction(1))
        return Fraction(self.sizes[x.label] if x.kind == "size" else x.label)

    def _evaluate_product_node(self, x: CheckedNode, at: Mapping[str, int]) -> CheckedValue:
        # A false relation makes the product 0, whatever value the other factors lack.
        if any(y.kind == "is" and not holds(y, at) for y in x.below):
            return CheckedValue(0)
        result = CheckedValue(1)
        for y in x.below:
            result = self.times(result, self.value(y, at))
        return result

    def _reduce_number_modulo(self, c: Fraction) -> CheckedValue:
        value = c.numerator % self.modulus
        if c.denominator != 1:
            value = value * self._invert_modulo(c.denominator) % self.modulus
        # Bits of numerator and denominator enter the bound on the error.
        return CheckedValue(
            value, 0, 0, max(abs(c.numerator).bit_length(), 1), c.denominator.bit_length()
        )

    def _evaluate_letter_node(self, x: CheckedNode, at: Mapping[str, int]) -> CheckedValue:
        if x.label not in self.circle:
            return CheckedValue(self.draw(seat(x, at)), 1)
        pair = self.circle[x.label]
        # Both letters of a pair share t, at the same indices.
        t = self.draw(("circle", *pair, *seat(x, at)[2:]))
        # The half-angle form meets cos² + sin² = 1 at every t.
        above = 1 - t * t if x.label == pair[0] else 2 * t
        return CheckedValue(above * self._invert_modulo(1 + t * t) % self.modulus, 2, 2, 2, 2)

    def _evaluate_exponential_node(self, x: CheckedNode, at: Mapping[str, int]) -> CheckedValue:
        value, up, down = 1, 0, 0
        for monomial, c in self.power(x.below[0], at).items():
            # Each power is a whole number of twelfths of its monomial.
            times, rest = divmod(PARTS * c.numerator, c.denominator)
            if rest:
                raise Rejected(f"the coefficient {c} in an exponent")
            # Computed powers are stored too, as many places share an exponential.
            key = ("e", monomial, times)
            if key not in self._drawn:
                base = self.draw(("e", monomial))
                self._drawn[key] = pow(
                    base if times > 0 else self._invert_modulo(base), abs(times), self.modulus
                )
            value = value * self._drawn[key] % self.modulus
            up = up + max(times, 0)
            down = down + max(-times, 0)
        return CheckedValue(value, up, down)

    def _invert_modulo(self, value: int) -> int:
        try:
            return pow(value, -1, self.modulus)
        except ValueError:
            # The value is divisible by a prime of the modulus.
            raise Retry from None

    def power(self, x: CheckedNode, at: Mapping[str, int]) -> Exponent:
        """Return an exponent as a polynomial in letters: its monomials and their coefficients."""
        return _compute_once_per_place(self._powers, x, at, self._expand_exponent)

    def _expand_exponent(self, x: CheckedNode, at: Mapping[str, int]) -> Exponent:
        if x.kind == "number":
            return {(): x.label} if x.label else {}
        if x.kind == "is":
            return {(): _ONE} if holds(x, at) else {}
        if x.kind == "letter":
            return {(seat(x, at),): _ONE}
        # A rational root must meet the other numbers of the exponent.
        if (
            x.kind == "function"
            and x.label in ("sqrt", "rsqrt")
            and (root := self._find_rational_root(x.below[0], at))
        ):
            return {(): root if x.label == "sqrt" else 1 / root}
        if x.kind == "function":
            return {(self.functions(x, at),): _ONE}
        if x.kind == "sum":
            return _add_exponents(self.power(y, at) for y in x.below)
        if x.kind == "total":
            places = range(self.sizes[x.sorts[0]])
            return _add_exponents(self.power(x.below[0], {**at, x.label: a}) for a in places)
        if x.kind == "product":
            result: Exponent = {(): _ONE}
            for y in x.below:
                result = _multiply_exponents(result, self.power(y, at))
            return result
        raise Rejected(f"{x.kind} in an exponent")

    def add(self, values: Iterable[CheckedValue]) -> CheckedValue:
        """Return the sum, over the product of the denominators."""
        total = CheckedValue(0)
        for v in values:
            # A zero without letters changes neither the value nor the degrees. A number of many bits may be 0 modulo
            # the primes alone.
            if not v.value and not v.up and v.bits < BITS_OF_A_PRIME:
                continue
            # Over the product of both denominators: an upper bound of the degrees is enough.
            total = CheckedValue(
                (total.value + v.value) % self.modulus,
                max(total.up + v.down, v.up + total.down),
                total.down + v.down,
                max(total.bits + v.under, v.bits + total.under) + 1,
                total.under + v.under,
            )
        return total

    def times(self, a: CheckedValue, b: CheckedValue) -> CheckedValue:
        """Return the product."""
        return CheckedValue(
            a.value * b.value % self.modulus,
            a.up + b.up,
            a.down + b.down,
            a.bits + b.bits,
            a.under + b.under,
        )

    def inverse(self, a: CheckedValue) -> CheckedValue:
        """Return 1/a. Raises Retry if it has no value at this point."""
        # Numerator and denominator change places, and so do their degrees and bits.
        inverted = self._invert_modulo(a.value)
        return CheckedValue(inverted, a.down, a.up, a.under, a.bits)


class Retry(Exception):
    """A divisor is zero at this point."""


def escape(v: CheckedValue, primes: Iterable[int]) -> float:
    """Return the probability that a quotient with the value ``v`` = 0 modulo each prime is not zero."""
    # Schwartz and Zippel's bound plus the chance that the prime divides all coefficients.
    return prod(min(1.0, v.up / (prime - 1) + v.bits / BITS_OF_A_PRIME / MANY) for prime in primes)


def seat(x: CheckedNode, at: Mapping[str, int]) -> tuple[Any, ...]:
    """Return a letter with the values of its indices."""
    return (
        "letter",
        x.label,
        *[(s, at[i[0]], *i[1:]) for i, s in zip(x.indices, x.sorts, strict=True)],
    )


def holds(x: CheckedNode, at: Mapping[str, int]) -> bool:
    """Return whether a relation of indices is true. Reject permuted indices, whose values are unknown."""
    (i, *more), (j, *others) = x.indices
    # Permutations are letters, so the order of their values is unknown.
    if more or others:
        raise Rejected("a relation of permuted indices")
    left = at[i]
    right = at[j]
    return {"=": left == right, "≤": left <= right, "<": left < right}[x.label]


def _add_exponents(parts: Iterable[Exponent]) -> Exponent:
    out: Exponent = {}
    for part in parts:
        for m, c in part.items():
            out[m] = out[m] + c if m in out else c
    return {m: c for m, c in out.items() if c}


def _multiply_exponents(a: Exponent, b: Exponent) -> Exponent:
    if not a or not b:
        return {}
    # Products with a number come first: they need no sorting of monomials.
    if b.keys() == {()}:
        a, b = b, a
    if a.keys() == {()}:
        factor = a[()]
        if factor == 1:
            return b
        return {m: factor * c for m, c in b.items()}
    # The number of monomials is limited before they are multiplied.
    expect_few(len(a) * len(b))
    # Sorted by text, since parts of keys of different kinds cannot be compared.
    return _add_exponents(
        {tuple(sorted(m + n, key=repr)): c * d} for m, c in a.items() for n, d in b.items()
    )


def random_prime(random: Random) -> int:
    """Return a prime between 2^60 and 2^61."""
    while True:
        # Odd numbers only, above the lower bound.
        n = random.randrange(LOW + 1, HIGH, 2)
        if _is_prime(n):
            return n


@lru_cache(maxsize=1000)
def _is_prime(n: int) -> bool:
    """Return whether ``n`` < 2^64 is prime, by Miller and Rabin's test with the bases of Sinclair (2011)."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    # These seven bases decide primality below 2^64.
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
