"""Deciding many theorems: from the cache where nothing has changed, else anew, in several processes if asked.

What is decided is kept at once, so that an interrupt loses only what was being decided.
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
    """Every theorem with what was found of it, in the order given.

    ``source`` gives all theorems by name to the other processes, which cannot be sent functions. ``progress`` is told
    how many are done, of how many, and which is next or was last.
    """
    cache = Cache(cached)
    result: dict[str, Decided] = {}
    for theorem in theorems:
        kept = None if explain else cache.get(theorem)
        if kept:
            result[theorem.name] = Decided(theorem, kept)
    open_ = [t for t in theorems if t.name not in result]
    many = jobs > 1 and len(open_) > 1
    decided = _beside(open_, source, min(jobs, len(open_)), explain) if many else _in_turn(open_, explain, progress)
    for one in decided:
        if not one.finding.evidence.where.startswith(DEFECT):
            cache.put(one.theorem, one.finding)
        result[one.theorem.name] = one
        progress(len(result), len(theorems), one.theorem.name)
    return [result[t.name] for t in theorems]


class Broken(Exception):
    """The functions of a statement raise what is no answer: ``name`` is the theorem's, ``told`` the error in a line."""

    def __init__(self, name: str, told: str) -> None:
        super().__init__(name, told)
        self.name, self.told = name, told


def decide_one(theorem: Theorem, explain: bool = False) -> Decided:
    """Decide a theorem, with its argument and certificates if ``explain``.

    Where symattn itself fails, the theorem is undecided, and says so. Raises ``Broken``.
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


def _beside(theorems: Sequence[Theorem], source: Source, jobs: int, explain: bool) -> Iterator[Decided]:
    """Decide theorems in several processes, yielding each as soon as it is done."""
    by_name = {t.name: t for t in theorems}
    with _pool(jobs) as pool:
        with _unheard():
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
def _unheard() -> Iterator[None]:
    """Processes that begin within are deaf to interrupts from their first instruction, before ``_deaf`` can run.

    One that comes meanwhile is held back, and reaches this process at the end.
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
    """An interrupt is for the first process alone, which ends the others; so is standard output."""
    sys.stdout = sys.stderr
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(source: Source, name: str, explain: bool) -> tuple[str, _Parts]:
    decided = decide_one(source()[name], explain)
    return name, (decided.finding, decided.explained, decided.certificates)
