"""Steps of attention on SymPy expressions, each on letters of its own, so that its entries stay short."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import sympy

from symattn.arrays.special import FORBIDDEN, Forbidden
from symattn.arrays.symbolic import Symbolic
from symattn.attention.flow import Step
from symattn.derivations.attention.entries import expected
from symattn.derivations.attention.inputs import Request, stem
from symattn.document.errors import Undecided
from symattn.proof.rational import all_equal


class Expressions:
    """Computing with SymPy expressions."""

    def number(self, value: int | Fraction) -> Any:
        """The number."""
        return sympy.Rational(Fraction(value).numerator, Fraction(value).denominator)

    def apply(self, name: str, x: Any) -> Any:
        """The function, with 2ˣ and log₂ by e and log."""
        if name in ("exp2", "log2"):
            two = sympy.log(2)
            return sympy.exp(x * two) if name == "exp2" else sympy.log(x) / two
        return getattr(sympy, name)(x)

    def power(self, base: Fraction, exponent: Fraction) -> Any:
        """base^exponent."""
        return self.number(base) ** self.number(exponent)

    def larger(self, x: Any, y: Any) -> Any:
        """The larger one, if SymPy knows."""
        return Symbolic.larger(x, y)

    def less(self, x: Any, y: Any) -> bool:
        """Whether x < y. Raises Undecided."""
        return bool(Symbolic.less(x, y))


def letters_like(name: str, array: Any) -> Symbolic:
    """Letters in the place of an array, forbidden entries kept."""
    stand = Symbolic.letters(stem(name), *array.shape).entries
    for index, entry in np.ndenumerate(array.entries):
        if entry is FORBIDDEN:
            stand[index] = FORBIDDEN
    return Symbolic(stand)


def run(step: Step, inputs: Mapping[str, Any]) -> Any:
    """One step on its inputs."""
    return step.run(*(inputs[name] for name in step.of))


def agrees(request: Request, step: Step, inputs: Mapping[str, Any], found: Any) -> bool | None:
    """Whether every entry that the step gave is the textbook's; None for a step that no textbook has."""
    arrays = {name: x.entries if isinstance(x, Symbolic) else np.asarray(x) for name, x in inputs.items()}
    wanted = expected(request.spec, step, arrays, tuple(found.shape), Expressions())
    if wanted is None:
        return None
    pairs = list(zip(found.entries.flat, wanted.flat, strict=True))
    if any(isinstance(x, Forbidden) != isinstance(y, Forbidden) for x, y in pairs):
        return False
    return _equal([(x, y) for x, y in pairs if not isinstance(x, Forbidden)])


def _equal(pairs: list[tuple[Any, Any]]) -> bool:
    """By their normal forms; what these leave open, as roots of sums do, by what SymPy decides."""
    try:
        return all_equal(pairs)
    except Undecided:
        return all(bool(Symbolic.same(sympy.sympify(x), sympy.sympify(y))) for x, y in pairs)


def row_sums(weights: Any, allowed: np.ndarray) -> bool:
    """Whether every row of weights sums to 1, and to 0 where the query sees no key."""
    rows = weights.entries.reshape(-1, weights.shape[-1])
    seen = np.broadcast_to(allowed, weights.shape).reshape(rows.shape)
    return all_equal((sympy.Add(*row), sympy.Integer(int(s.any()))) for row, s in zip(rows, seen, strict=True))


def zeros(weights: Any, allowed: np.ndarray) -> bool:
    """Whether exactly the forbidden weights are 0."""
    seen = np.broadcast_to(allowed, weights.shape)
    return all((w == 0) != s for w, s in zip(weights.entries.flat, seen.flat, strict=True))
