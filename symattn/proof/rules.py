"""Rules as code: each goes on from what was decided to what is printed, and the checker applies it anew.

A rule is a method like others: its premises are methods, it decides them, and it is worth no more than the weakest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from symattn.arrays.index.expressions import Expression
from symattn.arrays.index.positions import as_number
from symattn.document.model import Text
from symattn.errors import InputError, Refused, Undecided
from symattn.evidence import Evidence, Grade
from symattn.proof.certified import accepted
from symattn.proof.inequality import Certificate
from symattn.proof.premises import Applied, Sign
from symattn.proof.statement import Declared, Letters, Sides, pairs
from symattn.proof.theorem import Decision, Refutation

Known = tuple[Sign | Applied, ...]
LARGEST: Text = ("what is shown of every entry holds of the largest, which is one of them",)


@dataclass(frozen=True)
class OfTheLargest:
    """What ``premise`` says of every entry holds of the largest: ``sides`` gives pairs (smaller, larger) with maxima.

    Each entry that one of the maxima is taken of gives, in its place, a pair of the premise. Where there are several
    maxima, ``between`` has the pairs with some of them. A false variant, if there is one, is the premise's.
    """

    premise: Certificate
    sides: Sides
    between: tuple[Sides, ...] = ()

    def decide(self) -> Decision:
        found = self.premise.decide()
        if found.evidence.grade is not Grade.PROVED:
            return found
        wrong = self._stated.wrong()
        if wrong:
            return Decision(Evidence(Grade.REFUTED, wrong))
        known: Known = tuple(p for p in found.premises if isinstance(p, Sign))
        try:
            for sides in (*self.between, self.sides):
                known = (Applied("largest", known, tuple(written(sides, self.premise.declared))),)
        except (Refused, Undecided, InputError) as reason:
            return Decision(Evidence(Grade.UNDECIDED, str(reason)))
        evidence = accepted(found.evidence, found.proofs, known)
        return replace(found, evidence=evidence, argument=(*found.argument, LARGEST), premises=known)

    def refute(self) -> Refutation:
        return self.premise.refute()

    def witness(self) -> str:
        return self._stated.witness() and self.premise.witness()

    @property
    def _stated(self) -> Certificate:
        return replace(self.premise, sides=self.sides)

    @property
    def false(self) -> Sides | tuple[Sides, ...]:
        """The false variant of the premise."""
        return self.premise.false


def written(sides: Sides, declared: Declared) -> Iterator[tuple[Expression, Expression]]:
    """The pairs in letters, entry by entry."""
    for a, b in pairs(sides, declared, Letters()):
        smaller, larger = a + 0 * b, b + 0 * a
        for places in smaller.places():
            yield as_number(smaller.at(places)), as_number(larger.at(places))
