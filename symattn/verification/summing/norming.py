"""The sum in the mean of a layer norm, read from the output at an entry that is zero.

For a row x the output is (x − μ)·r, with the same r for the whole row. With an entry p and one that is zero, r is
(y_p − y_0)/x_p, and the mean μ = −y_0/r; so rows of terms that cancel show the order of the sum n·μ. A mean that is
updated term by term, as Welford's, is a sum in no order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from symattn.bounds.called_target import Runner
from symattn.verification.definitions.norms import LayerNorm, Norm
from symattn.verification.summing.asking import TermNumbers, TermSum
from symattn.verification.summing.order import Order, ordered
from symattn.verification.summing.tree import NoTree

Array = np.ndarray
_ROWS = 64
_LARGE = {"bfloat16": 2.0**60, "float32": 2.0**60, "float64": 2.0**300}  # their squares are within the range
_LONGEST = 1024  # terms
_ALIVE = {"bfloat16": 16}  # ones, so few that their mean is exact enough to be counted


def order(runner: Runner, spec: Norm, format: str, width: int) -> Order:
    """Return the order in which a layer norm adds over its width; that of an RMS norm cannot be determined."""

    def sum_of(n: int) -> TermSum:
        if not isinstance(spec, LayerNorm):
            raise NoTree("squares have one sign, so no two of them cancel")
        if format not in _LARGE:
            raise NoTree(f"{format} lacks the range for it")
        alive = min(_ALIVE.get(format, n), n // 2, n - 3)  # besides two large terms and a zero
        return TermSum(n, _ROWS, TermNumbers(_LARGE[format], 1.0, alive), _row_sums(runner, spec))

    return ordered("entries of a row", width, sum_of, _LONGEST)


def _row_sums(runner: Runner, spec: Norm) -> Callable[[Array], Array]:
    def call(terms: Array) -> Array:
        x = terms.T
        inputs = {"x": x, "gain": np.full(len(terms), 0.0 if spec.one_plus else 1.0), "bias": np.zeros(len(terms))}
        outcome = runner.run({n: inputs[n] for n in runner.convention.inputs if n in inputs})
        if outcome.error is not None:
            raise NoTree(f"the function refuses these inputs ({outcome.error})")
        if outcome.output is None or outcome.output.shape != x.shape:
            raise NoTree("the function gives no output of the shape of its input")
        y = np.asarray(outcome.output, dtype=float)
        rows, term, zero = np.arange(len(x)), np.abs(x).argmax(axis=1), np.abs(x).argmin(axis=1)
        with np.errstate(all="ignore"):
            r = (y[rows, term] - y[rows, zero]) / x[rows, term]
            return np.asarray(-y[rows, zero] / r * x.shape[1])

    return call
