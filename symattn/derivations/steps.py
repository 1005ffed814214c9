"""Steps that refuse to be false: each equality is evaluated before it is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from symattn.document.errors import InputError, Refused
from symattn.document.evidence import Evidence, Grade, weakest
from symattn.document.model import Step, Steps, Text
from symattn.document.notation import Name, Node, Number, Relation, node, parts
from symattn.document.text import text
from symattn.proof.certified_moments import chained
from symattn.proof.certified_moments import vanishing as tends_to_zero
from symattn.proof.moments import Law
from symattn.proof.relations.comparing import FalseStep as FalseStep
from symattn.proof.relations.judging import DecidedRelation, record


def moment(
    law: Law,
    formula: Relation,
    reason: Text | str = (),
    evidence: Evidence | None = None,
    value: Callable[[Node], Any] | None = None,
) -> Step:
    """A step whose sides are moments, each evaluated under ``law``. Raises FalseStep where two of them differ.

    It is proved where the checker accepts its certificate, under what the law says was used, unless ``evidence`` says
    otherwise; ``value`` computes a side where the law does not.
    """
    work = value or law.value

    def decide(relation: Relation) -> Evidence:
        if not _whole_indices(relation):
            raise FalseStep(f"{text(relation)}: an index that is not an integer")
        try:
            values = [work(side) for side in (relation.first, *(side for _, side in relation.rest))]
        except (Refused, InputError, ZeroDivisionError) as reason:
            raise FalseStep(f"{text(relation)}: {reason}") from reason
        if any(sign != "=" for sign, _ in relation.rest) or any(value != values[0] for value in values):
            raise FalseStep(f"{text(relation)}: the sides are {', '.join(map(str, values))}")
        sides = (relation.first, *(side for _, side in relation.rest))
        return evidence or _certified(chained(law, sides), law.under(*sides))

    record(DecidedRelation(formula, decide, sizes=("d_k", "n"), exact=True))
    return Step(formula, words(reason), decide(formula))


def _certified(accepted: bool, where: str) -> Evidence:
    """Grade a result of the algebra of moments: proved where the checker accepts it, and else argued."""
    argued = "by the algebra of moments, whose result no certificate shows"
    return proved(where) if accepted else Evidence(Grade.ARGUED, f"{where}, {argued}" if where else argued)


def _whole_indices(x: Node) -> bool:
    if isinstance(x, Name):
        return all(i.value >= 1 and i.value.denominator == 1 for i in x.sub if isinstance(i, Number))
    return all(map(_whole_indices, parts(x)))


def vanishing(law: Law, formula: Relation, limit: Relation) -> Step:
    """A moment → 0 as a size → ∞: its value has a negative degree in that size. Raises FalseStep."""
    grows = isinstance(limit.first, Name) and limit.rest == (("→", Name("∞")),)

    def decide(relation: Relation) -> Evidence:
        try:
            if relation.rest == (("→", node(0)),) and grows and law.value(relation.first).degree(text(limit.first)) < 0:
                return _certified(tends_to_zero(law, relation.first, text(limit.first)), law.under(relation.first))
        except (Refused, InputError, ZeroDivisionError) as reason:
            raise FalseStep(f"{text(relation)}: {reason}") from reason
        raise FalseStep(f"{text(relation)} as {text(limit)} is not shown")

    record(DecidedRelation(formula, decide, sizes=("d_k", "n")))
    return Step(formula, (limit,), decide(formula))


@dataclass(frozen=True)
class Moments:
    """Letters with a law, in the place of a section: what is claimed of them are moments."""

    law: Law

    def define(self, formula: Node, reason: Text | str = "definition") -> Step:
        """A definition."""
        return defined(formula, reason)

    def claim(self, formula: Relation, reason: Text | str = (), **_: object) -> Step:
        """A step whose sides are moments; see ``moment``."""
        return moment(self.law, formula, reason)

    def tends(self, formula: Relation, limit: Relation, _: object = None) -> Step:
        """A moment that vanishes; see ``vanishing``."""
        return vanishing(self.law, formula, limit)


def hold(truth: bool, formula: Node, reason: Text | str, evidence: Evidence) -> Step:
    """A step that was checked just now. Raises FalseStep if it does not hold."""
    if not truth:
        raise FalseStep(f"{formula} does not hold ({evidence})")
    return Step(formula, words(reason), evidence)


def of_all(first: Step, *others: Step) -> Evidence:
    """The evidence of the first of several steps in a box, and of the others no better a grade."""
    result = [step.evidence for step in (first, *others) if step.evidence]
    return replace(result[0], grade=weakest(result))


def defined(formula: Node, reason: Text | str = "definition") -> Step:
    """A definition: there is nothing to prove."""
    return Step(formula, words(reason))


def together(*parts: Iterable[Step] | Step) -> Steps:
    """One group of steps."""
    return Steps(tuple(step for part in parts for step in ((part,) if isinstance(part, Step) else part)))


def words(reason: Text | str) -> Text:
    """A reason as text."""
    return ((reason,) if reason else ()) if isinstance(reason, str) else reason


def listed(formulas: Iterable[Node]) -> Text:
    """Formulas with commas between, as running text."""
    parts: list[Node | str] = []
    for formula in formulas:
        parts += [", ", formula]
    return tuple(parts[1:])


def proved(where: str) -> Evidence:
    """For all sizes, under the hypotheses named."""
    return Evidence(Grade.PROVED, where)


def checked(where: str) -> Evidence:
    """Exactly, at the sizes named."""
    return Evidence(Grade.CHECKED, where)


def enclosed(where: str) -> Evidence:
    """Rigorously, for these numbers."""
    return Evidence(Grade.ENCLOSED, where)


_WORD = re.compile(r"a |[a-z]{2}")  # and no letter of a formula


def capitalised(said: Text) -> Text:
    """With a capital letter, where words begin it."""
    opening, *rest = said
    starts = isinstance(opening, str) and _WORD.match(opening)
    return (opening[:1].upper() + opening[1:] if isinstance(opening, str) and starts else opening, *rest)
