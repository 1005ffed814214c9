"""Statements about number formats: they are checked in each of the formats named, of all its numbers where few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.arrays.formats import Format
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Text
from symattn.proof.statement import all_true
from symattn.proof.theorem import Decision, Refutation

Holds = Callable[[Format], Any]


@dataclass(frozen=True)
class InFormats:
    """``holds`` says of a format whether the statement is true in it, ``false`` of the false variant.

    Each gives a truth value or an array of such. The false variant is refuted by one format in which it fails.
    """

    formats: tuple[str, ...]
    holds: Holds
    false: Holds
    looked_at: str = ""
    argument: Text = ()

    def decide(self) -> Decision:
        wrong = self._first(self.holds, False)
        if wrong:
            return Decision(Evidence(Grade.REFUTED, wrong.removeprefix("in ")))
        if not self.formats:
            return Decision(Evidence(Grade.UNDECIDED, "no format is named"))
        where = (f"{self.looked_at} " if self.looked_at else "") + ", ".join(self.formats)
        return Decision(Evidence(Grade.CHECKED, where), (self.argument,) if self.argument else ())

    def refute(self) -> Refutation:
        wrong = self._first(self.false, False)
        return Refutation(bool(wrong), wrong)

    def witness(self) -> str:
        return self._first(self.holds, True)

    def _first(self, holds: Holds, truth: bool) -> str:
        """Return the first format in which it is true, or false; empty if there is none."""
        cases = ((name, all_true(holds(Format(name)))) for name in self.formats)
        with np.errstate(all="ignore"):
            return next((f"in {name}" for name, result in cases if result is truth), "")
