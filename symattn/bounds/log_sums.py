"""How far the logarithm of the sum of a row's exponentials can be from the exact one.

Statement. Let L = ln Σ e^{t_j} over the keys that a row may see (and its sink), and L̂ what an implementation gives
that computes it with the softmax of ``worst_case``, under H1 to H7 there. With the letters of its proof,
  |L̂ − L| ≤ B + g(1)(|L| + B) + η,   B = max_j (τ'_j + r_j + b⁰_j) + g(4)(|m| + 2τ*) + (g(4) + 2ε')(|m| + Λ)
                                        + merges · max_j e_j + 2κηn e^{(−m)⁺},
the last term with −m only where nothing may have been subtracted, and B = ∞ where it is above 1.

Proof. By step 2 the sum is Σ e^{t_j − m̂} e^{θ_j + ρ_j}, but for underflow, with m̂ the reference as it is subtracted
(or 0), |θ_j| ≤ τ'_j + r_j, and |ρ_j| ≤ b⁰_j by step 4. Since Σ p_j e^{x_j} lies between the least and the largest of
the e^{x_j}, its logarithm is that of the exact sum, ln Σ e^{t_j − m̂}, up to the first term of B. The reference that is
added back may have passed its two roundings or not: g(2)|m̂|, with |m̂| ≤ (1 + g(2))(|m| + τ*), is less than the second.
By step 3 the logarithm, of size at most |m| + Λ if nothing was subtracted, is off by 2ε' of its size, and the sum with
m̂, its storing and a change of base by g(4): the third. Each merge by log-sum-exps adds two logarithms, sums and an
exponential of a difference, which is e_j of step 3b. Underflow moves a sum, which is at least 1, or e^m where nothing
was subtracted, by at most κηn, and the logarithm by twice its part of the sum, if that is at most 1/2. The last
rounding is that of the result.                                                                                      ∎
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.ball import precision as bits
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.arithmetic import Balls, g, number, rate, size, upper, xp
from symattn.bounds.balls import _Bound
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import ExactOutput
from symattn.bounds.plain_bound import usual_or_sink
from symattn.bounds.reference import Run, run
from symattn.document.errors import InputError, Undecided

_BITS = 192


def log_sums(spec: Attention, inputs: Inputs, precision: Precision) -> ExactOutput:
    """Return the exact log-sum-exps (…, n_q), −∞ for a row without any key, and how far legal ones may be from them.

    Raises ``InputError`` unless scores are scaled dot products under masks.
    """
    if not usual_or_sink(spec):
        raise InputError("the logarithms of sums are judged where scores are scaled dot products under masks alone")
    with bits(_BITS):
        reference = run(replace(spec, lse=True), inputs)
        exact = reference.values["lse"]
        try:
            return ExactOutput(exact.entries, _allowed(reference, exact, precision))
        except Undecided:  # exponentials of errors beyond all range
            return ExactOutput(exact.entries, np.full(exact.plain_shape, np.inf))


def _allowed(reference: Run, exact: Ball, precision: Precision) -> np.ndarray:
    bound = _Bound(reference, precision)
    total = _before_rounding(bound, precision)
    f = precision.returned
    result = upper(total + (size(number(exact)) + total) * g(1, f) + f.eta)
    unsure = upper(_lost(bound, precision)) > 1
    over = bound.may_overflow()
    result[unsure | (over.any(axis=-1) if over.ndim > result.ndim else over)] = np.inf
    return result


def _before_rounding(bound: _Bound, precision: Precision) -> Balls:
    """Return B, (…, n_q)."""
    p, four, six = precision, g(4, precision.score), g(6, precision.score)
    sums = Ball.lift(bound.counts.below + bound.rescalings) * rate(p.accumulate)
    moved = xp.max(xp.where(bound.open, bound.tau + bound.rule.first + sums, 0), axis=-1)
    grown, m, star = bound.rule.grown[..., 0], size(bound.m)[..., 0], bound.star[..., 0]
    spread = bound.log_n + 2 * star + grown
    taken = (four + 2 * bound.eps) * (m + spread)
    length = xp.max(bound._length(), axis=-1)
    merging = six * (length + spread) + 2 * bound.eps * (bound.log_n + grown) + bound.eps
    if bound.counts.merges:
        merging = merging / bound.counts.room(six + 2 * bound.eps)
    return moved + four * (m + 2 * star) + taken + merging * bound.counts.merges + _lost(bound, precision)


def _lost(bound: _Bound, precision: Precision) -> Balls:
    """Bound the change of a logarithm by underflow, (…, n_q)."""
    eta = max(precision.score.eta, precision.accumulate.eta) * bound.counts.underflowing
    return (bound._without_subtraction() * eta * (2 * bound.n))[..., 0]
