"""What is checked of softmax at a given number of keys: the one definition, run on letters and differentiated."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import sympy

from symattn.arrays.symbolic import Symbolic
from symattn.attention.softmax import softmax
from symattn.proof.rational import Ring, all_equal, nonnegative


class Weights:
    """p = softmax(s₁, …, s_n), its Jacobian by differentiation, and questions about it that are decided."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.scores = list(Symbolic.letters("s", n).entries)
        # Without the maximum: the same weights (derivation ``shift``), and nothing but letters to differentiate.
        self.p = list(softmax(Symbolic.lift(self.scores), stabilised=False).entries)
        self.x = sympy.symbols(f"x_1:{n + 1}", real=True)
        self.ring = Ring([*self.p, *self.x])

    @cached_property
    def jacobian(self) -> list[list[Any]]:
        """∂p_i/∂s_j, differentiated."""
        return [[sympy.diff(weight, score) for score in self.scores] for weight in self.p]

    @cached_property
    def closed(self) -> list[list[Any]]:
        """diag(p) − p pᵀ."""
        return [[(a if i == j else 0) - a * b for j, b in enumerate(self.p)] for i, a in enumerate(self.p)]

    def quotient_rule(self) -> bool:
        """∂p_i/∂s_j = (δ_ij e^{s_i} Z − e^{s_i} e^{s_j}) / Z²."""
        e = [sympy.exp(score) for score in self.scores]
        z = sympy.Add(*e)
        return self.ring.all_equal(
            (self.jacobian[i][j], ((e[i] * z if i == j else 0) - e[i] * e[j]) / z**2)
            for i in range(self.n)
            for j in range(self.n)
        )

    def outer_product(self) -> bool:
        """∂p_i/∂s_j = δ_ij p_i − p_i p_j."""
        return self.ring.all_equal(zip(_flat(self.jacobian), _flat(self.closed), strict=True))

    def entries(self) -> bool:
        """J_ii = p_i (1 − p_i), and J_ij = −p_i p_j elsewhere."""
        written = [[a * (1 - a) if i == j else -a * b for j, b in enumerate(self.p)] for i, a in enumerate(self.p)]
        return self.ring.all_equal(zip(_flat(self.jacobian), _flat(written), strict=True))

    def symmetric(self) -> bool:
        """J = Jᵀ."""
        return self.ring.all_equal((self.jacobian[i][j], self.jacobian[j][i]) for i in range(self.n) for j in range(i))

    def rows_sum_to_zero(self) -> bool:
        """J 1 = p − p Σp = 0."""
        one = sympy.Add(*self.p)
        return self.ring.all_equal(
            pair
            for row, weight in zip(self.jacobian, self.p, strict=True)
            for pair in ((sympy.Add(*row), weight - weight * one), (sympy.Add(*row), sympy.Integer(0)))
        )

    def variance(self) -> bool:
        """xᵀ J x = Σ p_i x_i² − (Σ p_i x_i)² = Σ_{i<j} p_i p_j (x_i − x_j)²."""
        form = sympy.Add(*(self.jacobian[i][j] * a * b for i, a in enumerate(self.x) for j, b in enumerate(self.x)))
        pairs = list(zip(self.p, self.x, strict=True))
        spread = sympy.Add(*(a * x**2 for a, x in pairs)) - sympy.Add(*(a * x for a, x in pairs)) ** 2
        squares = sympy.Add(*(a * b * (x - y) ** 2 for i, (a, x) in enumerate(pairs) for b, y in pairs[:i]))
        return self.ring.all_equal([(form, spread), (form, squares)])

    def norm(self) -> bool:
        """Σ_j |J_ij| = 2 p_i (1 − p_i), where J_ii ≥ 0 ≥ J_ij."""
        return all(
            self.ring.nonnegative(entry if i == j else -entry)
            for i, row in enumerate(self.jacobian)
            for j, entry in enumerate(row)
        ) and self.ring.all_equal(
            (2 * row[i] - sympy.Add(*row), 2 * self.p[i] * (1 - self.p[i])) for i, row in enumerate(self.jacobian)
        )

    def lead(self) -> bool:
        """1 − p_m = R/(1 + R) with R = Σ_{ℓ≠m} e^{s_ℓ − s_m}, for every m."""
        return self.ring.all_equal((1 - self.p[m], self._rest(m) / (1 + self._rest(m))) for m in range(self.n))

    def _rest(self, m: int) -> Any:
        return sympy.Add(*(sympy.exp(score - self.scores[m]) for i, score in enumerate(self.scores) if i != m))


def half_bound() -> bool:
    """1/2 − 2p(1 − p) = 2(p − 1/2)²."""
    p, half = sympy.Symbol("p"), sympy.Rational(1, 2)
    return all_equal([(half - 2 * p * (1 - p), 2 * (p - half) ** 2)])


def quotient_grows() -> bool:
    """x/(1 + x) ≤ y/(1 + y) ≤ y for 0 ≤ x ≤ y: with y = x + v every numerator is a sum of positive terms."""
    x, v = sympy.symbols("x v")
    y = x + v
    return nonnegative(y / (1 + y) - x / (1 + x)) and nonnegative(y - y / (1 + y))


def entries_small() -> bool:
    """p(1 − p) ≤ ε for the largest weight p = 1 − ε, and for each other weight p = ε − r with r ≥ 0."""
    p, r, e = sympy.symbols("p r e")
    return nonnegative(e - (1 - e) * e) and nonnegative((p + r) - p * (1 - p))


def slope_of_two() -> bool:
    """p₁(1 − p₁) = 1/(e^{Δ/2} + e^{−Δ/2})² = sech²(Δ/2)/4 for two scores Δ apart."""
    weights = Weights(2)
    gap = weights.scores[0] - weights.scores[1]
    return all_equal([(weights.jacobian[0][0], 1 / (sympy.exp(gap / 2) + sympy.exp(-gap / 2)) ** 2)])


def slope_falls() -> bool:
    """1/(2 + y + 1/y) falls with y ≥ 1: at y = 1 + v it is no smaller than at 1 + v + w."""
    v, w = sympy.symbols("v w")
    near, far = 1 + v, 1 + v + w
    return nonnegative(1 / (2 + near + 1 / near) - 1 / (2 + far + 1 / far))


def _flat(rows: list[list[Any]]) -> list[Any]:
    return [x for row in rows for x in row]
