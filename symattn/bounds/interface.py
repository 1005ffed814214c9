"""The bound for given inputs, element by element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from symattn.arrays.ball import precision as bits
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds import enclosed
from symattn.bounds.balls import allowed as in_balls
from symattn.bounds.reference import canonical, run
from symattn.document.errors import Refused

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
        result = {name: float(part[self.where]) for name, part in self.parts.items()}
        return dict(sorted(result.items(), key=lambda item: -item[1]))


def bound(spec: Attention, inputs: Mapping[str, object], precision: str | Precision) -> Bound:
    """The bound for these inputs, by name (q, k, v, mask, …), as ``Attention`` takes them.

    Plain attention (masks, heads, shared keys, sinks) is bounded in floats at BLAS's speed. So is every softmax of
    other scores (rotary positions, caps, biases, additive masks), from enclosures of these; what is left, in balls.
    Raises InputError where no bound is proved for the specification. The statement and its proof: ``worst_case``.
    """
    arrays = {name: np.asarray(a) for name, a in inputs.items()}
    given = {name: a if a.dtype.kind in "biu" else a.astype(np.float64) for name, a in arrays.items()}
    spec, precision = canonical(spec), Precision.of(precision)
    try:
        whole, shares = enclosed.with_shares(spec, given, precision)
    except Refused:
        with bits(_BITS):
            return Bound(in_balls(run(spec, given), precision), {}, "balls")
    return Bound(whole, _scaled(shares, whole) if shares else {}, "floats")


def _scaled(shares: dict[str, np.ndarray], allowed: np.ndarray) -> dict[str, np.ndarray]:
    """Shares that sum to what is allowed."""
    total = sum(shares.values())
    with np.errstate(all="ignore"):
        factor = np.where(np.isfinite(allowed) & (total > 0), allowed / total, 0.0)
        return {name: np.where(np.isfinite(part), part, 0.0) * factor for name, part in shares.items()}
