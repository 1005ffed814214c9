"""Errors that differ from row to row, such as sums stored in a short format: they cancel in means over rows.

Their squares do not. T_i, σ_i and r_i are those of row i (``limits``), of G rows with different queries. Then, under N1
and N2, with t = λ²/2,

    √(Σ_i (T_i/σ_i)²) ≤ √(G + 2√(G t) + 2t) + √(Σ_i (r_i/σ_i)²)      but for a probability of e^{−t} ≤ 2 e^{−λ²/2}.

Proof. T_i = X_i + e_i, |e_i| ≤ r_i and E e^{aX_i/σ_i} ≤ e^{a²/2} (``limits``, step 1), and the X_i are independent. So
X/σ is a sub-Gaussian vector, and the square of its length at most G + 2√(G t) + 2t but for e^{−t} (D. Hsu, S. Kakade,
T. Zhang, A tail inequality for quadratic forms of subgaussian random vectors, Electron. Commun. Probab. 17 (2012),
theorem 2.1 for A = 1); lengths obey the triangle inequality. ∎

This is one more limit for each direction. The squares of roundings that are uniform in [−h, h] are h²/3 in the mean, so
that those of right outputs sum to at most G/3 or so: of right replays they have to sum to less than ``MOST`` G.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.bounds.sharp.limits import Floats

MOST = 1 / 2


class Squares(NamedTuple):
    """σ² and r, (m, heads, rows), of m directions; ``firsts`` (heads · rows,) are the first rows of equal queries."""

    squares: Floats
    rest: Floats
    firsts: Any

    def worst(self, t: Floats, length: Floats, lam: float) -> tuple[float, int, float, float]:
        """Return the direction whose squares are farthest beyond their limit for T (m, heads, rows): its share, its
        index, and θ in the root mean square with the half interval, for ⟨D, x⟩ of each row in ``length``."""
        xp: Any = namespace_of(t)
        (result, rest, count), half = self.lengths(t), lam**2 / 2
        limit = xp.sqrt(count + 2 * xp.sqrt(count * half) + 2 * half) + rest
        shares = xp.where(xp.isfinite(limit), result / limit, 0.0)
        m = int(shares.argmax())
        unit, _, _ = self.lengths(length)
        with np.errstate(all="ignore"):
            return float(shares[m]), m, float(result[m] / unit[m]), float(limit[m] / unit[m])

    def summed(self, t: Floats) -> float:
        """Return the largest Σ (T_i/σ_i)²/G of a direction."""
        xp: Any = namespace_of(t)
        length, _, count = self.lengths(t)
        return float(xp.max(length**2 / xp.where(count > 0, count, 1)))

    def lengths(self, t: Floats) -> tuple[Floats, Floats, Floats]:
        """Return √(Σ (T_i/σ_i)²), √(Σ (r_i/σ_i)²) and G for each direction, (m,)."""
        xp = namespace_of(t)
        used = (self.squares > 0) & xp.reshape(self.firsts, self.squares.shape[1:])
        unit = xp.sqrt(xp.where(used, self.squares, 1.0))
        t, rest = (xp.reshape(xp.where(used, a / unit, 0.0), (len(t), -1)) for a in (t, self.rest))
        count = xp.sum(xp.astype(xp.reshape(used, (len(t), -1)), xp.float64), axis=1)
        return xp.sqrt(xp.vecdot(t, t)), xp.sqrt(xp.vecdot(rest, rest)), count
