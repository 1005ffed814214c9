"""Run steps of attention on SymPy expressions, each on letters of its own, so that its entries stay short.

Steps that compare entries run on numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import sympy

from symattn.arrays.array import Array
from symattn.arrays.exact import Exact
from symattn.arrays.special import FORBIDDEN, Forbidden
from symattn.arrays.symbolic import Symbolic
from symattn.attention.flow import Step
from symattn.attention.inputs import lengths
from symattn.derivations.attention.inputs import DerivationRequest, stem
from symattn.derivations.attention.textbook import pairs
from symattn.derivations.walks.walk_entries import same
from symattn.document.errors import Undecided
from symattn.proof.rational import all_equal


def letters_like(name: str, array: Any) -> Symbolic:
    """Return letters in the shape of an array, with its forbidden entries."""
    stand = Symbolic.letters(stem(name), *array.shape).entries
    for index, entry in np.ndenumerate(array.entries):
        if entry is FORBIDDEN:
            stand[index] = FORBIDDEN
    return Symbolic(stand)


def run(step: Step, inputs: Mapping[str, object]) -> Any:
    """Run one step on its inputs."""
    return step.run(*(inputs[name] for name in step.of))


def agrees(request: DerivationRequest, step: Step, inputs: Mapping[str, object], output: Array) -> bool:
    """Return whether every entry of the step's result equals its formulas. Raises Unread, Refused."""
    result = pairs(request, step, inputs, output, Symbolic)
    if any(isinstance(x, Forbidden) != isinstance(y, Forbidden) for x, y in result):
        return False
    # compare by normal forms or, if these do not decide it, as for roots of sums, by SymPy
    entries = [(x, y) for x, y in result if not isinstance(x, Forbidden)]
    try:
        return all_equal(entries)
    except Undecided:
        return all(bool(Symbolic.same(sympy.sympify(x), sympy.sympify(y))) for x, y in entries)


def row_sums(weights: Any, allowed: np.ndarray) -> bool:
    """Return whether every row of weights sums to 1, or to 0 if the query sees no key."""
    rows = weights.entries.reshape(-1, weights.shape[-1])
    visible = np.broadcast_to(allowed, weights.shape).reshape(rows.shape)
    return all_equal((sympy.Add(*row), sympy.Integer(int(s.any()))) for row, s in zip(rows, visible, strict=True))


def zeros(weights: Any, allowed: np.ndarray) -> bool:
    """Return whether exactly the forbidden weights are 0."""
    visible = np.broadcast_to(allowed, weights.shape)
    return all((w == 0) != s for w, s in zip(weights.entries.flat, visible.flat, strict=True))


def agrees_on_numbers(request: DerivationRequest, step: Step) -> bool:
    """Return whether a step agrees with its formulas on rational numbers. Raises Unread, Refused."""
    shapes = {name: lengths(name, request.spec, request.names, request.sizes) for name in step.of}
    inputs = {name: Exact.lift(_numbers(shape)) for name, shape in shapes.items()}
    return all(same(x, y) for x, y in pairs(request, step, inputs, run(step, inputs), Exact))


def _numbers(shape: tuple[int, ...]) -> np.ndarray:
    """Return pseudorandom twelfths between −2 and 2, always the same."""
    out = np.empty(shape, dtype=object)
    for place, index in enumerate(np.ndindex(*shape)):
        out[index] = Fraction((7 * place * place + 5 * place + 3) % 49 - 24, 12)
    return out
