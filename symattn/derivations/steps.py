"""Steps that refuse to be false: each equality is evaluated before it is told."""

from __future__ import annotations

from collections.abc import Iterable

from symattn.document.model import Step, Steps, Text
from symattn.document.notation import Node, Relation
from symattn.evidence import Evidence, Grade
from symattn.proof.moments import Law
from symattn.statement.comparing import FalseStep as FalseStep

Link = tuple[Node | tuple[Node, ...], Text | str]
"""The next side of a chain, or several, and the reason."""


def chain(law: Law, where: str, first: Node, *links: Link) -> tuple[Step, ...]:
    """first = side, = side, …, every side evaluated under ``law``. Raises FalseStep where two sides differ."""
    value = law.value(first)
    steps = []
    for sides, reason in links:
        row = (sides,) if isinstance(sides, Node) else sides
        for side in row:
            if law.value(side) != value:
                raise FalseStep(f"{first} = {side}: {value} is not {law.value(side)}")
        steps.append(Step(Relation(first, tuple(("=", side) for side in row)), words(reason), proved(where)))
    return tuple(steps)


def hold(truth: bool, formula: Node, reason: Text | str, evidence: Evidence) -> Step:
    """A step that was checked just now. Raises FalseStep if it does not hold."""
    if not truth:
        raise FalseStep(f"{formula} does not hold ({evidence})")
    return Step(formula, words(reason), evidence)


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
