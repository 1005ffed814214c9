"""What the answers of this room share: numbers as JSON has them."""

from __future__ import annotations


def plain(x: float) -> float | str:
    """A number for JSON, which has none that is not finite: that one is a text."""
    return x if abs(x) < float("inf") else str(x)
