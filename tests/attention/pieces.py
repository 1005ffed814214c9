"""What it means that a step of attention is right: against plain loops, and on every kind of array.

A piece is a function of arrays. Its reference is a function of nested loops over mpmath numbers that knows nothing of
arrays, and ``wrong`` is a mistake that the same comparison must not pass.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import sympy

from symattn.arrays import kind
from symattn.arrays.ball import precision
from symattn.arrays.modular import modular
from symattn.arrays.residues import primes
from symattn.arrays.special import Forbidden
from symattn.attention.projections import project
from tests.arrays.residues import agree
from tests.bounded import bounded

FLOATS = ("float64", "float32", "float16", "bfloat16")
PAIRS = primes.pairs((2, 3, 5, 7))


@dataclass(frozen=True, eq=False)
class Piece:
    """``run`` of arrays with these shapes, and what it is compared with; ``skipped`` says why some kinds are not."""

    run: Callable[..., Any]
    reference: Callable[..., Any]
    wrong: Callable[..., Any]
    shapes: Sequence[tuple[int, ...]] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    scale: float = 0.5
    given: Sequence[Any] = ()  # data, where it must be chosen

    @property
    def data(self) -> list[np.ndarray]:
        """Halves between −2 and 2, always the same."""
        if self.given:
            return [np.array(x, dtype=float) for x in self.given]
        draw = np.random.default_rng(7)
        return [draw.integers(-4, 5, shape) * self.scale for shape in self.shapes]


@cache
def lifted(piece: Any) -> Any:
    """The exact result."""
    return piece.run(*map(kind("exact").lift, piece.data))


def numbers(array: Any) -> list[Any]:
    """The elements as mpmath numbers of 50 digits; −∞ stays."""
    with mpmath.workdps(60):
        return [
            mpmath.mpf("-inf") if isinstance(x, Forbidden) else mpmath.mpf(x.decimal(50)) for x in array.entries.flat
        ]


def nested(array: np.ndarray) -> Any:
    """A NumPy array as nested lists of mpmath numbers."""
    return [nested(x) for x in array] if array.ndim else mpmath.mpf(array.item())


def agrees(run: Callable[..., Any], piece: Piece, name: str = "exact") -> bool:
    """Whether ``run`` on the piece's data gives what the reference says, to 40 digits."""
    got = run(*map(kind(name).lift, piece.data))
    with mpmath.workdps(60):
        wanted = np.array(piece.reference(*map(nested, piece.data)), dtype=object)
        if tuple(map(int, got.shape)) != wanted.shape:
            return False
        return all(_near(a, b) for a, b in zip(_values(got, name), wanted.flat, strict=True))


def _values(array: Any, name: str) -> list[Any]:
    if name == "exact":
        return numbers(array)
    with precision(256):
        return [
            mpmath.mpf("-inf") if isinstance(x, Forbidden) else mpmath.mpf(x.mid().str(50, radius=False))
            for x in array.entries.flat
        ]


def _near(a: Any, b: Any) -> bool:
    return bool(a == b) if mpmath.isinf(a) or mpmath.isinf(b) else abs(a - b) < mpmath.mpf("1e-40") * (1 + abs(b))


def check_balls(piece: Piece) -> None:
    """Balls hold the exact elements, and are narrow."""
    with precision(128):
        balls = piece.run(*map(kind("ball").lift, piece.data)).entries
        for ball, x in zip(balls.flat, lifted(piece).entries.flat, strict=True):
            if isinstance(x, Forbidden):
                assert isinstance(ball, Forbidden)
                continue
            assert ball.overlaps(x.arb(200))
            assert ball.rad() < 2.0**-90


def check_symbolic(piece: Piece) -> None:
    """SymPy's expressions have the exact values."""
    found = piece.run(*map(kind("symbolic").lift, piece.data)).entries
    for expression, x in zip(found.flat, lifted(piece).entries.flat, strict=True):
        if isinstance(x, Forbidden):
            assert isinstance(expression, Forbidden)
            continue
        assert abs(sympy.N(expression, 40) - sympy.Float(x.decimal(40), 40)) < sympy.Float("1e-30")


def check_modular(piece: Piece) -> None:
    """Residues are the images of the exact elements."""
    of = modular(*PAIRS[0], seed=3)
    assert agree(piece.run(*map(of.lift, piece.data)), lifted(piece))


def check_floats(piece: Piece, dtype: str) -> None:
    """Floats are within the rounding errors of their own operations, see ``tests.bounded``, and keep their type."""
    target = kind(dtype)
    with np.errstate(all="ignore"):
        got = piece.run(*map(target.lift, piece.data))
        radius = piece.run(*map(bounded(target.dtype).lift, piece.data)).planes[1]
    plain = got if isinstance(got, np.ndarray) else got.numpy()
    assert plain.dtype == target.dtype
    for x, true, r in zip(plain.astype(float).flat, lifted(piece).entries.flat, radius.flat, strict=True):
        if isinstance(true, Forbidden):
            assert x == -np.inf
            continue
        assert r < 2**14 * float(ml_dtypes.finfo(target.dtype).eps)
        assert abs(x - true.to_float()) <= r


CHECKS: dict[str, Callable[[Piece], None]] = {
    "ball": check_balls,
    "symbolic": check_symbolic,
    "modular": check_modular,
    **{dtype: lambda piece, dtype=dtype: check_floats(piece, dtype) for dtype in FLOATS},  # type: ignore[misc]
}


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
