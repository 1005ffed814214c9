"""Implementations drawn at random from those that a rounded kind speaks for, their roundings steered to be bad.

The arithmetic is simulated in float64, whose own rounding is far below u: each operation is multiplied by 1 + δ,
|δ| ≤ u, and each function by 1 + δ, |δ| ≤ ε. Which way δ goes is found by moving each one alone, so that all pull the
result one way. Nothing of ``symattn.arrays.rounding`` takes part.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from symattn import Precision
from symattn.arrays.formats import Format

Run = Callable[["Machine"], float]


class Machine:
    """Arithmetic whose i-th rounding goes where ``signs[i]`` in [−1, 1] says; choices are drawn from ``seed``."""

    def __init__(self, precision: Precision, seed: int, signs: Sequence[float] | np.ndarray = ()) -> None:
        self.precision, self.signs, self.count = precision, signs, 0
        self.rng = np.random.default_rng(seed)
        self.fused = precision.contract == "fused"

    def off(self, x: float, by: float) -> float:
        """x with a relative error of at most ``by``; zero has none."""
        if x == 0:
            return x
        self.count += 1
        i = self.count - 1
        return x * (1 + by * float(self.signs[i])) if i < len(self.signs) else x

    def fl(self, x: float, f: Format | None = None) -> float:
        return self.off(x, float((f or self.precision.score).u))

    def function(self, f: Callable[[float], float], x: float) -> float:
        y = f(x)
        return y if x == 0 else self.off(y, 2 * self.precision.exp_ulps * float(self.precision.score.u))

    def choose(self, *ways: Any) -> Any:
        return ways[int(self.rng.integers(len(ways)))]

    def sum(self, terms: Sequence[float]) -> float:
        """In any order, in the arithmetic of sums; then stored."""
        left = [t for t in terms if t != 0]
        forward = self.choose(True, False)
        while len(left) > 1:
            a = left.pop(0 if forward else int(self.rng.integers(len(left))))
            j = 0 if forward else int(self.rng.integers(len(left)))
            left[j] = self.fl(left[j] + a, self.precision.accumulate)
        return self.stored(left[0]) if left else 0.0

    def stored(self, x: float) -> float:
        """A sum on its way out of the accumulator."""
        return x if self.precision.score == self.precision.accumulate else self.fl(x)

    def dot(self, xs: Sequence[float], ys: Sequence[float], more: float = 0.0) -> float:
        """With products rounded, or fused into the sums one after another; what is added may come first."""
        a = self.precision.accumulate
        if self.choose(True, False):
            return self.sum([*([more] if more else []), *(self.fl(x * y, a) for x, y in zip(xs, ys, strict=True))])
        total = more if self.choose(True, False) else 0.0
        rest = more - total
        for i in self.rng.permutation(len(xs)):
            total = self.fl(total + xs[i] * ys[i], a)
        return self.stored(self.fl(total + rest) if rest else total)

    def over(self, x: float, y: float) -> float:
        return self.fl(x / y) if self.choose(True, False) else self.fl(x * self.fl(1 / y))

    def read(self, x: float) -> float:
        """What a product of matrices reads."""
        return self.fl(x, self.precision.stored) if self.fused else x

    def given_out(self, x: float) -> float:
        return self.fl(x, self.precision.input) if self.fused else x


def attention(m: Machine, q: np.ndarray, k: np.ndarray, v: np.ndarray, w: np.ndarray) -> float:
    """softmax(q Kᵀ/√d) V w for one query and one column w."""
    s = scores(m, list(q), k)
    top = max(s)
    subtract = m.choose(True, False) or top < 0
    e = [m.fl(x - top) if subtract else x for x in s]
    summed = [m.function(math.exp, x) for x in e]
    again = m.choose(True, False)  # the exponentials that are summed and those that are multiplied are rounded apart
    weighed = [m.function(math.exp, x) for x in e] if again else summed
    total = m.sum(summed)
    if m.choose(True, False):
        p = [m.read(m.over(x, total)) for x in weighed]
        out = [m.dot(p, column) for column in v.T]
    else:
        p = [m.read(x) for x in weighed]
        out = [m.over(m.dot(p, column), total) for column in v.T]
    return m.given_out(m.dot([m.read(x) for x in out], w))


def scores(m: Machine, q: list[float], k: np.ndarray) -> list[float]:
    """q Kᵀ/√d, scaled in one of four places."""
    root = math.sqrt(len(q))
    root = root if root == int(root) else m.fl(root)
    how = m.choose("divided", "times", "queries", "both")
    if how == "divided":
        return [m.over(m.dot(q, row), root) for row in k]
    scale = m.fl(1 / root)
    if how == "times":
        return [m.fl(m.dot(q, row) * scale) for row in k]
    if how == "queries":
        scaled = [m.fl(x * scale) for x in q]
        return [m.dot(scaled, row) for row in k]
    half = m.fl(math.sqrt(scale))
    scaled = [m.fl(x * half) for x in q]
    return [m.dot(scaled, [m.fl(y * half) for y in row]) for row in k]


def layer(m: Machine, x: np.ndarray, w: np.ndarray, b: np.ndarray, eps: float) -> float:
    """The first entry of z/√(mean z² + ε), z = y − mean y, y = x W + b."""
    n = len(b)
    y = [m.dot(x, column, float(b[i])) for i, column in enumerate(w.T)]
    mean = m.over(m.sum(y), n)
    z = [m.fl(t - mean) for t in y]
    again = [m.fl(t - mean) for t in y] if m.choose(True, False) else z
    variance = m.fl(m.over(m.sum([m.fl(t * t) for t in again]), n) + m.fl(eps))
    if m.choose(True, False):
        return m.given_out(m.over(z[0], m.function(math.sqrt, variance)))
    return m.given_out(m.fl(z[0] * m.function(lambda t: 1 / math.sqrt(t), variance)))


def worst(run: Run, precision: Precision, seed: int, exact: float) -> float:
    """The largest error found of one implementation, its roundings steered up, down, and left to chance."""
    probe = Machine(precision, seed)
    base = run(probe)
    slopes = np.zeros(probe.count)
    for i in range(probe.count):
        alone = np.zeros(probe.count)
        alone[i] = 1
        slopes[i] = run(Machine(precision, seed, alone)) - base
    steered, chance = np.sign(slopes), np.random.default_rng(seed).uniform(-1, 1, probe.count)
    return max(abs(run(Machine(precision, seed, signs)) - exact) for signs in (steered, -steered, chance))
