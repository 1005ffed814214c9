"""What the answers of this room share: exit codes, and numbers as JSON has them."""

from __future__ import annotations

from symattn.evidence import Verdict

EXIT = {Verdict.NO_FAULT: 0, Verdict.FAULT: 1, Verdict.UNDECIDED: 3}


def plain(x: float) -> float | str:
    """A number for JSON, which has none that is not finite: that one is a text."""
    return x if abs(x) < float("inf") else str(x)
