"""``Answer``: a document on what a function stores and in which order it adds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from symattn.arrays.formats import Format
from symattn.bounds.contracts import Contract
from symattn.document.codec import record
from symattn.document.evidence import Grade, Verdict
from symattn.document.model import (
    Block,
    Code,
    Document,
    Heading,
    Listing,
    Note,
    Paragraph,
    Table,
    headers,
)
from symattn.document.printable import Printable
from symattn.verification.arithmetic import ranking
from symattn.verification.arithmetic.bits_of_a_call import Trial
from symattn.verification.summing.order import Order
from symattn.verification.summing.summed_attention import StoredScores

_SHOWN = 8  # arithmetics in the table
_SAMPLED = "Sampled: another arithmetic with the same bits would get this name."
_TILE, _ANY = 64, Format("bfloat16")  # placeholders for any tiles, and any format
#: What well-known attention stores. Tests compare the first two with the library's bits on a CPU, the rest with none.
#: FlashAttention is assumed to store P relative to a running maximum for its product with V, and to sum it before that,
#: in the order of Dao, FlashAttention-2 (2023), algorithm 1, and Shah et al., FlashAttention-3 (2024), algorithm 1.
PRESETS = {
    "PyTorch's math path on a CPU": Contract(_ANY),
    "Transformers' eager attention": Contract(_ANY, ("scores", "scaled"), "normalised"),
    "FlashAttention 2 and 3": Contract(_ANY, (), "alone", _TILE),
    "queries that are scaled before the product, in eager steps": Contract(
        _ANY, ("scaled",), "normalised", queries=True
    ),
}
_ORDERED = "Sampled: the tree explains what came back, and further pairs of terms at random."


@dataclass(frozen=True, repr=False)
class Answer(Printable):
    """The answer of ``arithmetic``: what is stored, in ``words``, and the ``share`` of outputs with the same bits.

    ``known`` means that nearly all have the same; ``cause`` is a mistake that was found with it, or empty. ``order`` is
    that of the sum over keys, and ``scores`` says whether these are stored. In float32 and float64 there is no
    ``trial``, and the words are empty: bits do not distinguish contracts. A norm has only the order of its sum.
    """

    target: str
    trial: Trial | None
    order: Order
    scores: StoredScores | None = None
    command: str = ""

    @property
    def words(self) -> str:
        """The stored arrays, in words."""
        return self.trial.arithmetic.words if self.trial else ""

    @property
    def share(self) -> float:
        """The share of the outputs that the arithmetic gives bit for bit."""
        return self.trial.arithmetic.share if self.trial else 0.0

    @property
    def known(self) -> bool:
        """Return whether the arithmetic gives nearly all outputs."""
        return self.trial is not None and self.trial.arithmetic.known

    @property
    def like(self) -> tuple[str, ...]:
        """The ``PRESETS`` that store the same; empty if no known arithmetic gives the bits."""
        return (
            named((self.trial.wrong or self.trial.ranking.best).contract)
            if self.trial and self.known
            else ()
        )

    @property
    def cause(self) -> str:
        """The mistake that was found with the arithmetic."""
        return (self.trial.fault.cause or "") if self.trial and self.trial.fault else ""

    def __repr__(self) -> str:
        result = (
            f"{self.words} ({100 * self.share:.2f} % of the bits)"
            if self.trial
            else self.order.words[0]
        )
        return self._make_brief_repr(f"arithmetic: {result}")

    def document(self) -> Document:
        """Return a document: the contracts by the bits that they give, and the order of the sum over keys."""
        verdict = Verdict.FAULT if self.cause else None if self.known else Verdict.UNDECIDED
        if self.trial is None:
            verdict = None if self.order.tree else Verdict.UNDECIDED
        entries: dict[str, Any] = {"order": self.order, "scores": self.scores or {}}
        entries |= {"verdict": Grade.SAMPLED} if verdict is None else {}
        return Document(
            "verification",
            "arithmetic",
            ("Arithmetic of ", Code(self.target)),
            (
                *(_tabulate_contracts(self.trial, self.like) if self.trial else ()),
                *self._describe_summing_order(),
            ),
            command=self.command,
            verdict=verdict,
            record=record((self._make_answer_entries(self.trial) if self.trial else {}) | entries),
        )

    def _make_answer_entries(self, trial: Trial) -> dict[str, Any]:
        return {
            "arithmetic": trial.arithmetic,
            "cause": self.cause,
            "like": self.like,
            "grade": Grade.SAMPLED,
            "contracts": [
                {"words": p.contract.stored, "share": p.share}
                for p in _select_contracts_to_print(trial)
            ],
        }

    def _describe_summing_order(self) -> Iterator[Block]:
        """Yield the order of the sum, and the number of calls that it took."""
        if self.scores:
            yield Heading(("Scores, and the sum over keys",))
            yield Paragraph((self.scores.words,))
        yield Paragraph((" ".join(self.order.words),))
        if self.order.text:
            yield Listing(self.order.text)
        # The tree is read from which terms cancel, so that a note says what it rests on.
        if self.order.calls:
            calls = f"{self.order.calls} calls with terms that cancel."
            yield Note((f"{calls} {_ORDERED}" if self.order.tree else calls,))


def _tabulate_contracts(trial: Trial, like: tuple[str, ...]) -> Iterator[Block]:
    """Yield a table of the contracts by the bits that they give."""
    arithmetic, fault = trial.arithmetic, trial.fault
    shapes = ", ".join(
        f"{name} {' × '.join(map(str, a.shape))}" for name, a in trial.sample.inputs.items()
    )
    yield Paragraph(
        (f"{'The arithmetic' if arithmetic.known else 'The arithmetic is'}: {arithmetic.words}.",)
    )
    if fault:
        yield Paragraph((f"These are the bits of a mistake: {fault.coded_message}.",))
    if like:
        yield Paragraph((f"The same bits come from {' and '.join(like)}.",))
    columns = headers("what is stored", ">of the bits")
    rows = (
        (p.contract.stored + ", with the mistake" * (p.mistake is not None), p.share)
        for p in _select_contracts_to_print(trial)
    )
    yield Table(columns, tuple(((words,), (f"{100 * share:.2f} %",)) for words, share in rows))
    yield Note(
        (f"One call with normal numbers: {shapes}; {arithmetic.outputs} outputs. {_SAMPLED}",)
    )


def _select_contracts_to_print(trial: Trial) -> list[ranking.Pair]:
    return [*([trial.wrong] if trial.wrong else []), *trial.ranking.right[:_SHOWN]]


def named(contract: Contract) -> tuple[str, ...]:
    """Return the presets that store what a contract stores, whatever its scale, tiles and last rounding.

    >>> named(Contract(Format("float16"), ("scores", "scaled"), "normalised"))
    ("Transformers' eager attention",)
    """
    tiles = _TILE if contract.tiles else None
    stored = Contract(
        _ANY, contract.scores, contract.powers, tiles, contract.queries, times=contract.times
    )
    return tuple(name for name, preset in PRESETS.items() if preset == stored)
