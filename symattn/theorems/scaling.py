"""Scaling and statistics: how scores, outputs and gradients are spread when their inputs are random."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.proof.expectation import NORMAL, EntryLaw
from symattn.proof.relations.glossary import Glossary
from symattn.proof.together import above_zero
from symattn.theorems.texts import of_file

UNIT = EntryLaw((), lambda: (0, 1), lambda: [(-1, Fraction(1, 2)), (1, Fraction(1, 2))])


# The values −a, 0 and a have any variance and fourth moment of a law whose squares are not constant. No third moment
# is assumed.
THREE_VALUES = EntryLaw(
    ("a", "b"),
    lambda a, b: (0, a**2 / (1 + b), None, a**4 / (1 + b) - 3 * (a**2 / (1 + b)) ** 2),
    lambda a, b: [(-a, 1 / (2 + 2 * b)), (0 * a, b / (1 + b)), (a, 1 / (2 + 2 * b))],
)


# -- unscaled-mean-gradient-decays-slowly ----------------------------------------------------------------------------
def _mean_is_as_small_as_the_median() -> Any:
    """e^{−0.95 τ} less a part of E[p₁p₂], that of |Δ| ≤ 20, at τ = 8."""
    import flint

    def inside(x: Any, _: Any) -> Any:
        e = x.exp()
        return e / (1 + e) ** 2 * (-(x * x) / 256).exp()

    part = flint.acb.integral(inside, -20, 20).real / (2 * flint.arb.pi().sqrt() * 8)
    return (-flint.arb(38) / 5).exp() - part


# twice 1/2 − P(|Δ| ≤ 0.95 τ) for Δ ∼ N(0, 2τ²)
half_of_the_gaps = above_zero(
    {}, lambda xp: 1 - 2 * xp.erf(xp.asarray(Fraction(19, 40))), _mean_is_as_small_as_the_median
)


THEOREMS = of_file(
    "scaling",
    {
        "": Glossary(rows=True),
        "unit": Glossary(laws=dict.fromkeys("qk", UNIT), rows=True),
        "normal": Glossary(laws=dict.fromkeys("qk", NORMAL), rows=True),
        "three": Glossary({"a": "", "b": ""}, laws={"q": THREE_VALUES}, rows=True),
        "unscaled-mean-gradient-decays-slowly": None,
    },
    globals(),
)
