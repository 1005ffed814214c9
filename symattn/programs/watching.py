"""Capture of what a call prints and warns of, which never reaches the terminal."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symattn.bounds.called_target import Failure
from symattn.programs.loading import one_line, where
from symattn.programs.refusing import refuses

_PRINTED = 100_000  # bytes kept of what one call prints
_WARNINGS = 20


@dataclass(frozen=True, slots=True)
class Watched:
    """The result or exception of one call, and what was heard meanwhile."""

    output: Any
    error: Failure | None
    stdout: str
    warnings: tuple[str, ...]


_begun: list[Callable[[], None]] = []  # who is told of each call


@contextlib.contextmanager
def announced(tell: Callable[[], None]) -> Iterator[None]:
    """Tell of each call of ``watch`` when it begins."""
    _begun.append(tell)
    try:
        yield
    finally:
        _begun.pop()


def watch(function: Callable[..., Any], places: Sequence[Any], keywords: Mapping[str, Any]) -> Watched:
    """Call the function; its exceptions, ``SystemExit`` among them, prints and warnings are kept. Ctrl-C is not."""
    output, error = None, None
    for tell in _begun:
        tell()
    with captured() as text, warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            output = function(*places, **keywords)
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            error = Failure("raised", one_line(e).partition(": ")[2], type(e).__name__, where(e), refuses(e, function))
    words = dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in heard)
    return Watched(output, error, text(), tuple(words)[:_WARNINGS])


class _Limited(io.BytesIO):
    """The first bytes written; the rest is dropped, so that a function that prints without end fills no memory."""

    def write(self, data: Any) -> int:
        super().write(bytes(data)[: max(0, _PRINTED - self.tell())])
        return len(data)


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """Catch ``sys.stdout`` and ``sys.stderr``; gives a function that tells, afterwards, what was printed."""
    kept = _Limited()
    stream = io.TextIOWrapper(kept, encoding="utf-8", errors="replace", newline="\n", write_through=True)
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            yield lambda: kept.getvalue().decode("utf-8", errors="replace")
    finally:
        stream.detach()
