"""The slope of softmax in the typical row, and in the mean over rows."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import flint
import numpy as np

from symattn.arrays.ball import Ball, precision
from symattn.arrays.field.approximation import decimal
from symattn.arrays.field.quotient import Quotient
from symattn.attention.notation import D_K
from symattn.derivations.letters import DELTA, HALF, MU, SIGMA, E, P, dot, k, mean, p, q, s
from symattn.derivations.steps import FalseStep, enclosed, together, words
from symattn.document import notation as nt
from symattn.document.errors import Refused, Undecided
from symattn.document.evidence import Evidence
from symattn.document.model import Block, Caveat, Column, Emph, Heading, Paragraph, Step, Steps, Table, Text
from symattn.document.notation import (
    Decimal,
    Fence,
    Name,
    Node,
    Partial,
    Relation,
    Root,
    call,
    commas,
    equals,
    relation,
)
from symattn.document.text import text
from symattn.proof import gaussian
from symattn.proof.relations.comparing import holds
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import Asked, Question, record
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.section import Section
from symattn.proof.relations.values import Unread

TYPICAL = "The typical row, and the mean over rows"
"""The section that assumes A4."""
_SIZES = (1, 4, 16, 64, 256)
_DIGITS, _BITS = 3, 96
_SQUARES = (Fraction(1, 64), 1, 2)
_PI, _T, _Z = Name("π"), Name("t"), Name("z")
_LETTERS = ("σ", "d_k", "z", "π")
_QUARTER = nt.Number(Fraction(1, 4))


@lru_cache(maxsize=256)
def _mean_at(square: float, bits: int) -> Any:
    """The mean slope where the gap has the given variance: an integral, so it is kept."""
    with flint.ctx.workprec(bits):
        return gaussian.mean_slope(flint.arb(square).sqrt())


def _median_at(square: float, bits: int) -> Any:
    with flint.ctx.workprec(bits):
        return gaussian.median_slope(flint.arb(square).sqrt())


Number = Callable[[int, int], Any]
"""A number for each d_k at σ = 1, enclosed with so many bits."""


def median_slope(d_k: float, bits: int) -> Any:
    return _median_at(2 * d_k, bits)


def mean_slope(d_k: float, bits: int) -> Any:
    return _mean_at(2 * d_k, bits)


def scaled_median(d_k: int, bits: int) -> Any:
    return _median_at(2, bits) / _root(d_k, bits)


def scaled_mean(d_k: int, bits: int) -> Any:
    return _mean_at(2, bits) / _root(d_k, bits)


def _ratio(d_k: int, bits: int) -> Any:
    return scaled_median(d_k, bits) / median_slope(d_k, bits)


def _near_ties(d_k: int, bits: int) -> Any:
    with flint.ctx.workprec(bits):
        return gaussian.near_ties(flint.arb(2 * d_k).sqrt())


def _root(d_k: int, bits: int) -> Any:
    with flint.ctx.workprec(bits):
        return flint.arb(d_k).sqrt()


def digits_at(d_k: int, ball: Number) -> Decimal:
    """Correctly rounded; at d_k = 1 the ratio is exactly 1."""
    if ball is _ratio and d_k == 1:
        return Decimal("1")
    return Decimal(decimal(lambda bits: ball(d_k, max(bits, _BITS)), _DIGITS))


def typical(d_k: int) -> tuple[Block, ...]:
    """Median and mean of the slope for normal gaps, and the table over d_k."""
    sizes = sorted({*_SIZES, d_k})
    return (
        Heading((TYPICAL,)),
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
    deviation, square = 2 * SIGMA**2 * Root(D_K / 2), 2 * D_K * SIGMA**4
    quartile, density = _Z * deviation, 1 / Root(2 * _PI * square)
    if not _same(deviation**2, square):
        raise FalseStep("the variance of the gap is not that of A4")
    if not _halves():
        raise FalseStep("half of a normal law is not within the quartile")
    return together(
        _two_keys().claim(
            equals(slope, p(1) * (1 - p(1)), _QUARTER * call("sech", DELTA / 2) ** 2),
            (equals(p(1), 1 / (1 + E ** (-DELTA))),),
        ),
        at_sizes(
            sizes,
            equals(call("median", slope), _QUARTER * call("sech", _Z * SIGMA**2 * Root(D_K / 2)) ** 2),
            _within(),
            1 / Fence("round", 2 + E**quartile + E**-quartile),
        ),
        at_sizes(
            sizes, relation(mean(slope), "≤", bound), "largest in the middle; the slope integrates to one", density
        ),
        at_sizes(
            sizes,
            relation(mean(slope), "≥", bound * correction),
            ("density at least ", 1 - _T**2 / 2, " of that, ", _T, " deviations off"),
            density * Fence("round", 1 - _PI**2 / 3 / (2 * square)),
        ),
    )


def _two_keys() -> Section:
    """The weights of two scores, Δ apart."""
    section = Section(Glossary({"s": "2"}))
    section.let((equals(P, call("softmax", s())), equals(DELTA, s(1) - s(2))))
    return section


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


def at_sizes(sizes: list[int], formula: Relation, reason: Text | str, derived: Node) -> Step:
    """A relation between the median or mean slope and a formula, both enclosed at several d_k and σ.

    What the reason comes to is ``derived``, and the formula is proved equal to it: a weaker bound is refused. The slope
    as a density has the variance π²/3, that of the logistic law.
    """
    points = [(d, square) for square in _SQUARES for d in sizes]

    def decide(relation: Relation) -> Evidence:
        if not all(_same(side, derived) for _, side in relation.rest):
            raise FalseStep(f"{text(relation)} is not what its reason gives")
        with precision(_BITS):
            for d_k, square in points:
                _holds_at(relation, d_k, float(square))
        return enclosed(", ".join(text(equals(x, commas(*at))) for x, at in ((SIGMA**2, _SQUARES), (D_K, sizes))))

    record(Asked(formula, decide, equal=_same))
    return Step(formula, words(reason), decide(formula))


def _same(a: Node, b: Node) -> bool:
    """Whether two formulas in σ, d_k, z and π are proved equal."""
    numbers = Glossary(dict.fromkeys(_LETTERS, ""), sizes={}, positive=_LETTERS)
    return Question(equals(a, b), numbers).equal(a, b)


def _ball(x: object) -> Ball:
    return Ball.lift(np.array(x, dtype=object))


def _holds_at(relation: Relation, d_k: int, square: float) -> None:
    slope, sides = Partial(p(1), s(1)), [relation.first, *(side for _, side in relation.rest)]
    moments = {call("median", slope): median_slope, mean(slope): mean_slope}
    root = flint.arb(square).sqrt()
    letters = {"σ": root, "d": flint.arb(d_k), "z": gaussian.upper_quartile(), "π": flint.arb.pi()}
    arrays = {key: _ball(x) for key, x in letters.items()}
    reader = Reader(Glossary(defined={"d_k": lambda reader: reader.arrays["d"]}, sizes={}), arrays, {})
    try:
        found = [_ball(moments[x](d_k * square**2, _BITS)) if x in moments else reader.one(x).array for x in sides]
        signs = [sign for sign, _ in relation.rest]
        true = all(sign in "=≤≥" and holds(a, sign, b) for a, sign, b in zip(found, signs, found[1:], strict=False))
    except (Unread, Refused, Undecided, ZeroDivisionError) as reason:
        raise FalseStep(f"{text(relation)}: {reason}") from reason
    if not true:
        raise FalseStep(f"{text(relation)} is false at d_k = {d_k}, σ² = {square}")


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
    work = (median_slope, mean_slope, scaled_median, scaled_mean, _ratio)
    rows = tuple(
        ((nt.node(d),), (Decimal(Quotient.of(2 * d).sqrt().decimal(4)),), *((digits_at(d, w),) for w in work))
        for d in sizes
    )
    caption: Text = (
        "The slope ", Partial(p(1), dot(q(), k(1))), " with ", equals(SIGMA, 1), "; ", Root(2 * D_K),
        " is the standard deviation of the gap. Every entry is enclosed, and correctly rounded.",
    )  # fmt: skip
    return Table(columns, rows, (sizes.index(asked),), caption)


def _caveat() -> Caveat:
    largest = _SIZES[-1]
    if not scaled_mean(largest, _BITS) < mean_slope(largest, _BITS) < 10 * scaled_mean(largest, _BITS):
        raise FalseStep("the caveat of scaling: the means are not of one size")
    if not 0.99 < 2 * mean_slope(4 * largest, _BITS) / mean_slope(largest, _BITS) < 1.01:
        raise FalseStep("the caveat of scaling: the mean does not fall like 1/√d_k")
    ties, least = digits_at(largest, _near_ties), E / Fence("round", 1 + E) ** 2
    if not _same(_QUARTER * call("sech", HALF) ** 2, least):
        raise FalseStep("the caveat of scaling: the slope at a gap of 1 is another")
    return Caveat(
        (
            "The collapse is of the ", Emph("typical"), " row. At ", equals(D_K, largest), " and ", equals(SIGMA, 1),
            " the median slope is ", digits_at(largest, median_slope), ", but the mean is ",
            digits_at(largest, mean_slope), ", which falls only like ", 1 / Root(D_K), ": a share ", ties,
            " of the rows has two scores less than 1 apart, and keeps a slope above ", least, ". Without scaling,",
            " learning is carried by those few rows. In the mean, scaling even makes the slope with respect to q·k",
            " smaller (", digits_at(largest, scaled_mean),
            "). Nor does A2 describe a trained network.",
        )
    )  # fmt: skip
