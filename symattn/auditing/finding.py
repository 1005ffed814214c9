"""What was found of one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from symattn.auditing.derivatives import Backward
from symattn.auditing.judging import Judgement

State = Literal["pass", "wrong", "cannot tell"]


@dataclass(frozen=True)
class Finding:
    """One call: the layer's name, by what it was seen, what it computes in words, both judgements, and what follows.

    ``given`` is of what the call received, ``intent`` of what the configuration promises; ``unknown`` says why there is
    no such promise. ``cause`` is the one mistake that explains a wrong result, ``excludes`` what could not be told from
    a right one, ``reason`` why nothing can be told. ``cells`` counts the scores that the call's mask and the promised
    one treat otherwise. ``backward`` is what was found of its gradients, where they were asked for and may be had.
    """

    layer: str
    via: str
    semantics: str = "–"
    given: Judgement | None = None
    intent: Judgement | None = None
    unknown: str = ""
    cause: str = ""
    cells: int = 0
    open: tuple[str, ...] = ()
    reason: str = ""
    backward: Backward | None = None

    @property
    def state(self) -> State:
        """``cannot tell`` is never a pass."""
        if self.backward is not None and self.backward.wrong:
            return "wrong"
        if self.backward is not None and self.backward.reason and self.forward == "pass":
            return "cannot tell"
        return self.forward

    @property
    def forward(self) -> State:
        """Of the output alone."""
        judged = [j for j in (self.given, self.intent) if j is not None]
        if any(j.sure in ("certified", "beyond rounding to nearest") for j in judged):
            return "wrong"
        if self.reason or self.given is None or self.given.sure == "unknown":
            return "cannot tell"
        return "cannot tell" if self.intent is not None and self.intent.sure == "unknown" else "pass"

    @property
    def certified(self) -> bool:
        """Whether no rounding of any implementation explains it."""
        of_output = any(j is not None and j.sure == "certified" for j in (self.given, self.intent))
        return of_output or (self.backward is not None and bool(self.backward.wrong))

    @property
    def verdict(self) -> str:
        """In words: of the output, and where nothing is to be said of that, of the gradients."""
        if self.backward is not None and self.forward != "wrong" and self.state != self.forward:
            return self.backward.verdict
        if self.forward == "wrong":
            return self._wrong()
        if self.forward == "cannot tell":
            told = [j.words for j in (self.given, self.intent) if j is not None and j.sure == "unknown"]
            return f"CANNOT TELL: {self.reason or next(iter(told), 'unread')}"
        return f"pass (cannot exclude: {'; '.join(self.open)})" if self.open else "pass"

    def _wrong(self) -> str:
        against_given = self.given is not None and bool(self.given.sure) and self.given.sure != "unknown"
        judged = self.given if against_given else self.intent
        assert judged is not None
        head = "CERTIFIED WRONG" if judged.sure == "certified" else "WRONG beyond rounding to nearest"
        what = "" if against_given else ", against the configuration"
        cells = f" ({self.cells} mask cells)" if self.cells else ""
        words = f": {judged.words}" if judged.words and not self.cause else ""
        return f"{head}{what}: {self.cause or 'no known mistake explains it'}{cells}{words}"

    @property
    def empty(self) -> int:
        """Rows that were left out, since they see no key."""
        judged = self.given or self.intent
        return judged.empty if judged else 0

    @property
    def undefined(self) -> int:
        """How many of these hold NaN or infinity."""
        judged = self.given or self.intent
        return judged.undefined if judged else 0

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "layer": self.layer, "via": self.via, "semantics": self.semantics, "state": self.state,
            "verdict": self.verdict, "given": _record(self.given), "intent": _record(self.intent),
            "no_intent_since": self.unknown, "cause": self.cause, "mask_cells": self.cells,
            "not_excluded": list(self.open), "fully_masked_rows": self.empty,
            "undefined_rows": self.undefined, "backward": self.backward.record() if self.backward else None,
        }  # fmt: skip


def _record(judgement: Judgement | None) -> dict[str, Any] | None:
    if judgement is None:
        return None
    ratio = judgement.ratio
    return {
        "ratio": ratio if abs(ratio) < float("inf") else str(ratio),
        "sure": judgement.sure,
        "words": judgement.words,
    }
