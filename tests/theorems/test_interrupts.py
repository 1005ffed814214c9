"""Interrupts are for the first process alone."""

import signal
import subprocess
import sys
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

import pytest

from symattn import theorems
from symattn.theorems import runner

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no masks of signals")


def blocked() -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_processes_begin_deaf_to_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []

    class Pool:
        def submit(self, work: object, source: object, name: str, explain: bool) -> Future[Any]:
            heard.append(blocked())
            done: Future[Any] = Future()
            done.set_result((name, (None, None, None)))
            return done

    monkeypatch.setattr(runner, "_open_worker_pool", lambda jobs: nullcontext(Pool()))
    list(runner._decide_in_processes(list(theorems.catalogue().values())[:2], theorems.catalogue, 2, False))
    assert (heard, blocked()) == ([True, True], False)


def test_a_process_inherits_it() -> None:
    told = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    with runner._interrupts_blocked():
        inside = subprocess.run([sys.executable, "-S", "-c", told], capture_output=True, text=True, timeout=60)
    assert inside.stdout == "True\n"
