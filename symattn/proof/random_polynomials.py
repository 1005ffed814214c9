"""Means of polynomials in independent random numbers, by the moments of their laws, in exact numbers.

A random entry is a polynomial with exact coefficients. Statements run on arrays of such entries as on exact numbers;
entries are independent, so the mean of a monomial is the product of the moments of its powers. Moments follow from the
cumulants that a law assumes:

    m_n = Σ_{k=1}^{n} C(n − 1, k − 1) κ_k m_{n−k},  m_0 = 1

Source of the recursion: P. J. Smith, A recursive formulation of the old problem of obtaining moments from cumulants and
vice versa, The American Statistician 49 (1995).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import comb
from typing import Any

from symattn.arrays.field.quotient import Quotient
from symattn.document.errors import Undecided

MAX_TERMS = 5000  # of a polynomial; more take minutes
Monomial = tuple[tuple[int, int], ...]  # (number of an entry, its power), sorted by entry
_NO_POLYNOMIAL = "moments: of a function of random numbers that is no polynomial"


class RandomPolynomial:
    """A polynomial in numbered random entries, with exact coefficients. Raises Undecided for other operations."""

    __slots__ = ("terms",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, terms: Mapping[Monomial, Quotient]) -> None:
        if len(terms) > MAX_TERMS:
            raise Undecided(f"moments: a polynomial of more than {MAX_TERMS} terms")
        self.terms = terms

    @classmethod
    def entry(cls, number: int) -> RandomPolynomial:
        """Return a random entry by its number."""
        return cls({((number, 1),): Quotient.of(1)})

    def __add__(self, other: object) -> RandomPolynomial:
        terms = dict(self.terms)
        for monomial, coefficient in _terms_of(other).items():
            terms[monomial] = terms[monomial] + coefficient if monomial in terms else coefficient
        return RandomPolynomial(terms)

    def __mul__(self, other: object) -> RandomPolynomial:
        terms: dict[Monomial, Quotient] = {}
        others = _terms_of(other)
        # Checked before multiplying, since the product itself may fill the memory.
        if len(self.terms) * len(others) > MAX_TERMS**2:
            raise Undecided(f"moments: a polynomial of more than {MAX_TERMS} terms")
        for left, a in self.terms.items():
            for right, b in others.items():
                monomial, product = _multiply_random_monomials(left, right), a * b
                terms[monomial] = terms[monomial] + product if monomial in terms else product
        return RandomPolynomial(terms)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> RandomPolynomial:
        return RandomPolynomial(
            {monomial: -coefficient for monomial, coefficient in self.terms.items()}
        )

    def __pos__(self) -> RandomPolynomial:
        return self

    def __sub__(self, other: object) -> RandomPolynomial:
        return self + -RandomPolynomial(_terms_of(other))

    def __rsub__(self, other: object) -> RandomPolynomial:
        return -self + other

    def __truediv__(self, other: object) -> RandomPolynomial:
        divisor = _terms_of(other)
        # Only a number may divide a polynomial.
        if set(divisor) - {()}:
            raise Undecided(_NO_POLYNOMIAL)
        number = divisor.get((), Quotient.of(0))
        return RandomPolynomial(
            {monomial: coefficient / number for monomial, coefficient in self.terms.items()}
        )

    def __pow__(self, power: object) -> RandomPolynomial:
        if not isinstance(power, int) or power < 0:
            raise Undecided(_NO_POLYNOMIAL)
        result = RandomPolynomial({(): Quotient.of(1)})
        for _ in range(power):
            result = result * self
        return result

    def _refuse_non_polynomial(self, *_: object) -> Any:
        raise Undecided(_NO_POLYNOMIAL)

    # A polynomial has no order and no truth value: its outcome is random.
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __rtruediv__ = __rpow__ = __abs__ = (
        __bool__
    ) = _refuse_non_polynomial
    __float__ = __int__ = _refuse_non_polynomial

    def __getattr__(self, name: str) -> Any:
        raise Undecided(f"moments: {name} of a random number")

    def mean(self, moments: Sequence[Moments]) -> Quotient:
        """Return the mean; ``moments`` holds those of each entry. Raises Undecided for one that is not assumed."""
        total = Quotient.of(0)
        for monomial, coefficient in self.terms.items():
            for number, power in monomial:
                coefficient = coefficient * moments[number].of_order(power)
            total = total + coefficient
        return total


class Moments:
    """The moments of a law, by its ``cumulants``, of which None are unknown."""

    def __init__(self, name: str, cumulants: Iterable[Quotient | None]) -> None:
        self.name, self.cumulants = name, tuple(cumulants)
        self._known: list[Quotient] = [Quotient.of(1)]

    def of_order(self, order: int) -> Quotient:
        """Return E[xⁿ]. Raises Undecided if the law does not assume the cumulants that determine it."""
        while len(self._known) <= order:
            n = len(self._known)
            if n > len(self.cumulants) or None in self.cumulants[:n]:
                raise Undecided(f"moments: the moment of order {n} of {self.name} is not assumed")
            # E[xⁿ] = Σ_k C(n − 1, k) κ_{k+1} E[x^{n−1−k}].
            parts = zip(self.cumulants, reversed(self._known), strict=False)
            terms = (
                cumulant * moment * comb(n - 1, k)
                for k, (cumulant, moment) in enumerate(parts)
                if cumulant
            )
            self._known.append(sum(terms, Quotient.of(0)))
        return self._known[order]


def _terms_of(x: object) -> Mapping[Monomial, Quotient]:
    if isinstance(x, RandomPolynomial):
        return x.terms
    if isinstance(x, Quotient):
        return {(): x}
    if isinstance(x, int):
        return {(): Quotient.of(x)}
    raise Undecided(_NO_POLYNOMIAL)


def _multiply_random_monomials(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for number, power in right:
        powers[number] = powers.get(number, 0) + power
    return tuple(sorted(powers.items()))
