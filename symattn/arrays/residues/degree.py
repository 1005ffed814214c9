"""The probability that two different values have equal residues: the degrees of arrays, and the bound.

**What an element is.** On a run whose decisions are fixed, an element is A/(n·B): n a positive integer, A and B Laurent
polynomials with integer coefficients in the *letters* of the run: v_1, …, v_s (values, keys, numbers standing for
maxima) and e^{x_1/C}, …, e^{x_r/C}, e^{1/C} (the same entries where they occur in exponents, with the common
denominator C of all coefficients there). As functions of real v and x these are algebraically independent, and so are
the numbers e^{1/C} and 1; hence two elements are equal as functions iff N = A_1 n_2 B_2 − A_2 n_1 B_1 is the zero
polynomial. An exponent is a ``ExponentForm``: integers times letters, plus an integer, over a divisor c.

**What a point is.** In a pair (p, q) the letters v are drawn uniformly from F_p and the x, independently of them,
uniformly from Z_q; g is drawn uniformly from the q − 1 generators of the group H of order q in F_p^*. Since C is
invertible mod q, F_i = g^{x_i/C} is uniform in H and independent of the others and of G = g^{1/C}, which is uniform in
H without 1; and the residue of e^{(Σ a_i x_i + a_0)/c} is the monomial Π F_i^{a_i C/c} · G^{a_0 C/c}. No letter is the
product of two: were queries and keys both letters, Σ_k q_ik k_jk in an exponent would have no degree, and no bound.

**Powers of two.** ln 2 is λ, uniform in Z_q without 0, and g = 2^{1/λ}: 2 is a square mod p, as p = 7 mod 8, and so
generates H; hence g is as above, and 2^s = g^{λs}. Where all exponents of an expression are λ^k times linear forms, for
one k ≠ 0 and without the number a_0, all of the above holds of F_i = g^{λ^k x_i/C} and e^{λ^k x_i/C} in the place of
those with k = 0. Expressions with two different k, or with a_0 and k ≠ 0, have no bound.

**Lemma.** Let N ≠ 0 over F_p have 2·Σ|powers of F_i and G| + Σ powers of v ≤ D in every monomial. Then N = 0 at the
point with probability at most D/(q − 1).
*Proof*, by induction on the letters. Let F be a letter with powers −a to b in N, N = Σ_t F^t N_t, and say b ≥ a (else
swap F and 1/F). N_b ≠ 0 has the bound D − 2b and lacks F, so it vanishes with probability at most (D − 2b)/(q − 1).
Otherwise F^a N is a polynomial in F of degree at most a + b ≤ 2b, with at most 2b zeros in H: at most 2b/(q − 1). For a
letter v with highest power t: (D − t)/(q − 1) and t/p. ∎ (The bound for polynomials is that of Schwartz, J. ACM 27
(1980) 701–717, and Zippel (1979); negative powers cost a factor of two and no clearing.)

**Primes.** N ≠ 0 over ℤ is 0 mod p only if p divides its coefficients, which are at most ``norm`` = Σ|coefficients| in
size: at most b = ⌊log₂ norm / 22⌋ primes p > 2²² do. Different pairs are drawn from the set 𝒫 of all, so T given
draws are all bad with probability at most (b/|𝒫|)^T. A wrong equality escapes T pairs with probability at most

    (D/(q − 1) + b/|𝒫|)^T.

**Decisions.** A run decides whether divisors are zero and whether elements are equal (``z == 0``) by residues. "No" is
always right. Let runs count only if all T pairs gave the same answers. If some "yes" was wrong, then the first such
decision, the e-th, of two different elements, was wrong in all T pairs: at most the same bound with its D and norm.
T is chosen by the D, the norm and the number K ≥ e of elements decided, so that 4·(K + 1)²·bound^T ≤ ε (``escape``).
Over all e that might have been first that sums to less than (ε/4)·(π²/6), the final comparison adds ε/4: together less
than ε. Where up to R pairs may be set aside, because their answers differ from the others', any T of T + R might be
those that count: a factor of C(T + R, R).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count
from math import ceil, comb, inf, lcm, log2
from typing import NamedTuple

import numpy as np

from symattn.arrays.residues.primes import LEAST


@dataclass(frozen=True, slots=True)
class MonomialWeight:
    """The weight of a Laurent polynomial.

    For every monomial, ``span`` ≥ Σ|powers| of its exponential letters, in units of e^x (1/2 for e^{x/2}), and
    ``degree`` ≥ Σ powers of its other letters; ``norm`` ≥ log₂ Σ|coefficients|.
    """

    span: Fraction = Fraction(0)
    degree: int = 0
    norm: float = 0.0

    def __mul__(self, other: MonomialWeight) -> MonomialWeight:
        return MonomialWeight(
            self.span + other.span, self.degree + other.degree, self.norm + other.norm
        )

    def __add__(self, other: MonomialWeight) -> MonomialWeight:
        # Sums of coefficients add; powers are those of the larger polynomial.
        norm = float(np.logaddexp2(self.norm, other.norm))
        span = max(self.span, other.span)
        return MonomialWeight(span, max(self.degree, other.degree), norm)

    def either(self, other: MonomialWeight) -> MonomialWeight:
        """Return the weight of an array with elements of both weights."""
        span = max(self.span, other.span)
        degree = max(self.degree, other.degree)
        return MonomialWeight(span, degree, max(self.norm, other.norm))

    def power(self, n: int) -> MonomialWeight:
        return MonomialWeight(self.span * n, self.degree * n, self.norm * n)

    def terms(self, n: int) -> MonomialWeight:
        """Return the weight of a sum of n such polynomials, or of n times one."""
        if n > 1:
            return MonomialWeight(self.span, self.degree, self.norm + log2(n))
        return self


# The weight of a polynomial without letters, whose coefficients sum to 1 at most.
ONE = MonomialWeight()


@dataclass(frozen=True, slots=True)
class ExponentForm:
    """The form of exponents (Σ a_i x_i + a_0)/``divisor`` with integers a: Σ|a| ≤ ``size``.

    ``degree`` is 0 for numbers, 1 for linear forms; polynomials of higher degree have no bound when they are
    exponentiated. The whole is multiplied by (ln 2)^``power``; ``shifted`` is False only if a_0 = 0.
    """

    degree: int
    size: int
    divisor: int = 1
    power: int = 0
    shifted: bool = True

    def __add__(self, other: ExponentForm) -> ExponentForm | None:
        return self._combine_exponent_forms(other, int.__add__)

    def __mul__(self, other: ExponentForm) -> ExponentForm:
        return ExponentForm(
            self.degree + other.degree,
            self.size * other.size,
            self.divisor * other.divisor,
            self.power + other.power,
            self.shifted and other.shifted,
        )

    def either(self, other: ExponentForm) -> ExponentForm | None:
        return self._combine_exponent_forms(other, max)

    def _combine_exponent_forms(
        self, other: ExponentForm, sizes: Callable[[int, int], int]
    ) -> ExponentForm | None:
        """Return the form of both over one divisor, or None if their powers of ln 2 differ."""
        # An exponent of size 0 is 0, which has every power of ln 2.
        if self.size and other.size and self.power != other.power:
            return None
        c = lcm(self.divisor, other.divisor)
        own_size = self.size * (c // self.divisor)
        size = sizes(own_size, other.size * (c // other.divisor))
        # A summand that is 0 brings no number a_0 with it.
        shifted = any(x.shifted for x in (self, other) if x.size)
        power = self.power if self.size else other.power
        return ExponentForm(max(self.degree, other.degree), size, c, power, shifted)

    def terms(self, n: int) -> ExponentForm:
        return replace(self, size=self.size * n)

    def exponential(self) -> ResidueRatio | None:
        """Return the ratio of e to such exponents; None if there is no bound."""
        # The proof needs linear forms, and powers of ln 2 without a number a_0 beside them.
        if self.degree > 1 or (self.size and self.power and self.shifted):
            return None
        weight = MonomialWeight(Fraction(self.size, self.divisor))
        # An exponent that is 0 for certain fits beside any power of ln 2.
        return ResidueRatio(weight, parts=self.divisor, power=self.power if self.size else None)


@dataclass(frozen=True, slots=True)
class ResidueRatio:
    """Elements A/(``number`` · B): the weights of A and of B, and the common denominator C of the exponents.

    ``power`` is the power of ln 2 in all of its exponents, None if there are none; operations on different powers
    return None. B may differ from element to element; ``State.divisors`` says where it is known to be the same.
    """

    top: MonomialWeight
    bottom: MonomialWeight = ONE
    number: int = 1
    parts: int = 1
    power: int | None = None

    def _join_residue_ratios(
        self, other: ResidueRatio, top: MonomialWeight, bottom: MonomialWeight, n: int
    ) -> ResidueRatio | None:
        power = other.power if self.power is None else self.power
        # Different powers of ln 2 are not covered by the bound, see the docstring of the module.
        if other.power not in (None, power):
            return None
        return ResidueRatio(top, bottom, n, lcm(self.parts, other.parts), power)

    def plus(self, other: ResidueRatio, same: bool) -> ResidueRatio | None:
        """Return the ratio of the sum; ``same`` if both have the same B (1, if there is none)."""
        n = lcm(self.number, other.number)
        # Over the common number n each numerator is multiplied by what its own number lacks.
        a = self.top.terms(n // self.number)
        b = other.top.terms(n // other.number)
        # Different B: numerators are multiplied crosswise, and the bound grows.
        if not same:
            a, b = a * other.bottom, b * self.bottom
        return self._join_residue_ratios(
            other, a + b, self.bottom if same else self.bottom * other.bottom, n
        )

    def times(self, other: ResidueRatio) -> ResidueRatio | None:
        top = self.top * other.top
        bottom = self.bottom * other.bottom
        return self._join_residue_ratios(other, top, bottom, self.number * other.number)

    def over(self, other: ResidueRatio) -> ResidueRatio | None:
        """Return the ratio of the quotient."""
        # Dividing by A/(n·B) moves B and n into the numerator.
        top = (self.top * other.bottom).terms(other.number)
        return self._join_residue_ratios(other, top, self.bottom * other.top, self.number)

    def terms(self, n: int, same: bool) -> ResidueRatio:
        """Return the ratio of a sum of n such quotients; ``same`` if they share B."""
        # Sums over one B add numerators only; this is why divisors are compared at all.
        if same or n < 2:
            return replace(self, top=self.top.terms(n))
        # Without a common B each term is multiplied by the n − 1 other denominators.
        raised_top = self.top * self.bottom.power(n - 1)
        return replace(self, top=raised_top.terms(n), bottom=self.bottom.power(n))

    def either(self, other: ResidueRatio) -> ResidueRatio | None:
        n = lcm(self.number, other.number)
        other_top = other.top.terms(n // other.number)
        top = self.top.terms(n // self.number).either(other_top)
        return self._join_residue_ratios(other, top, self.bottom.either(other.bottom), n)

    def vanishing(self) -> Chance:
        """Return the chance that A vanishes, which makes the element zero."""
        # Exponential letters have powers of both signs, which cost a factor of two in the lemma.
        degree = ceil(2 * self.top.span * self.parts) + self.top.degree
        return Chance(degree, self.top.norm)

    def difference(self, other: ResidueRatio, same: bool) -> Chance:
        """Return the chance that the difference's numerator vanishes; ``same`` if both have the same B."""
        sum_ = self.plus(other, same)
        return sum_.vanishing() if sum_ else UNKNOWN


class Chance(NamedTuple):
    """The D and the log₂ norm of a polynomial N, which bound the chance that N ≠ 0 has residue 0."""

    degree: float = 0
    norm: float = 0.0

    def either(self, other: Chance) -> Chance:
        return Chance(max(self.degree, other.degree), max(self.norm, other.norm))

    def bound(self, choices: int) -> float:
        """Return D/(q − 1) + b/|𝒫| for the least q and |𝒫| = ``choices``, rounded up; at most 1."""
        # Without a bound every chance is possible.
        if self.degree == inf or self.norm == inf:
            return 1.0
        # more than float64 lost in adding logarithms
        bad = int((self.norm * (1 + 1e-9) + 1e-6) / log2(LEAST))
        # The last factor covers the roundings of this line.
        return min(1.0, (self.degree / (LEAST // 2 - 1) + bad / choices) * (1 + 1e-12))


# Stands for elements without a degree or a norm: no number of pairs gives a bound.
UNKNOWN = Chance(inf, inf)


def escape(chance: float, decisions: int, pairs: int, spare: int) -> float:
    """Return an upper bound of the probability that different values are equal for all ``pairs`` pairs."""
    # The formula of the module's docstring: all decisions, and all choices of the pairs set aside.
    choices = comb(pairs + spare, spare)
    return float(min(1.0, 4.0 * (decisions + 1) ** 2 * choices * chance**pairs))


def pairs_needed(chance: float, decisions: int, epsilon: float, spare: int) -> int | None:
    """Return the least number of pairs for which ``escape`` is at most ε; None if it is more than 64."""
    enough = (t for t in range(1, 65) if escape(chance, decisions, t, spare) <= epsilon)
    return next(enough, None)


# -- decisions ---------------------------------------------------------------------------------------------------------
class Decisions:
    """The decisions of a run: the number of elements, the largest chance of a wrong "yes", and where it was "yes"."""

    def __init__(self) -> None:
        self.count = 0
        self.chance = Chance()
        self.answers: dict[int, bytes] = {}
        self._names = count()

    def name(self) -> int:
        """Return the name of the next decision: operations have a fixed order, even if they are computed later."""
        return next(self._names)

    def record(self, name: int, yes: np.ndarray, chance: Chance) -> None:
        self.count += yes.size
        self.chance = self.chance.either(chance)
        # A decision without a "yes" is left out, which says the same in less memory.
        if yes.any():
            self.answers[name] = np.flatnonzero(yes).tobytes()
