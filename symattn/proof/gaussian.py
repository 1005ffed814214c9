"""Normal quantiles, and means of the slope of softmax for a normally distributed gap, enclosed by Arb.

With two scores Δ apart, p = 1/(1 + e^{−Δ}) and ∂p/∂s = p(1 − p) = sech²(Δ/2)/4. All functions return balls at the
working precision of flint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flint

from symattn.document.errors import Undecided


def slope(gap: Any) -> Any:
    """Return p(1 − p) for a gap."""
    return 1 / (2 + gap.exp() + (-gap).exp())


def upper_quartile() -> Any:
    """Return z with P(|Z| ≤ z) = 1/2 for a standard normal Z: erf(z/√2) = 1/2."""
    return flint.arb(0.5).erfinv() * flint.arb(2).sqrt()


def median_slope(deviation: object) -> Any:
    """Return the median of p(1 − p) for Δ ∼ N(0, deviation²): the slope at the median of |Δ|, as it falls with |Δ|."""
    return slope(upper_quartile() * deviation)


def mean_slope(deviation: object) -> Any:
    """Return E[p(1 − p)] for Δ ∼ N(0, deviation²).

    Arb integrates 2 ∫_0^L p(1 − p) φ(x) dx; the tail beyond L = ``prec`` lies in [0, e^{−L}] because
    p(1 − p) ≤ e^{−|x|}.
    """
    return _mean_over_normal_gap(slope, deviation)


def median_smaller(deviation: object) -> Any:
    """Return the median of the smaller weight min(p, 1 − p) for Δ ∼ N(0, deviation²): it falls with |Δ|."""
    return _softmax_of_smaller_score(upper_quartile() * deviation)


def mean_smaller(deviation: object) -> Any:
    """Return E[min(p, 1 − p)] for Δ ∼ N(0, deviation²), by the method of ``mean_slope``; it is at most e^{−|x|} too."""
    return _mean_over_normal_gap(_softmax_of_smaller_score, deviation)


def _softmax_of_smaller_score(gap: Any) -> Any:
    return 1 / (1 + gap.exp())


def _mean_over_normal_gap(function: Callable[[Any], Any], deviation: Any) -> Any:
    """Return the mean of an even function with values in [0, e^{−|x|}], given for x ≥ 0."""
    # Beyond so many units, e^−x is below the precision.
    end = flint.ctx.prec
    density = 1 / (deviation * (2 * flint.arb.pi()).sqrt())

    def integrand(x: Any, _: bool) -> Any:
        exponent = -(x * x) / (2 * deviation * deviation)
        return function(x) * exponent.exp()

    # Even: twice the integral from 0 on.
    integral = flint.acb.integral(integrand, 0, end).real
    if not integral.is_finite():
        raise Undecided("the integral over the gap has no finite enclosure")
    # The function is between 0 and e^−x, so that the tail is between 0 and e^−end.
    tail = flint.arb(0).union((-flint.arb(end)).exp())
    return 2 * density * integral + tail


def near_ties(deviation: object) -> Any:
    """Return P(|Δ| < 1) for Δ ∼ N(0, deviation²)."""
    return (1 / (deviation * flint.arb(2).sqrt())).erf()
