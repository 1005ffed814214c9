"""Events that a report must mention: a float made from a shape, a cast that was not made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listening: ContextVar[list[str] | None] = ContextVar("symattn_notes", default=None)


def note(message: str) -> None:
    """Report ``message`` to whoever listens, once."""
    notes = _listening.get()
    if notes is not None and message not in notes:
        notes.append(message)


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collect the notes of the block: ``with listening() as notes: …``"""
    notes: list[str] = []
    token = _listening.set(notes)
    try:
        yield notes
    finally:
        _listening.reset(token)
