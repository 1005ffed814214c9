"""Attention as a sum over keys: with queries of zeros all scores are equal, and each column of values is added up.

A column of values is a column of terms, so a call with d_v columns asks d_v sums. The weights of the last query have to
be equal for this, which the definition says: those of masked keys are zero, and positions, biases or sinks may make
others differ. What else a call needs (masks, which are open, and projections) is made as for any probe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from symattn.bounds import called_target, case_result, reference
from symattn.bounds.inputs import Maker
from symattn.verification.summing.asking import TermNumbers, TermSum
from symattn.verification.summing.order import Order, ordered
from symattn.verification.summing.tree import NoTree

Array = np.ndarray
KEYS = 128
COLUMNS = 64
_ALIKE = 1e-9  # how far weights may be apart, relative to them
_ADDED = ("bias", "b_rel")  # numbers that are added to scores, and may be zero


@dataclass(frozen=True)
class Attending:
    """A function of attention, and what makes inputs for it. ``row`` asks for the last output of the first head."""

    runner: called_target.Runner
    maker: Maker

    @property
    def width(self) -> int:
        """d_k and d_v."""
        return self.maker.domain.widths.down(COLUMNS) or COLUMNS

    def inputs(self, q: Array, k: Array, v: Array) -> dict[str, Array]:
        """Inputs by which each head gets these. Raises ``NoTree`` where there are none."""
        try:
            result = self.maker.from_heads(q, k, v)
        except case_result.UNFIT:
            result = None
        if result is None or "x" in result:
            raise NoTree("no queries, keys and values like these are within what the function takes")
        zeros = {n: np.zeros_like(result[n]) for n in _ADDED if n in result}
        return {**result, **zeros}

    def row(self, inputs: Mapping[str, Array]) -> Array:
        """Return the output for the last query. Raises ``NoTree`` where there is none."""
        outcome = self.runner.run(inputs)
        if outcome.error is not None:
            raise NoTree(f"the function refuses these inputs ({outcome.error})")
        values = outcome.output
        if values is None or values.ndim < 2 or values.shape[-1] != inputs["v"].shape[-1]:
            raise NoTree("the function gives no output of the shape of its values")
        return np.asarray(values.reshape(-1, *values.shape[-2:])[0, -1], dtype=float)

    def weights(self, inputs: Mapping[str, Array]) -> Array:
        """The weights of the last query by the definition. Raises ``NoTree`` where it has none."""
        spec, given = reference.canonical(self.maker.spec), {n: np.asarray(a) for n, a in inputs.items()}
        try:
            with np.errstate(all="ignore"):
                values = np.asarray(reference.trace(spec, given)["weights"], dtype=float)
        except case_result.UNFIT as error:
            raise NoTree("the definition has no weights for such inputs") from error
        return np.asarray(values.reshape(-1, *values.shape[-2:])[0, -1])

    def sum_over(self, n: int) -> TermSum:
        """The sum over n keys, as far as the last query sees them. Raises ``NoTree``."""
        first = self._inputs(np.zeros((n, self.width)))
        weights = self.weights(first)
        seen = np.flatnonzero(weights)
        if len(seen) < 3 or np.ptp(weights[seen]) > _ALIKE * weights[seen].max():
            raise NoTree("with queries of zeros the weights of keys differ, or there are fewer than three")
        numbers = TermNumbers.of(self.maker.precision.input.name, len(seen), float(weights[seen[0]]))
        return TermSum(len(seen), self.width, numbers, self._asked(seen, first["k"].shape[-2]), first=int(seen[0]))

    def _asked(self, array: Array, keys: int) -> Callable[[Array], Array]:
        def call(terms: Array) -> Array:
            values = np.zeros((keys, self.width))
            values[array] = terms
            return self.row(self._inputs(values))

        return call

    def _inputs(self, values: Array) -> dict[str, Array]:
        """Queries of zeros, keys that are all alike, and these values."""
        n = len(values)
        return self.inputs(np.zeros((n, self.width)), np.ones((n, self.width)), values)


def order(runner: called_target.Runner, maker: Maker, keys: int = KEYS) -> Order:
    """The order in which attention adds over its keys."""
    attending = Attending(runner, maker)
    return ordered("keys", keys, attending.sum_over, maker.domain.max_tokens)
