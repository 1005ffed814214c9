"""``Answer``: how a function computes in half precision, as a document."""

from __future__ import annotations

from dataclasses import dataclass

from symattn.document.model import Block, Code, Column, Document, Note, Paragraph, Printable, Table
from symattn.evidence import Grade, Verdict
from symattn.verification.arithmetic.presets import named
from symattn.verification.arithmetic.ranking import Pair
from symattn.verification.arithmetic.trial import Trial

_SHOWN = 8  # arithmetics in the table
_SAMPLED = "That is sampled: another arithmetic with the same bits would go by this name."


@dataclass(frozen=True, repr=False)
class Answer(Printable):
    """What ``arithmetic`` found: ``words``, the ``share`` of the outputs that they give bit for bit, and whether they
    are ``known`` to give nearly all; ``cause`` is a mistake that was found with it, or empty.
    """

    target: str
    trial: Trial
    command: str = ""

    @property
    def words(self) -> str:
        """What is stored."""
        return self.trial.told.words

    @property
    def share(self) -> float:
        """The share of the outputs that come out bit for bit."""
        return self.trial.told.share

    @property
    def known(self) -> bool:
        """Whether these are nearly all."""
        return self.trial.told.known

    @property
    def like(self) -> tuple[str, ...]:
        """Whose attention stores the same, see ``presets``; empty where nothing is known to give the bits."""
        found = self.trial.found
        right = found.wrong if found.wrong is not None and self.trial.sure else found.best
        return named(right.contract) if self.known else ()

    @property
    def cause(self) -> str:
        """The mistake that was found with the arithmetic."""
        return (self.trial.fault.cause or "") if self.trial.fault else ""

    def __repr__(self) -> str:
        return self._brief(f"arithmetic: {self.words} ({100 * self.share:.2f} % of the bits)")

    def document(self) -> Document:
        """The contracts by the bits that they give."""
        told, fault = self.trial.told, self.trial.fault
        verdict = Verdict.FAULT if fault else None if told.known else Verdict.UNDECIDED
        inputs = self.trial.sample.inputs
        shapes = ", ".join(f"{name} {' × '.join(map(str, a.shape))}" for name, a in inputs.items())
        head = "The arithmetic" if told.known else "The arithmetic is"
        blocks: list[Block] = [
            Paragraph((f"{head}: {told.words}.",)),
            *([Paragraph((f"These bits are what comes with a mistake: {fault.message}.",))] if fault else []),
            *([Paragraph((f"So does {' and '.join(self.like)}.",))] if self.like else []),
            self._table(),
            Note((f"One call with normal numbers: {shapes}; {told.outputs} outputs. {_SAMPLED}",)),
        ]
        return Document(
            "verification", "arithmetic", ("Arithmetic of ", Code(self.target)), tuple(blocks),
            command=self.command, verdict=verdict,
            record={"arithmetic": told.record(), "cause": self.cause, "like": list(self.like),
                    "grade": Grade.SAMPLED.value,
                    "contracts": [{"words": p.contract.stored, "share": p.share} for p in self._shown()]},
        )  # fmt: skip

    def _shown(self) -> list[Pair]:
        found = self.trial.found
        wrong = [found.wrong] if found.wrong is not None and self.trial.sure else []
        return [*wrong, *found.right[:_SHOWN]]

    def _table(self) -> Table:
        columns = (Column(("what is stored",), "left"), Column(("of the bits",)))
        rows = ((p.contract.stored + ", with the mistake" * (p.mistake is not None), p.share) for p in self._shown())
        return Table(columns, tuple(((words,), (f"{100 * share:.2f} %",)) for words, share in rows))
