"""Enclosures of normal means and quantiles against other programs."""

from __future__ import annotations

from statistics import NormalDist

import flint
import mpmath
import pytest

from symattn.proof import gaussian

SIZES = [1, 4, 16, 256]


def holds(ball: flint.arb, value: float, relative: float) -> bool:
    return abs(float(ball.mid()) - value) <= relative * abs(value) + float(ball.rad())


def test_the_quartile() -> None:
    assert holds(gaussian.upper_quartile(), NormalDist().inv_cdf(0.75), 1e-14)


@pytest.mark.parametrize("d", SIZES)
def test_means_of_the_slope(d: int) -> None:
    deviation = mpmath.sqrt(2 * d)

    def integrand(x: mpmath.mpf) -> mpmath.mpf:
        return mpmath.sech(x / 2) ** 2 / 4 * mpmath.npdf(x, 0, deviation)

    with flint.ctx.workprec(128):
        found = gaussian.mean_slope(flint.arb(2 * d).sqrt())
    with mpmath.workdps(25):
        wanted = 2 * mpmath.quad(integrand, [0, 1, 3, 10, 30, 90])
    assert holds(found, float(wanted), 1e-13)
    assert not holds(found, float(wanted) * 1.001, 1e-13)
    assert float(found.rad()) < 1e-25


@pytest.mark.parametrize("d", SIZES)
def test_medians_of_the_slope(d: int) -> None:
    gap = NormalDist(0, (2 * d) ** 0.5).inv_cdf(0.75)
    wanted = float(mpmath.sech(gap / 2) ** 2 / 4)
    assert holds(gaussian.median_slope(flint.arb(2 * d).sqrt()), wanted, 1e-11)


def test_the_share_of_near_ties() -> None:
    law = NormalDist(0, 512**0.5)
    assert holds(gaussian.near_ties(flint.arb(512).sqrt()), law.cdf(1) - law.cdf(-1), 1e-12)
