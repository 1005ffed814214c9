"""The bound of ``worst_case`` before any input is seen: a closed formula in n, d_k, the largest score and the largest
value.

Statement. For n keys of which a row sees some, |t|_j ≤ T for all its scores, |v_j| ≤ V, and queries and keys with
entries of at most ``entry_max``, the bound of every element is at most ``value``.

Proof. Every quantity of ``worst_case`` grows with |t_j|, |m|, m − t_j and B_j, which are at most T, T, 2T and n − 1 (or
``rescalings``); so one number for all keys takes the place of each exponent. A ≥ e^{−a}, w_j ≤ p_j e^{2a}, so X ≤ V
e^{2a} and S ≤ V e^{2a}(e^s − 1), and |o| ≤ V. A mean deviation from the mean is at most half the range, Σ p_j |v_j −
o| ≤ V (with chords instead: for o between −V and V, the chord of f(o) = Σ p|v − o| from −V to V is V − o²/V), and the
root of a mean square at most that, too; so W ≤ min{V e^a (e^a − 1), 2V} and Y ≤ V e^{2a}, or V e^{2a} + V where it is
not computed.  ∎

a, s, b and M are what the equations of ``formula`` give, which are evaluated as they are printed. The value is
enlarged by a part ρ = 2⁻¹⁰ + n 2⁻²², for the roundings of that evaluation in floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log

import numpy as np

from symattn.arrays.precision import Precision
from symattn.bounds import formula as formula_of
from symattn.bounds import rule
from symattn.bounds.exponents import stored
from symattn.bounds.formula import letter
from symattn.bounds.growth import FARTHEST, g, power_up, rate
from symattn.bounds.scores import LOG2_E, SCALE_ROUNDINGS, factor_roundings
from symattn.document.errors import InputError, Undecided
from symattn.document.notation import Node


@dataclass(frozen=True)
class InputLimits:
    """The limits that inputs are known to keep.

    n           number of keys
    d_k         width of queries and keys
    score_max   T: the largest Σ_l |s q_l k_l|; ‖q‖‖k‖/√d_k holds it
    v_max       V: the largest |v|
    entry_max   the largest entry of queries and keys, which matters where products underflow
    lowest_max  the least that the largest score of a row may be in code that does not subtract it
    """

    n: int
    d_k: int
    score_max: float
    v_max: float
    entry_max: float = 16.0
    lowest_max: float = 0.0

    def __post_init__(self) -> None:
        # No key or no width is no attention, and a logarithm of 0 would follow.
        if self.n < 1 or self.d_k < 1:
            raise InputError(f"n and d_k must be at least 1, got n = {self.n}, d_k = {self.d_k}")
        for field_ in ("score_max", "v_max", "entry_max"):
            if not 0 <= getattr(self, field_) < inf:
                raise InputError(
                    f"{field_} must be a finite number of at least 0, got {getattr(self, field_)}"
                )


@dataclass(frozen=True)
class APriori:
    """The bound that holds for every input within the limits.

    ``value`` is a tolerance to write into a test; ``parts`` says how much of it comes from which step; ``formula`` is
    it in TeX, ``quantities`` its letters (TeX, in words, value); ``derivation`` says step by step why it holds.
    """

    value: float
    parts: dict[str, float]
    formula: tuple[Node, ...]
    quantities: tuple[tuple[Node, str, float], ...]
    derivation: tuple[str, ...]


def a_priori(sizes: InputLimits, precision: Precision) -> APriori:
    """Return the bound for all inputs within ``sizes``; its value is +∞ where it says nothing.

    >>> 1e-5 < a_priori(InputLimits(64, 64, 8.0, 4.0), Precision.of("fp32")).value < 1e-2
    True
    """
    # One row with all keys: the largest that ``sizes`` allow.
    counts = rule.Counts(precision, sizes.n, np.array([[sizes.n]]))
    try:
        return _Formula(sizes, precision, counts).bound()
    # Huge scores overflow the formula, which then says nothing.
    except (Undecided, OverflowError):
        return APriori(
            inf,
            {},
            formula_of.formula(),
            formula_of.quantities(sizes, precision, {}),
            formula_of.derivation(precision),
        )


class _Formula:
    def __init__(self, sizes: InputLimits, precision: Precision, counts: rule.Counts) -> None:
        self.sizes = sizes
        self.precision = precision
        self.counts = counts
        eps = 2 * precision.exp_ulps * float(precision.score.u)
        self.eps, self.lam = eps / (1 - eps), rate(precision.accumulate)
        # T is enlarged for the roundings of scores that a caller measures in float64.
        self.t = sizes.score_max * (1 + 2.0**-20)
        self.log_n = log(sizes.n)
        self.times = float(rule.limited_rescalings(sizes.n - 1, precision))
        self.below_count = float(counts.below[0, 0])
        self._set_formula_score_error()
        self._solve_exponent_equations()

    def _set_formula_score_error(self) -> None:
        """τ'."""
        s, p, f = self.sizes, self.precision, self.precision.between
        terms = s.d_k + SCALE_ROUNDINGS + factor_roundings(p, f)
        # What underflows in a product of entries, as in ``scores``.
        each = 2 * s.d_k * (s.entry_max + 1) + 1
        steps = s.d_k + SCALE_ROUNDINGS + 2
        underflow = each * steps * LOG2_E * float(f.eta)
        tau = g(terms, f) * self.t + underflow
        # A sink's logit has τ' = g(6)|z|, |z| ≤ T.
        of_scores = stored(tau, self.t, p)
        self.tau = max(of_scores, g(6, f) * self.t)

    def _solve_exponent_equations(self) -> None:
        """a, s and b, by the equations as they are printed."""
        p, t = self.precision, self.t
        # Raises ``Undecided`` before the equations divide by what is left.
        self.counts.room(g(6, p.score) + 2 * self.eps)
        letters = {
            "τ": self.tau,
            "T": t,
            "m": t,
            "Δ": 2 * t,
            "B": self.times,
            "ln(n)": self.log_n,
            "ε": self.eps,
            letter("λ_s"): rate(p.score),
            letter("λ_a"): self.lam,
            **({} if p.factors is None else {letter("λ_F"): rate(p.factors)}),
        }
        self.definitions = formula_of.exponent_equations(p, self.counts)
        self.known = formula_of.defined(self.definitions, letters)
        self.a, self.alone, self.below = (self.known[letter] for letter in "asb")
        # M has exponentials of up to four such exponents.
        if max(self.a, self.alone, self.below) > FARTHEST / 4:
            raise Undecided("exponents of errors beyond all range")

    def bound(self) -> APriori:
        """Return M with the last rounding, by the equations as printed."""
        events = self.counts.partial_sums
        # By how much the rounded additions may change a sum, as a share of it; 1 if that is unknown.
        share = 1.0 if events is None else float(events[0, 0]) * float(self.precision.accumulate.u)
        wide = self.precision.stored.u <= self.precision.accumulate.u
        every = formula_of.equations(wide, share < 0.5, self.definitions)
        result = every.values(
            {**self._numbers_for_formula_letters(), **({"h": share} if share < 0.5 else {})}
        )
        # Rows whose sum may vanish have no bound.
        if result["D"] <= 0:
            raise Undecided("a sum that may underflow to nothing")
        up = 1 + result["ρ"]
        factor = (1 + result["G"]) * power_up(2 * result[letter("λ_P")])
        parts = self._share_of_formula_steps(
            result["W"],
            factor * result["S"],
            result["G"] * (result["V"] + result["W"] + result["P"]),
        )
        parts["sums"] += factor * result["E"]
        # The last rounding is what the bound has beyond M.
        last = result["bound"] / up - result["M"]
        parts |= {"stored weights": result["P"], "underflow": result["U"], "output": last}
        most = rule.limit(self.precision)
        # H7, with 3 % for roundings of T and of the sum.
        scores_fit = self.t * LOG2_E * 1.03 <= most
        in_range = scores_fit and self.sizes.n * self.sizes.v_max * 1.03 <= most
        return APriori(
            result["bound"] if in_range else inf,
            {name: x * up for name, x in parts.items()},
            every.printed,
            formula_of.quantities(self.sizes, self.precision, {**self.known, **result}),
            formula_of.derivation(self.precision),
        )

    def _numbers_for_formula_letters(self) -> dict[str, float]:
        """Return the letters that the equations start from."""
        p, c = self.precision, self.counts
        lowest = -log(float(min(p.score.smallest_normal, p.accumulate.smallest_normal)))
        # Beyond the range of the format the maximum has to be subtracted (step 6).
        rise = power_up(min(max(-self.sizes.lowest_max, 0.0), lowest + 1))
        return {
            "n": self.sizes.n,
            "V": self.sizes.v_max,
            "a": self.a,
            "s": self.alone,
            "b": self.below,
            letter("λ_P"): rate(p.stored),
            letter("λ_+"): float(c.path[0, 0]) * self.lam,
            letter("η_e"): rise * float(max(p.score.eta, p.accumulate.eta)) * c.underflowing,
            letter("η_P"): rise * p.lost,
            letter("g_O"): g(1, p.returned),
            letter("η_O"): float(p.returned.eta),
            "ρ": 2.0**-10 + self.sizes.n * 2.0**-22,
        }

    def _share_of_formula_steps(self, moved: float, apart: float, lost: float) -> dict[str, float]:
        """Return the share of each step: exponents in proportion."""
        # The share of rescaling cannot exceed what the scores leave.
        rescaling = min(self.times * self.eps, self.a - self.tau)
        counts = (self.times, self.counts.alone, self.below_count)
        roundings = (float(n) * self.lam for n in counts)
        # 1 in place of 0, where all shares are 0 anyway.
        sizes = self.a or 1.0, self.alone or 1.0, self.below or 1.0
        return rule.shared_out((moved, apart, lost), sizes, (self.tau, rescaling, *roundings))
