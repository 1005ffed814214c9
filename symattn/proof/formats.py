"""Statements about number formats: they are checked in each of the formats named, of all its numbers where few."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.arrays.formats import Format
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Text
from symattn.proof.listed import all_true
from symattn.proof.theorem import Decision, Refutation


@dataclass(frozen=True)
class InFormats:
    """``holds`` says of a format whether the statement is true in it, ``false`` of the false variant.

    Each gives a truth value or an array of such. The false variant is refuted by one format in which it fails.
    """

    formats: tuple[str, ...]
    holds: Callable[[Format], Any]
    false: Callable[[Format], Any]
    looked_at: str = ""
    argument: Text = ()

    def decide(self) -> Decision:
        wrong = next((name for name, truth in self._found(self.holds) if not truth), "")
        if wrong:
            return Decision(Evidence(Grade.REFUTED, wrong))
        if not self.formats:
            return Decision(Evidence(Grade.UNDECIDED, "no format is named"))
        where = (f"{self.looked_at} " if self.looked_at else "") + ", ".join(self.formats)
        return Decision(Evidence(Grade.CHECKED, where), (self.argument,) if self.argument else ())

    def refute(self) -> Refutation:
        wrong = next((name for name, truth in self._found(self.false) if not truth), "")
        return Refutation(bool(wrong), f"in {wrong}" if wrong else "")

    def witness(self) -> str:
        return next((f"in {name}" for name, truth in self._found(self.holds) if truth), "")

    def _found(self, holds: Callable[[Format], Any]) -> Iterator[tuple[str, bool]]:
        for name in self.formats:
            with np.errstate(all="ignore"):
                yield name, all_true(holds(Format(name)))
