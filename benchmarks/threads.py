"""What more BLAS threads cost: processor time with as many as there are processors, over that with one, in one run.

``bound`` for 1024 keys, ``assert_close_to_exact`` of 2 × 8 × 1024 × 64 and ``verify`` of a right function.

Command: ``python -m benchmarks.threads``
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from symattn import bound, verify
from symattn.testing import assert_close_to_exact

RUNS = 3


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Attention in five lines."""
    s = q @ k.mT / np.sqrt(q.shape[-1], dtype=q.dtype)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True) @ v)


def seconds(work: Callable[[], object], threads: int | None) -> float:
    """Of the processor, with so many threads; None for as many as there are."""
    with threadpool_limits(threads, "blas"):
        start = time.process_time()
        work()
        return time.process_time() - start


def main() -> None:
    q, k, v = np.random.default_rng(1).standard_normal((3, 2, 8, 1024, 64), dtype=np.float32)
    out = attention(q, k, v)
    works: dict[str, Callable[[], object]] = {
        "bound": lambda: bound(n=1024).document(compare=True),
        "assert_close_to_exact": lambda: assert_close_to_exact(out, q, k, v),
        "verify": lambda: verify(attention),
    }
    for name, work in works.items():
        work()  # imports
        one, all_ = np.array([[seconds(work, 1), seconds(work, None)] for _ in range(RUNS)]).min(
            axis=0
        )
        print(
            f"{name:22s} {all_:.2f} s, on one thread {one:.2f} s: {all_ / one:.2f} × (wanted: ≤ 1.1 ×)"
        )


if __name__ == "__main__":
    main()
