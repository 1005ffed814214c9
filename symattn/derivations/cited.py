"""Theorems that a derivation cites, each decided with its false variant when the document is made."""

from __future__ import annotations

from dataclasses import dataclass

from symattn.derivations.steps import capitalised, words
from symattn.document import model
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Block, Step, Text
from symattn.document.notation import Node
from symattn.document.text import plain_text
from symattn.proof import typeset_words
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.theorem import Theorem, TheoremOutcome, decide
from symattn.theorems import findings
from symattn.theorems.as_printed import read
from symattn.theorems.reading import Reading, boxed, of_print, read_apart


@dataclass(frozen=True)
class CitedTheorem:
    """A theorem of the catalogue that is proved, with its false variant refuted."""

    theorem: Theorem
    outcome: TheoremOutcome
    reading: Reading | None = None

    @property
    def evidence(self) -> Evidence:
        """The grade of the theorem for all sizes, with its name."""
        needed = dict.fromkeys(map(plain_text, self.outcome.decision.hypotheses))
        return Evidence(
            self.outcome.grade, "; ".join((f"all sizes ({self.theorem.name})", *needed))
        )

    def step(self, formula: Node | None = None, reason: Text | str | None = None) -> Step:
        """Return the theorem as a step, as printed or as an equivalent ``formula`` in other letters."""
        formula = formula or self.statement[0][0]
        said = words(self.theorem.why if reason is None else reason)
        return Step(formula, said, of_print(self.evidence, self.reading)[0])

    @property
    def statement(self) -> tuple[tuple[Node, ...], Text]:
        """The statement as formulas, or else as words."""
        return typeset_words.statement(self.theorem.says)

    def result(self, title: str = "Result") -> tuple[Block, ...]:
        """Return the relations that were read, in a box, and the statement's words below it."""
        formulas, said = read_apart(self.theorem.says, self.reading)
        return boxed(title, formulas, self.evidence, said, self.reading)

    def wrong(self) -> model.Note:
        """Return its false variant, with the numbers that refute it."""
        said = self.theorem.false_says
        comma = "" if isinstance(said[-1], str) and said[-1].endswith(".") else ";"
        refuted = findings.finding(self.outcome).counterexample
        return model.Note(
            (model.Emph("Not so."), " ", *capitalised(said), f"{comma} refuted by ", *refuted, ".")
        )


def cite(theorem: Theorem) -> CitedTheorem:
    """Decide the theorem as code and as printed. Raises FalseStep unless it is proved and its false variant refuted."""
    outcome, reading = decide(theorem), read(theorem)
    if reading and reading.wrong:
        raise FalseStep(f"{theorem.name}: {reading.wrong}")
    if outcome.grade not in (Grade.PROVED, Grade.ARGUED):
        raise FalseStep(f"{theorem.name} is not shown ({outcome.decision.evidence})")
    return CitedTheorem(theorem, outcome, reading)
