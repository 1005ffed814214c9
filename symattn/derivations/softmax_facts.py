"""What is checked of softmax at a given number of keys: the one definition, run on letters and differentiated."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, reduce
from operator import add

import sympy

from symattn.arrays.symbolic import Symbolic
from symattn.attention.softmax import softmax
from symattn.proof.rational import Quotient, Ring

Pairs = Iterable[tuple[Quotient, Quotient]]


class Weights:
    """p = softmax(s₁, …, s_n), its Jacobian by differentiation, and questions about it that are decided."""

    def __init__(self, n: int) -> None:
        self.scores = list(Symbolic.letters("s", n).entries)
        # Without the maximum: the same weights (derivation ``shift``), and nothing but letters to differentiate.
        weights = softmax(Symbolic.lift(self.scores), stabilised=False).entries
        letters = sympy.symbols(f"x_1:{n + 1}", real=True)
        ring = Ring([*weights, *letters])
        self.p = [ring.of(weight) for weight in weights]
        self.e = [ring.of(sympy.exp(score)) for score in self.scores]
        self.x = [ring.of(letter) for letter in letters]
        self.zero, self.one = ring.of(0), ring.of(1)

    @cached_property
    def jacobian(self) -> list[list[Quotient]]:
        """∂p_i/∂s_j, differentiated."""
        return [[weight.derivative(score) for score in self.scores] for weight in self.p]

    def quotient_rule(self) -> bool:
        """∂p_i/∂s_j = (δ_ij e^{s_i} Z − e^{s_i} e^{s_j}) / Z²."""
        z = _sum(self.e)
        return self._entries_are(
            [
                [((a * z if i == j else self.zero) - a * b) / z**2 for j, b in enumerate(self.e)]
                for i, a in enumerate(self.e)
            ]
        )

    def outer_product(self) -> bool:
        """∂p_i/∂s_j = δ_ij p_i − p_i p_j."""
        return self._entries_are(
            [[(a if i == j else self.zero) - a * b for j, b in enumerate(self.p)] for i, a in enumerate(self.p)]
        )

    def entries(self) -> bool:
        """J_ii = p_i (1 − p_i), and J_ij = −p_i p_j elsewhere."""
        return self._entries_are(
            [[a * (self.one - a) if i == j else -(a * b) for j, b in enumerate(self.p)] for i, a in enumerate(self.p)]
        )

    def symmetric(self) -> bool:
        """J = Jᵀ."""
        return self._entries_are([list(column) for column in zip(*self.jacobian, strict=True)])

    def rows_sum_to_zero(self) -> bool:
        """J 1 = p − p Σp = 0."""
        sums = [_sum(row) for row in self.jacobian]
        return _all(zip(sums, (a - a * _sum(self.p) for a in self.p), strict=True)) and _all(
            (x, self.zero) for x in sums
        )

    def variance(self) -> bool:
        """xᵀ J x = Σ p_i x_i² − (Σ p_i x_i)² = Σ_{i<j} p_i p_j (x_i − x_j)²."""
        form = _sum(self.jacobian[i][j] * a * b for i, a in enumerate(self.x) for j, b in enumerate(self.x))
        pairs = list(zip(self.p, self.x, strict=True))
        spread = _sum(a * x**2 for a, x in pairs) - _sum(a * x for a, x in pairs) ** 2
        squares = _sum(a * b * (x - y) ** 2 for i, (a, x) in enumerate(pairs) for b, y in pairs[:i])
        return form.equals(spread) and form.equals(squares)

    def norm(self) -> bool:
        """Σ_j |J_ij| = 2 p_i (1 − p_i), where J_ii ≥ 0 ≥ J_ij."""
        signs = [(x if i == j else -x) for i, row in enumerate(self.jacobian) for j, x in enumerate(row)]
        sums = [row[i] + row[i] - _sum(row) for i, row in enumerate(self.jacobian)]
        wanted = [a * (self.one - a) for a in self.p]
        return all(x.nonnegative() for x in signs) and _all((x, a + a) for x, a in zip(sums, wanted, strict=True))

    def lead(self) -> bool:
        """1 − p_m = R/(1 + R) with R = Σ_{ℓ≠m} e^{s_ℓ − s_m}, for every m."""
        rests = [_sum(b / a for i, b in enumerate(self.e) if i != m) for m, a in enumerate(self.e)]
        return _all((self.one - a, rest / (self.one + rest)) for a, rest in zip(self.p, rests, strict=True))

    def _entries_are(self, wanted: list[list[Quotient]]) -> bool:
        return _all(pair for rows in zip(self.jacobian, wanted, strict=True) for pair in zip(*rows, strict=True))


def half_bound() -> bool:
    """1/2 − 2p(1 − p) = 2(p − 1/2)²."""
    p = sympy.Symbol("p")
    half = sympy.Rational(1, 2)
    ring = Ring([p])
    return ring.of(half - 2 * p * (1 - p)).equals(ring.of(2 * (p - half) ** 2))


def quotient_grows() -> bool:
    """x/(1 + x) ≤ y/(1 + y) ≤ y for 0 ≤ x ≤ y: with y = x + v every numerator is a sum of positive terms."""
    x, one, y = _letters("x", "v")
    return (y / (one + y) - x / (one + x)).nonnegative() and (y - y / (one + y)).nonnegative()


def entries_small() -> bool:
    """p(1 − p) ≤ ε for the largest weight p = 1 − ε, and for every other weight, of which ε = p + r with r ≥ 0."""
    p, one, whole = _letters("p", "r")
    return (p - (one - p) * p).nonnegative() and (whole - p * (one - p)).nonnegative()


def slope_of_two() -> bool:
    """∂p₁/∂s₁ = p₁(1 − p₁) = sech²(Δ/2)/4 = 1/(2 + e^Δ + e^{−Δ}) for two scores Δ apart."""
    weights = Weights(2)
    (e1, e2), p, one = weights.e, weights.p[0], weights.one
    slope = weights.jacobian[0][0]
    return slope.equals(p * (one - p)) and slope.equals(one / (one + one + e1 / e2 + e2 / e1))


def slope_falls() -> bool:
    """1/(2 + y + 1/y) falls with y ≥ 1: at 1 + v it is no smaller than at 1 + v + w."""
    v, one, sum_ = _letters("v", "w")
    near, far = one + v, one + sum_
    return (one / (one + one + near + one / near) - one / (one + one + far + one / far)).nonnegative()


def _letters(first: str, second: str) -> tuple[Quotient, Quotient, Quotient]:
    """A letter, 1, and the sum of both letters, in a ring of their own."""
    ring = Ring(sympy.symbols((first, second)))
    x, y = (ring.of(letter) for letter in ring.letters)
    return x, ring.of(1), x + y


def _sum(terms: Iterable[Quotient]) -> Quotient:
    return reduce(add, terms)


def _all(pairs: Pairs) -> bool:
    return all(x.equals(y) for x, y in pairs)
