"""The setting of the scaling derivation, and a comparison of its moments with NumPy.

NumPy enumerates every point of a small cube in integers, or draws random samples in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Any

import numpy as np

from symattn.derivations.exactly import value
from symattn.derivations.steps import checked, together
from symattn.document import characters
from symattn.document import notation as nt
from symattn.document.evidence import Evidence, Grade
from symattn.document.formulas import formula
from symattn.document.model import Block, Heading, Paragraph, Step, Steps, Text
from symattn.document.notation import Decimal, Name, Node, Relation, equals, relation
from symattn.document.text import text
from symattn.proof.relations import judging
from symattn.proof.relations.comparing import FalseStep

D_K = formula("d_k")


@dataclass(frozen=True)
class ScalingSetting:
    """The requested d_k and mean: a number, a letter, or None for 0 first and then any."""

    d_k: int
    mean: Fraction | str | None = None

    @property
    def mu(self) -> Name:
        """The letter for the mean."""
        if isinstance(self.mean, str):
            return Name(characters.GREEK.get(self.mean, self.mean))
        return Name("μ")

    @property
    def centred(self) -> bool:
        """Whether the main derivation assumes μ = 0."""
        return not self.mean

    def formula(self, typed: str) -> Node:
        """Read a formula with ``@mu``."""
        return formula(typed, values={"mu": self.mu})


def at_size(setting: ScalingSetting) -> Node:
    """Return the condition d_k = 4."""
    return equals(D_K, setting.d_k)


# -- compared with NumPy ----------------------------------------------------------------------------------------------
_LARGEST_CUBE = 16  # components, each with two values
_ROWS, _NUMBERS = 20_000, 4_000_000  # at most so many rows, and so many numbers in one array
_FAR = 5.0  # standard errors; a sample further off does not agree
_MEAN, _VARIANCE, _SCALED, _GAP = map(formula, ("E[s]", "Var(s)", "Var(s/√d_k)", "Var(s_1 - s_2)"))
_CLOSED = dict(
    zip(
        (_MEAN, _VARIANCE, _SCALED, _GAP),
        map(formula, ("d_k μ²", "d_k (1 + 2 μ²)", "1 + 2 μ²", "2 d_k (1 + μ²)")),
        strict=True,
    )
)
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def numpy_section(setting: ScalingSetting, seed: int) -> tuple[Block, ...]:
    """Return the section: an enumeration if the cube is small, else a sample with its standard errors."""
    # Without a number for the mean, 0 or 1 stands for its letter.
    centre = (
        setting.mean
        if isinstance(setting.mean, Fraction)
        else Fraction(0 if setting.centred else 1)
    )
    small = 2 * setting.d_k <= _LARGEST_CUBE
    blocks = (
        _enumerate_moments_of_cube(setting, centre)
        if small
        else _estimate_sampled_moments(setting, centre, seed)
    )
    return (Heading(("Compared with NumPy",)), *blocks)


def evidence(blocks: tuple[Block, ...]) -> tuple[Evidence, ...]:
    """Return the section's evidence for Var(s), to be repeated at the result."""
    steps = next(block for block in blocks if isinstance(block, Steps))
    return tuple(
        step.evidence
        for step in steps.items
        if step.evidence and isinstance(step.formula, Relation) and step.formula.first == _VARIANCE
    )


def cube(d_k: int, keys: int, low: int, high: int) -> np.ndarray:
    """Return the scores of ``keys`` keys at all points where every component is ``low`` or ``high``.

    Shape: (keys, 2^{(1 + keys) d_k}). In int64 if the summed squares fit, else in Python's integers.
    """
    width = (1 + keys) * d_k
    # No squared difference of two scores, summed over all points, may overflow.
    largest_score = 2 * d_k * max(abs(low), abs(high)) ** 2
    largest = largest_score**2 << width
    kind: Any = np.int64 if largest < 2**62 else object
    # Each point is a number, whose bits choose low or high for each component.
    points = np.arange(1 << width)[:, None]
    bits = points >> np.arange(width) & 1
    ends = np.array([low, high], dtype=kind)
    components = ends[bits].reshape(-1, 1 + keys, d_k)
    products = components[:, :1] * components[:, 1:]
    scores: np.ndarray = products.sum(axis=2).T
    return scores


def moments(values: np.ndarray) -> tuple[Fraction, Fraction]:
    """Return mean and variance of equally likely integers, exactly."""
    count, first = len(values), int(values.sum())
    squares = int((values * values).sum())
    mean = Fraction(first, count)
    return mean, Fraction(squares, count) - mean**2


def _enumerate_moments_of_cube(setting: ScalingSetting, centre: Fraction) -> tuple[Block, ...]:
    # Integers in units of 1/denominator make NumPy's sums exact.
    d_k, unit = setting.d_k, centre.denominator
    low, high = (centre.numerator - unit, centre.numerator + unit)  # in units of 1/unit
    first, second = moments(cube(d_k, 1, low, high)[0])
    result = [
        (_MEAN, first / unit**2),
        (_VARIANCE, second / unit**4),
        (_SCALED, second / unit**4 / d_k),
    ]
    steps = [
        _compare_with_closed_form(setting, centre, formula, value, 2 * d_k)
        for formula, value in result
    ]
    # With two keys the cube has three vectors, which may be too many points.
    if 3 * d_k <= _LARGEST_CUBE:
        one, other = cube(d_k, 2, low, high)
        steps.append(
            _compare_with_closed_form(
                setting, centre, _GAP, moments(one - other)[1] / unit**4, 3 * d_k
            )
        )
    words = (
        "Let each component be ",
        nt.Number(centre - 1),
        " or ",
        nt.Number(centre + 1),
        ", equally likely, so that ",
    )
    end = ". NumPy goes through all points, in integers."
    setting_words = _name_scaling_setting(setting, centre)
    return Paragraph((*words, *setting_words, end)), together(steps)


def _compare_with_closed_form(
    setting: ScalingSetting, centre: Fraction, formula: Node, value: Fraction, width: int
) -> Step:
    signs = nt.commas(centre - 1, centre + 1) if centre else nt.PlusMinus(nt.node(1))
    values = text(nt.Fence("curly", signs))
    width_raised = str(width).translate(_RAISED)
    where = checked(f"all {2**width} points of {values}{width_raised}")

    def decide(said: Relation) -> Evidence:
        if said.rest != (("=", nt.node(closed(setting, centre, said.first))),):
            raise FalseStep(f"{text(said)}: the closed form differs")
        return where

    relation = equals(formula, value)
    judging.record(judging.DecidedRelation(relation, decide, sizes=("d_k", "n"), exact=True))
    return Step(relation, (f"{2**width} points",), decide(relation))


def _name_scaling_setting(setting: ScalingSetting, centre: Fraction) -> Text:
    """Name the variance, mean and d_k: σ = 1, μ = 0 and d_k = 4."""
    return formula("σ = 1"), ", ", equals(setting.mu, centre), " and ", equals(D_K, setting.d_k)


def closed(setting: ScalingSetting, centre: Fraction, moment: Node) -> Fraction:
    """Return a moment by its closed form at σ = 1. Raises FalseStep if it has none here."""
    form = _CLOSED.get(moment)
    if form is None:
        raise FalseStep(f"{text(moment)}: no closed form")
    result = value(form, {"μ": centre, "d_k": setting.d_k}).rational()
    assert result is not None
    return result


def _estimate_sampled_moments(
    setting: ScalingSetting, centre: Fraction, seed: int
) -> tuple[Block, ...]:
    # At least two rows, as a variance needs them.
    rows = max(2, min(_ROWS, _NUMBERS // setting.d_k))
    generator = np.random.default_rng(seed)
    one, other = drawn_scores(setting.d_k, float(centre), rows, generator)
    root = sqrt(setting.d_k)
    result = [
        (_MEAN, one, False),
        (_VARIANCE, one, True),
        (_SCALED, one / root, True),
        (_GAP, one - other, True),
    ]
    steps = [
        _compare_sampled_moment(setting, centre, formula, estimate(values, spread), seed)
        for formula, values, spread in result
    ]
    words = (
        f"{rows} queries with two keys each, drawn from normal laws in float64 (seed {seed}), with "
    )
    return Paragraph((words, *_name_scaling_setting(setting, centre), ":")), together(steps)


def drawn_scores(
    d_k: int, centre: float, rows: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    q, k1, k2 = (random.normal(centre, 1.0, (rows, d_k)) for _ in range(3))
    return np.einsum("ri,ri->r", q, k1), np.einsum("ri,ri->r", q, k2)


def estimate(values: np.ndarray, spread: bool) -> tuple[float, float]:
    """Return the mean, or with ``spread`` the variance, of a sample, and its standard error."""
    centred = values - values.mean()
    variance = float((centred**2).mean())
    if not spread:
        return float(values.mean()), sqrt(variance / len(values))
    fourth = float((centred**4).mean())
    # Divided by n − 1, the estimate has no bias.
    return variance * len(values) / (len(values) - 1), sqrt(
        max(fourth - variance**2, 0.0) / len(values)
    )


def _compare_sampled_moment(
    setting: ScalingSetting,
    centre: Fraction,
    formula: Node,
    results: tuple[float, float],
    seed: int,
) -> Step:
    """Compare a sample with the closed form; one that is too far off is no evidence for it."""
    value, error = results
    expected = closed(setting, centre, formula)
    # Far beyond the error the sample is no evidence, though it may still be chance.
    agrees = abs(value - float(expected)) <= _FAR * error
    reason = (
        "expected ",
        Decimal(f"{float(expected):.6g}"),
        ", standard error ",
        Decimal(f"{error:.2g}"),
    )
    evidence = Evidence(Grade.SAMPLED if agrees else Grade.UNDECIDED, f"float64, seed {seed}")
    return Step(relation(formula, "≈", Decimal(f"{value:.5g}")), reason, evidence)
