"""Enclosures of the plain pattern of attention, against NumPy's float64 attention and against Arb at 200 bits.

One thread; ratios are of the shortest of several times each, taken in turns.
NumPy's attention is the usual one: the whole matrix of scores, in place. Peak memory is that of arrays
(``tracemalloc``), results included. Arb's time is that of ``enclose_rows``: a few rows, less what does not depend on
their number, extrapolated to all rows.
Command: ``python benchmarks/enclosure.py``
"""

from __future__ import annotations

import os
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from symattn import Attention
from symattn.attention.enclosed import enclose, enclose_rows

D = 64
PLAIN, CAUSAL = Attention(), Attention(causal=True)


def plain(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    s = q @ k.T
    s *= q.shape[-1] ** -0.5
    s -= s.max(axis=-1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=-1, keepdims=True)
    return s @ v


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(work: Callable[[], Any], other: Callable[[], Any], runs: int) -> float:
    """How long ``work`` takes for each second of ``other``: the shortest of several times each, taken in turns."""
    seconds(work), seconds(other)
    times = [(seconds(work), seconds(other)) for _ in range(runs)]
    return min(a for a, _ in times) / min(b for _, b in times)


def peak(work: Callable[[], Any]) -> int:
    """The most bytes of arrays at one time."""
    tracemalloc.start()
    work()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def by_rows(inputs: dict[str, np.ndarray]) -> float:
    """Seconds that Arb would take for all rows."""
    works = [partial(enclose_rows, PLAIN, inputs, range(rows)) for rows in (2, 12)]
    few, many = (min(seconds(work) for _ in range(3)) for work in works)
    return (many - few) / 10 * inputs["q"].shape[0]


def measured(n: int, runs: int) -> str:
    """One line of the table."""
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal((n, D)) for name in "qkv"}
    numpy, ours = partial(plain, **inputs), partial(enclose, PLAIN, inputs)
    tight = partial(enclose, PLAIN, inputs, tight=True)
    times = [ratio(work, numpy, runs) for work in (ours, tight, partial(enclose, CAUSAL, inputs))]
    arb = by_rows(inputs) / min(seconds(ours) for _ in range(5))
    radii = [float(np.median(work().radius)) * 2**23 for work in (ours, tight)]
    spelt = "  ".join(f"{x:7.2f}" for x in times)
    return f"{n:5}  {spelt}  {peak(ours) / peak(numpy):7.3f}  {arb:7.0f}  {radii[0]:.1e}  {radii[1]:.1e}"


def main() -> None:
    print(
        "    n  enclose    tight   causal   memory      Arb   median radius (plain, tight; units of 2^-23)"
    )
    for n, runs in ((256, 101), (1024, 15), (4096, 5)):
        print(measured(n, runs))


if __name__ == "__main__":
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    if one.items() <= os.environ.items():
        main()
    else:  # libraries read these when they are loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | one)
