"""Steps that refuse to be false: each equality is evaluated before it is told."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from symattn.document.evidence import Evidence, Grade, weakest
from symattn.document.model import Step, Steps, Text
from symattn.document.notation import Node
from symattn.proof.relations.comparing import FalseStep as FalseStep


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
