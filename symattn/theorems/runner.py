"""Decide many theorems: from the cache if nothing has changed, in several processes if requested.

Each decision is stored at once, so an interrupt loses only those in progress.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

from symattn.document.errors import SymattnError, raised_in_symattn
from symattn.document.model import Block
from symattn.proof.theorem import Theorem, decide
from symattn.theorems.as_printed import read
from symattn.theorems.documents import Decided
from symattn.theorems.explaining import certificates, explained, stated
from symattn.theorems.findings import DEFECT, TheoremFinding, crashed, finding
from symattn.theorems.kept import Cache

Source = Callable[[], Mapping[str, Theorem]]
Progress = Callable[[int, int, str], None]
_Parts = tuple[TheoremFinding, tuple[Block, ...], tuple[Mapping[str, Any], ...]]


def run(
    theorems: Sequence[Theorem],
    source: Source,
    *,
    jobs: int = 1,
    explain: bool = False,
    cached: bool = True,
    progress: Progress = lambda done, of, name: None,
) -> list[Decided]:
    """Return every theorem with its finding, in the given order.

    ``source`` returns all theorems by name in the other processes, to which functions cannot be sent. ``progress`` is
    called with how many are done, of how many, and which is next or was last.
    """
    cache = Cache(cached)
    result: dict[str, Decided] = {}
    for theorem in theorems:
        stored = None if explain else cache.get(theorem)
        if stored:
            result[theorem.name] = Decided(theorem, stored)
    undecided = [t for t in theorems if t.name not in result]
    many = jobs > 1 and len(undecided) > 1
    decided = (
        _parallel(undecided, source, min(jobs, len(undecided)), explain)
        if many
        else _in_turn(undecided, explain, progress)
    )
    for outcome in decided:
        if not outcome.finding.evidence.where.startswith(DEFECT):
            cache.put(outcome.theorem, outcome.finding)
        result[outcome.theorem.name] = outcome
        progress(len(result), len(theorems), outcome.theorem.name)
    return [result[t.name] for t in theorems]


class Broken(Exception):
    """Raised if a function of a statement fails: ``name`` is the theorem's, ``error`` the message in one line."""

    def __init__(self, name: str, error: str) -> None:
        super().__init__(name, error)
        self.name, self.error = name, error


def decide_one(theorem: Theorem, explain: bool = False) -> Decided:
    """Decide a theorem, with its argument and certificates if ``explain``.

    If symattn itself fails, the theorem is undecided, and says so. Raises ``Broken``.
    """
    try:
        outcome, reading = decide(theorem), read(theorem)
    except SymattnError:
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        if raised_in_symattn(error):
            return Decided(theorem, crashed(message))
        raise Broken(theorem.name, message) from error
    result = finding(outcome, reading)
    if theorem.letters is None:
        result = replace(result, stated=stated(outcome))
    return Decided(theorem, result, explained(outcome), certificates(outcome)) if explain else Decided(theorem, result)


def _in_turn(theorems: Sequence[Theorem], explain: bool, progress: Progress) -> Iterator[Decided]:
    for n, theorem in enumerate(theorems):
        progress(n, len(theorems), theorem.name)
        yield decide_one(theorem, explain)


def _parallel(theorems: Sequence[Theorem], source: Source, jobs: int, explain: bool) -> Iterator[Decided]:
    """Decide theorems in several processes, yielding each as soon as it is done."""
    by_name = {t.name: t for t in theorems}
    with _pool(jobs) as pool:
        with _interrupts_blocked():
            waiting = [pool.submit(_work, source, name, explain) for name in by_name]
        for done in as_completed(waiting):
            name, parts = done.result()
            yield Decided(by_name[name], *parts)


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_deaf)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Let processes started inside ignore interrupts from their first instruction, before ``_deaf`` can run.

    An interrupt that arrives meanwhile is blocked, and reaches this process at the end.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _deaf() -> None:
    """Leave interrupts to the main process, which ends the others, and keep standard output for it."""
    sys.stdout = sys.stderr
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(source: Source, name: str, explain: bool) -> tuple[str, _Parts]:
    decided = decide_one(source()[name], explain)
    return name, (decided.finding, decided.explained, decided.certificates)
