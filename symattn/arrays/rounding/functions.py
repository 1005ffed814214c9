"""Functions: how far f(x̂) is from f(x) + f'(x)(x̂ − x), and from f(x), if |x̂ − x| ≤ e."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.rounding.bounds import Floats, up


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


_RESTS = {"exp": _exp_rest, "log": _log_rest, "sqrt": _sqrt_rest}


def rest(name: str, x: Floats, y: Floats, e: np.ndarray) -> np.ndarray:
    """Not below |f(x̂) − y − f'(x)(x̂ − x)|: e² max|f''|/2 where f'' has a bound."""
    return _RESTS[name](x, y, e) if name in _RESTS else FUNCTIONS[name].bend * e * e / 2


def steepest(name: str, x: Floats, e: np.ndarray) -> np.ndarray:
    """Not below |f'| between x and x̂, as |x̂| ≥ |x| − e."""
    return FUNCTIONS[name].steepest(np.asarray(np.maximum(x.low - e, 0)))


class _Balls:
    """Functions of balls that are no arrays, for slopes."""

    def __getattr__(self, name: str) -> Any:
        return lambda x: getattr(x, name)()

    class kind:
        name = "ball"
        lift = staticmethod(lambda x: x)


def slope(name: str, x: Any, y: Any) -> Any:
    """f'(x) from balls x and y = f(x)."""
    return FUNCTIONS[name].slope(_Balls(), x, y)
