"""``assert_close_to_exact`` of 131072 keys in bfloat16 by sampled rows: memory of arrays, and processor seconds.

Heads of 64 and 128 columns, causal, 32 rows of each, which are right; q, k, v and the output themselves are not
counted (``tracemalloc``). One thread. Command: ``OMP_NUM_THREADS=1 python -m benchmarks.half_long``
"""

from __future__ import annotations

import time
from functools import partial

import ml_dtypes
import numpy as np

from benchmarks.enclosure import peak
from symattn import Attention
from symattn.testing import assert_close_to_exact

N, ROWS = 131072, 32
Array = np.ndarray


def right(q: Array, k: Array, v: Array, rows: list[int]) -> Array:
    """An output that is right in some rows."""
    out = np.zeros(q.shape, ml_dtypes.bfloat16)
    for at in np.ndindex(q.shape[:-2]):
        keys, values = k[at].astype(np.float32), v[at].astype(np.float32)
        for row in rows:
            s = keys[: row + 1] @ q[at][row].astype(np.float32) / np.float32(q.shape[-1] ** 0.5)
            e = np.exp(s - s.max())
            out[at][row] = (e @ values[: row + 1] / e.sum()).astype(ml_dtypes.bfloat16)
    return out


def main() -> None:
    print("heads  columns  inputs, MiB  MiB besides  seconds")
    for heads, width in ((1, 64), (1, 128), (4, 64)):
        rng, shape = np.random.default_rng(0), (heads, N, width)
        q, k, v = (
            rng.standard_normal(shape, dtype=np.float32).astype(ml_dtypes.bfloat16)
            for _ in range(3)
        )
        rows = [int(i) for i in np.linspace(0, N - 1, ROWS)]
        out, spec = right(q, k, v, rows), Attention(causal=True, heads=heads)
        start = time.process_time()
        most = peak(partial(assert_close_to_exact, out, q, k, v, spec, rows=rows)) / 2**20
        took, size = time.process_time() - start, 4 * q.nbytes / 2**20
        print(f"{heads:5}{width:9}{size:13.0f}{most:13.0f}{took:9.1f}", flush=True)


if __name__ == "__main__":
    main()
