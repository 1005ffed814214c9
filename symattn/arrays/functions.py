"""The functions of one number that namespaces offer: one row for each, which every kind reads.

What a kind knows beyond its row (exponentials of exact numbers, √ at the speed of NumPy) is defined with the kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.array import Functions
from symattn.document.errors import Refused

Slope = Callable[[Any, Any, Any], Any]
_BoundOfSlope = Callable[[np.ndarray], np.ndarray]


def _leave_slope_unbounded(d: np.ndarray) -> np.ndarray:
    return np.full(np.shape(d), np.inf)


class Function(NamedTuple):
    """A function f of one number.

    ``slope``: (xp, x, y) ↦ f'(x) for y = f(x), as code over the namespace of any kind. ``at_zero``: f(0), if it is
    rational and the only rational value at rational numbers; exact numbers use it. ``bend`` is an upper bound of |f''|,
    and ``steepest`` maps d to an upper bound of |f'(x)| for |x| ≥ d; ∞ if there is none.
    """

    slope: Slope
    at_zero: int | None = None
    bend: float = math.inf
    steepest: _BoundOfSlope = _leave_slope_unbounded


def _bound_slope_by_one(d: np.ndarray) -> np.ndarray:
    return np.ones(np.shape(d))


FUNCTIONS = {
    "exp": Function(lambda xp, x, y: y),
    "log": Function(lambda xp, x, y: 1 / x),
    "sqrt": Function(lambda xp, x, y: 1 / (2 * y)),
    # |tanh''| = |2 y (1 − y²)| ≤ 4/(3√3); the slope is largest next to 0.
    "tanh": Function(lambda xp, x, y: 1 - y * y, 0, 0.77, lambda d: 1 - np.tanh(d) ** 2 + 1e-15),
    # |erf''| = 4|x| e^{−x²}/√π ≤ 4/√(2 e π)
    "erf": Function(
        lambda xp, x, y: 2 * xp.exp(-(x * x)) / xp.sqrt(pi(xp)),
        0,
        0.97,
        lambda d: 1.1284 * np.exp(-(d**2)),
    ),
    "cos": Function(lambda xp, x, y: -xp.sin(x), 1, 1, _bound_slope_by_one),
    "sin": Function(lambda xp, x, y: xp.cos(x), 0, 1, _bound_slope_by_one),
}


def of_floats(name: str, x: object) -> Any:
    """Apply NumPy's function, or the C library's if NumPy lacks it (erf). Raises Refused if both do."""
    if hasattr(np, name):
        return getattr(np, name)(x)
    if name not in FUNCTIONS or not hasattr(math, name):
        raise Refused(f"float64 lacks {name}")
    # The C library computes in double precision; the result gets the dtype of the argument.
    return np.asarray(
        np.vectorize(getattr(math, name), otypes=[float])(x), dtype=getattr(x, "dtype", float)
    )


def pi(xp: Functions) -> Any:
    """Return π as an array of the namespace's kind. Raises Refused if the kind cannot represent it."""
    kind = getattr(xp, "kind", None)
    base = getattr(getattr(kind, "base", kind), "name", "NumPy")
    if base in ("ball", "enclosure"):
        import flint

        return kind.lift(flint.arb.pi())  # type: ignore[union-attr]
    if base == "symbolic":
        import sympy

        return kind.lift(sympy.pi)  # type: ignore[union-attr]
    if base == "indexed":
        return xp.pi
    # No rational number and no residue is π.
    if base in ("exact", "modular"):
        raise Refused(f"{base} lacks π")
    return math.pi if kind is None else kind.lift(math.pi)
