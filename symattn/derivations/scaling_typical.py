"""The slope of softmax in the typical row, and in the mean over rows."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import flint

from symattn.arrays.field.approximation import decimal
from symattn.arrays.field.quotient import Quotient
from symattn.attention.notation import D_K
from symattn.derivations import softmax_facts as facts
from symattn.derivations.letters import DELTA, MU, SIGMA, E, dot, k, mean, p, q, s
from symattn.derivations.proving import shown
from symattn.derivations.steps import FalseStep, enclosed, hold, together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Column, Emph, Heading, Paragraph, Steps, Table, Text
from symattn.document.notation import Decimal, Fence, Name, Node, Partial, Root, call, equals, relation
from symattn.proof import gaussian

_SIZES = (1, 4, 16, 64, 256)
_DIGITS, _BITS = 3, 96
_PI, _T, _Z = Name("π"), Name("t"), Name("z")
_QUARTER = nt.Number(Fraction(1, 4))


@lru_cache(maxsize=256)
def _mean_at(square: int, bits: int) -> Any:
    """The mean slope where the gap has the given variance: an integral, so it is kept."""
    with flint.ctx.workprec(bits):
        return gaussian.mean_slope(flint.arb(square).sqrt())


def _median_at(square: int, bits: int) -> Any:
    with flint.ctx.workprec(bits):
        return gaussian.median_slope(flint.arb(square).sqrt())


Ball = Callable[[int, int], Any]
"""A number for each d_k at σ = 1, enclosed with so many bits."""


def _median(d_k: int, bits: int) -> Any:
    return _median_at(2 * d_k, bits)


def _mean(d_k: int, bits: int) -> Any:
    return _mean_at(2 * d_k, bits)


def _scaled_median(d_k: int, bits: int) -> Any:
    return _median_at(2, bits) / _root(d_k, bits)


def _scaled_mean(d_k: int, bits: int) -> Any:
    return _mean_at(2, bits) / _root(d_k, bits)


def _ratio(d_k: int, bits: int) -> Any:
    return _scaled_median(d_k, bits) / _median(d_k, bits)


def _near_ties(d_k: int, bits: int) -> Any:
    with flint.ctx.workprec(bits):
        return gaussian.near_ties(flint.arb(2 * d_k).sqrt())


def _root(d_k: int, bits: int) -> Any:
    with flint.ctx.workprec(bits):
        return flint.arb(d_k).sqrt()


def _digits(d_k: int, ball: Ball) -> Decimal:
    """Correctly rounded; at d_k = 1 the ratio is exactly 1."""
    if ball is _ratio and d_k == 1:
        return Decimal("1")
    return Decimal(decimal(lambda bits: ball(d_k, max(bits, _BITS)), _DIGITS))


def typical(d_k: int) -> tuple[Block, ...]:
    """Median and mean of the slope for normal gaps, and the table over d_k."""
    sizes = sorted({*_SIZES, d_k})
    return (
        Heading(("The typical row, and the mean over rows",)),
        Paragraph(
            (
                "Two keys, under A4. Mean and variance of the gap follow from A1 and A2 at ",
                equals(MU, 0),
                "; its shape does not.",
            )
        ),
        _steps(sizes),
        _table(sizes, d_k),
        _caveat(),
    )


def _steps(sizes: list[int]) -> Steps:
    slope = Partial(p(1), s(1))
    bound = 1 / (2 * SIGMA**2 * Root(_PI * D_K))
    correction = Fence("round", 1 - _PI**2 / (12 * D_K * SIGMA**4))
    if not _halves():
        raise FalseStep("half of a normal law is not within the quartile")
    where = enclosed("σ = 1, d_k = " + ", ".join(map(str, sizes)))
    return together(
        shown(
            equals(slope, p(1) * (1 - p(1)), _QUARTER * call("sech", DELTA / 2) ** 2),
            (equals(p(1), 1 / (1 + E ** (-DELTA))),),
            *facts.slope_of_two(),
            where="n = 2, all scores",
        ),
        shown(
            equals(call("median", slope), _QUARTER * call("sech", _Z * SIGMA**2 * Root(D_K / 2)) ** 2),
            _within(),
            *facts.slope_falls(),
            where="all d_k, under A4",
        ),
        hold(
            all(_below(d) for d in sizes),
            relation(mean(slope), "≤", bound),
            "largest density at 0; the slope integrates to 1",
            where,
        ),
        hold(
            all(_above(d) for d in sizes),
            relation(mean(slope), "≥", bound * correction),
            ("density at least ", 1 - _T**2 / 2, " of that, ", _T, " deviations off"),
            where,
        ),
    )


def _within() -> Text:
    quartile = relation(_Z, "≈", _quartile())
    return "falls with ", Fence("abs", DELTA), "; half of a normal law is within ", quartile, " deviations"


def _quartile() -> Node:
    return Decimal(decimal(lambda bits: _at_precision(bits, gaussian.upper_quartile), 6))


def _at_precision(bits: int, work: Callable[[], Any]) -> Any:
    with flint.ctx.workprec(bits):
        return work()


def _halves() -> bool:
    """erf(z/√2) is enclosed around 1/2."""
    found = _at_precision(128, lambda: (gaussian.upper_quartile() / flint.arb(2).sqrt()).erf())
    return bool(found.overlaps(flint.arb(0.5)) and found.rad() < 1e-30)


def _largest(d_k: int) -> Any:
    """1/(2√(π d_k))."""
    with flint.ctx.workprec(_BITS):
        return 1 / (2 * (flint.arb.pi() * d_k).sqrt())


def _below(d_k: int) -> bool:
    return bool(_mean(d_k, _BITS) <= _largest(d_k))


def _above(d_k: int) -> bool:
    with flint.ctx.workprec(_BITS):
        return bool(_mean(d_k, _BITS) >= _largest(d_k) * (1 - flint.arb.pi() ** 2 / (12 * d_k)))


def _table(sizes: list[int], asked: int) -> Table:
    unscaled: Text = ("unscaled",)
    scaled: Text = ("scaled by ", 1 / Root(D_K))
    columns = (
        Column((D_K,)),
        Column((Root(2 * D_K),)),
        Column(("median",), group=unscaled),
        Column(("mean",), group=unscaled),
        Column(("median",), group=scaled),
        Column(("mean",), group=scaled),
        Column(("medians' ratio",)),
    )
    work = (_median, _mean, _scaled_median, _scaled_mean, _ratio)
    rows = tuple(
        ((nt.node(d),), (Decimal(Quotient.of(2 * d).sqrt().decimal(4)),), *((_digits(d, w),) for w in work))
        for d in sizes
    )
    caption: Text = (
        "The slope ", Partial(p(1), dot(q(), k(1))), " under A4 with ", equals(SIGMA, 1), "; ", Root(2 * D_K),
        " is the standard deviation of the gap. Every entry is enclosed, and correctly rounded.",
    )  # fmt: skip
    return Table(columns, rows, (sizes.index(asked),), caption)


def _caveat() -> Caveat:
    largest = _SIZES[-1]
    if not _scaled_mean(largest, _BITS) < _mean(largest, _BITS) < 10 * _scaled_mean(largest, _BITS):
        raise FalseStep("the caveat of scaling: the means are not of one size")
    ties = _digits(largest, _near_ties)
    return Caveat(
        (
            "The collapse is of the ", Emph("typical"), " row. At ", equals(D_K, largest), " the median slope is ",
            _digits(largest, _median), ", but the mean is ", _digits(largest, _mean), ", which falls only like ",
            1 / Root(D_K), ": a share ", ties, " of the rows has two scores less than 1 apart, and keeps a slope of",
            " order one. Without scaling, learning is carried by those few rows. In the mean, scaling even makes the",
            " slope with respect to q·k smaller (", _digits(largest, _scaled_mean), "). Nor does A2 describe a trained",
            " network.",
        )
    )  # fmt: skip
