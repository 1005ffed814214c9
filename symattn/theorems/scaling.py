"""Scaling and statistics: how scores, outputs and gradients are spread when their inputs are random."""

from __future__ import annotations

from fractions import Fraction

from symattn.proof.expectation import NORMAL, EntryLaw
from symattn.proof.relations.glossary import Glossary
from symattn.theorems.texts import of_file

UNIT = EntryLaw((), lambda: (0, 1), lambda: [(-1, Fraction(1, 2)), (1, Fraction(1, 2))])


# The values −a, 0 and a have any variance and fourth moment of a law whose squares are not constant. No third moment
# is assumed.
THREE_VALUES = EntryLaw(
    ("a", "b"),
    lambda a, b: (0, a**2 / (1 + b), None, a**4 / (1 + b) - 3 * (a**2 / (1 + b)) ** 2),
    lambda a, b: [(-a, 1 / (2 + 2 * b)), (0 * a, b / (1 + b)), (a, 1 / (2 + 2 * b))],
)


THEOREMS = of_file(
    "scaling",
    {
        "": Glossary(rows=True),
        "unit": Glossary(laws=dict.fromkeys("qk", UNIT), rows=True),
        "normal": Glossary(laws=dict.fromkeys("qk", NORMAL), rows=True),
        "three": Glossary({"a": "", "b": ""}, laws={"q": THREE_VALUES}, rows=True),
    },
)
