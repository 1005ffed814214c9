"""What tests of attention share: arrays as plain numbers, and how exact arrays are compared with loops over these."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

from symattn.arrays import kind
from symattn.arrays.modular import modular
from symattn.arrays.residues import primes
from symattn.attention.projections import project

FLOATS = ("float64", "float32", "float16", "bfloat16")
PAIRS = primes.pairs((2, 3, 5, 7))


def nested(array: np.ndarray) -> Any:
    """A NumPy array as nested lists of mpmath numbers."""
    return [nested(x) for x in array] if array.ndim else mpmath.mpf(array.item())


def agrees(run: Callable[..., Any], loops: Callable[..., Any], data: np.ndarray) -> bool:
    """Whether ``run`` on exact numbers gives what loops over plain numbers give, to 40 digits."""
    got = run(kind("exact").lift(data))
    with mpmath.workdps(60):
        wanted = np.array(loops(nested(data)), dtype=object)
        pairs = zip(got.entries.flat, wanted.flat, strict=True)
        return bool(got.shape == wanted.shape) and all(
            abs(mpmath.mpf(x.decimal(50)) - y) < mpmath.mpf("1e-40") * (1 + abs(y)) for x, y in pairs
        )


def lift_of(name: str) -> Callable[[Any], Any]:
    """How plain data becomes an array of a kind, residues among them."""
    return modular(*PAIRS[0], seed=3).lift if name == "modular" else kind(name).lift  # type: ignore[no-any-return]


def half(s: Any) -> Any:
    """½ as an array of the kind and type of s."""
    return s.__array_namespace__().asarray(Fraction(1, 2), dtype=s.dtype)


def feed_forward(activation: Callable[[Any], Any], x: Any, w_up: Any, w_down: Any, **beside: Any) -> Any:
    """f(x W_up + b_up) W_down + b_down, or with a gate f(x W_gate + b_gate) ⊙ (x W_up + b_up) under W_down."""
    up, gate = project(x, w_up, beside.get("b_up")), beside.get("w_gate")
    hidden = activation(up if gate is None else project(x, gate, beside.get("b_gate")))
    return project(hidden if gate is None else hidden * up, w_down, beside.get("b_down"))
