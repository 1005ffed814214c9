"""Attention on enclosures, the general kind, against NumPy's float64 attention: time, memory, and how wide they are.

Times are CPU times, the shortest of several taken in turns; memory is the peak of what NumPy allocates. Radii are in
units of float32, 2⁻²³. On one thread: ``OMP_NUM_THREADS=1 python benchmarks/enclosure_kind.py``
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from symattn import Attention, Rotary
from symattn.arrays.ball import Ball, precision
from symattn.arrays.enclosure import Enclosure
from symattn.attention.derivative import vjp

D, RUNS, EPS32 = 64, 9, 2.0**-23
SPECS = {
    "plain": Attention(),
    "causal": Attention(causal=True),
    "softcap 30": Attention(softcap=30),
    "causal, 4 heads": Attention(causal=True, heads=4),
    "rotary": Attention(position=Rotary()),
}


def shortest(jobs: list[Callable[[], Any]], runs: int = RUNS) -> list[float]:
    times: list[list[float]] = [[] for _ in jobs]
    for _ in range(runs):
        for job, seen in zip(jobs, times, strict=True):
            start = time.process_time()
            job()
            seen.append(time.process_time() - start)
    return [min(seen) for seen in times]


def peak(job: Callable[[], Any]) -> float:
    """MiB."""
    tracemalloc.start()
    job()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found / 2**20


def drawn(n: int, spec: Attention) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    width = D * spec.heads
    return {
        name: rng.standard_normal((spec.heads, n, D) if spec.heads > 1 else (n, width))
        for name in "qkv"
    }


def line(n: int, name: str, spec: Attention) -> None:
    floats = drawn(n, spec)
    enclosures = {m: Enclosure.lift(x) for m, x in floats.items()}
    jobs: list[Callable[[], Any]] = [lambda: spec(**floats), lambda: spec(**enclosures)]
    a, b = shortest(jobs)
    wide = np.median(spec(**enclosures).rad) / EPS32
    m, k = map(peak, jobs)
    print(
        f"n = {n:5}, {name:16} {b / a:5.2f} ×   ({a * 1e3:7.1f} and {b * 1e3:7.1f} ms)   memory {k / m:4.1f} ×   "
        f"({m:6.1f} and {k:6.1f} MiB)   median radius {wide:.1e}"
    )


def gradients(n: int) -> None:
    spec = Attention(causal=True)
    floats = drawn(n, spec)
    enclosures = {m: Enclosure.lift(x) for m, x in floats.items()}
    a, b = shortest(
        [lambda: vjp(spec, floats["v"], floats), lambda: vjp(spec, enclosures["v"], enclosures)], 3
    )
    print(
        f"n = {n:5}, causal, gradients by q, k, v: {b / a:5.2f} ×   ({a * 1e3:.1f} and {b * 1e3:.1f} ms)"
    )


def against_balls(n: int) -> None:
    floats = drawn(n, Attention())
    enclosures = {m: Enclosure.lift(x) for m, x in floats.items()}

    def balls() -> Any:
        with precision(200):
            return Attention()(**{m: Ball.lift(x) for m, x in floats.items()})

    (a,), (b,) = shortest([balls], 1), shortest([lambda: Attention()(**enclosures)], 3)
    print(
        f"n = {n:5}, plain: {a / b:.0f} × faster than balls of 200 bits   ({a:.2f} s and {b * 1e3:.1f} ms)"
    )


def main() -> None:
    for n in (256, 1024):
        for name, spec in SPECS.items():
            line(n, name, spec)
    gradients(512)
    against_balls(256)


if __name__ == "__main__":
    main()
