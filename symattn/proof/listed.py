"""Statements that are checked in exact numbers at listed sizes, because something stands in the way of all sizes.

Statements about number formats: they are checked in each of the formats named, of all its numbers where few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.arrays.formats import Format
from symattn.document.errors import Refused, Undecided
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Text
from symattn.document.text import equal_sizes
from symattn.proof.hypotheses import declared_hypotheses
from symattn.proof.statement import Declared, Numbers, run
from symattn.proof.theorem import Decision, Refutation

Holds = Callable[..., Any]
Sizes = Mapping[str, int]


class InCases:
    """A method that looks at cases: the false variant is refuted by one in which it fails, and one is a witness."""

    holds: Holds
    false: Holds

    def refute(self) -> Refutation:
        wrong = next((case for case, truth in self._cases(self.false) if not truth), "")
        return Refutation(bool(wrong), wrong)

    def witness(self) -> str:
        return next((case for case, truth in self._cases(self.holds) if truth), "")

    def _cases(self, holds: Holds) -> Iterator[tuple[str, bool]]:
        raise NotImplementedError


@dataclass(frozen=True)
class Listed(InCases):
    """``holds`` says of arrays of exact numbers whether the statement is true of them, ``false`` of the false variant.

    Both take by name the declared arrays and the numbers in ``sizes``, and give a truth value or an array of such; a
    case that raises Refused or Undecided is not counted. The false variant is refuted by one case in which it fails.
    ``obstacle`` says what stands in the way of a proof for all sizes.
    """

    declared: Declared
    holds: Holds
    false: Holds
    sizes: tuple[Sizes, ...]
    obstacle: Text = ()
    seeds: int = 2

    def decide(self) -> Decision:
        """``checked`` if it holds in every case that can be decided, ``refuted`` if not."""
        result = dict(self._cases(self.holds))
        wrong = next((case for case, truth in result.items() if not truth), None)
        if wrong:
            return Decision(Evidence(Grade.REFUTED, wrong))
        if not result:
            return Decision(Evidence(Grade.UNDECIDED, "no case could be decided"), (self.obstacle,))
        cases = "; ".join(dict.fromkeys(case.split(" (seed")[0] for case in result))
        evidence = Evidence(Grade.CHECKED, f"exact numbers at {cases}")
        said = declared_hypotheses(self.declared)
        return Decision(evidence, (self.obstacle,) if self.obstacle else (), declared=said)

    def _cases(self, holds: Holds) -> Iterator[tuple[str, bool]]:
        for sizes in self.sizes:
            for seed in range(self.seeds if self.declared.arrays else 1):
                words = equal_sizes(sizes)
                try:
                    truth = all_true(run(holds, self.declared, Numbers(sizes, seed), sizes))
                except (Refused, Undecided, ZeroDivisionError):
                    continue
                yield f"{words} (seed {seed})" if self.declared.arrays else words, truth


def all_true(x: object) -> bool:
    """Return whether a truth value, an array or a sequence of them, is true throughout; Undecided if there is none."""
    if isinstance(x, (list, tuple)):
        every = list(map(all_true, x))
        if not every:
            raise Undecided("nothing is stated")
        return all(every)
    if getattr(x, "size", 1) == 0:
        raise Undecided("nothing is stated: an array has no elements")
    return bool(x.all()) if hasattr(x, "all") else bool(x)


@dataclass(frozen=True)
class InFormats(InCases):
    """``holds`` says of a format whether the statement is true in it, ``false`` of the false variant.

    Each gives a truth value or an array of such. The false variant is refuted by one format in which it fails.
    """

    formats: tuple[str, ...]
    holds: Callable[[Format], Any]
    false: Callable[[Format], Any]
    looked_at: str = ""
    argument: Text = ()

    def decide(self) -> Decision:
        wrong = next((case for case, truth in self._cases(self.holds) if not truth), "")
        if wrong:
            return Decision(Evidence(Grade.REFUTED, wrong.removeprefix("in ")))
        if not self.formats:
            return Decision(Evidence(Grade.UNDECIDED, "no format is named"))
        where = (f"{self.looked_at} " if self.looked_at else "") + ", ".join(self.formats)
        return Decision(Evidence(Grade.CHECKED, where), (self.argument,) if self.argument else ())

    def _cases(self, holds: Holds) -> Iterator[tuple[str, bool]]:
        for name in self.formats:
            with np.errstate(all="ignore"):
                yield f"in {name}", all_true(holds(Format(name)))
