"""A section of a document: the meanings of its letters, its definitions and its claims.

A claim is read from the printed formula; a formula that is false, or cannot be read, never gets a grade: ``claim``
raises FalseStep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symattn.document import notation as nt
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Result, Step, Text
from symattn.document.notation import Node, Relation
from symattn.document.text import text
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.compiling import Link, links
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import DecidedRelation, RelationQuestion, assumptions, judged, record, relations
from symattn.proof.relations.limit_rules import limit
from symattn.proof.relations.random_arrays import averages


class Section:
    """Letters, definitions and claims that belong together."""

    def __init__(self, glossary: Glossary) -> None:
        self.glossary = glossary
        self.known: dict[Link, Evidence] = {}

    def let(self, words: Text | Node) -> Any:
        """Return text to print, and define letters by the relations in it: "with Z = Σ e^{s_ℓ}"."""
        for relation in relations(words):
            self.glossary = self.glossary.with_definition(relation)
        return words

    def define(self, formula: Node, reason: Text | str = "definition") -> Step:
        """Return a definition as a step, and add it and those in its reason to the letters; nothing is decided."""
        self.let(_words(reason))
        self.let(formula)
        return Step(formula, _words(reason))

    def claim(
        self,
        formula: Node,
        reason: Text | str,
        *,
        gaps: Mapping[Node, Node] | None = None,
        signs: Mapping[Node, Node] | None = None,
        free: Mapping[str, str] | None = None,
        keep: bool = False,
    ) -> Step:
        """Return a step with the grade of its formula. Raises FalseStep.

        A relation in the reason is a definition, or must hold too; "n = 3" there names the size for which the formula
        is written out. ``gaps``, ``signs``: see ``RelationQuestion``. ``free``: letters with their shapes for which
        the formula holds whatever their values. ``keep``: the formula defines its left side from here on.
        """
        said = _words(reason)
        sized = self._sized(said)
        self._reasons(said, sized)
        glossary = self.glossary.freed(free) if free else self.glossary
        if not isinstance(formula, Relation):
            raise FalseStep(f"{text(formula)}: no relation to decide")
        question = RelationQuestion(formula, glossary, sized, gaps or {}, signs or {})
        if averages(formula):
            assumptions(formula, glossary)  # else the grade could not name them
        evidence = judged(question, {} if free else self.known)
        if evidence.grade is Grade.PROVED and not sized and not free:
            self.known |= dict.fromkeys(links(formula), evidence)
        if keep:
            self.glossary = self.glossary.with_definition(formula)
        return Step(formula, said, evidence)

    def tends(self, formula: Relation, condition: Relation, form: Node | None = None) -> Step:
        """Return a limit under its condition, as β → ∞; see ``limit_rules``. ``form``: a form to prove it by."""

        def decide(relation: Relation, under: Relation = condition) -> Evidence:
            return limit(
                relation, under, form or formula.first, self.glossary, RelationQuestion(relation, self.glossary).of
            )

        letters = tuple(self.glossary.index), tuple(self.glossary.sizes)
        record(DecidedRelation(formula, decide, *letters))
        record(DecidedRelation(condition, lambda other: decide(formula, other), *letters))
        return Step(formula, (condition,), decide(formula))

    def result(
        self,
        title: str,
        *lines: Relation | tuple[Relation, ...],
        said: Text = (),
        gaps: Mapping[Node, Node] | None = None,
        signs: Mapping[Node, Node] | None = None,
    ) -> Result:
        """Return formulas in a box, each decided again; those of a tuple share a line."""
        rows = [line if isinstance(line, tuple) else (line,) for line in lines]
        steps = [self.claim(formula, (), gaps=gaps, signs=signs) for row in rows for formula in row]
        evidence = dict.fromkeys(step.evidence for step in steps if step.evidence)
        return Result(title, tuple(nt.Row(row) if len(row) > 1 else row[0] for row in rows), tuple(evidence), said)

    def _reasons(self, said: Text, sized: Mapping[str, int]) -> None:
        """Decide a reason's relations about letters with a meaning; other relations are definitions."""
        for relation in relations(said):
            if relation.rest[0][0] != "=" or not isinstance(relation.first, nt.Name) or self.glossary.sized(relation):
                continue
            if self.glossary.knows(self.glossary.stem(relation.first)[0]):
                judged(RelationQuestion(relation, self.glossary, sized), self.known)
            else:
                self.let(relation)

    def _sized(self, reason: Text) -> dict[str, int]:
        return {size: n for r in relations(reason) for size, n in self.glossary.sized(r).items()}


def _words(reason: Text | str) -> Text:
    return ((reason,) if reason else ()) if isinstance(reason, str) else reason
