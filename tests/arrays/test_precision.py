"""The precision of balls: that of a block, which threads have one after another, as it is that of the process."""

from __future__ import annotations

import threading
import time

import flint
import pytest

from symattn.arrays.ball import precision
from symattn.document.errors import Undecided


def test_it_is_restored_whatever_happens() -> None:
    before = flint.ctx.prec
    with precision(before + 100):
        with pytest.raises(Undecided), precision(before + 200):
            raise Undecided
        assert flint.ctx.prec == before + 100
    assert flint.ctx.prec == before


def test_threads_do_not_change_each_others() -> None:
    before, seen = flint.ctx.prec, list[int]()
    inside = threading.Event()

    def other() -> None:
        inside.set()
        with precision(100):
            seen.append(flint.ctx.prec)

    thread = threading.Thread(target=other)
    with precision(200):
        thread.start()
        assert inside.wait(5)
        time.sleep(0.05)  # in which the other thread would set its own
        assert (flint.ctx.prec, seen) == (200, [])
    thread.join(5)
    assert (flint.ctx.prec, seen) == (before, [100])
