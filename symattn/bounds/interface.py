"""The bound as one asks for it: for given inputs, element by element; or beforehand, from sizes alone, as a formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.arrays.ball import precision as bits
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds import enclosed, formula
from symattn.bounds.balls import allowed as in_balls
from symattn.bounds.priori import Sizes, evaluate
from symattn.bounds.reference import canonical, run
from symattn.document.errors import Refused
from symattn.document.notation import Node

_BITS = 128


@dataclass(frozen=True, eq=False)
class Bound:
    """How far each element of the output may be from the exact one: (…, n_q, d_v), +∞ where nothing is said.

    ``parts`` says how much of it comes from which step; they sum to ``allowed`` where that is finite. It is empty where
    the evaluation is one in balls (``method``), which knows the sum alone.
    """

    allowed: np.ndarray
    parts: dict[str, np.ndarray]
    method: str

    @property
    def largest(self) -> float:
        """The largest allowed error."""
        return float(self.allowed.max(initial=0.0))

    @property
    def where(self) -> tuple[int, ...]:
        """The index of the largest."""
        return tuple(int(i) for i in np.unravel_index(int(self.allowed.argmax()), self.allowed.shape))

    def steps(self) -> dict[str, float]:
        """The parts of the largest element, the largest part first."""
        found = {name: float(part[self.where]) for name, part in self.parts.items()}
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def bound(spec: Attention, inputs: Mapping[str, Any], precision: str | Precision) -> Bound:
    """The bound for these inputs, by name (q, k, v, mask, …), as ``Attention`` takes them.

    Plain attention (masks, heads, shared keys, sinks) is bounded in floats at BLAS's speed. So is every softmax of
    other scores (rotary positions, caps, biases, additive masks), from enclosures of these; what is left, in balls.
    Raises InputError where no bound is proved for the specification. The statement and its proof: ``bounds``.
    """
    given = {name: _array(a) for name, a in inputs.items()}
    spec, precision = canonical(spec), Precision.of(precision)
    try:
        whole, shares = enclosed.with_shares(spec, given, precision)
    except Refused:
        with bits(_BITS):
            return Bound(in_balls(run(spec, given), precision), {}, "balls")
    return Bound(whole, _scaled(shares, whole) if shares else {}, "floats")


def _array(a: Any) -> np.ndarray:
    array = np.asarray(a)
    return array if array.dtype.kind in "biu" else array.astype(np.float64)


def _scaled(shares: dict[str, np.ndarray], allowed: np.ndarray) -> dict[str, np.ndarray]:
    """Shares that sum to what is allowed."""
    total = sum(shares.values())
    with np.errstate(all="ignore"):
        factor = np.where(np.isfinite(allowed) & (total > 0), allowed / total, 0.0)
        return {name: np.where(np.isfinite(part), part, 0.0) * factor for name, part in shares.items()}


@dataclass(frozen=True)
class APriori:
    """The bound that holds for every input of given sizes.

    ``value`` is a tolerance to write into a test; ``parts`` says how much of it comes from which step; ``formula`` is
    it in TeX, ``quantities`` its letters (TeX, in words, value); ``derivation`` says step by step why it holds.
    """

    value: float
    parts: dict[str, float]
    formula: tuple[Node, ...]
    quantities: tuple[tuple[Node, str, float], ...]
    derivation: tuple[str, ...]


def a_priori(
    n: int,
    d_k: int,
    score_max: float,
    v_max: float,
    precision: Precision,
    *,
    entry_max: float = 16.0,
    lowest_max: float = 0.0,
) -> APriori:
    """The bound for n keys of width d_k, with Σ_l |s q_l k_l| ≤ score_max and |v| ≤ v_max; see ``priori.Sizes``.

    >>> from symattn.arrays.precision import Precision
    >>> 1e-5 < a_priori(64, 64, 8.0, 4.0, Precision.of("fp32")).value < 1e-2
    True
    """
    sizes = Sizes(n, d_k, score_max, v_max, entry_max, lowest_max)
    terms = evaluate(sizes, precision)
    told = formula.quantities(sizes, precision, terms)
    printed = terms.equations.printed if terms.equations else formula.formula()
    return APriori(terms.value, terms.parts, printed, told, formula.derivation(precision))
