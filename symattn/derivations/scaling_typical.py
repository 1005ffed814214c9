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
from symattn.derivations import scaling_numpy
from symattn.derivations.derivation_texts import DerivationText
from symattn.derivations.steps import enclosed
from symattn.document import notation as nt
from symattn.document.errors import Refused, Undecided
from symattn.document.evidence import Evidence
from symattn.document.formulas import formula, running_text
from symattn.document.model import Block, Column, Step, Table, Text
from symattn.document.notation import Decimal, Node, Relation, commas, equals
from symattn.document.text import text
from symattn.proof import gaussian
from symattn.proof.relations import comparing, judging
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Unread
from symattn.proof.relations.reader import Reader

TYPICAL = "The typical row, and the mean over rows"
"""The section that assumes A4."""
# Sizes of the table; the requested one is added.
_SIZES = (1, 4, 16, 64, 256)
# Digits of the table, and bits of the balls behind them.
_DIGITS, _BITS = 3, 96
# σ² at which bounds are enclosed: small, one, and larger than one.
_SQUARES = (Fraction(1, 64), 1, 2)
_SQUARE = formula("σ²")
_LETTERS = ("σ", "d_k", "z", "π")
_NUMBERS = Glossary(dict.fromkeys(_LETTERS, ""), sizes={}, positive=_LETTERS)


@lru_cache(maxsize=256)
def of_gap(square: float, bits: int, number: str) -> Any:
    """Return a number of ``gaussian`` for a gap of the given variance, cached, as some are integrals."""
    with flint.ctx.workprec(bits):
        return getattr(gaussian, number)(flint.arb(square).sqrt())


Number = Callable[[int, int], Any]
"""A number for each d_k at σ = 1, enclosed with so many bits."""


def median_slope(d_k: float, bits: int) -> Any:
    return of_gap(2 * d_k, bits, "median_slope")


def mean_slope(d_k: float, bits: int) -> Any:
    return of_gap(2 * d_k, bits, "mean_slope")


def scaled_median(d_k: int, bits: int) -> Any:
    return median_slope(1, bits) / _at_precision(bits, flint.arb(d_k).sqrt)


def scaled_mean(d_k: int, bits: int) -> Any:
    return mean_slope(1, bits) / _at_precision(bits, flint.arb(d_k).sqrt)


def _ratio_of_median_slopes(d_k: int, bits: int) -> Any:
    return scaled_median(d_k, bits) / median_slope(d_k, bits)


_MOMENTS = {formula("median(∂p_1/∂s_1)"): median_slope, formula("E[∂p_1/∂s_1]"): mean_slope}


def digits_at(d_k: int, ball: Number) -> Decimal:
    """Return a number correctly rounded; at d_k = 1 the ratio is exactly 1."""
    # No ball decides how a number that is exactly 1 is rounded.
    if ball is _ratio_of_median_slopes and d_k == 1:
        return Decimal("1")
    return Decimal(decimal(lambda bits: ball(d_k, max(bits, _BITS)), _DIGITS))


_TEXT = f"""
# {TYPICAL}
Two keys, under A4. Mean and variance of the gap follow from A1 and A2 at $μ = 0$; its shape does not.
- ∂p_1/∂s_1 = p_1 (1 - p_1) = ¼ sech(Δ/2)² :: $p_1 = 1/(1 + e^{{-Δ}})$
insert bounds
insert table
caveat: The collapse is of the *typical* row. At $d_k = @largest$ and $σ = 1$ the median slope is $@median$, but the
    mean is $@mean$, which falls only like $1/√d_k$: a share $@ties$ of the rows has two scores less than 1 apart, and
    keeps a slope above $@least$. Without scaling, learning is carried by those few rows. In the mean, scaling
    even makes the slope with respect to q·k smaller ($@scaled$). Nor does A2 describe a trained network.
"""
_CAPTION = """The slope $∂p_1/∂{q·k_1}$ with $σ = 1$; $√{2 d_k}$ is the standard deviation of the gap. Every entry is \
enclosed, and correctly rounded."""
_HEADS = (
    ("$d_k$", ""),
    ("$√{2 d_k}$", ""),
    *((of, group) for group in ("unscaled", "scaled by $1/√d_k$") for of in ("median", "mean")),
    ("medians' ratio", ""),
)
_BOUNDS = """
- median(∂p_1/∂s_1) = ¼ sech(z σ² √{d_k/2})²
    :: falls with $|Δ|$; half of a normal law is within $z ≈ @quartile$ deviations
    :: 1/(2 + e^{z 2 σ² √{d_k/2}} + e^{-z 2 σ² √{d_k/2}})
- E[∂p_1/∂s_1] ≤ 1/(2 σ² √{π d_k}) :: largest in the middle; the slope integrates to one :: 1/√{2 π 2 d_k σ⁴}
- E[∂p_1/∂s_1] ≥ 1/(2 σ² √{π d_k}) (1 - π²/(12 d_k σ⁴))
    :: density at least $1 - t²/2$ of that, $t$ deviations off :: 1/√{2 π 2 d_k σ⁴} (1 - π²/3/(2 2 d_k σ⁴))
"""
"""The relations that are enclosed at sizes, each with its reason and value."""


def typical(d_k: int) -> tuple[Block, ...]:
    """Return the section on median and mean of the slope for normal gaps, with the table over d_k."""
    sizes = sorted({*_SIZES, d_k})
    if not _are_slope_formulas_equal(formula("(2 σ² √{d_k/2})²"), formula("2 d_k σ⁴")):
        raise FalseStep("the variance of the gap is not that of A4")
    # erf(z/√2)
    half = _at_precision(128, lambda: (gaussian.upper_quartile() / flint.arb(2).sqrt()).erf())
    # A wide ball would contain 1/2 whatever the quartile is.
    if not half.overlaps(flint.arb(0.5)) or half.rad() >= 1e-30:
        raise FalseStep("half of a normal law is not within the quartile")
    quartile = Decimal(decimal(lambda bits: _at_precision(bits, gaussian.upper_quartile), 6))
    values = {
        **_checked_caveat(),
        "quartile": quartile,
        "table": [_make_table_of_slopes(sizes, d_k)],
    }
    text = DerivationText({"": Glossary({"s": "2"})}, **values)
    text.blocks("with: $p = softmax(s)$, $Δ = s_1 - s_2$")
    lines = (
        " ".join(line.split()).split(" :: ")
        for line in _BOUNDS.strip().removeprefix("- ").split("\n- ")
    )
    text.values["bounds"] = [
        at_sizes(sizes, text.formula(typed), text.words(reason), formula(derived))
        for typed, reason, derived in lines
    ]
    return text.blocks(_TEXT)


def _at_precision(bits: int, work: Callable[[], object]) -> Any:
    with flint.ctx.workprec(bits):
        return work()


def at_sizes(sizes: list[int], formula: Relation, reason: Text | str, derived: Node) -> Step:
    """Return a relation between the median or mean slope and a formula, both enclosed at several d_k and σ.

    The value of the reason is ``derived``, and the formula is proved equal to it: a weaker bound is refused. The slope
    as a density has the variance π²/3, that of the logistic law.
    """
    points = [(d, square) for square in _SQUARES for d in sizes]

    def decide(relation: Relation) -> Evidence:
        # A weaker bound would hold too, so the side must equal what its reason derives.
        if not all(_are_slope_formulas_equal(side, derived) for _, side in relation.rest):
            raise FalseStep(f"{text(relation)} is not what its reason gives")
        with precision(_BITS):
            for d_k, square in points:
                _holds_at(relation, d_k, float(square))
        sized = ((_SQUARE, _SQUARES), (scaling_numpy.D_K, sizes))
        return enclosed(", ".join(text(equals(x, commas(*at))) for x, at in sized))

    judging.record(judging.DecidedRelation(formula, decide, equal=_are_slope_formulas_equal))
    return Step(formula, running_text(reason), decide(formula))


def _are_slope_formulas_equal(a: Node, b: Node) -> bool:
    """Return whether two formulas in σ, d_k, z and π are proved equal."""
    return judging.RelationQuestion(equals(a, b), _NUMBERS).equal(a, b)


def _lift_slope_to_ball(x: object) -> Ball:
    return Ball.lift(np.array(x, dtype=object))


def _holds_at(relation: Relation, d_k: int, square: float) -> None:
    sides = [relation.first, *(side for _, side in relation.rest)]
    root = flint.arb(square).sqrt()
    numbers = (root, flint.arb(d_k), gaussian.upper_quartile(), flint.arb.pi())
    reader = Reader(
        _NUMBERS, dict(zip(_LETTERS, map(_lift_slope_to_ball, numbers), strict=True)), {}
    )
    try:
        result = [
            # Median and mean have enclosures of their own; other sides are read as printed.
            _lift_slope_to_ball(_MOMENTS[x](d_k * square**2, _BITS))
            if x in _MOMENTS
            else reader.one(x).array
            for x in sides
        ]
        signs = [sign for sign, _ in relation.rest]
        true = all(
            sign in "=≤≥" and comparing.holds(a, sign, b)
            for a, sign, b in zip(result, signs, result[1:], strict=False)
        )
    except (Unread, Refused, Undecided, ZeroDivisionError) as reason:
        raise FalseStep(f"{text(relation)}: {reason}") from reason
    if not true:
        raise FalseStep(f"{text(relation)} is false at d_k = {d_k}, σ² = {square}")


def _make_table_of_slopes(sizes: list[int], value: int) -> Table:
    work = (median_slope, mean_slope, scaled_median, scaled_mean, _ratio_of_median_slopes)
    rows = tuple(
        (
            (nt.node(d),),
            (Decimal(Quotient.of(2 * d).sqrt().decimal(4)),),
            *((digits_at(d, w),) for w in work),
        )
        for d in sizes
    )
    columns = tuple(Column(running_text(head), group=running_text(group)) for head, group in _HEADS)
    return Table(columns, rows, (sizes.index(value),), running_text(_CAPTION))


def _checked_caveat() -> dict[str, Any]:
    """Return the numbers of the caveat. Raises FalseStep unless they satisfy what it says."""
    largest = _SIZES[-1]
    # The caveat is refused if its numbers do not bear it out.
    if (
        not scaled_mean(largest, _BITS)
        < mean_slope(largest, _BITS)
        < 10 * scaled_mean(largest, _BITS)
    ):
        raise FalseStep("the caveat of scaling: the means are not of one size")
    if not 0.99 < 2 * mean_slope(4 * largest, _BITS) / mean_slope(largest, _BITS) < 1.01:
        raise FalseStep("the caveat of scaling: the mean does not fall like 1/√d_k")
    least = formula("e/(1 + e)²")
    if not _are_slope_formulas_equal(formula("¼ sech(½)²"), least):
        raise FalseStep("the caveat of scaling: the slope at a gap of 1 is another")
    ties: Number = lambda d_k, bits: of_gap(2 * d_k, bits, "near_ties")  # noqa: E731
    work = {"median": median_slope, "mean": mean_slope, "ties": ties, "scaled": scaled_mean}
    return {
        "largest": largest,
        "least": least,
        **{of: digits_at(largest, number) for of, number in work.items()},
    }
