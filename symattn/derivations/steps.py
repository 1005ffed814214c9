"""Steps that cannot be false: each equality is evaluated before it is printed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from symattn.document.evidence import Evidence, Grade, weakest
from symattn.document.model import Step, Steps, Text
from symattn.document.notation import Node
from symattn.proof.relations.comparing import FalseStep as FalseStep


def hold(truth: bool, formula: Node, reason: Text | str, evidence: Evidence) -> Step:
    """Return a checked step. Raises FalseStep if ``truth`` is false."""
    if not truth:
        raise FalseStep(f"{formula} does not hold ({evidence})")
    return Step(formula, words(reason), evidence)


def of_all(first: Step, *others: Step) -> Evidence:
    """Return the evidence for several steps in a box: that of the first, with the weakest grade of all."""
    result = [step.evidence for step in (first, *others) if step.evidence]
    return replace(result[0], grade=weakest(result))


def defined(formula: Node, reason: Text | str = "definition") -> Step:
    """Return a definition: there is nothing to prove."""
    return Step(formula, words(reason))


def together(*parts: Iterable[Step] | Step) -> Steps:
    """Join steps into one group."""
    return Steps(
        tuple(step for part in parts for step in ((part,) if isinstance(part, Step) else part))
    )


def words(reason: Text | str) -> Text:
    """Return a reason as text."""
    return ((reason,) if reason else ()) if isinstance(reason, str) else reason


def checked(where: str) -> Evidence:
    """Return the evidence of an exact check at the named sizes."""
    return Evidence(Grade.CHECKED, where)


def searched(where: str) -> Evidence:
    """Return the evidence of a search that found no counterexample; ``where`` says what was tried."""
    return Evidence(Grade.SEARCHED, where)


def enclosed(where: str) -> Evidence:
    """Return the evidence of a rigorous enclosure for these numbers."""
    return Evidence(Grade.ENCLOSED, where)


_WORD = re.compile(r"a |[a-z]{2}")  # not a letter of a formula


def capitalised(said: Text) -> Text:
    """Return text with a capital letter if it begins with a word."""
    opening, *rest = said
    starts = isinstance(opening, str) and _WORD.match(opening)
    return (
        opening[:1].upper() + opening[1:] if isinstance(opening, str) and starts else opening,
        *rest,
    )
