"""Functions: how far f(x̂) is from f(x) + f'(x)(x̂ − x), and from f(x), if |x̂ − x| ≤ e."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flint
import numpy as np

from symattn.arrays.rounding.bounds import Floats, up


class Function(NamedTuple):
    """``slope`` f'(x) from balls x and y = f(x); ``rest`` bounds |f(x̂) − y − f'(x)(x̂ − x)| and ``steepest`` |f'|."""

    slope: Callable[[Any, Any], Any]
    rest: Callable[[Floats, Floats, np.ndarray], np.ndarray]
    steepest: Callable[[Floats, np.ndarray], np.ndarray]


def _exp_rest(x: Floats, y: Floats, e: np.ndarray) -> np.ndarray:
    """e^x (e^e − 1 − e) ≤ e^x e² e^e / 2, by Taylor."""
    return np.asarray(y.size * e * e * np.exp(e) / 2)


def _log_rest(x: Floats, y: Floats, e: np.ndarray) -> np.ndarray:
    """Σ_{k ≥ 2} t^k/k ≤ t²/(2(1 − t)), t = e/x < 1."""
    t = _share(e, x.low)
    return np.where(t < 1, t * t / (2 * np.maximum(1 - t, 0)), np.inf)


def _sqrt_rest(x: Floats, y: Floats, e: np.ndarray) -> np.ndarray:
    """(√x̂ − √x)²/(2√x), and |√x̂ − √x| ≤ e/√x for e ≤ x."""
    t = _share(e, x.low)
    return np.where(t < 1, t * t * y.size / 2, np.where(e == 0, 0, np.inf))


def _share(e: np.ndarray, x: np.ndarray) -> np.ndarray:
    """e/x, rounded up; 0/0 is 0."""
    return np.where(e == 0, 0.0, up(np.divide(e, x, out=np.full(np.shape(e), np.inf), where=x > 0)))


def _bend(most: float) -> Callable[[Floats, Floats, np.ndarray], np.ndarray]:
    """e² max|f''|/2."""
    return lambda x, y, e: most * e * e / 2


def _nearest_zero(x: Floats, e: np.ndarray) -> np.ndarray:
    """Not above |x̂|."""
    return np.asarray(np.maximum(x.low - e, 0))


def _unlimited(x: Floats, e: np.ndarray) -> np.ndarray:
    return np.full(np.shape(e), np.inf)


FUNCTIONS = {
    "exp": Function(lambda x, y: y, _exp_rest, _unlimited),
    "log": Function(lambda x, y: 1 / x, _log_rest, _unlimited),
    "sqrt": Function(lambda x, y: 1 / (2 * y), _sqrt_rest, _unlimited),
    # |tanh''| = |2 y (1 − y²)| ≤ 4/(3√3); the slope is largest next to 0.
    "tanh": Function(lambda x, y: 1 - y * y, _bend(0.77), lambda x, e: 1 - np.tanh(_nearest_zero(x, e)) ** 2 + 1e-15),
    # |erf''| = 4|x| e^{−x²}/√π ≤ 4/√(2 e π)
    "erf": Function(
        lambda x, y: 2 * (-x * x).exp() / flint.arb.pi().sqrt(),
        _bend(0.97),
        lambda x, e: 1.1284 * np.exp(-(_nearest_zero(x, e) ** 2)),
    ),
    "cos": Function(lambda x, y: -x.sin(), _bend(1), lambda x, e: np.ones(np.shape(e))),
    "sin": Function(lambda x, y: x.cos(), _bend(1), lambda x, e: np.ones(np.shape(e))),
}
