"""How many functions and files of symattn a verification enters: of a right function, and of a wrong one that is named.

Whoever reads or changes what ``verify`` does has to follow so many. Counted are named functions whose code is in
symattn, in a second verification of plain attention in NumPy, when everything is imported. With ``--list`` they are
printed, by file.

Command: ``OMP_NUM_THREADS=1 python -m benchmarks.entered [--list]``
"""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from symattn import Attention, verify

ROOT = f"{Path(inspect.getfile(Attention)).parents[1]}/"
#: Functions and files, for the right function and for the wrong one.
WANTED = {"right": (450, 50), "wrong": (800, 70)}


def _softmax(scores: np.ndarray) -> Any:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def right(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Any:
    """Return plain attention."""
    return _softmax(q @ k.T / np.sqrt(q.shape[-1])) @ v


def wrong(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Any:
    """Return attention with scores that are divided by the width, and not by its root."""
    return _softmax(q @ k.T / q.shape[-1]) @ v


def functions_by_file(function: Callable[..., Any]) -> dict[str, set[str]]:
    """Return the names of the functions that a second verification enters, by file."""
    verify(function, Attention())
    entered: dict[str, set[str]] = defaultdict(set)

    def note_call(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_named = not code.co_name.startswith("<")
        if event == "call" and is_named and code.co_filename.startswith(ROOT):
            entered[code.co_filename.removeprefix(ROOT)].add(code.co_qualname)

    sys.setprofile(note_call)
    try:
        report = verify(function, Attention())
    finally:
        sys.setprofile(None)
    assert [fault.cause is not None for fault in report.faults] == [True] * (function is wrong)
    return entered


def main() -> None:
    for function in (right, wrong):
        entered = functions_by_file(function)
        functions, files = WANTED[function.__name__]
        print(
            f"{function.__name__}: {sum(map(len, entered.values()))} functions in {len(entered)} files "
            f"(wanted: ≤ {functions} in {files})"
        )
        for name in sorted(entered) if "--list" in sys.argv else ():
            print(f"  {name}: {', '.join(sorted(entered[name]))}")


if __name__ == "__main__":
    main()
