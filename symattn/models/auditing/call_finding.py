"""The finding of one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from symattn.models.auditing.call_gradients import Backward
from symattn.models.auditing.call_judge import CallJudgement
from symattn.models.auditing.context import NO_CONFIGURATION

State = Literal["pass", "pass as given", "wrong", "cannot tell"]
PASSES = ("pass", "pass as given")
_WRONG = ("certified", "beyond rounding to nearest")


@dataclass(frozen=True)
class CallFinding:
    """One call: the layer's name, by what it was seen, what it computes in words, both judgements, and what follows.

    ``given`` is of what the call received, ``intent`` of what the configuration promises; ``unknown`` says why there is
    no such promise. ``asked`` are the arguments of the call that are not those promised, whatever its result shows.
    ``cause`` is the one mistake that explains a wrong result, ``open`` what could not be told from a right one,
    ``reason`` why nothing can be told. ``cells`` counts the scores that the call's mask and the promised one treat
    otherwise. ``backward`` is what was found of its gradients, where they were asked for and may be had.
    """

    layer: str
    via: str
    semantics: str = "–"
    given: CallJudgement | None = None
    intent: CallJudgement | None = None
    unknown: str = ""
    cause: str = ""
    cells: int = 0
    asked: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    reason: str = ""
    backward: Backward | None = None

    @property
    def state(self) -> State:
        """``cannot tell`` is never a pass, and ``pass as given`` none against a configuration."""
        if self.backward is not None and self.backward.wrong:
            return "wrong"
        if self.backward is not None and self.backward.reason and self.forward in PASSES:
            return "cannot tell"
        return self.forward

    @property
    def undecided(self) -> bool:
        """Return whether the call may break a promise; where there is no configuration, nothing was promised."""
        return self.state == "cannot tell" or (self.state == "pass as given" and self.unknown != NO_CONFIGURATION)

    @property
    def forward(self) -> State:
        """Return the state of the output alone."""
        judged = [j for j in (self.given, self.intent) if j is not None]
        if self.asked or any(j.sure in _WRONG for j in judged):
            return "wrong"
        if self.reason or self.given is None or any(j.sure == "unknown" for j in judged):
            return "cannot tell"
        return "pass" if self.intent is not None else "pass as given"

    @property
    def certified(self) -> bool:
        """Return whether no rounding of any implementation explains it."""
        of_output = bool(self.asked) or any(j is not None and j.sure == "certified" for j in (self.given, self.intent))
        return of_output or (self.backward is not None and bool(self.backward.wrong))

    @property
    def verdict(self) -> str:
        """In words: of the output, and where nothing is to be said of that, of the gradients."""
        if self.backward is not None and self.forward != "wrong" and self.state != self.forward:
            return self.backward.verdict
        if self.forward == "wrong":
            return self._wrong()
        if self.forward == "cannot tell":
            result = [j.words for j in (self.given, self.intent) if j is not None and j.sure == "unknown"]
            return f"CANNOT TELL: {self.reason or next(iter(result), 'unread')}"
        return f"{self.forward} (cannot exclude: {'; '.join(self.open)})" if self.open else self.forward

    @property
    def against_given(self) -> bool:
        """Return whether the result is not that of the arguments."""
        return self.given is not None and self.given.sure in _WRONG

    def _wrong(self) -> str:
        judged = self.given if self.against_given else self.intent or self.given
        assert judged is not None
        certified = judged.sure == "certified" or (self.asked and not self.against_given)
        head = "CERTIFIED WRONG" if certified else "WRONG beyond rounding to nearest"
        what = "" if self.against_given else ", against the configuration"
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

    RECORD = (
        "layer, via, semantics, state, verdict, given, intent, no_intent_since = unknown, cause, mask_cells = cells, "
        "arguments_not_promised = asked, not_excluded = open, fully_masked_rows = empty, undefined_rows = undefined, "
        "backward"
    )
