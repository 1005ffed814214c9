"""Theorems of the catalogue in a derivation, proved anew whenever they are told."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from symattn.derivations.steps import FalseStep, words
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Assumption, Assumptions, Block, Emph, Note, Step, Text
from symattn.document.notation import Node
from symattn.document.text import text
from symattn.proof.theorem import Decision, Outcome, Theorem, decide
from symattn.theorems.reading import Reading, boxed, of_print, read, read_apart

ALL = "all sizes"
FOR_ALL = (Grade.PROVED, Grade.ARGUED)
_WORD = re.compile(r"a |[a-z]{2}")  # and no letter of a formula


@dataclass(frozen=True)
class Known:
    """A theorem of the catalogue that was decided just now, its false variant refuted."""

    theorem: Theorem
    outcome: Outcome
    reading: Reading | None = None

    @property
    def evidence(self) -> Evidence:
        """Proved or argued for all sizes, by name."""
        where = "; ".join((f"{ALL} ({self.theorem.name})", *_hypotheses([self.outcome.decision])))
        return Evidence(self.outcome.grade, where)

    def step(self, formula: Node | None = None, reason: Text | str | None = None) -> Step:
        """What it says, or a formula in other letters that says the same."""
        formula = formula or self.statement[0][0]
        said = words(self.theorem.why if reason is None else reason)
        return Step(formula, said, of_print(self.evidence, self.reading)[0])

    @property
    def statement(self) -> tuple[tuple[Node, ...], Text]:
        """What it says as formulas, or else as words."""
        from symattn.proof.words import statement

        return statement(self.theorem.says)

    def result(self, title: str = "Result") -> tuple[Block, ...]:
        """The relations of it that were read, in a box; what it says in words, below."""
        formulas, said = read_apart(self.theorem.says, self.reading)
        return boxed(title, formulas, self.evidence, said, self.reading)

    def wrong(self) -> Note:
        """Its false variant, with the numbers that refute it."""
        from symattn.theorems.findings import finding

        said = self.theorem.false_says
        comma = "" if isinstance(said[-1], str) and said[-1].endswith(".") else ";"
        refuted = finding(self.outcome).counterexample
        return Note((Emph("Not so."), " ", *_begun(said), f"{comma} refuted by ", *refuted, "."))


def known(theorem: Theorem) -> Known:
    """The theorem, decided now as code and as it is printed. Raises FalseStep unless it is proved and its false variant
    refuted."""
    outcome, reading = decide(theorem), read(theorem)
    if reading and reading.wrong:
        raise FalseStep(f"{theorem.name}: {reading.wrong}")
    if outcome.grade not in FOR_ALL:
        raise FalseStep(f"{theorem.name} is not shown ({outcome.decision.evidence})")
    return Known(theorem, outcome, reading)


def hypotheses(theorems: Iterable[Known], *first: Text) -> Assumptions:
    """``first``, then what the theorems assume, each once, as A1, A2, …"""
    texts = dict.fromkeys((*first, *(h for known_ in theorems for h in known_.theorem.hypotheses)))
    return Assumptions(tuple(Assumption(f"A{i}", _sentence(said)) for i, said in enumerate(texts, 1)))


def _sentence(said: Text) -> Text:
    return (*_begun(said), ".")


def _begun(said: Text) -> Text:
    """With a capital letter, where words begin it."""
    opening, *rest = said
    starts = isinstance(opening, str) and _WORD.match(opening)
    return (opening[:1].upper() + opening[1:] if isinstance(opening, str) and starts else opening, *rest)


def _hypotheses(found: Sequence[Decision]) -> tuple[str, ...]:
    """What the proofs needed, in words."""
    every = ["".join(text(w) if isinstance(w, Node) else str(w) for w in h) for d in found for h in d.hypotheses]
    return tuple(dict.fromkeys(every))
