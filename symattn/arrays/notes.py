"""Events that a report must mention: a float made from a shape, a cast that was not made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
_listening: ContextVar[list[str] | None] = ContextVar("symattn_notes", default=None)


def note(message: str) -> None:
    """Report ``message`` to whoever listens, once."""
    notes = _listening.get()
    if notes is not None and message not in notes:
        notes.append(message)


def listening() -> AbstractContextManager[list[str]]:
    """Collect the notes of the block: ``with listening() as notes: …``"""
    return assigned(_listening, [])


@contextmanager
def assigned(variable: ContextVar[Any], value: T) -> Iterator[T]:
    """Give a context variable a value within the block."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
