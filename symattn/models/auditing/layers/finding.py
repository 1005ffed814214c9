"""Findings of one layer: of each of its parts, in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["pass", "wrong", "cannot tell"]


@dataclass(frozen=True)
class PartFinding:
    """One part by its name in ``Block``, such as ``mlp_norm``.

    ``ratio`` is the largest error as a part of what rounding allows; ``wrong`` says that no rounding explains it.
    ``cause`` is the one known mistake that does, or the words that none does; ``reason`` says why nothing can be told;
    ``open`` are mistakes that give what came, too, within rounding.
    """

    part: str
    ratio: float = 0.0
    wrong: bool = False
    cause: str = ""
    reason: str = ""
    open: tuple[str, ...] = ()

    @property
    def state(self) -> State:
        """``cannot tell`` is never a pass."""
        return "wrong" if self.wrong else "cannot tell" if self.reason else "pass"

    RECORD = "part, state, ratio, cause, reason, not_excluded = open"


@dataclass(frozen=True)
class LayerFinding:
    """One pass through a layer: its name, its parts, or why there are none."""

    layer: str
    parts: tuple[PartFinding, ...] = ()
    reason: str = ""

    @property
    def state(self) -> State:
        """Return the state of the worst part; a layer of which a part is open is open."""
        states = {p.state for p in self.parts}
        if "wrong" in states:
            return "wrong"
        return "cannot tell" if self.reason or not states or "cannot tell" in states else "pass"

    @property
    def ratio(self) -> float:
        """The largest of its parts."""
        return max((p.ratio for p in self.parts), default=float("nan"))

    @property
    def verdict(self) -> str:
        """In words: every part that is wrong, else what is open."""
        wrong = [f"{p.part}: {p.cause}" for p in self.parts if p.wrong]
        if wrong:
            return f"CERTIFIED WRONG: {'; '.join(wrong)}"
        if self.state == "pass":
            open_ = [f"{p.part}: {words}" for p in self.parts for words in p.open]
            return f"pass (cannot exclude: {'; '.join(open_)})" if open_ else "pass"
        told = self.reason or "; ".join(f"{p.part}: {p.reason}" for p in self.parts if p.reason) or "no part ran"
        return f"CANNOT TELL: {told}"

    RECORD = "layer, state, verdict, parts"
